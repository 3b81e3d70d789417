"""Where a case is judged: how near a kink rounding may bring it."""

import numpy as np
import pytest

from gradcheck.judge.operator_truth import CaseTruth, Unsuitable
from gradcheck.spec import Kink, OpSpec, Sample
from gradcheck.spec.suite import Case


@pytest.mark.parametrize(("kink", "left"), [(32.17, 0.08), (32.2, 0.05)])
def test_rounding_may_take_half_of_the_distance_from_a_kink(kink, left):
    """32.37 is 32.25 in bfloat16, which is nearer: of the distance 1/8 there must be 1/16."""
    beside, on = (
        Sample(
            name=f"{x}", primals=lambda draw, x=x: (np.array([x]),), hunts="x", at_kink=x == kink
        )
        for x in (32.37, kink)
    )
    spec = OpSpec(
        name="bend", signature="()->()", formula="x", source="y", samples=(beside, on),
        forward=lambda xp, x: xp.abs(x - kink), vjp=lambda xp, ct, x: ct * xp.sign(x - kink),
        kinks=(Kink(name="bend", gap=lambda xp, x: xp.abs(x - kink), source="y"),),
    )  # fmt: skip
    bend = Case(spec, spec.dialects[0], beside, 0, "tests")
    if left > 1 / 16:
        assert CaseTruth.in_low(bend, "", "bfloat16").primals[0] == pytest.approx(kink + left)
        return
    with pytest.raises(Unsuitable, match="rounded to bfloat16"):
        CaseTruth.in_low(bend, "", "bfloat16")
