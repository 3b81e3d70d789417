"""The tools that are compared: each judges the same hand-written VJP, with its own defaults."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib.util import find_spec
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:  # a peer's process imports nothing before its clock runs
    from benchmarks.planted import Planted
    from benchmarks.workloads import Workload

Check = Callable[[], bool]
"""One check, ready to be timed: whether the gradient is accepted."""


class Adapter(Protocol):
    """A tool in its own process. A module of this package offers one as `NAME(variant)`."""

    def __init__(self, variant: str) -> None:
        """Import what the tool needs; what this takes is its import time."""

    def prepare(self, workload: Workload, seed: int, planted: Planted | None) -> Check:
        """Inputs of a seed and the gradient, with an error or without, ready to be judged."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Peer:
    """One column of the comparison: a tool in one of its modes.

    `module` of this package has the `Adapter`; `needs` are the packages to be installed; `says`
    is how it accepts, for the reader; `only` names the workloads that it is for (none: all); `own`,
    that it differentiates the forward by itself and judges that, so that nothing can be planted.
    """

    key: str
    name: str
    module: str
    variant: str = ""
    needs: tuple[str, ...] = ()
    says: str = ""
    only: tuple[str, ...] = ()
    own: bool = False
    memory: int = 0
    """Bytes of address space that it may take; 0, no limit."""

    @property
    def absent(self) -> tuple[str, ...]:
        """What of its packages is not installed here."""
        return tuple(package for package in self.needs if find_spec(package) is None)

    def takes(self, workload: str) -> bool:
        """Whether it is asked about a workload."""
        return not self.only or workload in self.only


ENOUGH = 6 << 30
PEERS = {
    peer.key: peer
    for peer in (
        Peer(key="projection", name="gradcheck, projection", module="ours",
             variant="projection", says="check(f, vjp, *primals): its own error bar; rtol 1e-8"),
        Peer(key="full", name="gradcheck, full", module="ours", variant="full",
             says="check(…, full=True): every element with its own error bar; rtol 1e-8"),
        Peer(key="model", name="gradcheck, check_model", module="ours", variant="model",
             only=("gpt",), says="check_model: every tensor by slopes of the loss"),
        Peer(key="torch-fast", name="torch, fast_mode", module="pytorch", variant="fast",
             needs=("torch",), says="gradcheck(…, fast_mode=True): eps 1e-6, rtol 1e-3, atol 1e-5"),
        Peer(key="torch-slow", name="torch, slow", module="pytorch", variant="slow",
             needs=("torch",), says="gradcheck(…): the whole Jacobian, the same numbers"),
        Peer(key="torch-own", name="torch, fast_mode, own graph", module="pytorch",
             variant="own", needs=("torch",), own=True, says="the same call on autograd's graph"),
        Peer(key="jax", name="jax check_grads", module="jax_numpy", needs=("jax",),
             says='check_grads(f, args, order=1, modes=["rev"]) on jitted functions, x64'),
        Peer(key="autograd", name="autograd check_grads", module="hips", needs=("autograd",),
             says='check_grads(f, argnums, modes=["rev"], order=1): eps 1e-6, rtol or atol 1e-6'),
        Peer(key="autograd-own", name="autograd check_grads, own graph", module="hips",
             variant="own", needs=("autograd",), own=True, says="the same call on its own graph"),
        Peer(key="numdifftools", name="numdifftools", module="differences",
             variant="numdifftools", needs=("numdifftools",), memory=ENOUGH,
             says="Gradient of ⟨v, f⟩, then np.allclose: rtol 1e-5, atol 1e-8"),
        Peer(key="differentiate", name="scipy.differentiate", module="differences",
             variant="differentiate", needs=("scipy",), memory=ENOUGH,
             says="jacobian of ⟨v, f⟩, then np.allclose: rtol 1e-5, atol 1e-8"),
        Peer(key="check_grad", name="scipy check_grad", module="differences",
             variant="check_grad", needs=("scipy",), memory=ENOUGH,
             says="scipy.optimize.check_grad of ⟨v, f⟩: accepted up to 1e-8 + 1e-4·‖gradient‖"),
    )
}  # fmt: skip
