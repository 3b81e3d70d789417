"""The scalar functions behind the ufuncs of NumPy and scipy.special, by name, from mpmath."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache, partial
from typing import Any, Final

import numpy as np

from gradcheck.numerics.highprecision.numbers import Numbers

Scalar = Callable[..., Any]

HUGE: Final = 1 << 40
"""Arguments of exp beyond which its value is 0 or infinite in any dtype."""

SPECIAL_COST: Final = 10
"""Numbers that one value of a special function counts as, at few digits."""
MAX_CACHED: Final = 1 << 14
"""Values of each special function in the cache."""

COMPARISONS: Final = frozenset({
    "less", "less_equal", "greater", "greater_equal", "equal", "not_equal", "isfinite", "isinf",
    "isnan", "signbit", "logical_and", "logical_or", "logical_xor", "logical_not",
})  # fmt: skip
"""Ufuncs whose results are ordinary booleans."""

NATIVE: Final = frozenset({
    "add", "subtract", "multiply", "negative", "positive", "square",
    "less", "less_equal", "greater", "greater_equal", "equal", "not_equal",
})  # fmt: skip
"""Ufuncs whose own loop over objects calls the numbers' operators."""

ELEMENTWISE: Final = {
    "jax": frozenset({
        "abs", "acos", "acosh", "add", "add_any", "asin", "asinh", "atan", "atan2", "atanh",
        "bessel_i0e", "bessel_i1e", "cbrt", "ceil", "conj", "cos", "cosh", "digamma", "div", "eq",
        "eq_to", "erf", "erf_inv", "erfc", "exp", "exp2", "expm1", "floor", "ge", "gt", "igamma",
        "igammac", "is_finite", "le", "le_to", "lgamma", "log", "log1p", "logistic", "lt", "lt_to",
        "max", "min", "mul", "ne", "neg", "polygamma", "pow", "regularized_incomplete_beta", "rem",
        "sign", "sin", "sinh", "sqrt", "square", "sub", "tan", "tanh", "zeta",
    }),
    "math": frozenset({
        "acos", "acosh", "asin", "asinh", "atan", "atan2", "atanh", "cbrt", "ceil", "copysign",
        "cos", "cosh", "degrees", "erf", "erfc", "exp", "exp2", "expm1", "fabs", "floor", "fmod",
        "gamma", "hypot", "isfinite", "isinf", "isnan", "lgamma", "log10", "log1p", "log2", "pow",
        "radians", "sin", "sinh", "sqrt", "tan", "tanh", "trunc",
    }),
    "torch": frozenset({
        "_conj", "_conj_physical", "abs", "acos", "acosh", "asin", "asinh", "atan", "atan2",
        "atanh", "ceil", "conj_physical", "copysign", "cos", "cosh", "deg2rad", "digamma", "eq",
        "erf", "erfc", "erfinv", "exp", "exp2", "expm1", "floor", "floor_divide", "fmax", "fmin",
        "fmod", "ge", "gt", "hypot", "i0", "igamma", "igammac", "isfinite", "isinf", "isnan", "le",
        "lgamma", "log", "log10", "log1p", "log2", "logaddexp", "logaddexp2", "logical_and",
        "logical_not", "logical_or", "logical_xor", "lt", "maximum", "minimum", "mul", "ne", "neg",
        "rad2deg", "reciprocal", "remainder", "sgn", "sigmoid", "sign", "signbit", "sin", "sinh",
        "special_bessel_j0", "special_bessel_j1", "special_bessel_y0", "special_bessel_y1",
        "special_entr", "special_erfcx", "special_i0e", "special_i1", "special_i1e",
        "special_log_ndtr", "special_modified_bessel_k0", "special_modified_bessel_k1",
        "special_ndtri", "special_zeta", "sqrt", "square", "tan", "tanh", "trunc", "xlogy",
    }),
}  # fmt: skip
"""Per framework its functions of single elements, and of pairs, that NumPy or scipy.special has."""

