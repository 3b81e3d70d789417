"""Which results are drawn in the page, and their pictures as trees that its script can build.

A picture stands in the page as markup or, packed, as a tree: `[name, attributes, child, …]`, where
a child that is a string is text. Both come from the same template.
"""

from __future__ import annotations

from html.parser import HTMLParser
from itertools import islice
from typing import TYPE_CHECKING, Any, Final

from gradcheck.results.verdict import SEVERITY

if TYPE_CHECKING:
    from collections.abc import Iterable

    from jinja2 import Environment
    from markupsafe import Markup

    from gradcheck.report.html_matrix import Matrix
    from gradcheck.report.rows import Cell
    from gradcheck.results.case_result import CaseResult
    from gradcheck.results.finding import Finding

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
