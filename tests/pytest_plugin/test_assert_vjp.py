"""What pytest shows of a failing `assert_vjp`: the user's line, and the failure."""

import pytest

KERNELS = """
import numpy as np
from gradcheck import assert_vjp

def swish(x):
    return x / (1 + np.exp(-x))

def swish_vjp(ct, x):
    return ct / (1 + np.exp(-x))

X = np.random.default_rng(0).normal(size=(3, 4))
"""
TESTS = {
    "wrong": ("swish, swish_vjp, X", "AssertionError: FAIL swish_vjp"),
    "text": ("swish, swish_vjp, 'a'", "gradcheck.errors.UsageError: primal 0 is <U1: "),
    "keyword": ("swish, swish_vjp, X, eps=1", "TypeError: assert_vjp() got an unexpected keyword"),
    "half": ("swish, X", "gradcheck.errors.UsageError: swish, a function, does not have both"),
}
MAX_LINES = 12
"""From the test's first line to the place of the failure."""


@pytest.mark.parametrize("name", TESTS)
def test_the_traceback_ends_at_the_users_line(pytest_, folder, name):
    arguments, said = TESTS[name]
    lines = [*KERNELS.splitlines(), f"def test_{name}():", f"    assert_vjp({arguments})"]
    (folder / "test_it.py").write_text("\n".join(lines))
    found = pytest_("test_it.py", "-p", "no:cacheprovider")
    assert found.returncode == 1
    shown = found.stdout.partition(f"    def test_{name}():\n")[2].partition("\n=====")[0]
    first, second, *_ = shown.splitlines()
    assert first == f">   {lines[-1]}"
    assert second.startswith(f"E       {said}")
    assert shown.splitlines()[-1].startswith(f"test_it.py:{len(lines)}: ")
    assert "/gradcheck/" not in shown
    assert len(shown.splitlines()) < MAX_LINES
