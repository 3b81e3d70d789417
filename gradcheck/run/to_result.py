"""A finding as a record: where it was found, and the command that finds it again."""

from __future__ import annotations

import re
import shlex
from typing import Final

from gradcheck.implementations.processes import TIMEOUT
from gradcheck.results.finding import Finding, Part
from gradcheck.results.record import Kind, Record
from gradcheck.run.plan import AnyCase, Plan, kind_of, point_of
from gradcheck.spec.suite import Case

THREAD: Final = re.compile(r"\b(Current thread|Thread) 0x[0-9a-f]+(?= \()")
"""An address that is another one in each process."""
SANITIZED: Final = re.compile(r"(?<===)[0-9]+(?===)|(?<=\b0x)[0-9a-f]{6,}")
"""A process and addresses that a sanitizer's report names."""
FLAGS: Final = {Kind.OPERATOR: "--op", Kind.MODEL: "--model", Kind.RULE: "--rule"}


def record_of(
    plan: Plan,
    case: AnyCase,
    fingerprint: str,
    implementation: str,
    dtype: str,
    finding: Finding,
) -> Record:
    """What is kept of a finding in one case and dtype; `fingerprint` is the case's."""
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
    """What was printed, without what a stack or a sanitizer's report has anew in each process.

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
    if kind is Kind.MODEL:
        words += ["--project"] * plan.project + ["--train"] * (finding.part is Part.TRAINING)
    if finding.part is Part.CONTRACT and plan.contract:
        words.append("--contract")
    if plan.timeout != TIMEOUT:
        words += ["--timeout", f"{plan.timeout:g}"]
    if plan.convention:
        words += _flag("--convention", plan.convention)
    if plan.seed:
        words += ["--seed", str(plan.seed)]
    return shlex.join(words)


def _flag(flag: str, value: str) -> list[str]:
    """A flag and its value; a value that looks like a flag needs an equals sign."""
    return [f"{flag}={value}"] if value.startswith("-") else [flag, value]
