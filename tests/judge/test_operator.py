from dataclasses import replace

import numpy as np
import pytest
from gradcheck_cases import SUITE
from gradcheck_cases.norm import layer_norm

from gradcheck.errors import SpecError, Unsupported
from gradcheck.implementations.bound import Bound
from gradcheck.implementations.reference import Reference
from gradcheck.judge.operator import judge_case
from gradcheck.judge.operator_truth import MAX_ORACLE_ELEMENTS, CaseTruth
from gradcheck.results.verdict import Verdict
from gradcheck.spec import Dialect, Kink, OpSpec, Sample, Slack
from gradcheck.spec.suite import Case

DTYPES = ["float64", "float32"]


class Implementation:
    """A binding of one vjp (and forward), whatever the case."""

    name = "mine"

    def __init__(self, vjp, forward=None):
        self.vjp, self.forward = vjp, forward

    def bind(self, case, dtype):
        return Bound(vjp=self.vjp, forward=self.forward, attrs=case.attrs)


def cube_forward(xp, x, w):
    return x * x * x * w


def cube_vjp(xp, ct, x, w):
    return 3 * x * x * w * ct, xp.reduce_to(x * x * x * ct, w)


def typical(draw):
    return draw.signed(3, 5), draw.signed(5)


def spec(forward=cube_forward, vjp=cube_vjp, primals=typical, **options):
    options = {"name": "cube", "signature": "(),()->()", "formula": "x", "source": "y"} | options
    sample = Sample(name="typical", primals=primals, hunts="anything")
    return OpSpec(forward=forward, vjp=vjp, samples=(sample,), **options)


def truth_of(operator, dialect=0, seed=0):
    return CaseTruth(Case(operator, operator.dialects[dialect], operator.samples[0], seed, "tests"))


def judged(truth, binding, dtype="float64"):
    return {finding.name: finding for finding in judge_case(truth, binding, dtype)}


def verdicts(*args):
    return {name: finding.verdict.value for name, finding in judged(*args).items()}


def right(ct, x, w):
    return 3 * x * x * w * ct, (x**3 * ct).sum(axis=0)


def wrong(ct, x, w):
    return 2 * x * x * w * ct, (x**3 * ct).sum(axis=0)


# ── forward and gradient are told apart ──────────────────────────────────────────────────────


@pytest.mark.slow(keep=2)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(
    ("forward", "vjp", "expected"),
    [
        (lambda x, w: x**3 * w, right, {"forward": "pass", "x": "pass", "w": "pass"}),
        (lambda x, w: x**2 * w, right, {"forward": "fail", "x": "pass", "w": "pass"}),
        (lambda x, w: x**3 * w, wrong, {"forward": "pass", "x": "fail", "w": "pass"}),
        (lambda x, w: x**2 * w, wrong, {"forward": "fail", "x": "fail", "w": "pass"}),
        (None, right, {"x": "pass", "w": "pass"}),
    ],
)
def test_another_function_and_a_wrong_derivative_are_two_findings(dtype, forward, vjp, expected):
    found = judged(truth_of(spec()), Implementation(vjp, forward), dtype)
    assert {name: f.verdict.value for name, f in found.items()} == expected
    assert list(found) == list(expected)
    if expected.get("forward") == "fail":
        reason = found["forward"].reason
        assert reason.startswith("it computes something else than cube: ")
        assert reason.endswith("15 of 15 elements are outside the tolerance")


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_forward_may_round_otherwise_but_not_be_wrong_in_one_element(dtype):
    u = np.finfo(dtype).eps

    def forward(x, w, error):
        y = x * (x * (x * w))
        y[1, 2] *= y.dtype.type(1 + error)
        return y

    def verdict(error):
        binding = Implementation(right, lambda x, w: forward(x, w, error))
        return judged(truth_of(spec()), binding, dtype)["forward"]

    assert verdict(4 * u).verdict is Verdict.PASS
    found = verdict(1e-7 if dtype == "float64" else 1e-3)
    assert (found.verdict, found.failed, found.worst_index) == (Verdict.FAIL, 1, (1, 2))


