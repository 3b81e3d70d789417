import numpy as np
import pytest

from benchmarks.planted import Planted, plant, visible
from benchmarks.workloads import WORKLOADS, gradients


def test_one_element_is_changed_and_what_was_given_is_not():
    given = (np.ones((2, 3)), np.ones(4))
    found = Planted(output=1, index=2, factor=1.1).into(given)
    assert np.array_equal(found[0], given[0])
    assert found[1].tolist() == [1.0, 1.0, 1.1, 1.0]
    assert given[1].tolist() == [1.0] * 4


def test_a_bare_gradient_stays_bare_whatever_its_layout():
    given = np.asfortranarray(np.arange(1.0, 7.0).reshape(2, 3))
    found = Planted(output=0, index=1, factor=10.0).into(given)
    assert found.tolist() == [[1.0, 20.0, 3.0], [4.0, 5.0, 6.0]]


def test_what_no_output_depends_on_is_left_out():
    workload = WORKLOADS["attention"]
    q = visible(workload, 0, workload.primals(0))[0]
    at_first_position = np.arange(4 * 16 * 16).reshape(4, 16, 16)[:, 0]
    assert not np.isin(q, at_first_position).any()
    assert q.size == 4 * 15 * 16


@pytest.mark.parametrize("name", ["rms_norm", "attention", "gpt"])
def test_the_error_is_in_an_element_that_is_not_zero_and_moves_with_the_seed(name):
    workload = WORKLOADS[name]
    places = set()
    for seed in range(5):
        primals = workload.primals(seed)
        planted = plant(workload, seed, primals, 0.1)
        assert planted == plant(workload, seed, primals, 0.1)
        ct = np.random.default_rng(seed + 99).standard_normal(workload.forward(*primals).shape)
        right = gradients(workload, ct, primals)
        wrong = planted.into(right)
        changed = [np.flatnonzero(a != b) for a, b in zip(right, wrong, strict=True)]
        assert [c.size for c in changed].count(0) == len(changed) - 1
        assert changed[planted.output].tolist() == [planted.index]
        places.add((planted.output, planted.index))
    assert len(places) > 1
