"""Every spec's VJP has the right derivative where it is smooth, and a jvp agrees with it.

In 50-digit arithmetic: along random directions a and b, with the cotangent ct,

* ⟨v, J u⟩ = ⟨Jᵀv, u⟩, where J u is a difference of forward;
* the slope of ⟨vjp(ct, x), a⟩ along b is forward's mixed second difference, and it is symmetric.

The public `check` judges some of the same in float64.
"""

from functools import cache

import numpy as np
import pytest
from gradcheck_cases import SUITE

from gradcheck import check
from gradcheck.numerics.arithmetic import F64
from gradcheck.numerics.arrays import as_tuple
from gradcheck.numerics.draw import Draw
from gradcheck.numerics.fifty_digit_arithmetic import mp50

DIGITS = 150
STEP = "1e-30"  # truncation 1e-60, rounding 1e-90 after the division by h²
AGREEMENT = 1e-30
ROUNDING = 1e-60
LEAST, MOST = 8, 1024
"""Floating elements of a sample that is no corner case and needs no minute in 50 digits."""
PUBLIC = 3
"""One operator in so many goes through the public face too."""


@cache
def smooth_cases(name):
    """An operator's smooth cases, smallest first, those with a few elements before the tiny."""
    cases = [c for c in SUITE.cases([name]) if not c.sample.at_kink and usable(c)]
    return sorted(cases, key=lambda c: (elements(c) < LEAST, elements(c)))


def smooth_case(name):
    """The first of them."""
    return smooth_cases(name)[0]


def chosen(name):
    """One case per dialect, and a tiny one."""
    cases = smooth_cases(name)
    firsts = {c.dialect.name: c for c in reversed(cases)}
    return list({c.name: c for c in (*firsts.values(), *cases[-1:])}.values())


def elements(case):
    return sum(p.size for p in case.primals if p.dtype.kind == "f")


def usable(case):
    if not 0 < elements(case) <= MOST:
        return False
    outputs = as_tuple(forward_of(case)(*case.primals))
    finite = all(np.isfinite(o).all() for o in outputs)
    return finite and any(np.size(o) for o in outputs)


def forward_of(case):
    def forward(*primals):
        with np.errstate(all="ignore"):
            return case.spec.forward(F64, *primals, **case.attrs)

    return forward


def vjp_of(case):
    def vjp(ct, *primals):
        with np.errstate(all="ignore"):
            return case.spec.vjp(F64, ct, *primals, **case.attrs)

    return vjp


class Exact:
    """One case in 50-digit arithmetic with guard digits: slopes along directions."""

    def __init__(self, case, vjp=None):
        self.xp, self.case = mp50(), case
        self.vjp = vjp or case.spec.vjp
        self.primals = [self.exact(p) for p in case.primals]
        self.floating = [i for i, p in enumerate(case.primals) if p.dtype.kind == "f"]
        shapes = [np.shape(o) for o in as_tuple(forward_of(case)(*case.primals))]
        self.ct = tuple(
            self.xp.asarray(self.draw("ct", k).signed(*s)) for k, s in enumerate(shapes)
        )
        self.h = self.xp.context.mpf(STEP)

    def exact(self, primal):
        return self.xp.asarray(primal) if primal.dtype.kind == "f" else primal

    def draw(self, *role):
        return Draw(0, "second order", self.case.name, *role)

    def direction(self, role):
        """Random, dense, in units of each element: some are probabilities of 2^-40."""
        out = {}
        for i in self.floating:
            x = self.case.primals[i]
            unit = np.where(x == 0, 1.0, np.abs(x))
            out[i] = self.xp.asarray(self.draw(role, i).signed(*x.shape) * unit)
        return out

    def moved(self, *steps):
        out = list(self.primals)
        for factor, direction in steps:
            for i, d in direction.items():
                out[i] = np.asarray(out[i] + d * (factor * self.h), dtype=object)
        return out

    def value(self, *steps):
        """Σ ct·f at a point."""
        outputs = as_tuple(self.case.spec.forward(self.xp, *self.moved(*steps), **self.case.attrs))
        return sum(np.sum(c * o) for c, o in zip(self.ct, outputs, strict=True))

    def floor(self):
        """What rounding leaves of derivatives that are zero: of forward's numbers, and of 1."""
        outputs = as_tuple(self.case.spec.forward(self.xp, *self.primals, **self.case.attrs))
        terms = [np.sum(abs(c) * (abs(o) + 1)) for c, o in zip(self.ct, outputs, strict=True)]
        return ROUNDING * float(sum(terms))

    def gradient(self, a, *steps):
        """⟨vjp(ct, x), a⟩ and Σ |…| at a point."""
        ct = self.ct[0] if len(self.ct) == 1 else self.ct
        found = as_tuple(self.vjp(self.xp, ct, *self.moved(*steps), **self.case.attrs))
        terms = np.concatenate([np.ravel(found[i] * a[i]) for i in self.floating])
        return np.sum(terms), float(np.sum(np.abs(terms)))

    def slope(self, a):
        """The slope of Σ ct·f along `a`."""
        return (self.value((1, a)) - self.value((-1, a))) / (2 * self.h)

    def curved(self, a, b):
        """The mixed second derivative of Σ ct·f."""
        corners = [self.value((s, a), (t, b)) for s, t in ((1, 1), (-1, -1), (1, -1), (-1, 1))]
        return (corners[0] + corners[1] - corners[2] - corners[3]) / (4 * self.h**2)

    def turned(self, a, b):
        """The slope of ⟨vjp(ct, x), a⟩ along `b`."""
        return (self.gradient(a, (1, b))[0] - self.gradient(a, (-1, b))[0]) / (2 * self.h)