@pytest.mark.parametrize(
    ("forward", "reason"),
    [
        (lambda x, w: (x**3 * w)[0], "forward returned float64(5,), the operator gives float64 of"),
        (lambda x, w: (x**3 * w).astype(np.float32), "forward returned float32(3, 5)"),
        (lambda x, w: (x**3 * w, w), "forward returned float64(3, 5), float64(5,)"),
    ],
)
def test_a_forward_of_another_form_fails_and_its_gradient_is_judged(forward, reason):
    found = judged(truth_of(spec()), Implementation(right, forward))
    assert found["forward"].verdict is Verdict.FAIL
    assert reason in found["forward"].reason
    assert found["x"].verdict is Verdict.PASS


def test_an_empty_output_has_a_dtype_too():
    empty = lambda draw: (np.zeros((0, 5)), draw.signed(5))  # noqa: E731
    truth = truth_of(spec(primals=empty))
    found = judged(truth, Implementation(right, lambda x, w: x**3 * w))
    assert found["forward"].verdict is Verdict.PASS
    found = judged(truth, Implementation(right, lambda x, w: (x**3 * w).astype(np.float32)))
    assert found["forward"].verdict is Verdict.FAIL
    found = judged(truth, Implementation(lambda ct, x, w: (x.astype(np.float32), 0 * w)))
    assert found["x"].verdict is Verdict.FAIL


def test_an_infinity_that_ends_beside_the_point_is_no_number_there():
    """A slope of 0 would be a wrong one, and pass for right."""
    operator = spec(
        lambda xp, x: xp.log(x), lambda xp, ct, x: ct / x,
        lambda draw: (np.array([0.0, 1.0, 4.0]),), signature="()->()",
    )  # fmt: skip
    forward = truth_of(operator)._point.forward
    with np.errstate(divide="ignore"):
        assert forward(np.array([0.0, 1.0, 4.0]))[0].tolist() == [0.0, 0.0, np.log(4.0)]
        assert np.isnan(forward(np.array([0.5, 1.0, 4.0]))[0]).tolist() == [True, False, False]


def test_a_forward_without_a_number_fails():
    found = judged(truth_of(spec()), Implementation(right, lambda x, w: x * np.nan))
    assert found["forward"].verdict is Verdict.FAIL
    assert "15 of 15 elements are not finite" in found["forward"].reason


def raising(error):
    def function(*args, **attrs):
        raise error

    return function


def test_what_is_known_of_forward_survives_a_vjp_that_breaks_or_is_lacking():
    def with_vjp(error):
        binding = Implementation(raising(error), lambda x, w: x)
        return verdicts(truth_of(spec()), binding)

    assert with_vjp(ValueError()) == {"forward": "fail", "vjp": "error"}
    assert with_vjp(Unsupported("no cubes")) == {"forward": "fail", "vjp": "unsupported"}
    assert with_vjp(NotImplementedError("no cubes")) == {"forward": "fail", "vjp": "unsupported"}


def test_a_forward_that_raises_leaves_nothing_to_judge():
    found = judged(truth_of(spec()), Implementation(right, raising(RuntimeError("no GPU"))))
    assert {n: (f.verdict, f.reason) for n, f in found.items()} == {
        "forward": (Verdict.ERROR, "forward raised RuntimeError: no GPU")
    }


def test_who_says_nothing_is_unbound_and_who_declines_is_unsupported():
    class Silent(Implementation):
        def bind(self, case, dtype):
            return None

    class Declines(Implementation):
        def bind(self, case, dtype):
            raise Unsupported(f"no {dtype}")

    truth = truth_of(spec())
    (finding,) = judge_case(truth, Silent(right), "float64")
    assert (finding.verdict, finding.reason) == (Verdict.UNBOUND, "not implemented by mine")
    (finding,) = judge_case(truth, Declines(right), "float32")
    assert (finding.verdict, finding.reason) == (Verdict.UNSUPPORTED, "no float32")


