"""Kinks that a spec declares: slopes, ties, infinite slopes, conventions; and infinite outputs."""

from types import SimpleNamespace

import numpy as np
import pytest
from gradcheck_cases import SUITE

from gradcheck.errors import SpecError
from gradcheck.implementations.bound import Bound
from gradcheck.judge.declared_kinks import FollowedConvention, KinkDirections
from gradcheck.judge.operator import judge_case
from gradcheck.judge.operator_truth import CaseTruth
from gradcheck.numerics.arithmetic import FLOATS
from gradcheck.spec import Convention, Kink, OpSpec, Sample
from gradcheck.spec.suite import Case

TEXTS = {"formula": "x", "source": "y"}


def sample(values, *, at_kink=False):
    return Sample(name="s", primals=lambda _: values, hunts="anything", at_kink=at_kink)


def findings(spec, vjp, dtype="float64", convention="", forward=None):
    """By name, what is said of `vjp(xp, ct, …)` at the spec's only sample."""
    xp = FLOATS[dtype]

    class Mine:
        name = "mine"

        def bind(self, case, dtype):
            def value(*primals, **attrs):
                return (forward or case.spec.forward)(xp, *primals, **attrs)

            def body(ct, *primals, **attrs):
                return vjp(xp, ct, *primals, **attrs)

            return Bound(vjp=body, forward=value, attrs=case.attrs)

    case = Case(spec, spec.dialects[0], spec.samples[0], 0, "tests")
    return {f.name: f for f in judge_case(CaseTruth(case, convention), Mine(), dtype)}


# ── ties ─────────────────────────────────────────────────────────────────────────────────────


def max_forward(xp, x):
    return xp.max(x, axis=-1)


def winners(xp, x):
    return x == xp.max(x, axis=-1, keepdims=True)


def max_split(xp, ct, x):
    count = np.sum(winners(xp, x), axis=-1, keepdims=True).astype(xp.dtype)
    return xp.where(winners(xp, x), ct[..., None] / count, 0)


def max_first(xp, ct, x):
    return xp.where(xp.is_index(xp.argmax(x, axis=-1), x.shape[-1]), ct[..., None], 0)


def max_all(xp, ct, x):
    return xp.where(winners(xp, x), ct[..., None], 0)


def max_none(xp, ct, x):
    lonely = np.sum(winners(xp, x), axis=-1, keepdims=True) == 1
    return xp.where(winners(xp, x) & lonely, ct[..., None], 0)


def max_generous(xp, ct, x):
    """Twice to the first, minus once to the second: the right sum, outside of the hull."""
    first = max_first(xp, ct, x)
    return first + (first - max_split(xp, ct, x))


def distance_to_best_other(xp, x):
    others = [np.delete(x, i, axis=-1).max(axis=-1) for i in range(x.shape[-1])]
    return np.abs(x - np.stack(others, axis=-1))


def tied_max(values):
    conventions = (
        Convention(name="split", systems=("JAX",), vjp=max_split),
        Convention(name="first", systems=("PyTorch",), vjp=max_first),
    )
    tie = Kink(name="tie", gap=distance_to_best_other, source="z", conventions=conventions)
    return OpSpec(
        name="max", signature="(d)->()", forward=max_forward, vjp=max_split, kinks=(tie,),
        samples=(sample((np.array(values),), at_kink=True),), **TEXTS,
    )  # fmt: skip


TIES = tied_max([[1.0, 3.0, 3.0], [5.0, 5.0, 5.0], [4.0, 0.0, 2.0]])


@pytest.mark.slow(keep=1)
@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize(("vjp", "says"), [(max_split, "split (JAX)"), (max_first, "first (Py")])
def test_a_tie_may_be_split_or_given_to_one(vjp, says, dtype):
    found = findings(TIES, vjp, dtype)["x"]
    assert (found.verdict, found.kinked) == ("pass", 15)
    assert found.conventions[0].startswith(f"tie: {says}")


@pytest.mark.slow(keep=1)
@pytest.mark.parametrize("vjp", [max_all, max_none, max_generous])
def test_a_tie_may_not_be_counted_twice_nor_dropped(vjp):
    assert findings(TIES, vjp)["x"].verdict == "fail"


def test_the_sum_over_a_tie_is_judged_though_every_element_is_in_its_interval():
    found = findings(TIES, max_all)["x"]
    assert "share the wrong sum" in found.reason
    assert found.conventions == ("tie: none that is known",)


