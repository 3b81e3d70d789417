"""Terms: the reference's own text with one thing changed gives the wrong gradient."""

from __future__ import annotations

from collections.abc import Iterator

from gradcheck.explain.rules.terms.factors import factors
from gradcheck.explain.rules.terms.functions import functions
from gradcheck.explain.rules.terms.masks import masks
from gradcheck.explain.rules.terms.places import places
from gradcheck.explain.rules.terms.reductions import reductions
from gradcheck.explain.rules.terms.scales import scales
from gradcheck.explain.rules.terms.slopes import slopes
from gradcheck.explain.rules.terms.uses import uses
from gradcheck.explain.suspicion import Scene, Suspicion, predicting
from gradcheck.explain.text.run import Edit, Likeness, Text

FAMILIES = ((scales, factors), (reductions,), (masks,), (functions,), (slopes,), (places,), (uses,))
"""The likeliest change first: a term or a sign, a factor, a count, a mask, a function or slope, a
place, a value."""


def terms(scene: Scene) -> Iterator[Suspicion]:
    """Every change of the text that reproduces the wrong gradient at the first probe."""
    probe = scene.first
    if scene.output not in probe.got or not hasattr(probe.truth, "spec"):
        return
    text = Text(scene)
    run = text.run(probe)
    if run is None:
        return
    like = Likeness(probe, scene.output)
    for group in FAMILIES:
        edits = [edit for family in group for edit in family(text, run, like)]
        for edit in sorted(edits, key=lambda edit: edit.rank):
            yield _suspicion(text, edit)


def _suspicion(text: Text, edit: Edit) -> Suspicion:
    return predicting(
        text.scene, edit.label, edit.says, lambda p: text.predicted(p, edit), edit.evidence
    )
