"""Factors over the whole gradient: named by what varies with them."""

import math

import numpy as np
import pytest

from gradcheck.explain.hypotheses.factor import factor_at
from gradcheck.explain.hypotheses.factor_names import (
    along,
    attributes,
    counts,
    in_words,
    relative,
)
from tests.explain.scenes import changed, named, only, probes, spoiled, table


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


def times(rule, op, output, factor, label, says, **where):
    vjp = spoiled(op, output, lambda g, ct, p, a: g * np.asarray(factor(p, a), dtype=g.dtype))
    return rule, op, output, vjp, label, says, where


def rows(p, a):
    return 1 / p["x"][..., 0].size


test_signs_numbers_attributes_and_roots = table(
    [
        times("scale", "matmul", "b", lambda p, a: -1, "S",
              "db has the wrong sign: the right value negated"),
        times("scale", "rms_norm", "x", lambda p, a: 2, "F", "dx is twice the right value"),
        times("scale", "softmax", "x", lambda p, a: 0.5, "F",
              "dx is half of the right value: a factor 2 is"),
        times("scale", "softcap", "x", lambda p, a: a["cap"], "F",
              "dx is `cap` times the right value"),
        times("scale", "softcap", "x", lambda p, a: 1 / a["cap"], "F",
              "dx is 1/`cap` of the right value"),
        times("scale", "softcap", "x", lambda p, a: a["cap"] ** 2, "F", "dx is `cap`² times"),
        times("scale", "dropout", "x", lambda p, a: 1 - a["p"], "F",
              "dx is 1 - `p` times the right value"),
        times("scale", "alibi", "x", lambda p, a: a["bias_max"] / 8, "F",
              "`bias_max` over its default 8.0"),
        times("scale", "softmax", "x", lambda p, a: math.sqrt(p["x"].shape[-1]), "F",
              "√n times the right value"),
        times("scale", "prod", "x", lambda p, a: p["x"].shape[-1], "F",
              "n being the degree of forward in x"),
    ],
    keep=2,
)  # fmt: skip
test_counts_and_what_is_made_of_them = table(
    [
        times("reduction", "matmul", "w", rows, "R", "the number of rows of",
              evidence="the factor is 0.333333 at typical, 0.25 at square"),
        times("reduction", "matmul", "x", lambda p, a: p["w"].shape[0], "R",
              "is n times the right value, n being"),
        times("reduction", "softmax", "x", lambda p, a: 1 / p["x"].size, "R",
              "averaged instead of summed"),
        times("reduction", "mean", "x", lambda p, a: 3, "F", "dx is 3 times the right value"),
        times("reduction", "gelu", "x", lambda p, a: -7, "F", "dx is -7 times the right value"),
        times("reduction", "log", "x", lambda p, a: 1 / math.log(2), "F",
              "dx is 1/(log 2) of the right value"),
        times("reduction", "rms_norm", "x", lambda p, a: 3 / 7, "F",
              "dx is 3/7 of the right value"),
        # a count must hold at every shape: 7 is the width of the first sample alone
        times("reduction", "softmax", "x", lambda p, a: 1 / 7, "F", "dx is 1/7 of the right value"),
        times("reduction", "layer_norm", "x",
              lambda p, a: (p["x"].shape[-1] - 1) / p["x"].shape[-1], "R", "n stands for n - 1"),
        times("reduction", "lora_linear", "x", lambda p, a: a["s"] / p["x"].shape[-1], "F",
              "`s` × 1/(the length of"),
    ],
    keep=3,
)  # fmt: skip
test_factors_in_lower_precision = table(
    [
        times(rule, "matmul", "w", factor, label, "", dtype=dtype)
        for dtype in ("float32", "float16", "bfloat16")
        for rule, factor, label in (
            ("scale", lambda p, a: -1.0, "S"),
            ("scale", lambda p, a: 2.0, "F"),
            ("reduction", rows, "R"),
        )
    ],
    keep=2,
)
test_the_array_that_is_a_factor_is_named = table(
    [
        times("argument", "matmul", "x", lambda p, a: p["x"], "F", "dx has the factor x too much"),
        times("argument", "softmax", "x", lambda p, a: np.exp(p["x"]), "F",
              "dx has the factor exp(x) too much"),
        times("argument", "rms_norm", "x",
              lambda p, a: np.sqrt(np.mean(p["x"] ** 2, axis=-1, keepdims=True)), "F",
              "dx has the factor the root mean square of x's rows too much"),
        times("argument", "l2_normalize", "x", lambda p, a: 1 / (1 - p["x"]), "F",
              "dx lacks the factor 1 - x"),
        times("argument", "gated_delta_rule", "v", lambda p, a: p["beta"][..., None], "F",
              "dv has the factor beta, one for each row too much"),
    ],
    keep=1,
)  # fmt: skip