ALIASES: Final = {
    "_conj": "conjugate", "_conj_physical": "conjugate", "abs": "absolute", "acos": "arccos",
    "acosh": "arccosh", "add_any": "add", "asin": "arcsin", "asinh": "arcsinh", "atan": "arctan",
    "atan2": "arctan2", "atanh": "arctanh", "bessel_i0e": "i0e", "bessel_i1e": "i1e",
    "conj": "conjugate", "conj_physical": "conjugate", "digamma": "psi", "div": "divide",
    "eq": "equal", "eq_to": "equal", "erf_inv": "erfinv", "ge": "greater_equal", "gt": "greater",
    "igamma": "gammainc", "igammac": "gammaincc", "is_finite": "isfinite", "le": "less_equal",
    "le_to": "less_equal", "lgamma": "gammaln", "logistic": "expit", "lt": "less", "lt_to": "less",
    "max": "maximum", "min": "minimum", "mul": "multiply", "ne": "not_equal", "neg": "negative",
    "pow": "power", "regularized_incomplete_beta": "betainc", "rem": "fmod", "sgn": "sign",
    "sigmoid": "expit", "special_bessel_j0": "j0", "special_bessel_j1": "j1",
    "special_bessel_y0": "y0", "special_bessel_y1": "y1", "special_entr": "entr",
    "special_erfcx": "erfcx", "special_i0e": "i0e", "special_i1": "i1", "special_i1e": "i1e",
    "special_log_ndtr": "log_ndtr", "special_modified_bessel_k0": "k0",
    "special_modified_bessel_k1": "k1", "special_ndtri": "ndtri", "special_zeta": "zeta",
    "sub": "subtract",
}  # fmt: skip
"""The name in NumPy or scipy.special of a function that JAX, PyTorch or `math` name otherwise."""

SPACING: Final = frozenset(["spacing", "nextafter"])
"""Ufuncs of a dtype's grid; big numbers have none."""


