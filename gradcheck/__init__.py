"""Judge hand-written backward passes against the true derivative.

The public names load on first use, so that `gradcheck --help` does not import NumPy.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gradcheck.binding.jax_op import jax_op
    from gradcheck.binding.torch_op import torch_op
    from gradcheck.errors import GradcheckError, Unsupported
    from gradcheck.finding import Finding
    from gradcheck.library import Result, assert_vjp, check
    from gradcheck.library_model import check_model
    from gradcheck.model import ModelSpec, Program, Size, Stage
    from gradcheck.power.mutant import Mutant
    from gradcheck.spec import Convention, Dialect, Kink, OpSpec, Sample, Slack
    from gradcheck.suite import Suite
    from gradcheck.verdict import Verdict

__version__ = "0.1.0"

_HOME = {
    "Convention": "gradcheck.spec",
    "Dialect": "gradcheck.spec",
    "Finding": "gradcheck.finding",
    "GradcheckError": "gradcheck.errors",
    "Kink": "gradcheck.spec",
    "ModelSpec": "gradcheck.model",
    "Mutant": "gradcheck.power.mutant",
    "OpSpec": "gradcheck.spec",
    "Program": "gradcheck.model",
    "Result": "gradcheck.library",
    "Sample": "gradcheck.spec",
    "Size": "gradcheck.model",
    "Slack": "gradcheck.spec",
    "Stage": "gradcheck.model",
    "Suite": "gradcheck.suite",
    "Unsupported": "gradcheck.errors",
    "Verdict": "gradcheck.verdict",
    "assert_vjp": "gradcheck.library",
    "check": "gradcheck.library",
    "check_model": "gradcheck.library_model",
    "jax_op": "gradcheck.binding.jax_op",
    "torch_op": "gradcheck.binding.torch_op",
}

__all__ = [
    "Convention",
    "Dialect",
    "Finding",
    "GradcheckError",
    "Kink",
    "ModelSpec",
    "Mutant",
    "OpSpec",
    "Program",
    "Result",
    "Sample",
    "Size",
    "Slack",
    "Stage",
    "Suite",
    "Unsupported",
    "Verdict",
    "assert_vjp",
    "check",
    "check_model",
    "jax_op",
    "torch_op",
]


def __getattr__(name: str) -> object:
    """Import a public name where it lives."""
    if name in _HOME:
        return getattr(import_module(_HOME[name]), name)
    raise AttributeError(f"module 'gradcheck' has no attribute {name!r}")


def __dir__() -> list[str]:
    """The public names."""
    return [*__all__, "__version__"]
