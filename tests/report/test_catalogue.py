import inspect
import json
import textwrap

import gradcheck_cases
import numpy as np
import pytest

from gradcheck import Convention, Dialect, Kink, OpSpec, Sample, Slack, Suite
from gradcheck.report.catalogue import as_json, as_table, explain
from gradcheck.report.page import WIDTH
from gradcheck.spec.case_selection import SelectedCases

BUILTIN = gradcheck_cases.SUITE


def forward(xp, x, w=None, *, slope=0.5):
    return x


def vjp(xp, ct, x, w=None, *, slope=0.5):
    return ct, None


def primals(draw):
    return draw.normal(2), draw.normal(2)


SPEC = OpSpec(
    name="0.10",
    signature="(),()->()",
    forward=forward,
    vjp=vjp,
    formula="y = x",
    source="Nobody 1999",
    samples=(
        Sample(name="plain", primals=primals, hunts="a lost sign"),
        Sample(name="steep", primals=primals, hunts="a slope of one", attrs={"slope": 3.0},
               at_kink=True, dialects=("bare",)),
    ),
    dialects=(
        Dialect(name="full", says="with everything"),
        Dialect(name="bare", says="without a weight", attrs={"slope": 0.25}, without=("w",)),
    ),
    kinks=(
        Kink(name="x = 0", gap=lambda xp, x, **_: abs(x), accept=(0.0, 1.0), source="convex",
             conventions=(Convention(name="slope 1", systems=("ggml", "JAX"), slope=1.0),)),
        Kink(name="x = 1", gap=lambda xp, x, **_: abs(x - 1), accept=lambda slope: (slope,) * 2,
             source="a convention"),
    ),
    slack=Slack(ulp=64, because="the device has no fused multiply-add"),
)  # fmt: skip
SUITE = Suite("mine", "2026.1", [SPEC])


def flat(text):
    return " ".join(text.split())


def test_the_table_counts_what_is_selected():
    lines = as_table(SUITE, SelectedCases(operators=SUITE.cases())).splitlines()
    assert lines[0].split() == ["operator", "family", "primals", "variants", "samples"]
    assert lines[2].split("  ")[0] == "0.10"  # a name, not a number
    assert flat(lines[2]) == "0.10 test_catalogue x, w full, bare 2"
    assert lines[-1] == "suite mine 2026.1: 1 operator, 3 cases (operator × variant × sample)"
    narrow = as_table(
        SUITE, SelectedCases(operators=SUITE.cases(dialects=["bare"], samples=["steep"]))
    ).splitlines()
    assert flat(narrow[2]) == "0.10 test_catalogue x, w bare 1"
    assert "1 operator, 1 case (" in narrow[-1]


def test_the_table_of_nothing_has_no_rows():
    lines = as_table(SUITE, SelectedCases()).splitlines()
    assert lines[-1].startswith("suite mine 2026.1: 0 operators, 0 cases")
    assert len(lines) == 4


def test_the_table_names_dialects_in_the_order_of_the_spec():
    row = next(
        x
        for x in as_table(BUILTIN, SelectedCases(operators=BUILTIN.cases())).splitlines()
        if x[:8] == "rms_norm"
    )
    assert "weight, unit-offset, plain" in row


def test_json_holds_every_case_with_what_it_hunts():
    document = json.loads(as_json(SUITE, SelectedCases(operators=SUITE.cases())))
    assert (document["suite"], document["version"]) == ("mine", "2026.1")
    (op,) = document["operators"]
    assert op["name"] == "0.10"
    assert op["primals"] == ["x", "w"]
    assert op["dialects"] == {"full": "with everything", "bare": "without a weight"}
    assert op["kinks"] == {"x = 0": {"slope 1": ["ggml", "JAX"]}, "x = 1": {}}
    assert (op["formula"], op["source"], op["signature"]) == ("y = x", "Nobody 1999", "(),()->()")
    assert op["cases"] == [
        {"name": f"0.10/{dialect}/{sample}", "dialect": dialect, "sample": sample, "hunts": hunts}
        for dialect, sample, hunts in (
            ("full", "plain", "a lost sign"),
            ("bare", "plain", "a lost sign"),
            ("bare", "steep", "a slope of one"),
        )
    ]


def test_json_of_the_built_in_suite_names_the_cases_that_run():
    document = json.loads(as_json(BUILTIN, SelectedCases(operators=BUILTIN.cases())))
    names = [case["name"] for op in document["operators"] for case in op["cases"]]
    assert names == [case.name for case in BUILTIN.cases()]
    assert all(case["hunts"] for op in document["operators"] for case in op["cases"])


