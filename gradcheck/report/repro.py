"""One case in full, as text: its input, each gradient's worst elements, the smallest input."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from gradcheck.report import ascii_plots, failure_text
from gradcheck.report.page import Page, grid, span, whole
from gradcheck.results import printed, words

if TYPE_CHECKING:
    from gradcheck.explain.shrink import Shrunk
    from gradcheck.results.case_result import CaseResult
    from gradcheck.results.run import Run
    from gradcheck.spec.suite import Case

MOST: Final = 64
"""Elements of an array that are printed."""
LINES: Final = 20
"""Lines that are shown of what the code printed."""
NARROWEST: Final = 60
INSET: Final = 4
"""Columns left of what is drawn."""
LEAST: Final = 3
"""Columns of the table that are always there."""
WHY: Final = ("reason", "evidence", "pattern")
"""What is told behind the first line; the numbers have a table of their own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Shown:
    """What there is to show of one case: `smallest` by implementation and gradient."""

    run: Run
    case: Case
    dtype: str
    smallest: Mapping[tuple[str, str], Shrunk]


def render(shown: Shown, *, color: bool = False, width: int = 100) -> str:
    """The case as plain text; its last line is the run's summary."""
    page = _Page(color=color, width=max(width, NARROWEST))
    sections = [page.header(shown.run), page.point(shown)]
    sections += [page.result(shown, result) for result in shown.run.results]
    sections += [page.wrap(words.clean(t), "problem: ", "  ") for t in shown.run.troubles]
    return whole(sections, shown.run.summary)


class _Page(Page):
    def point(self, shown: Shown) -> list[str]:
        case, hashes = shown.case, [result.case.hash for result in shown.run.results]
        mark = f"#{hashes[0]}" if any(hashes) else ""
        lines = [words.clean(f"{case.name}/{shown.dtype}{mark}")]
        if case.sample.hunts:
            lines += self.wrap(words.clean(case.sample.hunts), "  hunts: ", "    ")
        if case.attrs:
            lines += self.wrap(attributes(case.attrs), "  attributes: ", "    ")
        try:
            primals = dict(zip(case.primal_names, case.primals, strict=True))
        except Exception:  # noqa: BLE001  a suite's own; the result says what it raised
            primals = {}
        for name, primal in primals.items():
            lines += self.array(words.clean(name), primal)
        return lines

    def array(self, name: str, values: Any) -> list[str]:
        size, shape = int(values.size), words.position(values.shape)
        if size > MOST:
            return self.wrap(f"{name}{shape}: {size:,} elements", "  ", "    ")
        return self.wrap(numbers(values), f"  {name}{shape} = ", "    ")

    def result(self, shown: Shown, result: CaseResult) -> list[str]:
        """One result: the verdict, why, the worst elements, the smallest input that shows it."""
        several = len(shown.run.header.implementations) > 1
        whose = f"{words.clean(result.case.implementation)} · " if several else ""
        subject = words.subject(result.finding.name, result.finding.part)
        said = failure_text.alone(result)
        lead = said.lead or words.cell(result.finding)
        lines = self.judged(result.finding.verdict, f"{whose}{subject}: {lead}".rstrip(": "))
        if result.finding.verdict.expected:
            return lines
        for label, text in said.facts:
            lines += self.wrap(text, f"  {label}: ", "    ") if label in WHY else []
        lines += [f"  {line}" for line in elements(result, self.width - 2)]
        if result.finding.failed > len(result.finding.worst):
            lines.append(f"  … and {result.finding.failed - len(result.finding.worst):,} more")
        lines += self.evidence(result)
        lines += printed.marked(result.finding.printed, "  ", LINES)
        found = shown.smallest.get((result.case.implementation, result.finding.name))
        if found is None:
            return lines
        if found.case.sample.name == shown.case.sample.name:
            return [*lines, "  no smaller input that shows it was found"]
        return [*lines, *self.smallest(found)]

    def evidence(self, result: CaseResult) -> list[str]:
        lines = []
        for said, *drawn in ascii_plots.of(result.finding, self.width - INSET):
            lines += self.wrap(said, "  ", "    ")
            lines += [f"{'':{INSET}}{line}" for line in drawn]
        return lines

    def smallest(self, found: Shrunk) -> list[str]:
        """The smallest input that shows a failure, and what it gives."""
        case = found.case
        count = sum(int(primal.size) for primal in case.primals)
        lines = [f"  smallest input that shows it: {words.plural(count, 'element')}"]
        if case.attrs:
            lines += self.wrap(attributes(case.attrs), "    attributes: ", "      ")
        arrays = dict(zip(case.primal_names, case.primals, strict=True))
        several = len(found.cotangent) > 1
        for i, part in enumerate(found.cotangent):
            arrays[f"cotangent {i}" if several else "cotangent"] = part
        arrays |= {"got": found.got, "want": found.want}
        for name, values in arrays.items():
            lines += [f"  {line}" for line in self.array(name, values)]
        bar = words.number(float(found.bar.max(initial=0.0)), 2)
        lines[-1] += f" ± {bar}"
        return lines


def attributes(attrs: Mapping[str, Any]) -> str:
    """Attributes and their values."""
    return ", ".join(words.clean(f"{name} = {value!r}") for name, value in attrs.items())


def numbers(values: Any) -> str:
    """An array's numbers in nested brackets."""
    return _nested(values.tolist())


def _nested(values: Any) -> str:
    if isinstance(values, list):
        return f"[{', '.join(_nested(value) for value in values)}]"
    return words.number(values, 7) if isinstance(values, float) else str(values)


def elements(result: CaseResult, width: int) -> list[str]:
    """The worst elements as a table; where it is too wide, it loses its last columns."""
    if not result.finding.worst:
        return []
    heads = ["element", "got", "want", "± bar", "error", "bound", "ulp", "cotangent"]
    body = []
    for miss in result.finding.worst:
        got, want = failure_text.values(miss)
        ulp = "" if miss.ulp is None else words.number(miss.ulp)
        sizes = (miss.error_bar, miss.error, miss.bound)
        body.append([
            failure_text.place(result.finding, miss), got, want,
            *(words.number(s, 2) for s in sizes), ulp, words.clean(miss.cotangent),
        ])  # fmt: skip
    for columns in range(len(heads), LEAST, -1):
        lines = grid(heads[:columns], [row[:columns] for row in body], 0)
        if span(lines) <= width:
            return lines
    return grid(heads[:LEAST], [row[:LEAST] for row in body], 0)
