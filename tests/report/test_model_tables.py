import re

import pytest

from gradcheck.report import model_tables, page
from gradcheck.report.terminal import render
from gradcheck.results import words
from gradcheck.results.case_result import Kind
from gradcheck.results.finding import Part
from gradcheck.results.verdict import Verdict

FAIL = Verdict.FAIL


def sections(run, width=100):
    return render(run, width=width).split("\n\n")


def table(run, width=100, head="gpt2 "):
    (found,) = [s for s in sections(run, width) if s.startswith(head)]
    return found.splitlines()


@pytest.fixture
def alone(make):
    """A single model with loss, gradients and stages."""
    rows = [(Part.VALUE, "loss"), (Part.GRADIENT, "wte"), (Part.GRADIENT, "ln_f.w"),
            (Part.STAGE, "embed"), (Part.STAGE, "ln_f")]  # fmt: skip
    found = [
        make.of_model(output, part=part, size=size, dtype=dtype,
                      worst=(make.miss(index=(3, 1), want=0.5, got=0.5, error=1e-17,
                                       error_bar=2e-19, tensor="h.x" * (part is Part.STAGE)),))
        for size in ("tiny", "large")
        for dtype in ("mp50", "float64", "float32")
        for part, output in rows
    ]  # fmt: skip
    return make.run(*found, dtypes=("mp50", "float64", "float32"))


def test_a_single_model_has_a_row_per_gradient_and_per_stage_set_apart(alone):
    head, rule, loss, gradients, *rest = table(alone)
    assert head.split() == ["gpt2", "mp50", "float64", "float32", "worst", "±", "error", "bar"]
    assert set(rule) == {"─"}
    assert loss.startswith("loss ")
    assert gradients.startswith("── 2 gradients ──")
    wte, norm, stages, embed, last, note = rest
    assert wte.startswith("dwte ")
    assert norm.startswith("d ln_f.w ")
    assert stages.startswith("── 2 stages, each at the reference's values")
    assert embed.startswith("embed ")
    assert last.startswith("ln_f ")
    assert note == "sizes tiny, large; a cell shows the worst of them"
    for row in (wte, norm, embed, last):
        assert row.count("PASS") == 3
        assert row.endswith("[3, 1] ± 2e-19")
    assert len(rule) == len(gradients) == len(stages) <= 100


def test_a_wide_table_says_which_element_of_what_at_which_size(alone):
    head, _, _, _, wte, *rest = table(alone, 200)
    assert re.search(" worst element  want +in$", head)
    assert re.search(r" \[3, 1\] +0.5 ± 2e-19 +tiny/float64$", wte)
    assert any("h.x[3, 1]" in row for row in rest)


def test_what_was_projected_names_no_element(make):
    run = make.run(make.of_model("wte", evaluations=26, worst=(make.miss(index=()),)))
    assert table(run, 60)[2].endswith(" along d ± 1e-20")
    assert re.search(r" along d +0.1234 ± 1e-20 +tiny/float64$", table(run, 200)[2])


def test_narrow_tables_give_up_the_certificates_error_then_bounds_then_elements(alone):
    def shown(width):
        lines = table(alone, width)
        assert max(map(len, lines)) <= width
        return "\n".join(lines)

    certified = re.compile(r"^dwte +PASS \d", re.MULTILINE)
    assert certified.search(shown(120))
    assert not certified.search(shown(84))
    assert "≤" in shown(84)
    assert "≤" not in shown(70)
    assert "[3, 1]" in shown(70)
    assert "[3, 1]" not in shown(45)
    for width in (40, 45, 60, 70, 84, 120):
        assert shown(width).count("PASS") == 15


def test_a_size_that_lacks_a_row_or_a_dtype_is_no_pass(make):
    run = make.run(
        make.of_model("a"), make.of_model("b", dtype="float32"), make.of_model("a", size="large")
    )
    rows = [line for line in table(run) if line.startswith("d")]
    assert [(row.count("PASS"), row.count("–")) for row in rows] == [(1, 1), (1, 1)]


