"""`gradcheck.check` where a primal is too large for element by element."""

import inspect
import io

import numpy as np
import pytest

import gradcheck
from gradcheck import Slack, Verdict, check
from gradcheck.errors import UsageError
from gradcheck.numerics.time_budget import Watch

GROWTH = 1.3
SEVERAL = 600
"""Forwards that a wrong gradient may take, whatever its size."""


class Counted:
    """A function that counts its calls."""

    def __init__(self, function):
        self.function, self.calls = function, 0
        self.__signature__ = inspect.signature(function)

    def __call__(self, *primals):
        self.calls += 1
        return self.function(*primals)


def draws(n, seed=0):
    return np.random.default_rng(seed).normal(size=n)


def squares(n):
    target = draws(n, 1)

    def forward(x):
        return np.mean((np.tanh(x) - target.astype(x.dtype)) ** 2)

    def vjp(ct, x):
        y = np.tanh(x)
        return (ct * 2 * (y - target.astype(x.dtype)) * (1 - y * y) / n).astype(x.dtype)

    return forward, vjp, (draws(n),)


def tanh(n):
    return np.tanh, lambda ct, x: ct * (1 - np.tanh(x) ** 2), (draws(n),)


def relus(n):
    """A network of `n` weights, at each step of which thousands of kinks may be crossed."""
    width = round((n / 2) ** 0.5)
    x, target = (draws((16, width), seed) for seed in (2, 3))

    def hidden(a):
        return np.maximum(x.astype(a.dtype) @ a, 0)

    def forward(a, b):
        return np.mean((hidden(a) @ b - target.astype(a.dtype)) ** 2)

    def vjp(ct, a, b):
        h = hidden(a)
        e = ct * 2 * (h @ b - target.astype(a.dtype)) / target.dtype.type(target.size)
        return x.astype(a.dtype).T @ ((e @ b.T) * (h > 0)).astype(a.dtype), (h.T @ e).astype(
            b.dtype
        )

    a, b = (draws((width, width), seed) / width**0.5 for seed in (4, 5))
    return forward, vjp, (a, b)