# ── what the code judged is given ────────────────────────────────────────────────────────────


@pytest.mark.parametrize("dtype", DTYPES)
def test_floats_come_in_the_dtype_and_indices_as_they_are(dtype):
    (case,) = SUITE.cases(["encoder"], samples=["typical"])
    seen = []

    def vjp(ct, *primals, **attrs):
        seen.append([p.dtype.name for p in (ct, *primals)])
        return Reference().bind(case, dtype).vjp(ct, *primals, **attrs)

    found = verdicts(CaseTruth(case), Implementation(vjp), dtype)
    assert set(found.values()) == {"pass"}
    assert {*seen[0]} == {dtype, "int64"}
    assert all(s == seen[0] for s in seen)


def test_a_dialect_without_a_primal_is_judged_without_it():
    operator = spec(
        forward=lambda xp, x, w=None: x * x if w is None else x * x * w,
        vjp=lambda xp, ct, x, w=None: (
            2 * x * ct if w is None else (2 * x * w * ct, xp.reduce_to(x * x * ct, w))
        ),
        dialects=(Dialect(name="full", says="w"), Dialect(name="bare", says="-", without=("w",))),
    )
    assert list(judged(truth_of(operator, 0), Reference())) == ["forward", "x", "w"]
    assert list(judged(truth_of(operator, 1), Reference())) == ["forward", "x"]
    assert verdicts(truth_of(operator, 1), Implementation(lambda ct, x: 2 * x * ct)) == {
        "x": "pass"
    }


# ── a spec at fault ──────────────────────────────────────────────────────────────────────────


def lame_vjp(xp, ct, x, w):
    return 2 * x * x * w * ct, xp.reduce_to(x * x * x * ct, w)


@pytest.mark.slow(keep=1)
@pytest.mark.parametrize("shape", [(3, 5), (MAX_ORACLE_ELEMENTS, 5)])
def test_a_wrong_spec_fails_itself_and_blames_nobody_else(shape):
    operator = spec(vjp=lame_vjp, primals=lambda draw: (draw.signed(*shape), draw.signed(5)))
    truth = truth_of(operator)
    assert not truth.spec_is_right
    assert verdicts(truth, Reference())["x"] == "fail"
    assert verdicts(truth, Implementation(right)) == {"x": "pass", "w": "pass"}
    found = judged(truth, Implementation(wrong))
    assert (found["x"].verdict, found["w"].verdict) == (Verdict.INVALID, Verdict.PASS)
    assert found["x"].reason == (
        "the spec's own VJP of cube disagrees with the 50-digit oracle here; mine cannot be judged"
    )


@pytest.mark.slow(keep=1)
@pytest.mark.parametrize("vjp_is_right", [True, False])
def test_what_float64_cannot_see_is_settled_at_50_digits_even_beside_a_wrong_spec(vjp_is_right):
    # 2^30 drowns x^2: differences of float64 are good to 7 digits.
    operator = spec(
        forward=lambda xp, x: x * x + 2.0**30,
        vjp=lambda xp, ct, x: (2 if vjp_is_right else 3) * x * ct,
        primals=lambda draw: (draw.signed(MAX_ORACLE_ELEMENTS),),
        signature="()->()",
    )
    truth = truth_of(operator)
    assert truth.spec_is_right is vjp_is_right
    found = judged(truth, Implementation(lambda ct, x: 2 * x * ct))["x"]
    assert (found.verdict, found.unresolved, found.oracle) == (Verdict.PASS, 0, True)
    found = judged(truth, Implementation(lambda ct, x: 2.0000002 * x * ct))["x"]
    assert found.verdict is (Verdict.FAIL if vjp_is_right else Verdict.INVALID)


def test_a_right_spec_lets_others_be_blamed():
    truth = truth_of(spec())
    assert truth.spec_is_right
    assert verdicts(truth, Implementation(wrong)) == {"x": "fail", "w": "pass"}


