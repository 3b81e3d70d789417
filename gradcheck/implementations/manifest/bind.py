"""From `bind` of an entry to a C function with roles, layouts and expressions.

A mistake is a `ManifestError` that begins with the file, the entry and the key.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from gradcheck.errors import ManifestError
from gradcheck.implementations.manifest import expression
from gradcheck.implementations.manifest.check_entry import Operator, check_function
from gradcheck.implementations.manifest.operation import (
    CType,
    Function,
    Meaning,
    Prototype,
    Role,
    RoleKind,
    Scratch,
    Special,
    Tensors,
    Value,
    View,
)
from gradcheck.implementations.manifest.schema import Packed, Part, Whole, convert, suggestion

ROLE: Final = re.compile(r"([a-z]+)(?::([\w.]*))?(?:\[(.*)\])?(\?)?", flags=re.DOTALL)
WORKSPACE: Final = re.compile(r"(scratch|zeros)\[(.*)\]", flags=re.DOTALL)
ARROW: Final = "->"
OF_OUTPUTS: Final = (RoleKind.COTANGENT, RoleKind.OUT, RoleKind.VALUE)
WORDS: Final = (*(str(kind) for kind in RoleKind), *(str(s) for s in Special), "scratch", "zeros")
BYTES: Final = ("void", "opaque")
"""Types of pointers that do not tell the elements behind them."""


@dataclass(frozen=True, slots=True)
class Scope:
    """The names that expressions may mention; some are `primals`."""

    names: frozenset[str] = frozenset()
    primals: frozenset[str] = frozenset()


def meaning(said: Any, ctype: CType, where: str, scope: Scope) -> Meaning:
    """The meaning of a parameter of a C type."""
    if isinstance(said, dict):
        return _laid_out(said, ctype, where, scope)
    text = as_expression(said)
    if text is None:
        raise ManifestError(f"{where}: {said!r} is neither a role nor an expression")
    if ctype.pointer:
        return _pointer(text, ctype, where, scope)
    return _scalar(text, where, scope)


def role(text: str, where: str, scope: Scope) -> Role:
    """The role that a text such as "grad:x" or "saved:rstd[rows(x)]?" names."""
    found = ROLE.fullmatch(text.strip())
    kinds = [str(kind) for kind in RoleKind]
    if found is None or found[1] not in kinds:
        raise ManifestError(f"{where}: `{text}` is no role{_near(text.strip())}")
    kind, (_, name, extents, optional) = RoleKind(found[1]), found.groups()
    if extents is not None and kind is not RoleKind.SAVED:
        raise ManifestError(
            f"{where}: `{text}`: only `saved:` has a shape of its own; leave it out"
        )
    if kind in OF_OUTPUTS:
        index = name or "0"
        if not index.isdecimal():
            raise ManifestError(f"{where}: `{text}`: write the output's number, `{kind}:1`")
        return Role(kind=kind, index=int(index), optional=bool(optional))
    if kind is RoleKind.STATUS:
        raise ManifestError(f"{where}: only `return` can be a status")
    if not name:
        what = "residual" if kind is RoleKind.SAVED else "primal"
        raise ManifestError(f"{where}: `{text}`: write of which {what}: `{kind}:x`")
    shape = tuple(_split(extents or ""))
    for extent in shape:
        expression.check_expression(extent, scope.names, where)
    return Role(kind=kind, name=name, optional=bool(optional), extents=shape)


def as_expression(said: Any) -> str | None:
    """The text of an expression, where TOML may hold a number or a list instead."""
    if isinstance(said, str):
        return said
    if isinstance(said, (bool, int, float)):
        return repr(said) if abs(said) != float("inf") else f"{said}".replace("inf", "1e999")
    if isinstance(said, list):
        parts = [as_expression(element) for element in said]
        return None if None in parts else f"[{', '.join(map(str, parts))}]"
    return None


def _pointer(text: str, ctype: CType, where: str, scope: Scope) -> Meaning:
    if text in {str(special) for special in Special}:
        return Special(text)
    workspace = WORKSPACE.fullmatch(text)
    if workspace is not None:
        size = workspace[2].strip()
        expression.check_expression(size, scope.names, where)
        return Scratch(size=size, anything=workspace[1] == "scratch")
    if _looks_like_a_role(text, scope):
        return Tensors(views=(_view(Part(role=text), where, scope),))
    if text in scope.primals:
        raise ManifestError(f"{where} is a pointer: `{text}` alone says nothing; write `in:{text}`")
    expression.check_expression(text, scope.names, where)
    if ctype.base in BYTES:
        raise ManifestError(
            f"{where}: `{text}` is an expression, but what the pointer leads to has no type; "
            "write it in the prototype (`const int64_t*`), or a role"
        )
    return Value(expression=text)


def _looks_like_a_role(text: str, scope: Scope) -> bool:
    exact = ROLE.fullmatch(text)
    if ARROW in text or re.match(r"[A-Za-z]+\s*:", text) or (exact and exact[1] in WORDS):
        return True
    word = re.match(r"[a-z]+(?=$|\?|\[)", text)
    if word is None or word[0] in scope.names:
        return False
    return word[0] in WORDS or bool(difflib.get_close_matches(word[0], WORDS, n=1, cutoff=0.7))


def _scalar(text: str, where: str, scope: Scope) -> Meaning:
    if text == Special.UNUSED:
        return Special.UNUSED
    named = ROLE.fullmatch(text.strip())
    if named is not None and named[1] in WORDS and text not in scope.names:
        raise ManifestError(
            f"{where} is a number by value, and `{text}` is for pointers; write an expression: "
            "`rows(x)`, or `item(x)` for the value of a scalar primal"
        )
    expression.check_expression(text, scope.names, where)
    return Value(expression=text)


def _laid_out(said: dict[str, Any], ctype: CType, where: str, scope: Scope) -> Meaning:
    if not ctype.pointer:
        raise ManifestError(f"{where} is a number by value; a layout is for pointers")
    if "parts" in said:
        packed = convert(said, Packed, where)
        if not packed.parts:
            raise ManifestError(f"{where}: `parts` is empty; name the tensors that lie there")
        views = tuple(_view(part, where, scope) for part in packed.parts)
        return Tensors(views=views, size=_size(packed.size, where, scope))
    whole = convert(said, Whole, where)
    return Tensors(views=(_view(whole, where, scope),), size=_size(whole.size, where, scope))


def _view(part: Part, where: str, scope: Scope) -> View:
    before, arrow, after = part.role.partition(ARROW)
    held = role(before.strip(), where, scope)
    becomes = role(after.strip(), where, scope) if arrow else None
    shape, strides = (
        tuple(_checked(e, where, scope) for e in extents) for extents in (part.shape, part.strides)
    )
    if shape and strides and len(shape) != len(strides):
        raise ManifestError(
            f"{where}: `shape` has length {len(shape)} and `strides` {len(strides)}; "
            "write one stride per axis, in elements"
        )
    if part.axes and strides:
        raise ManifestError(f"{where}: give `axes` or `strides`, not both")
    if sorted(part.axes) != [*range(len(part.axes))]:
        raise ManifestError(
            f"{where}: axes = {part.axes} is no order of the axes 0 to {len(part.axes) - 1}"
        )
    if part.axes and shape and len(part.axes) != len(shape):
        raise ManifestError(f"{where}: `axes` has length {len(part.axes)} and `shape` {len(shape)}")
    return View(
        role=held,
        becomes=becomes,
        at=_checked(part.at, where, scope),
        shape=shape,
        strides=strides,
        axes=tuple(part.axes),
    )


def _size(text: str | int, where: str, scope: Scope) -> str:
    return "" if text == "" else _checked(text, where, scope)


def _checked(text: str | int, where: str, scope: Scope) -> str:
    expression.check_expression(str(text), scope.names, where)
    return str(text)


def _split(text: str) -> Iterator[str]:
    """The parts of a text between commas that stand in no brackets."""
    depth, start = 0, 0
    for place, sign in enumerate(text):
        depth += {"(": 1, "[": 1, ")": -1, "]": -1}.get(sign, 0)
        if sign == "," and depth == 0:
            yield text[start:place].strip()
            start = place + 1
    if text[start:].strip():
        yield text[start:].strip()


def _near(text: str) -> str:
    word = re.match(r"\w*", text)
    near = difflib.get_close_matches(word[0] if word else text, WORDS, n=1, cutoff=0.5)
    if near and word and near[0] != word[0]:
        return f"; did you mean `{near[0]}{text[word.end() :]}`?"
    return "; write in:x, cotangent, grad:x, out, value, saved:name[shape], scratch[size], …"


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
    known = operator.names | scalars | ({expression.COTANGENT} if key == "vjp" else set())
    scope = Scope(frozenset(known), frozenset(operator.spec.primals))
    meanings = {
        p.name: meaning(bind[p.name], p.ctype, f"{where}: {bind_key}.{p.name}", scope)
        for p in prototype.parameters
    }
    values = {n: m.expression for n, m in meanings.items() if isinstance(m, Value) and n in scalars}
    expression.evaluation_order(values, operator.spec.primals, where)
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
    """Refuse a C type that does not hold numbers of a dtype; `held` is the role."""
    if base not in (*ELEMENTS[dtype], "void", "opaque"):
        raise ManifestError(
            f"{what} leads to {base} and is `{held.rstrip(':')}`, which is {dtype} here; correct "
            "the prototype, the role, or the dtype"
        )
