"""Changes to the text of a known-failures.toml that leave every other character as it was.

Each change is tried where it should belong, and the text that comes of it is read again: it is
kept only if it says what it said before, and the change.
"""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Iterator
from typing import Any, Final

from gradcheck.errors import UsageError
from gradcheck.results.baseline.entry import Baseline, Entry
from gradcheck.results.baseline.file import lines_of, split
from gradcheck.results.words import clean

COMMENT: Final = re.compile(r"\s*#")
VALUE: Final = re.compile(r"""("[^"]*"|'[^']*'|[^\s#"']+)""")
TOP: Final = """\
# Failures that are known, and why: gradcheck run --baseline {name}
# The gate fails on anything else, and on an entry that is not true any more.
"""


def value(of: str | float) -> str:
    """A text or a number in TOML."""
    return json.dumps(of, ensure_ascii=False) if isinstance(of, str) else repr(of)


def fresh(baseline: Baseline) -> str:
    """The text of a new file."""
    lines = [TOP.format(name=clean(baseline.name))]
    if baseline.suite:
        lines.append(f"suite = {value(baseline.suite)}\n")
    if baseline.dtypes:
        lines.append(f"dtypes = [{', '.join(map(value, baseline.dtypes))}]\n")
    return added("".join(lines), baseline.entries)


def added(text: str, entries: tuple[Entry, ...]) -> str:
    """The text with entries behind all that it has."""
    end = "\r\n" if "\r\n" in text else "\n"
    blocks = [f"\n{written(entry)}".replace("\n", end) for entry in entries]
    return "".join([text.rstrip("\r\n"), end, *blocks])


def written(entry: Entry) -> str:
    """An entry's text."""
    pairs: list[tuple[str, str | float | None]] = [
        ("match", entry.match),
        ("output", entry.output),
        ("verdict", entry.verdict),
        ("class", entry.label or None),
        ("max_error", entry.max_error),
        ("when", entry.when or None),
        ("reason", entry.reason),
        ("link", entry.link or None),
    ]
    lines = [f"{key} = {value(of)}" for key, of in pairs if of is not None]
    return "\n".join(["[[known]]", *lines, ""])


def changed(text: str, name: str, number: int, key: str, of: str | float) -> str:
    """The text with another value of one key in entry `number`, counted from 0.

    Raises:
        UsageError: the entry is written so that this cannot be done.
    """
    tables = _tables(text)
    wanted = [*tables]
    wanted[number] = {**tables[number], key: of}
    start, stop = _spans(text, len(tables), name)[number]
    for candidate in _with_value(split(text), start, stop, key, value(of)):
        if _says(candidate, text, wanted):
            return candidate
    raise UsageError(f"{name}:{start + 1}: write `{key} = {value(of)}` there yourself")


def removed(text: str, name: str, number: int) -> str:
    """The text without entry `number`, and without the comment right above it.

    Raises:
        UsageError: the entry is written so that this cannot be done.
    """
    tables = _tables(text)
    wanted = tables[:number] + tables[number + 1 :]
    start, stop = _spans(text, len(tables), name)[number]
    lines = split(text)
    first = start
    while first and COMMENT.match(lines[first - 1]):
        first -= 1
    last = stop
    while last < len(lines) and not lines[last].strip():
        last += 1
    candidate = "\n".join([*lines[:first], *lines[last:]])
    if _says(candidate, text, wanted):
        return candidate
    raise UsageError(f"{name}:{start + 1}: remove the entry yourself")


def _with_value(lines: list[str], start: int, stop: int, key: str, new: str) -> Iterator[str]:
    """The text with a value changed, in each place where it may stand; then with a line more."""
    at = re.compile(rf"""(\s*(?:{key}|"{key}"|'{key}')\s*=\s*)""")
    for n in range(start + 1, stop):
        found = at.match(lines[n])
        if found:
            rest = VALUE.sub(lambda _: new, lines[n][found.end() :], count=1)
            yield "\n".join([*lines[:n], found.group() + rest, *lines[n + 1 :]])
    after = [n for n in range(start + 1, stop) if re.match(r"\s*verdict\s*=", lines[n])]
    end = "\r" if lines[start].endswith("\r") else ""
    for n in (*after, start):
        yield "\n".join([*lines[: n + 1], f"{key} = {new}{end}", *lines[n + 1 :]])


def _spans(text: str, count: int, name: str) -> list[tuple[int, int]]:
    """Where each entry stands: from its header's line to behind its last key, from 0."""
    lines = split(text)
    starts = [line - 1 for line in lines_of(text, count, name)]
    spans = []
    for start, stop in zip(starts, [*starts[1:], len(lines)], strict=True):
        last = stop
        while last > start + 1 and _idle(lines[last - 1]):
            last -= 1
        spans.append((start, last))
    return spans


def _idle(line: str) -> bool:
    return not line.strip() or COMMENT.match(line) is not None


def _tables(text: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = tomllib.loads(text).get("known", [])
    return found


def _says(candidate: str, before: str, wanted: list[dict[str, Any]]) -> bool:
    """Whether a text says what another did, but for its entries, which are `wanted`."""
    try:
        top = tomllib.loads(candidate)
    except tomllib.TOMLDecodeError:
        return False
    rest = {**tomllib.loads(before)}
    rest.pop("known", None)
    return top.pop("known", []) == wanted and top == rest
