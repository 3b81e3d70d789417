import re
from dataclasses import replace
from itertools import pairwise

import pytest

from gradcheck.report import FORMATS, failures, outline
from gradcheck.report import render as render_as
from gradcheck.report.failures import groups
from gradcheck.report.outline import spread
from gradcheck.report.terminal import CAUSES, LISTED, render
from gradcheck.results.finding import Part
from gradcheck.results.run import AT_FIRST, Timing
from gradcheck.results.verdict import Known, Verdict

FAIL = Verdict.FAIL
COLOURED = re.compile("\x1b\\[(\\d+)m(.*?)\x1b\\[0m", re.DOTALL)


def lines(run, **options):
    return render(run, **options).splitlines()


@pytest.mark.slow(keep=2)
def test_the_last_line_is_the_one_for_scripts(any_run):
    for width in (60, 100):
        text = render(any_run, width=width, color=True)
        assert text.splitlines()[-1] == any_run.summary
        assert text.count("RESULT ") == 1


@pytest.mark.slow(keep=6)
@pytest.mark.parametrize("width", [60, 75, 80, 100, 120, 160])
def test_no_line_is_wider_than_asked_but_those_to_be_copied(any_run, width):
    for verbosity in (0, 1):
        *body, _ = lines(any_run, width=width, verbosity=verbosity)
        wide = [line for line in body if len(line) > width]
        assert all(line.startswith("  run: ") for line in wide), wide


@pytest.mark.parametrize("width", [60, 80])
def test_four_dtypes_and_long_names_fit_too(make, width):
    dtypes = ("float64", "float32", "float16", "bfloat16")
    op = "scaled_dot_product_attention_with_a_name_that_goes_on_and_on"
    found = [
        make.result(op, "projection_weight", verdict, dialect="label-smoothing-mean", dtype=dtype)
        for dtype in dtypes
        for verdict in (Verdict.INCONCLUSIVE, Verdict.UNSUPPORTED)
    ]
    *body, _ = lines(make.run(*found, dtypes=dtypes), width=width)
    assert [line for line in body if len(line) > width and not line.startswith("  run: ")] == []
    for dtype in dtypes:  # where one table is too wide, two hold all columns
        assert sum({dtype, "gradient"} <= set(line.split()) for line in body) == 1


def test_a_repro_line_is_never_broken(make):
    repro = "gradcheck run " + "--op rms_norm " * 20
    result = make.result(verdict=FAIL, repro=repro.strip())
    assert f"  run: {repro.strip()}" in lines(make.run(result), width=60)


def test_names_are_not_broken_at_their_hyphens(make):
    for before in range(1, 60):  # so that it meets the edge wherever that is
        reason = f"{'x' * before} a-name-with-hyphens"
        text = render(make.run(make.result(verdict=FAIL, reason=reason)), width=60)
        assert "a-name-with-hyphens" in text


def test_the_header_says_what_ran(passing):
    text = render(passing)
    for fact in (
        "0.1.0",
        "builtin 2026.11",
        "reference",
        "float64, float32",
        "3.11.2",
        "2.1.0",
    ):
        assert fact in text.split("\n\n")[0]
    assert "seed 0" in text.split("\n\n")[0].replace("\n", " · ").split(" · ")


def test_the_header_tells_which_cases_were_selected(make):
    text = render(make.run(make.result(), cases="f296b0f3"))
    assert "suite builtin 2026.11, cases f296b0f3" in text.split("\n\n")[0].split(" · ")


@pytest.mark.parametrize("width", [60, 80, 200])
def test_the_header_takes_as_few_lines_as_its_facts_allow(passing, width):
    head = render(passing, width=width).split("\n\n")[0].splitlines()
    facts = [fact for line in head for fact in line.split(" · ")]
    assert len(facts) == 6
    assert all(len(f"{line} · {after.split(' · ')[0]}") > width for line, after in pairwise(head))


def test_the_table_has_a_row_per_gradient_and_names_each_operator_once(passing):
    table = render(passing, width=120).split("\n\n")[1].splitlines()
    assert table[0].split() == [
        "operator", "dialect", "gradient", "float64:", "rel.", "err", "≤", "tol", "float32:",
        "rel.", "err", "≤", "tol", "samples", "elements",
    ]  # fmt: skip
    assert len(table) == 2 + 3
    assert table[2].startswith("rms_norm  weight   dx")
    assert re.match(r" +dweight +PASS", table[3])
    assert table[4].startswith("softmax   weight   dx")
    assert table[2].endswith("       2        96")


