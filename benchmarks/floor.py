"""The least that an element-wise check without structure can cost: 2n values, stacked at best."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from benchmarks.workloads import Array, Workload

STACKS = (32 << 10, 128 << 10, 512 << 10)
"""Bytes of the perturbed primal per call; the best of them counts."""
REPEATS = 5


def sweep(workload: Workload, seed: int) -> float:
    """Seconds of processor time for both signs of every element of every primal."""
    primals = workload.primals(seed)
    return sum(
        2 * primal.size * best_copy(workload.forward, primals, i, ranked=workload.name == "gpt")
        for i, primal in enumerate(primals)
    )


def best_copy(
    forward: Callable[..., Any], primals: tuple[Array, ...], index: int, *, ranked: bool
) -> float:
    """Seconds per copy of one primal, at the best number of copies per call.

    `ranked`: the forward counts every primal's axes from the end, and copies stand in front of the
    one that moves; otherwise all primals get as many axes as the one with most, and one in front.
    """
    most = max(p.ndim for p in primals)
    given = [p if ranked else p.reshape((1,) * (1 + most - p.ndim) + p.shape) for p in primals]
    times = []
    for size in STACKS:
        count = max(1, min(2 * primals[index].size, size // primals[index].nbytes))
        shape = given[index].shape if ranked else given[index].shape[1:]
        given_here = [*given]
        given_here[index] = np.ascontiguousarray(
            np.broadcast_to(primals[index].reshape(shape), (count, *shape))
        )
        call = partial(forward, *given_here)
        times.append(statistics.median(_seconds(call) / count for _ in range(REPEATS)))
    return min(times)


def _seconds(call: Callable[[], Any]) -> float:
    start = time.process_time()
    call()
    return time.process_time() - start


@dataclass(frozen=True, slots=True)
class Contracted:
    """⟨v, f⟩ as a workload: the sum over f's own axes, so that copies in front stay.

    Every element moves the only output: there is no structure to use.
    """

    inner: Workload
    v: Array

    @property
    def small(self) -> bool:
        """Whether it is worth asking several times."""
        return self.inner.name != "gpt"

    def primals(self, seed: int) -> tuple[Array, ...]:
        """Those of the workload."""
        return self.inner.primals(seed)

    def forward(self, *primals: Array) -> Any:
        """A number, or one per copy."""
        return (self.v * self.inner.forward(*primals)).sum(tuple(range(-self.v.ndim, 0)))

    def vjp(self, ct: Array, *primals: Array) -> tuple[Array, ...] | Array:
        """The workload's, at ct·v."""
        return self.inner.vjp(ct * self.v, *primals)


def scalar(workload: Workload, seed: int) -> Contracted:
    """The workload contracted with a random v; 1 where it is a number already."""
    value = np.asarray(workload.forward(*workload.primals(seed)))
    v = np.random.default_rng([seed, 4]).standard_normal(value.shape)
    return Contracted(workload, v if value.ndim else np.ones(()))
