"""A kernel that rounds to TF32 fails at the points that a test is given."""

import pytest

KERNELS = """
import numpy as np

def mul(x, y): return x * y
def tf32(x):
    bits = np.ascontiguousarray(x).view(np.uint32)
    return ((bits + 0x0fff + ((bits >> 13) & 1)) & ~np.uint32(0x1fff)).view(np.float32)
def right(ct, x, y): return ct * y, ct * x
def operands(ct, x, y): return ct * tf32(y), ct * tf32(x)
def cotangent(ct, x, y): return tf32(ct) * y, tf32(ct) * x
"""
TESTS = """
import gradcheck
import kernels
import pytest

BOTH = dict(x=gradcheck.normal(3, 4), y=gradcheck.uniform(1, 2, 3, 4), dtypes="float32")
SUITE = dict(suite="gradcheck_cases:SUITE", samples="typical", dtypes="float32")

@pytest.mark.parametrize("name", ["right", "operands", "cotangent"])
@gradcheck.case(**BOTH)
def test_own(case, name):
    case.check(kernels.mul, getattr(kernels, name))

@pytest.mark.parametrize("name", ["right", "operands", "cotangent"])
@gradcheck.cases_of("mul/same-shape", **SUITE)
def test_suite(case, name):
    case.check(vjp=getattr(kernels, name))
"""


@pytest.mark.slow
def test_tf32_fails_at_points_of_ones_own_and_of_the_suite(pytest_, folder):
    (folder / "pytest.ini").write_text("[pytest]\npythonpath = .\n")
    (folder / "test_mul.py").write_text(TESTS)
    found = pytest_("-rA")
    assert found.returncode == 1
    ended = [
        x.split(" ", 2)[:2] for x in found.stdout.splitlines() if x[:6] in ("PASSED", "FAILED")
    ]
    assert len(ended) == 6
    assert {(word == "PASSED") for word, item in ended if "right" in item} == {True}
    assert {(word == "PASSED") for word, item in ended if "right" not in item} == {False}
