"""Names of numbers hold at every probe, names of arrays are those of the text."""

import math

import numpy as np
import pytest

from gradcheck.explain.trace.named import Number, candidates, factor_at, numbers
from gradcheck.explain.trace.run import Run
from tests.explain.scenes import scene


def twice(ct, x, w, *, eps, unit_offset):
    return 2 * x, 2 * w


@pytest.fixture(scope="module")
def run():
    return Run(scene("rms_norm", twice, "x").first, "x")


def says(run, value):
    return [(n.label, n.says) for n in numbers(run, value)]


def test_plain_numbers_come_first(run):
    assert says(run, 2.0)[0] == ("F", "2")
    assert says(run, 0.25)[-1] == ("F", "0.25")


def test_counts_are_named_by_the_axis(run):
    length = run.leaves["x"].value.shape[-1]
    found = next(n for n in numbers(run, 1 / length))
    assert (found.label, found.says) == ("R", "1/n")
    assert found.note == ", n being the length of axis -1 of ct"
    assert says(run, math.sqrt(length))[0] == ("F", "sqrt(n)")
    assert ("R", "n/(n - 1)") not in says(run, length)


def test_attributes_are_named(run):
    assert ("A", "eps") in says(run, run.probe.attrs["eps"])


def test_a_number_with_no_name_is_that_number(run):
    assert says(run, 0.7321) == [("F", "0.7321")]
    assert says(run, 1e9) == []


def test_every_name_gives_the_number(run):
    for value in (2.0, 1 / 7, 7.0, 0.7321):
        assert all(n.of(run) == pytest.approx(value) for n in numbers(run, value))


def test_arrays_are_named_once_and_the_shortest_first(run):
    found = candidates(run)
    assert {"ct", "x", "w", "r", "n"} <= {c.says for c in found}
    assert len({c.key for c in found}) == len(found)
    assert [len(c.says) for c in found] == sorted(len(c.says) for c in found)
    assert {c.says: c.flows for c in found}["ct"]
    assert not {c.says: c.flows for c in found}["r"]
    for candidate in found:
        np.testing.assert_array_equal(candidate.ref.on(run, 0), candidate.value)


def test_a_factor_must_fit_the_shape(run):
    rows = next(c for c in candidates(run) if c.says == "r")
    shape = run.leaves["x"].value.shape
    assert factor_at(rows, shape).shape == shape
    assert factor_at(rows, (shape[0] + 1, 2)) is None


def test_a_count_has_another_letter_where_its_own_is_quoted(run):
    length = run.leaves["x"].value.shape[-1]
    found = next(n for n in numbers(run, 1 / length))
    where = "being the length of axis -1 of ct"
    assert found.times("the term `x`") == f"1/n times the right value, n {where}"
    assert found.times("the term `n * x`") == f"1/N times the right value, N {where}"
    assert Number("n", "A", lambda run: 1.0).times("`n`") == "n times the right value"
