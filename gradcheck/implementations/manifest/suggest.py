"""A first manifest for code that has none, guessed from names, with comments on what to confirm."""

from __future__ import annotations

import json
import os
import re
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from gradcheck.errors import LoadError, ManifestError, UsageError
from gradcheck.implementations.manifest import guess, read, schema
from gradcheck.implementations.manifest.guess import (
    Candidate,
    Guess,
    lacking,
    parameters_of,
    required,
    residual_of,
)
from gradcheck.implementations.manifest.library_file import exported
from gradcheck.implementations.manifest.operation import Prototype
from gradcheck.implementations.manifest.prototype import declarations, parse, prototypes
from gradcheck.spec.operator import OpSpec
from gradcheck.spec.suite import Suite, index_primals
from gradcheck.system.reading import contents

NO_STATUS: Final = ("void", "float32", "float64")
"""Types of results that are not a status."""
CONFIRM: Final = "# confirm"


def entry(candidate: Candidate, forward: Candidate | None) -> tuple[str, bool]:
    """The text of one entry, and whether every parameter has a meaning."""
    spec, prototype = candidate.spec, candidate.prototype
    guesses: dict[str, Guess | None] = {}
    if forward is not None:
        guesses = parameters_of(forward)
        if None in guesses.values() or Guess("out") not in guesses.values():
            forward, guesses = None, {}
    if forward is not None:
        left = (p for p in forward.prototype.parameters if p.ctype.pointer and not p.ctype.const)
        candidate = replace(candidate, saved=frozenset(p.name for p in left))
    mine = parameters_of(candidate)
    lines = ["[[op]]", f"name = {quoted(candidate.name)}  {CONFIRM}: from the function's name"]
    lines.append(f"vjp = {quoted(prototype.text)}")
    if forward is not None:
        lines.append(f"forward = {quoted(forward.prototype.text)}")
    lines += _saved(spec, mine, candidate.saved)
    lines += _advice(spec, mine)
    lines += ["", "[op.bind]", *_bound(mine, prototype)]
    if not prototype.returns.pointer and prototype.returns.base not in NO_STATUS:
        lines.append('# return = "status"  # if anything but 0 is an error')
    if forward is not None:
        lines += ["", "[op.forward_bind]", *_bound(guesses, forward.prototype)]
    return "\n".join(lines) + "\n", None not in mine.values()


def _saved(
    spec: OpSpec, guesses: Mapping[str, Guess | None], left: frozenset[str]
) -> Iterator[str]:
    """Expressions of residuals, where no forward saves all of them."""
    needed = [n for n, g in guesses.items() if g is not None and g.text.startswith("saved:")]
    if not left.issuperset(needed):
        yield 'residuals = "reference"'
        pairs = ", ".join(f"{name} = {quoted(residual_of(spec, name))}" for name in needed)
        yield f"saved = {{ {pairs} }}  {CONFIRM}"


def _advice(spec: OpSpec, guesses: Mapping[str, Guess | None]) -> Iterator[str]:
    """Lines that follow from the guesses, and comments on what names do not tell."""
    condition = required(spec, guesses)
    if condition:
        yield f"requires = [{quoted(condition)}]  {CONFIRM}: a call does no more than that"
    fixed = {name: spec.defaults[name] for name in lacking(spec, guesses)}
    values = {n: v for n, v in fixed.items() if isinstance(v, (bool, int, float, str))}
    if values:
        shown = ", ".join(f"{name} = {_toml(value)}" for name, value in values.items())
        yield f"# attrs = {{ {shown} }}  # where the code has fixed other values than these"
    grads = [n for n, g in guesses.items() if g is not None and g.text.startswith("grad:")]
    if grads:
        shown = ", ".join(map(quoted, grads))
        yield f"# accumulates = [{shown}]  # those that the code adds to what is there (+=)"


