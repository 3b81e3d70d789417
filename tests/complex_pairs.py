"""Functions of complex numbers and their right VJPs, in PyTorch's convention and in JAX's.

With J the derivative by z and K the one by z̄ (Wirtinger), PyTorch's VJP is c·J̄ + c̄·K, summed over
outputs. A linear map has its adjoint there. JAX's VJP is the conjugate of PyTorch's at c̄.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np


def mapped(f, found, *beside):
    """`f` of each gradient or cotangent, and of the values beside it; None stays."""
    several = isinstance(found, tuple)
    rows = zip(found if several else (found,), *beside, strict=True)
    parts = [g if g is None else f(g, *others) for g, *others in rows]
    return tuple(parts) if several else parts[0]


@dataclass(frozen=True)
class Pair:
    """`vjp` is PyTorch's; `primals(draw)` are float64 or complex128, or integers."""

    forward: Callable[..., Any]
    vjp: Callable[..., Any]
    primals: Callable[[np.random.Generator], tuple[Any, ...]]

    def jax(self, ct, *primals):
        """The same gradient in JAX's convention."""
        return mapped(np.conj, self.vjp(mapped(np.conj, ct), *primals))


def c(rng, *shape):
    """Complex numbers of sizes 0.4 to 1.6, at any angle but those near the negative axis."""
    angle = rng.uniform(-2.8, 2.8, size=shape)
    return rng.uniform(0.4, 1.6, size=shape) * np.exp(1j * angle)


def h(f, df, shift=0.0):
    """A holomorphic function, element by element."""
    return Pair(f, lambda ct, z: ct * np.conj(df(z)), lambda rng: (c(rng, 2, 3) + shift,))


def w(f, dz, dzbar):
    """A function of z and z̄, element by element, by its two Wirtinger derivatives."""
    return Pair(
        f,
        lambda ct, z: (ct * np.conj(dz(z)) + np.conj(ct) * dzbar(z)).astype(z.dtype),
        lambda rng: (c(rng, 2, 3),),
    )


def linear(f, adjoint, *shape, real=False):
    """A linear map and its adjoint."""
    return Pair(
        f, lambda ct, z: adjoint(ct), lambda rng: (c(rng, *shape).real if real else c(rng, *shape),)
    )


def loss(f, gradient, *shape):
    """A real number, and dL/dRe + i·dL/dIm."""
    return Pair(f, lambda ct, z: (ct * gradient(z)).astype(z.dtype), lambda rng: (c(rng, *shape),))


def two(forward, vjp, first, second):
    """A function of two primals, complex where their shapes are given as tuples of two lists."""
    return Pair(forward, vjp, lambda rng: (first(rng), second(rng)))


def real(*shape):
    return lambda rng: c(rng, *shape).real + 0.1


def comp(*shape):
    return lambda rng: c(rng, *shape)


def one(rng):
    return (c(rng, 2, 4),)


def t(a):
    """The conjugate transpose."""
    return np.conj(np.swapaxes(a, -1, -2))


def softmax(x):
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def softmax_abs_vjp(ct, z):
    y = softmax(np.abs(z))
    return y * (ct - (ct * y).sum(-1, keepdims=True)) * z / np.abs(z)


def solve_vjp(ct, a, b):
    db = np.linalg.solve(t(a), ct)
    return -db @ t(np.linalg.solve(a, b)), db


def rayleigh(a, z):
    return (np.conj(z) @ (a + t(a)) @ z).real / (np.abs(z) ** 2).sum()


def rayleigh_vjp(ct, a, z):
    n = (np.abs(z) ** 2).sum()
    dz = 2 * ((a + t(a)) @ z - rayleigh(a, z) * z) / n
    return ct * 2 * np.outer(z, np.conj(z)) / n, ct * dz


def polar_vjp(ct, r, angle):
    e = np.exp(1j * angle)
    return (ct * np.conj(e)).real, (ct * np.conj(1j * r * e)).real


def rfft_adjoint(ct):
    n = 5
    k = np.arange(ct.shape[-1])[:, None] * np.arange(n)
    return (ct @ np.exp(2j * np.pi * k / n)).real.astype(ct.real.dtype)


