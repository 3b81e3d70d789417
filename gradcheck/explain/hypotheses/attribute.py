"""Attributes: the gradient is right for another value of an attribute."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, Final

import numpy as np

from gradcheck.explain.hypothesis import Hypothesis, Observations, predicting
from gradcheck.explain.probe import RAISES, Cotangent, Float, Probe
from gradcheck.numerics.arrays import Attrs

EPS_VALUES: Final = tuple(10.0**-k for k in range(3, 13))
MAX_FILL_RATIO: Final = 16
"""How many times larger a cotangent may become that is filled with zeros."""
MEANS: Final = {"mean", "sum"}
"""Reductions that differ by a count."""
ORDINARY_VALUES: Final = (0.0, 1.0, 0.5, 2.0, 0.01)

Change = Callable[[Probe], Attrs | None]


Reading = tuple[str, str, Change]
"""Class, words, and what an attribute is taken for."""


def attributes(obs: Observations) -> Iterator[Hypothesis]:
    """One attribute at its default, at a value it has elsewhere, off by one; then two of them."""
    own = obs.gradient
    attrs = obs.first.attrs
    for key in attrs:
        for label, says, change in _single(obs, key):
            yield predicting(obs, label, f"{own} {says}", _at(obs.output, change))
    for a, b in itertools.combinations(attrs, 2):
        if type(attrs[a]) is type(attrs[b]):
            yield predicting(
                obs, "P", f"{own} takes {a} and {b} for each other",
                _at(obs.output, partial(_exchanged, a, b)),
            )  # fmt: skip
    if len(attrs) > 1:
        yield predicting(
            obs, "P", f"{own} takes all attributes at their defaults, whatever is given",
            _at(obs.output, lambda probe: probe.truth.defaults),
        )  # fmt: skip


def is_eps(key: str) -> bool:
    """Whether an attribute is one of those small numbers that guard a division."""
    return key == "eps" or key.endswith(("_eps", "epsilon"))


def values(obs: Observations) -> Iterator[Hypothesis]:
    """One attribute at a value that no sample has, or at a function of its own."""
    for key, value in obs.first.attrs.items():
        for other in _others(key, value):
            label = "E" if is_eps(key) else "P"
            says = f"{obs.gradient} matches {key} = {other!r}, whatever is given"
            yield predicting(obs, label, says, _at(obs.output, _constant(key, other)))
        for label, of, change in _functions(key, value):
            says = f"{obs.gradient} takes {of} for {key}"
            yield predicting(obs, label, says, _at(obs.output, change))


def _single(obs: Observations, key: str) -> Iterator[Reading]:
    """Values that may be used in place of one attribute, the likeliest first."""
    value, truth = obs.first.attrs[key], obs.first.truth
    if key in truth.defaults:
        default = truth.defaults[key]
        says = f"takes {key} = {default!r}, its default, whatever is given"
        yield "P", says, _constant(key, default)
        yield (
            "P",
            f"takes {key} = {default!r}, its default, for one that is 0",
            lambda p: {key: p.attrs[key] or default},
        )
    if isinstance(value, bool):
        label = "L" if key.startswith("transpose") else "P"
        yield label, f"takes {key} for its opposite", _related(key, lambda v: not v)
    seen: list[Any] = []
    for other in truth.choices.get(key, ()):
        if not any(_equal(other, s) for s in seen) and not _switches_off(other):
            seen.append(other)
            label = "E" if is_eps(key) else "P"
            yield (
                label,
                f"matches {key} = {other!r}, whatever is given",
                _constant(key, other),
            )
    if isinstance(value, int) and not isinstance(value, bool):
        yield "I", f"takes {key} + 1 for {key}", _related(key, lambda v: v + 1)
        yield "I", f"takes {key} − 1 for {key}", _related(key, lambda v: v - 1)
    if isinstance(value, tuple) and len(value) > 1:
        yield "P", f"reads {key} in reverse", _related(key, lambda v: v[::-1])
        yield "P", f"takes the first of {key} for all of them", _related(key, _first)
        yield "P", f"takes the last of {key} for all of them", _related(key, _last)
    for b in obs.first.attrs:
        if b != key and type(obs.first.attrs[b]) is type(value):
            yield "P", f"reads {b} where it needs {key}", partial(_of_other, key, b)
    if isinstance(value, (str, bool)) or value is None:
        for other in (*truth.choices.get(key, ()), truth.defaults.get(key)):
            label = "R" if isinstance(value, str) and {value, other} <= MEANS else "P"
            if type(other) is type(value) or None in (value, other):
                says = f"takes {key} = {other!r} where {value!r} is given"
                yield label, says, partial(_instead, key, value, other)


def _first(values: tuple[Any, ...]) -> tuple[Any, ...]:
    return values[:1] * len(values)


def _last(values: tuple[Any, ...]) -> tuple[Any, ...]:
    return values[-1:] * len(values)


def _switches_off(value: Any) -> bool:
    """Whether the value switches a term off, which other rules name first."""
    return not isinstance(value, (bool, str)) and not value


def _others(key: str, value: Any) -> Iterator[Any]:
    """Values that no sample uses, but a backward may."""
    if isinstance(value, int) and not isinstance(value, bool):
        yield from (0, 1, 2, -1)
    elif isinstance(value, float):
        yield from ORDINARY_VALUES
        if is_eps(key):
            yield from EPS_VALUES
    if value is not None and not isinstance(value, (bool, str)):
        yield None


def _functions(key: str, value: Any) -> Iterator[Reading]:
    """Functions of the right value: class, words, and the change."""
    if isinstance(value, bool):
        return
    if isinstance(value, int):
        yield "P", f"twice {key}", _related(key, lambda v: 2 * v)
        yield "P", f"half of {key}", _related(key, lambda v: v // 2)
    if isinstance(value, (int, float)):
        label = "S" if isinstance(value, float) else "P"  # the sign of an index is not class S
        yield label, f"−{key}", _related(key, lambda v: -v)
        yield label, f"|{key}|", _related(key, abs)
    if isinstance(value, float):
        yield "P", f"1 − {key}", _related(key, lambda v: 1 - v)
        yield "F", f"1/{key}", _related(key, lambda v: 1 / v)
        yield "F", f"{key}²", _related(key, lambda v: v * v)
        yield "P", f"{key}, rounded,", _related(key, lambda v: float(round(v)))
        yield "P", f"{key}, cut off,", _related(key, lambda v: float(int(v)))


def _constant(key: str, value: Any) -> Change:
    return lambda probe: {key: value}


def _of_other(key: str, other: str, probe: Probe) -> Attrs:
    return {key: probe.attrs[other]}


def _exchanged(a: str, b: str, probe: Probe) -> Attrs:
    return {a: probe.attrs[b], b: probe.attrs[a]}


def _instead(key: str, value: Any, other: Any, probe: Probe) -> Attrs:
    return {key: other} if _equal(probe.attrs[key], value) else {}


def _related(key: str, change: Callable[[Any], Any]) -> Change:
    def changed(probe: Probe) -> Attrs | None:
        value = probe.attrs[key]
        if value is None:
            return {}
        try:
            return {key: change(value)}
        except (ArithmeticError, TypeError, ValueError):
            return None

    return changed


def _at(output: str, change: Change) -> Callable[[Probe], Float | None]:
    def predicted(probe: Probe) -> Float | None:
        attrs = change(probe)
        if attrs is None:
            return None
        ct = _refitted(probe, attrs) if attrs else probe.ct
        return None if ct is None else probe.gradient(output, ct, attrs=attrs)

    return predicted


def _refitted(probe: Probe, attrs: Attrs) -> Cotangent | None:
    """The cotangent cut, or padded with zeros, to the output's shape under other attributes."""
    try:
        with np.errstate(all="ignore"):
            outputs = probe.truth.forward(probe.primals, {**probe.attrs, **attrs})
    except RAISES:
        return None
    if len(outputs) != len(probe.ct):
        return None
    parts = []
    for output, part in zip(outputs, probe.ct, strict=True):
        if output.ndim != part.ndim or output.size > MAX_FILL_RATIO * max(part.size, 1):
            return None
        if output.shape == part.shape:
            parts.append(part)
            continue
        new = np.zeros(output.shape)
        both = tuple(slice(min(a, b)) for a, b in zip(output.shape, part.shape, strict=True))
        new[both] = part[both]
        parts.append(new)
    return tuple(parts)


def _equal(a: Any, b: Any) -> bool:
    return type(a) is type(b) and bool(a == b)
