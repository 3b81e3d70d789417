"""A finding as a result: where it was found, and the command that repeats it."""

from __future__ import annotations

import re
import shlex
from dataclasses import replace
from typing import Final

from gradcheck.implementations.processes import TIMEOUT
from gradcheck.results.case_result import CaseId, CaseResult, Kind
from gradcheck.results.finding import Finding, Part
from gradcheck.run.plan import AnyCase, Plan, kind_of, point_of
from gradcheck.spec.suite import Case

THREAD: Final = re.compile(r"\b(Current thread|Thread) 0x[0-9a-f]+(?= \()")
"""An address that is another one in each process."""
SANITIZED: Final = re.compile(r"(?<===)[0-9]+(?===)|(?<=\b0x)[0-9a-f]{6,}")
"""A process and addresses that a sanitizer's report names."""
FLAGS: Final = {Kind.OPERATOR: "--op", Kind.MODEL: "--model", Kind.RULE: "--rule"}


def result_of(
    plan: Plan,
    case: AnyCase,
    fingerprint: str,
    implementation: str,
    dtype: str,
    finding: Finding,
) -> CaseResult:
    """Return a finding in one case and dtype as a result; `fingerprint` is the case's."""
    point = point_of(case)
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
            kind=kind_of(case),
        ),
        finding=replace(finding, printed=steady(finding.printed)) if finding.printed else finding,
        repro=_again(plan, case, implementation, dtype, finding),
    )


def steady(printed: str) -> str:
    """What was printed, without what a stack or a sanitizer's report has anew in each process.

    >>> steady("Current thread 0x00007f66c1b0 (most recent call first):")
    'Current thread (most recent call first):'
    """
    printed = THREAD.sub(r"\1", printed)
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