def irfft_adjoint(ct):
    n = ct.shape[-1]
    weight = np.array([1, 2, 2, 1]) / n  # the inner ones stand for their conjugates, too
    found = np.fft.rfft(ct) * weight
    found.imag[..., [0, -1]] = 0  # these do not take part
    return found.astype(np.result_type(ct, np.complex64))


def convolved_vjp(ct, x, k):
    fx, fk, g = np.fft.fft(x), np.fft.fft(k), np.fft.fft(ct)
    return np.fft.ifft(g * np.conj(fk)), np.fft.ifft(g * np.conj(fx))


def take_vjp(ct, z, index):
    out = np.zeros_like(z)
    np.add.at(out, index, ct)
    return out, None


def normed(z):
    return (z - z.mean()) / np.sqrt((np.abs(z - z.mean()) ** 2).mean() + 1e-5)


def normed_vjp(ct, z):
    s = np.sqrt((np.abs(z - z.mean()) ** 2).mean() + 1e-5)
    y = normed(z)
    g = (ct - y * (ct * np.conj(y)).real.mean()) / s
    return g - g.mean()


def attention(q, k):
    return softmax((q @ t(k)).real) @ k


def attention_vjp(ct, q, k):
    p = softmax((q @ t(k)).real)
    dp = (ct @ t(k)).real
    ds = p * (dp - (dp * p).sum(-1, keepdims=True))
    return (ds @ k).astype(q.dtype), (t(p) @ ct + ds.T @ q).astype(k.dtype)


def modrelu(z):
    return np.maximum(np.abs(z) - 0.3, 0) * z / np.abs(z)


