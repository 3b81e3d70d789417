"""Terms: the reference's own text with one thing changed gives the wrong gradient."""

from __future__ import annotations

from collections.abc import Iterator

from gradcheck.explain.hypotheses.terms.names import glossary
from gradcheck.explain.hypotheses.terms.operations import factors, masks, reductions
from gradcheck.explain.hypotheses.terms.replacements import functions, slopes, uses
from gradcheck.explain.hypotheses.terms.text import Edit, Match, Search, Text
from gradcheck.explain.hypotheses.terms.weights import BENT, scales
from gradcheck.explain.hypotheses.wrong_region import on_kinks
from gradcheck.explain.hypothesis import Hypothesis, Observations, predicting
from gradcheck.spec.defect import Defect

FAMILIES = ((scales, factors), (reductions,), (masks,), (functions,), (slopes,), (uses,))
"""The likeliest change first: a term or a sign, a factor, a count, a mask, a function or slope, a
value."""


def terms(obs: Observations) -> Iterator[Hypothesis]:
    """Every change of the text that reproduces the wrong gradient at the first probe."""
    probe = obs.first
    if obs.output not in probe.got:
        return
    text = Text(obs)
    run = text.run(probe)
    if run is None:
        return
    search = Search(text, run, Match(probe, obs.output))
    bent: list[Edit] = []
    for group in FAMILIES:
        edits = [edit for family in group for edit in family(search)]
        bent.extend(edit for edit in edits if edit.rank == BENT)
        for edit in sorted(edits, key=lambda edit: edit.rank):
            if edit.rank < BENT:
                yield _hypothesis(text, edit)
    for edit in bent:
        yield _hypothesis(text, edit)


def _hypothesis(text: Text, edit: Edit) -> Hypothesis:
    obs = text.obs
    label = Defect.KINK if on_kinks(obs) else edit.label
    spec = obs.first.truth.spec
    names = glossary(spec.vjp, edit.says) if spec is not None else ""
    evidence = (*edit.evidence, *([names] if names else []))
    return predicting(obs, label, edit.says, lambda p: text.predicted(p, edit), evidence)