def test_several_models_have_a_line_each_that_counts_what_passes(faulty):
    lines = table(faulty, head="model")
    assert lines[0].split() == ["model", "gradients", "stages", "float64", "float32"]
    gpt2, llama = lines[2:4]
    assert gpt2.split()[:3] == ["gpt2", "2/4", "1/3"]
    assert "FAIL" in gpt2
    assert llama.split()[:3] == ["llama", "3/3", "2/2"]
    assert llama.count("PASS") == 2
    assert lines[4].startswith("A line per model; --model NAME")


def test_what_fails_among_several_models_is_shown_in_full(faulty):
    heads = [section.split()[0] for section in sections(faulty)]
    assert "gpt2" in heads
    assert "llama" not in heads
    rows = table(faulty)
    assert any(re.match(r"h\.0\.attn +FAIL 4\.5e-04", row) for row in rows)
    assert any(re.match(r"d ln_f\.b +INCONCLUSIVE", row) for row in rows)


def test_more_failing_models_than_fit_are_named(make, monkeypatch):
    monkeypatch.setattr(model_tables, "LONGEST", 3)
    found = [
        make.of_model(f"w{i}", FAIL, op=op) for op in ("one", "two", "three") for i in range(2)
    ]
    found = sections(make.run(*found, make.of_model(op="four")))
    assert [s.split()[0] for s in found if re.match("(one|two|three|four) ", s)] == ["one"]
    assert "two, three: --model NAME or -o report.html shows every row." in found


def test_each_implementation_has_its_own_tables(make):
    found = [make.of_model(implementation=who) for who in ("mine", "reference")]
    text = render(make.run(*found, implementations=("reference", "mine")))
    assert "\n\nreference\ngpt2 " in text
    assert "\n\nmine\ngpt2 " in text
    assert "\nreference\ngpt2" not in render(make.run(make.of_model()))


def test_a_dialect_stands_in_the_head_and_in_a_column(make):
    run = make.run(make.of_model(dialect="mean"), make.of_model(dialect="sum"))
    heads = [s.split("\n")[0].split()[:2] for s in sections(run) if s.startswith("gpt2")]
    assert heads == [["gpt2", "mean"], ["gpt2", "sum"]]
    run = make.run(make.of_model(dialect="mean"), make.of_model(op="svm"))
    lines = table(run, head="model")
    assert lines[0].split()[:2] == ["model", "dialect"]


def test_failures_of_stages_come_before_those_that_may_follow_from_them(faulty):
    def titles(text):
        return re.findall(r"^(?:FAIL|MISSING|INCONCLUSIVE) .* · (.*?)(?::|$)", text, re.M)

    assert titles(render(faulty, verbosity=1))[:4] == [
        "stage h.0.attn",
        "stage embed",
        "dwte",
        "d ln_f.b",
    ]
    told = titles(render(faulty))
    assert told[:3] == ["stage embed", "stage h.0.attn", "dwte"]
    assert told[3:] == ["stage embed", "stage h.0.attn", "dwte", "d ln_f.b"]  # the list


def test_a_model_shows_one_failure_of_each_gradient_the_smallest_first(make):
    found = [
        make.of_model("wte", FAIL, size=size, compared=n, worst=(make.miss(error=e, bound=1.0),))
        for size, n, e in (("tiny", 24, 2.0), ("large", 240, 9e9))
    ]
    text = render(make.run(*found))
    (first,) = re.findall(r"^FAIL gpt2 · dwte\n(?:  .*\n)+", text, re.M)
    assert "; 2 of 2 cases fail\n" in first
    assert f"  run: {found[0].repro}\n" in first
    whole = render(make.run(*found), verbosity=1)
    assert re.findall(r"^FAIL gpt2/default/(\w+)/float64 · dwte: ", whole, re.M) == [
        "tiny",
        "large",
    ]


def test_blame_stands_behind_the_failures(faulty):
    found = sections(faulty)
    place = next(k for k, text in enumerate(found) if text.startswith("stages at fault"))
    assert found[place - 1].startswith("FAIL gpt2 · dwte\n")
    assert found[place].splitlines() == [
        "stages at fault in gpt2/default (odd in float64)",
        "  round 1: faulty stage: h.0.attn (1 of 25 stages)",
        "    its dk lacks a factor",
        "  round 2: faulty stage: one of embed, h.0.attn (2 of 25 stages)",
        "    between the right gradient of ln_f.w and the wrong one of wte",
        "  assumption: one fault at a time",
    ]


