"""A user's `vjp_into`, which writes into memory of the caller's, and what it declares of it."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

import numpy as np

from gradcheck.errors import LoadError
from gradcheck.implementations.bound import Into
from gradcheck.implementations.framed_memory import framed
from gradcheck.implementations.keywords import accepted, member, method
from gradcheck.numerics.arrays import Attrs
from gradcheck.numerics.dtypes import is_float
from gradcheck.spec.operator import OpSpec

DECLARED: Final = ("accumulates", "zeroed")
"""What an entry says of the gradients that it writes, as sets of names of primals."""


def into_of(entry: Any, attrs: Attrs, fixed: Attrs) -> Into | None:
    """What an entry offers as `vjp_into(outs, ct, *primals, **attrs)`.

    Raises:
        Unsupported: `attrs` want another value than `fixed` of what the code has fixed.
    """
    function = method(entry, "vjp_into")
    if function is None:
        return None
    own = accepted(function, "vjp_into", attrs, fixed)
    accumulates, zeroed = (frozenset(_names(member(entry, role))) for role in DECLARED)

    def call(outs: dict[str, Any], ct: Any, *primals: Any, **_: Any) -> None:
        function(outs, ct, *primals, **own)

    return Into(
        call=call,
        accumulates=accumulates,
        zeroed=zeroed,
        aliases=tuple((str(a), str(b)) for a, b in member(entry, "aliases") or ()),
    )


def vjp_from(into: Into, names: Sequence[str]) -> Callable[..., Any]:
    """A VJP that returns what `into` leaves in arrays of zeros; None for an index."""

    def vjp(ct: Any, *primals: Any, **attrs: Any) -> Any:
        given = dict(zip(names, primals, strict=True))
        # Room on both sides: what is written past the end must not bring down this process.
        outs = {n: framed(np.zeros_like(p)).array for n, p in given.items() if is_float(p.dtype)}
        into.call(outs, ct, *primals, **attrs)
        return tuple(outs.get(name) for name in names)

    return vjp


def refuse_unknown(where: str, entry: Any, spec: OpSpec) -> None:
    """Refuse names, in what an entry declares of its `vjp_into`, that the operator has not.

    Raises:
        LoadError: there is one, or there is no `vjp_into` to declare anything of.
    """
    pairs = member(entry, "aliases") or ()
    try:
        aliased = [name for a, b in pairs for name in (a, b) if name != "ct" or name == a]
    except (TypeError, ValueError):
        raise LoadError(f'{where}: write `aliases` as pairs, such as (("x", "ct"),)') from None
    declared = {role: list(_names(member(entry, role))) for role in DECLARED}
    for role, names in {**declared, "aliases": aliased}.items():
        if names and method(entry, "vjp_into") is None:
            raise LoadError(f"{where}: `{role}` is about vjp_into, and there is none")
        for name in names:
            if name not in spec.primals:
                near = difflib.get_close_matches(str(name), spec.primals, n=1, cutoff=0.3)
                hint = f"did you mean {near[0]!r}?" if near else f"known: {list(spec.primals)}"
                raise LoadError(f"{where}: `{role}` names {name!r}, no primal; {hint}")


def _names(found: Any) -> Iterable[str]:
    return (found,) if isinstance(found, str) else tuple(found or ())
