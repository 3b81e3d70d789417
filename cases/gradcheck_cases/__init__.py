"""The built-in conformance suite: one module per operator family."""

from __future__ import annotations

from gradcheck.suite import Suite
from gradcheck_cases import (
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
    optimizer,
    position,
    recurrent,
    reduction,
    shape,
)
from gradcheck_cases.models import MODELS

FAMILIES = (
    indexing,
    shape,
    linear,
    norm,
    reduction,
    position,
    attention,
    elementwise,
    activation,
    gated,
    convolution,
    recurrent,
    moe,
    loss,
)
"""In the order in which reports show them."""

SUITE = Suite(
    "builtin",
    "2026.11",
    [spec for family in FAMILIES for spec in family.OPERATORS],
    peers={
        "torch": "gradcheck_cases.peers.torch:COUNTERPARTS",
        "jax": "gradcheck_cases.peers.jax:OPERATORS",
    },
    mutants="gradcheck_cases.mutants:MUTANTS",
    models=MODELS,
    faults="gradcheck_cases.faults:FAULTS",
    contract_mutants="gradcheck_cases.mutants.contract:MUTANTS",
    rules=optimizer.RULES,
    rule_mutants="gradcheck_cases.mutants.optimizer:RULE_MUTANTS",
)

__all__ = ["SUITE"]
