"""Counts and attributes by names that hold at every point."""

import math

import numpy as np
import pytest

from gradcheck.explain.hypotheses.factor_names import along, attributes, counts, relative
from tests.explain.scenes import changed, probes


def values(quantities, probe):
    return {q.words: q.of(probe) for q in quantities}


@pytest.fixture(scope="module")
def matmul():
    return probes("matmul", changed("matmul"))


def test_counts_of_primals_and_outputs(matmul):
    found = values(counts(matmul[0], "b"), matmul[0])  # (3, 5) by (7, 5), a bias of 7
    assert found["the number of rows of x"] == 3
    assert found["the number of elements of w"] == 35
    assert found["the length of w's last axis"] == 5
    assert found["the number of elements of the output for each of b"] == 3
    assert found["the length of x's axis -2"] == 3


def test_a_name_holds_at_every_shape(matmul):
    rows = next(q for q in counts(matmul[0], "b") if q.words == "the number of rows of x")
    for probe in matmul:
        assert rows.of(probe) == math.prod(probe.primal("x").shape[:-1])


def test_what_does_not_exist_has_no_value(matmul):
    batched = next(p for p in matmul if p.primal("x").ndim == 3)
    deep = next(q for q in counts(batched, "b") if q.words == "the length of x's axis -3")
    assert deep.of(batched) == 2
    assert deep.of(matmul[0]) is None


def test_no_count_is_a_fraction(matmul):
    """There is no "number of elements of b for each of the output"."""
    assert values(counts(matmul[0], "b"), matmul[0])[
        "the number of elements of b for each of the output"
    ] is None  # fmt: skip


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
