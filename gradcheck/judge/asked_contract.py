"""One implementation against every property that a backward owes beyond its numbers."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Final

from gradcheck.errors import raised
from gradcheck.implementations.bound import Binding
from gradcheck.implementations.returned import Broken
from gradcheck.judge.contract.asking import Unasked, Unfit, Vacuous
from gradcheck.judge.contract.battery import PROPERTIES, Property
from gradcheck.judge.contract.subject import Subject, several_rows
from gradcheck.judge.operator import CaseTruth
from gradcheck.results.finding import Finding, Part
from gradcheck.results.verdict import Verdict
from gradcheck.spec.suite import Case

LARGEST: Final = 4096
"""Elements of all primals above which a sample is too large to be asked a hundred times."""


def judge_contract(
    truth: CaseTruth,
    binding: Binding,
    dtype: str,
    properties: Sequence[Property] = PROPERTIES,
    judged: Sequence[Finding] = (),
) -> list[Finding]:
    """A finding per property, its name the property's; none where the call itself fails.

    `judged` is what the ordinary judgement found: where that says why no gradient could be judged,
    a call that fails again is not told once more. A property that cannot be asked is SKIP, with
    the reason; one that says nothing about the operator is left out. After a call that hung,
    nothing else is asked: NOTRUN.
    """
    answered = any(f.name in truth.names and f.compared for f in judged)
    subject: Subject | None = None
    findings: list[Finding] = []
    for asked in properties:
        if any(f.verdict is Verdict.TIMEOUT for f in findings):
            reason = "not asked, since a call of another property hung"
            findings.append(_finding(asked, Verdict.NOTRUN, reason))
            continue
        try:
            subject = subject or _asked(truth, binding, dtype)
        except (Unfit, Broken) as error:
            if not answered or _of_form(error):
                return []
            findings.append(_failed(asked, error))
            continue
        found = examine(asked, subject)
        heard = subject.bound.printed()  # taken, lest the next case be said to have printed it
        if found is not None:
            findings.append(found if found.verdict.expected else replace(found, printed=heard))
    return findings


def _asked(truth: CaseTruth, binding: Binding, dtype: str) -> Subject:
    """Who is to be asked, once it has answered.

    Raises:
        Unfit, Broken: it does not.
    """
    subject = Subject(truth, binding, dtype).without_lacking()
    subject.ask(subject.cts[0])
    return subject


def _of_form(error: Unfit | Broken) -> bool:
    """Whether the call went well and a gradient has another form, which its own finding says."""
    return isinstance(error, Broken) and error.finding.verdict in (Verdict.FAIL, Verdict.MISSING)


def _failed(asked: Property, error: Unfit | Broken) -> Finding:
    """A property whose first call failed, although the gradients could be judged before."""
    if isinstance(error, Broken):
        return _broken(asked, error)
    reason = f"{asked.says} Here it answers no more: {error}"
    return _finding(asked, Verdict.ERROR, reason)


def examine(asked: Property, subject: Subject) -> Finding | None:
    """What one property finds; None where it says nothing."""
    try:
        breach = asked.examine(subject)
    except Vacuous:
        return None
    except (Unasked, Unfit) as reason:
        return _finding(asked, Verdict.SKIP, str(reason))
    except Broken as error:
        return _broken(asked, error)
    except Exception as error:  # noqa: BLE001  a property at fault is a verdict
        what = f"the property itself raised {raised(error)}"
        return _finding(asked, Verdict.INVALID, what)
    if breach is None:
        return _finding(asked, Verdict.PASS, "")
    return _finding(asked, breach.verdict, f"{asked.says} Here {breach.seen}")


def _broken(asked: Property, error: Broken) -> Finding:
    reason = f"{asked.says} Here {error.finding.reason}"
    return replace(_finding(asked, error.finding.verdict, reason), printed=error.finding.printed)


def _finding(asked: Property, verdict: Verdict, reason: str) -> Finding:
    return Finding(name=asked.name, verdict=verdict, reason=reason, part=Part.CONTRACT)


def contract_cases(cases: Iterable[Case]) -> frozenset[str]:
    """Names of the cases at which contracts are asked: one per operator and dialect.

    The first with several rows, away from kinks; without one, the first that has any elements.
    """
    best: dict[tuple[str, str], tuple[bool, str]] = {}
    for case in cases:
        key = (case.spec.name, case.dialect.name)
        if best.get(key, (False, ""))[0] or case.sample.at_kink:
            continue
        try:
            primals = case.primals
        except Exception:  # noqa: BLE001  a suite's own; the ordinary judgement says so
            continue
        if not all(p.size for p in primals) or sum(p.size for p in primals) > LARGEST:
            continue
        rows = several_rows(primals)
        if rows or key not in best:
            best[key] = (rows, case.name)
    return frozenset(name for _, name in best.values())
