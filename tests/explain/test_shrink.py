"""A failure made small stays the failure that it was: what is kept, and what is refused."""

from __future__ import annotations

from dataclasses import dataclass

import gradcheck_cases
import numpy as np
import pytest

from gradcheck.errors import SpecError, Unsupported
from gradcheck.explain.shrink import as_it_is, shrink
from gradcheck.explain.shrink_trial import Candidate
from gradcheck.implementations.bound import Bound
from gradcheck.judge.operator import CaseTruth, judge_case
from gradcheck.numerics.draw import Draw
from gradcheck.power.attack import Wrong
from gradcheck.results.verdict import Verdict
from tests.ending import ends
from tests.explain.scenes import changed, right


def the_case(op, sample="", dialect=""):
    spec = gradcheck_cases.SUITE.operators[op]
    dialect, sample = dialect or spec.dialects[0].name, sample or spec.samples[0].name
    (case,) = gradcheck_cases.SUITE.cases([op], [dialect], [sample])
    return case


def shrunk(op, vjp, output, *, sample="", dialect="", dtype="float64", **options):
    found = shrink(the_case(op, sample, dialect), Wrong(vjp), dtype, output, **options)
    assert found is not None, "it does not fail"
    assert found.finding.verdict in (Verdict.FAIL, Verdict.MISSING, Verdict.ERROR)
    return found


def size(found):
    return sum(p.size for p in found.case.primals)


def accepted(found, vjp, dtype="float64"):
    """Whether the ordinary judgement passes a VJP at the reduced case."""
    findings = judge_case(CaseTruth(found.case), Wrong(vjp), dtype)
    return all(f.verdict is Verdict.PASS for f in findings)


@dataclass
class Counting:
    """A binding that counts its calls."""

    vjp: object
    calls: int = 0
    name: str = "counting"

    def bind(self, case, dtype):
        def vjp(*args, **attrs):
            self.calls += 1
            return self.vjp(*args, **attrs)

        return Bound(vjp=vjp, forward=None, attrs=case.attrs)


# ── nothing to make smaller ──────────────────────────────────────────────────────────────────────


def test_a_failure_near_its_bound_is_made_small_too():
    """Its margin, under three, varies with the input."""
    found = shrunk("hardsigmoid", changed("hardsigmoid", x=lambda g: g * (1 + 3e-8)), "x")
    assert size(found) == 1
    assert found.finding.verdict is Verdict.FAIL
    almost = changed("hardsigmoid", x=lambda g: g * (1 + 5e-9))
    assert shrink(the_case("hardsigmoid"), Wrong(almost), "float64", "x") is None


def test_what_is_right_is_no_failure():
    vjp = changed("silu", x=lambda g: g)
    assert shrink(the_case("silu"), Wrong(vjp), "float64", "x") is None


@pytest.mark.parametrize("output", ["forward", "y", ""])
def test_what_is_no_gradient_of_the_operator_is_no_failure(output):
    vjp = changed("silu", x=lambda g: 2 * g)
    assert shrink(the_case("silu"), Wrong(vjp), "float64", output) is None


def test_code_that_says_nothing_does_not_fail():
    class Silent(Wrong):
        def bind(self, case, dtype):
            return None

    class Lacking(Wrong):
        def bind(self, case, dtype):
            raise Unsupported("no such operator")

    for kind in (Silent, Lacking):
        assert shrink(the_case("silu"), kind(None), "float64", "x") is None


def test_code_that_dies_is_not_called_again_and_again():
    def dies(ct, x):
        ends("vjp", "SIGSEGV in silu_backward", Verdict.CRASH)

    binding = Counting(dies)
    found = shrink(the_case("silu"), binding, "float64", "vjp")
    assert found.finding.verdict is Verdict.CRASH
    assert found.case.sample.name == "typical"
    assert np.isnan(found.got).all()
    assert binding.calls <= 2


