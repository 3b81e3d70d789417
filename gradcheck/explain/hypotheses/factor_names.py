"""Numbers of a point that may be a factor: counts and attributes, by names valid everywhere."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

import numpy as np

from gradcheck.explain.hypothesis import applied, read_primal
from gradcheck.explain.probe import Array, Probe

Value = Callable[[Probe], float | None]
Shape = tuple[int, ...]
Part = Callable[[Shape], Sequence[int] | None]

MAX_NAMED_AXES: Final = 4
NAMED_CONSTANTS: Final = {
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
    """Lengths and sizes of primals and outputs; those that a sum for `own` runs over come first."""
    shapes = dict(_shapes(probe))
    (words, whole), *parts = PARTS
    for name in shapes:
        yield _counted(name, shapes[name], words, whole)
    for name in shapes:
        if name not in probe.names:
            for a, b in ((name, own), (own, name)):
                words = f"the number of elements of {a} for each of {b}"
                of = partial(_size_ratio, shapes[a], shapes[b])
                yield Quantity(words, of, count=True, array=a)
    for name in shapes:
        for words, part in parts:
            yield _counted(name, shapes[name], words, part)
    for name, values in _used_entries(probe):
        yield Quantity(f"the number of {name}", values, count=True)


def _counted(name: str, shape: Callable[[Probe], Shape], words: str, part: Part) -> Quantity:
    def of(probe: Probe) -> float | None:
        lengths = part(shape(probe))
        return None if lengths is None else float(math.prod(lengths))

    return Quantity(words.format(name), of, count=True, array=name, part=words)


def _size_ratio(
    shape: Callable[[Probe], Shape], each: Callable[[Probe], Shape], probe: Probe
) -> float | None:
    """The size of one array over another's, if it is at least as large."""
    top, bottom = math.prod(shape(probe)), math.prod(each(probe))
    return float(top) / bottom if bottom and top >= bottom else None


def attributes(probe: Probe) -> Iterator[Quantity]:
    """Numbers among the attributes; of a tuple its entries and their product."""
    for name, value in probe.attrs.items():
        if _is_number(value):
            yield Quantity(f"`{name}`", partial(_attribute, name), count=isinstance(value, int))
        elif isinstance(value, (tuple, list)) and value and all(map(_is_number, value)):
            for i in range(len(value)):
                yield Quantity(f"`{name}[{i}]`", partial(_entry, name, i), count=True)
            yield Quantity(f"the product of `{name}`", partial(_product, name), count=True)


def relative(probe: Probe) -> Iterator[Quantity]:
    """Attributes as multiples of their defaults, which is 1 where those are taken."""
    for name, value in probe.attrs.items():
        default = probe.truth.defaults.get(name)
        if _is_number(value) and _is_number(default) and default:
            of = partial(_over_default, name, default)
            yield Quantity(f"`{name}` over its default {default}", of, count=False)


def along(probe: Probe, own: str) -> Iterator[Quantity]:
    """The length of all axes that an attribute names, except for one of them."""
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


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _attribute(name: str, probe: Probe) -> float | None:
    value: Any = probe.attrs.get(name)
    return float(value) if _is_number(value) else None


def _over_default(name: str, default: float, probe: Probe) -> float | None:
    value = _attribute(name, probe)
    return None if value is None else value / default


def _entry(name: str, i: int, probe: Probe) -> float | None:
    value = probe.attrs.get(name)
    return float(value[i]) if isinstance(value, (tuple, list)) and i < len(value) else None


def _product(name: str, probe: Probe) -> float | None:
    value = probe.attrs.get(name)
    return float(np.prod(value)) if isinstance(value, (tuple, list)) else None


def _shapes(probe: Probe) -> Iterator[tuple[str, Callable[[Probe], Shape]]]:
    """Primals and outputs: their names in messages, and their shapes at any point."""
    for name in probe.names:
        yield name, applied(np.shape, read_primal(name))
    for i in range(len(probe.ct)):
        name = "the output" if len(probe.ct) == 1 else f"output {i + 1}"
        yield name, partial(_output_shape, i)


def _output_shape(i: int, probe: Probe) -> Shape:
    return probe.ct[i].shape


def _axis(k: int) -> Part:
    return lambda s: (s[k],) if -len(s) <= k < len(s) else None


def _beyond(rank: int, part: slice) -> Part:
    return lambda s: s[part] if len(s) >= rank else None


PARTS: Final[tuple[tuple[str, Part], ...]] = (
    ("the number of rows of {}", _beyond(1, slice(None, -1))),
    ("the number of elements of {}", lambda s: s),
    ("the length of {}'s last axis", _axis(-1)),
    *((f"the length of {{}}'s axis {k}", _axis(k)) for k in range(MAX_NAMED_AXES - 1)),
    *((f"the length of {{}}'s axis {k}", _axis(k)) for k in range(-2, -MAX_NAMED_AXES - 1, -1)),
    ("the number of elements of {} for each entry of axis 0", _beyond(1, slice(1, None))),
    ("the size of {}'s last two axes", _beyond(2, slice(-2, None))),
    ("the size of {}'s last three axes", _beyond(3, slice(-3, None))),
    ("the number of matrices in {}", _beyond(2, slice(None, -2))),
)


def _used_entries(probe: Probe) -> Iterator[tuple[str, Value]]:
    """How many entries of indices and of masks are in use."""
    for i, (name, value) in enumerate(zip(probe.names, probe.primals, strict=True)):
        if value.dtype.kind != "f":
            for attr, marker in probe.attrs.items():
                if isinstance(marker, int) and not isinstance(marker, bool):

                    def kept(p: Probe, i: int = i, attr: str = attr) -> float:
                        return float(np.count_nonzero(p.primals[i] != p.attrs.get(attr)))

                    yield f"entries of {name} other than `{attr}`", kept
            yield f"entries of {name} from 0", applied(_count_from_0, read_primal(name))
        elif np.isin(value, (0.0, 1.0)).all():
            yield f"ones in {name}", applied(_count_ones, read_primal(name))


def _count_from_0(x: Array) -> float:
    return float((x >= 0).sum())


def _count_ones(x: Array) -> float:
    return float((x == 1).sum())
