"""How long a case takes to judge, roughly: enough to begin with the long ones."""

from __future__ import annotations

from gradcheck.model import ModelCase
from gradcheck.plan import AnyCase, Plan


def seconds(plan: Plan, case: AnyCase) -> float:
    """What all that a plan asks about a case takes on one core."""
    return 1.0 if isinstance(case, ModelCase) else 0.01
