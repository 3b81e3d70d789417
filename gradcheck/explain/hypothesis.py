"""A hypothesis: one way in which a gradient may be wrong, and a test of it at any probe."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from gradcheck.explain.probe import Array, Float, Probe

MAX_LISTED: Final = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Hypothesis:
    """One way in which a gradient may be wrong.

    `label` is the code of a class of defects; `says` a sentence without a full stop that begins
    with the gradient's name ("dw is 1/rows of the right value: …"). `fits(probe)` tells whether
    the code returned there what the hypothesis predicts; where the gradient is right, the
    prediction must be right, too. `evidence` are further sentences; `cause` as in `Diagnosis`.
    """

    label: str
    says: str
    fits: Callable[[Probe], bool]
    evidence: tuple[str, ...] = ()
    cause: str = ""


@dataclass(frozen=True, slots=True)
class Observations:
    """All probes of one gradient that is wrong at some of them.

    `output` is the primal's name. `failing` are the probes at which the gradient is wrong, the most
    telling first (ordinary values, several rows); `passing` are the others.
    """

    output: str
    failing: Sequence[Probe]
    passing: Sequence[Probe]

    @classmethod
    def of(cls, output: str, probes: Sequence[Probe]) -> Observations:
        """Split probes by whether the gradient of the primal `output` is wrong there."""
        failing = [probe for probe in probes if probe.fails(output)]
        return cls(output, failing, [probe for probe in probes if not probe.fails(output)])

    @property
    def first(self) -> Probe:
        """The most telling failing probe: hypotheses are formed there."""
        return self.failing[0]

    @property
    def gradient(self) -> str:
        """The name of the gradient in messages."""
        return f"d{self.output}" if self.output.isidentifier() else f"d {self.output}"


@dataclass(frozen=True, slots=True)
class Rule:
    """A kind of mistake: `propose(observations)` yields hypotheses, the likeliest first."""

    name: str
    says: str
    propose: Callable[[Observations], Iterable[Hypothesis]]


def predicting(
    obs: Observations,
    label: str,
    says: str,
    of: Callable[[Probe], Any],
    evidence: tuple[str, ...] = (),
) -> Hypothesis:
    """A hypothesis that predicts the whole gradient: `of(probe)`, or None where it cannot."""
    return Hypothesis(
        label=label,
        says=says,
        fits=lambda probe: probe.reproduces(of(probe), obs.output),
        evidence=evidence,
    )


def where_wrong(obs: Observations) -> str:
    """Where it was asked: how many inputs, of which samples, seeds and attributes."""
    failing, all_of = obs.failing, len(obs.failing) + len(obs.passing)
    count = f"{len(failing)} of" if len(failing) < all_of else "all" if all_of > 1 else "the"
    seeds = {probe.seed for probe in failing}
    samples = list(dict.fromkeys(probe.where for probe in failing))
    named = ", ".join(samples[:MAX_LISTED]) + (", …" if len(samples) > MAX_LISTED else "")
    attrs = sorted({key for p in failing for key in p.attrs
                    if any(q.attrs.get(key) != p.attrs[key] for q in failing)})  # fmt: skip
    varied = f", other {', '.join(attrs[:MAX_LISTED])}" if attrs else ""
    inputs = f"{all_of} inputs" if all_of > 1 else "only input"
    drawn = f"samples {named}; {len(seeds)} seeds" if len(seeds) > 1 else named
    return f"wrong at {count} {inputs} tried ({drawn}{varied})"


# ── arrays of a probe, at any probe ──────────────────────────────────────────────────────────


def read_primal(name: str) -> Callable[[Probe], Array]:
    """Read one primal."""
    return lambda probe: probe.primal(name)


def read_output(k: int) -> Callable[[Probe], Array]:
    """Read one output of forward."""
    return lambda probe: probe.outputs[k]


def read_cotangent(k: int) -> Callable[[Probe], Array]:
    """Read the cotangent of one output."""
    return lambda probe: probe.ct[k]


def softmax(x: Float) -> Float:
    """The softmax of each row."""
    e = np.exp(x - np.max(x, axis=-1, keepdims=True))
    return np.asarray(e / np.sum(e, axis=-1, keepdims=True))


def applied(function: Callable[..., Any], *reads: Callable[[Probe], Array]) -> Callable[..., Any]:
    """Apply a function to what is read at a probe."""
    return lambda probe: function(*(read(probe) for read in reads))
