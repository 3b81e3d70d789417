"""Bugs to plant: in numbers, as in any model, and those that only a sharded model has."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from benchmarks.sharded.model import Shard

BUGS: Final = {
    "element": "one element is 10% too large",
    "shard": "one worker's part of a tensor is 10% too large",
    "tensor": "every worker's part of a tensor has the wrong sign",
    "nan": "one element is no number",
    "replica-not-summed": "the gradient of a replicated tensor stays each rank's own part",
    "rank-counted-twice": "one rank's part enters that sum twice",
    "mean-for-sum": "that sum is divided by the number of ranks",
    "bias-summed-twice": "a gradient that every rank has whole is summed over the ranks",
    "cotangent-not-summed": "a layer's cotangent stays each rank's own part",
    "mask-of-its-own": "every rank draws its own dropout mask",
    "replica-of-its-own": "every rank draws its own replica of a tensor",
}
IN_NUMBERS: Final = ("element", "shard", "tensor", "nan")
"""Those that are planted in a gradient that is right; the others are in the model's code."""


@dataclass(frozen=True, slots=True)
class Plant:
    """Which bug, and for those in numbers: in which tensor, at which worker, at which element.

    `index` counts from the worker's own first element.
    """

    bug: str = ""
    tensor: str = ""
    worker: int = -1
    index: int = 0

    @property
    def in_the_model(self) -> str:
        """The bug if the model's code has it, else an empty string."""
        return "" if self.bug in IN_NUMBERS else self.bug

    def into(self, shard: Shard) -> None:
        """Change the gradients of a worker, if it is the one."""
        if self.bug not in IN_NUMBERS or self.tensor not in shard.gradients:
            return
        flat = shard.gradients[self.tensor].reshape(-1)
        if self.bug == "tensor":
            flat *= -1
        elif self.worker == shard.worker:
            if self.bug == "shard":
                flat *= 1.1
            else:
                flat[self.index] *= 1.1 if self.bug == "element" else float("nan")
