"""A finding as a result: with the names of its case, and the command that repeats it."""

from __future__ import annotations

import re
import shlex
from dataclasses import replace
from functools import cache
from typing import Final

from gradcheck.results.case_result import CaseId, CaseResult
from gradcheck.results.finding import Finding, Part
from gradcheck.results.words import FLAGS
from gradcheck.run.options import OPTIONS, SWITCH, Option
from gradcheck.run.plan import Plan
from gradcheck.spec.case import AnyCase, Kind
from gradcheck.spec.suite import Case

THREAD: Final = re.compile(r"\b(Current thread|Thread) 0x[0-9a-f]+(?= \()")
"""An address that differs between processes."""
SANITIZED: Final = re.compile(r"(?<===)[0-9]+(?===)|(?<=\b0x)[0-9a-f]{6,}")
"""Process ids and addresses in the report of a sanitizer."""


def result_of(
    plan: Plan,
    case: AnyCase,
    fingerprint: str,
    implementation: str,
    dtype: str,
    finding: Finding,
) -> CaseResult:
    """The result of a finding in one case and dtype; `fingerprint` is the case's."""
    point = case.point
    return CaseResult(
        case=CaseId(
            name=f"{case.name}/{dtype}",
            hash=fingerprint,
            implementation=implementation,
            op=case.spec.name,
            dialect=case.dialect.name,
            sample=point.name,
            dtype=dtype,
            seed=plan.seed,
            hunts="" if finding.part is Part.CONTRACT else point.hunts,
            kind=case.kind,
        ),
        finding=replace(finding, printed=steady(finding.printed)) if finding.printed else finding,
        repro=_again(plan, case, implementation, dtype, finding),
    )


def steady(printed: str) -> str:
    """A program's prints without the addresses and process ids of stacks and sanitizers.

    >>> steady("Current thread 0x00007f66c1b0 (most recent call first):")
    'Current thread (most recent call first):'
    """
    printed = THREAD.sub(r"\1", printed)
    return SANITIZED.sub("…", printed) if "Sanitizer" in printed else printed


def _again(plan: Plan, case: AnyCase, implementation: str, dtype: str, finding: Finding) -> str:
    """The command that judges one case again, alone."""
    kind = case.kind
    alone = kind is Kind.OPERATOR and finding.part is Part.GRADIENT
    words = ["gradcheck"]
    if alone:
        one = isinstance(case, Case) and finding.name in case.primal_names
        words += ["repro", f"{case.name}/{dtype}" + f":{finding.name}" * one]
    else:
        words += ["run", FLAGS[kind], case.spec.name, "--dialect", case.dialect.name]
        words += ["--sample", case.point.name, "--dtype", dtype]
        words += ["--no-config"] * plan.config
    for reference in plan.suites:
        words += _flag("--suite", reference)
    if implementation != "reference":
        words += _flag("--impl", implementation)
    for option in _repeated():
        if option.repro in ("always", kind.value, finding.part.value):
            words += _option(option, getattr(plan, option.plan))
    return shlex.join(words)


@cache
def _repeated() -> list[Option]:
    """The options that repro lines repeat after --suite and --impl: switches, then values."""
    found = [option for option in OPTIONS if option.repro and not option.repeatable]
    return sorted(found, key=lambda o: (o.kind is not SWITCH, o.name if o.kind is SWITCH else ""))


def _option(option: Option, value: object) -> list[str]:
    """A flag as typed; nothing where it has its default."""
    if value in (None, False, option.default):
        return []
    if option.kind is SWITCH:
        return [f"--{option.name}"]
    return _flag(f"--{option.name}", f"{value:g}" if isinstance(value, float) else str(value))


def _flag(flag: str, value: str) -> list[str]:
    """A flag and its value, with an equals sign where the value looks like a flag."""
    return [f"{flag}={value}"] if value.startswith("-") else [flag, value]
