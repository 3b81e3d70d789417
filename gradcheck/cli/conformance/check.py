"""One check of a program that speaks the protocol: its attempt, its outcome, its line of text."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from gradcheck.errors import SpecError, Unsupported
from gradcheck.implementations.processes.crash_or_hang import WorkerError
from gradcheck.implementations.protocol.message import Violation
from gradcheck.implementations.protocol.program import Process
from gradcheck.implementations.protocol.session import Failed, tail
from gradcheck.judge.operator import CaseTruth, Unsuitable, judge_case
from gradcheck.results.verdict import Verdict
from gradcheck.results.words import clean, plural
from gradcheck.spec.dtype_selection import LOW
from gradcheck.spec.suite import Case

MAX_SAMPLES: Final = 6
"""Samples tried to find one that the program supports."""
WIDTH: Final = 100
"""Columns of a line."""
INDENT: Final = " " * 6
FAULT_VERDICTS: Final = (Verdict.ERROR, Verdict.CRASH, Verdict.TIMEOUT, Verdict.NOTRUN)


class Outcome(StrEnum):
    """The outcome of a check."""

    OK = "ok"
    NOTE = "note"
    FAIL = "FAIL"


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """One check: its outcome, what to do about a fault, and whether the operator is lacking."""

    name: str
    outcome: Outcome
    says: str = ""
    lacks: bool = False


class Fault(Exception):  # noqa: N818  the program's
    """A check failed; the message says what happened and what to do."""


class Remark(Exception):  # noqa: N818  no error at all
    """A check found something worth a note, but no fault."""


class Lack(Remark):
    """The program lacks the operator."""


def tried(name: str, attempt: Callable[[], None]) -> Check:
    """The check whose outcome is that of an attempt."""
    try:
        attempt()
    except Remark as remark:
        lacks = isinstance(remark, Lack)
        return Check(name=name, outcome=Outcome.NOTE, says=str(remark), lacks=lacks)
    except (Fault, Violation) as error:
        return Check(name=name, outcome=Outcome.FAIL, says=str(error))
    except WorkerError as error:
        said = tail(error.ending.printed)
        return Check(name=name, outcome=Outcome.FAIL, says=f"{error}{said}")
    except (Failed, Unsupported) as error:
        return Check(name=name, outcome=Outcome.FAIL, says=f"the program answered: {error}")
    return Check(name=name, outcome=Outcome.OK)


def judge_first(
    process: Process, cases: Sequence[Case], dtype: str, tries: int = MAX_SAMPLES
) -> None:
    """Judge the first of some cases that the program does not lack.

    Raises:
        Fault: it failed, ended, is late or broke the protocol.
        Remark: it lacks all of them, or its numbers are wrong: no fault of the protocol.
    """
    lacks = "no sample of the suite fits"
    for case in cases[:tries]:
        try:
            truth = CaseTruth.in_low(case, "", dtype) if dtype in LOW else CaseTruth(case)
        except (SpecError, Unsuitable):
            continue
        findings = judge_case(truth, process, dtype)
        for finding in findings:
            if finding.verdict in FAULT_VERDICTS:
                raise Fault(f"{finding.reason}{tail(finding.printed)}")
        if findings[-1].verdict is Verdict.UNSUPPORTED:
            lacks = f"it lacks this: {findings[-1].reason}"
            continue
        wrong = [f.name for f in findings if f.verdict is not Verdict.PASS]
        if wrong:
            raise Remark(f"its form is right, its numbers are not: {', '.join(wrong)}")
        return
    raise Lack(lacks)


def line(check: Check) -> str:
    """One check as text; a long message stands below its name."""
    head = f"{check.outcome.value:<4}  {clean(check.name)}"
    says = clean(check.says)
    if not says:
        return f"{head}\n"
    if len(head) + len(says) + 2 <= WIDTH:
        return f"{head}: {says}\n"
    below = textwrap.fill(says, WIDTH, initial_indent=INDENT, subsequent_indent=INDENT)
    return f"{head}\n{below}\n"


def summary(checks: Sequence[Check]) -> str:
    """The number of checks and of failures."""
    failed = sum(check.outcome is Outcome.FAIL for check in checks)
    return f"\n{plural(len(checks), 'check')}, {failed} FAIL\n"
