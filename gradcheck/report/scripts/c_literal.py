"""Numbers and words of other people's as literals of C, to be read back bit by bit."""

from __future__ import annotations

import re
from collections.abc import Sequence
from string import ascii_letters, digits
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from gradcheck.errors import UsageError
from gradcheck.implementations.manifest.operation import CType, Prototype
from gradcheck.report.scripts.literal import WIDTH, wrapped

Array = NDArray[Any]

TYPES: Final = {"float32": "float", "float64": "double", "bool": "_Bool", "char": "char",
                "void": "void", "opaque": "void"}  # fmt: skip
"""C's names of types, where they are not those of <stdint.h>."""
SUFFIX: Final = {"float32": "f", "int64": "LL", "uint64": "ULL", "uint32": "U"}
PLAIN: Final = frozenset(f"{ascii_letters}{digits} _-.,:;=+()[]{{}}<>/'!#$&*@^|~%")
"""Characters that stand for themselves in a string."""
SMALLEST: Final = -(2**63)


def named(base: str) -> str:
    """The C type that `base` is."""
    return TYPES.get(base, f"{base}_t")


def number(value: Any, base: str) -> str:
    """One number as a literal of the C type that `base` names."""
    if base in ("float32", "float64"):
        scalar = np.dtype(base).type(value)
        if not np.isfinite(scalar):
            text = '__builtin_nan("")' if np.isnan(scalar) else "__builtin_inf()"
            return f"-{text}" if scalar < 0 else text
        text = str(scalar)
        return (text if re.search(r"[.e]", text) else f"{text}.0") + SUFFIX.get(base, "")
    whole = int(value)
    if whole == SMALLEST:
        return f"(-{-(whole + 1)}LL - 1)"
    return f"{whole}{SUFFIX.get(base, '')}"


def array(name: str, values: Array, base: str) -> str:
    """A constant array."""
    words = [number(v, base) for v in values.reshape(-1)]
    lead = f"static const {named(base)} {name}[] = {{"
    line = f"{lead}{', '.join(words)}}};"
    if len(line) <= WIDTH:
        return line
    return f"{lead}\n{wrapped(words, '    ', WIDTH)}\n}};"


def string(text: bytes) -> str:
    """A string literal, whatever it holds: no quote, escape or trigraph of its own."""
    plain = (chr(b) if chr(b) in PLAIN else f"\\{b:03o}" for b in text)
    return f'"{"".join(plain)}"'


def declaration(prototype: Prototype) -> str:
    """The function as declared, without the names of its parameters."""
    if not re.fullmatch(r"[A-Za-z_]\w*", prototype.symbol, re.ASCII):
        raise UsageError(f"--export: {prototype.symbol!r} is no name of a C function")
    parameters = ", ".join(typed(p.ctype) for p in prototype.parameters) or "void"
    return f"extern {typed(prototype.returns)} {prototype.symbol}({parameters});"


def typed(ctype: CType) -> str:
    """A type as C writes it."""
    const = "const " if ctype.const else ""
    return f"{const}{named(ctype.base)}{' ' + '*' * ctype.pointer if ctype.pointer else ''}"


def sizes(name: str, values: Sequence[int]) -> str:
    """A constant array of sizes; C has none without elements."""
    return f"static const size_t {name}[] = {{{', '.join(map(str, values)) or '1'}}};"
