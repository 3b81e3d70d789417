"""One thing that a probe tries, and what came of it."""

from __future__ import annotations

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
from gradcheck.spec.selection import LOW
from gradcheck.spec.suite import Case

TRIES: Final = 6
"""Samples that are tried for one that a program does not lack."""
FAULTS: Final = (Verdict.ERROR, Verdict.CRASH, Verdict.TIMEOUT, Verdict.NOTRUN)


class Outcome(StrEnum):
    """Of one check."""

    OK = "ok"
    NOTE = "note"
    FAIL = "FAIL"


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """One thing that was tried: what came of it, and what to do if it is a fault."""

    name: str
    outcome: Outcome
    says: str = ""
    lacks: bool = False
    """Whether the program says that it lacks what it was asked for."""


class Fault(Exception):  # noqa: N818  the program's
    """A check failed; the message says what was seen and what to do."""


class Remark(Exception):  # noqa: N818  no error at all
    """A check that is no fault, but has something to say."""


class Lack(Remark):
    """The program lacks what it was asked for."""


def tried(name: str, attempt: Callable[[], None]) -> Check:
    """What came of one attempt."""
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


def judge_first(process: Process, cases: Sequence[Case], dtype: str, tries: int = TRIES) -> None:
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
            if finding.verdict in FAULTS:
                raise Fault(f"{finding.reason}{tail(finding.printed)}")
        if findings[-1].verdict is Verdict.UNSUPPORTED:
            lacks = f"it lacks this: {findings[-1].reason}"
            continue
        wrong = [f.name for f in findings if f.verdict is not Verdict.PASS]
        if wrong:
            raise Remark(f"its form is right, its numbers are not: {', '.join(wrong)}")
        return
    raise Lack(lacks)