def test_only_the_convention_asked_for_is_right():
    assert findings(TIES, max_split, convention="JAX")["x"].verdict == "pass"
    found = findings(TIES, max_first, convention="JAX")["x"]
    assert found.verdict == "fail"
    assert "on tie only what JAX returns is right" in found.reason
    assert findings(TIES, max_first, convention="a system that says nothing")["x"].verdict == "pass"


def test_a_tie_excuses_nothing_in_the_other_rows():
    def wrong(xp, ct, x):
        return max_split(xp, ct, x) * np.where(winners(xp, x).sum(-1, keepdims=True) == 1, 1.01, 1)

    assert findings(TIES, wrong)["x"].verdict == "fail"


# ── corners beside which differences are blind ───────────────────────────────────────────────


def abs_forward(xp, x):
    return xp.abs(x)


def abs_vjp(xp, ct, x):
    return ct * xp.sign(x)


def magnitude(values, **options):
    kink = Kink(name="x = 0", gap=lambda xp, x: xp.abs(x), source="z", **options)
    return OpSpec(
        name="abs", signature="()->()", forward=abs_forward, vjp=abs_vjp, kinks=(kink,),
        samples=(sample((np.array(values),), at_kink=True),), **TEXTS,
    )  # fmt: skip


ULP = float(np.spacing(np.float32(1e-30)))


@pytest.mark.parametrize("dtype", FLOATS)
def test_one_ulp_beside_a_kink_the_slope_is_the_one_of_that_side(dtype):
    spec = magnitude([0.0, ULP, -ULP, 2.0**-20, 1.0])
    assert findings(spec, abs_vjp, dtype)["x"].verdict == "pass"

    def blurred(xp, ct, x):
        return xp.where(xp.abs(x) < 1e-3, 0 * ct, ct * xp.sign(x))

    found = findings(spec, blurred, dtype)["x"]
    assert (found.verdict, found.failed) == ("fail", 9)


@pytest.mark.slow(keep=1)
@pytest.mark.parametrize("accept", ["directional", (-1.0, 1.0)])
def test_slopes_and_one_sided_derivatives_allow_the_same(accept):
    spec = magnitude([0.0, 1.0], accept=accept)
    for slope, verdict in ((-1, "pass"), (0, "pass"), (0.5, "pass"), (1.01, "fail"), (2, "fail")):
        vjp = lambda xp, ct, x, s=slope: xp.where(x == 0, s * ct, abs_vjp(xp, ct, x))  # noqa: E731
        assert findings(spec, vjp)["x"].verdict == verdict, slope


# ── infinite slopes, infinite outputs ────────────────────────────────────────────────────────


def sqrt_forward(xp, x):
    return xp.sqrt(x)


def sqrt_vjp(xp, ct, x):
    return ct / (2 * xp.sqrt(x))


def log_forward(xp, x):
    return xp.log(x)


def log_vjp(xp, ct, x):
    return ct / x


def at_zero(forward, vjp):
    conventions = (
        Convention(name="infinite", systems=("PyTorch",), slope=float("inf")),
        Convention(name="0", systems=("nobody",), slope=0.0),
    )
    kink = Kink(
        name="x = 0", gap=lambda xp, x: xp.abs(x), source="z", accept=(0.0, float("inf")),
        conventions=conventions,
    )  # fmt: skip
    return OpSpec(
        name="root", signature="()->()", forward=forward, vjp=vjp, kinks=(kink,),
        samples=(sample((np.array([0.0, 1.0, 4.0]),), at_kink=True),), **TEXTS,
    )  # fmt: skip


@pytest.mark.slow(keep=1)
@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize(
    ("forward", "vjp"), [(sqrt_forward, sqrt_vjp), (log_forward, log_vjp)], ids=["sqrt", "log"]
)
def test_an_infinite_slope_is_right_where_it_is_declared_and_nan_never(forward, vjp, dtype):
    spec = at_zero(forward, vjp)
    found = findings(spec, vjp, dtype)["x"]
    assert (found.verdict, found.conventions) == ("pass", ("x = 0: infinite (PyTorch)",))

    def changed(at_zero):
        return lambda xp, ct, x: xp.where(x == 0, at_zero(ct), vjp(xp, ct, x))

    assert findings(spec, changed(lambda ct: 0 * ct), dtype)["x"].verdict == "pass"
    for wrong in (lambda ct: ct * np.nan, lambda ct: -ct * np.inf, lambda ct: -ct):
        assert findings(spec, changed(wrong), dtype)["x"].verdict == "fail"
    elsewhere = lambda xp, ct, x: xp.where(x == 1, ct * np.inf, vjp(xp, ct, x))  # noqa: E731
    assert findings(spec, elsewhere, dtype)["x"].verdict == "fail"