def test_code_that_dies_of_smaller_shapes_comes_back_as_far_as_it_lived():
    def vjp(ct, x):
        if x.size < 7:
            ends("vjp", "SIGSEGV in silu_backward", Verdict.CRASH)
        return 2 * right("silu", ct, x)[0]

    binding = Counting(vjp)
    found = shrink(the_case("silu"), binding, "float64", "x")
    assert found.finding.verdict is Verdict.FAIL
    assert size(found) >= 7
    np.testing.assert_allclose(found.got, 2 * found.want)


# ── what stays ───────────────────────────────────────────────────────────────────────────────────


def test_a_factor_is_seen_in_one_element():
    found = shrunk("silu", changed("silu", x=lambda g: 2 * g), "x")
    assert size(found) == 1
    assert found.case.primals[0].ndim == 0
    assert [part.tolist() for part in found.cotangent] == [1.0]
    assert found.got == pytest.approx(2 * found.want, rel=1e-12)
    assert found.want == pytest.approx(right("silu", np.array(1.0), *found.case.primals)[0])
    assert 0 <= found.bar <= 1e-12 * abs(found.want)
    assert found.case.sample.name == "typical.shrunk"
    assert found.finding.diagnosis.label == "F"
    assert accepted(found, changed("silu", x=lambda g: g))
    assert not accepted(found, changed("silu", x=lambda g: 2 * g))


def silu_of(change):
    """A VJP of silu: `change(g, x)` of the right gradient."""

    def vjp(ct, x):
        with np.errstate(all="ignore"):
            return change(right("silu", ct, x)[0], x)

    return vjp


def last_one_wins(ct, x, ids):
    out = np.zeros_like(x)
    out[ids] = ct
    return out, None


def transposed_if_square(ct, x):
    g = right("softmax", ct, x)[0]
    return g.T if x.ndim == 2 and x.shape[0] == x.shape[1] else g


def dealt_halves(ct, x, **attrs):
    n = x.shape[-1] // 2
    return right("packed_swiglu", ct, x, **attrs)[0][
        ..., np.arange(2 * n).reshape(2, n).T.reshape(-1)
    ]


def default_slope(ct, x, *, negative_slope=0.01):
    return right("leaky_relu", ct, x, negative_slope=0.01)[0]


def doubled(ct, x, target, **attrs):
    return tuple(2 * g for g in right("binary_cross_entropy", ct, x, target, **attrs))


SLOPED = next(s.name for s in gradcheck_cases.SUITE.operators["leaky_relu"].samples
              if "negative_slope" in s.attrs)  # fmt: skip


@pytest.mark.slow(keep=6)
@pytest.mark.parametrize(
    ("op", "output", "vjp", "where", "most", "kept"),
    [
        # the suspicion, where a smaller shape fails of something else
        ("silu", "x", silu_of(lambda g, x: 2 * g if x.size > 1 else -g), {}, 2,
         lambda f, x: np.allclose(f.got, 2 * f.want) and f.finding.diagnosis.label == "F"
         and x.size == 2),
        # wrong numbers do not turn into NaN
        ("silu", "x", silu_of(lambda g, x: g * np.where(x == 0, np.nan, 0.5 + x**2)), {}, 1,
         lambda f, x: x != 0 and np.isfinite(f.got)),
        ("silu", "x", silu_of(lambda g, x: g + np.where(x > 80, np.nan, 0)), {"sample": "tails"}, 1,
         lambda f, x: x > 80 and np.isnan(f.got) and np.isfinite(f.want)),
        # a gradient of another shape keeps another shape
        ("add", "y", lambda ct, x, y: (right("add", ct, x, y)[0], ct),
         {"sample": "row", "dialect": "broadcast"}, 2,
         lambda f, x: f.cotangent[0].shape != f.case.primals[1].shape
         and f.finding.diagnosis.label == "B"),
        # an index that occurs twice stays twice
        ("get_rows", "x", last_one_wins, {"sample": "all-same"}, 3,
         lambda f, x: x.shape == (1, 1) and f.case.primals[1].tolist() == [0, 0]),
        ("softmax", "x", transposed_if_square, {"sample": "square"}, 4,
         lambda f, x: x.shape == (2, 2)),
        # halves of one axis shrink together, attributes with the axes that they divide
        ("packed_swiglu", "x", dealt_halves, {}, 4, lambda f, x: x.shape == (4,)),
        ("attention", "v", changed("attention", v=lambda g: 2 * g), {}, 3,
         lambda f, x: f.case.attrs["heads"] == 1),
        # an attribute stays where the failure needs it, and else goes back to its default
        ("leaky_relu", "x", default_slope, {"sample": SLOPED}, 1,
         lambda f, x: f.case.attrs["negative_slope"] != 0.01 and x < 0),
        ("conv_2d", "w", changed("conv_2d", w=lambda g: 3 * g), {"sample": "dilation"}, 3,
         lambda f, x: f.case.sample.attrs == {}),
        # values stay where samples have theirs
        ("binary_cross_entropy", "x", doubled, {"dialect": "probabilities"}, 2,
         lambda f, x: 0 < x < 1),
    ],
)  # fmt: skip
def test_what_makes_it_fail_is_kept(op, output, vjp, where, most, kept):
    found = shrunk(op, vjp, output, **where)
    assert size(found) <= most
    assert kept(found, found.case.primals[0]), found


