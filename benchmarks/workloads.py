"""What is checked: eight workloads and their inputs, ordinary and hard, in float64."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from benchmarks.formulas import CLASSES, GPT_SHAPES, ROWS, D, Formulas, H, T

Array = NDArray[np.float64]
NUMPY = Formulas(np)


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """An operator of `Formulas` and how its inputs are drawn.

    `draw(rng)` gives the primals; `attrs` are passed to forward and VJP. Its name is what
    the targets speak of.
    """

    name: str
    operator: str
    draw: Callable[[Generator], tuple[Array, ...]]
    attrs: Mapping[str, float] = field(default_factory=dict)

    def forward(self, *primals: Array) -> Array:
        """In NumPy."""
        out: Array = getattr(NUMPY, self.operator)(*primals, **self.attrs)
        return out

    def vjp(self, ct: Array, *primals: Array) -> tuple[Array, ...] | Array:
        """In NumPy, by hand; a bare array for one primal."""
        out: tuple[Array, ...] | Array = getattr(NUMPY, f"{self.operator}_vjp")(
            ct, *primals, **self.attrs
        )
        return out

    def primals(self, seed: int) -> tuple[Array, ...]:
        """The inputs of a seed."""
        return self.draw(np.random.default_rng(seed))


def _normal(*shapes: tuple[int, ...]) -> Callable[[Generator], tuple[Array, ...]]:
    return lambda rng: tuple(rng.standard_normal(shape) for shape in shapes)


def _first(
    change: Callable[[Array, Generator], Array], *shapes: tuple[int, ...]
) -> Callable[[Generator], tuple[Array, ...]]:
    """Normal, and the first primal changed."""

    def draw(rng: Generator) -> tuple[Array, ...]:
        first, *rest = (rng.standard_normal(shape) for shape in shapes)
        return (change(first, rng), *rest)

    return draw


def _gpt(rng: Generator) -> tuple[Array, ...]:
    """Weights as at the start of training, norms near 1, biases not zero, so that none hides."""
    out = []
    for name, shape in GPT_SHAPES.items():
        drawn = rng.standard_normal(shape)
        kind = name.partition(".")[0]
        if kind in ("ln_w", "ln1_w", "ln2_w"):
            out.append(1 + 0.1 * drawn)
        elif len(shape) == 1:
            out.append(0.1 * drawn)
        else:
            out.append(drawn if kind == "wte" else drawn / np.sqrt(shape[0]))
    return tuple(out)


def _many_scales(x: Array, rng: Generator) -> Array:
    """Each row at a scale of its own, from 1e-6 to 1e3."""
    return x * 10.0 ** rng.uniform(-6, 3, (len(x), 1))


_ROWS_64 = ((8, 64), (64,))
WORKLOADS = {
    w.name: w
    for w in (
        Workload(name="rms_norm", operator="rms_norm", draw=_normal(*_ROWS_64)),
        Workload(name="softmax", operator="softmax", draw=_normal((16, 64))),
        Workload(name="gelu", operator="gelu", draw=_normal((1024,))),
        Workload(name="matmul", operator="matmul", draw=_normal((32, 64), (64, 32))),
        Workload(name="layer_norm", operator="layer_norm", draw=_normal(*_ROWS_64, (64,))),
        Workload(name="attention", operator="attention", draw=_normal(*[(H, T, D)] * 3)),
        Workload(name="cross_entropy", operator="cross_entropy", draw=_normal((ROWS, CLASSES))),
        Workload(name="gpt", operator="gpt", draw=_gpt),
    )
}
"""The eight, at ordinary inputs."""

_AT_1000 = 1000.0
HARD = {
    w.name: w
    for w in (
        *(
            Workload(
                name=f"rms_norm, x near 1e-4, eps {eps:.0e}",
                operator="rms_norm",
                attrs={"eps": eps},
                draw=_first(lambda x, _: 1e-4 * x, *_ROWS_64),
            )
            for eps in (1e-5, 1e-6, 1e-8, 1e-12)
        ),
        Workload(
            name="rms_norm, rows of 1e-6 to 1e3",
            operator="rms_norm",
            draw=_first(_many_scales, *_ROWS_64),
        ),
        Workload(
            name="softmax at 1000 ± 3",
            operator="softmax",
            draw=_first(lambda x, _: _AT_1000 + 3 * x, (16, 64)),
        ),
        Workload(
            name="layer_norm at 1000 ± 3",
            operator="layer_norm",
            draw=_first(lambda x, _: _AT_1000 + 3 * x, *_ROWS_64, (64,)),
        ),
        Workload(
            name="layer_norm, rows of 1e-6 to 1e3",
            operator="layer_norm",
            draw=_first(_many_scales, *_ROWS_64, (64,)),
        ),
        Workload(
            name="relu(x·Wᵀ), 512 kinks", operator="relu_linear", draw=_normal((8, 16), (64, 16))
        ),
    )
}
"""Inputs at which a step of one size for all goes wrong."""


def gradients(workload: Workload, ct: Any, primals: tuple[Array, ...]) -> tuple[Array, ...]:
    """What the VJP returns, always as a tuple."""
    out = workload.vjp(ct, *primals)
    return out if isinstance(out, tuple) else (out,)


def loss(workload: Workload, ct: Array, *primals: Any) -> float:
    """⟨ct, forward⟩: the scalar that a tool for scalars is given."""
    return float(np.vdot(ct, workload.forward(*primals)))
