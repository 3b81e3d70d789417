import numpy as np
import pytest

from benchmarks.floor import best_copy, scalar, sweep
from benchmarks.workloads import WORKLOADS, gradients


@pytest.mark.parametrize("name", ["rms_norm", "matmul", "cross_entropy"])
def test_a_contracted_workload_is_the_inner_product_and_keeps_copies_apart(name):
    workload = WORKLOADS[name]
    primals = workload.primals(1)
    one = scalar(workload, 1)
    value = one.forward(*primals)
    assert np.ndim(value) == 0
    np.testing.assert_allclose(value, np.vdot(one.v, workload.forward(*primals)), rtol=1e-12)
    found = one.vjp(np.asarray(2.0), *primals)
    for a, b in zip(
        found if isinstance(found, tuple) else (found,),
        gradients(workload, 2.0 * one.v, primals),
        strict=True,
    ):
        assert np.array_equal(a, b)
    copies = [np.stack([p, p + 1.0]) for p in primals]
    if name == "rms_norm":
        copies[1] = copies[1][:, None]
    both = one.forward(*copies)
    np.testing.assert_allclose(both[1], one.forward(*(p + 1.0 for p in primals)), rtol=1e-9)


def test_stacks_hold_copies_of_the_primal_that_moves():
    seen = []

    def forward(x, w):
        seen.append((x.shape, w.shape))
        return x * w

    primals = (np.ones((2, 3)), np.ones(3))
    assert best_copy(forward, primals, 1, ranked=False) >= 0
    assert {shapes[0] for shapes in seen} == {(1, 2, 3)}
    assert {shapes[1][1:] for shapes in seen} == {(1, 3)}
    assert max(shapes[1][0] for shapes in seen) == 2 * primals[1].size


def test_a_sweep_is_over_all_primals():
    assert sweep(WORKLOADS["rms_norm"], 0) > 0
