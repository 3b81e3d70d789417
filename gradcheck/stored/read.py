"""A run read back from the JSON report, or from the log, that `-o` wrote."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final, NoReturn, TypeVar

import msgspec

from gradcheck.errors import UsageError
from gradcheck.expectation import Breach, Expected, Gate, Known, Problem
from gradcheck.record import SCHEMA, Header, Record, Run, digest_of
from gradcheck.report.words import clean
from gradcheck.stored.log import by_implementation

LARGEST: Final = 1 << 31
"""Bytes of a report."""
UNNAMED: Final = "unnamed"
"""Stands for an impostor that an older report counts without a name."""
BEGIN: Final = b'{"header"'
"""How a log begins."""
CUT: Final = "the log ends without its footer: the run was killed, or is still going on"
T = TypeVar("T")
Plain = dict[str, Any]


class _Damaged(ValueError):  # noqa: N818  that is what it is
    """It is no report; the text says where."""


class _Other(ValueError):  # noqa: N818
    """It is a report of another schema."""


@dataclass(frozen=True, slots=True)
class _Parts:
    """What a report consists of, before anything is believed; a log cut short has no footer."""

    header: Plain
    results: Sequence[Plain]
    footer: Plain | None


class _Problem(msgspec.Struct, kw_only=True):
    kind: Breach
    file: str
    line: int | None
    says: str


class _Baseline(msgspec.Struct, kw_only=True):
    file: str
    problems: tuple[_Problem, ...]
    warnings: tuple[str, ...]


class _Known(msgspec.Struct, kw_only=True):
    stands: Known | None = msgspec.field(name="as")
    entry: str
    reason: str
    link: str | None


class _Certificate(msgspec.Struct, kw_only=True):
    rejected: int
    blind: tuple[str, ...]
    impostors: tuple[str, ...] = ()


class _Footer(msgspec.Struct, kw_only=True):
    """What a footer says that the results do not."""

    complete: bool
    troubles: tuple[str, ...]
    stopped: str = ""
    baseline: _Baseline | None = None


def read(path: Path) -> Run:
    """The run of a report. What a log that was cut short holds is a run that is not complete.

    Raises:
        UsageError: it cannot be read, is no such report, or was changed since it was written.
    """
    content = _content(path)
    try:
        return _run(_parts(content))
    except _Other as error:
        raise UsageError(f"{path}: {error}") from None
    except (_Damaged, RecursionError) as error:
        raise UsageError(
            f"{path}: it is no report of `gradcheck run -o RUN.json` or `-o RUN.jsonl`: "
            f"{clean(str(error))}"
        ) from None


def _content(path: Path) -> bytes:
    try:
        if path.stat().st_size > LARGEST:
            raise UsageError(f"{path}: it is larger than any report")
        return path.read_bytes()
    except FileNotFoundError:
        raise UsageError(
            f"{path}: there is no such file; `gradcheck run -o {path}` writes it"
        ) from None
    except (OSError, ValueError) as error:  # a NUL in the name
        raise UsageError(f"{path}: {getattr(error, 'strerror', None) or error}") from None


def _parts(content: bytes) -> _Parts:
    first, ended, _ = content.partition(b"\n")
    try:
        head = _object(first, "line 1")
    except _Damaged:
        head = None  # a document of several lines, or nothing of ours
        if not ended and first[: len(BEGIN)] == BEGIN[: len(first)]:
            said = "it ends within its first line: the run was killed as it began"
            raise _Damaged(said) from None
    if head is not None and head.keys() == {"header"}:
        return _of_log(content)
    plain = head if head is not None and "results" in head else _object(content, "the document")
    _expect(plain, "header", "results", "footer")
    results = plain["results"]
    if not isinstance(results, list) or not all(isinstance(result, dict) for result in results):
        raise _Damaged("its results are no list of objects")
    return _Parts(_headed(plain["header"]), results, _part(plain, "footer"))


def _of_log(content: bytes) -> _Parts:
    """The parts of a log; its last line may be half written, no other may."""
    *lines, rest = content.split(b"\n")
    header: Plain = {}
    results: list[Plain] = []
    before = hashlib.sha256()
    for number, line in enumerate(lines, 1):
        plain = _object(line, f"line {number}")
        if number == 1:
            header = _headed(plain["header"])
        elif plain.keys() == {"footer"}:
            footer = _part(plain, "footer")
            if number < len(lines) or rest:
                raise _Damaged(f"line {number + 1}: there is something after the footer")
            if footer.get("sha256") != before.hexdigest():
                raise _Damaged("it was changed after it was written: its hash is another")
            return _Parts(header, results, footer)
        else:
            _expect(plain, "result")
            results.append(_part(plain, "result"))
        before.update(line + b"\n")
    return _Parts(header, results, None)


def _object(text: bytes, where: str) -> Plain:
    try:
        plain = json.loads(text, parse_constant=_refused)
    except (ValueError, RecursionError) as error:  # UnicodeDecodeError is a ValueError
        raise _Damaged(f"{where}: {error}") from None
    if not isinstance(plain, dict):
        raise _Damaged(f"{where}: it is no object")
    return plain


def _refused(word: str) -> NoReturn:
    raise ValueError(f"{word} is no JSON")


def _expect(plain: Plain, *keys: str) -> None:
    missing = [key for key in keys if key not in plain]
    if missing:
        raise _Damaged(f"it has no {missing[0]}")


def _part(plain: Plain, key: str) -> Plain:
    if not isinstance(plain[key], dict):
        raise _Damaged(f"its {key} is no object")
    part: Plain = plain[key]
    return part


def _headed(header: object) -> Plain:
    """A header of a schema that is known here."""
    if not isinstance(header, dict) or type(header.get("schema")) is not int:
        raise _Damaged("its header names no schema")
    if header["schema"] != SCHEMA:
        raise _Other(
            f"its schema is {header['schema']}, and this gradcheck reads {SCHEMA}; run again"
        )
    return header


def _run(parts: _Parts) -> Run:
    header = _convert(parts.header, Header)
    found = [*map(result_of, parts.results)]
    results = sorted(found, key=by_implementation(header))
    if not header.cases:
        header = replace(header, cases=digest_of(results))
    if parts.footer is None:
        return Run(header=header, results=tuple(results), complete=False, stopped=CUT)
    footer = _convert(parts.footer, _Footer)
    return Run(
        header=header,
        results=tuple(results),
        complete=footer.complete,
        troubles=footer.troubles,
        stopped=footer.stopped,
        gate=_gate(footer.baseline, zip(parts.results, found, strict=True)),
    )


def result_of(plain: Plain) -> Record:
    """A result, without what is derived from the rest."""
    kept = {**plain, "reason": plain.get("reason") or "", "certificate": None}
    if isinstance(kept.get("diagnosis"), str):  # older reports call the reason so
        kept.update(reason=kept["diagnosis"], diagnosis=None)
    if plain.get("certificate") is not None:
        counted = _convert(plain["certificate"], _Certificate)
        names = counted.impostors or (UNNAMED,) * counted.rejected
        kept["certificate"] = {"rejected": names, "blind": counted.blind}
    return _convert(kept, Record, strict=False)  # "nan" is a number


def _gate(baseline: _Baseline | None, found: Iterable[tuple[Plain, Record]]) -> Gate | None:
    """What a baseline made of the run, as the report says it."""
    if baseline is None:
        return None
    expected: dict[tuple[str, ...], Expected] = {}
    for plain, record in found:
        if plain.get("known") is not None:
            known = _convert(plain["known"], _Known)
            expected[record.key] = Expected(
                accepted=plain.get("expectation") == "ok",
                known=known.stands,
                entry=known.entry,
                reason=known.reason,
                link=known.link or "",
            )
    return Gate(
        baseline=baseline.file,
        results=expected,
        problems=tuple(
            Problem(breach=said.kind, file=said.file, line=said.line, says=said.says)
            for said in baseline.problems
        ),
        warnings=baseline.warnings,
    )


def _convert(plain: Any, kind: type[T], *, strict: bool = True) -> T:
    try:
        return msgspec.convert(plain, kind, strict=strict)
    except msgspec.ValidationError as error:
        raise _Damaged(str(error)) from None
