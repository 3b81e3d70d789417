"""Tables of facts with one shape in several families: refusals, kinks, tails, equal operators."""

import mpmath
import numpy as np
import pytest
from gradcheck_cases import SUITE

from gradcheck.numerics.arithmetic import F32, F64
from gradcheck.numerics.arrays import as_tuple
from gradcheck.numerics.draw import Draw
from gradcheck.numerics.fifty_digit_arithmetic import mp50

OPS = SUITE.operators


def slope(op, x, xp=F64, **attrs):
    """The derivative of an operator of one operand at the points `x`."""
    return OPS[op].vjp(xp, xp.asarray(np.ones(np.shape(x))), xp.asarray(x), **attrs)


def ids(rows):
    """The operator's name, which is the first of each row."""
    return [row[0] for row in rows]


# ── refusals ─────────────────────────────────────────────────────────────────────────────────

ODD = "rope turns pairs of features"
OUTSIDE = "leaves a tensor of 12 elements"
REDUCTION = "reduction 'batchmean': use one of none, mean, sum"
HALVES, LABEL, TABLE = np.full((1, 3), 0.5), np.array([1]), np.zeros((5, 1))
ONES = {shape: np.ones(shape) for shape in [(2, 6), (2, 6, 6), (3, 4), (1, 1, 3, 4), (1, 1, 2, 3)]}
REFUSED = [
    ("rope", ValueError, ODD, (np.zeros((1, 1, 5)),), {}),
    ("rope", ValueError, ODD, (np.zeros((1, 1, 6)),), {"n_dims": 3}),
    ("rope_back", ValueError, ODD, (np.zeros((1, 1, 3)),), {}),
    ("map_unary", KeyError, "cube", (HALVES,), {"function": "cube"}),
    ("map_binary", KeyError, "cube", (HALVES, HALVES), {"function": "cube"}),
    ("get_rows", IndexError, "out of bounds", (TABLE, np.array([0, 5])), {}),
    ("get_rows", IndexError, "out of bounds", (TABLE, np.array([0, 12])), {}),
    ("get_rows_back", IndexError, "out of bounds", (TABLE[:2], np.array([0, 5])), {"n_rows": 5}),
    ("get_rows_back", IndexError, "out of bounds", (TABLE[:2], np.array([0, 12])), {"n_rows": 5}),
    ("view_1d", IndexError, OUTSIDE, (ONES[3, 4],), {"ne0": 4, "offset": 9}),
    ("view_1d", IndexError, OUTSIDE, (ONES[3, 4],), {"ne0": 2, "offset": -1}),
    ("view_2d", IndexError, OUTSIDE, (ONES[3, 4],), {"ne0": 4, "ne1": 3, "nb1": 5}),
    ("view_2d", IndexError, OUTSIDE, (ONES[3, 4],), {"offset": 4}),
    ("view_2d", IndexError, OUTSIDE, (ONES[3, 4],), {"ne0": 1, "offset": 16}),  # bytes
    ("set", ValueError, "share a place", (ONES[1, 1, 3, 4], ONES[1, 1, 2, 3]), {"nb1": 2}),
    ("acc", ValueError, "share a place", (ONES[1, 1, 3, 4], ONES[1, 1, 2, 3]), {"nb1": 2}),
    ("conv_1d_1s", ValueError, "a kernel of 4 has no middle", (ONES[2, 6], np.ones((3, 2, 4))), {}),
    (
        "conv_2d", ValueError, "a kernel of 3 that reaches 5 finds only 4 positions",
        (np.ones((1, 4, 4)), np.ones((1, 1, 3, 3))), {"dilation": (1, 2)},
    ),
    ("mul_mat", ValueError, "reshape", (np.ones((1, 2, 3, 5)), np.ones((1, 3, 2, 5))), {}),
    (
        "lora_linear", KeyError, "ranks",
        (np.ones((3, 5)), np.ones((7, 5)), np.ones((7, 2)), np.ones((2, 5))), {"per": "ranks"},
    ),
    (
        "flash_attn", ValueError, "3 masked queries, but only 2 slots",
        (np.ones((3, 4)), np.ones((2, 4)), np.ones((4, 2))), {},
    ),
    (
        "grouped_query_attention", ValueError, "4 query heads cannot share 3 key heads",
        (np.ones((4, 2, 2)), np.ones((3, 2, 2)), np.ones((3, 2, 2))), {},
    ),
    (
        "lstm_cell", ValueError, "not found",
        (*[np.ones(1)] * 3, np.ones((4, 1)), np.ones((4, 1))), {"order": "xyzw"},
    ),
    (
        "gru_cell", ValueError, "not found",
        (*[np.ones(1)] * 2, np.ones((3, 1)), np.ones((3, 1))), {"order": "xyzw"},
    ),
    *(
        (op, ValueError, REDUCTION, (HALVES, LABEL), {"reduction": "batchmean"})
        for op in (
            "square_error", "huber", "hinge", "binary_cross_entropy", "kl_divergence", "z_loss"
        )
    ),
]  # fmt: skip


