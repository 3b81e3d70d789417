"""From what `bind` says of one parameter to what it means: roles, layouts, expressions."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

from gradcheck.errors import ManifestError
from gradcheck.implementations.manifest import syntax
from gradcheck.implementations.manifest.errors import convert
from gradcheck.implementations.manifest.operation import (
    CType,
    Meaning,
    Role,
    RoleKind,
    Scratch,
    Special,
    Tensors,
    Value,
    View,
)
from gradcheck.implementations.manifest.schema import Packed, Part, Whole

ROLE: Final = re.compile(r"([a-z]+)(?::([\w.]*))?(?:\[(.*)\])?(\?)?", flags=re.DOTALL)
WORKSPACE: Final = re.compile(r"(scratch|zeros)\[(.*)\]", flags=re.DOTALL)
ARROW: Final = "->"
OF_OUTPUTS: Final = (RoleKind.COTANGENT, RoleKind.OUT, RoleKind.VALUE)
WORDS: Final = (*(str(kind) for kind in RoleKind), *(str(s) for s in Special), "scratch", "zeros")
BYTES: Final = ("void", "opaque")
"""What a pointer may lead to without saying which elements."""


@dataclass(frozen=True, slots=True)
class Scope:
    """What expressions may mention: `names`, of which some are `primals`."""

    names: frozenset[str] = frozenset()
    primals: frozenset[str] = frozenset()


def meaning(said: Any, ctype: CType, where: str, scope: Scope) -> Meaning:
    """What a parameter of a C type means.

    Raises:
        ManifestError: nothing that a parameter of this type can be; `where` begins the message.
    """
    if isinstance(said, dict):
        return _laid_out(said, ctype, where, scope)
    text = as_expression(said)
    if text is None:
        raise ManifestError(f"{where}: {said!r} is neither a role nor an expression")
    if ctype.pointer:
        return _pointer(text, ctype, where, scope)
    return _scalar(text, where, scope)


def role(text: str, where: str, scope: Scope) -> Role:
    """The role that a text such as "grad:x" or "saved:rstd[rows(x)]?" names.

    Raises:
        ManifestError: it names none.
    """
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
        syntax.check(extent, scope.names, where)
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


def expressions(meant: Meaning) -> Iterator[str]:
    """Every expression in a meaning."""
    if isinstance(meant, Value):
        yield meant.expression
    elif isinstance(meant, Scratch):
        yield meant.size
    elif isinstance(meant, Tensors):
        if meant.size:
            yield meant.size
        for view in meant.views:
            yield from (view.at, *view.shape, *view.strides, *view.role.extents)
            if view.becomes is not None:
                yield from view.becomes.extents


def _pointer(text: str, ctype: CType, where: str, scope: Scope) -> Meaning:
    if text in {str(special) for special in Special}:
        return Special(text)
    workspace = WORKSPACE.fullmatch(text)
    if workspace is not None:
        size = workspace[2].strip()
        syntax.check(size, scope.names, where)
        return Scratch(size=size, anything=workspace[1] == "scratch")
    if _looks_like_a_role(text, scope):
        return Tensors(views=(_view(Part(role=text), where, scope),))
    if text in scope.primals:
        raise ManifestError(f"{where} is a pointer: `{text}` alone says nothing; write `in:{text}`")
    syntax.check(text, scope.names, where)
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
    syntax.check(text, scope.names, where)
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
            f"{where}: `shape` has {len(shape)} axes and `strides` {len(strides)}; "
            "write one stride per axis, in elements"
        )
    if part.axes and strides:
        raise ManifestError(f"{where}: `axes` and `strides` say the same; leave one out")
    if sorted(part.axes) != [*range(len(part.axes))]:
        raise ManifestError(
            f"{where}: axes = {part.axes} is no order of the axes 0 to {len(part.axes) - 1}"
        )
    if part.axes and shape and len(part.axes) != len(shape):
        raise ManifestError(f"{where}: `axes` has {len(part.axes)} axes, `shape` {len(shape)}")
    return View(
        role=held,
        becomes=becomes,
        at=_checked(part.at, where, scope),
        shape=shape,
        strides=strides,
        axes=tuple(part.axes),
    )


def _size(text: str | int, where: str, scope: Scope) -> str:
    """The size of a buffer; empty where none is said."""
    return "" if text == "" else _checked(text, where, scope)


def _checked(text: str | int, where: str, scope: Scope) -> str:
    syntax.check(str(text), scope.names, where)
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
