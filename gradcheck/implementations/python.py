"""A user's Python functions: `--impl pkg.module:NAME`."""

from __future__ import annotations

import difflib
import inspect
import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

import numpy as np

from gradcheck.errors import LoadError, Unsupported
from gradcheck.implementations.bound import Bound, BoundModel, BoundRule, Into, Recipe
from gradcheck.implementations.framed_memory import framed
from gradcheck.implementations.jax import JaxOp, jax_op
from gradcheck.implementations.model import bound_model, fault, is_module, says_how
from gradcheck.implementations.torch_op import TorchOp, torch_op
from gradcheck.implementations.user_functions import (
    Differentiated,
    accepted,
    entry_of,
    member,
    method,
    refuse_primals,
    source_of,
    takes,
)
from gradcheck.numerics.arrays import Attrs, is_float
from gradcheck.spec.loading import resolve
from gradcheck.spec.model import ModelCase
from gradcheck.spec.operator import OpSpec
from gradcheck.spec.rule import RuleCase
from gradcheck.spec.suite import Case


def differentiated(entry: Any) -> TorchOp | JaxOp | None:
    """The operator that an entry of a table stands for, if a framework has to differentiate it.

    That is one that was wrapped; a `torch.autograd.Function` or a module; a `jax.custom_vjp` or
    what `jax.jit` made; or a function of PyTorch's or JAX's own. No framework is imported for the
    question: who made such an entry has imported it.

    Raises:
        LoadError: it is a class of modules.
    """
    if isinstance(entry, (TorchOp, JaxOp)):
        return entry
    torch, jax = sys.modules.get("torch"), sys.modules.get("jax")
    if torch is not None:
        whole = (torch.autograd.Function, torch.nn.Module)
        if isinstance(entry, type) and issubclass(entry, whole):
            return torch_op(entry)
        if isinstance(entry, torch.nn.Module) or _made_by(("torch",), entry):
            return torch_op(entry)
    if jax is not None and _made_by(("jax", "jaxlib"), entry):
        return jax_op(entry)
    return None


def _made_by(packages: tuple[str, ...], entry: Any) -> bool:
    """Whether an entry is a framework's own function, or a kind of callable that only it makes."""
    if not callable(entry) or isinstance(entry, type) or _says_how(entry):
        return False
    homes = (getattr(entry, "__module__", None), type(entry).__module__)
    return any(str(home).partition(".")[0] in packages for home in homes)


def _says_how(entry: Any) -> bool:
    return any(method(entry, role) for role in ("vjp", "forward", "update"))


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
    style, own = "bare" if is_bare(given) else "pullback", bound.attrs
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


ROLES: Final = ("vjp", "forward", "vjp_into", "update")
"""What an entry must have one of."""


WRAPPERS: Final = (
    "wrap a function of tensors as gradcheck.torch_op(function), one of JAX's arrays as "
    "gradcheck.jax_op(function)"
)


def is_bare(entry: Any) -> bool:
    """Whether an entry is a function, which counts as a vjp without a forward."""
    called = callable(entry) and not isinstance(entry, type)
    return called and not any(method(entry, role) for role in ROLES)


def refuse_other_function(where: str, function: Callable[..., Any], spec: OpSpec) -> None:
    """Refuse a bare function that cannot be called as the operator's vjp.

    Raises:
        LoadError: it takes fewer or more arguments, or the primals first.
    """
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return
    positional = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    taken = [p for p in parameters if p.kind in positional and p.name not in spec.defaults]
    needed = sum(p.default is p.empty for p in taken)
    most = np.inf if any(p.kind is p.VAR_POSITIONAL for p in parameters) else len(taken)
    names = [p.name for p in taken]
    counts = {1 + len(spec.primals) - len(dialect.without) for dialect in spec.dialects}
    together = min(len(names), len(spec.primals))
    first = together > 0 and names[:together] == [*spec.primals[:together]]
    if not first and any(needed <= count <= most for count in counts):
        return
    hint = f"; {WRAPPERS}" if sys.modules.keys() & {"torch", "jax"} else ""
    raise LoadError(
        f"{where} is {getattr(function, '__name__', 'a function')}({', '.join(names)}); a function "
        f"alone is the operator's vjp and takes (ct, {', '.join(spec.primals)}), the cotangent "
        f'first; beside a forward write {{"forward": f, "vjp": g}}{hint}'
    )


class Python:
    """A table of Python objects.

    Raises:
        LoadError: the table cannot be imported, or is not a mapping.
    """

    def __init__(
        self, reference: str, operators: Collection[str] = (), models: Collection[str] = ()
    ) -> None:
        """Import the table; names of neither `operators` nor `models` may be another suite's."""
        self.name = self._entry = reference
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
            if framework is None and is_bare(entry):
                entries[key] = {"vjp": entry}
            if not any(method(entries[key], role) for role in ROLES):
                raise LoadError(
                    f"{reference}[{key!r}] is a {type(entry).__name__} without a callable `vjp`; "
                    "give it vjp(ct, *primals, **attrs), or a forward that returns (y, pullback); "
                    f"{WRAPPERS}"
                )
        self.table, self._given = entries, table

    def is_bare(self, key: str) -> bool:
        """Whether the user's table has a function at `key`, and no object with a vjp."""
        return isinstance(self.table[key], dict) and is_bare(self._given[key])

    def bind(self, case: Case, dtype: str) -> Bound | None:
        """The entry for `op/dialect`, else for `op`."""
        entry, fixed = entry_of(self.table, case)
        if entry is None:
            return None
        attrs, names = case.attrs, case.primal_names
        exact = f"{case.spec.name}/{case.dialect.name}"
        key = exact if self.table.get(exact) is not None else case.spec.name
        if key != exact:
            for role, function, leading in signatures_of(entry):
                refuse_primals(function, role, leading, case)
        bound = bound_operator(entry, attrs, fixed, names)
        given, callee = self._given[key], None
        recipe = recipe_of(key, given, entry, bound, attrs, fixed, names)
        if isinstance(entry, Differentiated):
            module, _, table = self._entry.partition(":")
            item = None if entry is given else (module, f"{table}[{key!r}]")
            callee = entry.callee(bound.attrs, len(names), item)
        return replace(bound, recipe=recipe, callee=callee)

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


def signatures_of(entry: Any) -> Iterator[tuple[str, Callable[..., Any], int]]:
    """What an entry is called by: the role, the function, and its arguments before the primals."""
    if isinstance(entry, Differentiated):
        yield "it", *entry.signature
        return
    for role, leading in (("vjp", 1), ("forward", 0), ("vjp_into", 2)):
        function = method(entry, role)
        if function is not None:
            yield role, function, leading


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
    """Forward without its pullback; it may take other attributes than vjp."""
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
