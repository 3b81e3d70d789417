"""Checks of a manifest's entry against its operator.

A mistake is a `ManifestError` that begins with the file, the entry and the key.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from gradcheck.errors import ManifestError
from gradcheck.implementations.manifest import expression
from gradcheck.implementations.manifest.operation import (
    Function,
    Meaning,
    Role,
    RoleKind,
    Scratch,
    Tensors,
    View,
    expressions,
    roles,
    roles_of,
)
from gradcheck.implementations.manifest.schema import Op, Wider, suggestion
from gradcheck.numerics.arrays import Attrs
from gradcheck.spec.operator import OpSpec, Slack

WRITTEN: Final = {
    "vjp": (RoleKind.GRAD, RoleKind.VALUE),
    "forward": (RoleKind.OUT, RoleKind.SAVED),
    "handle": (),
}
READ: Final = {
    "vjp": (RoleKind.IN, RoleKind.COTANGENT, RoleKind.OUT, RoleKind.SAVED),
    "forward": (RoleKind.IN,),
    "handle": (RoleKind.IN,),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Operator:
    """The operator of a manifest's entry, in the dialect that it names (empty: in none).

    `indices` are primals that are whole numbers, `absent` those that the dialect lacks, and `attrs`
    its values of attributes.
    """

    spec: OpSpec
    dialect: str
    outputs: int
    indices: frozenset[str]
    absent: frozenset[str]
    attrs: Attrs

    @property
    def names(self) -> frozenset[str]:
        """The names that every expression may mention: primals and attributes."""
        return frozenset({*self.spec.primals, *self.spec.defaults})


def check_function(function: Function, key: str, where: str, operator: Operator) -> None:
    """Refuse roles that `key` ("vjp", "forward" or "handle") cannot have, or of no such primal."""
    for parameter in function.prototype.parameters:
        here = f"{where}.{parameter.name}"
        meant = function.meanings[parameter.name]
        if parameter.ctype.const and _writes(meant, key):
            raise ManifestError(
                f"{here} is const in the prototype, but what it is bound to is written; "
                "correct one of the two"
            )
        if isinstance(meant, Tensors):
            for view in meant.views:
                _check_view(view, key, here, operator)
    if function.returned is not None and function.returned.kind is not RoleKind.STATUS:
        _check_role(function.returned, WRITTEN[key], key, f"{where}.return", operator)
    held = list(roles(function))
    if key == "vjp" and not any(role.kind is RoleKind.GRAD for role in held):
        first = operator.spec.primals[0]
        raise ManifestError(f"{where}: no parameter is a gradient; bind one to grad:{first}")
    if key == "forward":
        given = {role.index for role in held if role.kind is RoleKind.OUT}
        lacking = [str(i) for i in range(operator.outputs) if i not in given]
        if lacking:
            raise ManifestError(
                f"{where}: forward gives no `out:{lacking[0]}`; bind a parameter or `return` to it"
            )


def check_residuals(
    vjp: Function | None,
    forward: Function | None,
    op: Op,
    where: str,
    dtype: str,
    known: frozenset[str],
) -> tuple[Function | None, Function | None]:
    """Both functions, with the shape of a residual where only the other one says it.

    `known` are the names that every expression may mention.
    """
    needed = {r.name: r for r in _residuals(vjp)}
    made = {r.name: r for r in _residuals(forward)}
    for name in needed:
        if op.residuals == "reference":
            if name not in op.saved:
                raise ManifestError(
                    f'{where}: residuals = "reference", and `saved` does not say what `{name}` '
                    f"is{suggestion(name, [*op.saved])}"
                )
        elif name not in made:
            what = "forward saves no such thing" if forward else f"there is no forward in {dtype}"
            raise ManifestError(
                f"{where}: saved:{name}: {what}{suggestion(name, [*made])}; let forward write it, "
                f'or write residuals = "reference" and saved = {{ {name} = "…" }}'
            )
    for name in op.saved:
        if name not in needed:
            raise ManifestError(
                f"{where}: `saved` explains `{name}`, which no parameter of vjp is"
                f"{suggestion(name, [*needed])}"
            )
    return _shaped(vjp, made, known, where), _shaped(forward, needed, known, where)


def grads(vjp: Function | None) -> dict[str, set[str]]:
    """Per parameter (or "return"), the primals whose gradients it holds."""
    found: dict[str, set[str]] = {}
    if vjp is None:
        return found
    for name, meant in vjp.meanings.items():
        held = {r.name for r in roles_of(meant) if r.kind is RoleKind.GRAD}
        if held:
            found[name] = held
    if vjp.returned is not None and vjp.returned.kind is RoleKind.GRAD:
        found["return"] = {vjp.returned.name}
    return found


def _residuals(function: Function | None) -> Iterator[Role]:
    return (role for role in roles(function) if role.kind is RoleKind.SAVED)


def _writes(meant: Meaning, key: str) -> bool:
    if isinstance(meant, Tensors):
        return any(v.becomes is not None or v.role.kind in WRITTEN[key] for v in meant.views)
    return isinstance(meant, Scratch)


def _check_view(view: View, key: str, where: str, operator: Operator) -> None:
    allowed = READ[key] if view.becomes is not None else (*READ[key], *WRITTEN[key])
    _check_role(view.role, allowed, key, where, operator)
    if view.becomes is not None:
        _check_role(view.becomes, WRITTEN[key], key, where, operator)


def _check_role(
    role: Role, allowed: tuple[RoleKind, ...], key: str, where: str, operator: Operator
) -> None:
    spec, outputs = operator.spec, operator.outputs
    if role.kind not in allowed:
        raise ManifestError(
            f"{where}: `{role.kind}` has no place here: "
            f"{'a constructor' if key == 'handle' else f'a {key}'} knows "
            f"{', '.join(map(str, allowed)) or 'none'}"
        )
    if role.kind in (RoleKind.IN, RoleKind.GRAD) and role.name not in spec.primals:
        near = suggestion(role.name, [*spec.primals])
        raise ManifestError(f"{where}: {spec.name} has no primal `{role.name}`{near}")
    if role.name in operator.absent and not role.optional:
        raise ManifestError(
            f"{where}: the dialect has no `{role.name}`; leave `{role.kind}:{role.name}` out, or "
            "end it with `?` for a null pointer"
        )
    if role.kind is RoleKind.GRAD and role.name in operator.indices:
        raise ManifestError(f"{where}: `{role.name}` holds indices, which have no gradient")
    if role.index >= outputs:
        raise ManifestError(
            f"{where}: {role.kind}:{role.index}: {spec.name} has {outputs} "
            f"output{'s' if outputs > 1 else ''}, counted from 0"
        )


def _shaped(
    function: Function | None, other: Mapping[str, Role], known: frozenset[str], where: str
) -> Function | None:
    """The function, with shapes of residuals from `other` where only that one has them."""
    if function is None:
        return None
    names = known | scalar_names(function)

    def shaped(role: Role) -> Role:
        if role.kind is not RoleKind.SAVED or role.extents or role.name not in other:
            return role
        extents = other[role.name].extents
        for text in extents:
            here = f"{where}: saved:{role.name} of `{function.prototype.symbol}` has no shape"
            expression.check_expression(
                text, names, f"{here}, and the other function's means nothing here"
            )
        return replace(role, extents=extents)

    def whole(meant: Meaning) -> Meaning:
        if not isinstance(meant, Tensors):
            return meant
        views = tuple(
            replace(v, role=shaped(v.role), becomes=v.becomes and shaped(v.becomes))
            for v in meant.views
        )
        return replace(meant, views=views)

    return replace(function, meanings={n: whole(m) for n, m in function.meanings.items()})


def scalar_names(function: Function) -> set[str]:
    """Names of its parameters by value: expressions may mention them."""
    return {p.name for p in function.prototype.parameters if not p.ctype.pointer}


def fixed_attrs(
    op: Op, where: str, operator: Operator, functions: Sequence[Function]
) -> dict[str, Any]:
    """Attributes that the code has fixed: as said, or at their default where nothing asks."""
    spec = operator.spec
    for name in op.attrs:
        if name not in spec.defaults:
            near = suggestion(name, [*spec.defaults]) or f"; {spec.name} has none"
            raise ManifestError(f"{where}: attrs: no attribute `{name}`{near}")
        _check_kind(f"{where}: attrs.{name}", op.attrs[name], spec.defaults[name])
    mentioned: set[str] = set()
    for text in (*op.requires, *op.saved.values(), str(op.loss_scale)):
        mentioned |= expression.names_in(text).all
    for function in functions:
        numbers = scalar_names(function)
        for name, meant in function.meanings.items():
            for text in expressions(meant):
                mentioned |= expression.names_in(text).all - (numbers - {name})
    values = {**spec.defaults, **operator.attrs}
    kept = {name: value for name, value in values.items() if name not in mentioned}
    return {**kept, **{name: _frozen(value) for name, value in op.attrs.items()}}


def _check_kind(where: str, value: Any, default: Any) -> None:
    """Refuse a value of another kind than the default's: it would match no case."""
    kinds = ((bool,), (int, float), (str,), (tuple, list))
    for kind in kinds:
        if isinstance(default, kind) and not isinstance(value, kind):
            raise ManifestError(f"{where} = {value!r}; its default is {default!r}, of another kind")
        if isinstance(default, kind):
            return


def _frozen(value: Any) -> Any:
    return tuple(_frozen(element) for element in value) if isinstance(value, list) else value


def declared_primals(vjp: Function | None, said: Sequence[str], where: str) -> frozenset[str]:
    """The primals whose gradients parameters (or primals) of these names are."""
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


def declared_alias(vjp: Function | None, first: str, second: str, where: str) -> tuple[str, str]:
    """A pair (primal, "ct" or primal) from two parameters that may be the same memory."""
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


def declared_missing(
    op: Op, where: str, operator: Operator, vjp: Function | None
) -> dict[str, str]:
    """Gradients that the code is said to lack, and why."""
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


def declared_slack(said: Wider | None, where: str) -> Slack | None:
    """The wider bound that an entry asks for, if it does."""
    if said is None:
        return None
    if not said.because.strip():
        raise ManifestError(f"{where}: a wider bound needs a sentence: fill `slack … because`")
    ok = 0 < said.ulp < math.inf
    if not ok:
        raise ManifestError(f"{where}: slack: ulp = {said.ulp}; write how many, more than 0")
    return Slack(ulp=said.ulp, because=said.because)
