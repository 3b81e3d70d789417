"""Judge hand-written backward passes against the true derivative.

The public names load on first use, so that `gradcheck --help` does not import NumPy. Only built-in
modules are imported: `python -m gradcheck` comes here while the working directory is first on the
path.
"""

import sys

from gradcheck.former_names import FormerNames

TYPE_CHECKING = False  # as type checkers know it, without importing `typing`
if TYPE_CHECKING:
    from gradcheck.api.check import Result, assert_vjp, check
    from gradcheck.api.model import check_model
    from gradcheck.errors import GradcheckError, Unsupported
    from gradcheck.implementations.jax import jax_op
    from gradcheck.implementations.torch_op import torch_op
    from gradcheck.results.finding import Finding
    from gradcheck.results.verdict import Verdict
    from gradcheck.spec.model import ModelSpec, Size
    from gradcheck.spec.mutant import Mutant
    from gradcheck.spec.operator import Convention, Dialect, Kink, OpSpec, Sample, Slack
    from gradcheck.spec.program import Program, Stage
    from gradcheck.spec.suite import Suite
    from gradcheck.testing.failure import CheckFailed
    from gradcheck.testing.inputs import away, drawn, integers, normal, positive, uniform
    from gradcheck.testing.parametrize import case, cases_of

__version__ = "0.1.0"

sys.meta_path.append(FormerNames())

_HOME = {
    "CheckFailed": "gradcheck.testing.failure",
    "Convention": "gradcheck.spec.operator",
    "Dialect": "gradcheck.spec.operator",
    "Finding": "gradcheck.results.finding",
    "GradcheckError": "gradcheck.errors",
    "Kink": "gradcheck.spec.operator",
    "ModelSpec": "gradcheck.spec.model",
    "Mutant": "gradcheck.spec.mutant",
    "OpSpec": "gradcheck.spec.operator",
    "Program": "gradcheck.spec.program",
    "Result": "gradcheck.api.check",
    "Sample": "gradcheck.spec.operator",
    "Size": "gradcheck.spec.model",
    "Slack": "gradcheck.spec.operator",
    "Stage": "gradcheck.spec.program",
    "Suite": "gradcheck.spec.suite",
    "Unsupported": "gradcheck.errors",
    "Verdict": "gradcheck.results.verdict",
    "assert_vjp": "gradcheck.api.check",
    "away": "gradcheck.testing.inputs",
    "case": "gradcheck.testing.parametrize",
    "cases_of": "gradcheck.testing.parametrize",
    "check": "gradcheck.api.check",
    "check_model": "gradcheck.api.model",
    "drawn": "gradcheck.testing.inputs",
    "integers": "gradcheck.testing.inputs",
    "jax_op": "gradcheck.implementations.jax",
    "normal": "gradcheck.testing.inputs",
    "positive": "gradcheck.testing.inputs",
    "torch_op": "gradcheck.implementations.torch_op",
    "uniform": "gradcheck.testing.inputs",
}

__all__ = [
    "CheckFailed",
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
    "away",
    "case",
    "cases_of",
    "check",
    "check_model",
    "drawn",
    "integers",
    "jax_op",
    "normal",
    "positive",
    "torch_op",
    "uniform",
]


def __getattr__(name: str) -> object:
    """Import a public name where it lives, the first time that it is asked for."""
    if name in _HOME:
        from importlib import import_module

        found: object = getattr(import_module(_HOME[name]), name)
        globals()[name] = found
        return found
    raise AttributeError(f"module 'gradcheck' has no attribute {name!r}")


def __dir__() -> list[str]:
    """The public names."""
    return [*__all__, "__version__"]