def test_a_bad_form_is_blamed_even_where_the_spec_is_wrong():
    truth = truth_of(spec(vjp=lame_vjp))
    found = verdicts(truth, Implementation(lambda ct, x, w: (None, w.astype(np.float32))))
    assert found == {"x": "missing", "w": "fail"}


def abs_forward(xp, x):
    return xp.abs(x)


def abs_vjp(xp, ct, x):
    return xp.where(x > 0, ct, -ct)


ZERO = Kink(name="0", gap=lambda xp, x: xp.abs(x), accept=(-1.0, 1.0), source="here")


@pytest.mark.parametrize(
    ("values", "at_kink", "message"),
    [
        ([1.0, 0.0625], False, "0.0625 from the kink '0'; draw with draw.away, or mark"),
        ([1.0, 0.0], False, "lies on the kink '0'; draw with draw.away, or mark"),
        ([1.0, 0.125], True, "no element lies exactly on a kink"),
    ],
)
def test_a_sample_keeps_away_from_a_kink_or_visits_it(values, at_kink, message):
    visits = Sample(name="kink", primals=lambda _: (np.zeros(1),), hunts="0", at_kink=True)
    sample = Sample(name="s", primals=lambda _: (np.array(values),), hunts="it", at_kink=at_kink)
    operator = OpSpec(
        name="abs", forward=abs_forward, vjp=abs_vjp, signature="()->()", kinks=(ZERO,),
        samples=(sample, visits), formula="|x|", source="here",
    )  # fmt: skip
    with pytest.raises(SpecError, match="abs/default/s: ") as caught:
        truth_of(operator)
    assert message in str(caught.value)


def test_a_forward_that_leaves_its_arithmetic_is_a_fault_of_the_spec():
    operator = spec(forward=lambda xp, x, w: (x * x * x * w).astype(np.float32))
    with pytest.raises(SpecError, match="forward gives float32 in float64 arithmetic"):
        truth_of(operator)


# ── kinks ────────────────────────────────────────────────────────────────────────────────────


def sloped(slope, case):
    """The right gradient of a case, with another slope on its kinks."""

    def vjp(ct, x, **attrs):
        dx = np.array(Reference().bind(case, x.dtype.name).vjp(ct, x, **attrs))
        for kink in case.spec.kinks:
            on = kink.gap(np, x.astype(np.float64), **attrs) == 0
            dx[on] = (slope * ct)[on]
        return dx

    return Implementation(vjp)


@pytest.mark.slow(keep=3)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(
    ("name", "accepted", "rejected"),
    [
        ("relu/kink", (0.0, 0.5, 1.0), (-0.1, 1.1, 2.0, np.nan)),
        ("leaky_relu/kink", (0.01, 0.5, 1.0), (0.0, 1.1, -1.0)),
        ("leaky_relu/slope-steep", (1.0, 1.25, 1.5), (0.9, 1.6, 0.0)),
        ("leaky_relu/slope-negative", (-0.2, 0.0, 1.0), (-0.3, 1.1)),
        ("leaky_relu/slope-1", (1.0,), (0.99, 0.0)),
        ("clamp/kink", (0.0, 0.5, 1.0), (-0.1, 2.0)),
        ("clamp/asymmetric", (0.0, 1.0), (-0.5, 2.0)),
        ("elu/kink", (1.0,), (0.0, 0.99, 1.01)),
        ("elu/alpha-2", (1.0, 1.5, 2.0), (0.9, 2.1)),
    ],
)
def test_on_a_kink_the_slopes_between_the_two_sides_are_right(name, accepted, rejected, dtype):
    op, sample = name.split("/")
    (case,) = SUITE.cases([op], samples=[sample])
    truth = CaseTruth(case)
    for slopes, verdict in ((accepted, Verdict.PASS), (rejected, Verdict.FAIL)):
        for slope in slopes:
            finding = judged(truth, sloped(slope, case), dtype)["x"]
            assert (finding.verdict, slope) == (verdict, slope)
            assert finding.kinked == 3 * truth.declared.on(0).sum() > 0


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_kink_excuses_no_wrong_slope_beside_it(dtype):
    (case,) = SUITE.cases(["relu"], samples=["kink"])
    found = judged(CaseTruth(case), Implementation(lambda ct, x: ct * (x >= 0) * 1.5), dtype)["x"]
    assert found.verdict is Verdict.FAIL
    assert case.primals[0][found.worst_index] >= 0


