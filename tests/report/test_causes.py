"""Failures by cause: none is lost, none is counted twice, and the list is short."""

import random
import re

import pytest

from gradcheck.report.causes import causes, told
from gradcheck.report.terminal import CAUSE_LINES, CAUSES, render
from gradcheck.results.finding import COMPARING_PROPERTIES, COMPUTED_IN, Part
from gradcheck.results.verdict import Verdict
from gradcheck.spec.defect import Defect

FAIL, PASS, CRASH, ERROR, MISSING = (
    Verdict.FAIL, Verdict.PASS, Verdict.CRASH, Verdict.ERROR, Verdict.MISSING,
)  # fmt: skip
NARROW = COMPUTED_IN + "float32"


def narrow(make, name="x"):
    return make.why(Defect.PRECISION, says=f"d{name} has 24 significant bits", cause=NARROW)


def rounding(make, name="x"):
    return make.why(Defect.PRECISION, says=f"d{name} is off by rounding errors")


def owed(make, name, op="silu", **changes):
    """A side condition that is violated."""
    return make.result(
        op, name, FAIL, part=Part.CONTRACT, worst=(), reason=f"not {name}", **changes
    )


def named(found):
    """Operators and gradients of each cause."""
    return [sorted({(r.case.op, r.finding.name) for r in cause.results}) for cause in found]


def ids(results):
    return sorted(map(id, results))


# ── what is one cause ────────────────────────────────────────────────────────────────────────


def root_cause(make, number=1250):
    """Failures of 170 gradients of 38 operators that are computed in float32."""
    gradients = [(f"op{i:02}", name) for name in "xwbcd" for i in range(38)][:170]
    for k in range(number):
        op, name = gradients[k % len(gradients)]
        why = narrow(make, name) if k % 3 else rounding(make, name)
        yield make.result(op, name, FAIL, sample=f"s{k // len(gradients)}", diagnosis=why)


def ten_others(make):
    """A root cause each, and the words that name it."""

    def died(op, verdict, reason):
        return make.result(op, "vjp", verdict, reason=reason)

    zero = {"diagnosis": make.why("K", says="wrong only at exactly 0")}
    return {
        "tanh": [make.result("tanh", "x", FAIL, diagnosis=make.why("S", says="dx is negated"))],
        "mean": [make.result("mean", "x", FAIL, sample=s, reason="r") for s in "ab"],
        "(abs, relu, sign)": [make.result(o, "x", FAIL, **zero) for o in ("relu", "abs", "sign")],
        "SIGSEGV in conv_bwd": [died("conv", CRASH, "SIGSEGV in conv_bwd")],
        "SIGSEGV in pool_bwd": [died("pool", CRASH, "SIGSEGV in pool_bwd")],
        "dbias is lost": [make.result("bmm", "bias", MISSING, reason="dbias is lost")],
        "vjp raised KeyError": [died("sort", ERROR, "vjp raised KeyError: 'k'")],
        "no answer": [died("cumsum", Verdict.TIMEOUT, "no answer within 10 s")],
        "side condition pure": [owed(make, "pure", "gelu")],
        "INCONCLUSIVE exp": [make.result("exp", "x", Verdict.INCONCLUSIVE, reason="too noisy")],
    }  # fmt: skip


def test_one_cause_of_1250_failures_and_ten_others_are_eleven_on_two_screens(make):
    others = ten_others(make)
    results = [*root_cause(make), *(r for found in others.values() for r in found)]
    random.Random(0).shuffle(results)
    run = make.run(*results)
    found = causes(run)
    assert len(found) == 11
    assert sum(len(cause.results) for cause in found) == len(results) == 1250 + 13
    screens = "\n".join(render(run, width=80).splitlines()[:48])
    for words in (f"170 gradients of 38 operators (op00, op01, op02, …): {NARROW}", *others):
        assert words in screens
    listed = re.findall(
        r"^(?:FAIL|MISSING|CRASH|TIMEOUT|ERROR|INCONCLUSIVE) .*: ", screens, re.MULTILINE
    )
    assert len(listed) == 11
    assert "\n1,263 of 1,263 checks failed, for 11 reasons. " in screens


