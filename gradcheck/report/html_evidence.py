"""Pictures in the page: which results are drawn, as trees that its script can build; stages.

A picture stands in the page as markup or, packed, as a tree: `[name, attributes, child, …]`, where
a child that is a string is text. Both come from the same template.
"""

from __future__ import annotations

from dataclasses import dataclass
from html.parser import HTMLParser
from itertools import islice
from typing import TYPE_CHECKING, Any, Final

from gradcheck.report import models
from gradcheck.results import words
from gradcheck.results.finding import Part
from gradcheck.results.verdict import SEVERITY, Verdict

if TYPE_CHECKING:
    from collections.abc import Iterable

    from jinja2 import Environment
    from markupsafe import Markup

    from gradcheck.report.html_matrix import Matrix
    from gradcheck.report.models import Blamed
    from gradcheck.report.outline import Cell
    from gradcheck.results.case_result import CaseResult
    from gradcheck.results.finding import Finding
    from gradcheck.results.run import Run

MOST: Final = 300
"""Cells whose worst result is drawn, the worst of them first: a picture takes a kilobyte."""


def evident(finding: Finding) -> bool:
    """Whether there is something to draw."""
    return any(part is not None for part in (finding.heat, finding.curve, finding.taylor))


def worst(cell: Cell) -> CaseResult | None:
    """The worst result of a cell that can be drawn."""
    found = [result for result in cell.results if evident(result.finding)]
    return min(found, key=_rank) if found else None


def _rank(result: CaseResult) -> tuple[int, float]:
    return SEVERITY.index(result.finding.verdict), -result.finding.times_bound


def drawn(matrices: Iterable[Matrix]) -> list[CaseResult]:
    """The results that are drawn where a cell is drilled down to: of each the worst."""
    cells = (cell for matrix in matrices for line in matrix.lines for cell in line.cells)
    found = [result for cell in cells if (result := worst(cell)) is not None]
    return list(islice(sorted(found, key=_rank), MOST))


def markup(environment: Environment, finding: Finding) -> Markup:
    """All pictures of a finding."""
    module: Any = environment.get_template("evidence.html.j2").module
    made: Markup = module.heat(finding) + module.vcurve(finding) + module.taylor(finding)
    return made


def pictures(
    environment: Environment, results: Iterable[CaseResult]
) -> dict[tuple[str, ...], list[Any]]:
    """The pictures of results as trees, by the results' keys."""
    return {result.key: trees(markup(environment, result.finding)) for result in results}


def trees(text: str) -> list[Any]:
    """Markup of ours as trees.

    >>> trees('<p class="a">x<b>y</b></p>z')
    [['p', {'class': 'a'}, 'x', ['b', {}, 'y']], 'z']
    """
    parser = _Trees()
    parser.feed(text)
    parser.close()
    return parser.root[2:]


class _Trees(HTMLParser):
    """Builds trees; of the end tags that HTML can do without, it knows that of `li`."""

    def __init__(self) -> None:
        super().__init__()
        self.root: list[Any] = ["", {}]
        self.open = [self.root]

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag == "li" and self.open[-1][0] == "li":
            self.open.pop()
        element = [tag, {CASED.get(name, name): value or "" for name, value in attrs}]
        self.open[-1].append(element)
        self.open.append(element)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        self.open.pop()

    def handle_endtag(self, tag: str) -> None:
        if self.open[-1][0] == "li" != tag:
            self.open.pop()
        self.open.pop()

    def handle_data(self, data: str) -> None:
        if data.strip():
            self.open[-1].append(data)


CASED: Final = {"viewbox": "viewBox"}
"""Names of attributes that are not in small letters, which is what the parser makes of all."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Light:
    """One stage in a row of stages: `mark` says without colour what `tone` says with it."""

    name: str
    tone: str
    mark: str
    says: str


LIGHTS: Final = {
    "wrong": ("bad", "✗", "gives a wrong gradient for the reference's cotangent"),
    "suspect": ("warn", "?", "may be at fault"),
    "right": ("good", "✓", "gives the right gradient for the reference's cotangent"),
    "unknown": ("calm", "·", "was not judged alone"),
}


def _known(verdict: Verdict) -> str:
    if verdict is Verdict.PASS:
        return "right"
    return "wrong" if verdict.checked else "unknown"


def stages(run: Run, blamed: Blamed) -> list[Light]:
    """The stages of a model in the program's order, and what is known of each.

    Where no stage was judged alone, only the suspects are known by name; the others are counted.
    """
    known: dict[str, str] = {}
    for model in models.models(run):
        if (model.implementation, model.name, model.dialect) == blamed.whose:
            for row in model.block(Part.STAGE).rows:
                known[row.output] = _known(row.verdict)
    for blame in blamed.blames:
        for name in blame.stages:
            if blame.exact:
                known[name] = "wrong"
            elif known.get(name) not in ("wrong", "right"):
                known[name] = "suspect"
    lights = [
        Light(name=words.clean(name), tone=tone, mark=mark, says=says)
        for name, word in known.items()
        for tone, mark, says in [LIGHTS[word]]
    ]
    others = max(blame.of for blame in blamed.blames) - len(lights)
    if others > 0:
        tone, mark, _ = LIGHTS["unknown"]
        says = "were not judged alone, and are not suspected"
        lights.append(
            Light(
                name="1 other" if others == 1 else f"{others} others",
                tone=tone,
                mark=mark,
                says=says,
            )
        )
    return lights