# ── bounds ───────────────────────────────────────────────────────────────────────────────────


def test_slack_widens_the_bound_by_ulps_of_the_scale():
    def verdict(ulp, slack):
        def vjp(ct, x, w):
            return right(ct, x, w)[0], (x**3 * ct).sum(axis=0) + ulp * np.finfo(x.dtype).eps * (
                np.abs(x**3 * ct).sum(axis=0)
            )

        operator = spec(slack=Slack(ulp=slack, because="a table of half precision"))
        return verdicts(truth_of(operator), Implementation(vjp), "float64")["w"]

    error = 4e-8 / np.finfo(np.float64).eps
    assert verdict(error, 0.0) == "fail"
    assert verdict(error, error * 1.1) == "pass"
    assert verdict(error * 3, error * 1.1) == "fail"


@pytest.mark.slow(keep=1)
@pytest.mark.parametrize("factor", [1.0, 0.0])
def test_where_rounding_may_cost_the_whole_gradient_nothing_passes(factor):
    sample = Sample(
        name="far", hunts="nothing: float32 has no digit left",
        primals=lambda draw: (2.0**20 + np.round(8 * draw.normal(3, 7)) / 8, *draw.normal(2, 7)),
    )  # fmt: skip
    truth = CaseTruth(Case(layer_norm, layer_norm.dialects[0], sample, 0, "tests"))

    def vjp(ct, *primals, eps):
        dtype = ct.dtype.name
        gradients = Reference().bind(truth.case, dtype).vjp(ct, *primals, eps=eps)
        return tuple(g * g.dtype.type(factor) for g in gradients)

    found = judged(truth, Implementation(vjp), "float32")
    assert found["x"].verdict is Verdict.INCONCLUSIVE
    assert "rounding alone may cost a tenth of the gradient" in found["x"].reason
    assert found["b"].verdict is (Verdict.PASS if factor else Verdict.FAIL)


def test_what_code_prints_stands_at_what_is_no_pass_or_at_the_first():
    class Loud(Implementation):
        def bind(self, case, dtype):
            return replace(super().bind(case, dtype), printed=lambda: "hello")

    def said(vjp):
        found = judged(truth_of(spec()), Loud(vjp, lambda x, w: x**3 * w))
        return {name: finding.printed for name, finding in found.items()}

    assert said(right) == {"forward": "hello", "x": "", "w": ""}
    assert said(wrong) == {"forward": "", "x": "hello", "w": ""}


@pytest.mark.parametrize(("error", "verdict"), [(60, Verdict.PASS), (1000, Verdict.FAIL)])
def test_slack_widens_the_bound_of_a_value_by_so_many_ulps(error, verdict):
    """Of float32, for code that asks for it; beside what everybody is allowed."""
    rtol = 1e-4 * 17 / 16

    class Wide(Implementation):
        def bind(self, case, dtype):
            slack = Slack(ulp=100, because="it is summed in another order")
            return replace(super().bind(case, dtype), slack=slack)

    def forward(x, w):
        return x**3 * w * x.dtype.type(1 + rtol + error * 2 * 2.0**-24)

    found = judged(truth_of(spec()), Wide(right, forward), "float32")["forward"]
    assert found.verdict is verdict
    said = "by a tolerance 100 ulp wider: it is summed in another order"
    assert found.slack == (said if verdict is Verdict.PASS else "")
