"""scipy.special, each derivative from a table of formulas."""

from __future__ import annotations

from collections.abc import Iterator

import mpmath
import numpy as np
from scipy import special

from .pair import BOTH, DOUBLE, Pair, at, elementwise, uniform

ROOT_PI = np.sqrt(np.pi)
NORMAL = np.sqrt(2 * np.pi)


def _span(name: str, *spans: tuple[float, float]) -> dict[str, object]:
    return {f"{a:g}…{b:g}": uniform(f"{name} {a} {b}", a, b, 5) for a, b in spans}


def erfcx_slope(x):
    return 2 * x * special.erfcx(x) - 2 / ROOT_PI


def log_ndtr_slope(x):
    return np.exp(-0.5 * x * x - special.log_ndtr(x)) / NORMAL


def ndtri_slope(p):
    return NORMAL * np.exp(0.5 * special.ndtri(p) ** 2)


def lambert_slope(x):
    w = special.lambertw(x).real
    return np.exp(-w) / (1 + w)


def lambert(x):
    return special.lambertw(x).real


def yv_slope(x):
    return 0.5 * (special.yv(1, x) - special.yv(3, x))


ONE = {
    # forward, its slope, the same in mpmath, where
    "erf": (special.erf, lambda x: 2 / ROOT_PI * np.exp(-x * x), mpmath.erf,
            ((-1, 1), (3, 5), (-1e-9, 1e-9))),
    "erfc": (special.erfc, lambda x: -2 / ROOT_PI * np.exp(-x * x), mpmath.erfc,
             ((-1, 1), (4, 8), (20, 25))),
    "erfcx": (special.erfcx, erfcx_slope, lambda x: mpmath.exp(x * x) * mpmath.erfc(x),
              ((-2, 1), (2, 5))),
    "erfinv": (special.erfinv, lambda y: ROOT_PI / 2 * np.exp(special.erfinv(y) ** 2),
               mpmath.erfinv, ((-0.9, 0.9), (0.999, 0.99999))),
    "expit": (special.expit, lambda x: special.expit(x) * special.expit(-x),
              lambda x: 1 / (1 + mpmath.exp(-x)), ((-3, 3), (-40, -30))),
    "logit": (special.logit, lambda p: 1 / (p * (1 - p)), lambda p: mpmath.log(p / (1 - p)),
              ((0.1, 0.9), (1e-9, 1e-8), (1e-200, 1e-199))),
    "log_expit": (special.log_expit, lambda x: special.expit(-x),
                  lambda x: -mpmath.log(1 + mpmath.exp(-x)), ((-3, 3), (20, 30))),
    "gamma": (special.gamma, lambda x: special.gamma(x) * special.psi(x), mpmath.gamma,
              ((0.5, 4), (-2.7, -2.3), (20, 30))),
    "gammaln": (special.gammaln, special.psi, mpmath.loggamma, ((0.5, 4), (1e3, 1e5), (1e-8,
        1e-7))),
    "digamma": (special.psi, lambda x: special.polygamma(1, x), lambda x: mpmath.psi(0, x),
                ((0.5, 4), (1e3, 1e4), (-1.8, -1.2))),
    "trigamma": (lambda x: special.polygamma(1, x), lambda x: special.polygamma(2, x),
                 lambda x: mpmath.psi(1, x), ((0.5, 4), (30, 90))),
    "rgamma": (special.rgamma, lambda x: -special.psi(x) * special.rgamma(x), mpmath.rgamma,
               ((0.5, 4),)),
    "j0": (special.j0, lambda x: -special.j1(x), lambda x: mpmath.besselj(0, x),
           ((0.1, 4), (90, 100))),
    "j1": (special.j1, lambda x: special.j0(x) - special.j1(x) / x,
           lambda x: mpmath.besselj(1, x), ((0.1, 4), (900, 1000))),
    "y0": (special.y0, lambda x: -special.y1(x), lambda x: mpmath.bessely(0, x),
           ((0.1, 4), (1e-8, 1e-7))),
    "yv 2": (lambda x: special.yv(2, x), yv_slope, lambda x: mpmath.bessely(2, x), ((1, 5),)),
    "jv 2.5": (lambda x: special.jv(2.5, x), lambda x: special.jvp(2.5, x),
               lambda x: mpmath.besselj(2.5, x), ((1, 5),)),
    "i0": (special.i0, special.i1, lambda x: mpmath.besseli(0, x), ((-2, 2), (20, 30))),
    "i0e": (special.i0e, lambda x: special.i1e(x) - np.sign(x) * special.i0e(x),
            lambda x: mpmath.besseli(0, x) * mpmath.exp(-abs(x)), ((0.1, 2), (500, 900))),
    "i1": (special.i1, lambda x: special.i0(x) - special.i1(x) / x,
           lambda x: mpmath.besseli(1, x), ((0.5, 3),)),
    "k0": (special.k0, lambda x: -special.k1(x), lambda x: mpmath.besselk(0, x),
           ((0.1, 4), (20, 40))),
    "k1e": (special.k1e, lambda x: special.k1e(x) * (1 - 1 / x) - special.k0e(x),
            lambda x: mpmath.besselk(1, x) * mpmath.exp(x), ((0.5, 4),)),
    "ndtr": (special.ndtr, lambda x: np.exp(-0.5 * x * x) / NORMAL, mpmath.ncdf,
             ((-2, 2), (-9, -6), (5, 6))),
    "log_ndtr": (special.log_ndtr, log_ndtr_slope,
                 lambda x: mpmath.log(mpmath.erfc(-x / mpmath.sqrt(2)) / 2), ((-2, 2), (-30, -20))),
    "ndtri": (special.ndtri, ndtri_slope, lambda p: mpmath.sqrt(2) * mpmath.erfinv(2 * p - 1),
              ((0.1, 0.9), (1e-6, 1e-5))),
    "exp1": (special.exp1, lambda x: -np.exp(-x) / x, mpmath.e1, ((0.1, 4), (20, 40))),
    "expi": (special.expi, lambda x: np.exp(x) / x, mpmath.ei, ((0.1, 4), (-3, -1))),
    "sici sine": (lambda x: special.sici(x)[0], lambda x: np.sinc(x / np.pi), mpmath.si,
                  ((0.5, 9),)),
    "shichi": (lambda x: special.shichi(x)[0], lambda x: np.sinh(x) / x, mpmath.shi, ((0.5, 5),)),
    "dawsn": (special.dawsn, lambda x: 1 - 2 * x * special.dawsn(x),
              lambda x: mpmath.sqrt(mpmath.pi) / 2 * mpmath.exp(-x * x) * mpmath.erfi(x),
              ((-2, 2), (8, 9))),
    "fresnel": (lambda x: special.fresnel(x)[0], lambda x: np.sin(np.pi * x * x / 2),
                mpmath.fresnels, ((0.2, 3),)),
    "airy": (lambda x: special.airy(x)[0], lambda x: special.airy(x)[1], mpmath.airyai,
             ((-3, 2), (5, 9))),
    "ellipk": (special.ellipk,
               lambda m: (special.ellipe(m) / (1 - m) - special.ellipk(m)) / (2 * m),
               mpmath.ellipk, ((0.1, 0.9), (0.9999, 0.999999))),
    "ellipe": (special.ellipe, lambda m: (special.ellipe(m) - special.ellipk(m)) / (2 * m),
               mpmath.ellipe, ((0.1, 0.9),)),
    "lambertw": (lambert, lambert_slope, lambda x: mpmath.re(mpmath.lambertw(x)),
                 ((0.1, 4), (-0.3678, -0.36))),
    "spence": (special.spence, lambda x: np.log(x) / (1 - x), lambda x: mpmath.polylog(2, 1 - x),
               ((0.2, 1.8),)),
    "entr": (special.entr, lambda x: -np.log(x) - 1, lambda x: -x * mpmath.log(x),
             ((0.1, 2), (1e-12, 1e-11))),
    "sindg": (special.sindg, lambda x: np.pi / 180 * special.cosdg(x),
              lambda x: mpmath.sin(mpmath.pi / 180 * x), ((10, 80),)),
    "exprel": (special.exprel, lambda x: (np.exp(x) * (x - 1) + 1) / x**2,
               lambda x: mpmath.expm1(x) / x, ((1, 3),)),
    "hyp1f1": (lambda x: special.hyp1f1(0.5, 1.5, x), lambda x: special.hyp1f1(1.5, 2.5, x) / 3,
               lambda x: mpmath.hyp1f1(0.5, 1.5, x), ((-4, 2),)),
    "hyp2f1": (lambda x: special.hyp2f1(0.5, 0.7, 1.5, x),
               lambda x: 0.35 / 1.5 * special.hyp2f1(1.5, 1.7, 2.5, x),
               lambda x: mpmath.hyp2f1(0.5, 0.7, 1.5, x), ((-0.8, 0.8),)),
    "struve": (lambda x: special.struve(0, x), lambda x: 2 / np.pi - special.struve(1, x),
               lambda x: mpmath.struveh(0, x), ((0.5, 5),)),
    "legendre 5": (lambda x: special.eval_legendre(5, x),
                   lambda x: 5 * (x * special.eval_legendre(5, x) - special.eval_legendre(4, x))
                   / (x * x - 1), lambda x: mpmath.legendre(5, x), ((-0.9, 0.9),)),
    "chebyt 7": (lambda x: special.eval_chebyt(7, x), lambda x: 7 * special.eval_chebyu(6, x),
                 lambda x: mpmath.chebyt(7, x), ((-0.9, 0.9),)),
    "hermite 4": (lambda x: special.eval_hermite(4, x), lambda x: 8 * special.eval_hermite(3, x),
                  lambda x: mpmath.hermite(4, x), ((-2, 2),)),
    "spherical_jn 2": (lambda x: special.spherical_jn(2, x),
                       lambda x: special.spherical_jn(2, x, derivative=True),
                       lambda x: mpmath.sqrt(mpmath.pi / (2 * x)) * mpmath.besselj(2.5, x),
                       ((0.5, 6),)),
    "cosm1": (special.cosm1, lambda x: -np.sin(x), lambda x: mpmath.cos(x) - 1,
              ((-2, 2), (1e-8, 1e-7))),
    "huber": (lambda x: special.huber(1.3, x), lambda x: np.clip(x, -1.3, 1.3),
              lambda x: x * x / 2 if abs(x) <= 1.3 else 1.3 * (abs(x) - 0.65), ((-3, 3),)),
    "pseudo_huber": (lambda x: special.pseudo_huber(1e-9, x),
                     lambda x: 1e-9 * (x / 1e-9) / np.sqrt(1 + (x / 1e-9) ** 2),
                     lambda x: 1e-9 * (mpmath.hypot(1e-9, x) - 1e-9),
                     ((-3e-9, 3e-9),)),
}  # fmt: skip