def disagreements(exact):
    """What does not agree to 30 digits, by name."""
    with exact.xp.context.workdps(DIGITS):
        a, b = exact.direction("a"), exact.direction("b")
        product, size = exact.gradient(a)
        forward, there, back = exact.curved(a, b), exact.turned(a, b), exact.turned(b, a)
        size = max(size, exact.gradient(b)[1], abs(float(there)))
        pairs = {
            "dot product": (product, exact.slope(a)),
            "second derivative": (there, forward),
            "symmetry": (there, back),
        }
        allowed = AGREEMENT * size + exact.floor()
        agree = {name: bool(abs(x - y) <= allowed) for name, (x, y) in pairs.items()}
    return sorted(name for name, ok in agree.items() if not ok)


@pytest.mark.suite(keep=6, rest=62)
@pytest.mark.parametrize("name", SUITE.operators)
def test_a_spec_passes_at_second_order_and_in_forward_mode(name):
    cases = chosen(name)
    assert cases, f"{name} has no smooth sample of at most {MOST} elements"
    assert {case.name: disagreements(Exact(case)) for case in cases} == {c.name: [] for c in cases}


def exact_jvp(case):
    """J·u of a spec, rounded to float64 from a 50-digit difference of forward."""

    def jvp(us, *primals):
        xp = mp50()
        with xp.context.workdps(DIGITS):
            h = xp.context.mpf(STEP)
            tangents = us if len(primals) > 1 else (us,)
            ends = []
            for sign in (1, -1):
                moved = [
                    p if u is None else np.asarray(xp.asarray(p) + xp.asarray(u) * (sign * h))
                    for p, u in zip(primals, tangents, strict=True)
                ]
                ends.append(as_tuple(case.spec.forward(xp, *moved, **case.attrs)))
            parts = [(x - y) / (2 * h) for x, y in zip(*ends, strict=True)]
            found = tuple(xp.to_float64(part) for part in parts)
        return found if len(found) > 1 else found[0]

    return jvp


@pytest.mark.suite(keep=5, rest=16)
@pytest.mark.parametrize("name", list(SUITE.operators)[::PUBLIC])
def test_a_spec_passes_the_public_check(name):
    case = smooth_case(name)
    found = check(forward_of(case), vjp_of(case), *case.primals, order=2, jvp=exact_jvp(case))
    rows = [f for f in found.findings if f.name in ("jvp", "dot product") or " " in f.name]
    assert [f for f in rows if f.verdict == "fail"] == [], str(found)
    # What float64 cannot see at all at first order it cannot see here.
    if all(f.verdict == "pass" for f in found.findings if f not in rows):
        assert found.ok, str(found)


# ── the comparison can fail ──────────────────────────────────────────────────────────────────


def frozen(case):
    """A VJP that is right at the case's primals, computed from the first of them alone."""

    def vjp(xp, ct, *primals, **attrs):
        kept = xp.asarray(case.primals[0])
        return case.spec.vjp(xp, ct, kept, *primals[1:], **attrs)

    return vjp


def twisted(case):
    """A VJP that is right at the case's primals and turns beside them."""

    def vjp(xp, ct, *primals, **attrs):
        found = as_tuple(case.spec.vjp(xp, ct, *primals, **attrs))
        away = np.ravel(primals[0] - xp.asarray(case.primals[0]))
        turn = np.reshape(np.roll(away, 1) * xp.const("1e-12"), np.shape(primals[0]))
        return (found[0] + turn, *found[1:])

    return vjp


@pytest.mark.slow(keep=1)
@pytest.mark.parametrize("name", ["rms_norm", "softmax", "gelu", "layer_norm", "matmul"])
def test_a_saved_value_is_found(name):
    wrong = disagreements(Exact(smooth_case(name), frozen(smooth_case(name))))
    assert "second derivative" in wrong
    assert "dot product" not in wrong


@pytest.mark.parametrize("name", ["rms_norm", "softmax", "layer_norm"])
def test_a_turn_by_a_millionth_of_a_millionth_is_found(name):
    wrong = disagreements(Exact(smooth_case(name), twisted(smooth_case(name))))
    assert wrong == ["second derivative", "symmetry"]


@pytest.mark.parametrize("name", ["rms_norm", "softmax", "gelu"])
def test_a_factor_that_differs_in_the_twentieth_digit_is_found(name):
    case = smooth_case(name)

    def scaled(xp, ct, *primals, **attrs):
        found = as_tuple(case.spec.vjp(xp, ct, *primals, **attrs))
        return tuple(g * (1 + xp.const("1e-20")) for g in found)

    assert "dot product" in disagreements(Exact(case, scaled))
