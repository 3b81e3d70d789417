"""Numbers that a point is made of, by names that hold at every point: counts and attributes."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

import numpy as np

from gradcheck.explain.probe import Probe

Value = Callable[[Probe], float | None]
Shape = tuple[int, ...]
Part = Callable[[Shape], Sequence[int] | None]

DEEPEST: Final = 4
"""Axes, from either end, that are named one by one."""
NAMED: Final = {
    "log 2": math.log(2), "log 10": math.log(10), "√2": math.sqrt(2), "π": math.pi,
    "2π": 2 * math.pi, "√π": math.sqrt(math.pi), "√(2π)": math.sqrt(2 * math.pi),
    "√(2/π)": math.sqrt(2 / math.pi), "e": math.e,
}  # fmt: skip
"""Constants that formulas have, and that backward passes lose."""


@dataclass(frozen=True, slots=True)
class Quantity:
    """One number of a point: `words` name it, `of(probe)` is it, None where it does not exist.

    `count`: it is a whole number of elements, of a `part` of `array`, if they have names.
    """

    words: str
    of: Value
    count: bool
    array: str = ""
    part: str = ""


def counts(probe: Probe, own: str) -> Iterator[Quantity]:
    """Lengths and sizes of primals and outputs; what `own` sums over comes first."""
    arrays = [*_arrays(probe)]
    mine = dict(arrays)[own]
    for name, shape in arrays:
        yield _counted(name, shape, *PARTS[0])
    for name, shape in arrays:
        if name not in probe.names:
            for a, b, of, each in ((name, own, shape, mine), (own, name, mine, shape)):
                words = f"the number of elements of {a} for each of {b}"
                yield Quantity(words, _quotient(_size(of), _size(each)), count=True, array=a)
    for name, shape in arrays:
        for words, part in PARTS[1:]:
            yield _counted(name, shape, words, part)
    for name, values in _integers(probe):
        yield Quantity(f"the number of {name}", values, count=True)


def _counted(name: str, shape: Callable[[Probe], Shape], words: str, part: Part) -> Quantity:
    of = _part(shape, part)
    return Quantity(words.format(name), of, count=True, array=name, part=words)


def attributes(probe: Probe) -> Iterator[Quantity]:
    """Numbers among the attributes; of a tuple its entries and their product."""
    for name, value in probe.attrs.items():
        if _number(value):
            yield Quantity(f"`{name}`", _attribute(name), count=isinstance(value, int))
        elif isinstance(value, (tuple, list)) and value and all(_number(v) for v in value):
            for i in range(len(value)):
                yield Quantity(f"`{name}[{i}]`", _entry(name, i), count=True)
            yield Quantity(f"the product of `{name}`", _product(name), count=True)


def relative(probe: Probe) -> Iterator[Quantity]:
    """Attributes as multiples of their defaults, which is 1 where those are taken."""
    for name, value in probe.attrs.items():
        default = probe.truth.defaults.get(name)
        if _number(value) and _number(default) and default:
            of = _attribute(name)
            yield Quantity(
                f"`{name}` over its default {default}", _scaled(of, default), count=False
            )


def along(probe: Probe, own: str) -> Iterator[Quantity]:
    """How long the axes are that an attribute names, but for one of them."""
    i = probe.names.index(own)
    for name in probe.attrs:
        if name.startswith(("axis", "axes", "dim")):
            for words, part in (("last", slice(None, -1)), ("first", slice(1, None))):
                of = partial(_lengths, name, i, part)
                yield Quantity(f"the length along all of `{name}` but the {words}", of, count=True)


def _lengths(name: str, i: int, part: slice, probe: Probe) -> float | None:
    axes, shape = probe.attrs.get(name), probe.primals[i].shape
    if not isinstance(axes, (tuple, list)):
        return None if axes is None else 1.0
    return float(math.prod(shape[axis] for axis in axes[part]))


def _scaled(of: Value, by: float) -> Value:
    def scaled(probe: Probe) -> float | None:
        value = of(probe)
        return None if value is None else value / by

    return scaled


def _number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _attribute(name: str) -> Value:
    def of(probe: Probe) -> float | None:
        value: Any = probe.attrs.get(name)
        return float(value) if _number(value) else None

    return of


def _entry(name: str, i: int) -> Value:
    def of(probe: Probe) -> float | None:
        value = probe.attrs.get(name)
        return float(value[i]) if isinstance(value, (tuple, list)) and i < len(value) else None

    return of


def _product(name: str) -> Value:
    def of(probe: Probe) -> float | None:
        value = probe.attrs.get(name)
        return float(np.prod(value)) if isinstance(value, (tuple, list)) else None

    return of


def _arrays(probe: Probe) -> Iterator[tuple[str, Callable[[Probe], Shape]]]:
    """Primals and outputs: what messages call them, and their shapes at any point."""
    for i, name in enumerate(probe.names):
        yield name, partial(_primal_shape, i)
    for i in range(len(probe.ct)):
        name = "the output" if len(probe.ct) == 1 else f"output {i + 1}"
        yield name, partial(_output_shape, i)


def _primal_shape(i: int, probe: Probe) -> Shape:
    return probe.primals[i].shape


def _output_shape(i: int, probe: Probe) -> Shape:
    return probe.ct[i].shape


def _size(shape: Callable[[Probe], Shape]) -> Value:
    return lambda probe: float(math.prod(shape(probe)))


def _quotient(a: Value, b: Value) -> Value:
    """How often b goes into a, where it does."""

    def of(probe: Probe) -> float | None:
        top, bottom = a(probe), b(probe)
        return top / bottom if top and bottom and top >= bottom else None

    return of


def _part(shape: Callable[[Probe], Shape], part: Part) -> Value:
    def of(probe: Probe) -> float | None:
        lengths = part(shape(probe))
        return None if lengths is None else float(math.prod(lengths))

    return of


def _axis(k: int) -> Part:
    return lambda s: (s[k],) if -len(s) <= k < len(s) else None


def _beyond(rank: int, part: slice) -> Part:
    return lambda s: s[part] if len(s) >= rank else None


PARTS: Final[tuple[tuple[str, Part], ...]] = (
    ("the number of rows of {}", _beyond(1, slice(None, -1))),
    ("the number of elements of {}", lambda s: s),
    ("the length of {}'s last axis", _axis(-1)),
    *((f"the length of {{}}'s axis {k}", _axis(k)) for k in range(DEEPEST - 1)),
    *((f"the length of {{}}'s axis {k}", _axis(k)) for k in range(-2, -DEEPEST - 1, -1)),
    ("the number of elements of {} for each entry of axis 0", _beyond(1, slice(1, None))),
    ("the size of {}'s last two axes", _beyond(2, slice(-2, None))),
    ("the size of {}'s last three axes", _beyond(3, slice(-3, None))),
    ("the number of matrices in {}", _beyond(2, slice(None, -2))),
)


def _integers(probe: Probe) -> Iterator[tuple[str, Value]]:
    """How many entries of indices and of masks are in use."""
    for i, (name, value) in enumerate(zip(probe.names, probe.primals, strict=True)):
        if value.dtype.kind != "f":
            for attr, marker in probe.attrs.items():
                if isinstance(marker, int) and not isinstance(marker, bool):

                    def kept(p: Probe, i: int = i, attr: str = attr) -> float:
                        return float(np.count_nonzero(p.primals[i] != p.attrs.get(attr)))

                    yield f"entries of {name} other than `{attr}`", kept
            yield f"entries of {name} from 0", partial(_from_zero, i)
        elif np.isin(value, (0.0, 1.0)).all():
            yield f"ones in {name}", partial(_ones, i)


def _from_zero(i: int, probe: Probe) -> float:
    return float((probe.primals[i] >= 0).sum())


def _ones(i: int, probe: Probe) -> float:
    return float((probe.primals[i] == 1).sum())