def mask_forward(xp, x):
    return xp.where(xp.causal(*x.shape[-2:]), x, xp.const("-inf"))


def mask_vjp(xp, ct, x):
    return xp.where(xp.causal(*x.shape[-2:]), ct, 0)


MASK = OpSpec(
    name="mask", signature="(t,s)->(t,s)", forward=mask_forward, vjp=mask_vjp,
    samples=(sample((np.arange(12.0).reshape(3, 4),)),), **TEXTS,
)  # fmt: skip


@pytest.mark.parametrize("dtype", FLOATS)
def test_an_infinite_output_carries_no_slope(dtype):
    assert {f.verdict for f in findings(MASK, mask_vjp, dtype).values()} == {"pass"}

    def passed_on(xp, ct, x):
        return ct

    def zero_times_infinity(xp, ct, x):
        with np.errstate(invalid="ignore"):
            return mask_vjp(xp, ct, x) + 0 * mask_forward(xp, x)

    assert findings(MASK, passed_on, dtype)["x"].verdict == "fail"
    found = findings(MASK, zero_times_infinity, dtype)["x"]
    assert (found.verdict, "18 of 36 elements are not finite" in found.reason) == ("fail", True)


@pytest.mark.parametrize("instead", ["inf", "-1e30", "nan"])
def test_an_infinite_output_must_be_that_infinity(instead):
    def forward(xp, x):
        return xp.where(xp.causal(*x.shape[-2:]), x, xp.const(instead))

    found = findings(MASK, mask_vjp, forward=forward)["forward"]
    assert found.verdict == "fail"
    assert "infinite by design" in found.reason


def test_a_finite_output_may_not_become_infinite():
    def forward(xp, x):
        return xp.where(x > 4, mask_forward(xp, x), xp.const("-inf"))

    assert findings(MASK, mask_vjp, forward=forward)["forward"].verdict == "fail"


def test_a_forward_that_gives_nan_is_no_operator():
    def forward(xp, x):
        return mask_forward(xp, x) * xp.const("nan")

    spec = OpSpec(
        name="nan", signature="(t,s)->(t,s)", forward=forward, vjp=mask_vjp,
        samples=MASK.samples, **TEXTS,
    )  # fmt: skip
    with pytest.raises(SpecError, match="forward gives NaN"):
        findings(spec, mask_vjp)


# ── sizes of zero ────────────────────────────────────────────────────────────────────────────


def weighted_forward(xp, x, w):
    return xp.sum(x * w, axis=-1)


def weighted_vjp(xp, ct, x, w):
    return ct[..., None] * w, xp.reduce_to(ct[..., None] * x, w)


def weighted(x, w):
    return OpSpec(
        name="weighted", signature="(d),(d)->()", forward=weighted_forward, vjp=weighted_vjp,
        samples=(sample((np.ones(x), np.ones(w))),), **TEXTS,
    )  # fmt: skip


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize(("x", "w"), [((0, 3), 3), ((3, 0), 0), ((0, 0), 0)])
def test_without_elements_shape_and_dtype_are_checked(x, w, dtype):
    spec = weighted(x, w)
    assert {f.verdict for f in findings(spec, weighted_vjp, dtype).values()} == {"pass"}

    def flat(xp, ct, x, w):
        return np.zeros((0,), dtype=xp.dtype), weighted_vjp(xp, ct, x, w)[1]

    assert findings(spec, flat, dtype)["x"].verdict == "fail"
    missing = findings(spec, lambda xp, ct, x, w: (None, weighted_vjp(xp, ct, x, w)[1]), dtype)
    assert missing["x"].verdict == "missing"


def test_no_rows_give_a_shared_weight_the_gradient_zero():
    def garbage(xp, ct, x, w):
        return weighted_vjp(xp, ct, x, w)[0], np.full(w.shape, 1e-30)

    assert findings(weighted((0, 3), 3), garbage)["w"].verdict == "fail"


# ── mistakes in the declaration ──────────────────────────────────────────────────────────────


def test_slopes_need_a_forward_that_acts_element_by_element():
    tie = Kink(name="tie", gap=distance_to_best_other, source="z", accept=(0.0, 1.0))
    spec = OpSpec(
        name="max", signature="(d)->()", forward=max_forward, vjp=max_split, kinks=(tie,),
        samples=TIES.samples, **TEXTS,
    )  # fmt: skip
    with pytest.raises(SpecError, match="does not act element by element; write accept='direct"):
        findings(spec, max_split)


