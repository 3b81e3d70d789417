"""Why a gradient is wrong: the first suspicion, in the rules' order, that holds everywhere."""

from __future__ import annotations

import warnings
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Final

import numpy as np

from gradcheck.explain.diagnosis_rule import Observations, Rule, Suspicion
from gradcheck.explain.hypotheses.table import RULES
from gradcheck.explain.probe import RAISES, Probe
from gradcheck.explain.unknown import unknown
from gradcheck.results.finding import Diagnosis

TELLING: Final = 3
"""Wrong elements, over all probes, below which a coincidence is too likely to name anything."""
NOTED: Final = 3
"""Attributes and samples that the evidence spells out."""


@dataclass(frozen=True, slots=True)
class Ruling:
    """What the rules make of a gradient: `found` is the first suspicion that holds, if any does."""

    scene: Observations
    found: tuple[Rule, Suspicion] | None

    @property
    def suspicion(self) -> Suspicion | None:
        """What is suspected, to be put to further probes."""
        return None if self.found is None else self.found[1]

    @property
    def diagnosis(self) -> Diagnosis:
        """The same in words; without a suspicion it has no label, and shows what is left over."""
        scene = self.scene
        if self.found is None:
            return Diagnosis(
                label="",
                says=f"{scene.gradient}: no known pattern",
                evidence=(*unknown(scene), where(scene)),
            )
        rule, suspicion = self.found
        return Diagnosis(
            label=suspicion.label,
            says=suspicion.says,
            rule=rule.name,
            evidence=(*suspicion.evidence, where(scene)),
        )


def diagnose(
    output: str, probes: Sequence[Probe], rules: Sequence[Rule] = RULES
) -> Diagnosis | None:
    """What is wrong with the gradient of the primal `output`; None where no probe shows it."""
    found = ruled(output, probes, rules)
    return None if found is None else found.diagnosis


def ruled(
    output: str,
    probes: Sequence[Probe],
    rules: Sequence[Rule] = RULES,
    usual: Ruling | None = None,
    likely: Ruling | None = None,
) -> Ruling | None:
    """What the rules make of the gradient; None where no probe shows it wrong.

    `probes` are the most telling first. A suspicion is formed at the first that fails, and kept
    only if it holds in every other one. `usual` is the ruling on the first of the probes alone:
    what held, or did not, there need not be looked for again. `likely` is one on the same code
    elsewhere, whose suspicion goes first.
    """
    scene = _scene(output, probes)
    if scene is None:
        return None
    if likely is not None and likely.suspicion is not None and _holds(likely.suspicion, scene):
        return Ruling(scene, likely.found)
    if usual is None or (usual.suspicion is not None and not _holds(usual.suspicion, scene)):
        return Ruling(scene, _found(scene, rules))
    return Ruling(scene, usual.found)


def _scene(output: str, probes: Sequence[Probe]) -> Observations | None:
    failing = [probe for probe in probes if probe.fails(output)]
    if not failing:
        return None
    return Observations(output, failing, [probe for probe in probes if not probe.fails(output)])


def _found(scene: Observations, rules: Sequence[Rule]) -> tuple[Rule, Suspicion] | None:
    wrong = sum(int(probe.wrong(scene.output).sum()) for probe in scene.failing)
    if wrong < TELLING and not scene.passing:
        return None
    suspicions = ((rule, suspicion) for rule in rules for suspicion in _suspected(rule, scene))
    with _quiet():
        return next((pair for pair in suspicions if _holds(pair[1], scene)), None)


def _suspected(rule: Rule, scene: Observations) -> Generator[Suspicion]:
    """What a rule suspects; nothing more, once it meets values that it was not made for."""
    with suppress(*RAISES):
        yield from rule.suspect(scene)


@contextmanager
def _quiet() -> Iterator[None]:
    """What a guess divides by zero is nobody's concern."""
    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        yield


def _holds(suspicion: Suspicion, scene: Observations) -> bool:
    with suppress(*RAISES), _quiet():
        return all(suspicion.fits(probe) for probe in (*scene.failing, *scene.passing))
    return False


def where(scene: Observations) -> str:
    """Where it was asked: how many probes, of which samples, seeds and attributes."""
    failing, all_of = scene.failing, len(scene.failing) + len(scene.passing)
    count = f"all {all_of}" if len(failing) == all_of else f"{len(failing)} of {all_of}"
    seeds = {probe.seed for probe in failing}
    samples = list(dict.fromkeys(probe.where for probe in failing))
    named = ", ".join(samples[:NOTED]) + (", …" if len(samples) > NOTED else "")
    attrs = sorted({key for p in failing for key in p.attrs
                    if any(q.attrs.get(key) != p.attrs[key] for q in failing)})  # fmt: skip
    varied = f", other {', '.join(attrs[:NOTED])}" if attrs else ""
    plural = "s" if all_of > 1 else ""
    drawn = f"samples {named}; {len(seeds)} seeds" if len(seeds) > 1 else named
    return f"wrong in {count} probe{plural} ({drawn}{varied})"
