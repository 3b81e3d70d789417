"""Wrong backward passes, one module per operator family: what the suite's samples must reject."""

from __future__ import annotations

from gradcheck.spec.mutant import Mutant
from gradcheck_cases.mutants import (
    activation,
    attention,
    convolution,
    elementwise,
    gated,
    indexing,
    linear,
    loss,
    moe,
    norm,
    position,
    recurrent,
    reduction,
    shape,
)

MUTANTS: tuple[Mutant, ...] = (
    *indexing.MUTANTS,
    *shape.MUTANTS,
    *linear.MUTANTS,
    *norm.MUTANTS,
    *reduction.MUTANTS,
    *position.MUTANTS,
    *attention.MUTANTS,
    *elementwise.MUTANTS,
    *activation.MUTANTS,
    *gated.MUTANTS,
    *convolution.MUTANTS,
    *recurrent.MUTANTS,
    *moe.MUTANTS,
    *loss.MUTANTS,
)
