"""Whoever rounds to a narrower type fails, unless that changes nothing."""

import numpy as np
import pytest

from benchmarks.narrow import DTYPES, PRIMALS, narrow_rows, subjects
from gradcheck import check
from gradcheck.numerics.arrays import as_tuple

NOTHING = "changes no bit of any gradient"


@pytest.mark.suite(rest=0)
@pytest.mark.parametrize("name", ["matmul", "silu", "softmax", "half_square"])
def test_what_rounds_fails_at_full_and_at_short_mantissas(name):
    rows = list(narrow_rows([name], modes=["projection"]))
    assert len(rows) == 2 * 5 * (4 + 3)
    passed = [row for row in rows if row.verdict != "FAIL"]
    assert [row for row in passed if row.reason != NOTHING] == []
    assert len(passed) <= 2 * (
        4 + 3
    )  # of two of the five places at most, there is nothing to round


@pytest.mark.suite
@pytest.mark.parametrize("name", ["cross_entropy"])
def test_so_it_does_by_every_element(name):
    rows = list(narrow_rows([name], modes=["full"]))
    assert [row for row in rows if row.verdict != "FAIL" and row.reason != NOTHING] == []


@pytest.mark.slow(keep=1)
@pytest.mark.parametrize("dtype", DTYPES)
def test_right_kernels_pass_without_a_note(dtype):
    for subject in subjects():

        def vjp(ct, *primals, subject=subject):
            out = tuple(np.asarray(g).astype(dtype) for g in as_tuple(subject.vjp(ct, *primals)))
            return out if len(out) > 1 else out[0]

        for seed in range(3):
            for kind in PRIMALS:
                primals = subject.primals(seed, dtype, kind)
                found = check(subject.forward, vjp, *primals, seed=seed)
                assert found.ok, str(found)
                assert not any(finding.reason for finding in found.findings)
