"""What gradients of one case leave of forward's change: a Taylor curve for each, if asked for."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gradcheck.judge.taylor import Line
from gradcheck.numerics.direction import Along, draw_direction
from gradcheck.numerics.draw import Draw
from gradcheck.numerics.evaluate import Point
from gradcheck.results.finding import Taylor

Float = NDArray[np.float64]
Mask = NDArray[np.bool_]


class Remainders:
    """Lines through one point, one per primal: random, dense, and still where there are kinks.

    They are measured in float64 when first asked for, and serve every implementation and dtype.
    """

    def __init__(
        self,
        point: Point,
        ct: Float,
        still: Sequence[Mask | None],
        draw: Callable[[int], Draw],
    ) -> None:
        """`ct` [m] weighs the outputs; `still` marks, per primal, what no line may move."""
        self._along = Along(point)
        self._ct, self._draw, self._still = ct, draw, still
        self._lines: dict[int, Line | None] = {}

    def of(self, index: int, got: NDArray[Any]) -> Taylor | None:
        """The curve of a gradient `got` [n] of primal `index`; None if there is none to draw."""
        primals = self._along.point.primals
        if index not in self._lines:
            self._lines[index] = self._line(index)
        line = self._lines[index]
        if line is None:
            return None
        shaped = got.reshape(primals[index].shape)
        return line.left_by([shaped if i == index else None for i in range(len(primals))])

    def _line(self, index: int) -> Line | None:
        drawn = draw_direction(self._draw(index), self._along.point.primals, {index})
        still = self._still[index]
        direction = tuple(
            d if d is None or still is None else np.where(still, 0.0, d) for d in drawn
        )
        moves = direction[index]
        if moves is None or not moves.any():
            return None
        return Line(self._along, direction, self._ct)
