"""Complex primals and outputs, holomorphic or not; gradients are PyTorch's: dL/dRe + i·dL/dIm."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from .pair import DOUBLE, Pair, at, drawn

KIND = "complex"


def z(name: str, *shape: int, scale: float = 1.0, offset: complex = 0.0):
    """Complex numbers of a name's own."""
    return offset + scale * (drawn(f"{name} re", *shape) + 1j * drawn(f"{name} im", *shape))


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
    "mod relu": (lambda x: x * np.maximum(1 - 0.3 / np.abs(x), 0), None),
    "split tanh": (lambda x: np.tanh(x.real) + 1j * np.tanh(x.imag),
                   lambda ct,
                       x: ct.real / np.cosh(x.real) ** 2 + 1j * ct.imag / np.cosh(x.imag) ** 2),
    "energy": (lambda x: (np.abs(x) ** 2).sum(), lambda ct, x: 2 * ct * x),
    "phase loss": (lambda x: (1 - np.cos(np.angle(x))).sum(),
                   lambda ct, x: ct * np.sin(np.angle(x)) * 1j * x / np.abs(x) ** 2),
}  # fmt: skip


def mod_relu_vjp(ct, x):
    r = np.abs(x)
    g = ct - 0.3 * (ct / r - x * (ct.conj() * x).real / r**3)
    return np.where(r > 0.3, g, 0)


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


def pairs() -> Iterator[Pair]:
    """All of this file."""
    for name, (f, slope) in HOLOMORPHIC.items():
        x = z(name, 4, offset=0.3 + 0.2j)
        yield from at(KIND, name, f, lambda ct, x, s=slope: ct * s(x).conj(), {"ordinary": x})
    for name, (f, vjp) in REAL.items():
        x = z(name, 4, offset=1 + 0.5j)
        yield from at(KIND, name, f, vjp or mod_relu_vjp, {"ordinary": x})
    for s in (1e-9, 1e-100, 1e100):
        few = {"dtypes": DOUBLE if s != 1e-9 else ("float64", "float32")}
        for name in ("abs", "angle", "z/|z|") if s < 1 else ("abs", "log |z|"):
            if name in ("angle", "z/|z|", "log |z|") and s != 1e-9:
                continue
            f, vjp = REAL[name]
            yield from at(KIND, name, f, vjp, {f"{s:g}": z(f"{name} {s}", 3, scale=s)}, **few)
        f, slope = HOLOMORPHIC["log"]
        yield from at(
            KIND,
            "log",
            f,
            lambda ct, x: ct / x.conj(),
            {f"{s:g}": z(f"log {s}", 3, scale=s)},
            **few,
        )
        f, slope = HOLOMORPHIC["sqrt"]
        yield from at(
            KIND,
            "sqrt",
            f,
            lambda ct, x: ct * (0.5 / np.sqrt(x)).conj(),
            {f"{s:g}": z(f"sqrt {s}", 3, scale=s)},
            **few,
        )
    yield from at(
        KIND,
        "tanh",
        np.tanh,
        lambda ct, x: ct * (1 / np.cosh(x) ** 2).conj(),
        {"saturated": z("tanh far", 4, offset=15.0)},
        dtypes=DOUBLE,
    )
    yield from at(
        KIND, "matmul", lambda a, b: a @ b, matmul_vjp, {"ordinary": (z("ca", 2, 3), z("cb", 3, 2))}
    )
    yield from at(
        KIND,
        "matmul mixed",
        lambda a, b: a @ b,
        lambda ct, a, b: ((ct @ h(b)).real, a.T @ ct),
        {"ordinary": (drawn("cma", 2, 3), z("cmb", 3, 2))},
    )
    for c in (1.0, 1e-3, 1e-6):
        a = z(f"inv {c}", 3, 3) @ np.diag([1, 1, c])
        few = {"dtypes": DOUBLE if c < 1 else ("float64", "float32"), "loses": 1e-4}
        yield from at(KIND, "inv", np.linalg.inv, inv_vjp, {f"{c:g}": a}, **few)
        yield from at(
            KIND, "solve", np.linalg.solve, solve_vjp, {f"{c:g}": (a, z("rhs", 3))}, **few
        )
        yield from at(
            KIND, "slogdet", slogdet, lambda ct, a: ct * h(np.linalg.inv(a)), {f"{c:g}": a}, **few
        )
        yield from at(
            KIND,
            "hermitian eigenvalues",
            hermitian_values,
            hermitian_values_vjp,
            {f"{c:g}": a},
            **few,
        )
    yield from at(
        KIND,
        "det",
        np.linalg.det,
        lambda ct, a: ct * np.conj(np.linalg.det(a)) * h(np.linalg.inv(a)),
        {"ordinary": z("det", 3, 3)},
    )
    yield from at(
        KIND, "quadratic form", quadratic, quadratic_vjp, {"ordinary": (z("qa", 3, 3), z("qx", 3))}
    )
    yield from at(
        KIND,
        "fft",
        np.fft.fft,
        fft_vjp,
        {"ordinary": z("fft", 2, 6), "offset": z("fft", 2, 6, offset=1e6)},
    )
    yield from at(
        KIND,
        "ifft",
        np.fft.ifft,
        lambda ct, x: np.fft.fft(ct) / x.shape[-1],
        {"ordinary": z("ifft", 2, 6)},
    )
    yield from at(KIND, "rfft", np.fft.rfft, rfft_vjp, {"ordinary": drawn("rfft", 2, 8)})
    yield from at(
        KIND, "power spectrum", power_spectrum, power_spectrum_vjp, {"ordinary": drawn("ps", 2, 8)}
    )
    yield from at(
        KIND, "rotate", rotate, rotate_vjp, {"ordinary": (z("rot", 4), drawn("angle", 4))}
    )
    yield from at(
        KIND, "polar", polar, polar_vjp, {"ordinary": (1 + drawn("r", 4) ** 2, drawn("phi", 4))}
    )
    yield from at(
        KIND,
        "impedance",
        impedance,
        impedance_vjp,
        {"ordinary": tuple(1 + drawn(n, 4) ** 2 for n in ("ir", "ix", "if"))},
    )
    yield from at(
        KIND, "mandelbrot", mandelbrot, mandelbrot_vjp, {"ordinary": z("mandel", 4, scale=0.3)}
    )
    yield from at(
        KIND,
        "sum of squares",
        lambda x: (x * x).sum(),
        lambda ct, x: 2 * ct * x.conj(),
        {"ordinary": z("ss", 5)},
    )
    yield from at(
        KIND,
        "norm",
        np.linalg.norm,
        lambda ct, x: ct * x / np.linalg.norm(x),
        {"ordinary": z("cn", 5), "tiny": z("cn", 5, scale=1e-12)},
    )