@pytest.mark.parametrize(("op", "error", "says", "primals", "attrs"), REFUSED, ids=ids(REFUSED))
def test_a_call_that_contradicts_itself_is_refused(op, error, says, primals, attrs):
    with pytest.raises(error, match=says):
        OPS[op].forward(F64, *primals, **attrs)


def test_rope_and_maps_refuse_in_their_vjps_too():
    with pytest.raises(ValueError, match=ODD):
        slope("rope", np.zeros((1, 1, 5)))
    with pytest.raises(KeyError, match="cube"):
        OPS["map_binary"].vjp(F64, HALVES, HALVES, HALVES, function="cube")


@pytest.mark.parametrize("family", ["activation", "shape"])
def test_every_operator_of_the_family_has_a_sample_without_elements(family):
    lacking = [
        s.name
        for s in SUITE
        if s.family == family
        and not any(p.size == 0 for t in s.samples for p in t.primals(Draw("empty")))
    ]
    assert lacking == []


# ── kinks ────────────────────────────────────────────────────────────────────────────────────

SIGMA_2 = 1 / (1 + np.exp(-2.0))
ON_KINKS = [
    ("relu", {}, [-1.0, -0.0, 0.0, 1.0], [0, 0, 0, 1]),
    ("leaky_relu", {"negative_slope": 0.25}, [-2.0, 0.0, 2.0], [0.25, 0.25, 1]),
    ("clamp", {"min": -0.5, "max": 2.0}, [-2.0, -0.5, 0.0, 2.0, 3.0], [0, 1, 1, 1, 0]),
    ("elu", {"alpha": 0.5}, [0.0, 0.5], [0.5, 1]),
    ("softplus", {"threshold": 2.0}, [2.0, 2.25], [SIGMA_2, 1]),
]


@pytest.mark.parametrize(("op", "attrs", "x", "wanted"), ON_KINKS, ids=ids(ON_KINKS))
def test_slopes_at_and_beside_a_kink(op, attrs, x, wanted):
    np.testing.assert_allclose(slope(op, x, **attrs), wanted, rtol=1e-15)


INTERVALS = [
    ("leaky_relu", {"negative_slope": 1.5}, 0, 0.0, (1.0, 1.5)),
    ("leaky_relu", {"negative_slope": -0.2}, 0, 0.0, (-0.2, 1.0)),
    ("elu", {"alpha": 2.0}, 0, 0.0, (1.0, 2.0)),
    ("elu", {"alpha": 1.0}, 0, 0.0, (1.0, 1.0)),
    ("elu", {"alpha": 0.5}, 0, 0.0, (0.5, 1.0)),
    ("softplus", {"beta": 1.0, "threshold": 2.0}, 0, 2.0, (SIGMA_2, 1.0)),
    ("hardswish", {}, 0, -3.0, (-0.5, 0.0)),
    ("hardswish", {}, 1, 3.0, (1.0, 1.5)),
    ("hardsigmoid", {}, 0, -3.0, (0, 1 / 6)),
    ("hardsigmoid", {}, 1, 3.0, (0, 1 / 6)),
]


@pytest.mark.parametrize(("op", "attrs", "kink", "x", "interval"), INTERVALS, ids=ids(INTERVALS))
def test_slopes_allowed_on_a_kink_lie_between_the_one_sided_ones(op, attrs, kink, x, interval):
    assert OPS[op].kinks[kink].slopes(attrs) == interval
    tiny = 2.0**-40
    sides = slope(op, [x - tiny, x + tiny], **attrs)
    np.testing.assert_allclose(sorted(sides), interval, rtol=1e-11, atol=1e-12)


