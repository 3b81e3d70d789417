"""From the text of a C prototype to the types of its parameters."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from typing import Any, Final

from gradcheck.errors import ManifestError
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
    from pycparser import c_ast

    declared = _declared(text, where)
    if not isinstance(declared, c_ast.Decl) or not isinstance(declared.type, c_ast.FuncDecl):
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
    from pycparser.c_parser import CParser, ParseError

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
    from pycparser import c_ast

    declared = [] if args is None else args.params
    if len(declared) == 1 and declared[0].name is None and _is_void(declared[0]):
        return
    for number, parameter in enumerate(declared, start=1):
        if isinstance(parameter, c_ast.EllipsisParam):
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


def _is_void(parameter: Any) -> bool:
    from pycparser import c_ast

    inner = parameter.type
    return isinstance(inner, c_ast.TypeDecl) and getattr(inner.type, "names", []) == ["void"]


def _ctype(node: Any, what: str) -> CType:
    """The type of a parameter or result; an array is a pointer, of any number of axes."""
    from pycparser import c_ast

    pointer = 0
    while isinstance(node, (c_ast.PtrDecl, c_ast.ArrayDecl)):
        behind_array = False
        while isinstance(node, c_ast.ArrayDecl):
            node, behind_array = node.type, True
        if not behind_array:
            node = node.type
            if isinstance(node, c_ast.ArrayDecl):  # a pointer to rows: float (*x)[4]
                continue
        pointer += 1
    if isinstance(node, c_ast.FuncDecl):
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
    from pycparser import c_ast

    if isinstance(node, c_ast.Enum):
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
