"""Prototypes of C functions: read from their text, found in headers and in debug information."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from functools import cache
from pathlib import Path
from typing import Any, Final

from gradcheck.errors import ManifestError
from gradcheck.implementations.manifest.library_file import elf
from gradcheck.implementations.manifest.operation import CType, Parameter, Prototype

LONG: Final = "int64"
"""`long` on Linux."""
BUILTIN: Final = {
    "char": "char", "signed char": "int8", "unsigned char": "uint8",
    "short": "int16", "unsigned short": "uint16", "int": "int32", "unsigned": "uint32",
    "long": LONG, "unsigned long": f"u{LONG}", "long long": "int64",
    "unsigned long long": "uint64", "float": "float32", "double": "float64", "_Bool": "bool",
    "void": "void",
}  # fmt: skip
NAMED: Final = {
    **{f"{sign}int{bits}_t": f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)},
    "size_t": "uint64", "ssize_t": "int64", "ptrdiff_t": "int64", "intptr_t": "int64",
    "uintptr_t": "uint64", "uint": "uint32", "bool": "bool",
    # 16-bit floats travel as their bits; the key of the prototype says which of the two they are.
    "_Float16": "uint16", "__fp16": "uint16", "__bf16": "uint16",
}  # fmt: skip
SPELLINGS: Final = {"__restrict__": "restrict", "__restrict": "restrict", "__const": "const",
                    "__inline__": "inline", "__inline": "inline", "__extension__": "",
                    "noexcept": ""}  # fmt: skip
QUALIFIERS: Final = (
    "auto", "const", "enum", "extern", "inline", "register", "restrict", "static", "struct",
    "typedef", "union", "volatile", "_Complex",
)  # fmt: skip
KEYWORDS: Final = frozenset(QUALIFIERS) | {word for name in BUILTIN for word in name.split()}
IDENTIFIER: Final = r"[A-Za-z_]\w*"
LONGEST: Final = 10_000
"""Characters of a prototype: more is a mistake."""


def parse(text: str, where: str, *, unnamed: str = "") -> Prototype:
    """The prototype that `text` declares; `where` begins messages.

    A type that C does not know stands for one that only the library knows: it may stand behind a
    pointer. `unnamed` is what parameters without a name are called (none given: they are refused).

    Raises:
        ManifestError: the text is not one prototype, or a parameter cannot be passed.
    """
    declared = _declared(text, where)
    if not _is(declared, "Decl") or not _is(declared.type, "FuncDecl"):
        raise ManifestError(
            f"{where}: `{text.strip()}` declares no function; write `void f(float* dx, int n)`"
        )
    function, here = declared.type, f"{where}: `{declared.name}`"
    parameters = tuple(_parameters(function.args, here, unnamed))
    names = [parameter.name for parameter in parameters]
    for name in names:
        if names.count(name) > 1:
            raise ManifestError(f"{here} has two parameters called `{name}`; rename one")
    returns = _ctype(function.type, f"{here} returns")
    return Prototype(text=text, symbol=declared.name, returns=returns, parameters=parameters)


def is_number(spelled: str) -> bool:
    """Whether a type is one of C's own numbers: "long unsigned int", "size_t"."""
    return spelled in NAMED or _normal(spelled.split()) in BUILTIN.keys() - {"void"}


def declarations(header: str) -> Iterator[str]:
    """The texts of the function prototypes in a C header, found without parsing it."""
    text = re.sub(r"^[ \t]*#(?:\\\n|.)*", "", _without_comments(header), flags=re.MULTILINE)
    text = re.sub(r'extern\s*"C"\s*\{', "", text)
    while re.search(r"\{[^{}]*\}", text):
        text = re.sub(r"\{[^{}]*\}", ";", text)
    for piece in re.split(r"[;{}]", text):
        words = " ".join(piece.split())
        if "(" in words and not re.match(r"(typedef|static|return)\b", words):
            yield words


def _declared(text: str, where: str) -> Any:
    from pycparser.c_parser import CParser, ParseError  # slow to import: only for C

    if len(text) > LONGEST:
        raise ManifestError(f"{where}: a prototype of {len(text)} characters; write one function")
    plain = _plain(text)
    if not plain:
        raise ManifestError(f"{where}: the prototype is empty; copy it from the header")
    words = set(re.findall(IDENTIFIER, plain))
    types = [f"typedef int {name};" for name in NAMED if name in words]  # those alone: it is slow
    types += [f"typedef struct opaque {name};" for name in _unknown_types(plain)]
    try:
        found = CParser().parse(f"{''.join(types)}\n{plain};", "").ext
    except (ParseError, RecursionError, AssertionError) as error:
        what = str(error).rpartition(": ")[2] or "its end"
        raise ManifestError(
            f"{where}: `{text.strip()}` is no C prototype (trouble near `{what}`); "
            "write it as in the header: `void f(float* dx, const float* dy, int n)`"
        ) from None
    if len(found) != len(types) + 1:
        raise ManifestError(f"{where}: `{text.strip()}`: write one function in one string")
    return found[-1]