def product(n):
    right = draws((40, 40), 1)

    def forward(x):
        return x @ right.astype(x.dtype)

    return forward, lambda ct, x: ct @ right.astype(x.dtype).T, (draws((n // 40, 40)),)


def typed(primals, dtype):
    return [p.astype(dtype) for p in primals]


def changed(vjp, change):
    """`vjp`, whose first gradient is changed in place."""

    def wrong(ct, *primals):
        out = vjp(ct, *primals)
        parts = [np.array(part) for part in (out if isinstance(out, tuple) else (out,))]
        change(parts[0])
        return tuple(parts) if isinstance(out, tuple) else parts[0]

    return wrong


@pytest.mark.slow(keep=1)
@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("make", [squares, tanh, relus, product])
def test_a_right_gradient_of_a_hundred_thousand_elements_passes(make, dtype):
    forward, vjp, primals = make(100_000)
    counted = Counted(forward)

    found = check(counted, vjp, *typed(primals, dtype))

    assert found.ok, found
    assert counted.calls < 300


@pytest.mark.slow(keep=2)
@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("make", [squares, relus, product])
def test_one_element_a_hundredth_off_is_found(make, dtype):
    forward, vjp, primals = make(80_000)
    primals = typed(primals, dtype)
    size = primals[0].size
    ordinary = (
        np.flatnonzero(np.abs(vjp(np.asarray(1.0), *primals)[0]) > 0) if make is relus else []
    )
    for place in range(2):
        at = int(ordinary[place * 999]) if len(ordinary) else (place * 7919 + 13) % size

        def off(g, at=at):
            g.reshape(-1)[at] *= 1.01

        found = check(forward, changed(vjp, off), *primals)

        assert found.verdict is Verdict.FAIL, found
        worst = found.findings[0].worst[0]
        assert worst.index == np.unravel_index(at, primals[0].shape)
        assert worst.got == pytest.approx(1.01 * worst.want, rel=1e-3)


def scaled(g):
    g *= 1.01


def without_a_run(g):
    g.reshape(-1)[4000:4200] = 0


def swapped(g):
    flat = g.reshape(-1)
    flat[[123, 30_000]] = flat[[30_000, 123]]


def transposed(g):
    g[...] = g.T.copy() if g.ndim == 2 else g[::-1].copy()


def not_a_number(g):
    g.reshape(-1)[777] = np.nan


@pytest.mark.slow(keep=4)
@pytest.mark.parametrize("change", [scaled, without_a_run, swapped, transposed, not_a_number])
@pytest.mark.parametrize("make", [squares, relus])
def test_other_errors_are_failures_too(make, change):
    forward, vjp, primals = make(80_000)

    found = check(forward, changed(vjp, change), *primals)

    assert found.verdict is Verdict.FAIL
    worst = found.findings[0].worst[0]
    assert worst.index
    assert worst.got != worst.want


def test_the_forwards_grow_with_the_logarithm_of_the_elements():
    calls = {}
    for n in (20_000, 200_000):
        forward, vjp, primals = squares(n)
        counted = Counted(forward)
        found = check(counted, changed(vjp, scaled), *primals)
        assert found.verdict is Verdict.FAIL
        assert "1.01 times" in found.findings[0].reason
        calls[n] = counted.calls
    assert calls[200_000] < min(SEVERAL, GROWTH * calls[20_000])


def rounding_inside(n):
    """A float32 loss that nothing promotes: among `n` elements it shows none alone."""
    forward, vjp, primals = squares(n)
    return lambda x: np.float32(forward(x.astype(np.float32))), vjp, primals


def test_a_sum_that_shows_no_element_alone_passes_nothing():
    forward, vjp, primals = rounding_inside(40_000)
    x = primals[0].astype(np.float32)
    forgotten = int(np.argmin(np.abs(x)))

    def hidden(g):
        g[forgotten] = 0

    for judged in (vjp, changed(vjp, hidden)):
        found = check(forward, judged, x)
        assert found.verdict is not Verdict.PASS, found
    assert found.verdict is Verdict.INCONCLUSIVE
    assert "a single wrong element would show only above" in found.findings[0].reason


def test_a_gradient_of_zeros_passes_only_where_forward_does_not_move():
    x = draws(40_000)

    still = check(lambda x: np.sign(x).sum() + 0.0, lambda ct, x: np.zeros_like(x), x)
    moving = check(lambda x: 1e3 + 1e-12 * x.sum(), lambda ct, x: np.zeros_like(x), x)

    assert still.verdict is not Verdict.FAIL
    assert moving.verdict is not Verdict.PASS


def test_a_large_element_beside_small_ones_moves_by_its_own_size():
    x = draws(40_000)
    x[7] = 3e6

    assert check(lambda x: np.exp(-x * x).sum(), lambda ct, x: -2 * ct * x * np.exp(-x * x), x).ok


# A budget


@pytest.mark.parametrize("budget", [0, -1.0, "5", float("nan")])
def test_a_budget_that_is_no_time_is_refused(budget):
    with pytest.raises(UsageError, match=r"budget is .*: give seconds, more than 0"):
        check(np.tanh, lambda ct, x: ct, np.ones(2), budget=budget)


class Clock:
    """Time that passes with each look."""

    def __init__(self, step):
        self.now, self.step = 0.0, step

    def monotonic(self):
        self.now += self.step
        return self.now


@pytest.mark.parametrize("full", [False, True])
def test_what_the_budget_leaves_open_is_inconclusive(full, monkeypatch):
    monkeypatch.setattr("gradcheck.numerics.time_budget.time", Clock(1.0))
    forward, vjp, primals = squares(2000)
    if not full:
        forward = rounding_inside(2000)[0]
        primals = typed(primals, "float32")

    found = check(forward, vjp, *primals, budget=50, full=full)

    assert found.verdict is Verdict.INCONCLUSIVE
    assert found.findings[0].reason == "the budget of 50 s ended before it was compared"


def test_what_is_proved_wrong_within_the_budget_fails(monkeypatch):
    monkeypatch.setattr("gradcheck.numerics.time_budget.time", Clock(1.0))
    forward, vjp, primals = squares(2000)

    found = check(forward, changed(vjp, scaled), *primals, budget=500, full=True)

    assert found.verdict is Verdict.FAIL
    assert "1.01 times" in found.findings[0].reason


def test_an_assertion_takes_a_budget():
    gradcheck.assert_vjp(np.tanh, lambda ct, x: ct * (1 - np.tanh(x) ** 2), np.ones(3), budget=60)


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.mark.parametrize("full", [False, True])
def test_only_a_full_check_shows_a_terminal_how_far_it_is(full, monkeypatch):
    terminal = Terminal()
    monkeypatch.setattr("sys.stderr", terminal)
    monkeypatch.setattr("gradcheck.numerics.time_budget.time", Clock(1.0))
    monkeypatch.setenv("TERM", "xterm")
    forward, vjp, primals = squares(300)

    check(forward, vjp, *primals, full=full)

    assert ("x: 600 of 600 copies evaluated" in terminal.getvalue()) is full
    assert bool(terminal.getvalue()) is full


def test_a_terminal_that_is_closed_ends_nothing():
    stream = Terminal()
    watch = Watch(None, stream)
    watch._start -= 10
    watch._last -= 10
    stream.close()
    watch.show(1, 2)
    watch.clear()


# ── a wider bound ────────────────────────────────────────────────────────────────────────────


@pytest.mark.slow(keep=1)
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_a_wider_bound_reaches_large_primals(dtype):
    off = 3e-7 if dtype is np.float64 else 5e-4
    x = draws(50_000).astype(dtype)

    def loss(x):
        return np.sum(np.tanh(x))

    def vjp(ct, x):
        return ct * (1 - np.tanh(x) ** 2) * x.dtype.type(1 + off * (x.dtype == dtype))

    wider = Slack(ulp=3 * off / np.finfo(dtype).eps, because="a short series")
    assert check(loss, vjp, x, explain=False).verdict is Verdict.FAIL
    found = check(loss, vjp, x, wider=wider)
    assert (found.verdict, found.findings[0].reason[:15]) == (Verdict.PASS, "by a tolerance ")
    wrong = check(loss, lambda ct, x: 1.1 * vjp(ct, x), x, wider=wider)
    assert wrong.verdict is Verdict.FAIL
