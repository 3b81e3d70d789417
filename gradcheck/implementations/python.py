"""A user's Python functions: `--impl pkg.module:NAME`.

NAME maps operator names, or `operator/dialect`, to objects with `vjp(ct, *primals, **attrs)` and
optionally `forward(*primals, **attrs)`. A forward that returns `(y, pullback)` needs no vjp; what
PyTorch or JAX is to differentiate is described in `gradcheck.implementations.frameworks`.

A `vjp_into(outs, ct, *primals, **attrs)` beside it, or in its place, fills arrays by the names of
primals; `accumulates` and `zeroed` are names of those that it adds to, or wants zeroed, `aliases`
pairs (primal, argument) that may share memory. A vjp that takes `needs=`, a bool per primal, gives
None for what is not asked for. Both are put to the test by the contract battery.

It maps names of models, or `model/dialect`, to what `gradcheck.implementations.model` describes.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from gradcheck.errors import LoadError, Unsupported
from gradcheck.implementations.bound import Bound, BoundModel, BoundRule
from gradcheck.implementations.frameworks import differentiated
from gradcheck.implementations.into import into_of, vjp_from
from gradcheck.implementations.keywords import accepted, entry_of, method, takes
from gradcheck.implementations.model import bound_model, fault, is_module, says_how
from gradcheck.implementations.recipe import recipe_of
from gradcheck.implementations.source import source_of
from gradcheck.numerics.arrays import Attrs
from gradcheck.spec.loading import resolve
from gradcheck.spec.model import ModelCase
from gradcheck.spec.rule import RuleCase
from gradcheck.spec.suite import Case

ROLES: Final = ("vjp", "forward", "vjp_into", "update")
"""What an entry must have one of."""


class Python:
    """A table of Python objects.

    Raises:
        LoadError: the table cannot be imported, or is no mapping of names to objects.
    """

    def __init__(
        self, reference: str, operators: Collection[str] = (), models: Collection[str] = ()
    ) -> None:
        """Import the table; names of neither `operators` nor `models` may be another suite's."""
        self.name = reference
        table = resolve(reference, own=True)
        if not isinstance(table, Mapping):
            raise LoadError(
                f"{reference} is a {type(table).__name__}; make it a dict from operator names to "
                "objects with `vjp` and, optionally, `forward`"
            )
        entries: dict[Any, Any] = {}
        for key, entry in table.items():
            name = str(key).partition("/")[0]
            whole = name not in operators and (is_module(entry) or says_how(entry))
            if name in models or whole:
                wrong = fault(entry)
                if wrong:
                    raise LoadError(f"{reference}[{key!r}] {wrong}")
                entries[key] = entry
                continue
            framework = _differentiated(f"{reference}[{key!r}]", entry)
            entries[key] = entry if framework is None else framework
            if not any(method(entries[key], role) for role in ROLES):
                raise LoadError(
                    f"{reference}[{key!r}] is a {type(entry).__name__} without a callable `vjp`; "
                    "give it vjp(ct, *primals, **attrs), or a forward that returns (y, pullback); "
                    "wrap a function of tensors as gradcheck.torch_op(function), one of JAX's "
                    "arrays as gradcheck.jax_op(function)"
                )
        self.table, self._given = entries, table

    def bind(self, case: Case, dtype: str) -> Bound | None:
        """The entry for `op/dialect`, else for `op`."""
        entry, fixed = entry_of(self.table, case)
        if entry is None:
            return None
        attrs, names = case.attrs, case.primal_names
        bound = bound_operator(entry, attrs, fixed, names)
        exact = f"{case.spec.name}/{case.dialect.name}"
        key = exact if self.table.get(exact) is not None else case.spec.name
        recipe = recipe_of(key, self._given[key], entry, bound, attrs, fixed, names)
        return replace(bound, recipe=recipe)

    def bind_model(self, case: ModelCase, dtype: str) -> BoundModel | None:
        """The entry for `model/dialect`, else for `model`."""
        entry, fixed = entry_of(self.table, case)
        return None if entry is None else bound_model(entry, case, dtype, fixed, bound_operator)

    def bind_rule(self, case: RuleCase, dtype: str) -> BoundRule | None:
        """The entry's `update` and, if there is one, its `init`."""
        entry, fixed = entry_of(self.table, case)
        update = None if entry is None else method(entry, "update")
        if update is None:
            return None
        attrs = accepted(update, "update", case.attrs, fixed)
        return BoundRule(update=update, init=method(entry, "init"), attrs=attrs)


def _differentiated(where: str, entry: Any) -> Any:
    try:
        return differentiated(entry)
    except LoadError as error:
        raise LoadError(f"{where}: {error}") from error


def bound_operator(entry: Any, attrs: Attrs, fixed: Attrs, names: Sequence[str] = ()) -> Bound:
    """An entry with a VJP, with a forward that returns its pullback, or with a `vjp_into` alone.

    `names` are those of the primals, which the last of them needs.

    Raises:
        Unsupported: `attrs` want another value than `fixed` of what the code has fixed.
    """
    framework = differentiated(entry)  # a stage's, say, which no table holds by its name
    if framework is not None:
        return replace(framework.bound(attrs, fixed), source=source_of(framework.code))
    forward, vjp = method(entry, "forward"), method(entry, "vjp")
    into = into_of(entry, attrs, fixed)
    own = method(entry, "vjp_into") if vjp is None else vjp
    if vjp is None and into is not None:
        if not names:
            raise Unsupported("a stage is judged by its `vjp`; there is a `vjp_into` alone")
        vjp = vjp_from(into, names)
    if vjp is None:
        assert forward is not None
        pair = _pair(forward)
        return Bound(
            vjp=lambda ct, *primals, **attrs: pair(*primals, **attrs)[1](ct),
            forward=lambda *primals, **attrs: pair(*primals, **attrs)[0],
            attrs=accepted(forward, "forward", attrs, fixed),
            strided=True,
            source=source_of(forward),
        )
    return Bound(
        vjp=vjp,
        forward=None if forward is None else _value_only(forward, attrs, fixed),
        attrs=accepted(vjp, "vjp", attrs, fixed),
        into=into,
        asked=_asked(vjp) if "needs" in (takes(vjp) or ()) else None,
        strided=True,
        source="" if own is None else source_of(own),
    )


def _asked(vjp: Callable[..., Any]) -> Callable[..., Any]:
    def asked(needs: tuple[bool, ...], ct: Any, *primals: Any, **attrs: Any) -> Any:
        return vjp(ct, *primals, needs=needs, **attrs)

    return asked


def _value_only(forward: Callable[..., Any], attrs: Attrs, fixed: Attrs) -> Callable[..., Any]:
    """Forward without its pullback; it takes attributes of its own, whatever vjp takes."""
    own = accepted(forward, "forward", attrs, fixed)

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
