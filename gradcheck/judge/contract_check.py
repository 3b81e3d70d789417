"""The contract of a backward beside its numbers: its properties, and their examination."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Final

from gradcheck.errors import raised
from gradcheck.implementations.bound import Binding
from gradcheck.implementations.returned import Broken
from gradcheck.judge.contract import linearity, other_points, side_effects
from gradcheck.judge.contract.asking import Breach, Unasked, Unfit, Vacuous
from gradcheck.judge.contract.subject import Subject, several_rows
from gradcheck.judge.operator_truth import CaseTruth
from gradcheck.results.finding import Finding, Part
from gradcheck.results.verdict import Verdict
from gradcheck.spec.suite import Case

MAX_ELEMENTS: Final = 4096
"""Elements of all primals above which a sample is too large for a hundred calls."""


@dataclass(frozen=True, slots=True)
class Property:
    """One property: its name in reports, its sentence, and what a binding must offer for it.

    `examine(subject)` returns how it is broken, or None; it raises `Unasked` where it cannot
    be asked. `needs` is what a binding must offer besides a VJP ("into", "asked", "strided").
    """

    name: str
    says: str
    examine: Callable[[Subject], Breach | None]
    needs: str = ""


PROPERTIES: Final = (
    Property(
        "linear",
        "A backward is linear in the cotangent: g(30u - 7v) = 30 g(u) - 7 g(v).",
        linearity.linear,
    ),
    Property("zero", "A cotangent of zeros gives gradients of zeros.", linearity.zero),
    Property(
        "scaling",
        "A cotangent times a power of two gives the gradient times it, to the last bit.",
        linearity.scaling,
    ),
    Property(
        "repeatable",
        "The same arguments give the same bits, however often they come.",
        side_effects.repeatable,
    ),
    Property(
        "stateless",
        "An answer depends on this call's arguments alone, on no earlier call.",
        side_effects.stateless,
    ),
    Property(
        "pure",
        "A backward leaves the cotangent, the inputs and what was saved as they were.",
        side_effects.pure,
    ),
    Property(
        "owned",
        "What a backward returns stays as it is when the backward is called again.",
        side_effects.owned,
    ),
    Property(
        "dtype",
        "A gradient has the dtype of its primal, on every path through the code.",
        other_points.form,
    ),
    Property(
        "sizes",
        "A gradient is right at every size: at 0 and 1, and beside every power of two.",
        other_points.sizes,
    ),
    Property(
        "attributes", "A backward follows every attribute that it takes.", other_points.attributes
    ),
    Property(
        "layouts",
        "An argument is read by its own strides, whatever they are.",
        other_points.layouts,
        "strided",
    ),
    Property(
        "subsets",
        "A gradient is the same whichever others are asked for with it.",
        other_points.subsets,
        "asked",
    ),
    Property(
        "accumulates",
        "A gradient that accumulates is added to what its buffer holds.",
        side_effects.accumulates,
        "into",
    ),
    Property(
        "written",
        "A gradient that does not accumulate is written whole, whatever its buffer held.",
        side_effects.written,
        "into",
    ),
    Property(
        "aliases",
        "A gradient that is written over an argument, as is declared, comes out the same.",
        side_effects.aliases,
        "into",
    ),
    Property(
        "bounds",
        "A backward writes into the buffers that it was given, and not beside them.",
        side_effects.bounds,
        "into",
    ),
)


QUICK: Final = tuple(
    replace(asked, examine=other_points.few_sizes) if asked.name == "sizes" else asked
    for asked in PROPERTIES
)
"""The same, at few sizes where code is compiled for each."""


def judge_contract(
    truth: CaseTruth,
    binding: Binding,
    dtype: str,
    properties: Sequence[Property] = PROPERTIES,
    judged: Sequence[Finding] = (),
) -> list[Finding]:
    """A finding per property, named after it; none where the call itself fails.

    `judged` are the ordinary findings: where they say why no gradient could be judged, a failing
    call is not reported again. A property that cannot be tested is SKIP, with the reason; one that
    does not apply to the operator is left out. After a call that hung, the rest is NOTRUN.
    """
    answered = any(f.name in truth.names and f.compared for f in judged)
    subject: Subject | None = None
    findings: list[Finding] = []
    for asked in properties:
        if any(f.verdict is Verdict.TIMEOUT for f in findings):
            reason = "skipped: a call of another side condition hung"
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
        printed = subject.bound.printed()  # read now: it belongs to this case
        if found is not None:
            findings.append(found if found.verdict.expected else replace(found, printed=printed))
    return findings


def _asked(truth: CaseTruth, binding: Binding, dtype: str) -> Subject:
    """The binding with its arguments, after one successful call.

    Raises:
        Unfit, Broken: the call fails.
    """
    subject = Subject(truth, binding, dtype).without_lacking()
    subject.ask(subject.cts[0])
    return subject


def _of_form(error: Unfit | Broken) -> bool:
    """Whether the call succeeded and a gradient has another form, which its own finding states."""
    return isinstance(error, Broken) and error.finding.verdict in (Verdict.FAIL, Verdict.MISSING)


def _failed(asked: Property, error: Unfit | Broken) -> Finding:
    """A property whose first call failed, although the gradients could be judged before."""
    if isinstance(error, Broken):
        return _broken(asked, error)
    reason = f"{asked.says} Here it answers no more: {error}"
    return _finding(asked, Verdict.ERROR, reason)


def examine(asked: Property, subject: Subject) -> Finding | None:
    """The finding on one property; None where it does not apply."""
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
    """Names of the cases at which contracts are tested: one per operator and dialect.

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
        if not all(p.size for p in primals) or sum(p.size for p in primals) > MAX_ELEMENTS:
            continue
        rows = several_rows(primals)
        if rows or key not in best:
            best[key] = (rows, case.name)
    return frozenset(name for _, name in best.values())