def test_a_dialect_is_a_column_only_where_there_is_a_choice(make):
    assert "dialect" not in render(make.run(make.result(dialect="default"))).split("\n\n")[1]
    assert "dialect" in render(make.run(make.result(dialect="weight"))).split("\n\n")[1]


def test_a_cell_shows_the_worst_result_against_its_bound(make):
    small = make.miss(got=1.0, want=1.0, error=2.1e-13, bound=1e-8)
    large = make.miss(got=1.0, want=1.0, error=3.2e-4, bound=1e-8)
    passed = make.run(make.result(worst=(small,)), make.result(sample="b"))
    assert "PASS 2.1e-13 ≤ 1.0e-08" not in render(passed)  # "b" comes closer to its bound
    assert "PASS 2.2e-16 ≤ 7.1e-15" not in render(make.run(make.result(worst=(small,))))
    assert "PASS 2.1e-13 ≤ 1.0e-08" in render(make.run(make.result(worst=(small,))))
    failed = make.result(sample="b", verdict=FAIL, worst=(large,))
    assert "FAIL 3.2e-04 > 1.0e-08" in render(make.run(make.result(), failed))


def test_narrow_tables_give_up_counts_then_bounds_then_errors(failing):
    def table(width):
        return render(failing, width=width).split("\n\n")[1]

    assert "elements" in table(120)
    assert "elements" not in table(90)
    assert "≤" in table(80)
    assert "samples" not in table(80)
    assert "≤" not in table(60)
    assert "FAIL" in table(60)
    for verdict in Verdict:
        assert verdict.value.upper() in render(failing, width=60)


def test_a_dtype_that_was_not_judged_is_no_pass(make):
    run = make.run(make.result("a"), make.result("b", dtype="float32"))
    a, b = render(run).split("\n\n")[1].splitlines()[2:]
    assert (a.count("PASS"), a.count("–")) == (1, 1)
    assert (b.count("PASS"), b.count("–")) == (1, 1)


def test_each_implementation_has_its_table(several):
    text = render(several)
    assert "\n\nreference\noperator" in text
    assert "\n\nmine\noperator" in text
    assert "\nFAIL mine · softmax/weight · dx\n  3 of 24 elements are outside" in text
    assert "\n1 of 25 checks failed: mine · softmax/weight · dx: 3 of 24" in text
    whole = render(several, verbosity=1)
    assert "\nFAIL mine · softmax/weight/big/float64 · dx: " in whole


def test_one_implementation_needs_no_title(passing):
    assert "\nreference\n" not in render(passing)


def test_a_failure_answers_a_readers_questions_in_their_order(make):
    result = make.result(verdict=FAIL, source="rms.c:12", diagnosis=make.why(says="dx is 1/3"))
    text = render(make.run(result, make.result(sample="zero"), make.result(sample="one")))
    assert text.split("\n\n")[2:-1] == [
        "FAIL rms_norm/weight · dx (rms.c:12)\n"
        "  dx is 1/3 (scale; wrong in all 5 probes)\n"
        "  dx[1, 3] got 0.123456, expected 0.1234: rel. err 4.5e-04 > tol 1.0e-08; 1 of "
        "3 cases fails\n"
        f"  run: {result.repro}",
        "1 of 3 checks failed: rms_norm/weight · dx: dx is 1/3. 72 numbers compared.",
    ]


def test_a_verbose_failure_tells_all_there_is_to_know(make):
    result = make.result(verdict=FAIL)
    text = render(make.run(result), verbosity=1)
    assert text.split("\n\n")[2].splitlines() == [
        "FAIL rms_norm/weight/typical/float64 · dx: 3 of 24 elements are outside their bound",
        "  worst: dx[1, 3] got 0.123456, expected 0.1234 ± 1e-20",
        "  error: 0.000454 relative, 4e+09 ulp, 4.54e+04 × tolerance, 5.6e+15 × uncertainty",
        "  failed: 3 of 24 elements; the worst with cotangent normal-0",
        "  designed to catch: a missing factor 1/n in the mean",
        f"  run: {result.repro}",
    ]


