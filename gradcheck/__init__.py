"""Judge hand-written backward passes against the true derivative.

The public names load on first use, so that `gradcheck --help` does not import NumPy. Nothing is
imported here: `python -m gradcheck` comes here while the working directory is first on the path.
"""

TYPE_CHECKING = False  # as type checkers know it, without importing `typing`
if TYPE_CHECKING:
    from gradcheck.binding.jax_op import jax_op
    from gradcheck.binding.torch_op import torch_op
    from gradcheck.errors import GradcheckError, Unsupported
    from gradcheck.finding import Finding
    from gradcheck.library import Result, assert_vjp, check
    from gradcheck.library_model import check_model
    from gradcheck.model import ModelSpec, Size
    from gradcheck.power.mutant import Mutant
    from gradcheck.program import Program, Stage
    from gradcheck.spec import Convention, Dialect, Kink, OpSpec, Sample, Slack
    from gradcheck.suite import Suite
    from gradcheck.testing.failure import CheckFailed
    from gradcheck.testing.inputs import away, drawn, integers, normal, positive, uniform
    from gradcheck.testing.parametrize import case, cases_of
    from gradcheck.verdict import Verdict

__version__ = "0.1.0"

_HOME = {
    "CheckFailed": "gradcheck.testing.failure",
    "Convention": "gradcheck.spec",
    "Dialect": "gradcheck.spec",
    "Finding": "gradcheck.finding",
    "GradcheckError": "gradcheck.errors",
    "Kink": "gradcheck.spec",
    "ModelSpec": "gradcheck.model",
    "Mutant": "gradcheck.power.mutant",
    "OpSpec": "gradcheck.spec",
    "Program": "gradcheck.program",
    "Result": "gradcheck.library",
    "Sample": "gradcheck.spec",
    "Size": "gradcheck.model",
    "Slack": "gradcheck.spec",
    "Stage": "gradcheck.program",
    "Suite": "gradcheck.suite",
    "Unsupported": "gradcheck.errors",
    "Verdict": "gradcheck.verdict",
    "assert_vjp": "gradcheck.library",
    "away": "gradcheck.testing.inputs",
    "case": "gradcheck.testing.parametrize",
    "cases_of": "gradcheck.testing.parametrize",
    "check": "gradcheck.library",
    "check_model": "gradcheck.library_model",
    "drawn": "gradcheck.testing.inputs",
    "integers": "gradcheck.testing.inputs",
    "jax_op": "gradcheck.binding.jax_op",
    "normal": "gradcheck.testing.inputs",
    "positive": "gradcheck.testing.inputs",
    "torch_op": "gradcheck.binding.torch_op",
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
