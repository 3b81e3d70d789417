"""Evaluated elsewhere: the gradient is the right one at other values than those given."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final

import numpy as np

from gradcheck.explain.diagnosis_rule import Observations, Suspicion, predicting
from gradcheck.explain.probe import RAISES, Array, Float, Probe

EPS: Final = tuple(10.0**-k for k in range(2, 13))
"""What is added to guard a division."""


def _softmax(x: Float) -> Float:
    e = np.exp(x - np.max(x, axis=-1, keepdims=True))
    return np.asarray(e / np.sum(e, axis=-1, keepdims=True))


def _centred(x: Float) -> Float:
    return np.asarray(x - np.mean(x, axis=-1, keepdims=True))


def _normalised(x: Float) -> Float:
    return np.asarray(x / np.sqrt(np.mean(x * x, axis=-1, keepdims=True)))


VALUES: Final[tuple[tuple[str, str, Callable[[Any], Any]], ...]] = (
    ("V", "sigmoid({})", lambda x: 1 / (1 + np.exp(-x))),
    ("V", "tanh({})", np.tanh),
    ("V", "exp({})", np.exp),
    ("V", "log({})", np.log),
    ("V", "relu({})", lambda x: np.maximum(x, 0)),
    ("V", "silu({})", lambda x: x / (1 + np.exp(-x))),
    ("V", "softmax({})", _softmax),
    ("V", "{}, less its mean,", _centred),
    ("V", "{}, divided by its root mean square,", _normalised),
    ("V", "{} clipped to [0, 1]", lambda x: np.clip(x, 0, 1)),
    ("V", "{} rounded to whole numbers", np.round),
    ("V", "1 − {}", lambda x: 1 - x),
    ("D", "{}²", np.square),
    ("D", "1/{}", lambda x: 1 / x),
    ("S", "|{}|", np.abs),
    ("S", "−{}", np.negative),
    ("F", "ones", np.ones_like),
    ("T", "zeros", np.zeros_like),
    ("V", "{}, less its largest,", lambda x: x - np.max(x, axis=-1, keepdims=True)),
)
"""Class, words and function of what may be read in the place of a primal."""


def elsewhere(scene: Observations) -> Iterator[Suspicion]:
    """Each primal in turn replaced by another value: outputs, other arguments, functions of it."""
    for name in scene.first.names:
        floating = scene.first.primal(name).dtype.kind == "f"
        for label, says, read in _other_values(scene, name) if floating else ():
            yield _reading(scene, label, name, says, read)
        for label, says, read in _other_places(scene, name):
            yield _reading(scene, label, name, says, read)
        for label, says, read in () if floating else _other_indices(name):
            yield _reading(scene, label, name, says, read)


Read = Callable[[Probe], Array | None]
Reading = tuple[str, str, Read]


def _reading(scene: Observations, label: str, name: str, says: str, read: Read) -> Suspicion:
    def of(probe: Probe) -> Float | None:
        value = read(probe)
        if value is None or value.shape != probe.primal(name).shape:
            return None
        found = probe.vjp(primals={name: value})
        return None if found is None else found.get(scene.output)

    return predicting(scene, label, f"{scene.gradient} reads {says} where it needs {name}", of)


def _other_values(scene: Observations, name: str) -> Iterator[Reading]:
    probe = scene.first
    shape = probe.primal(name).shape
    for k, output in enumerate(probe.outputs):
        if output.shape == shape:
            which = "the output" if len(probe.outputs) == 1 else f"output {k}"
            yield "V", which, _output(k)
    for other, primal in zip(probe.names, probe.primals, strict=True):
        if other != name and primal.shape == shape and primal.dtype.kind == "f":
            yield "V", other, _other(other)
            yield "V", f"{name}·{other}", _product(name, other)
    for k, part in enumerate(probe.ct):
        if part.shape == shape:
            yield "V", "the cotangent", _cotangent(k)
    for label, words, function in VALUES:
        yield label, words.format(name), _value(name, function)
    for eps in EPS:
        yield "E", f"{name} + {eps:g}", _shifted(name, eps)


def _output(k: int) -> Read:
    return lambda probe: probe.outputs[k]


def _other(name: str) -> Read:
    return lambda probe: probe.primal(name)


def _product(a: str, b: str) -> Read:
    return lambda probe: probe.primal(a) * probe.primal(b)


def _cotangent(k: int) -> Read:
    return lambda probe: probe.ct[k]


def _value(name: str, function: Callable[[Any], Any]) -> Read:
    def read(probe: Probe) -> Array | None:
        try:
            with np.errstate(all="ignore"):
                value = np.asarray(function(probe.primal(name)))
        except RAISES:  # a scalar has no axis
            return None
        return value if np.isfinite(value).all() else None

    return read


def _shifted(name: str, by: float) -> Read:
    return lambda probe: probe.primal(name) + by


def _other_places(scene: Observations, name: str) -> Iterator[Reading]:
    """The same numbers from another place, or in another order."""
    for axis in range(-scene.first.primal(name).ndim, 0):
        at = f"of {name} along axis {axis}"
        yield "I", f"the first place {at} everywhere", _first(name, axis)
        yield "I", f"the place before {at}", _moved(name, axis, 1)
        yield "I", f"the place after {at}", _moved(name, axis, -1)
        yield "L", f"the places {at} in reverse", _reversed(name, axis)


def _other_indices(name: str) -> Iterator[Reading]:
    yield "I", f"{name} + 1", lambda p: p.primal(name) + 1
    yield "I", f"{name} − 1", lambda p: p.primal(name) - 1
    yield "I", "0", lambda p: np.zeros_like(p.primal(name))
    yield "I", "positions in order", _in_order(name)
    yield "I", f"{name}, sorted,", lambda p: np.sort(p.primal(name), axis=-1)
    yield "I", f"{name}, those below 0 taken for 0,", lambda p: np.maximum(p.primal(name), 0)


def _first(name: str, axis: int) -> Read:
    def read(probe: Probe) -> Array | None:
        x = probe.primal(name)
        if x.ndim < -axis or not x.shape[axis]:
            return None
        return np.broadcast_to(np.take(x, [0], axis=axis), x.shape)

    return read


def _moved(name: str, axis: int, by: int) -> Read:
    def read(probe: Probe) -> Array | None:
        x = probe.primal(name)
        return np.roll(x, by, axis) if x.ndim >= -axis else None

    return read


def _reversed(name: str, axis: int) -> Read:
    def read(probe: Probe) -> Array | None:
        x = probe.primal(name)
        return np.flip(x, axis) if x.ndim >= -axis else None

    return read


def _in_order(name: str) -> Read:
    def read(probe: Probe) -> Array | None:
        x = probe.primal(name)
        return np.broadcast_to(np.arange(x.shape[-1]), x.shape) if x.ndim else None

    return read
