"""A run read back from the JSON that `-o RUN.json` wrote: what a baseline is held against."""

from __future__ import annotations

from pathlib import Path
from typing import Final, Literal

import msgspec

from gradcheck.errors import UsageError
from gradcheck.finding import Diagnosis, Miss, Part
from gradcheck.record import SCHEMA, Header, Kind, Record, Run
from gradcheck.report.words import clean
from gradcheck.verdict import Verdict

LARGEST: Final = 1 << 30
"""Bytes of a report."""
Number = float | Literal["nan", "inf", "-inf"]
"""JSON has no word for a number that is not finite."""


class _Miss(msgspec.Struct, kw_only=True):
    index: tuple[int, ...]
    got: Number
    want: Number
    error: Number
    bound: Number
    error_bar: Number


class _Why(msgspec.Struct, kw_only=True):
    label: str
    says: str


class _Result(msgspec.Struct, kw_only=True):
    name: str
    hash: str
    implementation: str
    op: str
    dialect: str
    sample: str
    dtype: str
    output: str
    verdict: Verdict
    kind: Kind
    part: Part
    seed: int
    reason: str | None
    compared: int
    unresolved: int
    worst: tuple[_Miss, ...]
    diagnosis: _Why | None


class _Header(msgspec.Struct, kw_only=True):
    schema: int
    version: str
    suite: str
    suite_version: str
    implementations: tuple[str, ...]
    dtypes: tuple[str, ...]
    seed: int
    versions: dict[str, str]


class _Footer(msgspec.Struct, kw_only=True):
    complete: bool
    troubles: tuple[str, ...]


class _Report(msgspec.Struct, kw_only=True):
    header: _Header
    results: tuple[_Result, ...]
    footer: _Footer


class _Schema(msgspec.Struct, kw_only=True):
    schema: int


class _Head(msgspec.Struct, kw_only=True):
    header: _Schema


def read(path: Path) -> Run:
    """The run of a report, as far as a baseline asks: verdicts, errors, classes.

    Raises:
        UsageError: it cannot be read, or is no such report.
    """
    try:
        if path.stat().st_size > LARGEST:
            raise UsageError(f"{path}: it is larger than any report")
        content = path.read_bytes()
    except FileNotFoundError:
        raise UsageError(
            f"{path}: there is no such file; `gradcheck run -o {path}` writes it"
        ) from None
    except (OSError, ValueError) as error:  # a NUL in the name
        raise UsageError(f"{path}: {getattr(error, 'strerror', None) or error}") from None
    try:
        schema = msgspec.json.decode(content, type=_Head).header.schema
        if schema != SCHEMA:
            raise UsageError(
                f"{path}: its schema is {schema}, and this gradcheck reads {SCHEMA}; run again"
            )
        found = msgspec.json.decode(content, type=_Report)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise UsageError(
            f"{path}: it is no report of `gradcheck run -o RUN.json`: {clean(str(error))}"
        ) from None
    header = found.header
    return Run(
        header=Header(
            version=header.version,
            suite=header.suite,
            suite_version=header.suite_version,
            implementations=header.implementations,
            dtypes=header.dtypes,
            seed=header.seed,
            versions=header.versions,
        ),
        results=tuple(map(_record, found.results)),
        complete=found.footer.complete,
        troubles=found.footer.troubles,
    )


def _record(result: _Result) -> Record:
    why = result.diagnosis
    return Record(
        name=result.name,
        hash=result.hash,
        implementation=result.implementation,
        op=result.op,
        dialect=result.dialect,
        sample=result.sample,
        dtype=result.dtype,
        output=result.output,
        verdict=result.verdict,
        kind=result.kind,
        part=result.part,
        seed=result.seed,
        repro="",
        reason=result.reason or "",
        compared=result.compared,
        unresolved=result.unresolved,
        worst=tuple(map(_miss, result.worst)),
        diagnosis=None if why is None else Diagnosis(label=why.label, says=why.says),
    )


def _miss(miss: _Miss) -> Miss:
    return Miss(
        index=miss.index,
        got=float(miss.got),
        want=float(miss.want),
        error=float(miss.error),
        bound=float(miss.bound),
        error_bar=float(miss.error_bar),
        ulp=None,
        cotangent="",
    )
