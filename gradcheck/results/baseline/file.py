"""From the text of a known-failures.toml to its entries, with everything checked."""

from __future__ import annotations

import hashlib
import re
import tomllib
from collections.abc import Callable, Mapping
from datetime import date, datetime
from pathlib import Path
from typing import Any, Final

from gradcheck.errors import UnknownNameError, UsageError
from gradcheck.results.baseline import condition
from gradcheck.results.baseline.entry import EXCUSABLE, FLAKY, Baseline, Entry
from gradcheck.results.words import clean
from gradcheck.spec.defect import LABELS
from gradcheck.spec.dtype_selection import CERTIFIED, DTYPES, LOW
from gradcheck.system.reading import contents

HEADER: Final = re.compile(r"""^\s*\[\[\s*(?:known|"known"|'known')\s*\]\]\s*(?:#.*)?$""")
REQUIRED: Final = ("match", "output", "verdict", "reason")
KEYS: Final = (*REQUIRED, "class", "max_error", "when", "link", "expires")
TOP: Final = ("suite", "dtypes", "known")
VERDICTS: Final = (*(verdict.value for verdict in EXCUSABLE), FLAKY)
PARTS: Final = 4
"""Of a case's name."""
LARGEST: Final = 1e300
"""Above which an error is no number."""
MOST: Final = 1 << 26
"""Bytes of a file."""


def read(path: Path) -> Baseline:
    """The baseline at `path`.

    Raises:
        UsageError: it cannot be read, or is none; the message names the file, line and key.
    """
    return parsed(text_of(path), str(path))


def text_of(path: Path) -> str:
    """The text of a file of entries.

    Raises:
        UsageError: it cannot be read.
    """
    try:
        return contents(path, MOST).decode("utf-8")
    except FileNotFoundError:
        raise UsageError(
            f"{path}: there is no such file; `gradcheck baseline write {path}` writes it"
        ) from None
    except UnicodeDecodeError:
        raise UsageError(f"{path}: it is no text in UTF-8, and so no TOML") from None
    except (OSError, ValueError) as error:  # a NUL in the name
        raise UsageError(f"{path}: {getattr(error, 'strerror', None) or error}") from None


def parsed(text: str, name: str) -> Baseline:
    """The baseline that a text holds; `name` is what messages call the file.

    Raises:
        UsageError: it holds none.
    """
    try:
        top = tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise UsageError(f"{name}: it is no TOML: {clean(str(error))}") from None
    _known_keys(top, TOP, name)
    suite, dtypes = top.get("suite", ""), top.get("dtypes", [])
    if not isinstance(suite, str):
        raise _wrong(name, "suite", suite, 'write the version as a text: "2026.11"')
    if not isinstance(dtypes, list) or not all(isinstance(word, str) for word in dtypes):
        raise _wrong(name, "dtypes", dtypes, 'write a list of names: ["float64"]')
    for word in dtypes:
        _member(name, "dtypes", word, (*DTYPES, *LOW, CERTIFIED), "dtype")
    tables = top.get("known", [])
    if not isinstance(tables, list) or not all(isinstance(table, dict) for table in tables):
        raise _wrong(name, "known", tables, "write every entry under a line `[[known]]`")
    entries = [
        _entry(table, line, f"{name}:{line}")
        for table, line in zip(tables, lines_of(text, len(tables), name), strict=True)
    ]
    _no_twins(entries, name)
    digest = hashlib.sha256(text.encode("utf-8")).hexdigest()
    return Baseline(
        name=name, entries=tuple(entries), suite=suite, dtypes=tuple(dtypes), digest=digest
    )


def lines_of(text: str, count: int, name: str) -> list[int]:
    """The lines on which the `count` entries begin, from 1.

    Raises:
        UsageError: they are not all written under a line `[[known]]`.
    """
    lines = split(text)
    found = [n for n, line in enumerate(lines, 1) if HEADER.match(line)]
    if len(found) != count:  # some are part of a text of several lines: what ends there is no TOML
        found = [n for n in found if _complete("\n".join([*lines[:n], ""]))]
    if len(found) != count:
        raise UsageError(f"{name}: known: write every entry under a line `[[known]]` of its own")
    return found


