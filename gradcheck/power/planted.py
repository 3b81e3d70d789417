"""A planted fault as an implementation of its model."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from gradcheck.implementations.bound import BoundModel
from gradcheck.numerics.arithmetic import FLOATS
from gradcheck.spec.fault import Fault
from gradcheck.spec.model import ModelCase
from gradcheck.spec.program import Values


@dataclass(frozen=True, slots=True)
class Planted:
    """An implementation of a fault's model: stage by stage, or `whole`, as end-to-end gradients.

    Where it stands `alone`, no stage is bound but those at fault.
    """

    fault: Fault
    whole: bool = False
    alone: bool = False

    @property
    def name(self) -> str:
        """The fault's."""
        return self.fault.full_name

    def bind_model(self, case: ModelCase, dtype: str) -> BoundModel | None:
        """The wrong backward pass; nothing for other models and dialects."""
        fault = self.fault
        if case.spec.name != fault.model or not fault.of_dialect(case.dialect.name):
            return None
        xp, program = FLOATS[dtype], case.program
        vjp = fault.vjp(xp)
        if not self.whole:
            others = None if self.alone else vjp
            return BoundModel(stage=lambda stage: vjp if stage.name in fault.stages else others)

        def gradients(params: Values, inputs: Values) -> dict[str, Any]:
            with np.errstate(all="ignore"):
                values = program.forward(xp, {**params, **inputs})
                found = program.backward(xp, values, xp.asarray(1.0), vjp)
            return {name: found[name] for name in program.params if name in found}

        return BoundModel(gradients=gradients)