@pytest.mark.parametrize("count", [1, CAUSES, CAUSES + 1, LISTED, LISTED + 1, LISTED + 20])
def test_a_few_causes_are_told_the_first_ones_listed_and_all_are_counted(make, count):
    found = [
        make.result(f"op{i:02}", verdict=FAIL, sample=f"s{j}") for i in range(count) for j in "ab"
    ]
    text = render(make.run(*found))
    shown = re.findall(r"^FAIL (op\d\d)/weight · dx$", text, re.MULTILINE)
    listed = re.findall(r"^FAIL (op\d\d)/weight · dx: ", text, re.MULTILINE)
    assert shown == [f"op{i:02}" for i in range(min(count, CAUSES))]
    assert listed == [f"op{i:02}" for i in range(min(count, LISTED))] * (count > CAUSES)
    more = re.findall(r"^… and (\d+) more causes?: -v$", text, re.MULTILINE)
    assert more == [f"{count - LISTED}"] * (count > LISTED)
    why = ": op00/weight · dx: 3 of" if count == 1 else f", for {count} reasons. "
    assert f"\n{2 * count} of {2 * count} checks failed{why}" in text


def test_of_many_operators_that_are_left_out_few_are_named(make):
    names = [f"op{i}" for i in range(100)]
    gaps = [make.result(name, verdict=Verdict.UNBOUND) for name in names]
    text = render(make.run(make.result(), *gaps), width=100)
    assert "100 results of op0, op1, op2, op3, op4, op5, op6, op7, … and 92 more:" in text
    assert "op8," not in text


def test_gaps_are_one_line_per_reason(failing):
    text = render(failing)
    assert "UNSUPPORTED 2 results of sort: no axis but the last\n" in text
    assert "UNBOUND 1 result of conv: not implemented by reference\n" in text
    assert "SKIP 1 result of einsum: left out by -k\n" in text


def test_failures_come_before_all_else_and_the_summary_last(failing):
    text = render(failing)
    places = [text.index(part) for part in (
        "\noperator ", "\nINVALID abs/weight · dx\n", "\nSKIP 1 result",
        "\nINVALID abs/weight · dx: ",
        "\n11 of 23 checks failed, for 6 reasons. 408 numbers compared.\n\nRESULT ",
    )]  # fmt: skip
    assert places == sorted(places)


def test_problems_are_told(make):
    run = make.run(make.result(), troubles=("mine: no module named 'mine'",), complete=False)
    text = render(run)
    assert "\nproblem: mine: no module named 'mine'\n" in text
    assert "\nincomplete: the run stopped early\n" in text


def test_an_empty_run_says_so(empty):
    assert "\nNothing was checked." in render(empty)
    assert "PASS" not in render(empty)


@pytest.mark.slow(keep=2)
def test_colour_is_on_verdict_words_only_and_changes_no_text(any_run):
    plain, coloured = render(any_run), render(any_run, color=True)
    assert "\x1b" not in plain
    assert COLOURED.sub(r"\2", coloured) == plain
    known = {word.value.upper() for word in (*Verdict, *Known)}
    found = COLOURED.findall(coloured)
    assert {word for _, word in found} <= known
    assert bool(found) == bool(any_run.results)
    for colour, word in found:
        assert (colour == "32") == (word == "PASS")


def test_hostile_text_cannot_paint_or_fake_lines(hostile):
    text = render(hostile, color=False)
    assert "\x1b" not in text
    assert "\\x1b[31m" in text
    assert "\x00" not in text
    fake = "\nRESULT pass checked=1"
    run = hostile.__class__(header=hostile.header, results=hostile.results, troubles=(fake,))
    assert not [line for line in lines(run)[:-1] if line.startswith("RESULT")]


def test_a_class_stands_in_the_first_line_and_a_shared_one_is_said_once(explained):
    text = render(explained, verbosity=1)
    assert text.count("· dw: scale: dw is 1/3 of the right value\n  reason: 3 of 24") == 1
    assert text.count("· dw: scale, as above\n  worst: dw[1, 3]") == 4
    assert text.count("  evidence: 3 is the number of rows\n") == 2  # of another diagnosis, too
    assert text.count("· dw: term: dw lacks a term\n") == 1
    assert "· dx: 3 of 24 elements are outside their bound\n  pattern: none known; the res" in text
    assert "MISSING relu/weight/typical/float64 · dx: slot: dx is lost\n" in text
    assert "FAIL exp/weight/typical/float64 · dx: 3 of 24 elements are" in text


