"""Specs: operators, programs, models and update rules as frozen data that checks itself.

In: literals in case files. Out: a `Suite` whose cases judges read. Nothing here evaluates a
gradient. Suite authors import from here; the names load on first use.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gradcheck.numerics.arrays import Attrs, as_tuple
    from gradcheck.spec.model import ModelSpec, Size
    from gradcheck.spec.mutant import Mutant, mutant_table
    from gradcheck.spec.operator import (
        DEFAULT,
        DIRECTIONAL,
        Array,
        Convention,
        Dialect,
        Kink,
        OpSpec,
        Sample,
        Slack,
    )
    from gradcheck.spec.program import Program, Stage
    from gradcheck.spec.rule import RuleSpec, Steps
    from gradcheck.spec.suite import Suite

_HOME = {
    "Array": "gradcheck.spec.operator",
    "Attrs": "gradcheck.numerics.arrays",
    "Convention": "gradcheck.spec.operator",
    "DEFAULT": "gradcheck.spec.operator",
    "DIRECTIONAL": "gradcheck.spec.operator",
    "Dialect": "gradcheck.spec.operator",
    "Kink": "gradcheck.spec.operator",
    "ModelSpec": "gradcheck.spec.model",
    "Mutant": "gradcheck.spec.mutant",
    "OpSpec": "gradcheck.spec.operator",
    "Program": "gradcheck.spec.program",
    "RuleSpec": "gradcheck.spec.rule",
    "Sample": "gradcheck.spec.operator",
    "Size": "gradcheck.spec.model",
    "Slack": "gradcheck.spec.operator",
    "Stage": "gradcheck.spec.program",
    "Steps": "gradcheck.spec.rule",
    "Suite": "gradcheck.spec.suite",
    "as_tuple": "gradcheck.numerics.arrays",
    "mutant_table": "gradcheck.spec.mutant",
}

__all__ = [
    "DEFAULT",
    "DIRECTIONAL",
    "Array",
    "Attrs",
    "Convention",
    "Dialect",
    "Kink",
    "ModelSpec",
    "Mutant",
    "OpSpec",
    "Program",
    "RuleSpec",
    "Sample",
    "Size",
    "Slack",
    "Stage",
    "Steps",
    "Suite",
    "as_tuple",
    "mutant_table",
]


def __getattr__(name: str) -> object:
    """Import a public name where it lives, the first time that it is asked for."""
    if name in _HOME:
        found: object = getattr(import_module(_HOME[name]), name)
        globals()[name] = found
        return found
    raise AttributeError(f"module 'gradcheck.spec' has no attribute {name!r}")
