"""Complete a word of `--impl` that names a module or a file without a table: read, never imported.

The code that is judged runs in a process of its own, so the module's text has to do.
"""

from __future__ import annotations

import ast
import difflib
import sys
from collections.abc import Collection, Iterator
from importlib.machinery import PathFinder
from pathlib import Path
from typing import Any, Final

from gradcheck.errors import UsageError
from gradcheck.implementations.load import WORDS
from gradcheck.results.words import plural
from gradcheck.spec.suite import Suite
from gradcheck.system.reading import contents
from gradcheck.system.user_modules import SUFFIX, here, look_here

MAX_BYTES: Final = 1 << 24
"""Bytes of a module."""
MAX_LISTED: Final = 8
"""Tables that a message names."""
NEAR: Final = 0.75
"""Similarity to a name of the suite from which on a key is taken for a misspelt one."""


def completed(word: str, suite: Suite) -> str:
    """`module:NAME` where `word` is a module, or a file FILE.py, with one table of operators.

    Another word is returned unchanged. A file in the working directory is named by its module,
    in `FILE.py:NAME` too.

    Raises:
        UsageError: the file does not exist or cannot be parsed, or has no table or several.
    """
    path, colon, name = word.partition(":")
    if colon and path.endswith(SUFFIX):
        return f"{_module(path, Path(path))}:{name}"
    file = None if word in WORDS else _file_of(word)
    if file is None:
        return word
    shown = file.relative_to(here()) if file.is_relative_to(here()) else file
    try:
        tree = ast.parse(contents(file, MAX_BYTES))
    except OSError as error:
        raise UsageError(f"--impl {word}: {error.strerror}") from None
    except (SyntaxError, ValueError) as error:
        raise UsageError(f"--impl {word}: {shown} cannot be parsed: {error}") from None
    module = _module(word, file)
    names = [*suite.operators, *suite.models, *suite.rules]
    found = [name for name, keys in _tables(tree) if _is_table(keys, names)]
    if len(found) == 1:
        return f"{module}:{found[0]}"
    if not found:
        raise UsageError(
            f'--impl {word}: {shown} has no dict of operators; write IMPL = {{"silu": silu_vjp}}, '
            f"or name what makes one: --impl {module}:NAME"
        )
    listed = ", ".join(f"{module}:{name}" for name in found[:MAX_LISTED])
    more = ", …" if len(found) > MAX_LISTED else ""
    raise UsageError(
        f"--impl {word}: {shown} has {plural(len(found), 'table')}; name one: {listed}{more}"
    )


def _file_of(word: str) -> Path | None:
    """The file of a module, or FILE.py; None where `word` names neither."""
    if word.endswith(SUFFIX):
        return Path(word)
    parts = word.split(".")
    if not all(map(str.isidentifier, parts)):
        return None
    look_here()
    places, origin = sys.path, Path()
    for k in range(len(parts)):
        found = PathFinder.find_spec(".".join(parts[: k + 1]), places)
        if found is None:
            return None
        places, origin = [*(found.submodule_search_locations or ())], Path(found.origin or "")
    return origin if origin.suffix == SUFFIX else None


def _module(word: str, file: Path) -> str:
    """How a table's module is named: by its file where that is in another folder."""
    return file.stem if word.endswith(SUFFIX) and file.parent == Path() else word


def _tables(tree: ast.Module) -> Iterator[tuple[str, set[str] | None]]:
    """Names of dicts at a module's top level, with their keys; None: not all keys are known."""
    found: dict[str, set[str] | None] = {}
    for statement in tree.body:
        for target, value in _assigned(statement):
            if isinstance(target, ast.Name):
                found.pop(target.id, None)
                if _is_dict(value):
                    found[target.id] = _keys(value)
            elif isinstance(target, ast.Subscript) and isinstance(target.value, ast.Name):
                keys = found.get(target.value.id)
                if keys is not None and isinstance(target.slice, ast.Constant):
                    keys.add(str(target.slice.value))
    yield from ((name, keys) for name, keys in found.items() if not name.startswith("_"))


def _assigned(statement: ast.stmt) -> Iterator[tuple[ast.expr, ast.expr]]:
    """The targets of an assignment, each with its value."""
    if isinstance(statement, ast.AnnAssign) and statement.value is not None:
        yield statement.target, statement.value
    elif isinstance(statement, ast.Assign):
        for target in statement.targets:
            if isinstance(target, ast.Tuple) and isinstance(statement.value, ast.Tuple):
                yield from zip(target.elts, statement.value.elts, strict=False)
            else:
                yield target, statement.value


def _is_dict(value: ast.expr) -> bool:
    if isinstance(value, ast.Call):
        return isinstance(value.func, ast.Name) and value.func.id == "dict"
    return isinstance(value, ast.Dict | ast.DictComp)


def _keys(value: ast.expr) -> set[str] | None:
    """The keys of a dict; None where some are computed."""
    keys: list[Any] = [None]
    if isinstance(value, ast.Dict):
        keys = [key.value if isinstance(key, ast.Constant) else None for key in value.keys]
    elif isinstance(value, ast.Call) and not value.args:
        keys = [keyword.arg for keyword in value.keywords]
    return None if None in keys else {str(key) for key in keys}


def _is_table(keys: set[str] | None, names: Collection[str]) -> bool:
    """Whether a key names an operator, model or rule, or may be a misspelt name."""
    if keys is None:
        return True
    found = {key.partition("/")[0] for key in keys}
    return not found.isdisjoint(names) or any(
        difflib.get_close_matches(key, names, n=1, cutoff=NEAR) for key in found
    )
