"""Factors over the whole gradient: named by what varies with them, and silent on all else."""

import math

import numpy as np
import pytest

from gradcheck.explain.hypotheses.factor import factor_at
from gradcheck.explain.hypotheses.factor_names import in_words
from tests.explain.scenes import changed, named, only, probes, spoiled


@pytest.mark.parametrize(
    ("c", "words"),
    [
        (0.5, "half of the right value: a factor 2 is missing"),
        (2.0, "twice the right value"),
        (-7.0, "-7 times the right value"),
        (2 / 3, "2/3 of the right value"),
        (math.log(2), "log 2 times the right value"),
        (1 / math.sqrt(2), "1/(√2) of the right value"),
        (0.123456789, "0.123457 times the right value"),
        (3.7, "3.7 times the right value"),
    ],
)
def test_a_factor_in_words(c, words):
    assert in_words(c, 1e-6) == words


SCALE, REDUCTION = only("scale"), only("reduction")
OTHERS = [
    ("rms_norm", "x", lambda g, ct, p, a: g + 0.25),
    ("rms_norm", "w", lambda g, ct, p, a: np.flip(g, -1)),
    ("softmax", "x", lambda g, ct, p, a: g**3),
    ("softmax", "x", lambda g, ct, p, a: g * (1 + 0.01 * p["x"])),
    ("matmul", "w", lambda g, ct, p, a: np.where(g > 0, g, 2 * g)),
    ("tanh", "x", lambda g, ct, p, a: 0 * g),
    ("add", "x", lambda g, ct, p, a: np.roll(g, 1, -1)),
    ("tanh", "x", lambda g, ct, p, a: np.where(p["x"] > 0, -g, g)),
]
"""Other defects: no factor at all, or one that is not the same for all elements."""


@pytest.mark.slow(keep=2)
@pytest.mark.parametrize(
    ("op", "output", "factor", "label", "says"),
    [
        ("matmul", "b", lambda p, a: -1, "S", "db has the wrong sign: the right value negated"),
        ("rms_norm", "x", lambda p, a: 2, "F", "dx is twice the right value"),
        ("softmax", "x", lambda p, a: 0.5, "F", "dx is half of the right value: a factor 2 is"),
        ("softcap", "x", lambda p, a: a["cap"], "F", "dx is `cap` times the right value"),
        ("softcap", "x", lambda p, a: 1 / a["cap"], "F", "dx is 1/`cap` of the right value"),
        ("softcap", "x", lambda p, a: a["cap"] ** 2, "F", "dx is `cap`² times"),
        ("dropout", "x", lambda p, a: 1 - a["p"], "F", "dx is 1 - `p` times the right value"),
        ("alibi", "x", lambda p, a: a["bias_max"] / 8, "F", "`bias_max` over its default 8.0"),
        ("softmax", "x", lambda p, a: math.sqrt(p["x"].shape[-1]), "F", "√n times the right value"),
        ("prod", "x", lambda p, a: p["x"].shape[-1], "F", "n being the degree of forward in x"),
    ],
)
def test_signs_numbers_attributes_and_roots(op, output, factor, label, says):
    found = named(op, spoiled(op, output, lambda g, ct, p, a: g * factor(p, a)), output, SCALE)
    assert found.label == label, found
    assert says in found.says
    assert found.rule == "scale"


@pytest.mark.slow(keep=2)
@pytest.mark.parametrize(
    ("op", "output", "factor", "label", "says"),
    [
        ("matmul", "w", lambda p, a: 1 / p["x"][..., 0].size, "R", "the number of rows of"),
        ("matmul", "x", lambda p, a: p["w"].shape[0], "R", "is n times the right value, n being"),
        ("softmax", "x", lambda p, a: 1 / p["x"].size, "R", "averaged instead of summed"),
        ("mean", "x", lambda p, a: 3, "F", "dx is 3 times the right value"),
        ("gelu", "x", lambda p, a: -7, "F", "dx is -7 times the right value"),
        ("log", "x", lambda p, a: 1 / math.log(2), "F", "dx is 1/(log 2) of the right value"),
        ("rms_norm", "x", lambda p, a: 3 / 7, "F", "dx is 3/7 of the right value"),
        (
            "layer_norm",
            "x",
            lambda p, a: (p["x"].shape[-1] - 1) / p["x"].shape[-1],
            "R",
            "n stands for n - 1",
        ),
        (
            "lora_linear",
            "x",
            lambda p, a: a["s"] / p["x"].shape[-1],
            "F",
            "`s` × 1/(the length of",
        ),
    ],
)
def test_counts_and_what_is_made_of_them(op, output, factor, label, says):
    found = named(op, spoiled(op, output, lambda g, ct, p, a: g * factor(p, a)), output, REDUCTION)
    assert found.label == label, found
    assert says in found.says