PAIRS = {
    "exp": h(np.exp, np.exp),
    "sin": h(np.sin, np.cos),
    "cos": h(np.cos, lambda z: -np.sin(z)),
    "tan": h(np.tan, lambda z: 1 + np.tan(z) ** 2, 0.5j),
    "sinh": h(np.sinh, np.cosh),
    "tanh": h(np.tanh, lambda z: 1 - np.tanh(z) ** 2),
    "log": h(np.log, lambda z: 1 / z),
    "log1p": h(np.log1p, lambda z: 1 / (1 + z), 1.0),
    "expm1": h(np.expm1, np.exp),
    "sqrt": h(np.sqrt, lambda z: 0.5 / np.sqrt(z)),
    "square": h(lambda z: z**2, lambda z: 2 * z),
    "cube": h(lambda z: z * z * z, lambda z: 3 * z * z),
    "reciprocal": h(lambda z: 1 / z, lambda z: -1 / z**2),
    "arctan": h(np.arctan, lambda z: 1 / (1 + z * z), 2.5),
    "z exp z": h(lambda z: z * np.exp(z), lambda z: (1 + z) * np.exp(z)),
    "polynomial": h(lambda z: 1 + z * (2j + z * (3 - 1j)), lambda z: 2j + 2 * (3 - 1j) * z),
    "sigmoid": h(
        lambda z: 1 / (1 + np.exp(-z)), lambda z: np.exp(-z) / (1 + np.exp(-z)) ** 2
    ),
    "conj": w(np.conj, np.zeros_like, np.ones_like),
    "sign": w(
        lambda z: z / np.abs(z), lambda z: 0.5 / np.abs(z), lambda z: -(z**2) / (2 * np.abs(z) ** 3)
    ),
    "z abs": w(
        lambda z: z * np.abs(z), lambda z: 1.5 * np.abs(z), lambda z: z * z / (2 * np.abs(z))
    ),
    "z² conj": w(lambda z: z * z * np.conj(z), lambda z: 2 * z * np.conj(z), lambda z: z * z),
    "swap": w(lambda z: 1j * np.conj(z), np.zeros_like, lambda z: np.full_like(z, 1j)),
    "modrelu": w(
        modrelu,
        lambda z: np.where(np.abs(z) > 0.3, 1 - 0.15 / np.abs(z), 0),
        lambda z: np.where(np.abs(z) > 0.3, 0.15 * z * z / np.abs(z) ** 3, 0),
    ),
    "abs": loss(np.abs, lambda z: z / np.abs(z), 2, 3),
    "abs2": loss(lambda z: (z * np.conj(z)).real, lambda z: 2 * z, 2, 3),
    "angle": loss(np.angle, lambda z: 1j * z / np.abs(z) ** 2, 2, 3),
    "log abs": loss(lambda z: np.log(np.abs(z)), lambda z: z / np.abs(z) ** 2, 2, 3),
    "real": loss(lambda z: z.real, np.ones_like, 2, 3),
    "imag": loss(lambda z: z.imag, lambda z: np.full_like(z, 1j), 2, 3),
    "re im": loss(lambda z: z.real * z.imag, lambda z: z.imag + 1j * z.real, 2, 3),
    "sum abs2": loss(lambda z: (np.abs(z) ** 2).sum(), lambda z: 2 * z, 2, 3),
    "norm": loss(np.linalg.norm, lambda z: z / np.linalg.norm(z), 5),
    "abs⁴": loss(lambda z: (np.abs(z) ** 4).mean(), lambda z: 4 * np.abs(z) ** 2 * z / z.size, 5),
    "softmax abs": Pair(lambda z: softmax(np.abs(z)), softmax_abs_vjp, one),
    "normed": Pair(normed, normed_vjp, one),
    "sum": linear(np.sum, lambda ct: np.full(4, ct), 4),
    "cumsum": linear(np.cumsum, lambda ct: np.cumsum(ct[::-1])[::-1], 4),
    "transpose": linear(lambda z: z.T, lambda ct: ct.T, 2, 3),
    "fft": linear(np.fft.fft, lambda ct: ct.shape[-1] * np.fft.ifft(ct), 2, 5),
    "ifft": linear(np.fft.ifft, lambda ct: np.fft.fft(ct) / ct.shape[-1], 2, 5),
    "fft2": linear(np.fft.fft2, lambda ct: ct.size * np.fft.ifft2(ct), 3, 4),
    "rfft": linear(np.fft.rfft, rfft_adjoint, 2, 5, real=True),
    "irfft": linear(np.fft.irfft, irfft_adjoint, 2, 4),
    "to complex": linear(
        lambda x: x * (1 + 2j), lambda ct: (ct * (1 - 2j)).real, 2, 3, real=True
    ),
    "chirp": Pair(
        lambda x: x * np.exp(1j * x),
        lambda ct, x: (ct * np.conj((1 + 1j * x) * np.exp(1j * x))).real,
        lambda rng: (rng.normal(size=(2, 3)),),
    ),
    "parts": Pair(
        lambda z: (z.real, z.imag, z * z),
        lambda ct, z: (ct[0] + 1j * ct[1] + ct[2] * np.conj(2 * z)).astype(z.dtype),
        one,
    ),
    "scalar": Pair(
        lambda z: z * z, lambda ct, z: ct * np.conj(2 * z), lambda rng: (c(rng)[()],)
    ),
    "product": two(
        lambda z, v: z * v,
        lambda ct, z, v: (ct * np.conj(v), (ct * np.conj(z)).sum(0)),
        comp(2, 3), comp(3),
    ),
    "quotient": two(
        lambda z, v: z / v,
        lambda ct, z, v: (ct / np.conj(v), -ct * np.conj(z / v**2)),
        comp(2, 3), comp(2, 3),
    ),
    "matmul": two(np.matmul, lambda ct, a, b: (ct @ t(b), t(a) @ ct), comp(2, 3), comp(3, 4)),
    "vdot": two(np.vdot, lambda ct, a, b: (np.conj(ct) * b, ct * a), comp(4), comp(4)),
    "outer": two(
        np.outer, lambda ct, a, b: (ct @ np.conj(b), ct.T @ np.conj(a)), comp(3), comp(4)
    ),
    "scaled": two(
        lambda x, z: x * z,
        lambda ct, x, z: ((ct * np.conj(z)).real.sum(0), ct * x),
        real(3), comp(2, 3),
    ),
    "mixed matmul": two(
        np.matmul, lambda ct, a, b: ((ct @ t(b)).real, a.T @ ct), real(2, 3), comp(3, 4)
    ),
    "rotated": two(
        lambda z, x: z * np.exp(1j * x),
        lambda ct, z, x: (ct * np.exp(-1j * x), (ct * np.conj(1j * z * np.exp(1j * x))).real),
        comp(2, 3), real(2, 3),
    ),
    "polar": two(lambda r, x: r * np.exp(1j * x), polar_vjp, real(4), real(4)),
    "of parts": two(lambda x, y: x + 1j * y, lambda ct, x, y: (ct.real, ct.imag), real(4), real(4)),
    "solve": two(np.linalg.solve, solve_vjp, lambda rng: c(rng, 3, 3) + 3 * np.eye(3), comp(3, 2)),
    "inverse": Pair(
        np.linalg.inv,
        lambda ct, a: -t(np.linalg.inv(a)) @ ct @ t(np.linalg.inv(a)),
        lambda rng: (c(rng, 3, 3) + 3 * np.eye(3),),
    ),
    "determinant": Pair(
        np.linalg.det,
        lambda ct, a: ct * np.conj(np.linalg.det(a)) * t(np.linalg.inv(a)),
        lambda rng: (c(rng, 3, 3) + 2 * np.eye(3),),
    ),
    "rayleigh": two(rayleigh, rayleigh_vjp, comp(3, 3), comp(3)),
    "convolution": two(
        lambda x, k: np.fft.ifft(np.fft.fft(x) * np.fft.fft(k)), convolved_vjp, comp(5), comp(5)
    ),
    "attention": two(attention, attention_vjp, comp(2, 3), comp(4, 3)),
    "take": two(
        lambda z, index: z[..., index, :] if z.ndim > 2 else z[index],
        take_vjp, comp(4, 2), lambda rng: np.array([0, 2, 2]),
    ),
    "phases": Pair(
        lambda z: ((np.abs(np.fft.fft(z)) - 1.0) ** 2).sum(),
        lambda ct, z: ct * z.size * np.fft.ifft(
            2 * (np.abs(np.fft.fft(z)) - 1.0) * np.fft.fft(z) / np.abs(np.fft.fft(z))
        ),
        lambda rng: (c(rng, 6),),
    ),
}  # fmt: skip


