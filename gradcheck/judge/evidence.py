"""What shows that a finding is right: the central difference at the worst element, step by step."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

import numpy as np
from numpy.typing import NDArray

from gradcheck.judge.gradient import Truth
from gradcheck.judge.operator import CaseTruth
from gradcheck.numerics import richardson
from gradcheck.results.finding import Finding, VCurve
from gradcheck.results.verdict import Verdict

Float = NDArray[np.float64]

STEPS: Final = 27
PER_DECADE: Final = 2
LARGEST: Final = 1 << 17
"""Elements of a primal, or of the outputs, up to which 54 more forwards cost nobody's patience."""
DIGITS: Final = 6
"""Significant digits of what is kept: none of them is seen in a picture, or survives rounding."""
SHOWN: Final = (Verdict.FAIL, Verdict.INCONCLUSIVE)


def with_curves(truth: CaseTruth, findings: Sequence[Finding], *, every: bool) -> list[Finding]:
    """The findings, those of gradients that do not pass with a curve; with `every`, those too."""
    return [
        replace(found, curve=curve_of(truth.truth(truth.names.index(found.name)), found))
        if found.name in truth.names and found.top and (every or found.verdict in SHOWN)
        else found
        for found in findings
    ]


def curve_of(truth: Truth, found: Finding) -> VCurve | None:
    """The V-curve at the worst element of a finding about the gradient that `truth` tells.

    None where the true derivative is not known there or is a matter of convention, where forward
    has no value at any step, and where it is so large that 54 more calls would be felt.
    """
    top, evaluator = found.top, truth.differences.evaluator
    if top is None or max(evaluator.x.size, evaluator.base.size) > LARGEST:
        return None
    element = int(np.ravel_multi_index(top.index, truth.shape)) if top.index else 0
    on_kink = truth.kinks is not None and bool(truth.kinks.on[element])
    if on_kink or not (math.isfinite(top.want) and math.isfinite(top.error_bar)):
        return None
    h = steps(evaluator.x)
    slopes, bars = truth.differences.seen_at(truth.cotangents.index(top.cotangent), element, h)
    with np.errstate(all="ignore"):
        errors = np.where(np.isfinite(bars), np.abs(slopes - top.want), np.nan)
    if not np.isfinite(errors).any():
        return None
    return VCurve(
        index=top.index, tensor=found.name, cotangent=top.cotangent,
        steps=_kept(h), errors=_kept(errors), bars=_kept(bars),
        off=top.error, want=top.want, bound=top.bound, error_bar=top.error_bar,
    )  # fmt: skip


def steps(x: Float) -> Float:
    """Half decades from the magnitude of the primal down to where rounding is all there is."""
    top = round(math.log10(richardson.top_step(x)))
    return np.asarray(10.0 ** (top - np.arange(STEPS) / PER_DECADE))


def _kept(values: Float) -> tuple[float, ...]:
    return tuple(float(f"{value:.{DIGITS}g}") for value in values.tolist())
