"""Forwards that call JAX: what big numbers carry, and what they refuse and why."""

from functools import partial

import mpmath
import numpy as np
import pytest

from gradcheck.numerics.highprecision.forward import BigForward
from gradcheck.numerics.highprecision.numbers import Leak, Unsupported
from tests.numerics.highprecision.frameworks import (
    BUDGET,
    SPD,
    M,
    compare,
    compare_elements,
    directed,
    refusal,
    slope_in_float32,
)

jax = pytest.importorskip("jax")
pytestmark = pytest.mark.frameworks
jnp = jax.numpy
lax, nn = jax.lax, jax.nn

V, B = M[0], M.reshape(2, 2, 4) * 1.5
IMAGE = np.random.default_rng(19).standard_normal((1, 5, 4, 2))
KERNEL = np.random.default_rng(20).standard_normal((3, 2, 2, 3))
PLACES = np.array([1, 0, 3, 1])


@pytest.fixture(autouse=True)
def _x64():
    before = jax.config.jax_enable_x64
    jax.config.update("jax_enable_x64", True)
    yield
    jax.config.update("jax_enable_x64", before)


@jax.custom_vjp
def _custom(x):
    return jnp.sin(x) * 2


_custom.defvjp(lambda x: (_custom(x), x), lambda x, ct: (ct,))


def _layer_norm(x):
    x = jnp.asarray(x)
    away = x - jnp.mean(x, -1, keepdims=True)
    return away / jnp.sqrt(jnp.var(x, -1, keepdims=True) + 1e-5)


def _network(x):
    hidden = nn.gelu(jnp.asarray(x) @ jnp.asarray(M) + 0.1)
    return -jnp.mean(jnp.take_along_axis(nn.log_softmax(hidden), PLACES[:, None], 1))


def _attention(x):
    scores = jnp.einsum("bqd,bkd->bqk", x, x) / jnp.sqrt(x.shape[-1])
    seen = jnp.tril(jnp.ones((2, 2), bool))
    return nn.softmax(jnp.where(seen, scores, -jnp.inf), -1) @ x


def _pooled(x):
    return lax.reduce_window(x, -jnp.inf, lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "VALID")


def _convolved(x, **how):
    return lax.conv_general_dilated(
        x, KERNEL, dimension_numbers=("NHWC", "HWIO", "NHWC"), **{"padding": "SAME", **how}
    )


