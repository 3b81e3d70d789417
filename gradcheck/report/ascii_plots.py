"""The evidence for one finding as lines of text: where it is wrong, and why no step explains it."""

from __future__ import annotations

import math
from typing import Final

from gradcheck.report import heat, plots
from gradcheck.report.heat import FINE
from gradcheck.report.plots import Axis, power
from gradcheck.results import words
from gradcheck.results.finding import Finding, Heat, VCurve

LABELS: Final = 10
"""Columns from one number above a map to the next."""
BARS: Final = 24
"""Columns of the longest bar."""
EVERY: Final = 2
"""A row for every so many steps: they are half a decade apart."""
OTHERS: Final = {
    FINE: "within it",
    **{glyph: says for glyph, (_, says) in heat.STRANGE.items()},
}
"""What glyphs that are no digit stand for."""
STEP, ERROR = 9, 8
"""Columns of a step, and of the error there."""


def of(finding: Finding, width: int) -> list[list[str]]:
    """The sketches that there are, each a line of words and lines of `width` columns at most."""
    parts = (map_of(finding), bars_of(finding))
    return [
        [said, *(drawn if all(len(line) <= width for line in drawn) else [])]
        for part in parts
        if part
        for said, *drawn in [part]
    ]


def map_of(finding: Finding) -> list[str]:
    """A heat map: a line of words, the numbers of columns, and a line per row."""
    found = finding.heat
    if found is None:
        return []
    used = set(found.cells)
    marks = ["n: off by 10ⁿ × tolerance or more"] if any(map(str.isdigit, used)) else []
    marks += [f"{glyph} {says}" for glyph, says in OTHERS.items() if glyph in used]
    head = f"map: {heat.says(finding)} ({', '.join(marks)})"
    if len(found.cells) == 1:
        return [head, found.cells]
    names = heat.rows(found)
    room = max(map(len, names))
    numbers = _numbers(found)
    body = [f"{name:>{room}}  {heat.row(found, k)}" for k, name in enumerate(names)]
    return [head, *([f"{'':{room}}  {numbers}"] if numbers else []), *body]


def _numbers(found: Heat) -> str:
    """The last index of every tenth column, above it."""
    if found.columns <= 1:
        return ""
    labels = [str(k * found.block[1]) for k in range(0, found.columns, LABELS)]
    return "".join(f"{label:<{LABELS}}" for label in labels).rstrip()


def bars_of(finding: Finding) -> list[str]:
    """A V-curve: a line of words, and a bar per decade of steps, the error's logarithm.

    What rounding explains is light; "│" is where the gradient judged stands.
    """
    found = finding.curve
    if found is None or found.best is None:
        return []
    steps = [
        (h, error, max(bar, found.error_bar), k)
        for k, (h, error, bar) in enumerate(
            zip(found.steps, found.errors, found.bars, strict=True)
        )
        if math.isfinite(error) and math.isfinite(bar)
    ]  # fmt: skip
    shown = [step for step in steps if step[-1] % EVERY == 0 or step[-1] == found.best]
    least = found.floor * plots.DEPTH
    axis = Axis.over(
        [max(v, least) for _, error, _, _ in shown for v in (error, found.off)], 0, BARS
    )
    says = plots.v_says(finding)
    head = f"differences: {says} (█ truncation, ░ rounding explains it, │ this gradient)"
    return [head, f"{'h':<{STEP}}off by", *(_bar(found, axis, *step) for step in shown)]


def _bar(found: VCurve, axis: Axis, h: float, error: float, bar: float, k: int) -> str:
    length = round(axis.at(error)) if error else 0
    cells = list(("░" if error <= bar else "█") * length + " " * (BARS + 1 - length))
    if 0 < found.off < math.inf:
        cells[round(axis.at(found.off))] = "│"
    best = "  best" if k == found.best else ""
    decade = round(math.log10(h))
    step = power(decade) if math.isclose(h, 10.0**decade) else words.number(h, 2)
    off = words.number(error, 2)
    return f"{step:<{STEP}}{off:<{ERROR}} {''.join(cells)}{best}".rstrip()
