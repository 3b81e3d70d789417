"""Somewhere: a defect that holds at every point that is wrong, though others would be wrong too."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Final

from gradcheck.explain.diagnosis_rule import Observations, Rule, Suspicion
from gradcheck.explain.probe import RAISES, Probe

SEVERAL: Final = 2
"""Failing probes that must agree."""
TELLING: Final = 8
"""Wrong elements, over all of them, that must be predicted."""


def somewhere(rules: Sequence[Rule]) -> Callable[[Observations], Iterable[Suspicion]]:
    """A rule that puts rules to failing probes alone: code may take its own way at some points.

    They must be rules that predict every number: one that merely describes has too little to go by.
    """

    def suspect(scene: Observations) -> Iterator[Suspicion]:
        wrong = sum(int(probe.wrong(scene.output).sum()) for probe in scene.failing)
        if not scene.passing or len(scene.failing) < SEVERAL or wrong < TELLING:
            return
        there = Observations(scene.output, scene.failing, ())
        samples = ", ".join(dict.fromkeys(probe.where for probe in scene.passing))
        for rule in rules:
            with suppress(*RAISES):
                for suspicion in rule.suspect(there):
                    yield replace(
                        suspicion,
                        fits=_where_wrong(suspicion, scene.output),
                        evidence=(*suspicion.evidence, f"the code takes another way at {samples}"),
                    )

    return suspect


def _where_wrong(suspicion: Suspicion, name: str) -> Callable[[Probe], bool]:
    return lambda probe: not probe.fails(name) or suspicion.fits(probe)