TRACEABLE = {
    "tanh": (jnp.tanh, V), "jitted": (jax.jit(lambda x: jnp.sin(x) * x), V),
    "softmax": (nn.softmax, M), "log_softmax": (nn.log_softmax, M),
    "logsumexp": (lambda x: jax.scipy.special.logsumexp(x, 0), M), "gelu": (nn.gelu, V),
    "gelu erf": (partial(nn.gelu, approximate=False), V), "silu": (nn.silu, V),
    "softplus": (nn.softplus, V), "elu": (nn.elu, V), "relu": (nn.relu, V), "glu": (nn.glu, M),
    "layer norm": (_layer_norm, M), "network": (_network, M), "attention": (_attention, B),
    "matmul": (lambda x: x @ M, M), "einsum": (lambda x: jnp.einsum("bij,bkj->bik", x, x), B),
    "convolution": (partial(_convolved, window_strides=(1, 2)), IMAGE),
    "dilated": (
        partial(_convolved, window_strides=(1, 1), lhs_dilation=(2, 1), padding=((1, 1), (0, 1))),
        IMAGE,
    ),
    "max pool": (_pooled, IMAGE), "cumsum": (partial(jnp.cumsum, axis=1), M),
    "cumprod": (jnp.cumprod, V), "cummax": (lax.cummax, V), "cumlogsumexp": (lax.cumlogsumexp, V),
    "sort": (jnp.sort, V), "argsort": (lambda x: x[jnp.argsort(x)] ** 2, V),
    "top_k": (lambda x: lax.top_k(x, 2)[0], V), "take": (lambda x: x[PLACES, 1:3], M),
    "slice": (lambda x: x[:, ::-2], M), "index": (lambda x: x[..., 0] * x[2], M),
    "at add": (lambda x: jnp.zeros(4).at[PLACES].add(x * x), V),
    "at set": (lambda x: jnp.asarray(x).at[2].set(x[0] * x[1]), V),
    "at max": (lambda x: jnp.asarray(x).at[1:3].max(0.3), V),
    "segments": (lambda x: jax.ops.segment_sum(x, PLACES, 4), V),
    "dynamic slice": (lambda x: lax.dynamic_slice(x, (1, 0), (2, 3)), M),
    "dynamic update": (lambda x: lax.dynamic_update_slice(x, x[:2, :2] * 2, (3, 1)), M),
    "pad": (lambda x: jnp.pad(x, 1, mode="reflect") * 2, M),
    "roll": (partial(jnp.roll, shift=1), M),
    "stack": (lambda x: jnp.stack([x, x * 2], 1), M), "kron": (lambda x: jnp.kron(x, x), M[:2, :2]),
    "triangles": (lambda x: jnp.tril(x) + 2 * jnp.triu(x, 1), M),
    "where": (lambda x: jnp.where(x > 0, x, 0.1 * x), V),
    "clip": (lambda x: jnp.clip(x, -1, 0.5), V),
    "max": (lambda x: jnp.max(x, 1), M), "norm": (jnp.linalg.norm, M), "var": (jnp.var, M),
    "prod": (lambda x: jnp.prod(x, 0), M), "cholesky": (jnp.linalg.cholesky, SPD),
    "solve": (lambda x: jnp.linalg.solve(x, jnp.ones(4)), SPD), "inverse": (jnp.linalg.inv, M),
    "slogdet": (lambda x: jnp.linalg.slogdet(x)[1], M), "eigvalsh": (jnp.linalg.eigvalsh, SPD),
    "svd": (lambda x: jnp.linalg.svd(x, compute_uv=False), M),
    "qr": (lambda x: jnp.linalg.qr(x)[1], M),
    "erf": (jax.scipy.special.erf, V), "erfinv": (lambda x: lax.erf_inv(jnp.tanh(x)), V),
    "lgamma": (lambda x: lax.lgamma(x**2 + 0.1), V), "i0e": (jax.scipy.special.i0e, V),
    "power": (lambda x: jnp.abs(x) ** 1.7 + x**-3, V),
    "atan2": (lambda x: jnp.atan2(x, x[::-1]), V),
    "scan": (lambda x: lax.scan(lambda c, a: (jnp.tanh(c + a), c * a), 0.5, x)[1], V),
    "loop": (lambda x: lax.fori_loop(0, 3, lambda i, a: jnp.sin(a) + a * 0.1, x), V),
    "cond": (lambda x: lax.cond(jnp.sum(x) > 0, jnp.sin, jnp.cos, x), V),
    "vmap": (jax.vmap(lambda row: nn.softmax(row) @ row), M),
    "grad": (jax.grad(lambda x: jnp.sum(jnp.sin(x) * x)), V),
    "checkpoint": (jax.checkpoint(lambda x: jnp.sin(jnp.sin(x))), V),
    "inner jvp": (lambda x: jax.jvp(jnp.tanh, (x,), (x,))[1], V),
    "fft": (lambda x: jnp.abs(jnp.fft.fft(x)), V),
    "complex": (lambda x: jnp.abs(jnp.exp(1j * x) + x), V),
    "random constant": (lambda x: x * jax.random.normal(jax.random.key(0), (4,)), V),
}  # fmt: skip
"""Forwards that JAX itself differentiates: (function, primal)."""


def test_values_and_slopes_are_those_of_jax():
    assert len(TRACEABLE) >= 60
    inputs = {name: (x, directed(name, x)) for name, (_, x) in TRACEABLE.items()}

    def derivatives(given):
        return {name: jax.jvp(TRACEABLE[name][0], (x,), (d,)) for name, (x, d) in given.items()}

    sooner = {"xla_backend_optimization_level": 0, "xla_llvm_disable_expensive_passes": True}
    truth = jax.jit(derivatives).lower(inputs).compile(sooner)(inputs)
    compare(
        {
            name: (forward, *inputs[name], *map(np.asarray, truth[name]))
            for name, (forward, _) in TRACEABLE.items()
        }
    )


