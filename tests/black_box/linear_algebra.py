"""Linear algebra, well and ill conditioned: numpy.linalg's functions and what is built of them."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from .pair import BOTH, DOUBLE, Pair, at, drawn, each

KIND = "linear algebra"
CONDITIONS = (1e1, 1e4, 1e8, 1e11)


def orthogonal(name: str, n: int):
    """An orthogonal matrix of a name's own."""
    return np.linalg.qr(drawn(name, n, n))[0]


def spectrum(condition: float, n: int):
    """Distinct numbers from 1 down to 1/condition."""
    return np.geomspace(1.0, 1.0 / condition, n)


def general(condition: float, n: int = 4, m: int = 4, name: str = ""):
    """A matrix of that condition."""
    k = min(n, m)
    u, v = orthogonal(f"u {condition} {n} {name}", n), orthogonal(f"v {condition} {m} {name}", m)
    return (u[:, :k] * spectrum(condition, k)) @ v[:, :k].T


def definite(condition: float, n: int = 4, name: str = ""):
    """A symmetric positive definite one."""
    u = orthogonal(f"d {condition} {n} {name}", n)
    a = (u * spectrum(condition, n)) @ u.T
    return (a + a.T) / 2


def hilbert(n: int):
    return 1.0 / (np.arange(1, n + 1)[:, None] + np.arange(n))


def inv_vjp(ct, a):
    b = np.swapaxes(np.linalg.inv(a), -1, -2)
    return -b @ ct @ b


def solve_vjp(ct, a, b):
    g = np.linalg.solve(a.T, ct)
    return -np.outer(g, np.linalg.solve(a, b)), g


def det_vjp(ct, a):
    return ct * np.linalg.det(a) * np.linalg.inv(a).T


def slogdet(a):
    return np.linalg.slogdet(a)[1]


def slogdet_vjp(ct, a):
    return ct * np.linalg.inv(a).T


def symmetric_cholesky(a):
    return np.linalg.cholesky((a + a.T) / 2)


def symmetric_cholesky_vjp(ct, a):
    c = np.linalg.cholesky((a + a.T) / 2)
    p = np.tril(c.T @ ct)
    p = p - np.diag(np.diag(p)) / 2
    i = np.linalg.inv(c)
    s = i.T @ p @ i
    return (s + s.T) / 2


def eigenvalues(a):
    return np.linalg.eigh((a + a.T) / 2)[0]


def eigenvalues_vjp(ct, a):
    v = np.linalg.eigh((a + a.T) / 2)[1]
    return (v * ct) @ v.T


def projectors(a):
    """Eigenvectors without their signs: v_i v_iᵀ weighted."""
    v = np.linalg.eigh((a + a.T) / 2)[1]
    return v**2


def projectors_vjp(ct, a):
    w, v = np.linalg.eigh((a + a.T) / 2)
    g = 2 * v * ct
    gap = w[None, :] - w[:, None]
    f = np.where(np.eye(len(w), dtype=bool), 0, 1 / np.where(gap == 0, 1, gap))
    s = v @ (f * (v.T @ g)) @ v.T
    return (s + s.T) / 2


def singular_values(a):
    return np.linalg.svd(a, compute_uv=False)


def singular_values_vjp(ct, a):
    u, _, v = np.linalg.svd(a, full_matrices=False)
    return (u * ct) @ v


def nuclear(a):
    return np.linalg.norm(a, "nuc")


def spectral(a):
    return np.linalg.norm(a, 2)


def spectral_vjp(ct, a):
    u, _, v = np.linalg.svd(a)
    return ct * np.outer(u[:, 0], v[0])


def nuclear_vjp(ct, a):
    u, _, v = np.linalg.svd(a, full_matrices=False)
    return ct * (u @ v)


def frobenius_vjp(ct, a):
    return ct * a / np.linalg.norm(a)


def qr_vjp(cts, a):
    q, r = np.linalg.qr(a)
    gq, gr = cts
    m = r @ gr.T - gq.T @ q
    m = np.tril(m) + np.tril(m, -1).T
    return np.linalg.solve(r, (gq + q @ m).T).T


def qr(a):
    q, r = np.linalg.qr(a)
    return q, r


def pinv_vjp(ct, a):
    p = np.linalg.pinv(a)
    n, m = a.shape
    return (
        -p.T @ ct @ p.T
        + (np.eye(n) - a @ p) @ ct.T @ p @ p.T
        + p.T @ p @ ct.T @ (np.eye(m) - p @ a)
    )


def expm_scaled(a):
    """exp of a matrix: Taylor after halving ten times."""
    b = a / 1024
    out = term = np.eye(len(a))
    for k in range(1, 12):
        term = term @ b / k
        out = out + term
    for _ in range(10):
        out = out @ out
    return out