def test_an_explanation_tells_everything_about_one_operator():
    text = flat(explain(SUITE, "0.10"))
    for said in (
        "0.10: (),()->() y = x source: Nobody 1999 defined in test_catalogue",
        "def forward(x, w=None, *, slope=0.5): # returns the output",
        "def vjp(ct, x, w=None, *, slope=0.5): # returns dx, dw; dx without w",
        "primals x w optional",
        "full with everything (slope=0.5)",
        "bare without a weight (slope=0.25); without w",
        "x = 0 any slope in [0, 1] is accepted there: convex",
        "x = 1 the slope 0.5 is accepted there, for the default attributes: a convention",
        "plain a lost sign",
        "steep a slope of one [slope=3.0; at a kink; only bare]",
        "float64 |a − d| ≤ 1e-08·max(|a|, |d|)",
        "float32 |a − d| ≤ 0.0001·max(|a|, |d|)",
        "wider by 64 ulp: the device has no fused multiply-add",
    ):
        assert said in text.replace(f"defined in {forward.__module__}", "defined in test_catalogue")


def test_a_smooth_operator_has_no_section_on_kinks():
    assert "kinks" not in explain(BUILTIN, "tanh")
    assert "wider" not in explain(BUILTIN, "tanh")


@pytest.mark.suite(keep=5)
@pytest.mark.parametrize("name", BUILTIN.operators)
def test_every_operator_of_the_suite_is_explained_in_full(name):
    spec, text = BUILTIN.operators[name], explain(BUILTIN, name)
    whole = flat(text)
    for part in (spec.formula, spec.source, *spec.primals):
        assert flat(part) in whole
    for dialect in spec.dialects:
        assert f"{dialect.name} {flat(dialect.says)}" in whole
    for sample in spec.samples:
        assert f"{sample.name} {flat(sample.hunts)}" in whole
    for kink in spec.kinks:
        assert flat(kink.source) in whole
    assert max(map(len, text.splitlines())) <= WIDTH


def test_an_explanation_fits_a_narrow_terminal_and_its_signatures_are_python():
    for name in ("gated_delta_rule", "layer_norm", "get_rows", "lstm_cell", "abs"):
        spec, text = BUILTIN.operators[name], explain(BUILTIN, name, 60)
        assert max(map(len, text.splitlines())) <= 60
        pasted = textwrap.dedent(text.partition("optional)\n")[2].partition("\n\n")[0])
        body = pasted.replace("    # returns", "    return 1  # returns")
        functions = {}
        exec(body, functions)  # noqa: S102
        vjp = inspect.signature(functions["vjp"]).parameters
        assert [*vjp] == ["ct", *spec.primals, *spec.defaults]
        assert {n: vjp[n].default for n in spec.defaults} == spec.defaults
        assert [*inspect.signature(functions["forward"]).parameters] == [*vjp][1:]
    assert "# returns dx, None for rows\n" in explain(BUILTIN, "get_rows")
    assert "# returns a tuple of 2 outputs\n" in explain(BUILTIN, "gated_delta_rule")


def test_the_bounds_told_are_the_bounds_used():
    # A hand-made estimate of terms 1 and scale s: the bound is rtol·S + (rtol/16 + 4u)·s.
    from gradcheck.judge.compare import ALLOWED_ROUNDINGS, CANCELLATION_FACTOR, TOLERANCES, compare
    from gradcheck.numerics.estimator import Estimate

    text = flat(explain(BUILTIN, "tanh"))
    for rules in TOLERANCES.values():
        part = rules.rtol / CANCELLATION_FACTOR
        said = f"{rules.rtol:g}·max(|a|, |d|) + ({part:g} + {ALLOWED_ROUNDINGS:g}·u·√terms)"
        assert said in text
        one = np.ones((1, 1))
        terms, settled = np.ones(1, dtype=np.int64), np.zeros((1, 1), dtype=bool)
        estimate = Estimate(2 * one, 0 * one, 8 * one, terms, settled)
        bound = compare(2 * one, estimate, rules).bound.item()
        wanted = 2 * rules.rtol + 8 * (
            rules.rtol / CANCELLATION_FACTOR + ALLOWED_ROUNDINGS * rules.u
        )
        np.testing.assert_allclose(bound, wanted, rtol=1e-12)


def test_long_texts_are_wrapped_under_their_beginning():
    text = explain(BUILTIN, "rms_norm")
    lines = [line for line in text.splitlines() if line.startswith("  unsolved")]
    assert len(lines) == 1
    follow = text.splitlines()[text.splitlines().index(lines[0]) + 1]
    column = lines[0].index("a checker")
    assert follow.startswith(" " * column)
    assert not follow[column].isspace()


def test_explain_prints_the_conventions_on_kinks_as_a_table():
    text = explain(SUITE, "0.10")
    table = text[text.index("subgradients chosen at kinks") :].splitlines()
    assert table[1].split() == ["kink", "gradient", "there", "systems"]
    assert table[3].split() == ["x", "=", "0", "slope", "1", "ggml,", "JAX"]
    assert "chosen" not in explain(BUILTIN, "tanh")