def test_float64_that_is_float32_is_one_cause_with_the_rounding_errors_that_it_makes(make):
    found = causes(make.run(*root_cause(make, 400)))
    assert [told(cause).line for cause in found] == [
        f"170 gradients of 38 operators (op00, op01, op02, …): {NARROW}"
    ]
    alone = [make.result(sample=f"s{i}", verdict=FAIL, diagnosis=rounding(make)) for i in range(3)]
    (cause,) = causes(make.run(*alone))  # of no narrow type: its own sentence
    assert told(cause).what == "dx is off by rounding errors"


def test_another_bug_in_the_same_gradients_is_a_cause_or_is_counted(make):
    """Where several gradients have it, it is one; in one gradient its failures are counted."""
    sign = make.why("S", says="wrong sign", evidence=())
    results = [*root_cause(make, 400)]
    results += [make.result(f"op0{i}", "x", FAIL, sample="zz", diagnosis=sign) for i in range(2)]
    wide, shared = causes(make.run(*results))
    assert (len(wide.results), named([shared])) == (400, [[("op00", "x"), ("op01", "x")]])
    assert told(shared).what == "wrong sign"
    (wide,) = causes(make.run(*results[:-1]))
    assert told(wide).extent == "401 of 401 checks fail; 1 of them sign"
    raised = make.result("op00", "x", ERROR, sample="zzz", reason="it raised E")
    first, wide, _ = causes(make.run(*results, raised))
    assert told(first).line == "op00/weight · dx: it raised E"
    assert told(wide).what == NARROW


def test_many_other_kinds_are_all_counted(make):
    labels = ("S", "T", "R", "K", "G", "E")
    found = [make.result(verdict=FAIL, sample=f"a{i}", diagnosis=make.why()) for i in range(9)]
    found += [make.result(verdict=FAIL, sample=x, diagnosis=make.why(x, says=x)) for x in labels]
    (cause,) = causes(make.run(*found))
    counts = [int(n) for n in re.findall(r"; (\d+) ", told(cause).extent)]
    assert sum(counts) == len(labels)
    assert "; 3 of them of other kinds" in told(cause).extent


def test_two_functions_that_die_are_two_causes_and_one_message_of_two_operators_is_one(make):
    def died(op, verdict, reason):
        return make.result(op, "vjp", verdict, reason=reason)

    two = [died(op, CRASH, f"SIGSEGV in {op}_bwd") for op in ("relu", "silu")]
    assert named(causes(make.run(*two))) == [[("relu", "vjp")], [("silu", "vjp")]]
    one = [died(op, CRASH, "exited with status 1 before it answered") for op in ("relu", "silu")]
    assert named(causes(make.run(*one))) == [[("relu", "vjp"), ("silu", "vjp")]]
    raised = [died(op, ERROR, f"{op} needs a GPU") for op in ("relu", "silu")]
    assert named(causes(make.run(*raised))) == [[("relu", "vjp"), ("silu", "vjp")]]
    mixed = [died("relu", CRASH, "lost"), died("silu", Verdict.TIMEOUT, "lost")]
    assert len(causes(make.run(*mixed))) == 2


def test_what_compares_wrong_gradients_follows_and_other_side_conditions_are_causes(make):
    wrong = make.result("silu", "x", FAIL)
    compares = [owed(make, name) for name in COMPARING_PROPERTIES]
    found = causes(make.run(wrong, *compares, owed(make, "pure")))
    assert named(found) == [[("silu", "pure")], [("silu", "x")]]
    assert ids(found[0].consequences + found[1].consequences) == ids(compares)
    assert "affected downstream: side condition" in told(found[0]).extent
    elsewhere = causes(make.run(wrong, owed(make, "linear", "gelu")))  # its gradients are right
    assert named(elsewhere) == [[("gelu", "linear")], [("silu", "x")]]
    assert not any(cause.consequences for cause in elsewhere)
    assert len(causes(make.run(*compares))) == len(compares)