def expm_scaled_vjp(ct, a):
    n = len(a)
    block = np.zeros((2 * n, 2 * n))
    block[:n, :n] = block[n:, n:] = a.T
    block[:n, n:] = ct
    return expm_scaled(block)[:n, n:]


def lstsq(a, b):
    return np.linalg.solve(a.T @ a, a.T @ b)


def lstsq_vjp(ct, a, b):
    g = np.linalg.solve(a.T @ a, ct)
    x = lstsq(a, b)
    return np.outer(b - a @ x, g) - np.outer(a @ g, x), a @ g


def quadratic(a, x):
    """xᵀ A⁻¹ x."""
    return x @ np.linalg.solve(a, x)


def quadratic_vjp(ct, a, x):
    u, v = np.linalg.solve(a, x), np.linalg.solve(a.T, x)
    return -ct * np.outer(v, u), ct * (u + v)


def gaussian_nll(a, x):
    """−log of a normal density: its covariance's logdet, and a quadratic form."""
    c = np.linalg.cholesky((a + a.T) / 2)
    z = np.linalg.solve(c, x)
    return np.log(np.diag(c)).sum() + 0.5 * z @ z


def gaussian_nll_vjp(ct, a, x):
    i = np.linalg.inv((a + a.T) / 2)
    v = i @ x
    return ct * 0.5 * (i - np.outer(v, v)), ct * v


def power3(a):
    return np.linalg.matrix_power(a, 3)


def power3_vjp(ct, a):
    b = a.T
    return ct @ b @ b + b @ ct @ b + b @ b @ ct


def trace_inverse(a):
    return np.trace(np.linalg.inv(a))


def trace_inverse_vjp(ct, a):
    i = np.linalg.inv(a).T
    return -ct * i @ i


def condition_number(a):
    s = np.linalg.svd(a, compute_uv=False)
    return s[0] / s[-1]


def condition_number_vjp(ct, a):
    u, s, v = np.linalg.svd(a)
    return ct * (np.outer(u[:, 0], v[0]) / s[-1] - s[0] / s[-1] ** 2 * np.outer(u[:, -1], v[-1]))


def triangular(a, b):
    return np.linalg.solve(np.tril(a), b)


def triangular_vjp(ct, a, b):
    t = np.tril(a)
    g = np.linalg.solve(t.T, ct)
    return -np.tril(np.outer(g, np.linalg.solve(t, b))), g


def gram_logdet(a):
    return np.linalg.slogdet(a.T @ a)[1]


def gram_logdet_vjp(ct, a):
    return 2 * ct * a @ np.linalg.inv(a.T @ a)


def mahalanobis(a, x, y):
    d = x - y
    return np.sqrt(np.einsum("ni,ij,nj->n", d, np.linalg.inv(a), d))


def mahalanobis_vjp(ct, a, x, y):
    i, d = np.linalg.inv(a), x - y
    w = ct / (2 * mahalanobis(a, x, y))
    u, v = d @ i.T, d @ i
    gx = w[:, None] * (u + v)
    return -np.einsum("n,ni,nj->ij", w, v, u), gx, -gx


def sylvester(a, b, c):
    """X with A X + X B = C."""
    n, m = c.shape
    k = np.kron(a, np.eye(m)) + np.kron(np.eye(n), b.T)
    return np.linalg.solve(k, c.reshape(-1)).reshape(n, m)


def sylvester_vjp(ct, a, b, c):
    x, g = sylvester(a, b, c), sylvester(a.T, b.T, ct)
    return -g @ x.T, -x.T @ g, g


def whitened(a, x):
    return np.linalg.solve(np.linalg.cholesky((a + a.T) / 2), x)


def whitened_vjp(ct, a, x):
    c = np.linalg.cholesky((a + a.T) / 2)
    g = np.linalg.solve(c.T, ct)
    return symmetric_cholesky_vjp(-np.tril(np.outer(g, np.linalg.solve(c, x))), a), g


SQUARE = {
    "inv": (np.linalg.inv, inv_vjp),
    "det": (np.linalg.det, det_vjp),
    "slogdet": (slogdet, slogdet_vjp),
    "singular values": (singular_values, singular_values_vjp),
    "nuclear norm": (nuclear, nuclear_vjp),
    "trace of the inverse": (trace_inverse, trace_inverse_vjp),
    "condition number": (condition_number, condition_number_vjp),
    "qr": (qr, qr_vjp),
}
DEFINITE = {
    "cholesky": (symmetric_cholesky, symmetric_cholesky_vjp),
    "eigenvalues": (eigenvalues, eigenvalues_vjp),
    "eigenvectors": (projectors, projectors_vjp),
    "logdet": (slogdet, slogdet_vjp),
    "inv definite": (np.linalg.inv, inv_vjp),
}
WITH_VECTOR = {
    "solve": (np.linalg.solve, solve_vjp, general),
    "quadratic form": (quadratic, quadratic_vjp, definite),
    "gaussian nll": (gaussian_nll, gaussian_nll_vjp, definite),
    "triangular solve": (triangular, triangular_vjp, lambda c: general(c) + 3 * np.eye(4) / c),
    "whitened": (whitened, whitened_vjp, definite),
}
FROBENIUS = np.linalg.norm, frobenius_vjp


