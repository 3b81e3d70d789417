"""Whether a forward computes the operator's value: element by element, infinities too."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from gradcheck.judge.compare import compare, rules_of
from gradcheck.numerics.estimator import Estimate
from gradcheck.numerics.evaluate import flatten
from gradcheck.results.finding import Finding
from gradcheck.results.verdict import Verdict
from gradcheck.spec.operator import Slack

Array = NDArray[Any]
Float = NDArray[np.float64]

SAFETY: Final = 4.0
"""Other texts of the same formula round differently: allow so many times the estimate."""


def judge_value(
    op: str,
    outputs: Sequence[Array],
    rounding: Callable[[], Float],
    got: Sequence[Array],
    dtype: str,
    slack: Slack | None = None,
) -> Finding:
    """What an implementation's outputs `got` are beside the operator's `outputs`.

    `rounding()` is what rounding may cost each, [1, m], in units of u; `slack` widens the bound for
    this implementation alone.
    """
    wrong = _form(outputs, got, dtype)
    if wrong:
        return Finding(name="forward", verdict=Verdict.FAIL, reason=wrong)
    if not any(o.size for o in outputs):
        return empty("forward")
    value, flat, rules = flatten(outputs)[None], flatten(got)[None], rules_of(dtype)
    infinite = np.isinf(value)
    strange = infinite & (flat != value)
    if strange.any():
        place = int(np.flatnonzero(strange)[0])
        reason = (
            f"{int(strange.sum())} outputs are infinite by design and are not so here: "
            f"element {place} is {flat[0, place]:g}, the operator gives {value[0, place]:g}"
        )
        return Finding(name="forward", verdict=Verdict.FAIL, reason=reason)
    value, flat = np.where(infinite, 0.0, value), np.where(infinite, 0.0, flat)
    estimate = Estimate(
        value=value,
        bar=np.zeros_like(value),  # its own rounding is part of the allowance below
        scale=np.abs(value),
        terms=np.ones(value.shape[1], dtype=np.int64),
        settled=np.zeros(value.shape, dtype=bool),
    )
    found, extra = compare(flat, estimate, rules), np.zeros_like(value)
    for u in (rules.accumulate or rules.u, rules.u):
        if found.pending.any():
            extra = SAFETY * u * rounding()
            found = compare(flat, estimate, rules, extra=extra)
    wider = slack if found.pending.any() else None
    if wider is not None:
        extra = extra + wider.ulp * 2 * rules.u * estimate.scale
        found = compare(flat, estimate, rules, extra=extra)
    shape = outputs[0].shape if len(outputs) == 1 else value.shape[1:]
    finding = found.finding("forward", shape, ("",))
    if finding.verdict is Verdict.FAIL:
        reason = f"it computes something else than {op}: {finding.reason}"
        return replace(finding, reason=reason)
    return finding if wider is None else because(finding, wider)


def _form(outputs: Sequence[Array], got: Sequence[Array], dtype: str) -> str:
    shapes, wanted = [np.shape(o) for o in got], [o.shape for o in outputs]
    if shapes == wanted and all(o.dtype == dtype for o in got):
        return ""
    forms = ", ".join(f"{o.dtype}{o.shape}" for o in got)
    return f"forward returned {forms}, the operator gives {dtype} of shape {wanted}"


def because(finding: Finding, slack: Slack) -> Finding:
    """A finding by a wider bound than anybody else gets, with the sentence that asks for it."""
    text = f"by a bound {slack.ulp:g} ulp wider: {slack.because}"
    reason = f"{finding.reason}, {text}" if finding.reason else text
    return replace(finding, reason=reason, slack=text)


def empty(name: str) -> Finding:
    """The verdict on what has no elements."""
    reason = "it has no elements: only its shape and its dtype were checked"
    return Finding(name=name, verdict=Verdict.PASS, reason=reason)