def test_what_fails_in_another_way_is_counted(explained, failing):
    text = render(explained)
    said = "dw is 1/3 of the right value (scale; wrong in all 5 probes)"
    assert f"\nFAIL rms_norm/weight · dw\n  {said}\n" in text
    assert "6 of 6 cases fail; 1 of them term\n" in text
    assert "\n  3 of 24 elements are outside their bound (no known pattern)\n" in text
    assert "\nMISSING relu/weight · dx: dx is lost\n" in text
    text = render(failing)
    assert "\nCRASH relu/weight · dx\n  SIGSEGV after 0.2 s\n  3 of 4 cases fail; 1 of them" in text
    assert "1 of them TIMEOUT; 1 of them NOTRUN\n" in text
    assert "\nMISSING relu · dx: no gradient for x\n" in text


def cells(row):
    return [result for cell in row.cells.values() for result in cell.results]


def test_rows_are_taken_apart_and_nothing_is_lost_or_twice(any_run):
    for table in outline.tables(any_run):
        found = spread(any_run, table.rows)
        assert all({r.case.sample for r in cells(row)} == {sample} for sample, row in found)
        assert sorted(id(r) for _, row in found for r in cells(row)) == (
            sorted(id(r) for row in table.rows for r in cells(row))
        )


def test_the_gradients_of_a_case_stand_together(make):
    run = make.run(
        *[
            make.result(output=output, sample=sample, dtype=dtype)
            for output in ("x", "w")
            for sample in ("typical", "zero")
            for dtype in ("float64", "float32")
        ]
    )
    (table,) = outline.tables(run)
    assert [(s, r.output, [*r.cells]) for s, r in spread(run, table.rows)] == [
        (sample, output, ["float64", "float32"])
        for sample in ("typical", "zero")
        for output in ("x", "w")
    ]


def test_a_verdict_is_that_of_its_case(make):
    run = make.run(make.result(verdict=Verdict.FAIL), make.result(sample="zero"))
    text = render_as(run, "terminal", verbosity=1)
    rows = [line.split() for line in text.splitlines() if " dx  " in line]
    wrong, right = (row[row.index("dx") + 1] for row in rows)
    assert (wrong, right) == ("FAIL", "PASS")
    assert ["typical" in row for row in rows] == [True, False]


def test_every_failure_is_told_in_full(make):
    many = make.run(
        *[
            make.result(f"op{i:02}", verdict=Verdict.FAIL, sample=f"s{k}")
            for i in range(CAUSES + 2)
            for k in range(5)
        ]
    )
    usual, all_of_it = (render_as(many, "terminal", verbosity=v) for v in (0, 1))
    assert usual.count("\n  run: ") == CAUSES
    assert all_of_it.count("\n  run: ") == len(many.results)
    assert "more" not in all_of_it


def test_a_long_table_is_not_folded(make):
    many = make.run(*[make.result(f"op{i:03}") for i in range(300)])
    assert "One line per passing operator" in render_as(many, "terminal")
    assert "One line per" not in render_as(many, "terminal", verbosity=1)


def test_a_property_stays_in_its_row(make):
    run = make.run(
        *[make.result(output=name, part=Part.CONTRACT) for name in ("linear", "pure", "zero")]
    )
    (row,) = (
        line for line in render_as(run, "terminal", verbosity=1).splitlines() if "3/3" in line
    )
    assert "  side conditions  PASS 3/3" in row


LINE = re.compile(r"^\S+/\S+/\S+/\S+:.+? [A-Z]+( .*)?$")


def concise(run, **how):
    return render_as(run, "concise", **how).splitlines()


def test_every_line_is_one_and_the_last_is_for_scripts(any_run):
    lines = concise(any_run)
    assert lines[-1] == any_run.summary
    assert [line for line in lines if line.startswith("RESULT")] == [any_run.summary]
    assert all(line and line.isprintable() for line in lines)


def test_every_failing_gradient_has_a_line_and_no_passing_one(failing):
    found = [line for line in concise(failing) if LINE.match(line)]
    assert len(found) == len(groups(failing)) > 1
    assert not any(" PASS" in line for line in found)


def test_each_result_has_one_where_all_are_asked_for(failing):
    found = [line for line in concise(failing, verbosity=1) if LINE.match(line)]
    assert len(found) == sum(map(failing.fails, failing.results)) > len(groups(failing))
    assert not any("more)" in line for line in found)


