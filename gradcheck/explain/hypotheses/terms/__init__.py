"""Terms: the reference's own text with one thing changed gives the wrong gradient."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

from gradcheck.explain.diagnosis_rule import Observations, Suspicion, predicting
from gradcheck.explain.hypotheses.terms.factors import factors
from gradcheck.explain.hypotheses.terms.functions import functions
from gradcheck.explain.hypotheses.terms.masks import masks
from gradcheck.explain.hypotheses.terms.places import places
from gradcheck.explain.hypotheses.terms.reductions import reductions
from gradcheck.explain.hypotheses.terms.scales import scales
from gradcheck.explain.hypotheses.terms.slopes import slopes
from gradcheck.explain.hypotheses.terms.uses import uses
from gradcheck.explain.hypotheses.terms.weighing import BENT
from gradcheck.explain.probe import Array, Probe
from gradcheck.explain.trace.glossary import glossary
from gradcheck.explain.trace.run import Edit, Likeness, Text

FAMILIES = ((scales, factors), (reductions,), (masks,), (functions,), (slopes,), (places,), (uses,))
"""The likeliest change first: a term or a sign, a factor, a count, a mask, a function or slope, a
place, a value."""


def terms(scene: Observations) -> Iterator[Suspicion]:
    """Every change of the text that reproduces the wrong gradient at the first probe."""
    probe = scene.first
    if scene.output not in probe.got or probe.truth.spec is None:
        return
    text = Text(scene)
    run = text.run(probe)
    if run is None:
        return
    like = Likeness(probe, scene.output)
    bent: list[Edit] = []
    every: list[Edit] = []
    for group in FAMILIES:
        edits = [edit for family in group for edit in family(text, run, like)]
        every.extend(edits)
        bent.extend(edit for edit in edits if edit.rank == BENT)
        for edit in sorted(edits, key=lambda edit: edit.rank):
            if edit.rank < BENT:
                yield _suspicion(text, edit)
    for edit in bent:
        yield _suspicion(text, edit)
    for edit, name in itertools.product(every, _deciding(scene)):
        yield _suspicion(text, edit, name)


def _deciding(scene: Observations) -> list[str]:
    """Attributes that choose one of several ways, and may tell where the gradient is wrong."""
    here = scene.first.attrs
    return [
        name
        for name, value in here.items()
        if (value is None or isinstance(value, (str, bool)))
        and any(p.attrs.get(name) != value for p in scene.passing)
        and all(p.attrs.get(name) == value for p in scene.failing)
    ]


def _kinked(scene: Observations) -> bool:
    """Whether only elements on a declared kink are wrong, at all probes."""
    return all(
        scene.output in p.kinked
        and p.kinked[scene.output].shape == p.right[scene.output].shape
        and not (p.wrong(scene.output) & ~p.kinked[scene.output]).any()
        for p in scene.failing
    )


def _suspicion(text: Text, edit: Edit, name: str = "") -> Suspicion:
    """What an edit predicts; with `name`, only where that attribute is as at the first probe."""
    scene = text.scene
    label = "K" if _kinked(scene) else edit.label
    spec = scene.first.truth.spec
    names = glossary(spec.vjp, edit.says) if spec is not None else ""
    evidence = (*edit.evidence, *([names] if names else []))
    if not name:
        return predicting(scene, label, edit.says, lambda p: text.predicted(p, edit), evidence)
    value = scene.first.attrs[name]

    def of(probe: Probe) -> Array | None:
        here = probe.attrs.get(name) == value
        return text.predicted(probe, edit) if here else probe.right[scene.output]

    says = f"{edit.says}, where {name} is {value!r}"
    return predicting(scene, label, says, of, evidence)
