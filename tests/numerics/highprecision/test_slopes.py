"""Slopes against formulas written again, in mpmath's numbers of 60 digits."""

import mpmath
import numpy as np
import pytest

from gradcheck.numerics.highprecision.array import elementwise
from gradcheck.numerics.highprecision.forward import BigForward, NoArbiter

BUDGET = 10**6
DIGITS = 1e-12
X = np.array([0.3, 1.7, 0.9])
SIGNED = np.array([-0.8, 0.35, 1.9, -2.2])
A = np.array([[1.3, 0.2], [-0.4, 0.9]])
MP = mpmath.mp.clone()
MP.dps = 60
one = MP.mpf(1)


def special(name, *first):
    return lambda x: elementwise(name, *first, x)


def scaled(x, by):
    return [MP.mpf(float(v)) * by for v in x]


# ── one number at a time: NumPy's or SciPy's function, and mpmath's ──────────────────────────

ELEMENTWISE = {
    "exp": (np.exp, SIGNED, MP.exp),
    "expm1": (np.expm1, SIGNED, lambda x: MP.exp(x) - 1),
    "exp2": (np.exp2, SIGNED, lambda x: 2**x),
    "log": (np.log, X, MP.ln),
    "log1p": (np.log1p, X, lambda x: MP.ln(1 + x)),
    "log2": (np.log2, X, lambda x: MP.log(x, 2)),
    "log10": (np.log10, X, lambda x: MP.log(x, 10)),
    "sqrt": (np.sqrt, X, lambda x: x ** (one / 2)),
    "cbrt": (np.cbrt, X, lambda x: x ** (one / 3)),
    "sin": (np.sin, SIGNED, lambda x: MP.im(MP.expj(x))),
    "cos": (np.cos, SIGNED, lambda x: MP.re(MP.expj(x))),
    "tan": (np.tan, SIGNED, lambda x: MP.sin(x) / MP.cos(x)),
    "arcsin": (lambda x: np.arcsin(x / 3), SIGNED, lambda x: MP.asin(x / 3)),
    "arctan": (np.arctan, SIGNED, MP.atan),
    "tanh": (np.tanh, SIGNED, lambda x: (MP.exp(2 * x) - 1) / (MP.exp(2 * x) + 1)),
    "arcsinh": (np.arcsinh, SIGNED, lambda x: MP.ln(x + MP.sqrt(x * x + 1))),
    "arccosh": (lambda x: np.arccosh(1 + x), X, lambda x: MP.acosh(1 + x)),
    "arctanh": (lambda x: np.arctanh(x / 4), SIGNED, lambda x: MP.ln((4 + x) / (4 - x)) / 2),
    "power": (lambda x: x**2.5, X, lambda x: MP.exp(MP.mpf(2.5) * MP.ln(x))),
    "power_of_itself": (lambda x: x**x, X, lambda x: MP.exp(x * MP.ln(x))),
    "reciprocal": (np.reciprocal, SIGNED, lambda x: x**-1),
    "sinc": (np.sinc, SIGNED, lambda x: MP.sin(MP.pi * x) / (MP.pi * x)),
    "mod": (lambda x: np.mod(x, 1.0) ** 2, SIGNED, lambda x: (x - MP.floor(x)) ** 2),
    "i0": (
        np.i0, SIGNED,
        lambda x: MP.nsum(lambda k: (x * x / 4) ** k / MP.fac(k) ** 2, [0, MP.inf])
    ),
    "erf": (special("erf"), SIGNED, lambda x: 1 - MP.erfc(x)),
    "erfinv": (special("erfinv"), X / 2, MP.erfinv),
    "erfcx": (special("erfcx"), X, lambda x: MP.exp(x * x) * (1 - MP.erf(x))),
    "gammaln": (special("gammaln"), X, lambda x: MP.ln(MP.gamma(x))),
    "gamma": (special("gamma"), SIGNED, lambda x: MP.gamma(x + 1) / x),
    "psi": (special("psi"), X, lambda x: MP.psi(0, x + 1) - 1 / x),
    "polygamma": (special("polygamma", 1), X, lambda x: MP.zeta(2, x)),
    "beta": (special("beta", 2.5), X, lambda x: MP.gamma(2.5) * MP.gamma(x) / MP.gamma(x + 2.5)),
    "expit": (special("expit"), SIGNED, lambda x: (1 + MP.tanh(x / 2)) / 2),
    "log_expit": (special("log_expit"), SIGNED, lambda x: -MP.ln(1 + MP.exp(-x))),
    "logit": (special("logit"), X / 2, lambda x: 2 * MP.atanh(2 * x - 1)),
    "ndtr": (special("ndtr"), SIGNED, lambda x: (1 + MP.erf(x / MP.sqrt(2))) / 2),
    "log_ndtr": (special("log_ndtr"), SIGNED * 9, lambda x: MP.ln(MP.erfc(-x / MP.sqrt(2)) / 2)),
    "j0": (special("j0"), SIGNED, lambda x: MP.hyp0f1(1, -x * x / 4)),
    "j1": (special("j1"), SIGNED, lambda x: x / 2 * MP.hyp0f1(2, -x * x / 4)),
    "i1e": (special("i1e"), X, lambda x: x / 2 * MP.hyp0f1(2, x * x / 4) * MP.exp(-x)),
    "k0": (special("k0"), X[1:2], lambda x: MP.besselk(0, x)),
    "xlogy": (special("xlogy", 2.0), X, lambda x: 2 * MP.ln(x)),
    "entr": (special("entr"), X, lambda x: -x * MP.ln(x)),
    "kl_div": (special("kl_div", 0.4), X, lambda x: MP.mpf(0.4) * MP.ln(MP.mpf(0.4) / x) + x),
    "gammainc": (
        special("gammainc", 1.5), X,
        lambda x: 1 - MP.gammainc(1.5, x) / MP.gamma(MP.mpf(1.5)),
    ),
    "tanh_steep": (
        lambda x: np.tanh(1e7 * (x - 0.3)), X[:1],
        lambda x: MP.tanh(10**7 * (x - MP.mpf(0.3)))
    ),
    "saturated": (np.tanh, np.array([40.0]), MP.tanh),
    "absorbed": (lambda x: (1e3 + np.exp(x)) - 1e3, -20 * X, MP.exp),
    "far_below_one": (lambda x: 1 + np.exp(x), np.array([-200.0, -650.0]), MP.exp),
    "tiny": (lambda x: 1 + x, np.array([1e-300]), lambda x: 1 + x),
    "tiny_beside_one": (
        lambda x: np.hypot(x, 1e-200), np.array([3e-200]),
        lambda x: MP.sqrt(x * x + MP.mpf(1e-200) ** 2)
    ),
    "huge": (lambda x: np.sqrt(x * x + 1), np.array([1e150]), lambda x: MP.sqrt(x * x + 1)),
    "large_beside_small": (
        lambda x: np.exp(-(x**2)), np.array([1.0, 3e6, 0.5]),
        lambda x: MP.exp(-x * x)
    ),
}  # fmt: skip