@pytest.mark.parametrize("where", [Part.VALUE, Part.STAGE])
def test_a_stage_known_exactly_has_wrong_parameters_as_consequences(make, where):
    """The blame stands with the loss, which passes, or with the stage."""
    blames = (make.blame("attn", names=("its dk lacks a factor",)),)
    loss = make.of_model("loss", part=Part.VALUE, blames=blames if where is Part.VALUE else ())
    stage = make.of_model(
        "attn", FAIL, part=Part.STAGE, blames=() if loss.finding.blames else blames
    )
    wrong = [make.of_model(name, FAIL) for name in ("wq", "wk")]
    lost = make.of_model("wte", MISSING, reason="dwte is not returned")
    first, second = causes(make.run(loss, stage, *wrong, lost))
    assert (first.results, ids(first.consequences)) == ((stage,), ids(wrong))
    assert told(first).line == "gpt2 · stage attn: its dk lacks a factor"
    assert told(first).extent == "the only case fails; affected downstream: dwk, dwq"
    assert second.results == (lost,)
    assert told(second).line == "gpt2 · dwte: dwte is not returned"


def test_a_stage_that_is_only_suspected_has_none(make):
    blames = (make.blame("attn", "mlp", exact=False),)
    loss = make.of_model("loss", part=Part.VALUE, blames=blames)
    wrong = [make.of_model(name, FAIL) for name in ("wk", "wq")]
    (cause,) = causes(make.run(loss, *wrong))
    assert (ids(cause.results), cause.consequences) == (ids(wrong), ())
    assert told(cause).sentence == (
        "faulty stage: one of attn, mlp (2 of 25 stages) (one fault at a time)"
    )
    other = make.of_model("wk", FAIL, op="svm")  # nothing is known of it
    assert told(causes(make.run(loss, *wrong, other))[1]).what.startswith("3 of 24 elements")


def test_two_implementations_never_share_a_cause(make):
    results = [
        make.result(op, "x", verdict, implementation=whose, reason="r", diagnosis=why)
        for whose in ("mine", "yours")
        for op, verdict, why in (
            ("relu", FAIL, narrow(make)), ("silu", FAIL, narrow(make)), ("tanh", ERROR, None),
        )
    ]  # fmt: skip
    found = causes(make.run(*results, implementations=("mine", "yours")))
    assert len(found) == 4
    assert all(len({r.case.implementation for r in cause.results}) == 1 for cause in found)
    assert told(found[0], named=True).who == "mine · tanh/weight · dx"


def test_the_telling_case_is_the_typical_one_of_the_usual_kind_and_not_the_largest_ratio(make):
    def wrong(sample, error, label="F", **changes):
        worst = (make.miss(error=error, bound=1.0),)
        return make.result(
            verdict=FAIL, sample=sample, worst=worst, diagnosis=make.why(label), **changes
        )

    usual = [wrong("far", 1e9, compared=2), wrong("typical", 2.0, compared=99), wrong("big", 3.0)]
    (cause,) = causes(make.run(*usual))
    assert cause.telling.case.sample == "typical"
    assert told(cause).run.endswith("--sample typical --dtype float64")
    (cause,) = causes(make.run(usual[0], *usual[2:]))  # without one, the smallest
    assert cause.telling.case.sample == "far"
    odd = make.result(verdict=FAIL, diagnosis=make.why("T", says="odd"))
    (cause,) = causes(make.run(usual[0], usual[2], odd))
    assert cause.telling.case.sample == "far"
    nan = make.result(verdict=FAIL, sample="nan", worst=(make.miss(got=float("nan")),), compared=1)
    (cause,) = causes(make.run(nan, make.result(verdict=FAIL)))
    assert cause.telling.case.sample == "typical"


