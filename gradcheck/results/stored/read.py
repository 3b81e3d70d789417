"""A run read back from the JSON report, or from the log, that `-o` wrote."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any, BinaryIO, Final, TypeVar

import msgspec

from gradcheck.errors import UsageError
from gradcheck.results.case_result import CaseId, CaseResult
from gradcheck.results.finding import Certificate, Finding, Part
from gradcheck.results.run import Header, Run, digest_of
from gradcheck.results.stored.log import by_implementation
from gradcheck.results.stored.parts import Damaged, Other, Parts, Plain, parts
from gradcheck.results.verdict import Breach, Expected, Gate, Known, Problem
from gradcheck.results.words import clean
from gradcheck.system.reading import opened

LARGEST: Final = 1 << 33
"""Bytes of a report: six million results."""
UNNAMED: Final = "unnamed"
"""Stands for an impostor that an older report counts without a name."""
CUT: Final = "the log ends without its footer: the run was killed, or is still going on"
SHARED: Final = (
    "hash", "implementation", "op", "dialect", "sample", "dtype", "output", "hunts", "reason",
    "slack", "source",
)  # fmt: skip
"""Fields whose words many results have in common."""
T = TypeVar("T")


class _Problem(msgspec.Struct, kw_only=True):
    kind: Breach
    file: str
    line: int | None
    says: str


class _Known(msgspec.Struct, kw_only=True):
    stands: Known | None = msgspec.field(name="as")
    entry: str
    reason: str
    link: str | None

    def expected(self, expectation: object) -> Expected:
        return Expected(
            accepted=expectation == "ok",
            known=self.stands,
            entry=self.entry,
            reason=self.reason,
            link=self.link or "",
        )


class _Late(msgspec.Struct, kw_only=True):
    implementation: str
    name: str
    part: Part
    output: str
    expectation: str
    known: _Known


class _Named(msgspec.Struct, kw_only=True):
    file: str
    sha256: str = ""


class _Baseline(_Named, kw_only=True):
    problems: tuple[_Problem, ...]
    warnings: tuple[str, ...]
    late: tuple[_Late, ...] = ()


class _Log(msgspec.Struct, kw_only=True):
    baseline: _Named | None = None


class _Certificate(msgspec.Struct, kw_only=True):
    rejected: int
    blind: tuple[str, ...]
    impostors: tuple[str, ...] = ()
    tolerated: tuple[str, ...] = ()

    @property
    def certificate(self) -> Certificate:
        names = self.impostors or (UNNAMED,) * self.rejected
        return Certificate(rejected=names, blind=self.blind, tolerated=self.tolerated)


class _Whole(msgspec.Struct, kw_only=True):
    output: str
    repro: str


class _Footer(msgspec.Struct, kw_only=True):
    complete: bool
    troubles: tuple[str, ...]
    stopped: str = ""
    baseline: _Baseline | None = None


def read(path: Path) -> Run:
    """The run of a report. What a log that was cut short holds is a run that is not complete.

    Raises:
        UsageError: it cannot be read, is no such report, or was changed since it was written.
    """
    reader = _Reader()
    try:
        with _opened(path) as stream:
            return reader.run(parts(stream, reader.result))
    except Other as error:
        raise UsageError(f"{path}: {error}") from None
    except (Damaged, RecursionError) as error:
        raise UsageError(
            f"{path}: it is no report of `gradcheck run -o RUN.json` or `-o RUN.jsonl`: "
            f"{clean(str(error))}"
        ) from None
    except MemoryError:
        raise UsageError(f"{path}: there is no memory for it") from None
    except (OSError, ValueError) as error:  # a NUL in the name
        raise UsageError(f"{path}: {getattr(error, 'strerror', None) or error}") from None


def _opened(path: Path) -> BinaryIO:
    try:
        return opened(path, LARGEST)
    except FileNotFoundError:
        raise UsageError(
            f"{path}: there is no such file; `gradcheck run -o {path}` writes it"
        ) from None


class _Reader:
    """Makes records of results, one by one, and a run of them all.

    Words that were read before are used again: a million results have few of their own.
    """

    def __init__(self) -> None:
        self._words: dict[str, str] = {}
        self._equal: dict[Any, Any] = {}
        self._known: list[tuple[CaseResult, Any, Any]] = []

    def result(self, plain: Plain) -> CaseResult:
        for name in SHARED:
            word = plain.get(name)
            if isinstance(word, str):
                plain[name] = self._words.setdefault(word, word)
        misses = plain.get("worst")
        for miss in misses if isinstance(misses, list) else ():
            word = miss.get("cotangent") if isinstance(miss, dict) else None
            if isinstance(word, str):
                miss["cotangent"] = self._words.setdefault(word, word)
        record = result_of(plain, self._equal)
        if plain.get("known") is not None:
            self._known.append((record, plain["known"], plain.get("expectation")))
        return record

    def run(self, found: Parts[CaseResult]) -> Run:
        header = _convert(found.header, Header)
        if found.fault is not None:
            raise found.fault
        results = sorted(found.results, key=by_implementation(header))
        if not header.cases:
            header = replace(header, cases=digest_of(results))
        if found.footer is None:
            return Run(
                header=header,
                results=tuple(results),
                complete=False,
                stopped=CUT,
                gate=self._gate(_so_far(_convert(found.header, _Log).baseline)),
            )
        footer = _convert(found.footer, _Footer)
        return Run(
            header=header,
            results=tuple(results),
            complete=footer.complete,
            troubles=footer.troubles,
            stopped=footer.stopped,
            gate=self._gate(footer.baseline),
        )

    def _gate(self, baseline: _Baseline | None) -> Gate | None:
        if baseline is None:
            return None
        expected: dict[tuple[str, ...], Expected] = {}
        for record, plain, said in self._known:
            expected[record.key] = _convert(plain, _Known).expected(said)
        for late in baseline.late:
            key = late.implementation, late.name, late.part, late.output
            expected[key] = late.known.expected(late.expectation)
        return Gate(
            baseline=baseline.file,
            digest=baseline.sha256,
            results=expected,
            problems=tuple(
                Problem(breach=said.kind, file=said.file, line=said.line, says=said.says)
                for said in baseline.problems
            ),
            warnings=baseline.warnings,
        )


def _so_far(named: _Named | None) -> _Baseline | None:
    """What a log that was cut short says of a whole run: which baseline it was made with."""
    if named is None:
        return None
    return _Baseline(file=named.file, sha256=named.sha256, problems=(), warnings=())


def result_of(plain: Plain, equal: dict[Any, Any] | None = None) -> CaseResult:
    """A result, without what is derived from the rest.

    `equal` keeps cases and certificates, so that those of several results are one object.
    """
    equal = {} if equal is None else equal
    found = {**plain, "reason": plain.get("reason") or "", "certificate": None}
    if isinstance(found.get("diagnosis"), str):  # older reports call the reason so
        found.update(reason=found["diagnosis"], diagnosis=None)
    if plain.get("certificate") is not None:
        certificate = _convert(plain["certificate"], _Certificate).certificate
        found["certificate"] = equal.setdefault(certificate, certificate)
    whole, case = _convert(plain, _Whole), _convert(plain, CaseId)
    return CaseResult(
        case=equal.setdefault(case, case),
        finding=_convert({**found, "name": whole.output}, Finding, strict=False),  # "nan" is one
        repro=whole.repro,
    )


def _convert(plain: Any, kind: type[T], *, strict: bool = True) -> T:
    try:
        return msgspec.convert(plain, kind, strict=strict)
    except msgspec.ValidationError as error:
        raise Damaged(str(error)) from None