@pytest.mark.slow(keep=17, rest=30)
@pytest.mark.parametrize("name", ELEMENTWISE)
def test_slopes_of_functions_of_one_number(name):
    forward, x, formula = ELEMENTWISE[name]
    slopes = BigForward(forward, [x], {}, BUDGET).slopes([np.ones_like(x)])
    with MP.workdps(700 if np.max(np.abs(np.log10(np.abs(x)))) > 30 else 60):
        want = [float(derivative(formula, MP.mpf(float(v)))) for v in x]
    np.testing.assert_allclose(slopes.ahead, want, rtol=DIGITS, atol=0)
    np.testing.assert_array_equal(slopes.ahead, slopes.behind)


def derivative(formula, x):
    h = abs(x) * MP.mpf(10) ** -25
    with MP.extradps(60):
        far = (formula(x + 2 * h) - formula(x - 2 * h)) / (4 * h)
        near = (formula(x + h) - formula(x - h)) / (2 * h)
    return (4 * near - far) / 3


# ── several numbers: closed forms ────────────────────────────────────────────────────────────


def eigenvalues(a):
    (p, q), (_, s) = a
    middle, away = (p + s) / 2, MP.sqrt(((p - s) / 2) ** 2 + q * q)
    return [middle - away, middle + away]


def times(a, b):
    return [
        [sum(x * y for x, y in zip(r, c, strict=True)) for c in zip(*b, strict=True)] for r in a
    ]


