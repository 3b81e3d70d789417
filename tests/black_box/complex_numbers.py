"""Complex primals and outputs, holomorphic or not; gradients are PyTorch's: dL/dRe + i·dL/dIm."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from .pair import BOTH, DOUBLE, Pair, at, drawn, each

KIND = "complex"


def z(name: str, *shape: int, scale: float = 1.0, offset: complex = 0.0):
    """Complex numbers of a name's own."""
    return offset + scale * (drawn(f"{name} re", *shape) + 1j * drawn(f"{name} im", *shape))


def mod_relu_vjp(ct, x):
    r = np.abs(x)
    g = ct - 0.3 * (ct / r - x * (ct.conj() * x).real / r**3)
    return np.where(r > 0.3, g, 0)


HOLOMORPHIC: dict[str, tuple[Callable[..., Any], Callable[..., Any]]] = {
    "exp": (np.exp, np.exp), "sin": (np.sin, np.cos), "cosh": (np.cosh, np.sinh),
    "z²": (lambda x: x * x, lambda x: 2 * x), "z³": (lambda x: x**3, lambda x: 3 * x * x),
    "1/z": (lambda x: 1 / x, lambda x: -1 / (x * x)), "log": (np.log, lambda x: 1 / x),
    "sqrt": (np.sqrt, lambda x: 0.5 / np.sqrt(x)), "tanh": (np.tanh, lambda x: 1 - np.tanh(x) ** 2),
    "möbius": (lambda x: (x - 2) / (2 * x + 1), lambda x: 5 / (2 * x + 1) ** 2),
    "iz + 1": (lambda x: 1j * x + 1, lambda x: 1j * np.ones_like(x)),
    "arctan": (np.arctan, lambda x: 1 / (1 + x * x)),
}  # fmt: skip
REAL: dict[str, tuple[Callable[..., Any], Callable[..., Any]]] = {
    # real or not holomorphic: forward, and the gradient from ct and z
    "abs": (np.abs, lambda ct, x: ct * x / np.abs(x)),
    "abs²": (lambda x: (x * x.conj()).real, lambda ct, x: 2 * ct * x),
    "real": (lambda x: x.real, lambda ct, x: ct + 0j * x),
    "imag": (lambda x: x.imag, lambda ct, x: 1j * ct + 0 * x),
    "angle": (np.angle, lambda ct, x: 1j * ct * x / np.abs(x) ** 2),
    "conj": (np.conj, lambda ct, x: np.conj(ct)),
    "z conj(z)": (lambda x: x * np.conj(x), lambda ct, x: x * (ct + ct.conj())),
    "z/|z|": (lambda x: x / np.abs(x), lambda ct,
        x: (ct - x * (ct.conj() * x).real / np.abs(x) ** 2) / np.abs(x)),
    "log |z|": (lambda x: np.log(np.abs(x)), lambda ct, x: ct * x / np.abs(x) ** 2),
    "mod relu": (lambda x: x * np.maximum(1 - 0.3 / np.abs(x), 0), mod_relu_vjp),
    "split tanh": (lambda x: np.tanh(x.real) + 1j * np.tanh(x.imag),
                   lambda ct,
                       x: ct.real / np.cosh(x.real) ** 2 + 1j * ct.imag / np.cosh(x.imag) ** 2),
    "energy": (lambda x: (np.abs(x) ** 2).sum(), lambda ct, x: 2 * ct * x),
    "phase loss": (lambda x: (1 - np.cos(np.angle(x))).sum(),
                   lambda ct, x: ct * np.sin(np.angle(x)) * 1j * x / np.abs(x) ** 2),
}  # fmt: skip


def h(a):
    """The conjugate transpose."""
    return a.conj().swapaxes(-1, -2)


def matmul_vjp(ct, a, b):
    return ct @ h(b), h(a) @ ct


def inv_vjp(ct, a):
    b = h(np.linalg.inv(a))
    return -b @ ct @ b


def solve_vjp(ct, a, b):
    g = np.linalg.solve(h(a), ct)
    return -np.outer(g, np.linalg.solve(a, b).conj()), g


def hermitian_values(a):
    return np.linalg.eigh((a + h(a)) / 2)[0]


def hermitian_values_vjp(ct, a):
    v = np.linalg.eigh((a + h(a)) / 2)[1]
    return (v * ct) @ h(v)


def quadratic(a, x):
    return (x.conj() @ a @ x).real


def quadratic_vjp(ct, a, x):
    return ct * np.outer(x, x.conj()), ct * (a @ x + h(a) @ x)


def mixed_matmul_vjp(ct, a, b):
    return (ct @ h(b)).real, a.T @ ct


def det_vjp(ct, a):
    return ct * np.conj(np.linalg.det(a)) * h(np.linalg.inv(a))


def slogdet_vjp(ct, a):
    return ct * h(np.linalg.inv(a))


def ifft_vjp(ct, x):
    return np.fft.fft(ct) / x.shape[-1]


def fft_vjp(ct, x):
    return np.fft.ifft(ct) * x.shape[-1]