def narrow(primals):
    """The same in float32 and complex64."""
    to = {"c": np.complex64, "f": np.float32}
    return tuple(p.astype(to.get(p.dtype.kind, p.dtype)) for p in map(np.asarray, primals))


def like(found, primals):
    """Gradients in the dtypes of their primals: NumPy's constants are wide."""
    return mapped(lambda g, p: np.asarray(g, p.dtype), found, primals)


def changed(change, only=None):
    """A VJP whose complex gradients are changed; of several primals `only` one's."""

    def one(g, p, k):
        kept = p.dtype.kind != "c" or only not in (None, k)
        return g if kept else np.asarray(change(np.asarray(g)), p.dtype)

    def of(vjp):
        return lambda ct, *primals: mapped(one, vjp(ct, *primals), primals, range(len(primals)))

    return of


def one_off(g):
    """The imaginary part of one element 1% of that element's size off."""
    g = g.astype(g.dtype)
    g.flat[-1] += 0.01j * abs(g.flat[-1])
    return g


def with_cotangent(change):
    """A VJP that gets another cotangent."""

    def of(vjp):
        return lambda ct, *primals: vjp(
            mapped(lambda c: np.asarray(change(c), c.dtype), ct), *primals
        )

    return of


WRONG = {
    "conjugate": changed(np.conj),
    "real part": changed(np.real),
    "imaginary part": changed(lambda g: 1j * g.imag),
    "turned": changed(lambda g: 1j * g),
    "Wirtinger": changed(lambda g: g / 2),
    "twice": changed(lambda g: 2 * g),
    "negated": changed(np.negative),
    "one element": changed(one_off),
    "first primal": changed(np.conj, only=0),
    "conjugate of ct": with_cotangent(np.conj),
    "real part of ct": with_cotangent(np.real),
}
"""What goes wrong with complex numbers, as changes of a right VJP; some change nothing at some."""