def transposed(a):
    return [list(r) for r in zip(*a, strict=True)]


def inverse(a):
    (p, q), (r, s) = a
    d = p * s - q * r
    return [[s / d, -q / d], [-r / d, p / d]]


def triangular(a):
    (p, q), (_, s) = times(a, transposed(a))
    return [[MP.sqrt(p), 0], [q / MP.sqrt(p), MP.sqrt(s - q * q / p)]]


def orthogonal(a):
    (p, q), (r, s) = a
    size = MP.sqrt(p * p + r * r)
    return [[-size, -(p * q + r * s) / size], [0, (p * s - q * r) / size]]


def singular(a):
    return [MP.sqrt(v) for v in reversed(eigenvalues(times(transposed(a), a)))]


def transform(x):
    n = len(x)
    return [sum(v * MP.expjpi(MP.mpf(-2 * j * k) / n) for k, v in enumerate(x)) for j in range(n)]


def softmax(x):
    return [1 / sum(MP.exp(w - v) for w in x) for v in x]


def symmetric(a):
    return a + a.T


MATRICES = {
    "inv": (np.linalg.inv, A, inverse),
    "solve": (
        lambda a: np.linalg.solve(a, [1.0, 2.0]), A,
        lambda a: [r[0] + 2 * r[1] for r in inverse(a)]
    ),
    "det": (np.linalg.det, A, lambda a: a[0][0] * a[1][1] - a[0][1] * a[1][0]),
    "slogdet": (
        lambda a: np.linalg.slogdet(a)[1], A,
        lambda a: MP.ln(a[0][0] * a[1][1] - a[0][1] * a[1][0])
    ),
    "cholesky": (lambda a: np.linalg.cholesky(a @ a.T), A, triangular),
    "qr": (lambda a: np.linalg.qr(a)[1], A, orthogonal),
    "eigvalsh": (
        lambda a: np.linalg.eigvalsh(a + a.T), A,
        lambda a: eigenvalues([[2 * a[0][0], a[0][1] + a[1][0]], [0, 2 * a[1][1]]])
    ),
    "svdvals": (lambda a: np.linalg.svd(a, compute_uv=False), A, singular),
    "cond": (np.linalg.cond, A, lambda a: singular(a)[0] / singular(a)[1]),
    "nuclear": (lambda a: np.linalg.norm(a, "nuc"), A, lambda a: sum(singular(a))),
    "spectral": (lambda a: np.linalg.norm(a, 2), A, lambda a: singular(a)[0]),
    "frobenius": (np.linalg.norm, A, lambda a: MP.sqrt(sum(v * v for r in a for v in r))),
    "largest_row": (lambda a: np.linalg.norm(a, np.inf), A, lambda a: abs(a[0][0]) + abs(a[0][1])),
    "pinv": (
        lambda a: np.linalg.pinv(a[:, :1]), A,
        lambda a: [v / (a[0][0] ** 2 + a[1][0] ** 2) for v in (a[0][0], a[1][0])]
    ),
    "matrix_power": (lambda a: np.linalg.matrix_power(a, 3), A, lambda a: times(a, times(a, a))),
    "matmul": (lambda a: a @ a.T, A, lambda a: times(a, transposed(a))),
    "einsum": (lambda a: np.einsum("ij,kj->ik", a, a), A, lambda a: times(a, transposed(a))),
    "kron": (
        lambda a: np.kron(a, [1.0, 2.0]), A,
        lambda a: [[u * v for u in r for v in (1, 2)] for r in a]
    ),
    "fft": (lambda x: np.fft.fft(x).real, SIGNED, lambda x: [v.real for v in transform(x)]),
    "power_spectrum": (
        lambda x: np.abs(np.fft.fft(x)) ** 2, X,
        lambda x: [abs(v) ** 2 for v in transform(x)]
    ),
    "irfft": (
        lambda x: np.fft.irfft(np.fft.rfft(x) ** 2, 4), SIGNED,
        lambda x: [sum(x[j] * x[(k - j) % 4] for j in range(4)) for k in range(4)]
    ),
    "softmax": (lambda x: np.exp(x) / np.exp(x).sum(), SIGNED, softmax),
    "cold_softmax": (
        lambda x: (lambda e: e / e.sum())(np.exp((x - x.max()) * 1e8)), np.array([1.0, 1.0 - 3e-8]),
        lambda x: softmax([v * 10**8 for v in x])
    ),
    "lse": (lambda x: np.log(np.sum(np.exp(x))), SIGNED, lambda x: MP.ln(sum(map(MP.exp, x)))),
    "lse_margin": (
        lambda x: np.logaddexp(x[0], x[1]), np.array([0.0, 40.0]),
        lambda x: x[1] + MP.ln(1 + MP.exp(x[0] - x[1]))
    ),
    "sort": (np.sort, SIGNED, sorted),
    "median": (np.median, SIGNED, lambda x: sum(sorted(x)[1:3]) / 2),
    "quantile": (lambda x: np.quantile(x, 0.25), X, lambda x: (sorted(x)[0] + sorted(x)[1]) / 2),
    "std": (np.std, SIGNED, lambda x: MP.sqrt(sum(v * v for v in x) / 4 - (sum(x) / 4) ** 2)),
    "cumprod": (np.cumprod, X, lambda x: [x[0], x[0] * x[1], x[0] * x[1] * x[2]]),
    "norm_p": (
        lambda x: np.linalg.norm(x, 3), SIGNED,
        lambda x: sum(abs(v) ** 3 for v in x) ** (one / 3)
    ),
    "interp": (
        lambda x: np.interp(x, [-3, 0, 3], [0, 1, 4]), SIGNED,
        lambda x: [1 + v / 3 if v < 0 else 1 + v for v in x]
    ),
    "gradient": (
        lambda x: np.gradient(x, 0.5), X,
        lambda x: [2 * (x[1] - x[0]), x[2] - x[0], 2 * (x[2] - x[1])]
    ),
    "modulus": (
        lambda x: np.abs(x[:2] + 1j * x[2:]), SIGNED,
        lambda x: [MP.sqrt(x[0] ** 2 + x[2] ** 2), MP.sqrt(x[1] ** 2 + x[3] ** 2)]
    ),
}  # fmt: skip


