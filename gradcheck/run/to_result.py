"""A finding as a record: with the names of its case, and the command that repeats it."""

from __future__ import annotations

import re
import shlex
from functools import cache
from typing import Final

from gradcheck.results.finding import Finding, Part
from gradcheck.results.record import Kind, Record
from gradcheck.run.options import OPTIONS, SWITCH, Option
from gradcheck.run.plan import AnyCase, Plan, kind_of, point_of
from gradcheck.spec.suite import Case

THREAD: Final = re.compile(r"\b(Current thread|Thread) 0x[0-9a-f]+(?= \()")
"""An address that differs between processes."""
SANITIZED: Final = re.compile(r"(?<===)[0-9]+(?===)|(?<=\b0x)[0-9a-f]{6,}")
"""Process ids and addresses in the report of a sanitizer."""
FLAGS: Final = {Kind.OPERATOR: "--op", Kind.MODEL: "--model", Kind.RULE: "--rule"}


def record_of(
    plan: Plan,
    case: AnyCase,
    fingerprint: str,
    implementation: str,
    dtype: str,
    finding: Finding,
) -> Record:
    """The record of a finding in one case and dtype; `fingerprint` is the case's."""
    point, kind = point_of(case), kind_of(case)
    return Record(
        name=f"{case.name}/{dtype}",
        hash=fingerprint,
        implementation=implementation,
        op=case.spec.name,
        dialect=case.dialect.name,
        sample=point.name,
        dtype=dtype,
        output=finding.name,
        verdict=finding.verdict,
        seed=plan.seed,
        repro=_again(plan, case, implementation, dtype, finding),
        hunts="" if finding.part is Part.CONTRACT else point.hunts,
        reason=finding.reason,
        compared=finding.compared,
        failed=finding.failed,
        unresolved=finding.unresolved,
        kinked=finding.kinked,
        smallest_visible_error=finding.smallest_visible_error,
        oracle=finding.oracle,
        conventions=finding.conventions,
        certificate=finding.certificate,
        worst=finding.worst,
        kind=kind,
        part=finding.part,
        evaluations=finding.evaluations,
        taylor=finding.taylor,
        blames=finding.blames,
        printed=steady(finding.printed),
        slack=finding.slack,
        diagnosis=finding.diagnosis,
        source=finding.source,
        curve=finding.curve,
        heat=finding.heat,
    )


def steady(printed: str) -> str:
    """A program's prints without the addresses and process ids of stacks and sanitizers.

    >>> steady("Current thread 0x00007f66c1b0 (most recent call first):")
    'Current thread (most recent call first):'
    """
    printed = THREAD.sub(r"\1", printed) if printed else printed
    return SANITIZED.sub("…", printed) if "Sanitizer" in printed else printed


def _again(plan: Plan, case: AnyCase, implementation: str, dtype: str, finding: Finding) -> str:
    """The command that judges one case again, alone."""
    kind = kind_of(case)
    alone = kind is Kind.OPERATOR and finding.part is Part.GRADIENT
    words = ["gradcheck"]
    if alone:
        one = isinstance(case, Case) and finding.name in case.primal_names
        words += ["repro", f"{case.name}/{dtype}" + f":{finding.name}" * one]
    else:
        words += ["run", FLAGS[kind], case.spec.name, "--dialect", case.dialect.name]
        words += ["--sample", point_of(case).name, "--dtype", dtype]
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