def of_square(names: str, *some: str):
    """Entries of SQUARE with a word behind their names."""
    return {f"{name} {names}": SQUARE[name] for name in some}


def pairs() -> Iterator[Pair]:
    """All of this file. What is lost grows with the condition; float32 where it bears it."""
    for c in CONDITIONS:
        known = {"dtypes": BOTH if c < 1e3 else DOUBLE}
        known |= {"loses": max(1e-8, min(1.0, c * c * 1e-15))}
        w, root = f"{c:g}", np.sqrt(c)
        for name, (f, vjp) in SQUARE.items():
            yield from at(KIND, name, f, vjp, {w: general(c, name=name)}, **known)
        for name, (f, vjp) in DEFINITE.items():
            yield from at(KIND, name, f, vjp, {w: definite(c, name=name)}, **known)
        for name, (f, vjp, made) in WITH_VECTOR.items():
            yield from at(KIND, name, f, vjp, {w: (made(c), drawn(f"b {c} {name}", 4))}, **known)
        yield from at(KIND, "pinv", np.linalg.pinv, pinv_vjp, {w: general(c, 5, 3)}, **known)
        point = {w: (general(root, 6, 3), drawn(f"lstsq {c}", 6))}
        yield from at(KIND, "lstsq", lstsq, lstsq_vjp, point, **known)
        point = {w: general(root, 6, 3, "gram")}
        yield from at(KIND, "gram logdet", gram_logdet, gram_logdet_vjp, point, **known)
        point = {w: (definite(c, 3), drawn(f"m {c}", 4, 3), drawn(f"n {c}", 4, 3))}
        yield from at(KIND, "mahalanobis", mahalanobis, mahalanobis_vjp, point, **known)
    for n in (3, 5, 7):
        known = {"dtypes": DOUBLE, "loses": {3: 1e-8, 5: 1e-4, 7: 1.0}[n]}
        some = of_square("hilbert", "inv", "det", "slogdet")
        some |= {"cholesky hilbert": DEFINITE["cholesky"]}
        yield from each(KIND, {f"{n}": hilbert(n)}, some, **known)
        point = {f"{n}": (hilbert(n), drawn(f"hilbert {n}", n))}
        yield from at(KIND, "solve hilbert", np.linalg.solve, solve_vjp, point, **known)
    for gap in (1e-2, 1e-5, 1e-8):
        u = orthogonal(f"gap {gap}", 4)
        a = (u * np.array([1.0, 1.0 + gap, 2.0, 3.5])) @ u.T
        a, w = (a + a.T) / 2, f"{gap:g}"
        known = {"dtypes": DOUBLE, "loses": max(1e-8, 1e-14 / gap)}
        turned = {w: a @ orthogonal("other", 4)}
        yield from at(KIND, "eigenvalues close", *DEFINITE["eigenvalues"], {w: a}, **known)
        yield from each(KIND, turned, of_square("close", "singular values"), **known)
        known |= {"loses": max(1e-8, 1e-13 / gap)}
        yield from at(KIND, "eigenvectors close", *DEFINITE["eigenvectors"], {w: a}, **known)
    for s in (1e-2, 1.0, 5.0):
        w = f"{s:g}"
        point = {w: s * drawn(f"e {s}", 3, 3)}
        yield from at(KIND, "expm", expm_scaled, expm_scaled_vjp, point, dtypes=DOUBLE)
        yield from at(KIND, "matrix power", power3, power3_vjp, {w: s * drawn(f"p {s}", 3, 3)})
        yield from at(KIND, "frobenius", *FROBENIUS, {w: s * drawn(f"f {s}", 3, 4)})
        a = 3 * np.eye(3) + s / 9 * drawn(f"a {s}", 3, 3)
        b = 2 * np.eye(2) + s / 9 * drawn(f"b {s}", 2, 2)
        point = {w: (a, b, drawn(f"c {s}", 3, 2))}
        yield from at(KIND, "sylvester", sylvester, sylvester_vjp, point)
    for s in (1e-140, 1e-60, 1e-9, 1e60):
        some = of_square("scaled", "inv", "slogdet", "singular values")
        some |= {"frobenius scaled": FROBENIUS, "spectral norm scaled": (spectral, spectral_vjp)}
        yield from each(KIND, {f"{s:g}": s * general(30.0, 3, 3, "scale")}, some, dtypes=DOUBLE)
    stack = np.stack([general(10.0**k, 3, 3, f"batch {k}") for k in (1, 3, 5)])
    yield from each(KIND, {"3": stack}, {"batched inv": SQUARE["inv"]}, dtypes=DOUBLE)
