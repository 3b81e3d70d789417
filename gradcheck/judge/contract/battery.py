"""The properties that a backward owes beyond its numbers, in the order in which they are asked."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from gradcheck.judge.contract import (
    accumulates,
    aliases,
    attributes,
    bounds,
    form,
    layouts,
    linear,
    owned,
    pure,
    repeatable,
    scaling,
    sizes,
    stateless,
    subsets,
    written,
    zero,
)
from gradcheck.judge.contract.asking import Breach
from gradcheck.judge.contract.subject import Subject


@dataclass(frozen=True, slots=True)
class Property:
    """One property: its name in reports, what a backward owes, and what is needed to ask for it.

    `examine(subject)` returns how it is broken, or None; it raises `Unasked` where it cannot
    be asked. `needs` is what a binding must offer besides a VJP ("into", "asked", "strided").
    """

    name: str
    says: str
    examine: Callable[[Subject], Breach | None]
    needs: str = ""


PROPERTIES: Final = (
    Property("linear", linear.SAYS, linear.linear),
    Property("zero", zero.SAYS, zero.zero),
    Property("scaling", scaling.SAYS, scaling.scaling),
    Property("repeatable", repeatable.SAYS, repeatable.repeatable),
    Property("stateless", stateless.SAYS, stateless.stateless),
    Property("pure", pure.SAYS, pure.pure),
    Property("owned", owned.SAYS, owned.owned),
    Property("dtype", form.SAYS, form.form),
    Property("sizes", sizes.SAYS, sizes.sizes),
    Property("attributes", attributes.SAYS, attributes.attributes),
    Property("layouts", layouts.SAYS, layouts.layouts, "strided"),
    Property("subsets", subsets.SAYS, subsets.subsets, "asked"),
    Property("accumulates", accumulates.SAYS, accumulates.accumulates, "into"),
    Property("written", written.SAYS, written.written, "into"),
    Property("aliases", aliases.SAYS, aliases.aliases, "into"),
    Property("bounds", bounds.SAYS, bounds.bounds, "into"),
)
