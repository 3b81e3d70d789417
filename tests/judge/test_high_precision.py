"""Forward in 50 digits: what it is where it refuses, and where it is another function."""

import numpy as np
import pytest

from gradcheck import check
from gradcheck.judge.high_precision import HighPrecisionForward
from gradcheck.results.verdict import Verdict

X = np.array([0.3, -1.7])


def refuses(x):
    if type(x) is not np.ndarray:
        raise TypeError("arrays only")
    return np.ones(2)


def other(x):
    return np.ones(2) if type(x) is np.ndarray else x


@pytest.mark.parametrize(
    ("forward", "differs", "verdict"),
    [(refuses, False, Verdict.PASS), (other, True, Verdict.INCONCLUSIVE)],
)
def test_a_forward_that_refuses_50_digits_is_not_said_to_differ_there(forward, differs, verdict):
    """A gradient of zeros passes by its own constant values; not where 50 digits gainsay them."""
    big = HighPrecisionForward(forward, (X,), {}, (forward(X),))
    assert big.slopes(0, np.arange(2)) is None
    assert big.refusal
    assert big.differs is differs
    assert check(forward, lambda ct, x: np.zeros_like(x), X, full=True).verdict is verdict