def _plain(text: str) -> str:
    """The prototype in C alone: no comment, attribute, macro in front, linkage or semicolon."""
    text = _without_comments(text).strip().rstrip(";").strip()
    text = re.sub(r'\bextern\s*"C"', "", text)
    text = re.sub(r"\[\[[^\]]*\]\]", "", text)
    text = _without_calls(text, r"\b(?:__attribute__|__declspec|__asm__|__nonnull)\s*")
    text = re.sub(IDENTIFIER, lambda word: SPELLINGS.get(word[0], word[0]), text).strip()
    known = KEYWORDS | NAMED.keys()
    macro = re.match(rf"([A-Z][A-Z0-9_]*)\s+(?=({IDENTIFIER})\s+[\w*]|({IDENTIFIER})\s*\*)", text)
    if macro and macro[1] not in known:  # MYLIB_API void f(…)
        return text[macro.end() :]
    return text


def _without_comments(text: str) -> str:
    return re.sub(r"/\*.*?\*/|//[^\n]*", " ", text, flags=re.DOTALL)


def _without_calls(text: str, opening: str) -> str:
    """The text without what matches `opening` and the balanced parentheses after it."""
    while found := re.search(rf"{opening}\(", text):
        depth, end = 1, found.end()
        while depth and end < len(text):
            depth += {"(": 1, ")": -1}.get(text[end], 0)
            end += 1
        text = text[: found.start()] + " " + text[end:]
    return text


@cache
def _unknown_types(plain: str) -> tuple[str, ...]:
    """Identifiers that stand where a type does: before a star, a qualifier or another name."""
    words = re.findall(rf"{IDENTIFIER}|\S", plain)
    found: dict[str, None] = {}
    before = ""
    for word, after in zip(words, [*words[1:], ""], strict=True):
        typed = after == "*" or (re.match(IDENTIFIER, after) is not None)
        name = re.fullmatch(IDENTIFIER, word) is not None
        ours = word in KEYWORDS or word in NAMED or before in ("struct", "union", "enum")
        if name and typed and not ours:
            found[word] = None
        before = word
    return tuple(found)


def _parameters(args: Any, here: str, unnamed: str) -> Iterator[Parameter]:
    declared = [] if args is None else args.params
    if len(declared) == 1 and declared[0].name is None and _is_void(declared[0]):
        return
    for number, parameter in enumerate(declared, start=1):
        if _is(parameter, "EllipsisParam"):
            raise ManifestError(
                f"{here} takes `...`; what is passed there cannot be told: write a C function "
                "with fixed parameters that calls it, and bind that one"
            )
        name = parameter.name or unnamed
        if not name:
            raise ManifestError(
                f"{here}: parameter {number} has no name; give it one, `bind` refers to it"
            )
        yield Parameter(name=name, ctype=_ctype(parameter.type, f"{here}: parameter `{name}` is"))


def _is(node: Any, *names: str) -> bool:
    """Whether a node of pycparser's tree is of one of these classes."""
    return type(node).__name__ in names


def _is_void(parameter: Any) -> bool:
    inner = parameter.type
    return _is(inner, "TypeDecl") and getattr(inner.type, "names", []) == ["void"]


def _ctype(node: Any, what: str) -> CType:
    """The type of a parameter or result; an array is a pointer, of any number of axes."""
    pointer = 0
    while _is(node, "PtrDecl", "ArrayDecl"):
        behind_array = False
        while _is(node, "ArrayDecl"):
            node, behind_array = node.type, True
        if not behind_array:
            node = node.type
            if _is(node, "ArrayDecl"):  # a pointer to rows: float (*x)[4]
                continue
        pointer += 1
    if _is(node, "FuncDecl"):
        raise ManifestError(f"{what} a function pointer; {_WRAP}")
    if pointer > 1:
        raise ManifestError(f"{what} a pointer to a pointer; {_WRAP}")
    base = _base(node.type, what, behind_pointer=pointer > 0)
    if not pointer and base == "char":
        base = "int8"
    if not pointer and base == "void" and not what.endswith("returns"):
        raise ManifestError(f"{what} void; write its type")
    return CType(base=base, pointer=pointer, const="const" in (node.quals or ()))


_WRAP: Final = (
    "write a C function that takes pointers and numbers and calls it, and bind that one, or let a "
    "program answer for it ([subprocess])"
)