NUMPY = {
    "converted": (lambda x: np.asarray(jnp.tanh(x)), mpmath.tanh),
    "to a dtype": (lambda x: np.asarray(jnp.tanh(x), dtype=np.float64), mpmath.tanh),
    "between": (
        lambda x: np.exp(np.asarray(jnp.sin(np.tanh(x)))),
        lambda t: mpmath.exp(mpmath.sin(mpmath.tanh(t))),
    ),
    "mixed": (lambda x: x * jnp.sin(x) + np.exp(x), lambda t: t * mpmath.sin(t) + mpmath.exp(t)),
    "masked": (lambda x: np.where(np.asarray(jnp.asarray(x) < 9), np.sin(x), x), mpmath.sin),
    "chosen": (lambda x: jnp.sin(x) if jnp.sum(x) < 99 else x, mpmath.sin),
    "custom": (_custom, lambda t: 2 * mpmath.sin(t)),
    "a float": (lambda x: [float(jnp.sin(v)) for v in x], mpmath.sin),
    "NumPy's function": (
        lambda x: np.cumsum(jnp.sin(x) * 0) + np.square(jnp.cos(x)),
        lambda t: mpmath.cos(t) ** 2,
    ),
}  # fmt: skip
"""Forwards of each element, and the same in mpmath."""


@pytest.mark.parametrize("name", NUMPY)
def test_numpy_and_jax_in_turn(name):
    compare_elements(*NUMPY[name], V)


def test_one_sided_slopes_at_a_kink_and_none_of_a_step():
    box = BigForward(lambda x: nn.relu(x) + jnp.sign(x - 1), [np.zeros(1)], {}, BUDGET)
    slopes = box.slopes([np.ones(1)])
    assert (slopes.behind, slopes.ahead) == ([0.0], [1.0])


def test_float32_all_through_is_no_leak():
    np.testing.assert_allclose(*slope_in_float32(jax.jit(lambda x: jnp.sum(jnp.tanh(x))), V))


def _halved(x):
    return x.astype(jnp.float16).astype(jnp.float64)


LEAKS = {
    "float32 (convert_element_type)": lambda x: jnp.asarray(x).astype(jnp.float32) * 2,
    "bfloat16 (convert_element_type)": lambda x: jnp.tanh(jnp.asarray(x, jnp.bfloat16)),
    "float16 (convert_element_type)": lambda x: jax.jit(_halved)(x) * 2,
    "(reduce_precision)": lambda x: lax.reduce_precision(x, 8, 7),
    "(pure_callback)": lambda x: jax.pure_callback(np.sin, jax.ShapeDtypeStruct((4,), x.dtype), x),
    "a float of a number": lambda x: jnp.full(4, jnp.sum(x).item()),
    "text": lambda x: jnp.full(4, float(str(jnp.sum(x).item()))),
    "float32 (dot_general)": lambda x: lax.dot(x, x, preferred_element_type=jnp.float32),
}  # fmt: skip


@pytest.mark.parametrize("reason", LEAKS)
def test_leaks_are_refused_with_their_reason(reason):
    text = refusal(LEAKS[reason], V)
    assert reason in text or reason == "text"
    assert "test_jax.py" in text


def test_without_x64_float64_is_rounded():
    jax.config.update("jax_enable_x64", False)
    with pytest.raises(Leak, match="float32 without jax_enable_x64"):
        BigForward(lambda x: np.asarray(jnp.tanh(x)), [V], {}, BUDGET).outputs()


def test_an_unknown_primitive_is_named():
    with pytest.raises(Unsupported, match="JAX's schur "):
        BigForward(lambda x: jax.scipy.linalg.schur(x)[0], [M], {}, BUDGET).outputs()


def test_nothing_stays_behind():
    with pytest.raises(Leak):
        BigForward(LEAKS["(reduce_precision)"], [V], {}, BUDGET).outputs()
    assert isinstance(jnp.sin(V), jax.Array)
    assert jax.jit(lambda x: x * 2)(V).tolist() == (V * 2).tolist()
