"""A gradient that is wrong as a file that shows it without us: which form, and what is refused."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final

from gradcheck.errors import UsageError
from gradcheck.explain.shrink import Shrunk
from gradcheck.implementations.bound import Bound, Implementation
from gradcheck.implementations.load import MANIFEST, WORDS
from gradcheck.implementations.native.library import Native
from gradcheck.report.scripts import c, python
from gradcheck.report.scripts.point import Accepted, primal_of

PYTHON, C = ".py", ".c"
FORMS: Final = (PYTHON, C)
AGAIN: Final = "Again: "
"""What a line begins with that says how to judge the case again: every export has one."""
HEAD: Final = 1 << 14
"""Bytes in which it stands."""


def check_form(path: Path, words: Sequence[str]) -> None:
    """Refuse before the run what can be seen to be no export.

    Raises:
        UsageError: the file has another ending, or no code of a user's is named.
    """
    if path.suffix not in FORMS:
        raise UsageError(
            f"--export {path}: end its name in {PYTHON} for code in Python, in {C} for a C library"
        )
    if len(words) > 1:
        raise UsageError("--export shows one implementation: name one --impl")
    if path.is_file() and AGAIN.encode() not in _head(path):
        raise UsageError(f"--export {path}: it exists, and is no export; give another name")
    for word in words:
        if word in WORDS:
            whose = "the reference is" if word == "reference" else f"{word}'s own operators are"
            raise UsageError(f"--export: {whose} no code of yours; name yours by --impl")


def _head(path: Path) -> bytes:
    with path.open("rb") as file:
        return file.read(HEAD)


def written(
    shrunk: Shrunk,
    accepted: Accepted,
    binding: Implementation,
    bound: Bound,
    path: Path,
    said: Sequence[str],
) -> str:
    """The text of the file at `path`, whose first lines are `said`.

    Raises:
        UsageError: this code cannot be called from such a file.
        ManifestError: a manifest that yields nonsense at this point.
    """
    word = binding.name
    if not shrunk.want.size:
        raise UsageError(
            f"--export: d{primal_of(shrunk)} has no elements here: there is nothing to show"
        )
    if isinstance(binding, Native):
        if path.suffix != C:
            raise UsageError(f"--export {path}: {word} is a C library; end the name in {C}")
        return c.program(shrunk, accepted, binding, path, said)
    if bound.recipe is None:
        raise UsageError(
            f"--export: {word} answers through a protocol or on file: no short script can ask it; "
            "a table of Python objects can be exported, or a C library"
        )
    if path.suffix != PYTHON:
        raise UsageError(f"--export {path}: {word} is Python; end the name in {PYTHON}")
    return python.script(shrunk, accepted, bound.recipe, _table(word), said)


def _table(word: str) -> python.Table:
    """Where the table that a word of `--impl` names can be imported from."""
    if not word.endswith(MANIFEST):
        return python.Table.at(word)
    from gradcheck.implementations.manifest import schema

    file = schema.parse(Path(word))
    assert file.top.python is not None
    return python.Table.at(file.top.python.entry, str(file.folder.absolute()))