def betaln_vjp(ct, a, b):
    both = special.psi(a + b)
    return ct * (special.psi(a) - both), ct * (special.psi(b) - both)


def beta_vjp(ct, a, b):
    v = special.beta(a, b)
    return betaln_vjp(ct * v, a, b)


def xlogy_vjp(ct, x, y):
    return ct * np.log(y), ct * x / y


def rel_entr_vjp(ct, x, y):
    return ct * (np.log(x / y) + 1), -ct * x / y


def kl_div_vjp(ct, x, y):
    return ct * np.log(x / y), ct * (1 - x / y)


def betainc_slope(a, b, x):
    return np.exp((a - 1) * np.log(x) + (b - 1) * np.log1p(-x) - special.betaln(a, b))


def gammainc_slope(a, x):
    return np.exp((a - 1) * np.log(x) - x - special.gammaln(a))


def xlog1py_vjp(ct, x, y):
    return ct * np.log1p(y), ct * x / (1 + y)


def boxcox_vjp(ct, x, lam):
    v = special.boxcox(x, lam)
    return ct * x ** (lam - 1), ct * (x**lam * np.log(x) - v) / lam


TWO = {
    "betaln": (special.betaln, betaln_vjp, lambda a, b: mpmath.log(mpmath.beta(a, b)), (0.5, 4),
        (0.5, 4)),
    "beta": (special.beta, beta_vjp, mpmath.beta, (0.5, 4), (0.5, 4)),
    "xlogy": (special.xlogy, xlogy_vjp, lambda x, y: x * mpmath.log(y), (1e-9, 1e-8), (0.5, 4)),
    "xlog1py": (special.xlog1py, xlog1py_vjp, lambda x, y: x * mpmath.log1p(y), (0.1, 4), (1e-9,
        1e-8)),
    "rel_entr": (special.rel_entr, rel_entr_vjp, lambda x, y: x * mpmath.log(x / y), (0.1, 1),
        (0.1, 1)),
    "kl_div": (special.kl_div, kl_div_vjp, lambda x, y: x * mpmath.log(x / y) - x + y, (0.1, 0.2),
        (0.5, 1)),
    "boxcox": (special.boxcox, boxcox_vjp, lambda x, p: (x**p - 1) / p, (0.5, 4), (0.3, 2)),
}  # fmt: skip