def _bound(guesses: Mapping[str, Guess | None], prototype: Prototype) -> Iterator[str]:
    pointers = {p.name for p in prototype.parameters if p.ctype.pointer}
    for name, found in guesses.items():
        if found is None:
            roles = f"in:x, grad:x, cotangent, saved:{name}[…], scratch[…], …"
            what = roles if name in pointers else "an expression: rows(x), dim(x, -1), an attribute"
            yield f'{name} = "?"  # {what}'
        else:
            yield f"{name} = {quoted(found.text)}{'' if found.sure else f'  {CONFIRM}'}"


def unknown_prototype(symbol: str, spec: OpSpec) -> str:
    """A comment for a function of which only the name is known: what it might look like."""
    grads = ", ".join(f"float* d{name}" for name in spec.primals)
    inputs = ", ".join(f"const float* {name}" for name in spec.primals)
    return comment(f"""\
{symbol}: nothing says what it takes; name its --header, or build the library with -g
[[op]]
name = {quoted(spec.name)}
vjp = "void {symbol}({grads}, const float* dout, {inputs}, int n)"  {CONFIRM}
bind = {{ }}  # what each parameter is
""")


def comment(text: str) -> str:
    """Any text as TOML comments."""
    clean = (re.sub(r"[^ -~\u00a0-\uffff]", "?", line) for line in text.splitlines())
    return "".join(f"# {line}".rstrip() + "\n" for line in clean)


def quoted(text: str) -> str:
    """A text as a TOML string."""
    return json.dumps(text, ensure_ascii=False)


def _toml(value: bool | float | str) -> str:
    return json.dumps(value) if isinstance(value, (bool, str)) else repr(value)


SYMBOL: Final = re.compile(r"[A-Za-z][A-Za-z0-9_]*")
"""A function that somebody named: others are the linker's, or not C's."""
MANGLED: Final = re.compile(r"_Z(\d{1,3})")
"""The beginning of names of C++ functions outside of namespaces, with the name's length."""
LARGEST: Final = 1 << 26
"""Bytes of a header."""
LISTED: Final = 40
"""Functions that were not recognised, of which the names are shown."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Suggestion:
    """The text of a manifest, what of it is bound, and which functions were not recognised."""

    text: str
    bound: tuple[str, ...] = ()
    open: tuple[str, ...] = ()


PYTHON = """\
schema = 1

[impl]
name = "mykernels"

[python]
# A dict from names of operators (`gradcheck list`) to objects with vjp(ct, *primals, **attrs) and,
# optionally, forward(*primals, **attrs). The module is looked for in this folder first.
entry = "mykernels:IMPL"
"""
PROCESS = """\
schema = 1

[impl]
name = "mykernels"

# [build]
# cmd = "make grads"

