"""Defects that a rule must leave to others: none of the rules beside a defect names it."""

import numpy as np
import pytest

from tests.explain.scenes import named, only, spoiled

ORDERS = ("orientation", "forward mode", "layout", "displaced")
SLABS = ("contributions", "pairs")
TENSORS = ("lost", "slots", "packed")
FACTORS = ("scale", "reduction")
ATTRIBUTES = ("attributes", "values")
COTANGENTS = ("cotangent", "replaced")


def tail_lost(g):
    out = np.array(g)
    out.reshape(-1)[g.size // 4 * 4 :] = 0
    return out


def rows_mean(g):
    return g.mean(-1, keepdims=True)


def double(g):
    return 2 * g


def flip(g):
    return np.flip(g, -1)


def roll(g):
    return np.roll(g, 1, -1)


# Operator, gradient, change of the gradient, and the rules that say nothing of it.
CHANGED = [
    ("tanh", "x", double, (*COTANGENTS, "elsewhere", "flushed", "nonfinite", "earlier")),
    ("tanh", "x", np.zeros_like, ("precision", "flushed", "narrow", "earlier", *FACTORS)),
    ("tanh", "x", lambda g: 1.001 * g, ("precision", "narrow")),
    ("tanh", "x", lambda g: g * (1 + 1e-5), ("precision", "narrow")),
    ("tanh", "x", lambda g: g * float(np.float32(0.1)) * 10, ("narrow",)),
    ("tanh", "x", lambda g: g + 1e-4, ("narrow",)),
    ("tanh", "x", lambda g: g * np.nan, ("narrow",)),
    ("tanh", "x", np.sign, ("precision", "flushed", "local", *ORDERS)),
    ("tanh", "x", np.round, ("precision", "flushed", "narrow")),
    ("tanh", "x", lambda g: 1.5 * g, ("local",)),
    ("tanh", "x", flip, ("local",)),
    ("tanh", "x", tail_lost, ("local",)),  # places, not values
    ("tanh", "x", lambda g: g + 0.125, ("local",)),  # not linear in the cotangent
    ("tanh", "x", lambda g: np.roll(g, 1, 0), ("alone",)),
    ("tanh", "x", lambda g: np.roll(g, g.shape[-1] // 2, -1), ("packed",)),
    ("tanh", "x", lambda g: g * 2 if len(g) > 1 else g, ("alone",)),  # by its size alone
    ("rms_norm", "x", double, (*ATTRIBUTES, "residual")),
    ("rms_norm", "x", np.sign, ("residual",)),
    ("rms_norm", "x", lambda g: g**3, ("elsewhere",)),
    ("rms_norm", "x", lambda g: g + 0.25, (*COTANGENTS, *FACTORS)),
    ("rms_norm", "x", lambda g: g - rows_mean(g), ("precision", "local")),
    ("rms_norm", "x", lambda g: np.where(g > 0, g, 0), ORDERS),
    ("rms_norm", "w", np.negative, ATTRIBUTES),
    ("rms_norm", "w", flip, FACTORS),
    ("layer_norm", "x", lambda g: g + 0.25, (*ATTRIBUTES, "elsewhere", *ORDERS, "residual")),
    ("layer_norm", "x", flip, (*COTANGENTS, "subset", "residual")),
    ("layer_norm", "x", lambda g: g - g[..., :1], ("support",)),
    ("layer_norm", "w", lambda g: 0.5 * g, SLABS),
    ("layer_norm", "w", np.negative, TENSORS),
    ("layer_norm", "w", lambda g: g * 0.99, ("precision",)),
    ("layer_norm", "b", lambda g: g - g.mean(), SLABS),
    ("softmax", "x", double, ("argument", *ORDERS, "alone", "duplicates")),
    ("softmax", "x", lambda g: 3 * g, ("subset", "support")),
    ("softmax", "x", lambda g: g + 0.1, ("alone",)),
    ("softmax", "x", np.sign, ("alone",)),
    ("softmax", "x", lambda g: g + 1e-4, ("precision",)),
    ("softmax", "x", lambda g: g**3, FACTORS),
    ("softmax", "x", np.zeros_like, ("subset", "residual")),
    ("softmax", "x", flip, ("elsewhere",)),
    ("softmax", "x", lambda g: g * np.linspace(0.5, 1.5, g.shape[-1]), ("residual",)),
    ("softmax", "x", lambda g: g * np.nan, ("residual",)),
    ("softmax", "x", lambda g: g - rows_mean(g) + g[..., :1], ("local",)),
    ("softmax", "x", lambda g: g - g.mean(0, keepdims=True) * 0.5, ("alone",)),  # wrong alone, too
    ("softmax", "x", lambda g: g * 2 if len(g) > 1 else g, ("alone",)),
    ("matmul", "w", np.negative, COTANGENTS),
    ("matmul", "w", flip, (*SLABS, "argument")),
    ("matmul", "w", lambda g: np.where(g > 0, g, 2 * g), FACTORS),
    ("matmul", "w", lambda g: g * np.abs(g), (*ORDERS, "support")),
    ("matmul", "w", lambda g: g + 1, ("subset", "support")),
    ("matmul", "w", np.sign, TENSORS),
    ("matmul", "x", lambda g: g + 0.125, SLABS),
    ("matmul", "x", np.sign, ("elsewhere",)),
    ("matmul", "x", flip, ("precision",)),
    ("matmul", "x", lambda g: g * np.arange(1.0, g.size + 1).reshape(g.shape), ("local",)),
    ("conv_2d", "w", lambda g: g - g.mean(), ORDERS),
    ("get_rows", "x", double, SLABS),
    ("sum_rows", "x", lambda g: g**2, SLABS),
    ("sum_rows", "x", lambda g: np.roll(g, 1, -2), ("argument",)),  # its output's rows are one long
    ("gelu", "x", np.zeros_like, COTANGENTS),
    ("lstm_cell", "x", double, COTANGENTS),
    ("add", "x", roll, FACTORS),
    ("elu", "x", lambda g: g**3, ATTRIBUTES),
    ("diag_mask_zero", "x", roll, ATTRIBUTES),
    ("rope", "x", np.zeros_like, ATTRIBUTES),
    ("rope", "x", flip, TENSORS),
    ("mul", "x", double, TENSORS),
    ("mul", "x", lambda g: g * np.float32(1 + 1e-6), ("support",)),
    ("packed_geglu", "x", lambda g: g + 0.25, TENSORS),
    ("transpose", "x", lambda g: 0.5 * g, ("support",)),
    ("variance", "x", double, ("sizes",)),
    ("variance", "x", lambda g: g + 0.1, ("sizes",)),
    ("variance", "x", np.sign, ("sizes",)),
    ("dropout", "x", double, ("mask",)),
    ("dropout", "x", flip, ("mask",)),
    ("dropout", "x", np.sign, ("mask",)),
]
# The same, of a change of the gradient, the cotangent, the primals by name, and the attributes.
SPOILED = [
    ("tanh", "x", lambda g, ct, p, a: g * p["x"], ("argument",)),  # another slope
    ("tanh", "x", lambda g, ct, p, a: np.where(p["x"] > 0, -g, g), FACTORS),
    ("tanh", "x", lambda g, ct, p, a: g * (2 if g.size > 10 else 3), FACTORS),
    ("tanh", "x", lambda g, ct, p, a: np.where(p["x"] > 0, np.nan, 2 * g), ("nonfinite",)),
    ("tanh", "x", lambda g, ct, p, a: np.where(p["x"] > 0, 0, g), ("nonfinite",)),
    ("tanh", "x", lambda g, ct, p, a: 0.5 * g / ct, ("cotangent",)),  # ones would not be halved
    ("tanh", "x", lambda g, ct, p, a: np.where(p["x"] >= p["x"].max(), 0, g), ("contributions",)),
    ("rms_norm", "x", lambda g, ct, p, a: g + p["x"], ("argument",)),
    ("softmax", "x", lambda g, ct, p, a: g * (1 + 0.01 * p["x"]), FACTORS),
    ("softmax", "x", lambda g, ct, p, a: np.where(g > 0, g * p["x"], g), ("argument",)),
    ("softmax", "x", lambda g, ct, p, a: g * (p["x"] if g.size > 20 else 3), ("argument",)),
    ("softmax", "x", lambda g, ct, p, a: 1e-17 * g, ("lost",)),  # rounding leaves something
    ("sqr", "x", lambda g, ct, p, a: g * np.linspace(0.5, 1.5, g.shape[-1]), ("local",)),
    ("sqr", "x", lambda g, ct, p, a: ct * (p["x"] + np.roll(p["x"], 1, -1)) if p["x"].ndim
     else 3 * ct * p["x"], ("local",)),  # a slope that depends on a neighbour
    ("dropout", "x", lambda g, ct, p, a: g * (1 + p["x"]), ("mask",)),
    ("silu", "x", lambda g, ct, p, a: np.where(p["x"] > np.median(p["x"]), 0, g), ("subset",)),
    ("silu", "x", lambda g, ct, p, a: np.where(np.abs(p["x"]) > 1, 0, g), ("subset",)),
    ("exp", "x", lambda g, ct, p, a: np.where(p["x"] < 0, 0, g), ("subset",)),
    ("tanh", "x", lambda g, ct, p, a: np.where(p["x"] == p["x"].max(), 0, g), ("subset",)),
    ("relu", "x", lambda g, ct, p, a: np.where(p["x"] > 0.5, ct, 0), ("flushed",)),  # it ends early
    ("relu", "x", lambda g, ct, p, a: ct, ("support",)),  # what follows values is no support
    ("relu", "x", lambda g, ct, p, a: np.where(p["x"] < 0, ct, 0), ("support",)),
    ("sgn", "x", lambda g, ct, p, a: ct, ("support",)),
    ("tanh", "x", lambda g, ct, p, a: ct * (np.abs(p["x"]) > 1), ("support",)),
    ("tril", "x", lambda g, ct, p, a: np.where(np.tril(p["x"], a["diagonal"]) != 0,
     ct * (p["x"] > 0), 0), ("support",)),
    ("neg", "x", lambda g, ct, p, a: -np.ones_like(g), ("earlier",)),  # the same everywhere, too
    ("tanh", "x", lambda g, ct, p, a: g / ct, ("earlier",)),
    ("neg", "x", lambda g, ct, p, a: np.arange(g.size).reshape(g.shape), ("earlier",)),
    ("variance", "x", lambda g, ct, p, a: g * np.where(np.abs(p["x"]).max() > 2.4, 2.0, 1.0),
     ("sizes",), {"sample": "width-67"}),
    ("prod", "x", lambda g, ct, p, a: 0 * g, ("zeros",), {"sample": "zeros"}),
    ("prod", "x", lambda g, ct, p, a: 2 * g, ("zeros",), {"sample": "zeros"}),
    ("prod", "x", lambda g, ct, p, a: flip(g), ("zeros",), {"sample": "zeros"}),
    ("l2_norm", "x", lambda g, ct, p, a: g * (1 + np.abs(p["x"]).max(-1, keepdims=True)),
     ("residual",)),  # it lies along x, and so does what is left
    ("log", "x", lambda g, ct, p, a: g * np.nan, ("precision",)),
]  # fmt: skip
ROWS = [
    (op, output, lambda g, ct, p, a, change=change: change(g), rules)
    for op, output, change, rules in CHANGED
] + SPOILED


@pytest.mark.slow(keep=40, rest=62)
@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row[0]}-{row[1]}-{'+'.join(row[3])}")
def test_a_defect_of_another_kind_is_left_to_others(row):
    op, output, change, rules, *where = row
    found = named(op, spoiled(op, output, change), output, only(*rules), **(dict(*where)))
    assert not found.label, found
