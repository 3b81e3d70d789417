"""The HTML report: one self-contained file that needs neither network nor JavaScript.

The template writes markup only: its words come from `words`, its order from `outline`.
"""

from __future__ import annotations

import base64
import hashlib
import math
from typing import TYPE_CHECKING, Final

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from gradcheck.record import Kind, Part
from gradcheck.report import diagnosed, figures, model_words, models, outline, printed, words

if TYPE_CHECKING:
    from gradcheck.record import Miss, Record, Run

GROUPS: Final = 40
"""Gradients whose failures are expanded at the top; the matrix holds all of them."""
SAMPLES: Final = 3
"""Failures expanded of each of them."""
SAMPLES_OF: Final = {Kind.OPERATOR: SAMPLES, Kind.MODEL: 1, Kind.RULE: SAMPLES}
"""A model fails at every size alike, and in many gradients."""

DECADES: Final = (-6.0, 3.0)
"""Powers of ten of error/bound at the two ends of a bar; its tick stands at 0, the bound."""


def render(run: Run) -> str:
    """The run as an HTML document."""
    # Not select_autoescape(): it looks at endings, and `.j2` is none that it knows.
    environment = Environment(
        loader=PackageLoader("gradcheck.report"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    tables, found = outline.tables(run), models.models(run)
    script = _asset(environment, "report.js")
    digest = hashlib.sha256(script.encode()).digest()
    page = environment.get_template("report.html.j2").render(
        run=run,
        groups=outline.failing(run),
        explained=[g for part in (Part.STAGE, Part.GRADIENT) for g in outline.explained(run, part)],
        tables=tables,
        models=found,
        blamed=models.blamed(run),
        sights=models.sights(run),
        named=len({*run.header.implementations, *(r.implementation for r in run.results)}) > 1,
        gaps=outline.gaps(run),
        rejected=outline.certificate(run),
        conventions=outline.conventions(run),
        slacks=outline.slacks(run),
        curves=outline.curves(run),
        most_groups=GROUPS,
        most_samples=SAMPLES_OF,
        outline=outline,
        printed=printed,
        diagnosed=diagnosed,
        words=words,
        model_words=model_words,
        figures=figures,
        position=position,
        times=times,
        style=_asset(environment, "report.css"),
        script=script,
        # The page may run this one script; one that slipped in through a name may not run.
        script_hash=base64.b64encode(digest).decode("ascii"),
    )
    return f"{page}\n"


def position(result: Record) -> int | None:
    """Where a bar for log10(error / bound) ends, in percent of its width; None for no bar."""
    top = result.top
    if top is None or not result.verdict.checked:
        return None
    badness = outline.badness(result)
    low, high = DECADES
    decade = math.log10(badness) if badness > 0 else low
    share = (min(max(decade, low), high) - low) / (high - low)
    return max(1, round(100 * share))


def times(miss: Miss) -> str:
    """The error in multiples of the bound."""
    return words.multiple(miss.error, miss.bound) or "–"


def _asset(environment: Environment, name: str) -> Markup:
    """A file of ours, free of foreign text, to stand in the page as it is."""
    assert environment.loader is not None
    source, _, _ = environment.loader.get_source(environment, name)
    return Markup(source)
