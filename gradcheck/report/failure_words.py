"""What every report says of one result in full: its worst element, and what is wrong with it."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

from gradcheck.report import places, taylor_words
from gradcheck.results.finding import Part
from gradcheck.results.verdict import Verdict
from gradcheck.results.words import (
    clean,
    command,
    gradient,
    multiple,
    number,
    plural,
    position,
    relative,
    subject,
)

if TYPE_CHECKING:
    from gradcheck.results.case_result import CaseResult
    from gradcheck.results.finding import Finding, Miss

ALONG: Final = "along d"
"""What stands for an index where a whole gradient was compared along a direction d."""


def place(finding: Finding, miss: Miss) -> str:
    """The element that was compared, of the gradient to which it belongs; of training a step."""
    if finding.part is Part.TRAINING:
        return spot(finding, miss)
    name = gradient(miss.tensor) if miss.tensor else subject(finding.name, finding.part)
    return f"{name} {ALONG}" if projected(finding) else name + spot(finding, miss)


def spot(finding: Finding, miss: Miss) -> str:
    """Where in a gradient the element is; of training, at which step and what moved."""
    if finding.part is Part.TRAINING:
        alone = f", {clean(miss.tensor)} alone" if miss.tensor else ""
        return f"step {', '.join(map(str, miss.index))}{alone}"
    return ALONG if projected(finding) else position(miss.index)


def projected(finding: Finding) -> bool:
    """Whether a gradient was compared along a direction only, and not element by element."""
    return bool(finding.evaluations and finding.top is not None and not finding.top.index)


def values(miss: Miss, most: int = 17) -> tuple[str, str]:
    """What was got and what was wanted, in as many digits as it takes to see them differ.

    Args:
        miss: the element.
        most: significant digits at most; there are 6 at least.
    """
    if miss.got == miss.want:
        return number(miss.got, 6), number(miss.want, 6)
    digits = 6
    while digits < most and number(miss.got, digits) == number(miss.want, digits):
        digits += 1
    # One more digit, to see by how much.
    digits = min(digits + 1, most) if digits > 6 else digits
    return number(miss.got, digits), number(miss.want, digits)


def bar(miss: Miss) -> str:
    """The error bar of what was wanted."""
    return f"± {number(miss.error_bar, 2)}"


def is_known(miss: Miss) -> bool:
    """Whether anything is known of what was wanted: an infinite error bar says that nothing is."""
    return not math.isinf(miss.error_bar)


def wanted(miss: Miss) -> str:
    """What was got and what was wanted, with its error bar."""
    got, want = values(miss)
    if not is_known(miss):
        return f"got {got}, the true value is not known"
    return f"got {got}, want {want} {bar(miss)}"


def errors(miss: Miss) -> str:
    """An error in four units: relative, ulp, multiples of the bound and of the error bar."""
    if not math.isfinite(miss.error) or not is_known(miss):
        return ""
    parts = []
    ratios = relative(miss)
    if ratios is not None:
        parts.append(f"{number(ratios[0])} relative")
    if miss.ulp is not None:
        parts.append(f"{number(miss.ulp)} ulp")
    for unit, name in ((miss.bound, "bound"), (miss.error_bar, "error bar")):
        times = multiple(miss.error, unit)
        if times:
            parts.append(f"{times} × {name}")
    return ", ".join(parts)


def extent(finding: Finding) -> str:
    """How many of how many elements failed, and under which cotangent the worst one did."""
    if not finding.compared:
        return ""
    text = f"{finding.failed:,} of {plural(finding.compared, 'element')}"
    if finding.unresolved:
        text += f", {finding.unresolved:,} unresolved"
    if finding.top is not None and finding.top.cotangent:
        text += f"; the worst {_among(finding.part)}{clean(finding.top.cotangent)}"
    return text


def _among(part: Part) -> str:
    """What the name of a cotangent follows; steps and sequences of them say it themselves."""
    return "at " if part in (Part.UPDATE, Part.TRAINING) else "with cotangent "


def facts(result: CaseResult) -> list[tuple[str, str]]:
    """What is known about a result, as (label, text) pairs; the last says how to rerun it."""
    finding, pairs = result.finding, []
    top = finding.top
    if top is not None:
        pairs += [
            ("worst", f"{place(finding, top)} {wanted(top)}"),
            ("error", errors(top)),
        ]
    pairs += [("failed", extent(finding)), ("where", where(finding))]
    if finding.evaluations or finding.verdict is Verdict.INCONCLUSIVE:
        pairs.append(("visible", visible(finding)))
    if finding.taylor is not None:
        pairs.append(("taylor", taylor_words.curve(finding.taylor)))
    pairs += [("hunts", clean(result.case.hunts)), ("run", command(result.repro))]
    return [(label, text) for label, text in pairs if text]


def where(finding: Finding) -> str:
    """Which part of a gradient is wrong under the worst cotangent; empty where that is long.

    A diagnosis says it in its own way.
    """
    named = finding.diagnosis is not None and finding.diagnosis.label
    if named or finding.verdict.expected or finding.top is None:
        return ""
    name = (
        gradient(finding.top.tensor) if finding.top.tensor else subject(finding.name, finding.part)
    )
    return ", ".join(name + part for part in places.slices(finding.heat))


def visible(finding: Finding) -> str:
    """How small an error the check would have seen, and what it cost to look."""
    least = finding.smallest_visible_error
    if least is None:
        return ""
    if not finding.evaluations:
        return f"a relative error of {number(least)} or more"
    cost = plural(finding.evaluations, "forward evaluation")
    return f"an error of {number(least)} of a typical element or more; {cost}"