@pytest.mark.slow(keep=4)
@pytest.mark.parametrize("name", MATRICES)
def test_slopes_of_functions_of_several_numbers(name):
    forward, x, formula = MATRICES[name]
    d = np.cos(1.0 + np.arange(x.size)).reshape(x.shape)
    slopes = BigForward(forward, [x], {}, BUDGET).slopes([d])

    def along(t):
        moved = [
            MP.mpf(float(v)) + t * MP.mpf(float(w)) for v, w in zip(x.flat, d.flat, strict=True)
        ]
        moved = [moved[:2], moved[2:]] if x.ndim == 2 else moved
        found = formula(moved)
        rows = found if isinstance(found, list) else [found]
        return [v for r in rows for v in (r if isinstance(r, list) else [r])]

    h = MP.mpf(10) ** -40
    with MP.extradps(60):
        pairs = zip(along(h), along(-h), strict=True)
        want = [float((high - low) / (2 * h)) for high, low in pairs]
    np.testing.assert_allclose(slopes.ahead, want, rtol=DIGITS, atol=1e-30)


# ── where there is no derivative ─────────────────────────────────────────────────────────────

KINKS = {
    "abs": (np.abs, [0.0], [-1.0], [1.0]),
    "relu": (lambda x: np.maximum(x, 0), [0.0, 1.0], [0.0, 1.0], [1.0, 1.0]),
    "relu_where": (lambda x: np.where(x > 0, x, 0), [0.0], [0.0], [1.0]),
    "relu_mask": (lambda x: x * (x > 0), [0.0], [0.0], [1.0]),
    "leaky": (lambda x: np.where(x >= 0, x, 0.25 * x), [0.0], [0.25], [1.0]),
    "clip": (lambda x: np.clip(x, -1, 1), [1.0, -1.0], [1.0, 0.0], [0.0, 1.0]),
    "tied_max": (lambda x: np.max(x * [1.0, 2.0]), [2.0, 1.0], [1.0], [2.0]),
    "tied_sort": (lambda x: np.sort(x * [1.0, 2.0]), [2.0, 1.0], [2.0, 1.0], [1.0, 2.0]),
    "norm": (np.linalg.norm, [0.0, 0.0], [-np.sqrt(2)], [np.sqrt(2)]),
    "kink_far_below": (lambda x: np.abs(x - 1e-200), [1e-200], [-1.0], [1.0]),
    "vertical": (np.cbrt, [0.0], [np.nan], [np.nan]),
    "jump": (lambda x: np.where(x >= 1, x, 0.0), [1.0], [np.nan], [1.0]),
    "flat": (lambda x: x * x, [0.0], [0.0], [0.0]),
    "stationary": (lambda x: (x - 1) ** 3 + 2, [1.0], [0.0], [0.0]),
    "half_power": (lambda x: np.abs(x) ** 1.5, [0.0], [0.0], [0.0]),
    "floor": (np.floor, [1.5], [0.0], [0.0]),
    "rounded": (lambda x: np.round(x, 2), [1.234], [0.0], [0.0]),
    "sum_of_softmax": (lambda x: (np.exp(x) / np.exp(x).sum()).sum(), [1.0, 2.0], [0.0], [0.0]),
    "over_itself": (lambda x: x / x, [0.3, 7.0], [0.0, 0.0], [0.0, 0.0]),
}


