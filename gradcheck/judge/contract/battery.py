"""The contract of a backward beyond its numbers: one property each, in the order of examination."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from gradcheck.judge.contract import buffers, linearity, other_points, side_effects
from gradcheck.judge.contract.asking import Breach
from gradcheck.judge.contract.subject import Subject


@dataclass(frozen=True, slots=True)
class Property:
    """One property: its name in reports, its sentence, and what a binding must offer for it.

    `examine(subject)` returns how it is broken, or None; it raises `Unasked` where it cannot
    be asked. `needs` is what a binding must offer besides a VJP ("into", "asked", "strided").
    """

    name: str
    says: str
    examine: Callable[[Subject], Breach | None]
    needs: str = ""


PROPERTIES: Final = (
    Property(
        "linear",
        "A backward is linear in the cotangent: g(30u - 7v) = 30 g(u) - 7 g(v).",
        linearity.linear,
    ),
    Property("zero", "A cotangent of zeros gives gradients of zeros.", linearity.zero),
    Property(
        "scaling",
        "A cotangent times a power of two gives the gradient times it, to the last bit.",
        linearity.scaling,
    ),
    Property(
        "repeatable",
        "The same arguments give the same bits, however often they come.",
        side_effects.repeatable,
    ),
    Property(
        "stateless",
        "An answer depends on this call's arguments alone, on no earlier call.",
        side_effects.stateless,
    ),
    Property(
        "pure",
        "A backward leaves the cotangent, the inputs and what was saved as they were.",
        side_effects.pure,
    ),
    Property(
        "owned",
        "What a backward returns stays as it is when the backward is called again.",
        side_effects.owned,
    ),
    Property(
        "dtype",
        "A gradient has the dtype of its primal, on every path through the code.",
        other_points.form,
    ),
    Property(
        "sizes",
        "A gradient is right at every size: at 0 and 1, and beside every power of two.",
        other_points.sizes,
    ),
    Property(
        "attributes", "A backward follows every attribute that it takes.", other_points.attributes
    ),
    Property(
        "layouts",
        "An argument is read by its own strides, whatever they are.",
        other_points.layouts,
        "strided",
    ),
    Property(
        "subsets",
        "A gradient is the same whichever others are asked for with it.",
        other_points.subsets,
        "asked",
    ),
    Property(
        "accumulates",
        "A gradient that accumulates is added to what its buffer holds.",
        buffers.accumulates,
        "into",
    ),
    Property(
        "written",
        "A gradient that does not accumulate is written whole, whatever its buffer held.",
        buffers.written,
        "into",
    ),
    Property(
        "aliases",
        "A gradient that is written over an argument, as is declared, comes out the same.",
        buffers.aliases,
        "into",
    ),
    Property(
        "bounds",
        "A backward writes into the buffers that it was given, and not beside them.",
        buffers.bounds,
        "into",
    ),
)
