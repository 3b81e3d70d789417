"""What is planted: one random element of one gradient output, some per cent off."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from benchmarks.workloads import Workload, gradients

Array = NDArray[np.float64]
ZERO = 1e-12
"""What is smaller than this share of its output's largest gradient counts as zero: masked
positions and unused rows come out as rounding, and a multiple of nothing is no error."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Planted:
    """Element `index` of gradient output `output`, in C order, is multiplied by `factor`."""

    output: int
    index: int
    factor: float

    def into(self, found: Array | tuple[Array, ...]) -> Array | tuple[Array, ...]:
        """The gradients that a VJP returned, with the error; what is passed is left alone."""
        if isinstance(found, tuple):
            return tuple(self._changed(g) if i == self.output else g for i, g in enumerate(found))
        return self._changed(found)

    def _changed(self, gradient: Array) -> Array:
        gradient = np.array(gradient)
        gradient.flat[self.index] *= self.factor
        return gradient


def visible(workload: Workload, seed: int, primals: tuple[Array, ...]) -> list[NDArray[np.intp]]:
    """Indices, per gradient output, of the elements whose true gradient is not zero."""
    ct = np.random.default_rng([seed, 1]).standard_normal(workload.forward(*primals).shape)
    found = []
    for gradient in gradients(workload, ct, primals):
        size = np.abs(gradient).reshape(-1)
        found.append(np.flatnonzero(size > ZERO * size.max()))
    return found


def plant(workload: Workload, seed: int, primals: tuple[Array, ...], size: float) -> Planted:
    """A random output, and in it a random element that is not zero: `size` of it too much."""
    rng = np.random.default_rng([seed, 2])
    indices = visible(workload, seed, primals)
    output = int(rng.choice([i for i, some in enumerate(indices) if some.size]))
    return Planted(output=output, index=int(rng.choice(indices[output])), factor=1 + size)