def test_a_missing_gradient_stays_missing():
    def vjp(ct, x, w, **attrs):
        return right("rms_norm", ct, x, w, **attrs)[0], None

    found = shrunk("rms_norm", vjp, "w", dialect="weight")
    assert found.finding.verdict is Verdict.MISSING
    assert found.finding.diagnosis.label == "G"
    assert size(found) == 2
    assert found.got.shape == found.want.shape == found.case.primals[1].shape
    assert np.isnan(found.got).all()
    assert np.isfinite(found.want).all()


def test_a_kink_stays_a_kink_and_what_any_subgradient_allows_is_no_failure():
    def vjp(ct, x):
        return np.where(x == 0, 2.0, x > 0) * ct

    found = shrunk("relu", vjp, "x", sample="kink")
    assert found.case.primals[0].tolist() == 0.0
    assert found.case.sample.at_kink
    assert found.want == abs(found.cotangent[0])  # the nearest that is allowed
    half = changed("relu", x=lambda g: g)
    assert shrink(the_case("relu", "kink"), Wrong(half), "float64", "x") is None


def test_a_choice_on_a_kink_fails_where_another_is_the_only_one_allowed():
    def vjp(ct, x):
        return np.where(x == 0, 1.0, x > 0) * ct  # a subgradient, but PyTorch returns 0

    case = the_case("relu", "kink")
    assert shrink(case, Wrong(vjp), "float64", "x") is None
    found = shrink(case, Wrong(vjp), "float64", "x", convention="PyTorch")
    assert found.case.primals[0].tolist() == 0.0
    assert found.got == found.cotangent[0]
    assert found.want == 0


def test_a_smooth_sample_does_not_shrink_onto_a_kink():
    found = shrunk("relu", changed("relu", x=lambda g: 2 * g), "x")
    assert not found.case.sample.at_kink
    assert abs(found.case.primals[0]) >= 0.125


@pytest.mark.parametrize("x", [0.0, 0.1, -0.1])
def test_no_candidate_comes_near_a_kink_that_the_sample_avoids(x):
    case = the_case("relu")
    assert Candidate(original=case, primals=(np.array(0.125),), attrs={}).case()
    with pytest.raises(SpecError, match="near a kink"):
        Candidate(original=case, primals=(np.array(x),), attrs={}).case()


@pytest.mark.slow
def test_where_forward_has_no_derivative_is_nowhere_to_go():
    # elu(x) + 1 has no second derivative at 0, though its VJP gives a number there.
    def vjp(*args, **attrs):
        grads = list(right("linear_attention", *args, **attrs))
        return tuple(1.5 * g if i == 1 else g for i, g in enumerate(grads))

    found = shrunk("linear_attention", vjp, "k", rules=())
    assert found.case.primals[1].all()
    assert accepted(found, changed("linear_attention", k=lambda g: g))


# ── the call as a whole ──────────────────────────────────────────────────────────────────────────


