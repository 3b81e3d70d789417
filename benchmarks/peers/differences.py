"""numdifftools and SciPy: they differentiate ⟨v, f⟩, and the VJP's answer is held against it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.peers import Check
from benchmarks.planted import Planted
from benchmarks.workloads import Workload, gradients, loss

Array = NDArray[np.float64]
Scalar = Callable[[Array], float]
RTOL, ATOL = 1e-5, 1e-8
"""Of np.allclose."""
NORMWISE = 1e-4
"""check_grad returns a norm and documents no limit; with one of 1e-5 it rejects right gradients."""


class Differences:
    """Gradients of a function of one vector."""

    def __init__(self, variant: str) -> None:
        """Import the one that is asked for."""
        self.gradient: Callable[[Scalar, Array], Array] | None = None
        if variant == "numdifftools":
            import numdifftools

            self.gradient = lambda f, x: numdifftools.Gradient(f)(x)
        elif variant == "differentiate":
            from scipy.differentiate import jacobian

            self.gradient = lambda f, x: jacobian(_over_columns(f), x).df.reshape(-1)
        else:
            from scipy.optimize import check_grad

            self.check_grad = check_grad

    def prepare(self, workload: Workload, seed: int, planted: Planted | None) -> Check:
        """All primals as one vector; v is drawn with the inputs."""
        primals = workload.primals(seed)
        shapes = [p.shape for p in primals]
        ends = np.cumsum([p.size for p in primals])[:-1]
        x = np.concatenate([p.reshape(-1) for p in primals])
        ct = np.random.default_rng([seed, 3]).standard_normal(workload.forward(*primals).shape)

        def split(flat: Array) -> tuple[Array, ...]:
            parts = np.split(flat, ends)
            return tuple(part.reshape(s) for part, s in zip(parts, shapes, strict=True))

        def function(flat: Array) -> float:
            return loss(workload, ct, *split(flat))

        def given(flat: Array) -> Array:
            found: Any = gradients(workload, ct, split(flat))
            if planted is not None:
                found = planted.into(found)
            return np.concatenate([g.reshape(-1) for g in found])

        if self.gradient is None:
            return lambda: self._normwise(function, given, x)
        gradient = self.gradient
        return lambda: np.allclose(gradient(function, x), given(x), rtol=RTOL, atol=ATOL)

    def _normwise(self, function: Scalar, given: Callable[[Array], Array], x: Array) -> bool:
        return bool(
            self.check_grad(function, given, x) <= ATOL + NORMWISE * np.linalg.norm(given(x))
        )


def _over_columns(function: Scalar) -> Callable[[Array], Array]:
    """A function of one vector as SciPy calls it: [n, …] holds a vector per remaining index."""

    def called(points: Array) -> Array:
        columns = points.reshape(len(points), -1).T
        values = np.array([function(np.ascontiguousarray(c)) for c in columns])
        return values.reshape((1, *points.shape[1:]))

    return called


ADAPTER = Differences
