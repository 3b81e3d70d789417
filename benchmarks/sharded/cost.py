"""What a check of a sharded model costs, as formulas: messages, bytes, forwards, memory."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from benchmarks.sharded.layout import Layout
from benchmarks.sharded.wire import LENGTH, REPLY, REQUEST

EXCHANGE: Final = REQUEST.size + REPLY.size
"""Bytes of a request and its reply, whatever the model's size."""
FORWARDS: Final = 6
"""Forwards per tensor of a smooth loss in float64: three pairs."""
ONCE: Final = 2
"""Exchanges with those who hold a part of a tensor, beside one per direction that is drawn: what it
is like, and that it be put back."""


def pair(workers: int) -> int:
    """Bytes of one central pair: two forwards, of which every worker is told."""
    return 2 * workers * EXCHANGE


def tensor(told: int, holders: int, forwards: int = FORWARDS, draws: int = 1) -> int:
    """Bytes of the check of one tensor that passes.

    Args:
        told: workers that are told of a forward; `workers`, or fewer where a trainer starts it.
        holders: workers that hold a part of the tensor.
        forwards: of the whole model.
        draws: directions that were drawn until one was not orthogonal to the gradient.
    """
    return EXCHANGE * (told * forwards + holders * (ONCE + draws))


def forward(layout: Layout, itemsize: int) -> int:
    """Bytes that one forward sends between workers, check or no check."""
    ranks, x = layout.ranks, LENGTH.size + layout.batch * layout.width * itemsize
    return layout.layers * 2 * (ranks - 1) * x + (layout.stages - 1) * ranks * x


def backward(layout: Layout, itemsize: int) -> int:
    """Bytes that forming the gradient sends, with its forward."""
    gain = LENGTH.size + layout.width * itemsize
    return 2 * forward(layout, itemsize) + layout.layers * 2 * (layout.ranks - 1) * gain


def introduction(layout: Layout) -> int:
    """Bytes with which workers tell each other who they are."""
    ranks, stages = layout.ranks, layout.stages
    return 2 * (stages * (ranks - 1) + (stages - 1) * ranks)


@dataclass(frozen=True, slots=True)
class Projected:
    """The check of all tensors of a model that nobody has here."""

    layout: Layout
    itemsize: int

    @property
    def tensors(self) -> int:
        """How many are judged."""
        return len(self.layout.shapes)

    @property
    def forwards(self) -> int:
        """Of the whole model: for all tensors, and two to see that the loss is a function."""
        return 2 + FORWARDS * self.tensors

    @property
    def bytes(self) -> int:
        """Of the check, where every worker is told of every forward."""
        told, ranks = self.layout.workers, self.layout.ranks
        return 2 * told * EXCHANGE + self.tensors * tensor(told, ranks)

    @property
    def fewest_bytes(self) -> int:
        """The same, where only those are asked who hold a part, and the one with the loss."""
        ranks = self.layout.ranks
        return 2 * EXCHANGE + self.tensors * (tensor(ranks, ranks) + FORWARDS * EXCHANGE)

    @property
    def forward(self) -> int:
        """Bytes that one forward sends anyway."""
        return forward(self.layout, self.itemsize)

    @property
    def held(self) -> float:
        """Bytes of parameters per worker; gradients are as many again."""
        return self.layout.parameters * self.itemsize / self.layout.workers

    @property
    def copy(self) -> float:
        """Bytes of the largest copy that a worker keeps: its part of one tensor."""
        layout = self.layout
        return layout.hidden * layout.width * self.itemsize / layout.ranks
