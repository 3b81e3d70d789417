"""Wrong gradients that a user could hand in: each must be rejected, in float64 and in float32."""

import numpy as np
import pytest
from gradcheck_cases import SUITE

from gradcheck import check
from gradcheck.implementations.bound import Bound
from gradcheck.implementations.reference import Reference
from gradcheck.judge.operator import CaseTruth, judge_case
from tests.sizes import seeds

DTYPES = ["float64", "float32"]
# An operator and a sample on which two axes, or two primals, have the same size.
SQUARE = [
    ("rms_norm", "weight", "square"),
    ("softmax", "default", "square"),
    ("matmul", "no-bias", "square"),
    ("gelu", "tanh", "typical"),
    ("layer_norm", "affine", "square"),
    ("attention", "separate", "square"),
]


class Impostor:
    """The reference's VJP, spoilt: `spoil(gradients, ct, primals)` returns other gradients."""

    name = "impostor"

    def __init__(self, spoil):
        self.spoil = spoil

    def bind(self, case, dtype):
        bound = Reference().bind(case, dtype)

        def vjp(ct, *primals, **attrs):
            right = bound.vjp(ct, *primals, **attrs)
            right = right if isinstance(right, tuple) else (right,)
            return tuple(
                None if g is None else np.asarray(g).astype(dtype)
                for g in self.spoil(right, ct, primals)
            )

        return Bound(vjp=vjp, forward=bound.forward, attrs=bound.attrs)


@pytest.fixture(scope="module")
def truths():
    """The truth of each case, found once."""
    made = {}

    def truth(op, dialect, sample):
        key = (op, dialect, sample)
        if key not in made:
            (case,) = SUITE.cases([op], [dialect], [sample])
            made[key] = CaseTruth(case)
        return made[key]

    return truth


def verdicts(truth, impostor, dtype):
    found = {f.name: f.verdict.value for f in judge_case(truth, Impostor(impostor), dtype)}
    assert found.pop("forward") == "pass"
    return found


def each(change):
    return lambda gradients, ct, primals: [None if g is None else change(g) for g in gradients]


