"""One C function of a manifest: its prototype, what `bind` says of each parameter, its dtype."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from gradcheck.errors import ManifestError
from gradcheck.implementations.manifest import syntax
from gradcheck.implementations.manifest.bind_roles import Scope, meaning, role
from gradcheck.implementations.manifest.check_signature import Operator, check_function
from gradcheck.implementations.manifest.errors import suggestion
from gradcheck.implementations.manifest.operation import (
    CType,
    Function,
    Prototype,
    Role,
    RoleKind,
    Tensors,
    Value,
)


def bound(
    operator: Operator,
    where: str,
    key: str,
    prototype: Prototype,
    bind: Mapping[str, Any],
    library: Path,
) -> Function:
    """A prototype, and what `bind` says of each of its parameters, checked against the operator."""
    bind_key = "bind" if key != "forward" else "forward_bind"
    names = [p.name for p in prototype.parameters]
    for name in bind:
        if name not in (*names, "return"):
            near = suggestion(name, [n for n in names if n not in bind])
            raise ManifestError(f"{where}: {bind_key} explains `{name}`, but `{prototype.symbol}` "
                                f"has no such parameter{near}")  # fmt: skip
    for name in names:
        if name not in bind:
            raise ManifestError(f"{where}: `{prototype.symbol}` has a parameter `{name}` that "
                                f"{bind_key} does not explain; add `{name} = …`")  # fmt: skip
    scalars = {p.name for p in prototype.parameters if not p.ctype.pointer}
    known = operator.names | scalars | ({syntax.COTANGENT} if key == "vjp" else set())
    scope = Scope(frozenset(known), frozenset(operator.spec.primals))
    meanings = {
        p.name: meaning(bind[p.name], p.ctype, f"{where}: {bind_key}.{p.name}", scope)
        for p in prototype.parameters
    }
    values = {n: m.expression for n, m in meanings.items() if isinstance(m, Value) and n in scalars}
    syntax.order(values, operator.spec.primals, where)
    function = Function(
        prototype=prototype,
        library=library,
        meanings=meanings,
        returned=_returned(bind.get("return"), prototype.returns, f"{where}: {bind_key}.return"),
    )
    check_function(function, key, f"{where}: {bind_key}", operator)
    return function


def _returned(said: Any, returns: CType, where: str) -> Role | None:
    if said is None:
        return None
    if returns.base == "void" and not returns.pointer:
        raise ManifestError(f"{where}: the function returns nothing (void); leave it out")
    if returns.pointer:
        raise ManifestError(f"{where}: the function returns a pointer, which nobody owns")
    if said == RoleKind.STATUS:
        if returns.base in ("float32", "float64"):
            raise ManifestError(f"{where}: a status is a whole number, and this is {returns.base}")
        return Role(kind=RoleKind.STATUS)
    found = role(str(said), where, Scope())
    if found.kind not in (RoleKind.OUT, RoleKind.VALUE, RoleKind.GRAD) or found.optional:
        raise ManifestError(f"{where}: `{said}`; a result is `out`, `value`, `grad:x` or `status`")
    if returns.base not in ("float32", "float64"):
        raise ManifestError(f"{where}: `{said}` is a real number, and this is {returns.base}")
    return found


# ── dtypes ───────────────────────────────────────────────────────────────────────────────────


def elements(operator: Operator, function: Function) -> Iterator[tuple[str, str, str]]:
    """Parameters that hold floating tensors of the dtype: name, C type, role."""
    for parameter in function.prototype.parameters:
        meant = function.meanings[parameter.name]
        if isinstance(meant, Tensors):
            for view in meant.views:
                for held in (view.role, view.becomes):
                    if held is None or held.kind is RoleKind.SAVED:
                        continue
                    if held.name not in operator.indices:
                        yield parameter.name, parameter.ctype.base, f"{held.kind}:{held.name}"


def dtype_of(operator: Operator, where: str, key: str, function: Function) -> str:
    """The dtype that a prototype's element types say."""
    held = list(elements(operator, function))
    bases = {base for _, base, _ in held} & {"float32", "float64"}
    if not bases:
        returned = function.prototype.returns.base
        bases = {returned} & {"float32", "float64"} if not held else set()
    if len(bases) != 1:
        shown = "; ".join(
            f"{base}: {', '.join(f'`{name}`' for name, one, _ in held if one == base)}"
            for base in sorted(bases)
        )
        raise ManifestError(
            f"{where}: {key}: "
            + (
                f"its tensors are of several types ({shown}), where those of an operator are of one"
                if shown
                else "no tensor in its prototype has a float type; say the dtype: "
                f'{key} = {{ float16 = "…" }}'
            )
        )
    (dtype,) = bases
    for name, base, primal in held:
        check_element(f"{where}: {key}: `{name}`", base, primal, dtype)
    return dtype


ELEMENTS: Final = {
    "float64": ("float64",),
    "float32": ("float32",),
    "float16": ("uint16", "int16"),
    "bfloat16": ("uint16", "int16"),
}


def check_element(what: str, base: str, held: str, dtype: str) -> None:
    """Refuse a C type that does not hold numbers of a dtype; `held` is the role.

    Raises:
        ManifestError: it does not; `what` begins the message.
    """
    if base not in (*ELEMENTS[dtype], "void", "opaque"):
        raise ManifestError(
            f"{what} leads to {base} and is `{held.rstrip(':')}`, which is {dtype} here; correct "
            "the prototype, the role, or the dtype"
        )
