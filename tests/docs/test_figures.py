"""Figures of the site: measured, and what their captions say of them is so."""

import numpy as np
import pytest

pytestmark = pytest.mark.slow

curve = pytest.importorskip("_pages.curve")


@pytest.mark.parametrize("name", ["gelu/erf/typical", "rms_norm/plain/unsolved"])
def test_the_curve_is_a_v_and_the_value_taken_is_within_its_bar(name):
    found = curve.measured(name)
    best = int(np.nanargmin(found.errors))
    assert 3 < best < len(found.steps) - 3
    assert found.errors[0] > 1e6 * found.errors[best]
    assert np.nanmax(found.errors[best:]) > 1e3 * found.errors[best]
    assert np.nanmin(found.extrapolated) < found.errors[best]
    assert found.chosen <= found.bar <= found.errors[best]


def test_a_common_step_is_wrong_near_zero_and_float32_is_blunt():
    near = curve.measured("rms_norm/plain/unsolved")
    at = int(np.argmin(np.abs(np.log(near.steps / 1e-4))))
    assert near.errors[at] > 1e-3
    assert np.nanmin(curve.measured("gelu/erf/typical", dtype="float32").errors) > 1e-8


def test_the_same_picture_every_time():
    first = curve.ordinary()
    curve.measured.cache_clear()
    assert curve.ordinary() == first
    assert first.count("<polyline") == 4
    assert "nan" not in first