def test_code_that_is_not_deterministic_stays_so():
    count = iter(range(10**6))

    def vjp(ct, x):
        return right("silu", ct, x)[0] + next(count)

    found = shrunk("silu", vjp, "vjp")
    assert found.finding.verdict is Verdict.ERROR
    assert "not deterministic" in found.finding.reason
    assert size(found) == 1


def test_what_two_calls_answer_differently_is_no_smaller_failure():
    count = iter(range(10**6))

    def vjp(ct, x):
        off = 1 if x.size > 2 else 3 + next(count)
        return right("silu", ct, x)[0] * (2 + x**2) + off

    found = shrunk("silu", vjp, "x", rules=())
    assert size(found) == 3


def test_code_that_raises_goes_on_raising_the_same():
    def vjp(ct, x):
        if x.size == 1:
            raise ValueError("a single one")
        raise RuntimeError(f"shape {x.shape}")

    found = shrunk("silu", vjp, "vjp")
    assert "RuntimeError" in found.finding.reason
    assert size(found) == 2


# ── dtypes, several outputs, budget ──────────────────────────────────────────────────────────────


@pytest.mark.slow(keep=1)
@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_the_dtype_stays(dtype):
    kinds = []

    def vjp(ct, x):
        kinds.append(x.dtype.name)
        one = (ct.astype("float64"), x.astype("float64"))
        return (2 * right("silu", *one)[0]).astype(x.dtype)

    found = shrunk("silu", vjp, "x", dtype=dtype)
    assert found.dtype == dtype
    assert set(kinds) == {dtype}
    assert size(found) == 1
    assert found.got.dtype == found.want.dtype == np.float64


def test_a_cotangent_has_a_part_for_each_output():
    vjp = changed("qk_norm", k=lambda g: -g)
    found = shrunk("qk_norm", vjp, "k")
    assert len(found.cotangent) == 2
    assert sum(np.count_nonzero(part) for part in found.cotangent) == 1
    assert found.case.primals[1].shape == found.got.shape


def test_a_cotangent_that_must_be_dense_stays_dense():
    def vjp(ct, x):
        hot = np.count_nonzero(ct) > 2
        return right("silu", ct, x)[0] * (2 if hot else 1)

    found = shrunk("silu", vjp, "x")
    assert np.count_nonzero(found.cotangent[0]) == 3


@pytest.mark.slow(keep=1)
@pytest.mark.parametrize("budget", [0, 1, 20])
def test_what_it_asks_is_counted(budget):
    binding = Counting(changed("attention", q=lambda g: 2 * g))
    found = shrink(the_case("attention"), binding, "float64", "q", rules=(), budget=budget)
    assert found.finding.verdict is Verdict.FAIL
    once = 3 * (len(found.case.spec.samples) + 8)  # probes of other samples, and confirmations
    assert binding.calls <= once + 2 * budget  # each trial that fails is asked twice


@pytest.mark.slow
def test_two_shrinks_are_the_same_to_the_last_bit():
    vjp = changed("attention", q=lambda g: 1.5 * g)
    first, second = (shrunk("attention", vjp, "q") for _ in range(2))
    for a, b in zip(first.case.primals, second.case.primals, strict=True):
        assert np.array_equal(a, b)
    assert first.finding == second.finding


def test_as_it_is_shows_the_worst_cotangent_of_the_ordinary_judgement():
    vjp = changed("silu", x=lambda g: g * (1 + (g == g.max())))
    case = the_case("silu")
    found = as_it_is(case, Wrong(vjp), "float64", "x")
    assert found.case is case
    top = found.finding.top
    kinds = dict(
        zip(CaseTruth(case).cotangents.names, CaseTruth(case).cotangents.values, strict=True)
    )
    assert np.array_equal(found.cotangent[0], kinds[top.cotangent][0])
    assert found.got[top.index] == top.got
    assert found.want[top.index] == pytest.approx(top.want, rel=1e-12)


def test_the_sample_of_a_shrunk_case_draws_nothing():
    found = shrunk("silu", changed("silu", x=lambda g: 2 * g), "x")
    again = found.case.sample.primals(Draw("anything"))
    assert [p.tolist() for p in again] == [p.tolist() for p in found.case.primals]
