"""How an error in one cotangent of a program travels: to which gradients, and by what matrix.

A slot is one value read by one stage. An error δ in the gradient that a stage returns for a slot
adds Gᵀδ to the gradient of every name upstream, where G is the derivative of the value read with
respect to that name; no other stage needs to be asked.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from functools import cached_property
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from gradcheck.numerics.arithmetic import F64
from gradcheck.spec.program import Program, Stage, Values

Float = NDArray[np.float64]

LARGEST: Final = 4e7
"""Numbers in all derivatives above which none is formed."""


class Reach:
    """Who is upstream of whom in one program: pure graph, from the names alone."""

    def __init__(self, program: Program) -> None:
        """Walk the stages once."""
        self.program = program
        self._upstream: dict[str, frozenset[str]] = {}
        self._first: dict[str, int] = {}
        self._last: dict[str, int] = {}
        for name in (*program.params, *program.inputs):
            self._upstream[name] = frozenset({name})
        for place, stage in enumerate(program.stages):
            behind = frozenset().union(*(self._upstream[name] for name in stage.reads))
            for name in stage.reads:
                self._first.setdefault(name, place)
                self._last[name] = place
            for name in stage.outputs:
                self._upstream[name] = behind | {name}

    def upstream(self, name: str) -> frozenset[str]:
        """The value itself, and every value that it depends on."""
        return self._upstream[name]

    def of(self, stage: Stage) -> frozenset[str]:
        """Every value whose gradient an error of the stage may touch."""
        return frozenset().union(*(self._upstream[name] for name in stage.reads))

    def without(self, stage: Stage, read: str) -> frozenset[str]:
        """Every value that would still get a gradient if the stage returned none for one read."""
        reached = {self.program.loss}
        for other in reversed(self.program.stages):
            if reached.intersection(other.outputs):
                reached.update(n for n in other.reads if other is not stage or n != read)
        return frozenset(reached)

    def place(self, name: str) -> int:
        """Where a value is read first: the larger, the nearer to the loss. A loss is nearest."""
        return self._first.get(name, len(self.program.stages))

    def tied(self, name: str) -> bool:
        """Whether several stages read it: its gradient is a sum."""
        return name in self._first and self._first[name] != self._last[name]


class Derivatives:
    """The derivative of every value with respect to some names, at one point, in float64.

    `of(value)` is [elements of the value, elements of all `names`, one name after the other];
    it is built forward, stage by stage, from the VJPs of the basis cotangents.
    """

    def __init__(self, program: Program, values: Values, names: Collection[str]) -> None:
        """Lay the columns out; nothing is computed yet."""
        self.program = program
        self.values = values
        self.kept: dict[Any, Any] = {}  # what linear algebra found of them
        self.columns: dict[str, slice] = {}
        start = 0
        for name in names:
            end = start + np.asarray(values[name]).size
            self.columns[name] = slice(start, end)
            start = end
        self.width = start

    @property
    def affordable(self) -> bool:
        """Whether all of them together fit into a moment and into memory."""
        rows = sum(np.asarray(v).size for v in self.values.values() if v.dtype.kind == "f")
        return rows * self.width <= LARGEST

    def of(self, value: str) -> Float:
        """The derivative of one value."""
        return self._all[value]

    @cached_property
    def _all(self) -> Mapping[str, Float]:
        given = {*self.program.params, *self.program.inputs}
        found = {name: self._own(name) for name in given}
        for stage in self.program.stages:
            total = [self._own(name) for name in stage.outputs]
            for read, parts in self._blocks(stage).items():
                for output, block in enumerate(parts):
                    if read not in given:
                        total[output] += block @ found[read]
                    elif read in self.columns:
                        total[output][:, self.columns[read]] += block
            found.update(zip(stage.outputs, total, strict=True))
        return found

    def _own(self, name: str) -> Float:
        """1 where the name itself is a column."""
        rows = np.zeros((np.asarray(self.values[name]).size, self.width))
        if name in self.columns:
            rows[:, self.columns[name]] = np.eye(len(rows))
        return rows

    def _blocks(self, stage: Stage) -> dict[str, list[Float]]:
        """By value read: the derivative of each output with respect to it."""
        sizes = [np.asarray(self.values[name]).size for name in stage.outputs]
        found: dict[str, list[Float]] = {}
        for output, size in enumerate(sizes):
            for element in range(size):
                for read, gradient in zip(
                    stage.reads, stage.vjp(F64, self._basis(stage, output, element), self.values),
                    strict=True,
                ):  # fmt: skip
                    if gradient is None:
                        continue
                    if read not in found:
                        width = np.asarray(self.values[read]).size
                        found[read] = [np.zeros((n, width)) for n in sizes]
                    found[read][output][element] += np.ravel(gradient)
        return found

    def _basis(self, stage: Stage, output: int, element: int) -> tuple[Any, ...]:
        cts = [np.zeros(np.shape(self.values[name])) for name in stage.outputs]
        cts[output].reshape(-1)[element] = 1.0
        return tuple(cts)
