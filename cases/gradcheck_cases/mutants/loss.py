"""Mutants of the operators in `gradcheck_cases.loss`."""

from __future__ import annotations

from gradcheck.power.mutant import Mutant

MUTANTS: tuple[Mutant, ...] = ()
