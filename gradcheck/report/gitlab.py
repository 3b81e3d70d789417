"""GitLab's Code Quality report: findings that a merge request shows, and on which line.

A finding for each gradient that fails, for each line of a baseline to correct, for whatever else
closes the gate, and for what a baseline warns of. GitLab holds the report of a branch against that
of its target by the fingerprints: they are made of names alone, never of a measured number, so that
the same mistake is the same finding in every run. Source of the fields: GitLab's documentation of
the format, a part of Code Climate's.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

from gradcheck.report import failure_text, failures, run_words
from gradcheck.report.github import PROPERTIES, place
from gradcheck.report.page import clip
from gradcheck.results import words
from gradcheck.results.finding import Part
from gradcheck.results.run import Run
from gradcheck.results.verdict import Verdict

MOST: Final = 1000
"""Findings of a report; the rest is counted in one more."""
LONGEST: Final = 1000
"""Characters of what is wrong."""
COMMAND: Final = 500
"""Characters of a command to be copied: one that is cut is none."""
NOWHERE: Final = "gradcheck"
"""The path of what has no place."""
UNANSWERED: Final = (Verdict.CRASH, Verdict.TIMEOUT, Verdict.ERROR)
UNKNOWN: Final = (Verdict.INCONCLUSIVE, Verdict.INVALID, Verdict.NOTRUN)
NUMBER: Final = re.compile(r"\d+(?:[.,]\d+)*(?:e[-+]?\d+)?", re.ASCII)
"""What another run may say otherwise."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Finding:
    """What is wrong, of which kind and how bad, where, and what it is made of for its identity."""

    check: str
    severity: str
    says: str
    names: Sequence[str]
    file: str
    line: str = "1"


def render(run: Run) -> str:
    """The run as a list of findings, the worst first; empty where the gate is open."""
    found = [*_troubles(run), *_failures(run), *_baseline(run)]
    kept = [*found[:MOST], *_left_out(run, len(found) - MOST)]
    plain, seen = [], Counter[str]()
    for finding in kept:
        identity = "\0".join(finding.names)
        seen[identity] += 1  # two of the same names are told apart by their order
        plain.append(_plain(finding, f"{identity}\0{seen[identity]}"))
    return json.dumps(plain, indent=2) + "\n"


def _plain(finding: _Finding, identity: str) -> dict[str, Any]:
    digest = hashlib.sha256(identity.encode("utf-8", "backslashreplace"))
    return {
        "description": finding.says or finding.check,  # neither it nor a path may be empty
        "check_name": f"gradcheck/{finding.check}",
        "fingerprint": digest.hexdigest(),
        "severity": finding.severity,
        "location": {
            "path": clip(finding.file, PROPERTIES) or NOWHERE,
            "lines": {"begin": max(int(finding.line[:9]), 1)},
        },
    }


def _failures(run: Run) -> Iterator[_Finding]:
    """One per gradient; none for those that a guilty stage spoils."""
    spoilt = failures.explained(run, Part.GRADIENT)
    for group in failures.groups(run):
        if group not in spoilt:
            yield _failure(group)


def _failure(group: failures.Group) -> _Finding:
    first, verdict = group.results[0], group.verdict
    said, label = failure_text.alone(first), first.finding.defect
    title = words.clean(f"{group.op}/{group.dialect}")
    lead = said.lead or words.word(verdict)
    more = f" and {len(group.results) - 1:,} more" if group.results[1:] else ""
    about = f"{title} · {words.subject(group.output, group.part)}: {lead}"
    says = clip(f"{about} ({words.word(verdict)} {words.case(first)}{more})", LONGEST)
    again = words.command(first.repro)
    if again and len(again) <= COMMAND:
        says += f"; run: {again}"
    where = place(first)
    return _Finding(
        check=words.clean(label or verdict.value),
        severity="blocker"
        if verdict in UNANSWERED
        else ("major" if verdict in UNKNOWN else "critical"),
        says=says,
        names=(
            "failure", group.implementation, group.kind.value, group.op, group.dialect,
            group.part.value, group.output, verdict.value,
        ),
        file=where.get("file") or _file(group.implementation),
        line=where.get("line", "1"),
    )  # fmt: skip


def _troubles(run: Run) -> Iterator[_Finding]:
    for text in run.troubles:
        yield _of_run(run, "problem", "blocker", words.clean(text))
    for text in run_words.unmet(run):
        yield _of_run(run, "required", "blocker", text)
    if not run.complete:
        yield _of_run(run, "incomplete", "major", run_words.incomplete(run))
    if not run.footer.checked:
        yield _of_run(run, "nothing-checked", "blocker", "nothing was checked")


def _baseline(run: Run) -> Iterator[_Finding]:
    if run.gate is None:
        return
    for problem in run.gate.problems:
        if problem.line is not None:
            check = f"baseline-{problem.breach.value.replace(' ', '-')}"
            yield _Finding(
                check=check,
                severity="major",
                says=clip(words.clean(problem.says), LONGEST),
                names=(check, problem.file, NUMBER.sub("#", problem.says)),
                file=words.clean(problem.file),
                line=str(problem.line),
            )
    for text in run.gate.warnings:
        yield _of_run(run, "baseline-warning", "minor", words.clean(text), run.gate.baseline)


def _left_out(run: Run, count: int) -> Iterator[_Finding]:
    """How many findings there are besides, and gradients that are wrong for no reason of theirs."""
    if count > 0:
        yield _of_run(run, "more", "info", f"and {words.plural(count, 'more finding')}")
    spoilt = len(failures.explained(run, Part.GRADIENT))
    if spoilt:
        text = f"and {words.plural(spoilt, 'gradient')} affected downstream of faulty stages"
        yield _of_run(run, "spoilt", "info", text)


def _of_run(run: Run, check: str, severity: str, says: str, file: str = "") -> _Finding:
    whose = next(iter(run.header.implementations), "")
    return _Finding(
        check=check,
        severity=severity,
        says=clip(says, LONGEST),
        names=(check, NUMBER.sub("#", says)),
        file=words.clean(file) or _file(whose),
    )


def _file(implementation: str) -> str:
    """The file that an `--impl` word most likely means: GitLab shows nothing without one.

    >>> _file("pkg.kernels:IMPL"), _file("native/gradcheck.toml"), _file("torch")
    ('pkg/kernels.py', 'native/gradcheck.toml', 'torch')
    """
    module, colon, name = implementation.rpartition(":")
    if colon and name.isidentifier() and os.sep not in module:
        return words.clean(f"{module.replace('.', '/')}.py")
    return words.clean(implementation)