def test_blame_names_its_implementation_where_there_are_several(make):
    found = [
        make.of_model("loss", implementation=who, blames=(make.blame("a"),)) for who in ("x", "y")
    ]
    text = render(make.run(*found, implementations=("x", "y")))
    first = (
        "\nstages at fault in x · gpt2/default (tiny in float64)\n  faulty stage: a (1 of 25 sta"
    )
    assert first in text
    assert "\nstages at fault in y · gpt2/default " in text


def test_what_cannot_be_seen_is_told_in_full_for_one_model_in_a_line_for_several(make):
    coarse = make.of_model("wte", unresolved=7)
    projected = make.of_model("big", evaluations=26, smallest_visible_error=1e-6, op="mlp")
    text = render(make.run(coarse), width=200)
    said = "7 elements too uncertain to be judged"
    assert f"\nvisible: gpt2/default/tiny/float64: {said}: dwte (7)\n" in text
    text = render(make.run(coarse, projected), width=200)
    seen = "visible: an error of 1e-06 of a typical element in mlp/default/tiny/float64 · dbig, "
    assert f"\n{seen}the blindest of 1 projected gradient" in text
    assert f"\nvisible: {said}, the most of them in gpt2/default/tiny/float64: --model gpt2" in text
    assert "visible" not in render(make.run(make.of_model()))


def test_a_pass_of_taylor_curves_says_how_much_is_missing_at_most(make):
    curves = [make.curve(intercept) for intercept in (1e-13, -0.05, 0.0)]
    found = [make.of_model(f"w{i}", taylor=curve) for i, curve in enumerate(curves)]
    found.append(make.result(taylor=make.curve(0.0), dtype="float32"))
    text = " ".join(render(make.run(*found)).split())
    assert (
        "taylor: 3 curves in float64; the largest part missing from ⟨g, d⟩ is 0.2, in "
        "gpt2/default/tiny/float64 · dw1 (-0.05 ± 1e-12 missing from 0.25)"
    ) in text
    assert "taylor: 1 curve in float32; the largest part missing from ⟨g, d⟩ is 0, in" in text


def test_colour_widens_no_table(faulty):
    plain = render(faulty, width=70)
    assert page.COLOR.sub("", render(faulty, width=70, color=True)) == plain


def training(make, verdict=Verdict.PASS, **changes):
    told = "loss 2 → 1 in 30 steps of adam: fell by 1, 1 predicted"
    return make.of_model("training", verdict, part=Part.TRAINING, reason=told, **changes)


def test_a_training_tells_how_the_loss_fell(make):
    text = render(make.run(training(make)), width=200)
    said = "loss 2 → 1 in 30 steps of adam: fell by 1, 1 predicted"
    assert f"\ntraining: gpt2/default/tiny/float64: {said}\n" in text
    worst = (make.miss(index=(12,), tensor="wte", cotangent="step 12"),)
    wrong = make.run(training(make, FAIL, worst=worst))
    failed = render(wrong, width=200)
    element = "step 12, wte alone got 0.123456, expected 0.1234"
    assert f"\nFAIL gpt2 · training\n  {said}\n  {element}: rel. err " in failed
    assert "\ntraining: " not in failed
    whole = render(wrong, width=200, verbosity=1)
    assert f"\nFAIL gpt2/default/tiny/float64 · training: {said}\n" in whole
    assert f"\n  worst: {element} ± " in whole
    assert "; the worst at step 12\n" in whole
    several = render(make.run(training(make), training(make, op="svm")))
    assert "\ntraining: 2 times the loss fell as the gradients predict; --model NAME" in several


def test_a_training_stands_last_and_names_the_step_where_it_is_worst(make):
    worst = (make.miss(index=(12,), tensor="wte", cotangent="step 12"),)
    run = make.run(training(make, worst=worst), make.of_model("ln_f", part=Part.STAGE))
    *_, rule, row = table(run, 70)
    assert rule.startswith("── 1 training ─")
    assert row.startswith("training ")
    assert row.endswith("step 12, wte alone ± 1e-20")


