import pytest
from gradcheck_cases import linesearch
from gradcheck_cases.linesearch import ARMIJO, METHODS, STRONG_WOLFE, WOLFE, search, stopped

from gradcheck.judge.line_search import Line, judge_search
from gradcheck.results.verdict import Verdict


def line(name, value, slope, step=1.0, ends="ok", **attrs):
    attrs = {"method": WOLFE, **attrs}
    return Line(
        name=name, hunts="a condition that is not checked", value=value, slope=slope, step=step,
        ends=ends, attrs=attrs,
    )  # fmt: skip


def parabola(at):
    """(s − at)², whose minimum lies at `at`."""
    return lambda xp, s: (s - at) ** 2, lambda xp, s: 2 * (s - at)


def wave():
    """s/2 − sin(s) + cos(7s)/9: several valleys."""
    return (
        lambda xp, s: s / 2 - xp.sin(s) + xp.cos(7 * s) / 9,
        lambda xp, s: xp.const("0.5") - xp.cos(s) - 7 * xp.sin(7 * s) / 9,
    )


def slide():
    """−s: it falls for ever."""
    return lambda xp, s: -s, lambda xp, s: s * 0 - 1


LINES = [
    line(f"{method}-{name}", *along, step=step, method=method, wolfe=wolfe)
    for method in METHODS
    for name, along, step in (
        ("near", parabola(1.0), 1.0),
        ("long", parabola(1 / 64), 1.0),
        ("short", parabola(100.0), 1.0),
        ("wave", wave(), 8.0),
        ("wave-short", wave(), 1 / 64),
    )
    for wolfe in (0.9, 0.5)
]
FAILURES = [
    # Longer and shorter by turns jump over the narrow place that a strict wolfe leaves.
    line("over-and-over", *parabola(3e3), step=2.0**-10, wolfe=0.25, ends="max-iterations"),
    line("from-far-below", *parabola(3e3), step=2.0**-10, wolfe=0.9),
    line("no-step", *parabola(1.0), step=0.0, ends="invalid-parameters"),
    line("nan-step", *parabola(1.0), step=float("nan"), ends="invalid-parameters"),
    line("wolfe-above-1", *parabola(1.0), wolfe=1.5, ends="invalid-wolfe"),
    line("wolfe-below-ftol", *parabola(1.0), ftol=0.5, wolfe=0.25, ends="invalid-wolfe"),
    line("uphill", *parabola(-1.0), ends="uphill"),
    line("flat", *parabola(0.0), ends="uphill"),
    line("max-step", *slide(), max_step=100.0, ends="max-step"),
    line("min-step", *parabola(2.0**-40), min_step=2.0**-8, ends="min-step"),
    line("max-iterations", *parabola(2.0**-40), max_linesearch=5, ends="max-iterations"),
    line("last-iteration", *parabola(2.0**-6), method=ARMIJO, max_linesearch=7),
]


@pytest.mark.parametrize("one", [*LINES, *FAILURES], ids=lambda one: f"{one.name}-{one.attrs}")
def test_a_search_keeps_what_its_method_promises_or_says_why_not(one):
    found = judge_search(one, search)
    assert found.verdict is Verdict.PASS, found.reason


def _at_once(value, slope, step, **attrs):
    return step, "ok", 1


def _armijo_only(value, slope, step, **attrs):
    return search(value, slope, step, **{**attrs, "method": ARMIJO})


def _weak(value, slope, step, **attrs):
    weak = WOLFE if attrs["method"] == STRONG_WOLFE else attrs["method"]
    return search(value, slope, step, **{**attrs, "method": weak})


def _always_ok(value, slope, step, **attrs):
    return search(value, slope, step, **attrs)[0], "ok", 1


def _default_wolfe(value, slope, step, **attrs):
    return search(value, slope, step, **{**attrs, "wolfe": 0.9})


def _unlimited(value, slope, step, **attrs):
    return search(value, slope, step, **{**attrs, "max_linesearch": 1000})


def _no_longest(value, slope, step, **attrs):
    return search(value, slope, step, **{**attrs, "max_step": 1e20})


def _nowhere(value, slope, step, **attrs):
    return float("nan"), "ok", 1


@pytest.mark.parametrize(
    "wrong",
    [_at_once, _armijo_only, _weak, _always_ok, _default_wolfe, _unlimited, _no_longest, _nowhere],
)
def test_a_search_that_breaks_a_promise_is_rejected(wrong):
    verdicts = {judge_search(one, wrong).verdict for one in (*LINES, *FAILURES)}
    assert Verdict.FAIL in verdicts


def test_an_armijo_step_need_not_be_long_and_a_wolfe_step_must():
    value, slope = parabola(100.0)
    along = [lambda s: value(None, s), lambda s: slope(None, s)]
    assert search(*along, 1.0, method=ARMIJO)[0] == 1.0
    assert search(*along, 1.0, method=WOLFE)[0] > 1.0


@pytest.mark.parametrize(
    ("losses", "attrs", "rule"),
    [
        ([4.0], {}, ""),
        ([4.0, 2.0], {}, ""),
        ([4.0, 4.0], {}, ""),  # every rule is off
        ([4.0, 2.0], {"gradient_norm": 1e-3, "eps_g": 1e-3}, ""),  # strictly below
        ([4.0, 2.0], {"gradient_norm": 0.9e-3, "eps_g": 1e-3}, "eps_g"),
        ([4.0, 2.0], {"gradient_norm": 5e-3, "param_norm": 10.0, "eps_g": 1e-3}, "eps_g"),
        ([4.0, 2.0], {"gradient_norm": 5e-3, "param_norm": 0.1, "eps_g": 1e-3}, ""),
        ([4.0, 3.999], {"eps_f": 1e-3}, "eps_f"),
        ([4.0, 3.99], {"eps_f": 1e-3}, ""),
        ([-4.0, -3.999], {"eps_f": 1e-3}, "eps_f"),
        ([-4.0, -5.0], {"eps_f": 1e-3}, ""),  # dividing by a negative loss would stop here
        ([3.0], {"eps_f": 1.0}, ""),  # nothing to compare with
        ([4.0, 3.0, 2.0, 3.9999], {"past": 3, "delta": 1e-3}, "delta"),
        ([4.0, 3.0, 2.0, 3.9999], {"past": 0, "delta": 1e-3}, ""),
        ([4.0, 3.0, 3.9999], {"past": 3, "delta": 1e-3}, ""),  # not so many steps yet
        ([1e-4, 5e-5], {"past": 1, "delta": 1e-3}, "delta"),  # below 1 it is absolute
        ([1e4, 1e4 - 5], {"past": 1, "delta": 1e-3}, "delta"),
        ([3.0, 1.0, 2.0], {"max_no_improvement": 2}, ""),
        ([3.0, 1.0, 2.0, 1.5], {"max_no_improvement": 2}, "max_no_improvement"),
        ([3.0, 1.0, 1.0, 1.0], {"max_no_improvement": 2}, "max_no_improvement"),
        ([3.0, 1.0, 2.0, 0.5], {"max_no_improvement": 2}, ""),
    ],
)
def test_training_ends_by_these_rules(losses, attrs, rule):
    assert stopped(losses, **attrs) == rule


def test_the_methods_are_ggmls():
    assert linesearch.METHODS == ("armijo", "wolfe", "strong-wolfe")
