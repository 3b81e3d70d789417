"""What the file of a report holds, result by result: only what is made of one is kept.

A log is read line by line, a JSON document as text that is taken apart one result at a time, so
that a million results take little more memory than their records.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from typing import IO, Any, Final, Generic, NoReturn, TypeVar

import msgspec

from gradcheck.results.run import SCHEMA

BEGIN: Final = b'{"header"'
"""How a log begins."""
LINE: Final = 1 << 26
"""Bytes of a line of a log, at the most; a document may be one line, and longer."""
CLUE: Final = 1 << 10
"""Bytes that tell whether a text can be an object."""
T = TypeVar("T")
Plain = dict[str, Any]


class Damaged(ValueError):  # noqa: N818  that is what it is
    """It is no report; the text says where."""


class Other(ValueError):  # noqa: N818
    """It is a report of another schema."""


@dataclass(frozen=True, slots=True)
class Parts(Generic[T]):
    """What a report consists of; a log cut short has no footer.

    `results` is what was made of each. Where that failed, they end there, and `fault` says why:
    a file that was changed is to be called so first.
    """

    header: Plain
    results: list[T]
    footer: Plain | None
    fault: Damaged | None


class _Document(msgspec.Struct):
    """A JSON report whose results are still text."""

    header: msgspec.Raw
    results: list[msgspec.Raw]
    footer: msgspec.Raw


def parts(stream: IO[bytes], made: Callable[[Plain], T]) -> Parts[T]:
    """The parts of a report, with what `made` makes of each of its results.

    Raises:
        Damaged: it is no report. `made` may raise it, too, of a result.
        Other: it is a report of another schema.
    """
    first = stream.readline(LINE)
    if not _is_object(first):
        raise Damaged("the document: it is no object")
    try:
        head = _object(first, "line 1")
    except Damaged:
        head = None  # a document of several lines, or nothing of ours
        if not first.endswith(b"\n") and first[: len(BEGIN)] == BEGIN[: len(first)]:
            said = "it ends within its first line: the run was killed as it began"
            raise Damaged(said) from None
    if head is not None and head.keys() == {"header"}:
        return _of_log(head, first, stream, made)
    plain = head if head is not None and "results" in head else None
    return _of_document(plain, first + stream.read() if plain is None else b"", made)


def _of_document(head: Plain | None, content: bytes, made: Callable[[Plain], T]) -> Parts[T]:
    """The parts of a document, parsed already or not."""
    results: Iterable[Plain]
    if head is None and (found := _apart(content)) is not None:
        head = {part: msgspec.json.decode(getattr(found, part)) for part in ("header", "footer")}
        results = (_object(bytes(raw), "a result") for raw in found.results)
    else:
        head = _object(content, "the document") if head is None else head
        _expect(head, "header", "results", "footer")
        results = head["results"]
        if not isinstance(results, list) or not all(isinstance(r, dict) for r in results):
            raise Damaged("its results are no list of objects")
    header, footer = _headed(head["header"]), _part(head, "footer")
    found_of: list[T] = []
    for plain in results:
        try:
            found_of.append(made(plain))
        except Damaged as error:
            return Parts(header, found_of, footer, error)
    return Parts(header, found_of, footer, None)


def _apart(content: bytes) -> _Document | None:
    """A document whose results are text yet; None if it is not as we write it."""
    try:
        found = msgspec.json.decode(content, type=_Document)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return None
    every = (found.header, found.footer, *found.results)
    return found if all(bytes(memoryview(raw)[:1]) == b"{" for raw in every) else None


def _of_log(head: Plain, first: bytes, stream: IO[bytes], made: Callable[[Plain], T]) -> Parts[T]:
    """The parts of a log; its last line may be half written, no other may."""
    if not first.endswith(b"\n"):
        return Parts({}, [], None, None)
    header, results = _headed(head["header"]), list[T]()
    fault: Damaged | None = None
    before = hashlib.sha256(first)
    for number, line in enumerate(iter(partial(stream.readline, LINE), b""), 2):
        if len(line) == LINE:
            raise Damaged(f"line {number}: it is longer than any")
        if not line.endswith(b"\n"):
            break
        plain = _object(line, f"line {number}")
        if plain.keys() == {"footer"}:
            footer = _part(plain, "footer")
            if stream.read(1):
                raise Damaged(f"line {number + 1}: there is something after the footer")
            if footer.get("sha256") != before.hexdigest():
                raise Damaged("it was changed after it was written: its hash is another")
            return Parts(header, results, footer, fault)
        _expect(plain, "result")
        result = _part(plain, "result")
        try:
            if fault is None:
                results.append(made(result))
        except Damaged as error:
            fault = error
        before.update(line)
    return Parts(header, results, None, fault)


def _is_object(begins: bytes) -> bool:
    """Whether a text may be an object, in any encoding; not all of it need be there."""
    some = begins[:CLUE]
    text = some.decode(json.detect_encoding(some), "ignore").lstrip(" \t\r\n\ufeff")
    return text[:1] in ("", "{")


def _object(text: bytes, where: str) -> Plain:
    try:
        plain = msgspec.json.decode(text)  # in half the time; what it takes means the same to both
    except (msgspec.MsgspecError, ValueError, RecursionError):
        plain = _patiently(text, where)
    if not isinstance(plain, dict):
        raise Damaged(f"{where}: it is no object")
    return plain


def _patiently(text: bytes, where: str) -> object:
    """What the standard library reads: half of a surrogate pair, too, and other encodings."""
    try:
        return DECODER.decode(text.decode(json.detect_encoding(text), "surrogatepass"))
    except (ValueError, RecursionError) as error:  # UnicodeDecodeError is a ValueError
        raise Damaged(f"{where}: {error}") from None


def _refused(word: str) -> NoReturn:
    raise ValueError(f"{word} is no JSON")


DECODER: Final = json.JSONDecoder(parse_constant=_refused)


def _expect(plain: Plain, *keys: str) -> None:
    missing = [key for key in keys if key not in plain]
    if missing:
        raise Damaged(f"it has no {missing[0]}")


def _part(plain: Plain, key: str) -> Plain:
    if not isinstance(plain[key], dict):
        raise Damaged(f"its {key} is no object")
    part: Plain = plain[key]
    return part


def _headed(header: object) -> Plain:
    """A header of a schema that is known here."""
    if not isinstance(header, dict) or type(header.get("schema")) is not int:
        raise Damaged("its header names no schema")
    if header["schema"] != SCHEMA:
        raise Other(
            f"its schema is {header['schema']}, and this gradcheck reads {SCHEMA}; run again"
        )
    return header
