from types import SimpleNamespace

import numpy as np
import pytest

from gradcheck.judge.contract.linearity import zero


def test_nan_of_nothing_is_seen(subject, mutant):
    breach = zero(subject(mutant("normalises-dy")))
    assert breach.seen == "dx[0, 0] is nan"


def test_a_constant_term_is_seen(subject):
    biased = SimpleNamespace(
        vjp=lambda ct, x: -ct + np.where(x == x.max(), 1e-30, 0).astype(x.dtype)
    )
    breach = zero(subject(biased, "neg/default/typical"))
    assert "is 1e-30" in breach.seen


@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_right_ones_give_zeros(subject, right, dtype):
    assert zero(subject(right, dtype=dtype)) is None
    minus = SimpleNamespace(vjp=lambda ct, x: -ct)  # −0 is 0
    assert zero(subject(minus, "neg/default/typical", dtype)) is None
