"""Primals beside the given ones, as far away as rounding to a narrower type may take them."""

from types import SimpleNamespace

import numpy as np
import pytest

from gradcheck.judge.narrowing import Narrowed
from gradcheck.numerics.narrow import narrower


@pytest.mark.parametrize("kept", narrower("float64"), ids=lambda kept: kept.name)
def test_each_number_lies_a_unit_of_the_type_away_and_an_index_stays(kept):
    x, index = np.array([1.0, -3.0, 0.0, 1e6]), np.array([2, 1])
    moved, same = Narrowed._beside(SimpleNamespace(primals=[x, index]), kept)
    np.testing.assert_allclose(np.abs(moved - x), 2.0**-kept.bits * np.abs(x), rtol=1e-6)
    assert same is index