def test_a_gap_is_a_distance_per_element():
    tie = Kink(name="tie", gap=lambda xp, x: np.zeros(3), source="z")
    spec = OpSpec(
        name="max", signature="(d)->()", forward=max_forward, vjp=max_split, kinks=(tie,),
        samples=TIES.samples, **TEXTS,
    )  # fmt: skip
    with pytest.raises(SpecError, match=r"has shape \(3,\).*give one distance per element"):
        findings(spec, max_split)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"accept": "split"}, "accept is 'split'; write 'directional'"),
        ({"primal": "y"}, "forward has no primal 'y'"),
        ({"accept": (1.0, 0.0)}, "sort it"),
    ],
)
def test_a_kink_that_makes_no_sense_is_refused(options, message):
    with pytest.raises(SpecError, match=message):
        findings(magnitude([0.0, 1.0], **options), abs_vjp)


def test_a_convention_is_a_slope_or_a_vjp_of_somebody():
    for options in ({}, {"slope": 0.0, "vjp": abs_vjp}):
        with pytest.raises(SpecError, match="give it a slope or a vjp"):
            Convention(name="0", systems=("JAX",), **options)
    with pytest.raises(SpecError, match="name the systems"):
        Convention(name="0", systems=(), slope=0.0)


def test_a_sample_has_at_least_the_axes_of_the_signature():
    spec = OpSpec(
        name="mask", signature="(t,s)->(t,s)", forward=mask_forward, vjp=mask_vjp,
        samples=(sample((np.zeros(3),)),), **TEXTS,
    )  # fmt: skip
    with pytest.raises(SpecError, match=r"draws 'x' with shape \(3,\).*wants a rank of at least 2"):
        findings(spec, mask_vjp)


def test_where_no_element_is_on_a_kink_or_beside_one_nothing_is_asked():
    (case,) = SUITE.cases(["relu"], [], ["typical"])
    truth = CaseTruth(case)
    assert truth.declared.allowed(0, truth.cotangents, lambda: 1 / 0) is None


BOUND = 2.0**-10


def violated(product, other=1.0, bound=BOUND):
    """Of ⟨g, d⟩ between 0 and 2, for two elements with a bound each, along (1, 1) and (1, −1/2)."""
    along = np.array([[1.0, 1.0], [1.0, -0.5]])
    got = np.linalg.solve(along, np.array([product, other]))[None]
    low, high = np.array([[0.0, 0.0]]), np.array([[2.0, 2.0]])
    return KinkDirections(along, low, high).violated(got, np.full((1, 2), bound))


@pytest.mark.parametrize("beyond", [0.0, 2 * BOUND])
def test_a_sum_may_leave_its_interval_by_the_bounds_of_its_elements(beyond):
    assert violated(2.0 + beyond) is None
    assert violated(0.0 - beyond) is None


def test_one_that_leaves_it_further_is_told_with_its_ends():
    far = 2.01 * BOUND
    assert violated(2.0 + far) == (pytest.approx(2.0 + far), 0.0, 2.0)
    assert violated(0.0 - far) == (pytest.approx(0.0 - far), 0.0, 2.0)
    assert violated(2.0 + far, other=-1.0) == (pytest.approx(-1.0), 0.0, 2.0)  # the worst
    assert violated(2.0, other=2.0 + 1.49 * BOUND) is None
    assert violated(2.0, other=2.0 + 1.51 * BOUND) is not None


def test_what_is_no_number_is_outside():
    assert violated(np.nan) is not None


@pytest.mark.parametrize(
    ("got", "says"),
    [
        (0.0, "tie: left (A); middle (A, B)"),
        (1.0, "tie: right (C)"),
        (0.5, "tie: none that is known"),
        (np.nan, "tie: none that is known"),
    ],
)
def test_the_conventions_that_a_gradient_follows_are_named(got, says):
    def convention(name, *systems):
        return SimpleNamespace(name=name, systems=systems)

    tables = (
        (convention("left", "A"), np.array([[0.0, 7.0]])),
        (convention("middle", "A", "B"), np.array([[0.0, 7.0]])),
        (convention("right", "C"), np.array([[1.0, 7.0]])),
    )
    found = SimpleNamespace(got=np.array([[got, -1.0]]), bound=np.full((1, 2), BOUND))
    which = np.array([True, False])
    assert FollowedConvention("tie", which, tables).by(found) == says
    # Where all say the same, none is followed; one alone is.
    alone = "" if got == 0 else says.replace("right (C)", "none that is known")
    assert FollowedConvention("tie", which, tables[:2]).by(found) == alone
    assert (FollowedConvention("tie", which, tables[2:]).by(found) == "tie: right (C)") is (
        got == 1.0
    )
