"""JAX over the same operators: a second framework's code that nobody here wrote."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from gradcheck.errors import LoadError
from gradcheck.implementations.bound import Bound, BoundModel, BoundRule
from gradcheck.implementations.jax_op import JaxOp, imported_jax
from gradcheck.implementations.keywords import entry_of, peers
from gradcheck.spec.model import ModelCase
from gradcheck.spec.rule import RuleCase
from gradcheck.spec.suite import Case

QUICKLY: Final = {
    "xla_cpu_use_fusion_emitters": False,
    "xla_cpu_parallel_codegen_split_count": 1,
    "xla_backend_optimization_level": 0,
    "xla_llvm_disable_expensive_passes": True,
}
"""Each case has shapes of its own, and is compiled to run a few times on a few numbers. With these
options compiling takes a fifth of its time (22 ms a case, not 119); operation by operation, without
compiling the whole, a case takes 750 ms."""


class Jax:
    """`--impl jax`: tables of functions of JAX's arrays, differentiated by `jax.vjp`.

    Raises:
        LoadError: JAX is not installed, or no suite has a table for it.
    """

    name = "jax"

    def __init__(self, references: Sequence[str]) -> None:
        """Import JAX and the tables at "module:NAME"."""
        try:
            self.options = _quickly(imported_jax())
        except ImportError as error:
            raise LoadError("--impl jax: JAX is not installed; run `pip install jax`") from error
        self.table = peers("jax", "JAX", references)

    def bind(self, case: Case, dtype: str) -> Bound | None:
        """The counterpart of `op/dialect`, else of `op`."""
        function, _ = entry_of(self.table, case)
        if function is None:
            return None
        op = JaxOp(name="jax", function=function, jit=True, options=self.options, fused=True)
        return Bound(vjp=op.vjp, forward=op.forward, attrs=case.attrs, asked=op.asked)

    def bind_model(self, case: ModelCase, dtype: str) -> BoundModel | None:
        """There are no models of its own yet."""
        return None

    def bind_rule(self, case: RuleCase, dtype: str) -> BoundRule | None:
        """There are no update rules of its own yet."""
        return None


def _quickly(jax: Any) -> dict[str, Any]:
    """`QUICKLY`, if this version of JAX knows all of it; else nothing."""
    try:
        jax.jit(lambda x: x, compiler_options=QUICKLY)(0)
    except Exception:  # noqa: BLE001  how an unknown option is refused differs between versions
        return {}
    return QUICKLY
