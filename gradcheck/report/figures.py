"""Pictures by the names that templates know; the stages of a model in a row is one of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from gradcheck.report import heat as heats
from gradcheck.report import kills as matrices
from gradcheck.report import models, remainder
from gradcheck.report import vcurve as vcurves
from gradcheck.results import words
from gradcheck.results.finding import Part
from gradcheck.results.verdict import Verdict

if TYPE_CHECKING:
    from gradcheck.report.models import Blamed
    from gradcheck.results.run import Run


@dataclass(frozen=True, slots=True, kw_only=True)
class Light:
    """One stage in a row of stages: `mark` says without colour what `tone` says with it."""

    name: str
    tone: str
    mark: str
    says: str


whole = models.whole
telling = models.telling
counted = models.counted
vcurve = vcurves.picture
heat = heats.picture
taylor = remainder.picture
kills = matrices.matrices
holed = matrices.holed
KILLS: Final = tuple((kind, *marks) for kind, marks in matrices.MARKS.items())
"""Kind, glyph and tone of each mark of a kill matrix."""


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
        lights.append(Light(name=f"{others} others", tone=tone, mark=mark, says=says))
    return lights
