"""Mutants of the operators in `gradcheck_cases.position`."""

from __future__ import annotations

from gradcheck.power.mutant import Mutant

MUTANTS: tuple[Mutant, ...] = ()