def rfft_vjp(ct, x):
    n = x.shape[-1]
    full = np.zeros((*x.shape[:-1], n), dtype=ct.dtype)
    full[..., : n // 2 + 1] = ct
    return (np.fft.ifft(full) * n).real


def power_spectrum(x):
    return np.abs(np.fft.fft(x)) ** 2


def power_spectrum_vjp(ct, x):
    return (np.fft.ifft(2 * ct * np.fft.fft(x)) * x.shape[-1]).real


def rotate(x, t):
    return x * np.exp(1j * t)


def rotate_vjp(ct, x, t):
    e = np.exp(1j * t)
    return ct * e.conj(), (ct.conj() * 1j * x * e).real


def polar(r, t):
    return r * np.exp(1j * t)


def polar_vjp(ct, r, t):
    e = np.exp(1j * t)
    return (ct.conj() * e).real, (ct.conj() * 1j * r * e).real


def slogdet(a):
    return np.linalg.slogdet(a)[1]


def impedance(r, x, f):
    """|Z| of a series circuit."""
    w = 2j * np.pi * f
    return np.abs(r + w * x + 1 / (w * 0.3))


def impedance_vjp(ct, r, x, f):
    w = 2j * np.pi * f
    v = r + w * x + 1 / (w * 0.3)
    g = ct * v / np.abs(v)
    dw = g * np.conj(x - 1 / (w * w * 0.3))
    return g.real, (g * w.conj()).real, (dw * np.conj(2j * np.pi)).real


def mandelbrot(c):
    x = 0 * c
    for _ in range(5):
        x = x * x + c
    return x


def mandelbrot_vjp(ct, c):
    x, d = 0 * c, 0 * c
    for _ in range(5):
        x, d = x * x + c, 2 * x * d + 1
    return ct * d.conj()


def matmul(a, b):
    return a @ b


SEVERAL = {
    # forward, VJP, primals
    "matmul": (matmul, matmul_vjp, (z("ca", 2, 3), z("cb", 3, 2))),
    "matmul mixed": (matmul, mixed_matmul_vjp, (drawn("cma", 2, 3), z("cmb", 3, 2))),
    "det": (np.linalg.det, det_vjp, z("det", 3, 3)),
    "quadratic form": (quadratic, quadratic_vjp, (z("qa", 3, 3), z("qx", 3))),
    "fft": (np.fft.fft, fft_vjp, z("fft", 2, 6)),
    "ifft": (np.fft.ifft, ifft_vjp, z("ifft", 2, 6)),
    "rfft": (np.fft.rfft, rfft_vjp, drawn("rfft", 2, 8)),
    "power spectrum": (power_spectrum, power_spectrum_vjp, drawn("ps", 2, 8)),
    "rotate": (rotate, rotate_vjp, (z("rot", 4), drawn("angle", 4))),
    "polar": (polar, polar_vjp, (1 + drawn("r", 4) ** 2, drawn("phi", 4))),
    "impedance": (
        impedance,
        impedance_vjp,
        tuple(1 + drawn(name, 4) ** 2 for name in ("ir", "ix", "if")),
    ),
    "mandelbrot": (mandelbrot, mandelbrot_vjp, z("mandel", 4, scale=0.3)),
    "sum of squares": (lambda x: (x * x).sum(), lambda ct, x: 2 * ct * x.conj(), z("ss", 5)),
    "norm": (np.linalg.norm, lambda ct, x: ct * x / np.linalg.norm(x), z("cn", 5)),
}
CONDITIONED = {
    "inv": (np.linalg.inv, inv_vjp),
    "slogdet": (slogdet, slogdet_vjp),
    "hermitian eigenvalues": (hermitian_values, hermitian_values_vjp),
}
SIZES = {1e-9: ("abs", "angle", "z/|z|"), 1e-100: ("abs",), 1e100: ("abs",)}
"""Functions of REAL by the size of their primals."""


def pairs() -> Iterator[Pair]:
    """All of this file."""
    holomorphic = {
        name: (f, lambda ct, x, s=slope: ct * s(x).conj())
        for name, (f, slope) in HOLOMORPHIC.items()
    }
    for name, pair in holomorphic.items():
        yield from at(KIND, name, *pair, {"ordinary": z(name, 4, offset=0.3 + 0.2j)})
    for name, pair in REAL.items():
        yield from at(KIND, name, *pair, {"ordinary": z(name, 4, offset=1 + 0.5j)})
    for name, (f, vjp, primals) in SEVERAL.items():
        yield from at(KIND, name, f, vjp, {"ordinary": primals})
    for s, names in SIZES.items():
        known = {"dtypes": DOUBLE if s != 1e-9 else BOTH}
        some = {name: REAL[name] for name in names}
        some |= {name: holomorphic[name] for name in ("log", "sqrt")}
        for name, pair in some.items():
            yield from at(KIND, name, *pair, {f"{s:g}": z(f"{name} {s}", 3, scale=s)}, **known)
    for c in (1.0, 1e-3, 1e-6):
        a = z(f"inv {c}", 3, 3) @ np.diag([1, 1, c])
        known = {"dtypes": DOUBLE if c < 1 else BOTH, "loses": 1e-4}
        yield from each(KIND, {f"{c:g}": a}, CONDITIONED, **known)
        point = {f"{c:g}": (a, z("rhs", 3))}
        yield from at(KIND, "solve", np.linalg.solve, solve_vjp, point, **known)
    yield from at(
        KIND,
        "tanh",
        np.tanh,
        lambda ct, x: ct * (1 / np.cosh(x) ** 2).conj(),
        {"saturated": z("tanh far", 4, offset=15.0)},
        dtypes=DOUBLE,
    )
    yield from at(KIND, "fft", np.fft.fft, fft_vjp, {"offset": z("fft", 2, 6, offset=1e6)})
    yield from at(KIND, "norm", *SEVERAL["norm"][:2], {"tiny": z("cn", 5, scale=1e-12)})