def test_a_line_says_where_what_and_why(make):
    run = make.run(
        make.result(output="w", verdict=Verdict.FAIL, diagnosis=make.why(), sample="typical"),
        make.result(output="w", verdict=Verdict.FAIL, sample="zero", diagnosis=make.why()),
    )
    first, last = concise(run)
    assert first == (
        "rms_norm/weight/typical/float64:w FAIL 4.5e-04 > 1.0e-08 — scale: dw is 1/3 of the right "
        "value (and 1 more)"
    )
    assert last.startswith("RESULT fail ")


def test_what_is_no_gradient_is_called_by_its_name(make):
    run = make.run(
        make.result("silu", "linear", Verdict.FAIL, part=Part.CONTRACT, worst=(), reason="r"),
        make.result("silu", "vjp", Verdict.CRASH, reason="SIGSEGV", dtype="float32"),
    )
    crash, contract, _ = concise(run)
    assert crash == "silu/weight/typical/float32:vjp CRASH — SIGSEGV"
    assert contract == "silu/weight/typical/float64:side condition linear FAIL — r"


def test_whose_it_is_stands_there_where_there_are_several(make):
    run = make.run(
        make.result(verdict=Verdict.FAIL, implementation="torch"),
        make.result(implementation="jax"),
        implementations=("torch", "jax"),
    )
    assert " > 1.0e-08 (torch) — 3 of 24 " in concise(run)[0]


def test_what_closes_the_gate_besides_has_a_line(outdated):
    found = concise(outdated)
    for problem in outdated.gate.problems:
        assert problem.text in found


def test_a_known_failure_has_none(known):
    assert not any(" FAIL " in line for line in concise(known))


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"complete": False, "stopped": AT_FIRST}, f"incomplete: {AT_FIRST}"),
        ({"troubles": ("k:IMPL: no\x1b module",)}, r"problem: k:IMPL: no\x1b module"),
        ({}, "nothing was checked"),
    ],
)
def test_what_a_run_lacks_has_a_line(make, changes, said):
    assert said in concise(make.run(**changes))


def bad(make, times, **changes):
    worst = (make.miss(error=times, bound=1.0),)
    return make.result(verdict=Verdict.FAIL, worst=worst, **changes)


def test_groups_come_worst_first_by_verdict_then_by_error(make):
    run = make.run(
        make.result("a", verdict=Verdict.INCONCLUSIVE),
        bad(make, 2.0, op="b"),
        bad(make, 3.0, op="c"),
        make.result("d", verdict=Verdict.CRASH),
        make.result("e", verdict=Verdict.SKIP),
        make.result("f"),
    )
    assert [group.op for group in failures.groups(run)] == ["d", "c", "b", "a"]


def test_failures_are_all_that_the_gate_does_not_accept(failing):
    grouped = [r for group in failures.groups(failing) for r in group.results]
    assert len(grouped) == 11
    assert {id(r) for r in grouped} == {
        id(r) for r in failing.results if not r.finding.verdict.expected
    }


# ── how long it took ─────────────────────────────────────────────────────────────────────────


def test_the_slowest_cases_are_named_as_many_as_are_asked_for(make, hostile):
    cases = {"relu/default/a": 0.5, "silu/default/b": 12.25, f"{make.hostile}/c": 3.0}
    run = make.run(make.result(), timing=Timing(seconds=20.0, cases=cases))
    assert "slowest" not in render(run)
    assert "\nslowest case\n     12.25 s  silu/default/b\n\n" in render(run, durations=1)
    *_, slowest, _, _ = render(run, durations=9, width=60).split("\n\n")
    first, *found = slowest.splitlines()
    assert first == "slowest 3 cases"
    assert [line.split()[0] for line in found] == ["12.25", "3.00", "0.50"]
    assert all(len(line) <= 60 and line.isprintable() for line in found)
    assert "slowest" not in render(replace(run, timing=None), durations=3)


@pytest.mark.parametrize("fails", [False, True])
def test_seconds_are_in_the_last_sentence_alone_and_in_no_file(make, fails, untimed):
    plain = make.run(make.result(verdict=FAIL if fails else Verdict.PASS))
    timed = replace(plain, timing=Timing(seconds=3.26, cases={"rms_norm/weight/typical": 3.0}))
    assert timed == plain
    for form in FORMATS:
        same = render_as(plain, form) == render_as(timed, form)
        assert same == (form not in ("terminal", "junit")), form
    assert " compared in 3.3 s." in render(timed).replace("\n", " ")
    assert untimed(render(timed)).split() == render(plain).split()