def table(numbers: Numbers) -> dict[str, Scalar]:
    """Every ufunc known, by name."""
    c = numbers.context
    real, nan, inf, zero, one = c.mpf, c.mpf("nan"), c.inf, c.zero, c.one

    def is_complex(x: Any) -> bool:
        return type(x) is c.mpc

    def domain(function: Scalar) -> Scalar:
        """NaN where mpmath leaves the real line, or meets a pole."""

        def inside(*args: Any) -> Any:
            for x in args:
                if x != x:
                    return nan
            try:
                value = function(*args)
            except (ValueError, ZeroDivisionError, OverflowError):
                return nan
            if type(value) is c.mpc and not any(type(x) is c.mpc for x in args):
                return value.real if value.imag == 0 else nan
            return numbers.number(value)

        return inside

    def divide(x: Any, y: Any) -> Any:
        try:
            return x / y
        except ZeroDivisionError:
            return x * inf if x == x else nan  # 0 · ∞ is NaN

    def power(x: Any, y: Any) -> Any:
        if x == 0 and not is_complex(y) and y < 0:
            return inf
        if y == 2:
            return x * x
        return c.power(x, y)

    def exp(x: Any) -> Any:
        size = x.real if is_complex(x) else x
        if size > HUGE:
            return inf
        return zero if size < -HUGE else c.exp(x)

    def log(x: Any) -> Any:
        return -inf if x == 0 else c.log(x)

    def log1p(x: Any) -> Any:
        return -inf if x == -1 else c.log1p(x)

    def half_even(x: Any) -> Any:
        return x if c.isinf(x) else real(c.nint(x))

    def floor(x: Any) -> Any:
        return x if c.isinf(x) else real(c.floor(x))

    def ceil(x: Any) -> Any:
        return x if c.isinf(x) else real(c.ceil(x))

    def trunc(x: Any) -> Any:
        return floor(x) if x >= 0 else ceil(x)

    def sign(x: Any) -> Any:
        if is_complex(x):
            return x / abs(x) if x else x
        return zero if x == 0 else one if x > 0 else -one

    def floor_divide(x: Any, y: Any) -> Any:
        return floor(divide(x, y))

    def remainder(x: Any, y: Any) -> Any:
        return nan if y == 0 else x - y * floor(x / y)

    def fmod(x: Any, y: Any) -> Any:
        return nan if y == 0 else x - y * trunc(x / y)

    def larger(x: Any, y: Any) -> Any:
        return x if x != x or x >= y else y  # NaN wins, as in NumPy

    def smaller(x: Any, y: Any) -> Any:
        return x if x != x or x <= y else y

    def logaddexp(x: Any, y: Any) -> Any:
        top, low = (x, y) if x >= y else (y, x)
        return top if c.isinf(top) else top + c.log1p(exp(low - top))

    def logaddexp2(x: Any, y: Any) -> Any:
        return logaddexp(x * c.ln2, y * c.ln2) / c.ln2

    def cbrt(x: Any) -> Any:
        return -c.cbrt(-x) if x < 0 else c.cbrt(x)

    def hypot(x: Any, y: Any) -> Any:
        return c.sqrt(x * x + y * y)

    def expit(x: Any) -> Any:
        return 1 / (1 + exp(-x)) if x >= 0 else (lambda e: e / (1 + e))(exp(x))

    def log_expit(x: Any) -> Any:
        return -c.log1p(exp(-x)) if x >= 0 else x - c.log1p(exp(x))

    def ndtr(x: Any) -> Any:
        return c.erfc(-x / c.sqrt(2)) / 2

    def log_ndtr(x: Any) -> Any:
        return c.log1p(-c.erfc(x / c.sqrt(2)) / 2) if x > 0 else c.log(ndtr(x))

    def times(first: Any, second: Scalar) -> Any:
        return zero if first == 0 else first * second()

    def xlogy(x: Any, y: Any) -> Any:
        return nan if y != y else times(x, lambda: log(y))

    def rel_entr(x: Any, y: Any) -> Any:
        if x > 0 and y > 0:
            return x * c.log(x / y)
        return zero if x == 0 and y >= 0 else inf

    def kl_div(x: Any, y: Any) -> Any:
        value = rel_entr(x, y)
        return value if c.isinf(value) else value - x + y

    def entr(x: Any) -> Any:
        return -x * c.log(x) if x > 0 else zero if x == 0 else -inf

    def huber(delta: Any, r: Any) -> Any:
        r = abs(r)
        return r * r / 2 if r <= delta else delta * (r - delta / 2)

    def pseudo_huber(delta: Any, r: Any) -> Any:
        return delta * delta * (c.sqrt(1 + (r / delta) ** 2) - 1)

    def betaln(a: Any, b: Any) -> Any:
        return c.loggamma(a) + c.loggamma(b) - c.loggamma(a + b)

    def gammaln(x: Any) -> Any:
        return c.loggamma(x) if x > 0 else c.log(abs(c.gamma(x)))

    def modf(x: Any) -> tuple[Any, Any]:
        return x - trunc(x), trunc(x)

    def frexp(x: Any) -> tuple[Any, Any]:
        fraction, exponent = c.frexp(x)
        return real(fraction), real(exponent)

    def conjugate(x: Any) -> Any:
        return c.conj(x) if is_complex(x) else x

    def reg_gamma(a: Any, x: Any) -> Any:
        return c.gammainc(a, 0, x, regularized=True)

    def reg_gamma_upper(a: Any, x: Any) -> Any:
        return c.gammainc(a, x, regularized=True)

    def betainc(a: Any, b: Any, x: Any) -> Any:
        return c.betainc(a, b, 0, x, regularized=True)

    def ive(order: Any, x: Any) -> Any:
        return c.besseli(order, x) * c.exp(-abs(x))

    def kve(order: Any, x: Any) -> Any:
        return c.besselk(order, x) * exp(x)

    def student(v: Any, t: Any) -> Any:
        tail = betainc(v / 2, c.mpf(0.5), v / (v + t * t)) / 2
        return 1 - tail if t > 0 else tail

    found: dict[str, Scalar] = {
        "divide": divide, "true_divide": divide, "floor_divide": floor_divide,
        "remainder": remainder, "mod": remainder, "fmod": fmod,
        "divmod": lambda x, y: (floor_divide(x, y), remainder(x, y)),
        "power": power, "float_power": power,
        "absolute": abs, "fabs": abs, "sign": sign, "conjugate": conjugate,
        "copysign": lambda x, y: -abs(x) if y < 0 else abs(x),
        "heaviside": lambda x, y: y if x == 0 else zero if x < 0 else one,
        "rint": half_even, "floor": floor, "ceil": ceil, "trunc": trunc,
        "exp": exp, "exp2": lambda x: exp(x * c.ln2), "exp10": lambda x: exp(x * c.ln10),
        "expm1": lambda x: inf if x > HUGE else -one if x < -HUGE else c.expm1(x),
        "log": log, "log1p": log1p, "log2": lambda x: log(x) / c.ln2,
        "log10": lambda x: log(x) / c.ln10,
        "sqrt": c.sqrt, "cbrt": cbrt, "reciprocal": lambda x: divide(one, x), "hypot": hypot,
        "sin": c.sin, "cos": c.cos, "tan": c.tan, "arcsin": c.asin, "arccos": c.acos,
        "arctan": c.atan, "arctan2": c.atan2, "sinh": c.sinh, "cosh": c.cosh, "tanh": c.tanh,
        "arcsinh": c.asinh, "arccosh": c.acosh, "arctanh": c.atanh,
        "degrees": lambda x: x * 180 / c.pi, "rad2deg": lambda x: x * 180 / c.pi,
        "radians": lambda x: x * c.pi / 180, "deg2rad": lambda x: x * c.pi / 180,
        "maximum": larger, "minimum": smaller,
        "fmax": lambda x, y: y if x != x else x if y != y or x >= y else y,
        "fmin": lambda x, y: y if x != x else x if y != y or x <= y else y,
        "logaddexp": logaddexp, "logaddexp2": logaddexp2,
        "ldexp": lambda x, n: x * real(2) ** n, "modf": modf, "frexp": frexp,
        "isfinite": lambda x: bool(c.isfinite(x)), "isinf": lambda x: bool(c.isinf(x)),
        "isnan": lambda x: bool(x != x), "signbit": lambda x: bool(x < 0),
        "logical_and": lambda x, y: bool(x) and bool(y),
        "logical_or": lambda x, y: bool(x) or bool(y),
        "logical_xor": lambda x, y: bool(x) != bool(y), "logical_not": lambda x: not x,
        # scipy.special
        "erf": c.erf, "erfc": c.erfc, "erfinv": c.erfinv, "erfcinv": lambda x: c.erfinv(1 - x),
        "erfcx": lambda x: exp(x * x) * c.erfc(x), "erfi": c.erfi,
        "dawsn": lambda x: c.sqrt(c.pi) / 2 * exp(-x * x) * c.erfi(x),
        "gammaln": gammaln, "_gammaln": gammaln, "loggamma": c.loggamma,
        "gamma": c.gamma, "rgamma": c.rgamma, "psi": lambda x: c.psi(0, x),
        "polygamma": lambda n, x: c.psi(numbers.whole(n), x),
        "zeta": c.zeta, "_zeta": c.zeta, "_riemann_zeta": c.zeta,
        "poch": c.rf, "beta": c.beta, "betaln": betaln, "binom": c.binomial,
        "expit": expit, "log_expit": log_expit, "logit": lambda x: log(divide(x, 1 - x)),
        "ndtr": ndtr, "log_ndtr": log_ndtr, "ndtri": lambda p: c.sqrt(2) * c.erfinv(2 * p - 1),
        "xlogy": xlogy, "xlog1py": lambda x, y: times(x, lambda: log1p(y)),
        "entr": entr, "rel_entr": rel_entr, "kl_div": kl_div,
        "huber": huber, "pseudo_huber": pseudo_huber,
        "boxcox": lambda x, p: log(x) if p == 0 else c.expm1(p * log(x)) / p,
        "boxcox1p": lambda x, p: log1p(x) if p == 0 else c.expm1(p * log1p(x)) / p,
        "inv_boxcox": lambda y, p: exp(y) if p == 0 else exp(log1p(p * y) / p),
        "gammainc": reg_gamma, "gammaincc": reg_gamma_upper, "betainc": betainc,
        "j0": partial(c.besselj, 0), "j1": partial(c.besselj, 1),
        "y0": partial(c.bessely, 0), "y1": partial(c.bessely, 1),
        "i0": partial(c.besseli, 0), "i1": partial(c.besseli, 1),
        "k0": partial(c.besselk, 0), "k1": partial(c.besselk, 1),
        "i0e": partial(ive, 0), "i1e": partial(ive, 1),
        "k0e": partial(kve, 0), "k1e": partial(kve, 1),
        "jv": c.besselj, "yv": c.bessely, "iv": c.besseli, "kv": c.besselk,
        "jn": c.besselj, "kn": c.besselk,
        "ive": ive, "kve": kve,
        "spherical_jn": lambda n, x: c.sqrt(c.pi / (2 * x)) * c.besselj(n + c.mpf(0.5), x),
        "exp1": c.e1, "expi": c.ei, "expn": c.expint, "spence": lambda z: c.polylog(2, 1 - z),
        "ellipk": c.ellipk, "ellipe": c.ellipe, "ellipkm1": lambda p: c.ellipk(1 - p),
        "ellipkinc": c.ellipf, "ellipeinc": c.ellipe,
        "hyp0f1": c.hyp0f1, "hyp1f1": c.hyp1f1, "hyp2f1": c.hyp2f1, "hyperu": c.hyperu,
        "lambertw": c.lambertw, "_lambertw": lambda z, k, _tol: c.lambertw(z, numbers.whole(k)),
        "sici": lambda x: (c.si(x), c.ci(x)), "shichi": lambda x: (c.shi(x), c.chi(x)),
        "fresnel": lambda x: (c.fresnels(x), c.fresnelc(x)),
        "airy": lambda x: (
            c.airyai(x), c.airyai(x, derivative=1), c.airybi(x), c.airybi(x, derivative=1)
        ),
        "struve": c.struveh, "kelvin": c.ber,
        "cosm1": lambda x: -2 * c.sin(x / 2) ** 2, "sinpi": c.sinpi, "cospi": c.cospi,
        "exprel": lambda x: one if x == 0 else c.expm1(x) / x,
        "sindg": lambda x: c.sin(x * c.pi / 180), "cosdg": lambda x: c.cos(x * c.pi / 180),
        "sinc": c.sincpi, "agm": c.agm, "owens_t": lambda h, a: c.quad(
            lambda t: c.exp(-h * h * (1 + t * t) / 2) / (1 + t * t), [0, a]
        ) / (2 * c.pi),
        "eval_legendre": c.legendre, "eval_chebyt": c.chebyt, "eval_chebyu": c.chebyu,
        "eval_hermite": c.hermite, "eval_laguerre": lambda n, x: c.laguerre(n, 0, x),
        "eval_genlaguerre": c.laguerre, "eval_gegenbauer": c.gegenbauer,
        "eval_jacobi": c.jacobi, "lpmv": lambda m, n, x: c.legenp(n, m, x),
        "chdtr": lambda v, x: reg_gamma(v / 2, x / 2),
        "chdtrc": lambda v, x: reg_gamma_upper(v / 2, x / 2),
        "gdtr": lambda a, b, x: reg_gamma(b, a * x),
        "stdtr": student,
    }  # fmt: skip

    def cached(function: Scalar) -> Scalar:
        """A function of SciPy's with a cache: it costs many times as much as NumPy's."""

        @lru_cache(maxsize=MAX_CACHED)
        def at(prec: int, *args: Any) -> Any:
            numbers.spend(SPECIAL_COST * (prec // 250 + 1))
            return function(*args)

        return lambda *args: at(c.prec, *args)

    exact = {"divide", "true_divide", "maximum", "minimum", "fmax", "fmin", *COMPARISONS}
    return {
        name: scalar
        if name in exact or name in _SEVERAL
        else domain(scalar if hasattr(np, name) else cached(scalar))
        for name, scalar in found.items()
    }


_SEVERAL: Final = frozenset(("divmod", "modf", "frexp", "sici", "shichi", "fresnel", "airy"))
"""Ufuncs of more than one result."""