TIES = [[2.0, 1.0, 2.0, 0.5, 2.0], [1.0, 1.0, 1.0, 1.0, 1.0]]
WINDOWS = [[[3.0, 3.0, 1.0, 2.0], [0.0, 3.0, 7.0, 5.0]]]
MARGIN, LABELS = [1.0, -1.0, 0.0], [1, -1, 1]
AT_ONE, POOL = {"min": -1.0, "max": 1.0}, {"kernel": (2, 2), "stride": (2, 2)}
BY_PYTORCH = [
    ("sqrt", "x = 0", "inf", "sqrt", [0.0, 0.0], {}),
    ("log", "x = 0", "inf", "log", [0.0, 0.0], {}),
    ("abs", "x = 0", "0", "abs", [0.0, 0.0], {}),
    ("sgn", "x = 0", "0", "sign", [0.0, 0.0], {}),
    ("relu", "x = 0", "0", "relu", [0.0], {}),
    ("leaky_relu", "x = 0", "negative_slope", "leaky_relu", [0.0], {"negative_slope": 0.25}),
    ("elu", "x = 0", "alpha", "elu", [0.0], {"alpha": 0.25}),
    ("clamp", "x = min", "1", "clamp", [-1.0], AT_ONE),
    ("clamp", "x = max", "1", "clamp", [1.0], AT_ONE),
    (
        "softplus", "beta x = threshold", "sigma(threshold)", "softplus",
        [1.0], {"beta": 2.0, "threshold": 2.0},
    ),
    ("hardswish", "x = -3", "0", "hardswish", [-3.0], {}),
    ("hardswish", "x = 3", "1", "hardswish", [3.0], {}),
    ("hardsigmoid", "x = -3", "0", "hardsigmoid", [-3.0], {}),
    ("hardsigmoid", "x = 3", "0", "hardsigmoid", [3.0], {}),
    ("relu_squared", "x = 0", "0", "relu_squared", [0.0], {}),
    ("max", "tie", "first", "max", TIES, {}),
    ("max", "tie", "split", "amax", TIES, {}),
    ("sort", "tie", "in order", "sort", TIES, {}),
    ("l2_norm", "x = 0", "0", "norm", [[0.0, 0.0], [0.0, 0.0]], {}),
    ("max_pool_2d", "tie", "first", "max_pool2d", WINDOWS, POOL),
    ("l2_normalize", "norm = eps", "outer", "normalize", [[0.375, 0.5]], {"eps": 0.625}),
    ("hinge", "y x = margin", "0", "hinge by relu", MARGIN, {}),
    ("hinge", "y x = margin", "-y", "hinge by clamp", MARGIN, {}),
    ("hinge", "y x = margin", "-y/2", "hinge by maximum", MARGIN, {}),
]  # fmt: skip


def functions(torch):
    """PyTorch's functions by the table's names: those of `torch.nn.functional`, torch and these."""
    f, labels = torch.nn.functional, torch.tensor(LABELS)
    own = {
        "relu_squared": lambda x: f.relu(x) ** 2,
        "max": lambda x: x.max(dim=-1).values,
        "amax": lambda x: x.amax(dim=-1),
        "sort": lambda x: x.sort(dim=-1, stable=True).values,
        "norm": lambda x: torch.linalg.vector_norm(x, dim=-1),
        "max_pool2d": lambda x, kernel, stride: f.max_pool2d(x, kernel),
        "normalize": lambda x, eps: f.normalize(x, dim=-1, eps=eps),
        "hinge by relu": lambda x: torch.relu(1 - labels * x),
        "hinge by clamp": lambda x: (1 - labels * x).clamp(min=0),
        "hinge by maximum": lambda x: torch.maximum(1 - labels * x, torch.zeros_like(x)),
    }
    return lambda name: own.get(name) or getattr(f, name, None) or getattr(torch, name)


