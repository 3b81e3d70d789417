"""Which worker holds which part of which tensor: stages of layers, and ranks within a stage."""

from __future__ import annotations

from dataclasses import dataclass
from math import isqrt
from typing import Final

REPLICATED: Final = ("gain", "down_bias")
"""Tensors of a layer that every rank of its stage has whole; the others are cut into rows."""


@dataclass(frozen=True, slots=True)
class Part:
    """Elements start … stop of a tensor, by their flat numbers, at one worker.

    A replicated tensor has a part per rank, each the whole of it; only the first one `counts`.
    """

    worker: int
    start: int
    stop: int
    counts: bool


@dataclass(frozen=True, slots=True)
class Layout:
    """A residual network of `layers` layers of width `width` over stages × ranks workers.

    `batch` rows pass through it; `hidden` is four times the width.
    """

    layers: int
    width: int
    batch: int
    stages: int
    ranks: int

    @property
    def hidden(self) -> int:
        """Width within a layer."""
        return 4 * self.width

    @property
    def workers(self) -> int:
        """How many there are; worker `stage · ranks + rank`."""
        return self.stages * self.ranks

    @property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        """The tensors of the whole model, in their order."""
        d, h = self.width, self.hidden
        kinds = {"gain": (d,), "up": (h, d), "up_bias": (h,), "down": (h, d), "down_bias": (d,)}
        return {f"{k}.{kind}": shape for k in range(self.layers) for kind, shape in kinds.items()}

    @property
    def parameters(self) -> int:
        """Numbers in all tensors."""
        return self.layers * (2 * self.hidden * self.width + self.hidden + 2 * self.width)

    def stage_of(self, layer: int) -> int:
        """The stage that a layer belongs to."""
        return next(s for s in range(self.stages) if layer in self.layers_of(s))

    def layers_of(self, stage: int) -> range:
        """The layers of a stage."""
        return range(*_cut(self.layers, self.stages, stage))

    def rows_of(self, rank: int) -> tuple[int, int]:
        """The rows of a cut tensor that a rank holds."""
        return _cut(self.hidden, self.ranks, rank)

    def parts(self, name: str) -> tuple[Part, ...]:
        """Who holds what of a tensor."""
        layer, _, kind = name.partition(".")
        first = self.stage_of(int(layer)) * self.ranks
        shape = self.shapes[name]
        if kind in REPLICATED:
            size = shape[0]
            return tuple(Part(first + r, 0, size, counts=r == 0) for r in range(self.ranks))
        each = shape[1] if len(shape) > 1 else 1
        rows = [self.rows_of(r) for r in range(self.ranks)]
        return tuple(
            Part(first + r, start * each, stop * each, counts=True)
            for r, (start, stop) in enumerate(rows)
        )

    def title(self, worker: int) -> str:
        """A worker as a message names it."""
        stage, rank = divmod(worker, self.ranks)
        return f"worker {worker} (stage {stage}, rank {rank})"


def laid_out(workers: int, parameters: float, layers: int, batch: int, stages: int = 0) -> Layout:
    """A layout of about so many parameters; as many stages as ranks where that can be.

    Raises:
        ValueError: workers or layers cannot be divided so.
    """
    fit = [s for s in range(1, isqrt(workers) + 1) if workers % s == 0 and s <= layers]
    stages = stages or max(fit)
    if workers % stages or stages > layers:
        raise ValueError(f"{workers} workers and {layers} layers cannot make {stages} stages")
    width = max(2, round((parameters / (8 * layers)) ** 0.5))
    layout = Layout(layers, width, batch, stages, workers // stages)
    if layout.ranks > layout.hidden:
        raise ValueError(f"{layout.hidden} rows cannot be cut for {layout.ranks} ranks")
    return layout


def _cut(total: int, parts: int, which: int) -> tuple[int, int]:
    """The bounds of one of several nearly equal parts."""
    return which * total // parts, (which + 1) * total // parts