def _behind(f):
    """A function of mpmath, per element."""

    def of(*arrays):
        return np.frompyfunc(f, len(arrays), 1)(*arrays)

    return of


def scipy_softmax_vjp(ct, x):
    y = special.softmax(x, axis=-1)
    return y * (ct - (ct * y).sum(-1, keepdims=True))


def betainc(a, b):
    """Forward, its slope and mpmath's function of x."""
    return (
        lambda x: special.betainc(a, b, x),
        lambda x: betainc_slope(a, b, x),
        _behind(lambda x: mpmath.betainc(a, b, 0, x, regularized=True)),
    )


def gammainc(a):
    return (
        lambda x: special.gammainc(a, x),
        lambda x: gammainc_slope(a, x),
        _behind(lambda x: mpmath.gammainc(a, 0, x, regularized=True)),
    )


def gammaincc(a):
    return (
        lambda x: special.gammaincc(a, x),
        lambda x: -gammainc_slope(a, x),
        _behind(lambda x: mpmath.gammainc(a, x, regularized=True)),
    )


def pairs() -> Iterator[Pair]:
    """All of this file; float32 where no span is narrower than what it resolves."""
    kind = "special"
    for name, (f, slope, exact, spans) in ONE.items():
        for where, x in _span(name, *spans).items():
            known = {"dtypes": DOUBLE if np.abs(x).min() < 1e-7 else BOTH}
            yield from elementwise(kind, name, f, slope, {where: x}, behind=_behind(exact), **known)
    for name, (f, vjp, exact, a, b) in TWO.items():
        x, y = uniform(f"{name} a", *a, 4), uniform(f"{name} b", *b, 4)
        yield from at(kind, name, f, vjp, {"pairs": (x, y)}, behind=_behind(exact))
    middle = [
        (f"betainc {a} {b}", *betainc(a, b), uniform(f"betainc {a}", 0.3, 0.5, 5))
        for a, b in ((2.5, 1.5), (40.0, 60.0))
    ]
    for a in (0.5, 3.0, 50.0):
        for made in (gammainc, gammaincc):
            name = f"{made.__name__} {a}"
            middle.append((name, *made(a), a * uniform(name, 0.8, 1.3, 5)))
    for name, f, slope, exact, x in middle:
        yield from elementwise(kind, name, f, slope, {"middle": x}, behind=exact)
    yield from at(
        kind,
        "logsumexp",
        lambda x: special.logsumexp(x, axis=-1),
        lambda ct, x: ct[:, None] * special.softmax(x, axis=-1),
        {"near": uniform("lse", -2, 2, 3, 4), "far": uniform("lse", -2, 2, 3, 4) + 700},
    )
    yield from at(
        kind,
        "softmax",
        lambda x: special.softmax(x, axis=-1),
        scipy_softmax_vjp,
        {"near": uniform("sm", -2, 2, 3, 4), "far": uniform("sm", -2, 2, 3, 4) - 700},
    )
    yield from at(
        kind,
        "log_softmax",
        lambda x: special.log_softmax(x, axis=-1),
        lambda ct, x: ct - special.softmax(x, axis=-1) * ct.sum(-1, keepdims=True),
        {"near": uniform("lsm", -2, 2, 3, 4), "spread": uniform("lsm", -20, 20, 3, 4)},
        behind=lambda x: x - special.logsumexp(x, axis=-1)[:, None],
    )
