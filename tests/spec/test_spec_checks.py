import numpy as np
import pytest

from gradcheck.errors import SpecError
from gradcheck.spec.spec_checks import check_held


def test_values_are_those_that_float32_does_not_lose():
    check_held("relu/default/tiny", "x", np.array([0.5, -np.inf, 2.0**100]))
    check_held("relu/default/tiny", "x", np.array([1 / 3, 1 + 2.0**-30, 0.0, -0.0, 2.0**-149]))
    for values, nan in (([1e39], True), ([-1e39], True), ([2.0**-150], True), ([np.nan], False)):
        with pytest.raises(SpecError, match=r"^relu/default/tiny: float32 does not hold .* 'x'"):
            check_held("relu/default/tiny", "x", np.array(values), nan=nan)
    check_held("relu/default/tiny", "x", np.array([np.nan, 1.0]), nan=True)