# ── any run ──────────────────────────────────────────────────────────────────────────────────


def any_results(make, draw):
    """Results of a few operators and a model of several implementations, in random order."""
    whys = [None, None, make.why(""), make.why(), make.why("T", says="dx lacks a term"),
            narrow(make), narrow(make, "w"), rounding(make), make.why("S", says="wrong sign"),
            make.why(Defect.PRECISION, says="b", cause=f"{COMPUTED_IN}bfloat16")]  # fmt: skip
    reasons = [
        "",
        "SIGSEGV",
        "SIGSEGV in op0",
        "raised E: op1",
        "raised E: op0",
        make.hostile,
    ]
    blames = [(), (), (make.blame("s1"),), (make.blame("s1", "s2", exact=False),),
              (make.blame("s1"), make.blame("s2", exact=False, round=2))]  # fmt: skip
    found = {}
    for _ in range(draw.randint(1, 40)):
        verdict = draw.choice([FAIL, FAIL, FAIL, *Verdict])
        whose, sample = draw.choice(["a", "b"]), draw.choice(["typical", "s2", "s10"])
        dtype = draw.choice(["float64", "float32", "float16"])
        common = {"implementation": whose, "dtype": dtype, "verdict": verdict,
                  "reason": draw.choice(reasons), "diagnosis": draw.choice(whys),
                  "printed": draw.choice(["", "x\n"])}  # fmt: skip
        kind = draw.choice(["gradient", "gradient", "contract", "model"])
        if kind == "gradient":
            op, name = draw.choice(["op0", "op1", "op2"]), draw.choice(["x", "w", "vjp"])
            result = make.result(op, name, sample=sample, **common)
        elif kind == "contract":
            name = draw.choice(["linear", "zero", "pure"])
            op = draw.choice(["op0", "op1"])
            result = make.result(op, name, sample=sample, part=Part.CONTRACT, worst=(), **common)
        else:
            part = draw.choice([Part.GRADIENT, Part.STAGE, Part.VALUE])
            name = {Part.VALUE: "loss"}.get(part, draw.choice(["s1", "s2", "s10"]))
            op = draw.choice(["m0", "m1"])
            result = make.of_model(name, part=part, size=sample, op=op, blames=draw.choice(blames),
                                   **common)  # fmt: skip
        found[result.key] = result
    return [*found.values()]


def said(found):
    """Everything that the causes of a run are, as data that can be compared."""
    return [([r.key for r in cause.results], sorted(r.key for r in cause.consequences),
             cause.asked, cause.blame, told(cause)) for cause in found]  # fmt: skip


@pytest.mark.parametrize("seed", range(4))
def test_every_failure_is_in_one_cause_whatever_the_order(make, seed):
    draw = random.Random(seed)
    for _ in range(100):
        results = any_results(make, draw)
        run = make.run(*results, implementations=("a", "b"))
        found = causes(run)
        both = [r for cause in found for r in (*cause.results, *cause.consequences)]
        assert ids(both) == ids(filter(run.fails, results))
        for cause in found:
            assert cause.telling is cause.results[0]
            assert len({r.case.implementation for r in (*cause.results, *cause.consequences)}) == 1
            checked = [r for r in results if r.finding.verdict.checked]
            own = {*cause.gradients}
            asked = [r for r in checked if (r.case.implementation, r.case.kind, r.case.op,
                                            r.finding.part, r.finding.name) in own]  # fmt: skip
            assert cause.asked == len(asked) >= len(cause.results)
        draw.shuffle(results)
        again = make.run(*results, implementations=("a", "b"))
        assert said(causes(again)) == said(found)


