"""The built-in conformance suite: one module per operator family, imported when it is asked for."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gradcheck.spec.lazy_specs import Families
from gradcheck.spec.suite import Suite

if TYPE_CHECKING:
    from gradcheck.spec import ModelSpec, OpSpec, RuleSpec

FAMILIES = (
    *("indexing", "shape", "linear", "norm", "reduction", "position", "attention"),
    *("elementwise", "activation", "gated", "convolution", "recurrent", "moe", "loss"),
)
"""The modules of operators, in the order in which reports show them."""
_MODELS = ("quadratic", "linear_regression", "svm", "gemma", "llama", "gpt2", "baby_llama", "mnist")

OPERATORS: Families[OpSpec] = Families.written_in(__name__, FAMILIES, "OpSpec")
MODELS: Families[ModelSpec] = Families.written_in(
    __name__, [f"models.{name}" for name in _MODELS], "ModelSpec"
)
RULES: Families[RuleSpec] = Families.written_in(__name__, ["optimizer"], "RuleSpec")

SUITE = Suite(
    "builtin",
    "2026.11.1",
    OPERATORS,
    peers={
        "torch": "gradcheck_cases.peers.torch:COUNTERPARTS",
        "jax": "gradcheck_cases.peers.jax:OPERATORS",
    },
    mutants={op: f"{__name__}.mutants.{family}:MUTANTS" for op, family in OPERATORS.homes.items()},
    models=MODELS,
    faults="gradcheck_cases.faults:FAULTS",
    contract_mutants="gradcheck_cases.mutants.contract:MUTANTS",
    rules=RULES,
    rule_mutants="gradcheck_cases.mutants.optimizer:RULE_MUTANTS",
)

__all__ = ["SUITE"]
