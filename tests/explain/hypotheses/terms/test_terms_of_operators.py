"""Changes of the reference's text: named for what they are, and silent on everything else."""

import numpy as np

from tests.explain.scenes import table


def mean(v):
    return v.mean(axis=-1, keepdims=True)


def sigmoid(v):
    return 1 / (1 + np.exp(-v))


def normalised(x, eps):
    c = x - mean(x)
    r = 1 / np.sqrt(mean(c * c) + eps)
    return c * r, r


def layer_norm(formula):
    """A VJP of the plain dialect: `formula(ct, n, r)`, n the row normalised by r."""

    def vjp(ct, x, *, eps):
        n, r = normalised(x, eps)
        return formula(ct, n, r)

    return vjp


def softmax(formula):
    def vjp(ct, x):
        e = np.exp(x - x.max(axis=-1, keepdims=True))
        y = e / e.sum(axis=-1, keepdims=True)
        return formula(ct, y)

    return vjp


def rms_norm(formula):
    def vjp(ct, x, w, *, eps, unit_offset):
        r = 1 / np.sqrt(mean(x * x) + eps)
        gain = 1 + w if unit_offset else w
        n = x * r
        dw = (ct * n).reshape(-1, w.shape[-1]).sum(axis=0)
        return formula(ct * gain, n, r, eps), dw

    return vjp


def total(v):
    return v.sum(axis=-1, keepdims=True)


CHANGED = {
    "a term of a sum is lost": (
        "layer_norm", "plain", "x", "T",
        layer_norm(lambda g, n, r: r * (g - n * mean(g * n))),
        "dx lacks the term `g0` of `g - g0`",
    ),
    "a term has the other sign": (
        "layer_norm", "plain", "x", "S",
        layer_norm(lambda g, n, r: r * (g + mean(g) - n * mean(g * n))),
        "dx: the term `g0` has the other sign",
    ),
    "a term is weighted by a number": (
        "softmax", "", "x", "F",
        softmax(lambda g, y: y * (g - 3 * total(y * g))),
        "dx: the term `sum(y * ct)` is 3 times the right value",
    ),
    "a term is weighted by a count": (
        "softmax", "", "x", "R",
        softmax(lambda g, y: y * (g - mean(y * g))),
        "`sum(y * ct)` is 1/n times the right value, n being the length of axis -1 of ct",
    ),
    "a term has a factor twice": (
        "rms_norm", "weight", "x", "F",
        rms_norm(lambda g, n, r, _: r * (g - r * n * mean(g * n))),
        "dx: the term `n * mean(g * n)` has, once too often, the factor `r`",
    ),
    "the whole lacks an array": (
        "rms_norm", "weight", "x", "F",
        rms_norm(lambda g, n, r, _: g - n * mean(g * n)),
        "dx lacks the factor `r`",
    ),
    "a mean is a sum": (
        "layer_norm", "plain", "x", "R",
        layer_norm(lambda g, n, r: r * (g - total(g) - n * mean(g * n))),
        "`g0` is n times the right value, n being the length of axis -1 of ct",
    ),
    "a sum is not formed": (
        "softmax", "", "x", "T",
        softmax(lambda g, y: y * (g - y * g)),
        "each element takes its own value alone",
    ),
    "a power is another": (
        "softcap", "", "x", "D",
        lambda ct, x, *, cap: ct * (1 - np.tanh(x / cap)),
        "dx: the term `y * y` lacks the factor `y`",
    ),
    "a product lacks an operand": (
        "swiglu", "", "up", "D",
        lambda ct, gate, up: (
            ct * up * sigmoid(gate) * (1 + gate * (1 - sigmoid(gate))),
            ct * gate,
        ),
        "dup lacks the factor `sigmoid(x)`",
    ),
    "the slope is another activation's": (
        "swiglu", "", "gate", "D",
        lambda ct, gate, up: (
            ct * up * np.where(gate > 0, 1.0, 0.0),
            ct * gate * sigmoid(gate),
        ),
        "dgate: `p` is taken for the step of relu",
    ),
    "a factor is a divisor": (
        "exp", "", "x", "D", lambda ct, x: ct * np.exp(-x), "dx is divided by `exp(x)`",
    ),
    "an eps is added": (
        "log", "", "x", "E", lambda ct, x: ct / (x + 1e-7), "1e-07 is added to `x`",
    ),
    "a value of the first row": (
        "layer_norm", "plain", "x", "I",
        layer_norm(lambda g, n, r: r.reshape(-1)[0] * (g - mean(g) - n * mean(g * n))),
        "`r of the very first row`, where `r` is due",
    ),
    "a branch is taken everywhere": (
        "huber", "", "x", "D",
        lambda ct, x, y, **_: (ct * (x - y), -ct * (x - y)),
        "dx: `d` is taken everywhere, not only where `abs(d) <= delta`",
    ),
    "another value is read": (
        "layer_norm", "plain", "x", "V",
        lambda ct, x, *, eps: normalised(x, eps)[1] * (
            ct - mean(ct) - x * mean(ct * normalised(x, eps)[0])
        ),
        "dx: `n * g1` reads `x`, where `n` is due",
    ),
    "the slope is another known function's": (
        "swiglu", "", "gate", "D",
        lambda ct, gate, up: (ct * up / np.cosh(gate) ** 2, ct * gate * sigmoid(gate)),
        "the slope `_silu_slope(gate)` is tanh's of `gate`",
    ),
}  # fmt: skip


test_a_change_is_named = table(
    [
        ("terms", op, output, vjp, label, says, {"dialect": dialect})
        for op, dialect, output, label, vjp, says in CHANGED.values()
    ],
    keep=4,
)


def narrow(g, n, r):
    return (r * (g - mean(g) - n * mean(g * n))).astype(np.float32).astype(float)


test_what_is_wrong_on_a_kink_alone_is_a_kink = table(
    [
        ("terms", "relu", "x", lambda ct, x: np.where(x >= 0, ct, 0), "K",
         "dx: `x > 0` is decided the other way in a tie", {"sample": "kink"}),
    ]
)  # fmt: skip


test_other_defects_are_left_to_others = table(
    [
        ("terms", "layer_norm", "x", layer_norm(lambda g, n, r: r * n), "", "",
         {"dialect": "plain"}),  # the cotangent is ignored
        ("terms", "softmax", "x",
         softmax(lambda g, y: y * (g - total(y * g)) + 1e-3 * np.sin(7 * y)), "", ""),
        ("terms", "layer_norm", "x", layer_norm(narrow), "", "", {"dialect": "plain"}),
        ("terms", "softmax", "x",
         softmax(lambda g, y: np.roll(y * (g - total(y * g)), 1, axis=-1)), "", ""),
    ],
    keep=1,
)  # fmt: skip