def test_one_significant_element_tells_no_factor():
    """A gradient that is not proportional, seen through its largest element alone, is none."""
    (probe, *_) = probes("tanh", spoiled("tanh", "x", lambda g, ct, p, a: g**2))
    assert factor_at(probe, "x") is None


def test_unchanged_is_right():
    with pytest.raises(AssertionError, match="nothing to diagnose"):
        named("softmax", changed("softmax"), "x", only("argument"))


# ── counts and attributes by names that hold at every point ──────────────────────────────────────


def values(quantities, probe):
    return {q.words: q.of(probe) for q in quantities}


def test_counts_of_primals_and_outputs():
    matmul = probes("matmul", changed("matmul"))  # (3, 5) by (7, 5), a bias of 7
    found = values(counts(matmul[0], "b"), matmul[0])
    assert found["the number of rows of x"] == 3
    assert found["the number of elements of w"] == 35
    assert found["the length of w's last axis"] == 5
    assert found["the number of elements of the output for each of b"] == 3
    assert found["the number of elements of b for each of the output"] is None  # no fraction
    assert found["the length of x's axis -2"] == 3
    named_counts = {q.words: q for q in counts(matmul[0], "b")}
    for probe in matmul:
        rows_of_x = named_counts["the number of rows of x"].of(probe)
        assert rows_of_x == math.prod(probe.primal("x").shape[:-1])
    batched = next(p for p in matmul if p.primal("x").ndim == 3)
    deep = next(q for q in counts(batched, "b") if q.words == "the length of x's axis -3")
    assert (deep.of(batched), deep.of(matmul[0])) == (2, None)


def test_entries_in_use():
    probe, *_ = probes("masked_cross_entropy", changed("masked_cross_entropy"))
    found = values(counts(probe, "logits"), probe)
    wanted = np.count_nonzero(probe.primal("targets") != probe.attrs["ignore_index"])
    assert found["the number of entries of targets other than `ignore_index`"] == wanted


def test_attributes_and_their_defaults():
    found = probes("softcap", changed("softcap"))
    probe = next(p for p in found if p.attrs["cap"] != 30.0)
    cap = probe.attrs["cap"]
    assert values(attributes(probe), probe) == {"`cap`": cap}
    assert values(relative(probe), probe) == {"`cap` over its default 30.0": cap / 30.0}


def test_tuples_give_their_entries_and_product():
    probe, *_ = probes("avg_pool_2d", changed("avg_pool_2d"))
    found = values(attributes(probe), probe)
    high, wide = probe.attrs["kernel"]
    assert found["`kernel[0]`"] == high
    assert found["`kernel[1]`"] == wide
    assert found["the product of `kernel`"] == high * wide
    assert all(q.count for q in attributes(probe) if "kernel" in q.words)


def test_lengths_along_named_axes():
    found = probes("mean", changed("mean"))
    probe = next(p for p in found if isinstance(p.attrs["axis"], tuple))
    lengths = [probe.primal("x").shape[k] for k in probe.attrs["axis"]]
    assert values(along(probe, "x"), probe) == {
        "the length along all of `axis` but the last": math.prod(lengths[:-1]),
        "the length along all of `axis` but the first": math.prod(lengths[1:]),
    }