def test_trainings_are_counted_where_there_are_any(make):
    run = make.run(training(make), training(make, FAIL, op="svm"))
    lines = table(run, head="model")
    assert [line.split()[:2] for line in (lines[0], *lines[2:4])] == [
        ["model", "trainings"], ["gpt2", "1/1"], ["svm", "0/1"],
    ]  # fmt: skip


def test_update_rules_have_a_table_of_their_own(make):
    found = [
        make.result("adam", name, kind=Kind.RULE, part=Part.UPDATE, dialect="default")
        for name in ("w", "m.w")
    ]
    text = render(make.run(make.result("relu"), *found))
    rules, operators = (
        next(s for s in text.split("\n\n") if s.startswith(kind)) for kind in ("rule", "operator")
    )
    assert re.match(
        r"rule +new value +float64: rel. err ≤ tol +samples +elements$", rules.splitlines()[0]
    )
    assert [line.split()[:2] for line in rules.splitlines()[2:]] == [
        ["adam", "w"], ["m.w", "PASS"],
    ]  # fmt: skip
    assert "adam" not in operators


def test_a_wrong_update_says_at_which_step_it_is_worst(make):
    worst = (make.miss(cotangent="steps 1 to 7"),)
    wrong = make.result("adam", "m.w", FAIL, kind=Kind.RULE, part=Part.UPDATE, worst=worst)
    assert "\nFAIL adam/weight · m.w\n" in render(make.run(wrong))
    text = render(make.run(wrong), verbosity=1)
    assert "\n  worst: m.w[1, 3] got " in text
    assert "; the worst at steps 1 to 7\n" in text


def test_what_a_faulty_stage_explains_is_named_and_not_told_one_by_one(make):
    guilty = [f"s{i}" for i in range(4)]
    found = [
        make.of_model("loss", part=Part.VALUE, blames=(make.blame(*guilty),)),
        *(make.of_model(name, FAIL, part=Part.STAGE) for name in guilty),
        *(make.of_model(f"w{i:02}", FAIL) for i in range(10)),
        make.of_model("wte", FAIL, op="svm"),
        make.of_model("loss", part=Part.VALUE, op="svm", blames=(make.blame("a", exact=False),)),
    ]
    text = render(make.run(*found), width=200)
    titles = re.findall(r"^FAIL (\w+) · (.*)", text, re.MULTILINE)
    assert titles == [("gpt2", "stage s0, stage s1, stage s2 and 1 more"), ("svm", "dwte")]
    assert "\n  faulty stages: s0, s1, s2, s3 (4 of 25 stages)\n" in text
    assert "; 4 of 4 checks fail; affected downstream: dw00, dw01, dw02 and 7 more\n" in text
    assert "\n  faulty stage: a (1 of 25 stages) (one fault at a time)\n" in text
    assert "15 of 17 checks failed, for 2 reasons." in text
    whole = render(make.run(*found), verbosity=1)
    for result in found[1:-1]:
        assert f"\nFAIL {words.title(result)}: " in whole


def test_a_gradient_that_fails_where_nobody_is_blamed_is_told(make):
    found = [
        make.of_model("loss", part=Part.VALUE, blames=(make.blame("a"),)),
        make.of_model("wte", FAIL),
        make.of_model("wte", FAIL, size="large"),
    ]
    text = render(make.run(*found))
    assert "\nFAIL gpt2 · dwte\n  faulty stage: a (1 of 25 stages)\n" in text
    assert "; 2 of 2 cases fail\n" in text
    assert "affected downstream" not in text


def test_a_row_without_an_element_of_its_own_has_none(make):
    found = [
        make.of_model("a", Verdict.MISSING, reason="no gradient"),
        make.of_model("b", dtype="mp50"),
        make.of_model("c"),
    ]
    for width in (60, 200):
        barred = {line.split()[0]: "±" in line for line in table(make.run(*found), width)[2:]}
        assert barred == {"da": False, "db": False, "dc": True}