@pytest.mark.frameworks
@pytest.mark.parametrize(
    ("op", "kink", "convention", "function", "x", "attrs"),
    BY_PYTORCH,
    ids=[" ".join((op, function)) for op, _, _, function, *_ in BY_PYTORCH],
)
def test_pytorch_follows_on_the_kink_what_the_table_says(op, kink, convention, function, x, attrs):
    torch = pytest.importorskip("torch")
    spec, x = OPS[op], np.array(x)
    (found,) = [
        c for k in spec.kinks for c in k.conventions if (k.name, c.name) == (kink, convention)
    ]
    leaf = torch.tensor(x, requires_grad=True)
    y = functions(torch)(function)(leaf, **attrs)
    ct = np.arange(1.0, y.numel() + 1).reshape(y.shape) * (-1.0) ** np.arange(y.shape[-1])
    y.backward(torch.tensor(ct))
    if found.vjp:
        labels = (np.array(LABELS),) if op == "hinge" else ()
        wanted = as_tuple(found.vjp(F64, ct, x, *labels, **attrs))[0]
    else:
        wanted = ct * (found.slope(**attrs) if callable(found.slope) else found.slope)
    np.testing.assert_allclose(leaf.grad.numpy(), wanted, rtol=1e-12)


def test_every_operator_whose_kink_names_pytorch_is_in_the_table():
    named = {
        s.name for s in SUITE for k in s.kinks for c in k.conventions
        if any("PyTorch" in system for system in c.systems)
    }  # fmt: skip
    assert named - {row[0] for row in BY_PYTORCH} == {"pow"}  # its kink is in the other operand


# ── tails ────────────────────────────────────────────────────────────────────────────────────


def sigma(x):
    return 1 / (1 + mpmath.exp(-x))


def tanh_form(x):
    root = mpmath.sqrt(2 / mpmath.pi)
    return x * (1 + mpmath.tanh(root * (x + mpmath.mpf("0.044715") * x**3))) / 2


TAILS = [
    ("tanh", {}, mpmath.tanh, -16.0),
    ("sigmoid", {}, sigma, -32.0),
    ("softcap", {"cap": 2.0}, lambda x: 2 * mpmath.tanh(x / 2), 32.0),
    ("gelu", {"form": "tanh"}, tanh_form, -6.0),
    ("gelu", {"form": "erf"}, lambda x: x * mpmath.ncdf(x), -7.5),
    ("gelu", {"form": "quick"}, lambda x: x * sigma(mpmath.mpf("1.702") * x), -32.0),
    ("silu", {}, lambda x: x * sigma(x), -32.0),
]


@pytest.mark.parametrize(("op", "attrs", "textbook", "x"), TAILS, ids=ids(TAILS))
def test_the_oracle_knows_the_textbook_slope_far_into_the_tail(op, attrs, textbook, x):
    with mpmath.workdps(400):
        want = float(mpmath.diff(textbook, x))
    assert 0 < abs(want) < 1e-8
    xp = mp50()
    np.testing.assert_allclose(xp.to_float64(slope(op, [x], xp, **attrs)), want, rtol=1e-15)


SMOOTH = ["elu", "tanh", "sigmoid", "softcap", "softplus", "mish", "hardswish", "gelu", "silu"]


@pytest.mark.parametrize("op", SMOOTH)
@pytest.mark.parametrize("xp", [F32, F64], ids=lambda xp: xp.name)
def test_nothing_overflows_far_out(op, xp):
    x = xp.asarray([-800.0, -104.0, 104.0, 800.0])
    with np.errstate(over="raise", invalid="raise"):
        y, dx = OPS[op].forward(xp, x), slope(op, x, xp)
    assert np.isfinite(y).all()
    assert np.isfinite(dx).all()


# ── operators that are equal to others ───────────────────────────────────────────────────────

TARGETS = np.array([2, 0, 1, 1, 2])
X, G = Draw("across", "x").normal(5, 3), Draw("across", "g").signed(5, 3)
ROPE = {"offset": 3, "n_dims": 2, "base": 100.0}
ROWS, N_PAST = np.array([3, 1, 3, 3, 0]), {"n_past": 2}
BACKWARDS = [
    ("tanh_back", "tanh", {}, lambda spec: (G, spec.forward(F64, X))),
    ("sigmoid_back", "sigmoid", {}, lambda spec: (G, spec.forward(F64, X))),
    ("softcap_back", "softcap", {"cap": 2.5}, lambda spec: (G, spec.forward(F64, X, cap=2.5))),
    ("silu_back", "silu", {}, lambda spec: (G, X)),
    ("rms_norm_back", "rms_norm", {"eps": 1e-6}, lambda spec: (G, X)),
    ("rms_norm_back", "rms_norm", {"eps": 0.1}, lambda spec: (G, X)),
]


