"""What a rule suspects: a class of defects, a sentence, and a test that any probe can put it to."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from gradcheck.explain.probe import Probe


@dataclass(frozen=True, slots=True, kw_only=True)
class Suspicion:
    """One way in which a gradient may be wrong.

    `label` is the code of a class of defects; `says` a sentence without a full stop that begins
    with the gradient's name ("dw is 1/rows of the right value: …"). `fits(probe)` tells whether
    what was returned there is what the suspicion predicts; where the gradient is right there, it
    must predict that. `evidence` are further sentences.
    """

    label: str
    says: str
    fits: Callable[[Probe], bool]
    evidence: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Observations:
    """All that is known when one gradient is wrong: probes where it is, and where it is not.

    `output` is the primal's name. `failing` are the most telling first: of ordinary values and
    several rows.
    """

    output: str
    failing: Sequence[Probe]
    passing: Sequence[Probe]

    @property
    def first(self) -> Probe:
        """The most telling of the failing ones: suspicions are formed there."""
        return self.failing[0]

    @property
    def gradient(self) -> str:
        """What messages call the gradient."""
        return f"d{self.output}" if self.output.isidentifier() else f"d {self.output}"


@dataclass(frozen=True, slots=True)
class Rule:
    """One row of the table of rules: `suspect(scene)` yields suspicions, the likeliest first."""

    name: str
    says: str
    suspect: Callable[[Observations], Iterable[Suspicion]]


def predicting(
    scene: Observations,
    label: str,
    says: str,
    of: Callable[[Probe], Any],
    evidence: tuple[str, ...] = (),
) -> Suspicion:
    """A suspicion that predicts the whole gradient: `of(probe)`, or None where it cannot."""
    return Suspicion(
        label=label,
        says=says,
        fits=lambda probe: probe.reproduces(of(probe), scene.output),
        evidence=evidence,
    )
