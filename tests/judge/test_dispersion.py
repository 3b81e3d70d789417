"""What rounding every operation does, and errors beside it."""

import numpy as np
import pytest
from gradcheck_cases import SUITE

from gradcheck.implementations.bound import Bound
from gradcheck.judge.dispersion import DRAWS, LARGEST, Dispersion, as_rounding, scattering
from gradcheck.judge.lowprecision import last_place
from gradcheck.judge.operator import CaseTruth, judge_case
from gradcheck.numerics.arrays import as_tuple
from gradcheck.numerics.draw import key_of
from gradcheck.numerics.dtypes import dtype_named
from gradcheck.numerics.estimator import certain
from gradcheck.numerics.narrow import ScatteredArithmetic
from gradcheck.results.finding import Finding
from gradcheck.results.verdict import Verdict

LOW = ["float16", "bfloat16"]


class Rounding:
    """A kernel that rounds after every operation, unlike any that is drawn; then `change`."""

    name = "rounding"

    def __init__(self, change=lambda g: g):
        self.change = change

    def bind(self, case, dtype):
        kind = dtype_named(dtype)

        def run(function, *arrays):
            rng = np.random.Generator(np.random.Philox(key=key_of("kernel", case.name)))
            xp = ScatteredArithmetic(kind, rng)
            held = [xp.asarray(a) if a.dtype == kind else a for a in arrays]
            made = function(xp, *held, **case.attrs)
            out = tuple(None if g is None else np.asarray(g) for g in as_tuple(made))
            return out if isinstance(made, tuple) else out[0]

        def vjp(ct, *primals, **_):
            made = run(case.spec.vjp, ct, *primals)
            if not isinstance(made, tuple):
                return self.change(made).astype(kind)
            return tuple(None if g is None else self.change(g).astype(kind) for g in made)

        def forward(*primals, **_):
            return run(case.spec.forward, *primals).astype(kind)

        return Bound(vjp=vjp, forward=forward, attrs=case.attrs)


BLUNT = ["layer_norm/plain/square", "label_smoothing_cross_entropy/all-classes/typical",
         "kl_divergence/probabilities/typical"]  # fmt: skip


def of(name):
    (case,) = SUITE.cases(*([part] for part in name.split("/")))
    return CaseTruth.in_low(case, "", "bfloat16")


@pytest.mark.parametrize("name", BLUNT)
def test_what_bounds_leave_open_passes_where_errors_are_those_of_rounding(name, monkeypatch):
    truth = of(name)
    assert {f.verdict.value for f in judge_case(truth, Rounding(), "bfloat16")} == {"pass"}
    with monkeypatch.context() as undone:
        undone.setattr(Dispersion, "judge", lambda self, finding, *_: finding)
        found = {f.verdict.value for f in judge_case(truth, Rounding(), "bfloat16")}
    assert found == {"pass", "inconclusive"}


@pytest.mark.parametrize("name", BLUNT)
@pytest.mark.parametrize("change", [lambda g: 1.1 * g, lambda g: 0 * g, lambda g: g[::-1]])
def test_and_what_is_wrong_does_not(name, change):
    found = judge_case(of(name), Rounding(change), "bfloat16")
    assert "pass" not in {f.verdict.value for f in found if f.name != "forward"}


def known(dtype, count=40):
    rng = np.random.default_rng(0)
    want = rng.uniform(1, 2, (2, count)) * np.array([[1.0], [100.0]])
    place = last_place(want, dtype)
    draws = [want + 2 * place * rng.standard_normal(want.shape) for _ in range(DRAWS)]
    return want, place, Dispersion.of(dtype, certain(want), draws, np.isfinite(want)), rng


def said(dtype, got, want, spread, verdict=Verdict.PASS):
    finding = Finding(name="x", verdict=verdict, reason="", compared=want.size)
    form = (want.shape[1:], ("normal", "powers"))
    return as_rounding(finding, got, want, dtype, lambda: spread, form)


@pytest.mark.parametrize("dtype", LOW)
def test_errors_are_held_against_the_spread_in_the_mean_and_in_one_element(dtype):
    want, place, spread, rng = known(dtype)
    noise = rng.standard_normal(want.shape)
    for verdict in (Verdict.PASS, Verdict.INCONCLUSIVE):
        right = said(dtype, want + 2 * place * noise, want, spread, verdict)
        assert right.verdict is Verdict.PASS
        assert said(dtype, want + 6 * place * noise, want, spread, verdict).verdict != "pass"
        assert said(dtype, want + 20 * place * noise, want, spread, verdict).verdict == "fail"
    got = want + place
    got[1, 7] += 2.5 * LARGEST * spread.spread[1, 7]
    one = said(dtype, got, want, spread)
    assert (one.verdict, one.failed, one.worst[0].index) == ("fail", 1, (7,))
    assert one.worst[0].cotangent == "powers"
    assert one.worst[0].error > 2 * one.worst[0].bound
    failed = Finding(name="x", verdict=Verdict.FAIL, reason="by bounds", compared=want.size)
    assert as_rounding(failed, want, want, dtype, None, ((40,), ("a", "b"))) is failed


@pytest.mark.parametrize("dtype", LOW)
def test_a_kernel_that_rounds_once_must_do_so_everywhere(dtype):
    want, _, spread, _ = known(dtype)
    typed = want.astype(dtype_named(dtype)).astype(np.float64)
    got = typed.copy()
    got[0, 3] += 4 * spread.spread[0, 3]
    assert said(dtype, got, want, spread).verdict == "inconclusive"
    noisy = typed + 0.8 * spread.spread
    noisy[0, 3] = got[0, 3]
    assert said(dtype, noisy, want, spread).verdict == "pass"


@pytest.mark.parametrize("dtype", LOW)
def test_a_row_that_rounding_destroys_settles_nothing_unless_the_kernel_keeps_it(dtype):
    want = np.random.default_rng(0).uniform(1, 2, (1, 40))
    draws = [want * (1 + 0.5 * (-1) ** k) for k in range(DRAWS)]
    spread = Dispersion.of(dtype, certain(want), draws, np.isfinite(want))
    for off, verdict in ((0.05, "pass"), (0.4, "inconclusive")):
        got = want * (1 + off)
        assert said(dtype, got, want, spread, Verdict.INCONCLUSIVE).verdict == verdict
    nothing = np.full((1, 40), 1e-9)
    spread = Dispersion.of(dtype, certain(nothing), draws, np.isfinite(want))
    assert said(dtype, want, nothing, spread, Verdict.INCONCLUSIVE).verdict == "inconclusive"


@pytest.mark.parametrize("dtype", LOW)
def test_the_arithmetic_rounds_whatever_is_computed_and_nothing_that_fits(dtype):
    kind = dtype_named(dtype)
    for xp in scattering(dtype):
        x, y = xp.asarray([1.5, -3.0]), xp.asarray([0.25, 7.0])
        table = xp.asarray([[1.5, 0.1], [0.25, 0.3]])
        for made in (x / 3, x + y / 3, xp.exp(x), xp.erf(x), xp.sum(y / 3, axis=0), x @ table,
                     xp.einsum("i,ij->j", x, table), xp.erf(x) / 3,
                     xp.scatter_add(y / 3, np.array([0, 0]), 2)):  # fmt: skip
            plain = np.asarray(made, dtype=np.float64)
            assert np.array_equal(plain.astype(kind).astype(np.float64), plain)
        assert np.array_equal(np.asarray(x * y), [0.375, -21.0])
    thirds = [float((xp.asarray([1.0]) / 3)[0]) for xp in scattering(dtype)]
    assert min(thirds) < 1 / 3 < max(thirds)
