"""An update rule against 50 digits: every step from the true state, and the whole way together."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from gradcheck.errors import Unsupported
from gradcheck.implementations import returned
from gradcheck.implementations.bound import RuleBinding
from gradcheck.implementations.checked_call import bound_by, steady
from gradcheck.implementations.returned import Broken
from gradcheck.judge.ask_rule import singles, ways
from gradcheck.judge.compare import Comparison, Rules, compare
from gradcheck.judge.narrowing import told_bits
from gradcheck.judge.steps import SAFETY, Flat, Row, RuleTruth, rules_for
from gradcheck.numerics.estimator import Estimate
from gradcheck.numerics.narrow import TYPES
from gradcheck.results.finding import Certificate, Finding, Part
from gradcheck.results.verdict import Verdict

Float = NDArray[np.float64]


def _one_off(want: Float) -> Float:
    """One percent too much in the largest element of the first row, nothing else."""
    out = want.copy()
    out[0, int(np.argmax(np.abs(want[0])))] *= 1.01
    return out


IMPOSTORS: Final[Mapping[str, Callable[[Float], Float]]] = {
    "zeros": lambda want: want * 0,
    "negated": lambda want: -want,
    "double": lambda want: want * 2,
    "half": lambda want: want / 2,
    "one-percent": lambda want: want * 1.01,
    "mean": lambda want: np.broadcast_to(want.mean(axis=1, keepdims=True), want.shape),
    "one-element": _one_off,
    "stale": lambda want: np.roll(want, 1, axis=0),
    "first-step": lambda want: np.broadcast_to(want[:1], want.shape),
}
"""What a rule may leave instead of the truth, [q, n] each; `RuleTruth.narrowed` makes others."""


def judge_rule(truth: RuleTruth, binding: RuleBinding, dtype: str) -> list[Finding]:
    """What `binding` makes of the case in `dtype`: a finding per tensor, then per state tensor."""
    case = truth.case
    try:
        rules = rules_for(dtype)
        bound = bound_by(lambda: binding.bind_rule(case, dtype), "update")
        if bound is None:
            reason = f"{binding.name} says nothing about {case.spec.name}"
            return [_whole(Verdict.UNBOUND, reason)]
        bound = replace(bound, update=steady("update", bound.update))
        wanted, got = truth.rows(dtype), dict(singles(truth, bound, dtype))
        faults = {name: _faults(name, rows, got, dtype) for name, rows in wanted.items()}
        if truth.moves and not any(faults.values()):
            got.update(ways(truth, bound, dtype))
            faults = {name: _faults(name, rows, got, dtype) for name, rows in wanted.items()}
    except Unsupported as reason:
        return [_whole(Verdict.UNSUPPORTED, str(reason))]
    except Broken as error:
        return [replace(error.finding, part=Part.UPDATE)]
    return [faults[name] or _judged(name, rows, got, rules) for name, rows in wanted.items()]


def _faults(name: str, rows: Sequence[Row], got: Mapping[str, Flat], dtype: str) -> Finding | None:
    """What is wrong with the form of one output, where it is seen first."""
    for row in rows:
        if row.name in got:
            pattern, tensor = np.empty(row.want.shape, dtype=dtype), got[row.name].get(name)
            fault = returned.fault(tensor, pattern, name, role="update", gives="new value")
            if fault is not None:
                return replace(fault, reason=f"{fault.reason} ({row.name})", part=Part.UPDATE)
    return None


def _judged(name: str, rows: Sequence[Row], got: Mapping[str, Flat], rules: Rules) -> Finding:
    """The verdict on one output over all rows that were asked for."""
    asked = [row for row in rows if row.name in got]
    flat = np.stack([(_wide(got[row.name][name]) - row.base).reshape(-1) for row in asked])
    names = tuple(row.name for row in asked)
    finding = _compared(flat, asked, rules).finding(name, asked[0].want.shape, names)
    return replace(finding, part=Part.UPDATE)


def _wide(tensor: Any) -> Float:
    return np.asarray(tensor, dtype=np.float64)


def _compared(got: Float, rows: Sequence[Row], rules: Rules) -> Comparison:
    want = np.stack([row.want.reshape(-1) for row in rows])
    cost = np.stack([row.cost.reshape(-1) for row in rows])
    # A step that cancels by chance is measured by the largest one of its element.
    kinds = np.array([row.single for row in rows])
    scale = np.empty_like(want)
    for kind in (True, False):
        scale[kinds == kind] = np.max(np.abs(want[kinds == kind]), axis=0, initial=0.0)
    estimate = Estimate(
        value=want,
        bar=np.stack([row.bar.reshape(-1) for row in rows]),
        scale=scale,
        terms=np.ones(want.shape[1], dtype=np.int64),
        settled=np.ones(want.shape, dtype=bool),
    )
    return compare(got, estimate, rules, extra=SAFETY * rules.u * cost)


def certified_rule(truth: RuleTruth, findings: Sequence[Finding], dtype: str) -> list[Finding]:
    """The findings with what the same comparison would have rejected."""
    if not any(f.compared for f in findings):
        return [*findings]
    rows, narrow = truth.rows(dtype), truth.narrowed(dtype)
    return [
        replace(f, certificate=_certificate(f.name, rows[f.name], narrow, rules_for(dtype)))
        if f.compared
        else f
        for f in findings
    ]


def _certificate(
    output: str,
    rows: Sequence[Row],
    narrow: Mapping[str, Mapping[str, Mapping[str, Float]]],
    rules: Rules,
) -> Certificate:
    want = np.stack([row.want.reshape(-1) for row in rows])
    tried = {name: np.asarray(make(want)) for name, make in IMPOSTORS.items()}
    for name, steps in narrow.items():
        got = tried[name] = want.copy()
        for i, row in enumerate(rows):
            value = steps.get(row.name, {}).get(output)
            if value is not None:
                got[i] = (value - row.base).reshape(-1)
    tried = {name: got for name, got in tried.items() if not np.array_equal(got, want)}
    if not tried:
        return Certificate(rejected=(), blind=())
    found = _compared(np.concatenate([*tried.values()]), [*rows] * len(tried), rules)
    failed = np.asarray(found.failed.reshape(len(tried), -1).any(axis=1))
    with np.errstate(all="ignore"):
        shares = np.nan_to_num(found.error / (found.bound + found.uncertainty))
    largest = shares.reshape(len(tried), -1).max(axis=1)
    passed = [(name, largest[k]) for k, name in enumerate(tried) if not failed[k]]
    return Certificate(
        rejected=tuple(name for name, ok in zip(tried, failed, strict=True) if ok),
        blind=tuple(name for name, _ in passed if name not in narrow),
        tolerated=tuple(_tolerated(name, float(share)) for name, share in passed if name in narrow),
    )


def _tolerated(name: str, share: float) -> str:
    """The name of a rounding that costs a `share` of what is allowed, and where it would show."""
    kind = next(one for one in TYPES if name.startswith(one.name))
    return told_bits(name, kind, share)


def _whole(verdict: Verdict, reason: str) -> Finding:
    return Finding(name="update", verdict=verdict, reason=reason, part=Part.UPDATE)
