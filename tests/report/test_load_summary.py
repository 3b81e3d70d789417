"""How a start went is counted in what was judged: whose operators, and which of them answered."""

import pytest

from gradcheck.report import render
from gradcheck.report.run_words import load_summary
from gradcheck.results.case_result import Kind
from gradcheck.results.finding import Part
from gradcheck.results.verdict import Verdict


def of(make, *results, **changes):
    ops = [make.result(op, output, Verdict(verdict), implementation="k:IMPL", **more)
           for op, output, verdict, more in results]  # fmt: skip
    return make.run(*ops, implementations=("k:IMPL",), **changes)


def said(make, *results, **changes):
    (line,) = load_summary(of(make, *[(*r, {})[:4] for r in results], **changes))
    return line


@pytest.mark.parametrize("verdict", ["error", "crash", "timeout", "missing", "notrun", "invalid",
                                     "unsupported"])  # fmt: skip
def test_what_gives_no_gradient_has_not_answered(make, verdict):
    line = said(make, ("relu", "x", "pass"), ("silu", "vjp", verdict))
    assert line.endswith(f"2 operators, float64; 1 of 2 answered (not silu: {verdict.upper()})")


@pytest.mark.parametrize("verdict", ["pass", "fail", "inconclusive"])
def test_a_wrong_answer_is_one(make, verdict):
    line = said(make, ("silu", "x", verdict), ("silu", "x", "crash", {"sample": "zero"}))
    assert line == "loaded k:IMPL: 1 operator, float64; 1 of 1 answered"


def test_a_forward_and_a_property_are_no_gradient(make):
    line = said(
        make,
        ("silu", "forward", "pass"),
        ("silu", "linear", "pass", {"part": Part.CONTRACT}),
        ("silu", "vjp", "error"),
    )
    assert line.endswith("; 0 of 1 answered (not silu: ERROR)")


@pytest.mark.parametrize("verdict", ["unbound", "skip"])
def test_what_nobody_was_asked_for_does_not_count(make, verdict):
    line = said(make, ("relu", "x", "pass"), ("silu", "vjp", verdict))
    assert line == "loaded k:IMPL: 1 operator, float64; 1 of 1 answered"
    assert said(make, ("silu", "vjp", verdict)) == (
        "loaded k:IMPL: it has nothing of this selection"
    )


def test_a_few_of_many_that_did_not_answer_are_named(make):
    line = said(make, *[(f"op{i}", "vjp", "crash") for i in range(12)])
    assert line.endswith("(not op0: CRASH, op1: CRASH, op2: CRASH, and 9 more)")


def test_every_implementation_has_a_line_but_the_reference(make):
    run = make.run(
        make.result("relu", implementation="reference"),
        make.result("relu", implementation="k.toml", dtype="float32"),
        make.result("silu", implementation="k.toml"),
        make.result("gpt2", "wte", kind=Kind.MODEL, implementation="j"),
        make.result("sgd", "w", kind=Kind.RULE, part=Part.UPDATE, implementation="j"),
        implementations=("reference", "k.toml", "unloaded", "j"),
        versions={"k.toml": "mykernels 1.2"},
    )
    assert load_summary(run) == [
        "loaded mykernels 1.2: 2 operators, float64, float32; 2 of 2 answered",
        "loaded j: 1 model, 1 update rule, float64; 2 of 2 answered",
    ]


def test_it_stands_before_the_table_and_quietly_it_does_not(make):
    run = of(make, ("silu", "x", "fail", {}))
    text = render(run, "terminal")
    assert text.index("\nloaded k:IMPL: ") < text.index("\noperator ")
    assert "loaded" not in render(run, "terminal", verbosity=-1)
    quiet, loud = render(run, "terminal", verbosity=-1), text
    assert [line for line in loud.splitlines() if "loaded" not in line][7:] == (
        quiet.splitlines()[6:]
    )


def test_the_reference_needs_no_loading(passing):
    assert "loaded" not in render(passing, "terminal")


def test_a_name_is_one_line(make, hostile):
    assert all(line.isprintable() for line in load_summary(hostile))