[subprocess]
# A program that speaks GRADCHECK/1; `gradcheck probe -- ./grads` says how well.
cmd = ["./grads"]
level = "frames"  # or jsonl, or oneshot
"""


def suggest_c(library: Path | None, header: Path | None, path: Path, suite: Suite) -> Suggestion:
    """A manifest, to stand at `path`, for a shared library, a header of it, or both.

    Prototypes are the header's, else those of the debug information.

    Raises:
        LoadError: one of the files cannot be read.
        UsageError: neither is given.
    """
    if library is None and header is None:
        raise UsageError("--kind c needs --lib build/libk.so, --header kernels.h, or both")
    texts = {} if header is None else _declared(header)
    known = exported(library) if library else [*texts]
    symbols = [symbol for symbol in known if SYMBOL.fullmatch(symbol)]
    named = {s: n for s in symbols if (n := guess.operator_of(s, suite.operators)) is not None}
    if library is not None:
        texts = {**prototypes(library, named.keys() - texts.keys()), **texts}
    head = _head(library, path)
    functions: list[Candidate] = []
    comments = [*_mangled(known, suite)]
    for symbol, what in named.items():
        spec = suite.operators[what.operator]
        try:
            if symbol in texts:
                functions.append(
                    Candidate(
                        spec=spec,
                        prototype=parse(texts[symbol], symbol),
                        backward=what.backward,
                        indices=index_primals(spec, suite),
                        dialect=next((d.name for d in spec.dialects if d.name in what.rest), ""),
                    )
                )
            elif what.backward:
                comments.append(unknown_prototype(symbol, spec))
        except ManifestError as error:
            comments.append(comment(f"{symbol} cannot be bound: {error}"))
    entries, bound = _entries(functions, head, path, suite)
    used = {c.spec.name for c in functions if c.backward}
    other = [s for s in symbols if s not in named]
    other += [c.prototype.symbol for c in functions if c.spec.name not in used]
    blocks = [head, *entries, *comments, *_unrecognised(other)]
    return Suggestion(text="\n".join(blocks), bound=tuple(bound), open=tuple(other))


def _mangled(symbols: Sequence[str], suite: Suite) -> Iterator[str]:
    """Comments on backward functions that only C++ can name."""
    for symbol in symbols:
        found = MANGLED.match(symbol)
        name = symbol[found.end() :][: int(found[1])] if found else ""
        named = guess.operator_of(name, suite.operators) if SYMBOL.fullmatch(name) else None
        if named is not None and named.backward:
            yield comment(f'{name} is there as `{symbol}`: declare it extern "C" to bind it')


def _unrecognised(symbols: Sequence[str]) -> Iterator[str]:
    """A comment that names functions in which no operator, or no backward, was recognised."""
    if symbols:
        more = f", and {len(symbols) - LISTED} more" if len(symbols) > LISTED else ""
        names = textwrap.fill(", ".join(symbols[:LISTED]) + more, 96, break_long_words=False)
        yield comment(f"No operator was recognised, or no backward, in\n{names}")


def _declared(header: Path) -> dict[str, str]:
    """The texts of the prototypes in a header, by name."""
    try:
        content = contents(header, LARGEST).decode("utf-8", "replace")
    except OSError as error:
        raise LoadError(f"{header}: {error.strerror}") from None
    named = ((re.search(r"(\w+)\s*\(", text), text) for text in declarations(content))
    return {name[1]: text for name, text in named if name is not None}


def _head(library: Path | None, path: Path) -> str:
    name = library.stem.removeprefix("lib") if library else "kernels"
    shown = "build/libkernels.so"
    if library is not None:
        shown = os.path.relpath(library.absolute(), path.absolute().parent)
    return f"""\
# Guessed by `gradcheck init` from names. Look at each line that says `confirm`, then
#     gradcheck run --impl {path.name}
schema = 1

[impl]
name = {quoted(name)}
# version.cmd = "git describe --always"

# [build]
# cmd = "make lib"  # what builds the library, before every check

[c]
library = {quoted(shown)}{"" if library else f"  {CONFIRM}"}
"""


def _entries(
    functions: Sequence[Candidate], head: str, path: Path, suite: Suite
) -> tuple[list[str], list[str]]:
    """The entries, as comments where they could not be read; and what the others bind."""
    texts, bound = [], []
    forwards = {c.key: c for c in reversed(functions) if not c.backward}
    seen: set[tuple[str, str]] = set()
    for candidate in functions:
        if not candidate.backward:
            continue
        text, complete = entry(candidate, forwards.get(candidate.key))
        fault = "" if complete else "say what each parameter is, and take the # away"
        if candidate.key in seen:
            fault = f"another backward of {candidate.name}: name a dialect in each"
        if not fault:
            fault = _fault(head + text, path, suite)
        if fault:
            text = f"{comment(f'{candidate.prototype.symbol}: {fault}')}{comment(text)}"
        else:
            seen.add(candidate.key)
            bound.append(candidate.name)
        texts.append(text)
    return texts, bound


def _fault(text: str, path: Path, suite: Suite) -> str:
    """Why a manifest cannot be read; empty if it can."""
    try:
        read.resolve(schema.parse_text(text.encode(), path), suite)
    except ManifestError as error:
        return str(error)
    return ""


def template(kind: str) -> Suggestion:
    """A manifest for Python objects ("python") or a program ("process"), to be filled in."""
    return Suggestion(text=PYTHON if kind == "python" else PROCESS)