@pytest.mark.parametrize(("back", "op", "attrs", "primals"), BACKWARDS, ids=ids(BACKWARDS))
def test_an_operator_that_is_a_backward_is_the_vjp_of_its_forward(back, op, attrs, primals):
    found = OPS[back].forward(F64, *primals(OPS[op]), **attrs)
    np.testing.assert_allclose(found, OPS[op].vjp(F64, G, X, **attrs), rtol=1e-14, atol=1e-15)


def test_backwards_that_take_the_cotangent_alone_are_the_vjps_of_their_forwards():
    x, g = X[:, None], np.asarray(G)[:, None]
    for half_split in (False, True):
        attrs = {**ROPE, "half_split": half_split}
        found = OPS["rope_back"].forward(F64, g, **attrs)
        assert np.array_equal(found, OPS["rope"].vjp(F64, g, x, **attrs))
        assert np.array_equal(
            OPS["rope_back"].vjp(F64, g, x, **attrs), OPS["rope"].forward(F64, g, **attrs)
        )
    found = OPS["diag_mask_zero"].forward(F64, G, **N_PAST)
    assert np.array_equal(found, OPS["diag_mask_inf"].vjp(F64, G, X, **N_PAST))
    found = OPS["get_rows_back"].forward(F64, G, ROWS, n_rows=7)
    assert np.array_equal(found, OPS["get_rows"].vjp(F64, G, np.zeros((7, 3)), ROWS)[0])


EQUAL = [
    ("norm", "layer_norm", {}, ()),
    ("label_smoothing_cross_entropy", "softmax_cross_entropy", {"smoothing": 0.0}, (TARGETS,)),
    (
        "label_smoothing_cross_entropy", "softmax_cross_entropy",
        {"smoothing": 0.0, "others": True}, (TARGETS,),
    ),
    ("masked_cross_entropy", "softmax_cross_entropy", {"reduction": "none"}, (TARGETS,)),
    (
        "masked_cross_entropy", "softmax_cross_entropy",
        {"reduction": "none", "ignore_index": 7}, (TARGETS,),
    ),
    ("z_loss", "softmax_cross_entropy", {"weight": 0.0}, (TARGETS,)),
]  # fmt: skip


@pytest.mark.parametrize(("variant", "op", "attrs", "more"), EQUAL, ids=ids(EQUAL))
def test_without_what_it_adds_a_variant_is_the_plain_operator(variant, op, attrs, more):
    y = OPS[op].forward(F64, X, *more)
    ct = Draw("across", "ct").signed(*y.shape)
    np.testing.assert_allclose(OPS[variant].forward(F64, X, *more, **attrs), y, rtol=1e-14)
    found = as_tuple(OPS[variant].vjp(F64, ct, X, *more, **attrs))
    wanted = as_tuple(OPS[op].vjp(F64, ct, X, *more))
    np.testing.assert_allclose(found[0], wanted[0], rtol=1e-14, atol=1e-15)
    assert found[1:] == wanted[1:] == (None,) * len(more)


# ── nothing to sum ───────────────────────────────────────────────────────────────────────────


def test_sums_and_norms_over_nothing_are_marked():
    """Other code is asked for them by name alone, as few libraries define them."""
    marked = {f"{c.spec.name}/{c.sample.name}" for c in SUITE.cases() if c.sample.no_features}
    assert marked == {
        "matmul/empty-inner", "batch_norm/no-channels", "prod/no-columns", "cumprod/no-columns",
        "kl_divergence/empty",
    }  # fmt: skip
    for case in SUITE.cases():
        empty = [axis for p in case.primals for axis, n in enumerate(p.shape) if n == 0]
        if case.sample.no_features:
            assert empty, case.name
        elif case.spec.family in ("norm", "reduction"):
            assert all(p.shape[-1] for p in case.primals if p.ndim), case.name