@pytest.mark.slow(keep=3)
@pytest.mark.parametrize(("op", "output", "change"), OTHERS)
@pytest.mark.parametrize("rules", [SCALE, REDUCTION])
def test_what_is_wrong_otherwise_is_left_to_others(op, output, change, rules):
    found = named(op, spoiled(op, output, change), output, rules)
    assert not found.label, found


def test_a_count_must_hold_at_every_shape():
    """1/5 is the width of the first sample, and of no other."""
    found = named("softmax", changed("softmax", x=lambda g: g / 7), "x", REDUCTION)
    assert found.label == "F"
    assert found.says == "dx is 1/7 of the right value"


@pytest.mark.slow(keep=2)
@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
@pytest.mark.parametrize(
    ("factor", "rules", "label"),
    [
        (lambda p: -1.0, SCALE, "S"),
        (lambda p: 2.0, SCALE, "F"),
        (lambda p: 1 / p["x"][..., 0].size, REDUCTION, "R"),
    ],
)
def test_in_lower_precision(dtype, factor, rules, label):
    vjp = spoiled("matmul", "w", lambda g, ct, p, a: g * np.asarray(factor(p), dtype=g.dtype))
    found = named("matmul", vjp, "w", rules, dtype=dtype)
    assert found.label == label, found


def test_a_factor_at_some_points_alone_is_not_named():
    vjp = spoiled("tanh", "x", lambda g, ct, p, a: g * (2 if g.size > 10 else 3))
    for rules in (SCALE, REDUCTION):
        assert not named("tanh", vjp, "x", rules).label


def test_the_evidence_shows_what_varies():
    vjp = spoiled("matmul", "w", lambda g, ct, p, a: g / p["x"][..., 0].size)
    found = named("matmul", vjp, "w", REDUCTION)
    assert found.evidence[0].startswith("the factor is 0.333333 at typical, 0.25 at square")


def test_one_significant_element_tells_no_factor():
    """A gradient that is not proportional, seen through its largest element alone, is none."""
    (probe, *_) = probes("tanh", spoiled("tanh", "x", lambda g, ct, p, a: g**2))
    assert factor_at(probe, "x") is None


ARGUMENT = only("argument")


@pytest.mark.slow(keep=1)
@pytest.mark.parametrize(
    ("op", "output", "change", "says"),
    [
        ("matmul", "x", lambda g, ct, p, a: g * p["x"], "dx has the factor x too much"),
        (
            "softmax",
            "x",
            lambda g, ct, p, a: g * np.exp(p["x"]),
            "dx has the factor exp(x) too much",
        ),
        (
            "rms_norm",
            "x",
            lambda g, ct, p, a: g * np.sqrt(np.mean(p["x"] ** 2, axis=-1, keepdims=True)),
            "dx has the factor the root mean square of x's rows too much",
        ),
        (
            "l2_normalize",
            "x",
            lambda g, ct, p, a: g / (1 + np.abs(p["x"]) - np.abs(p["x"])) / (1 - p["x"]),
            "dx lacks the factor 1 - x",
        ),
        (
            "gated_delta_rule",
            "v",
            lambda g, ct, p, a: g * p["beta"][..., None],
            "dv has the factor beta, one for each row too much",
        ),
    ],
)
def test_the_array_is_named(op, output, change, says):
    found = named(op, spoiled(op, output, change), output, ARGUMENT)
    assert found.label == "F", found
    assert found.says == says


@pytest.mark.slow(keep=1)
@pytest.mark.parametrize(
    ("op", "output", "change"),
    [
        ("tanh", "x", lambda g, ct, p, a: g * p["x"]),  # another slope
        ("softmax", "x", lambda g, ct, p, a: 2 * g),
        ("rms_norm", "x", lambda g, ct, p, a: g + p["x"]),
        ("matmul", "w", lambda g, ct, p, a: np.flip(g, -1)),
        ("sum_rows", "x", lambda g, ct, p, a: np.roll(g, 1, -2)),  # its output's rows are one long
        ("softmax", "x", lambda g, ct, p, a: np.where(g > 0, g * p["x"], g)),
    ],
)
def test_what_is_wrong_otherwise_is_left_to_others_argument(op, output, change):
    found = named(op, spoiled(op, output, change), output, ARGUMENT)
    assert not found.label, found


def test_a_right_factor_at_one_shape_is_not_enough():
    vjp = spoiled("softmax", "x", lambda g, ct, p, a: g * (p["x"] if g.size > 20 else 3))
    assert not named("softmax", vjp, "x", ARGUMENT).label


def test_unchanged_is_right():
    with pytest.raises(AssertionError, match="nothing to diagnose"):
        named("softmax", changed("softmax"), "x", ARGUMENT)