def _base(node: Any, what: str, *, behind_pointer: bool) -> str:
    if _is(node, "Enum"):
        return "int32"
    names = getattr(node, "names", None)
    if names is None:  # a struct or union
        if behind_pointer:
            return "opaque"
        raise ManifestError(f"{what} a {type(node).__name__.lower()} by value; {_WRAP}")
    spelled = _normal(names)
    base = NAMED.get(spelled) or BUILTIN.get(spelled)
    if base is not None:
        return base
    if len(names) > 1 or spelled in KEYWORDS:
        raise ManifestError(f"{what} `{' '.join(names)}`, which cannot be passed; {_WRAP}")
    if behind_pointer:
        return "opaque"
    raise ManifestError(
        f"{what} `{spelled}` by value, a type that only the library knows; if it is a number, "
        "write which: int, int64_t, float, …"
    )


def _normal(names: list[str]) -> str:
    """One spelling for `long unsigned int` and its kin."""
    words = [name for name in names if name != "int"] or ["int"]
    signed, unsigned = "signed" in words, "unsigned" in words
    words = [word for word in words if word not in ("signed", "unsigned")]
    if signed and words == ["char"]:
        return "signed char"
    return " ".join((["unsigned"] if unsigned else []) + words) or "int"


# ── debug information (DWARF) ────────────────────────────────────────────────────────────────

TAG: Final = "DW_TAG_"
BOOL, FLOAT, SIGNED, UNSIGNED = 2, 4, 5, 7
"""Encodings of numbers (DWARF 5, table 7.11)."""
DIE_QUALIFIERS: Final = {f"{TAG}volatile_type", f"{TAG}restrict_type", f"{TAG}atomic_type"}


def prototypes(path: Path, symbols: Collection[str]) -> dict[str, str]:
    """The prototypes, in C, of those of `symbols` that the debug information describes (DWARF).

    Raises:
        LoadError: the library cannot be read.
    """
    found: dict[str, str] = {}
    with elf(path) as file:
        try:
            for die in _subprograms(file):
                if len(found) == len(symbols):  # there may be a hundred megabytes more
                    break
                name = _die_name(die)
                if name in symbols and name not in found:
                    found[name] = _described(die, name)
        except Exception:  # noqa: BLE001  debug information that cannot be read is none
            return found
    return found


def _subprograms(file: Any) -> Iterator[Any]:
    if file.has_dwarf_info():
        for unit in file.get_dwarf_info().iter_CUs():
            yield from _below(unit.get_top_DIE())


def _below(die: Any) -> Iterator[Any]:
    for child in die.iter_children():
        if child.tag == f"{TAG}subprogram":
            yield child
        elif child.tag == f"{TAG}namespace":  # of C++, and the modules of Rust
            yield from _below(child)


def _described(die: Any, name: str) -> str:
    parameters = []
    for number, child in enumerate(die.iter_children(), start=1):
        if child.tag == f"{TAG}formal_parameter":
            parameters.append(_declaration(_type(child), _die_name(child) or f"parameter_{number}"))
        elif child.tag == f"{TAG}unspecified_parameters":
            parameters.append("...")
    return _declaration(_type(die), f"{name}({', '.join(parameters) or 'void'})")


def _declaration(ctype: str, name: str) -> str:
    return f"{ctype}{name}" if ctype.endswith("*") else f"{ctype} {name}"


def _type(die: Any) -> str:
    """The type that an entry refers to, as C writes it."""
    if "DW_AT_type" not in die.attributes:
        return "void"
    return _written(die.get_DIE_from_attribute("DW_AT_type"))


def _written(die: Any) -> str:
    tag, name = die.tag.removeprefix(TAG), _die_name(die)
    if tag == "base_type":
        return _number_type(die, name)
    if tag == "pointer_type":
        inner = _type(die)
        if name.startswith("*const ") and not inner.startswith("const "):  # Rust's
            inner = f"const {inner}"
        return f"{inner}*" if inner.endswith("*") else f"{inner} *"
    if tag == "const_type":
        inner = _type(die)
        return inner if inner.endswith("*") else f"const {inner}"
    if die.tag in DIE_QUALIFIERS:
        return _type(die)
    if tag == "typedef":
        return name if name in NAMED else _through(die, name)
    if tag in ("structure_type", "union_type", "class_type"):
        return f"struct {name or 'unnamed'}"
    if tag == "enumeration_type":
        return "int"
    return name or tag


def _number_type(die: Any, name: str) -> str:
    """The C name of a number type of any language."""
    if name == "char" or is_number(name):
        return name
    encoding, size = (die.attributes[f"DW_AT_{key}"].value for key in ("encoding", "byte_size"))
    if encoding == FLOAT:
        return {4: "float", 8: "double"}.get(size, name)
    return {BOOL: "bool", SIGNED: f"int{8 * size}_t", UNSIGNED: f"uint{8 * size}_t"}.get(
        encoding, name
    )


def _through(typedef: Any, name: str) -> str:
    """The number type behind a typedef; its own name if there is none."""
    meant = _type(typedef)
    return meant if is_number(meant) else name


def _die_name(die: Any) -> str:
    attribute = die.attributes.get("DW_AT_name")
    return "" if attribute is None else attribute.value.decode(errors="replace")