def one_element(gradient):
    out = np.array(gradient)
    out.reshape(-1)[out.size // 2] *= out.dtype.type(1.01)
    return out


def swapped(gradients, ct, primals):
    """Gradients of primals of one shape, handed to each other."""
    shapes = [p.shape for p in primals]
    i, j = next((i, j) for j in range(len(shapes)) for i in range(j) if shapes[i] == shapes[j])
    out = list(gradients)
    out[i], out[j] = out[j], out[i]
    return out


# ── the same mistake in many operators ───────────────────────────────────────────────────────


@pytest.mark.slow(keep=2)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("case", SQUARE, ids=lambda case: case[0])
def test_what_is_not_spoilt_passes(truths, case, dtype):
    assert set(verdicts(truths(*case), lambda g, ct, primals: g, dtype).values()) == {"pass"}


@pytest.mark.slow(keep=16)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("case", SQUARE, ids=lambda case: case[0])
@pytest.mark.parametrize(
    "spoil",
    [
        each(lambda g: 0 * g),
        each(lambda g: -g),
        each(lambda g: g * g.dtype.type(1.001)),
        each(lambda g: 2 * g),
        each(lambda g: g / 2),
        each(lambda g: g * np.nan),
        each(lambda g: np.where(np.arange(g.size).reshape(g.shape) == 1, np.inf, g)),
        each(one_element),
        each(lambda g: g + g.dtype.type(1e-2) * np.max(np.abs(g))),
        each(np.ones_like),
    ],
    ids=[
        "zeros",
        "sign",
        "x1.001",
        "x2",
        "half",
        "nan",
        "one inf",
        "one element",
        "offset",
        "ones",
    ],
)
def test_every_spoilt_gradient_is_rejected(truths, spoil, case, dtype):
    found = verdicts(truths(*case), spoil, dtype)
    assert set(found.values()) == {"fail"}, found


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("case", SQUARE, ids=lambda case: case[0])
def test_a_gradient_transposed_where_the_shape_forgives_it_is_rejected(truths, case, dtype):
    def transposed(g):
        return np.swapaxes(g, -1, -2) if g.ndim > 1 and g.shape[-1] == g.shape[-2] else g[::-1]

    found = verdicts(truths(*case), each(transposed), dtype)
    assert set(found.values()) == {"fail"}, found


@pytest.mark.slow(keep=4)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("case", SQUARE, ids=lambda case: case[0])
@pytest.mark.parametrize("constant", [1.0, 0.5])
def test_an_ignored_cotangent_is_rejected(truths, case, dtype, constant):
    truth = truths(*case)

    def spoil(gradients, ct, primals):
        bound = Reference().bind(truth.case, dtype)
        out = bound.vjp(np.full_like(ct, constant), *primals, **bound.attrs)
        return out if isinstance(out, tuple) else (out,)

    found = verdicts(truth, spoil, dtype)
    assert set(found.values()) == {"fail"}, found


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("case", SQUARE, ids=lambda case: case[0])
def test_the_cotangent_handed_back_is_rejected(truths, case, dtype):
    def spoil(gradients, ct, primals):
        return [np.broadcast_to(ct, g.shape) if ct.ndim <= g.ndim and g.shape == ct.shape
                else np.resize(ct, g.shape) for g in gradients]  # fmt: skip

    found = verdicts(truths(*case), spoil, dtype)
    assert set(found.values()) == {"fail"}, found


@pytest.mark.slow(keep=2)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(
    "case",
    [("matmul", "no-bias", "square"), ("layer_norm", "affine", "typical"),
     ("attention", "separate", "typical"), ("add", "residual", "unequal-size"),
     ("swiglu", "default", "typical")],
    ids=lambda case: case[0],
)  # fmt: skip
def test_swapped_gradients_of_primals_of_one_shape_are_rejected(truths, case, dtype):
    if case[0] == "add":  # both gradients are the cotangent: to swap them is no mistake
        assert set(verdicts(truths(*case), swapped, dtype).values()) == {"pass"}
    else:
        assert list(verdicts(truths(*case), swapped, dtype).values()).count("fail") == 2


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("case", SQUARE, ids=lambda case: case[0])
def test_the_gradient_of_the_previous_call_is_an_error(truths, case, dtype):
    kept = []

    def stale(gradients, ct, primals):
        kept.append(gradients)
        return kept[max(len(kept) - 2, 0)]

    assert verdicts(truths(*case), stale, dtype) == {"vjp": "error"}


# ── through check() ──────────────────────────────────────────────────────────────────────────


def softmax(x):
    e = np.exp(x - x.max(axis=-1, keepdims=True))
    return e / e.sum(axis=-1, keepdims=True)


def softmax_vjp(ct, x):
    y = softmax(x)
    return y * (ct - (y * ct).sum(axis=-1, keepdims=True))


@pytest.mark.slow(keep=2)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("seed", range(5))
def test_softmax_without_its_dot_term_is_rejected(seed, dtype):
    x = np.random.default_rng(seed).normal(size=(4, 8)).astype(dtype)
    assert check(softmax, softmax_vjp, x, seed=seed).ok
    assert (
        check(softmax, lambda ct, x: softmax(x) * ct, x, seed=seed, explain=False).verdict == "fail"
    )
    # Blind to a cotangent of ones, for which the right answer is zero:
    assert (
        check(softmax, lambda ct, x: 0 * softmax_vjp(ct, x), x, seed=seed, explain=False).verdict
        == "fail"
    )


@pytest.mark.slow(keep=1, rest=2)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("those", seeds(3, few=1))
@pytest.mark.parametrize(
    "spoil", [lambda g: -g, lambda g: g * g.dtype.type(1.01), lambda g: 0 * g, lambda g: np.nan * g]
)
def test_one_wrong_element_among_4096_is_found(spoil, those, dtype):
    for seed in those:
        rng = np.random.default_rng(seed)
        x = rng.normal(size=(64, 64)).astype(dtype)
        place = tuple(rng.integers(0, 64, 2))

        def vjp(ct, x, place=place):
            out = ct * (1 - np.tanh(x) ** 2)
            out[place] = spoil(out[place])
            return out

        (finding,) = check(np.tanh, vjp, x, seed=seed).findings
        assert (finding.verdict, finding.compared) == ("fail", 3 * 4096)
        assert finding.worst_index == place
        assert finding.failed <= 3


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_buffer_that_still_holds_the_last_gradient_is_an_error(dtype):
    buffer = []

    def vjp(ct, x):
        buffer.append(softmax_vjp(ct, x))
        return buffer[-2] if len(buffer) > 1 else buffer[0]

    found = check(softmax, vjp, np.random.default_rng(0).normal(size=(3, 5)).astype(dtype))
    assert [(f.name, f.verdict.value) for f in found.findings] == [("vjp", "error")]


# ── ggml's own check let these pass ──────────────────────────────────────────────────────────


@pytest.mark.slow(keep=2)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(
    "case",
    [("relu", "default", "typical"), ("silu", "default", "typical"),
     ("softmax", "default", "typical"), ("cross_entropy", "nats", "typical"),
     ("softmax_cross_entropy", "per-position", "typical")],
    ids=lambda case: case[0],
)  # fmt: skip
def test_minus_seven_times_the_gradient_is_rejected(truths, case, dtype):
    found = verdicts(truths(*case), each(lambda g: -7 * g), dtype)
    assert set(found.values()) == {"fail"}, found


# ── rms_norm ─────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("dtype", DTYPES)
def test_the_unsolved_case_passes_if_right_and_fails_if_a_thousandth_off(truths, dtype):
    truth = truths("rms_norm", "plain", "unsolved")
    right, wrong = (
        next(f for f in judge_case(truth, Impostor(spoil), dtype) if f.name == "x")
        for spoil in (each(lambda g: g), each(lambda g: g * g.dtype.type(1.001)))
    )
    assert (right.verdict, wrong.verdict) == ("pass", "fail")
    assert right.unresolved == 0
    # An honest bar: it covers the distance to the exact gradient, and stays far below 0.1%.
    x = truth.primals[0].item()
    exact = truth.cotangents.flat.ravel() * 1e-6 / (x * x + 1e-6) ** 1.5
    estimate = truth.truth(0).differences.estimate
    assert (
        np.abs(estimate.value.ravel() - exact) <= estimate.bar.ravel() + 1e-14 * np.abs(exact)
    ).all()
    assert (estimate.bar.ravel() < 1e-4 * np.abs(exact)).all()


@pytest.mark.slow(keep=1)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("x", [10 / 2**16, 1.5e-4])
def test_the_unsolved_case_needs_no_oracle(x, dtype):
    def forward(x):
        return x / np.sqrt(x * x + x.dtype.type(1e-6))

    def backward(ct, x):
        r = 1 / np.sqrt(x * x + x.dtype.type(1e-6))
        return ct * r * (1 - (x * r) ** 2)

    x = np.array([[x]], dtype)
    right = check(forward, backward, x).findings[0]
    wrong = check(forward, lambda ct, x: backward(ct, x) * x.dtype.type(1.001), x).findings[0]
    assert (right.verdict, wrong.verdict) == ("pass", "fail")
    exact = wrong.got / 1.001
    assert abs(wrong.want - exact) <= wrong.error_bar + abs(exact) * (
        1e-13 if dtype == "float64" else 1e-6
    )
    assert wrong.error_bar < 1e-4 * abs(exact)


@pytest.mark.slow(rest=1)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(
    "those",
    [
        range(3),
        *(pytest.param(range(k, k + 10), marks=pytest.mark.soak) for k in range(0, 100, 10)),
    ],
    ids=str,
)
def test_the_llama_trainers_rms_norm_is_rejected(those, dtype):
    """Its second term is divided by D · rms² where it needs D · rms³; rms is nearly 1 here."""
    judged = [llama(seed, dtype) for seed in those]
    passed = [distance for verdict, distance in judged if verdict != "fail"]
    if dtype == "float64":
        assert not passed
    else:  # a second term that is off by less than 0.1% is below what float32 rounds away
        assert len(passed) <= len(those) // 10
        assert all(distance < 1e-3 for distance in passed)


def llama(seed, dtype, width=768):
    """The verdict, and how far rms is from 1."""
    rng = np.random.default_rng(seed)
    w, x = rng.normal(size=width).astype(dtype), rng.normal(size=(1, width)).astype(dtype)

    def rms(x):
        return np.sqrt(np.mean(x * x, axis=-1, keepdims=True) + x.dtype.type(1e-5))

    def forward(x):
        return x / rms(x) * w.astype(x.dtype)

    def backward(ct, x):
        g = ct * w.astype(x.dtype)
        dot = (g * x).sum(axis=-1, keepdims=True) / (width * rms(x) * rms(x))
        return g / rms(x) - x * dot

    return check(forward, backward, x, seed=seed, explain=False).verdict.value, abs(
        rms(x).item() - 1
    )