def test_a_baseline_takes_what_it_knows_out(known, outdated):
    assert causes(known) == []
    both = [r for cause in causes(outdated) for r in (*cause.results, *cause.consequences)]
    assert ids(both) == ids(filter(outdated.fails, outdated.results))


# ── in a few lines ───────────────────────────────────────────────────────────────────────────


def told_on(text):
    """The paragraphs of a report that tell a cause."""
    return [part.splitlines() for part in text.split("\n\n") if "\n  run: " in part]


@pytest.mark.parametrize("width", [60, 80, 100, 160])
def test_a_cause_takes_five_lines_whatever_is_in_it(make, any_run, width):
    long = make.result(
        "op" * 60, "x" * 90, FAIL, source="kernels/" * 30 + "a.c:7", printed="text " * 99,
        diagnosis=make.why(says="because " * 99), worst=(make.miss(index=(123456,) * 20),),
    )  # fmt: skip
    unbroken = make.result("o", "x", ERROR, reason="x" * 999, printed="y" * 999)
    draw = random.Random(width)
    runs = [any_run, make.run(long, unbroken)]
    runs += [make.run(*any_results(make, draw), implementations=("a", "b")) for _ in range(20)]
    for run in runs:
        found = told_on(render(run, width=width))
        assert len(found) == min(len(causes(run)), CAUSES)
        for *lines, last in found:
            assert len(lines) < CAUSE_LINES
            assert last.startswith("  run: ")
            assert all(line.strip() and len(line) <= width for line in lines)
            assert all(line.isprintable() for line in (*lines, last))


@pytest.mark.parametrize("width", [60, 80])
def test_what_is_cut_ends_with_a_mark(make, width):
    long = make.result(
        "op" * 60, "x", FAIL, reason="word " * 99, worst=(make.miss(index=(9,) * 60),)
    )
    (lines,) = told_on(render(make.run(long, make.result("op" * 60, "x")), width=width))
    head, what = lines[0], [line for line in lines if "word" in line]
    assert head.startswith("FAIL opop")
    assert what[-1].endswith("…")
    (element,) = (line for line in lines if "[9, 9" in line)
    assert element.endswith("…")
    assert any("1 of 2 cases fails" in line for line in lines)


def test_the_first_screen_of_one_operator_holds_table_failure_and_summary(make):
    why = make.why(says="dx lacks the term that comes from the mean: " + "a few more words " * 3)
    results = [
        make.result("rms_norm", name, FAIL if name == "x" else PASS, sample=sample, dtype=dtype,
                    source="mykernels.py:12", diagnosis=why if name == "x" else None,
                    certificate=make.certificate())
        for name in ("x", "weight") for sample in ("typical", "zero", "large")
        for dtype in ("float64", "float32")
    ]  # fmt: skip
    screen = render(make.run(*results), width=80).splitlines()[:24]
    text = "\n".join(screen)
    assert re.search(r"^rms_norm  weight   dx  +FAIL ", text, re.MULTILINE)
    assert re.search(r"^ +dweight +PASS ", text, re.MULTILINE)
    assert "\nFAIL rms_norm/weight · dx (mykernels.py:12)\n  dx lacks the term" in text
    assert f"\n  run: {results[0].repro}\n" in text
    assert "\n6 of 12 checks failed: rms_norm/weight · dx: dx lacks the term" in text
    assert screen[-1].startswith("RESULT fail ") or "RESULT fail " in text


def test_a_sentence_that_a_cause_lacks_leaves_no_gap(make):
    silent = make.result(verdict=Verdict.INCONCLUSIVE, worst=(make.miss(error_bar=1.0),))
    run = make.run(silent, make.result("a", verdict=FAIL, reason="", worst=()))
    first, second = told_on(render(run))
    assert [line.partition(" ")[0] for line in first] == ["FAIL", "", ""]
    assert first[0] == "FAIL a/weight · dx"
    assert second[1].startswith("  dx[1, 3] got 0.123456, expected 0.1234 ± 1; the only case fails")
