"""How a script of its own calls an entry of a Python table, without us."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from gradcheck.implementations.bound import Bound, Recipe
from gradcheck.implementations.differentiated import Differentiated
from gradcheck.implementations.jax_op import JaxOp
from gradcheck.implementations.keywords import accepted, method
from gradcheck.implementations.torch_op import TorchOp
from gradcheck.numerics.arrays import Attrs


def recipe_of(
    key: str, given: Any, entry: Any, bound: Bound, attrs: Attrs, fixed: Attrs, names: Sequence[str]
) -> Recipe | None:
    """What a script needs to know of the entry at `key`.

    `given` is what stands in the user's table, `entry` what was made of it, `bound` what is called;
    `attrs`, `fixed` and the `names` of the primals are the case's.
    """
    if isinstance(entry, Differentiated) and entry is not given:
        return _framework(key, given, entry, bound, len(names))
    if isinstance(entry, Differentiated):  # wrapped by the user, who imports us himself
        return Recipe(key=key, style="vjp", attrs=bound.attrs, forward=bound.attrs, ours=True)
    mapping = isinstance(given, Mapping)
    forward, into = method(given, "forward"), method(given, "vjp_into")
    style, own = "pullback", bound.attrs
    if method(given, "vjp") is not None:
        style = "vjp"
    elif into is not None:
        style, own = "into", accepted(into, "vjp_into", attrs, fixed)
    takes = None if forward is None else accepted(forward, "forward", attrs, fixed)
    return Recipe(key=key, style=style, mapping=mapping, attrs=own, forward=takes)


def _framework(
    key: str, given: Any, entry: Differentiated, bound: Bound, primals: int
) -> Recipe | None:
    """Of what a framework differentiates, as it stands in the table."""
    if isinstance(entry, JaxOp):
        return Recipe(key=key, style="jax", attrs=bound.attrs, forward=bound.attrs)
    assert isinstance(entry, TorchOp)
    if isinstance(given, type):
        try:
            behind = tuple(entry.call.behind(primals, bound.attrs))
        except TypeError:  # it cannot be called at all; asked for gradients, it says why
            return None
        return Recipe(key=key, style="apply", attrs={}, forward={}, behind=behind)
    style = "module" if hasattr(entry.call, "module") else "torch"
    return Recipe(key=key, style=style, attrs=bound.attrs, forward=bound.attrs)
