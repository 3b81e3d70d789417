"""A difference as one HTML file that needs neither network nor JavaScript."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from markupsafe import Markup

from gradcheck.report import diff_words
from gradcheck.report.html import asset, templates
from gradcheck.results import words

if TYPE_CHECKING:
    from gradcheck.results.diff.change import Diff

GROUPS: Final = 200
"""Gradients that are told by themselves."""
OPEN: Final = 12
"""Of them, those that need not be unfolded."""
ENTRIES: Final = 20
"""Results of each that are listed."""
STYLES: Final = ("page.css", "tables.css", "details.css")


def render(diff: Diff) -> str:
    """The difference as an HTML document; all foreign text is escaped."""
    environment = templates()
    groups = diff_words.groups(diff)
    page = environment.get_template("diff.html.j2").render(
        diff=diff,
        said=diff_words,
        words=words,
        worse=diff.worse or not diff.compared,
        groups=groups[:GROUPS],
        rest=len(groups) - GROUPS,
        unfolded=OPEN,
        most=ENTRIES,
        heaps=diff_words.heaps(diff),
        style=Markup("\n").join(asset(environment, name) for name in STYLES),
    )
    return f"{page}\n"
