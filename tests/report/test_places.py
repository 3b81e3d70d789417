"""The slices that are wrong: all of each, and nothing else."""

import itertools
import math

import numpy as np
import pytest

from gradcheck.report import failure_text
from gradcheck.report.heat import MAX_SLICES, slices, unravelled
from gradcheck.results.finding import Part
from gradcheck.results.verdict import Verdict


def marked(make, shape, parts, glyph="5"):
    """A map of a gradient of `shape` in which slices are wrong."""
    cells = np.full(shape, ".")
    for part in parts:
        cells[eval(f"np.s_{part}")] = glyph  # noqa: S307  what NumPy makes of it is the point
    flat = cells.reshape(-1, shape[-1])
    return make.heat(["".join(row) for row in flat], shape=shape)


@pytest.mark.parametrize(
    ("shape", "parts"),
    [
        ((5, 7), ["[2, :]"]),
        ((5, 7), ["[2:4, :]"]),
        ((5, 7), ["[:, 6]"]),
        ((5, 7), ["[2, :]", "[:, 6]"]),
        ((5, 7), ["[0, :]", "[4, :]", "[:, 1:3]", "[2, 5]"]),
        ((5, 7), ["[1, 3]", "[4, 0]"]),
        ((9,), ["[3:7]"]),
        ((9,), ["[0]", "[2]", "[5:9]"]),
        ((2, 3, 4), ["[1, 0, :]"]),
        ((2, 3, 4), ["[..., 2]"]),
        ((2, 3, 4), ["[0, 2, :]", "[..., 0]", "[1, 1, 3]"]),
        ((1, 4), ["[0, 1]"]),
        ((4, 1), ["[1, 0]", "[3, 0]"]),
    ],
)
@pytest.mark.parametrize("glyph", ["0", "!", "?"])
def test_slices_are_found_again(make, shape, parts, glyph):
    assert slices(marked(make, shape, parts, glyph)) == parts


@pytest.mark.parametrize("seed", range(40))
def test_what_is_said_is_what_is_wrong(make, seed):
    rng = np.random.default_rng(seed)
    shape = tuple(int(n) for n in rng.integers(1, 5, size=rng.integers(1, 4)))
    wrong = rng.random(shape) < rng.choice([0.1, 0.3, 0.9])
    if math.prod(shape) > 2 and rng.random() < 0.7:
        wrong[..., rng.integers(shape[-1])] = True
    cells = np.where(wrong, "7", ".").reshape(-1, shape[-1])
    found = slices(make.heat(["".join(row) for row in cells], shape=shape))
    again = np.zeros(shape, dtype=bool)
    for part in found:
        again[eval(f"np.s_{part}")] = True  # noqa: S307
    assert len(found) <= MAX_SLICES
    assert not found or np.array_equal(again, wrong)
    assert found or wrong.all() or not wrong.any() or wrong.sum() > MAX_SLICES or wrong.size == 1


@pytest.mark.parametrize(
    ("shape", "parts"),
    [
        ((5, 7), ["[:, :]"]),
        ((5, 7), []),
        ((5, 7), ["[0, 0]", "[1, 2]", "[2, 4]", "[3, 6]", "[4, 1]"]),
        ((1, 3), ["[0, :]"]),
    ],
)
def test_what_is_everything_or_too_much_is_not_said(make, shape, parts):
    assert slices(marked(make, shape, parts)) == []


def test_neither_blocks_nor_scalars_nor_nothing_have_slices(make):
    assert slices(make.heat(("1.", ".."), shape=(4, 4))) == []
    assert slices(make.heat(("1",), shape=())) == []
    assert slices(None) == []


def test_facts_name_them_where_no_diagnosis_does(make):
    def facts(**changes):
        plain = {"verdict": Verdict.FAIL, "heat": marked(make, (5, 7), ["[2, :]"])} | changes
        return dict(failure_text.facts(make.result(**plain)))

    assert facts()["where"] == "dx[2, :]"
    assert facts(diagnosis=make.why(""))["where"] == "dx[2, :]"
    assert "where" not in facts(diagnosis=make.why())
    assert "where" not in facts(verdict=Verdict.PASS)
    assert "where" not in facts(worst=())
    stage = make.of_model(
        "h.0.attn", Verdict.FAIL, part=Part.STAGE, heat=marked(make, (5, 7), ["[:, 1]"]),
        worst=(make.miss(tensor="h.0.qkv"),),
    )  # fmt: skip
    assert dict(failure_text.facts(stage))["where"] == "d h.0.qkv[:, 1]"


@pytest.mark.parametrize("shape", [(7,), (2, 3), (4, 3, 2), ()])
def test_an_index_is_found_from_its_place(shape):
    places = list(itertools.product(*map(range, shape)))
    assert [unravelled(k, shape) for k in range(len(places))] == places
