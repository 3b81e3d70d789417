"""What an entry declares beside its functions, in the operator's primals and attributes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from gradcheck.errors import ManifestError
from gradcheck.implementations.manifest import syntax
from gradcheck.implementations.manifest.bind_roles import expressions
from gradcheck.implementations.manifest.check_signature import Operator, grads
from gradcheck.implementations.manifest.errors import suggestion
from gradcheck.implementations.manifest.operation import Function, RoleKind, Tensors
from gradcheck.implementations.manifest.schema import Op, Wider
from gradcheck.numerics.arrays import Attrs
from gradcheck.spec.operator import Slack


def scalars(function: Function) -> set[str]:
    """Names of its parameters by value: expressions may mention them."""
    return {p.name for p in function.prototype.parameters if not p.ctype.pointer}


def fixed(
    op: Op, where: str, operator: Operator, own: Attrs, functions: Sequence[Function]
) -> dict[str, Any]:
    """Attributes that the code has fixed: as said, or at their default where nothing asks.

    `own` are the values of the dialect that the entry names.

    Raises:
        ManifestError: one is said that the operator does not have, or of another kind.
    """
    spec = operator.spec
    for name in op.attrs:
        if name not in spec.defaults:
            near = suggestion(name, [*spec.defaults]) or f"; {spec.name} has none"
            raise ManifestError(f"{where}: attrs: no attribute `{name}`{near}")
        _check_kind(f"{where}: attrs.{name}", op.attrs[name], spec.defaults[name])
    mentioned: set[str] = set()
    for text in (*op.requires, *op.saved.values(), str(op.loss_scale)):
        mentioned |= syntax.names(text).all
    for function in functions:
        numbers = scalars(function)
        for name, meant in function.meanings.items():
            for text in expressions(meant):
                mentioned |= syntax.names(text).all - (numbers - {name})
    values = {**spec.defaults, **own}
    kept = {name: value for name, value in values.items() if name not in mentioned}
    return {**kept, **{name: _frozen(value) for name, value in op.attrs.items()}}


def _check_kind(where: str, value: Any, default: Any) -> None:
    """A value of another kind than the default's would match no case."""
    kinds = ((bool,), (int, float), (str,), (tuple, list))
    for kind in kinds:
        if isinstance(default, kind) and not isinstance(value, kind):
            raise ManifestError(f"{where} = {value!r}; its default is {default!r}, of another kind")
        if isinstance(default, kind):
            return


def _frozen(value: Any) -> Any:
    return tuple(_frozen(element) for element in value) if isinstance(value, list) else value


def primals(vjp: Function | None, said: Sequence[str], where: str) -> frozenset[str]:
    """The primals whose gradients parameters (or primals) of these names are.

    Raises:
        ManifestError: one is no gradient.
    """
    have = grads(vjp)
    found: set[str] = set()
    for name in said:
        if name in have:
            found |= have[name]
        elif any(name in held for held in have.values()):
            found.add(name)
        else:
            near = suggestion(name, [*have])
            raise ManifestError(f"{where}: `{name}` is no gradient{near}")
    return frozenset(found)


def alias(vjp: Function | None, first: str, second: str, where: str) -> tuple[str, str]:
    """A pair (primal, "ct" or primal) from two parameters that may be the same memory.

    Raises:
        ManifestError: they are not a gradient and a tensor that is read.
    """
    where = f"{where}: aliases: `{first}`, `{second}`"
    have = grads(vjp)
    read = _read(vjp)
    if first not in have:
        first, second = second, first
    if first not in have:
        raise ManifestError(f"{where}: neither is a gradient{suggestion(first, [*have])}")
    if second not in read:
        raise ManifestError(
            f"{where}: `{second}` is neither a cotangent nor a primal{suggestion(second, [*read])}"
        )
    if len(have[first]) != 1:
        raise ManifestError(f"{where}: `{first}` holds several gradients; alias one alone")
    (primal,) = have[first]
    return primal, read[second]


def _read(vjp: Function | None) -> dict[str, str]:
    """Parameters that hold one cotangent or primal alone: "ct" or the primal."""
    found = {}
    for name, meant in ({} if vjp is None else vjp.meanings).items():
        if isinstance(meant, Tensors) and len(meant.views) == 1:
            held = meant.views[0].role
            if held.kind is RoleKind.COTANGENT:
                found[name] = "ct"
            elif held.kind is RoleKind.IN:
                found[name] = held.name
    return found


def missing(op: Op, where: str, operator: Operator, vjp: Function | None) -> dict[str, str]:
    """Gradients that the code is said to lack, and why.

    Raises:
        ManifestError: one is bound, is no gradient, or of no such primal.
    """
    spec = operator.spec
    have = {primal for held in grads(vjp).values() for primal in held}
    for name in op.missing:
        if name not in spec.primals:
            near = suggestion(name, [*spec.primals])
            raise ManifestError(f"{where}: missing: {spec.name} has no primal `{name}`{near}")
        if name in have:
            raise ManifestError(
                f"{where}: missing: `{name}` has a gradient: a parameter is grad:{name}"
            )
        if name in operator.indices:
            raise ManifestError(f"{where}: missing: `{name}` holds indices, which have no gradient")
    return dict(op.missing)


def slack(said: Wider | None, where: str) -> Slack | None:
    """The wider bound that an entry asks for, if it does.

    Raises:
        ManifestError: it says nothing about why, or would hold for anything.
    """
    if said is None:
        return None
    if not said.because.strip():
        raise ManifestError(f"{where}: a wider bound needs a sentence: fill `slack … because`")
    ok = 0 < said.ulp < math.inf
    if not ok:
        raise ManifestError(f"{where}: slack: ulp = {said.ulp}; write how many, more than 0")
    return Slack(ulp=said.ulp, because=said.because)
