"""The HTML report: one self-contained file that needs no network, and JavaScript for details only.

The template writes markup only: its words come from `words`, its order from `outline` and
`html_matrix`; what is drilled down to is packed by `html_details`.
"""

from __future__ import annotations

import base64
import hashlib
from functools import cache
from typing import TYPE_CHECKING, Any, Final

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from gradcheck.report import (
    causes,
    failure_text,
    failures,
    heat,
    html_details,
    html_evidence,
    html_matrix,
    kills,
    models,
    plots,
    prose,
    run_words,
)
from gradcheck.results import printed, words
from gradcheck.results.case_result import Kind
from gradcheck.results.verdict import SEVERITY, Known, Verdict

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from jinja2 import Environment

    from gradcheck.report.html_matrix import Matrix
    from gradcheck.results.run import Run

CAUSES: Final = 60
"""Causes of failures that are told at the top; the tables hold every failure."""
OPEN: Final = 6
"""Causes that are unfolded; the others have a line each."""
GRADIENTS: Final = 3
"""Gradients of each cause whose failures stand in its details; the others are named."""
NAMED: Final = 200
"""Gradients of each cause that are named."""
SAMPLES: Final = 3
"""Failures in the details of each gradient."""
SAMPLES_OF: Final = {Kind.OPERATOR: SAMPLES, Kind.MODEL: 1, Kind.RULE: SAMPLES}
"""A model fails at every size alike, and in many gradients."""
TALKERS: Final = 40
"""Variants whose printed lines are shown although nothing failed."""
BODY: Final = 50
"""Rows in one body of a table: a browser lays out only the bodies that it shows."""
DRAWN: Final = 12
"""Causes whose details have pictures."""

STYLES: Final = ("page.css", "tables.css", "details.css", "evidence.css", "print.css")
SCRIPTS: Final = (
    "unpack.js",
    "theme.js",
    "address.js",
    "rows.js",
    "sort.js",
    "copy.js",
    "pictures.js",
    "detail.js",
    "keys.js",
    "start.js",
)
"""The parts of the page's one script, in this order."""


def render(run: Run) -> str:
    """The run as an HTML document."""
    environment = page_templates()
    operators = html_matrix.matrices(run)
    cells = sum(matrix.cells for matrix in operators)
    found = html_matrix.model_matrices(run, cells)
    every = [*operators, *found]
    several = len({*run.header.implementations, *(r.case.implementation for r in run.results)}) > 1
    pictures = html_evidence.pictures(environment, html_evidence.drawn(every))
    script = joined(environment, SCRIPTS)
    digest = hashlib.sha256(script.encode()).digest()
    page = environment.get_template("report.html.j2").render(
        run=run,
        causes=causes.causes(run),
        tell=lambda cause: causes.told(cause, named=several),
        tables=operators,
        models=found,
        score=score(run),
        differing=sum(line.differs for matrix in every for line in matrix.lines),
        verdicts=standing(every),
        calm=calm(run),
        blamed=models.blamed(run),
        sights=models.sights(run),
        named=several,
        gaps=run_words.gaps(run),
        talkers=run_words.talkers(run),
        rejected=run_words.certificate(run),
        conventions=run_words.conventions(run),
        slacks=run_words.slacks(run),
        curves=run_words.curves(run),
        most_causes=CAUSES,
        most_open=OPEN,
        most_gradients=GRADIENTS,
        most_named=NAMED,
        most_samples=SAMPLES_OF,
        most_drawn=DRAWN,
        most_talkers=TALKERS,
        rows_of_body=BODY,
        evident=html_evidence.evident,
        evidence=lambda finding: html_evidence.markup(environment, finding),
        index=html_details.packed(index(every)),
        chunks=html_details.chunks(run, every, pictures),
        style=joined(environment, STYLES),
        script=script,
        # The page may run this one script; one that slipped in through a name may not run.
        script_hash=base64.b64encode(digest).decode("ascii"),
    )
    return f"{page}\n"


def score(run: Run) -> list[tuple[str, list[tuple[str, str]]]]:
    """Per implementation how many results stand how, as (tone, text) pairs; of one alone none."""
    names = dict.fromkeys(
        [*run.header.implementations, *(r.case.implementation for r in run.results)]
    )
    if len(names) < 2:
        return []
    found: dict[str, dict[Any, int]] = {name: {} for name in names}
    for result in run.results:
        counts, mark = found[result.case.implementation], run.stands(result)
        counts[mark] = counts.get(mark, 0) + 1
    order = [*Verdict]
    return [
        (
            words.clean(name),
            [
                (words.tone(mark), f"{counts[mark]:,} {words.word(mark)}")
                for mark in sorted(counts, key=lambda m: order.index(m) if m in order else 99)
            ],
        )
        for name, counts in found.items()
    ]


def calm(run: Run) -> str:
    """What is said where the failures would stand."""
    if run.gate is not None and run.gate.count(Known.XFAIL):
        return "No failures but known ones."
    return "No failures." if run.passed else "No failures among the checked results."


def standing(every: Sequence[Matrix]) -> list[tuple[str, str]]:
    """The words that cells stand with, each once, as (tone, word) pairs, the alarming first."""
    views = [v for matrix in every for line in matrix.lines for v in line.views if v is not None]
    tones = ("bad", "warn", "good", "calm")
    found = {(view.tone, view.word) for view in views}
    return sorted(found, key=lambda pair: (tones.index(pair[0]), pair[1]))


def index(every: Sequence[Matrix]) -> dict[str, Any]:
    """What filtering and sorting ask for beside what is written in the rows.

    Per row the number of its `sets` of samples; per cell how bad it is, null where nothing is.
    """
    sets: dict[str, int] = {}
    rows, bad = [], []
    for matrix in every:
        for line in matrix.lines:
            samples = " ".join(map(words.clean, line.samples))
            rows.append(sets.setdefault(samples, len(sets)))
            bad += [None if v is None else float(f"{v.badness:.2e}") for v in line.views]
    order = [words.word(verdict) for verdict in SEVERITY]
    return {"sets": list(sets), "rows": rows, "bad": bad, "order": ["XPASS", *order, "XFAIL"]}


@cache
def page_templates() -> Environment:
    """The templates, compiled once, and what all of them may ask."""
    environment = templates()
    environment.globals.update(
        words=words,
        run_words=run_words,
        plots=plots,
        model_words=models,
        diagnosed=failure_text,
        grouped=failures.grouped,
        printed=printed,
        stages=html_evidence.stages,
        vcurve_picture=plots.v_plot,
        heat_picture=heat.picture,
        taylor_picture=plots.taylor_plot,
        holed=kills.holed,
        KILLS=tuple((kills.LEGEND[kind], *marks) for kind, marks in kills.MARKS.items()),
    )
    return environment


def templates() -> Environment:
    """The templates, which escape all foreign text, and know no name that they are not given.

    The filter `prose` writes `code` between backticks as code.
    """
    # Not select_autoescape(): it looks at endings, and `.j2` is none that it knows.
    environment = Environment(
        loader=PackageLoader("gradcheck.report"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["prose"] = lambda text: Markup(prose.in_html(text))
    return environment


def joined(environment: Environment, names: Iterable[str]) -> Markup:
    """Files of this package, free of foreign text, to stand in the page as they are."""
    assert environment.loader is not None
    sources = [environment.loader.get_source(environment, name)[0] for name in names]
    return Markup("\n".join(sources))
