"""Argument: the whole gradient lacks an array as a factor, or has one too many."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, Final

import numpy as np

from gradcheck.explain.byelement import is_diagonal
from gradcheck.explain.diagnosis_rule import Observations, Suspicion, predicting
from gradcheck.explain.probe import Array, Float, Probe

Function = Callable[[Any], Any]


def _rows(of: Callable[[Float], Float]) -> Function:
    """A number for each row, which keeps its axis."""
    return lambda x: of(x) if x.ndim else None


FUNCTIONS: Final[tuple[tuple[str, Function], ...]] = (
    ("{}", lambda x: x),
    ("exp({})", np.exp),
    ("sigmoid({})", lambda x: 1 / (1 + np.exp(-x))),
    ("1 - {}", lambda x: 1 - x),
    ("{}²", np.square),
    ("√{}", np.sqrt),
    ("|{}|", np.abs),
    ("the norm of {}'s rows", _rows(lambda x: np.linalg.norm(x, axis=-1, keepdims=True))),
    ("the root mean square of {}'s rows",
     _rows(lambda x: np.sqrt(np.mean(x * x, axis=-1, keepdims=True)))),
    ("the standard deviation of {}'s rows", _rows(lambda x: np.std(x, axis=-1, keepdims=True))),
    ("the variance of {}'s rows", _rows(lambda x: np.var(x, axis=-1, keepdims=True))),
    ("the sum of {}'s rows", _rows(lambda x: np.sum(x, axis=-1, keepdims=True))),
    ("the largest of {}'s rows", _rows(lambda x: np.max(x, axis=-1, keepdims=True))),
)  # fmt: skip
"""What may be multiplied in, of a primal or an output."""


def argument(scene: Observations) -> Iterator[Suspicion]:
    """The right gradient times an array, or divided by it, which is no slope of its own."""
    name, own = scene.output, scene.gradient
    if all(is_diagonal(probe, name) for probe in scene.failing):
        return  # a wrong slope, which is another rule's
    for words, of in _arrays(scene.first):
        for form, function in FUNCTIONS:
            for by_row in (False, True):
                value = partial(_factor, of, function, by_row, name)
                told = form.format(words) + (", one for each row" if by_row else "")
                says = f"{own} lacks the factor {told}"
                yield predicting(scene, "F", says, partial(_divided, value, name))
                says = f"{own} has the factor {told} too much"
                yield predicting(scene, "F", says, partial(_multiplied, value, name))


Value = Callable[[Probe], Float | None]


def _arrays(probe: Probe) -> Iterator[tuple[str, Callable[[Probe], Array]]]:
    for name, primal in zip(probe.names, probe.primals, strict=True):
        if primal.dtype.kind == "f":
            yield name, partial(_primal, name)
    for i in range(len(probe.ct)):
        yield ("the output" if len(probe.ct) == 1 else f"output {i + 1}"), partial(_output, i)


def _primal(name: str, probe: Probe) -> Array:
    return probe.primal(name)


def _output(i: int, probe: Probe) -> Array:
    return probe.outputs[i]


def _factor(
    of: Callable[[Probe], Array], function: Function, by_row: bool, name: str, probe: Probe
) -> Float | None:
    """The array in the gradient's shape: as it broadcasts, or one number for each row."""
    value, shape = np.asarray(function(of(probe)), dtype=np.float64), probe.right[name].shape
    lack = len(shape) - value.ndim
    if not value.ndim or lack < 0 or (by_row and not lack):
        return None
    return np.broadcast_to(value.reshape(*value.shape, *(1,) * (lack * by_row)), shape)


def _divided(value: Value, name: str, probe: Probe) -> Float | None:
    """Without the factor; where both are 0, nothing is predicted."""
    factor = value(probe)
    if factor is None or name not in probe.got:
        return None
    right = probe.right[name]
    with np.errstate(all="ignore"):
        return np.where((factor == 0) & (right == 0), probe.got[name], right / factor)


def _multiplied(value: Value, name: str, probe: Probe) -> Float | None:
    factor = value(probe)
    return None if factor is None else probe.right[name] * factor