def split(text: str) -> list[str]:
    """Lines as TOML counts them, and no other character ends one."""
    return text.split("\n")


def _complete(text: str) -> bool:
    try:
        tomllib.loads(text)
    except tomllib.TOMLDecodeError:
        return False
    return True


def _entry(table: Mapping[str, Any], line: int, where: str) -> Entry:
    _known_keys(table, KEYS, where)
    for key in REQUIRED:
        if key not in table:
            raise UsageError(f"{where}: the entry has no `{key}`; it needs {', '.join(REQUIRED)}")
    for key in table:
        CHECKS[key](where, key, table[key])
    flawed = table["verdict"] in ("fail", FLAKY)
    if "max_error" in table and not flawed:
        raise UsageError(
            f"{where}: max_error: there is no error where the verdict is {table['verdict']}; "
            "leave it out"
        )
    largest = table.get("max_error")
    return Entry(
        line=line,
        match=table["match"],
        output=table["output"],
        verdict=table["verdict"],
        reason=table["reason"],
        label=table.get("class", ""),
        max_error=None if largest is None else float(largest),
        when=table.get("when", ""),
        link=table.get("link", ""),
        expires=table.get("expires"),
    )


def _text(where: str, key: str, value: Any) -> None:
    if not isinstance(value, str) or not value.strip():
        raise _wrong(where, key, value, "write a text")


def _match(where: str, key: str, value: Any) -> None:
    _text(where, key, value)
    parts = value.split("/")
    if len(parts) != PARTS or not all(parts):
        raise _wrong(where, key, value, "write operator/dialect/sample/dtype; * stands for any")
    if re.sub(r"\[!?\]?[^\]/]*\]", "", value).count("["):
        raise _wrong(where, key, value, "a [ has no ] behind it")


def _verdict(where: str, key: str, value: Any) -> None:
    _text(where, key, value)
    _member(where, key, value, VERDICTS, "verdict")


def _class(where: str, key: str, value: Any) -> None:
    _text(where, key, value)
    _member(where, key, value, [label.word for label in LABELS.values()], "class of defects")


def _error(where: str, key: str, value: Any) -> None:
    number = isinstance(value, (int, float)) and not isinstance(value, bool)
    ok = number and 0 < value <= LARGEST
    if not ok:
        raise _wrong(where, key, value, "write a positive number, a relative error: 0.04")


def _when(where: str, key: str, value: Any) -> None:
    _text(where, key, value)
    try:
        condition.check(value)
    except ValueError as error:
        raise UsageError(f"{where}: {key} = {_shown(value)}: {clean(str(error))}") from None


def _day(where: str, key: str, value: Any) -> None:
    if not isinstance(value, date) or isinstance(value, datetime):
        raise _wrong(where, key, value, "write a date, without quotes: 2027-03-01")


CHECKS: Final[Mapping[str, Callable[[str, str, Any], None]]] = {
    "match": _match,
    "output": _text,
    "verdict": _verdict,
    "reason": _text,
    "class": _class,
    "max_error": _error,
    "when": _when,
    "link": _text,
    "expires": _day,
}


def _known_keys(table: Mapping[str, Any], known: tuple[str, ...], where: str) -> None:
    for key in table:
        if key not in known:
            raise UsageError(f"{where}: {clean(str(UnknownNameError('key', key, known)))}")


def _member(where: str, key: str, value: str, known: Any, kind: str) -> None:
    if value not in known:
        raise UsageError(f"{where}: {key}: {clean(str(UnknownNameError(kind, value, known)))}")


def _no_twins(entries: list[Entry], name: str) -> None:
    seen: dict[tuple[str, ...], Entry] = {}
    for entry in entries:
        key = (entry.match, entry.output, entry.when, entry.verdict, entry.label)
        first = seen.setdefault(key, entry)
        if first is not entry:
            raise UsageError(
                f"{name}:{entry.line}: the entry says what that of line {first.line} says; "
                "leave one out"
            )


def _wrong(where: str, key: str, value: Any, how: str) -> UsageError:
    return UsageError(f"{where}: {key} = {_shown(value)}: {how}")


def _shown(value: Any) -> str:
    text = clean(str(value) if isinstance(value, (date, bool)) else repr(value))
    return text if len(text) <= 60 else f"{text[:59]}…"
