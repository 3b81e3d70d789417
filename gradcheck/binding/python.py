"""A user's Python functions: `--impl pkg.module:NAME`.

NAME maps operator names, or `operator/dialect`, to objects with `vjp(ct, *primals, **attrs)` and
optionally `forward(*primals, **attrs)`. A forward that returns `(y, pullback)` needs no vjp.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any

from gradcheck.binding import Bound, BoundModel
from gradcheck.errors import LoadError, Unsupported
from gradcheck.model import ModelCase
from gradcheck.spec import Attrs
from gradcheck.suite import Case, resolve


class Python:
    """A table of Python objects.

    Raises:
        LoadError: the table cannot be imported, or is no mapping of names to objects.
    """

    def __init__(self, reference: str) -> None:
        """Import the table."""
        self.name = reference
        table = resolve(reference)
        if not isinstance(table, Mapping):
            raise LoadError(
                f"{reference} is a {type(table).__name__}; make it a dict from operator names to "
                "objects with `vjp` and, optionally, `forward`"
            )
        for key, entry in table.items():
            if not (_method(entry, "vjp") or _method(entry, "forward")):
                raise LoadError(
                    f"{reference}[{key!r}] is a {type(entry).__name__} without a callable `vjp`; "
                    "give it vjp(ct, *primals, **attrs), or a forward that returns (y, pullback)"
                )
        self.table = table

    def bind(self, case: Case, dtype: str) -> Bound | None:
        """The entry for `op/dialect`, else for `op`."""
        name = case.spec.name
        exact = self.table.get(f"{name}/{case.dialect.name}")
        entry = exact if exact is not None else self.table.get(name)
        if entry is None:
            return None
        fixed = case.spec.defaults
        if exact is not None:
            fixed = {**fixed, **case.dialect.attrs}
        forward, vjp = _method(entry, "forward"), _method(entry, "vjp")
        if vjp is None:
            assert forward is not None
            pair = _pair(forward)
            return Bound(
                vjp=lambda ct, *primals, **attrs: pair(*primals, **attrs)[1](ct),
                forward=lambda *primals, **attrs: pair(*primals, **attrs)[0],
                attrs=_accepted(forward, "forward", case, fixed),
            )
        return Bound(
            vjp=vjp,
            forward=None if forward is None else _value_only(forward, case, fixed),
            attrs=_accepted(vjp, "vjp", case, fixed),
        )

    def bind_model(self, case: ModelCase, dtype: str) -> BoundModel | None:
        """Nothing yet."""
        return None


def _method(entry: Any, name: str) -> Callable[..., Any] | None:
    found = entry.get(name) if isinstance(entry, Mapping) else getattr(entry, name, None)
    return found if callable(found) else None


def _value_only(forward: Callable[..., Any], case: Case, fixed: Attrs) -> Callable[..., Any]:
    """Forward without its pullback; it takes attributes of its own, whatever vjp takes."""
    own = _accepted(forward, "forward", case, fixed)

    def value(*primals: Any, **_: Any) -> Any:
        out = forward(*primals, **own)
        return out[0] if _has_pullback(out) else out

    return value


def _pair(forward: Callable[..., Any]) -> Callable[..., tuple[Any, Callable[..., Any]]]:
    """A forward that must return (y, pullback)."""

    def pair(*primals: Any, **attrs: Any) -> Any:
        out = forward(*primals, **attrs)
        if not _has_pullback(out):
            raise TypeError("there is no vjp, and forward did not return (y, pullback)")
        return out

    return pair


def _has_pullback(out: Any) -> bool:
    return isinstance(out, tuple) and len(out) == 2 and callable(out[1])


def _takes(function: Callable[..., Any]) -> frozenset[str] | None:
    """Names of the keywords that a function takes; None if it takes any, or does not say."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return None
    if any(p.kind is p.VAR_KEYWORD for p in parameters):
        return None
    return frozenset(
        p.name for p in parameters if p.kind in (p.KEYWORD_ONLY, p.POSITIONAL_OR_KEYWORD)
    )


def _accepted(function: Callable[..., Any], role: str, case: Case, fixed: Attrs) -> Attrs:
    """The case's attributes that `function`, the entry's `role`, takes.

    One that it does not take is fixed in its code: the case applies only where the case's value
    is the operator's default (the dialect's, if the entry names a dialect).

    Raises:
        Unsupported: the case wants another value.
    """
    takes = _takes(function)
    if takes is None:
        return case.attrs
    for name, value in case.attrs.items():
        if name not in takes and value != fixed[name]:
            raise Unsupported(f"{role} takes no {name!r}; this case wants {name}={value!r}")
    return {name: value for name, value in case.attrs.items() if name in takes}