@pytest.mark.slow(keep=3)
@pytest.mark.parametrize("name", KINKS)
def test_slopes_of_both_sides(name):
    forward, x, behind, ahead = KINKS[name]
    x = np.array(x)
    slopes = BigForward(forward, [x], {}, BUDGET).slopes([np.ones_like(x)])
    np.testing.assert_allclose(slopes.behind, behind, rtol=DIGITS, atol=1e-30)
    np.testing.assert_allclose(slopes.ahead, ahead, rtol=DIGITS, atol=1e-30)


def test_a_smooth_function_with_large_third_derivatives_is_no_kink():
    x = np.array([1e-9, 3e-12])
    slopes = BigForward(lambda x: np.sqrt(x * x + 1e-24), [x], {}, BUDGET).slopes([np.ones(2)])
    np.testing.assert_array_equal(slopes.behind, slopes.ahead)
    np.testing.assert_allclose(slopes.ahead, x / np.sqrt(x * x + 1e-24), rtol=1e-14)


def test_what_is_absorbed_beside_what_is_not_is_found():
    tiny = np.array([1e-300, 1e-300])
    box = BigForward(lambda x: ((1 + x[0]) - 1) + x[1], [tiny], {}, BUDGET)
    assert box.slopes([np.ones(2)]).ahead.tolist() == [2.0]
    far = np.array([-200.0, 1.0])
    box = BigForward(lambda x: ((1 + np.exp(x[0])) - 1) * 2.0**288 + x[1], [far], {}, BUDGET)
    want = float(MP.exp(-200) * 2**288 + 1)
    assert box.slopes([np.ones(2)]).ahead.tolist() == [pytest.approx(want, rel=DIGITS)]


def test_only_what_is_named_moves():
    box = BigForward(lambda a, b, k: a[k] * b, [X, X, np.array([2, 0])], {}, BUDGET)
    with pytest.raises(NoArbiter, match="broadcast"):
        box.outputs()
    box = BigForward(lambda a, b, k: a[k] * b[k], [X, X, np.array([2, 0])], {}, BUDGET)
    assert box.slopes([None, np.eye(3)[0], None]).ahead.tolist() == [0.0, X[0]]
    assert box.slopes([np.zeros(3), None, None]).ahead.tolist() == [0.0, 0.0]


def test_complex_primals_have_complex_slopes():
    z = np.array([1.0 + 2.0j, -0.5 + 0.25j])
    d = np.array([1.0j, 2.0])
    slopes = BigForward(lambda z: z**2 + np.conj(z), [z], {}, BUDGET).slopes([d])
    np.testing.assert_allclose(slopes.ahead, 2 * z * d + np.conj(d), rtol=1e-13)
