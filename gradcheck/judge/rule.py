"""An update rule against 50 digits: each step from the true state, and all steps in sequence."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

import numpy as np

from gradcheck.errors import Unsupported
from gradcheck.implementations import checked_call, returned
from gradcheck.implementations.bound import BoundRule, RuleBinding
from gradcheck.implementations.checked_call import attempt, bound_by, steady
from gradcheck.implementations.returned import Broken, broken
from gradcheck.judge.compare import ROUNDING_SAFETY, Comparison, Tolerance, compare
from gradcheck.judge.impostors import certificate_of
from gradcheck.judge.rule_truth import ExpectedRow, Flat, RuleTruth, Snapshot, tolerance_for
from gradcheck.numerics.arithmetic import FLOATS
from gradcheck.numerics.arrays import Float
from gradcheck.numerics.estimator import certain
from gradcheck.numerics.narrow import TYPES
from gradcheck.results.finding import Certificate, Finding, Part
from gradcheck.results.verdict import Verdict
from gradcheck.spec.rule import Tensors


def _one_off(want: Float) -> Float:
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
"""Wrong results of a rule, [q, n] each; `RuleTruth.narrowed` makes others."""


def judge_rule(truth: RuleTruth, binding: RuleBinding, dtype: str) -> list[Finding]:
    """Judge `binding` at the case in `dtype`: a finding per tensor, then per state tensor."""
    case = truth.case
    try:
        tolerance = tolerance_for(dtype)
        bound = bound_by(lambda: binding.bind_rule(case, dtype), "update")
        if bound is None:
            reason = f"not implemented by {binding.name}"
            return [_whole(Verdict.UNBOUND, reason)]
        bound = replace(bound, update=steady("update", bound.update))
        wanted, got = truth.rows(dtype), dict(single_steps(truth, bound, dtype))
        faults = {name: _faults(name, rows, got, dtype) for name, rows in wanted.items()}
        if truth.moves and not any(faults.values()):
            got.update(step_runs(truth, bound, dtype))
            faults = {name: _faults(name, rows, got, dtype) for name, rows in wanted.items()}
    except Unsupported as reason:
        return [_whole(Verdict.UNSUPPORTED, str(reason))]
    except Broken as error:
        return [replace(error.finding, part=Part.UPDATE)]
    return [faults[name] or _judged(name, rows, got, tolerance) for name, rows in wanted.items()]


def _faults(
    name: str, rows: Sequence[ExpectedRow], got: Mapping[str, Flat], dtype: str
) -> Finding | None:
    for row in rows:
        if row.name in got:
            pattern, tensor = np.empty(row.want.shape, dtype=dtype), got[row.name].get(name)
            fault = returned.fault(tensor, pattern, name, role="update", gives="new value")
            if fault is not None:
                return replace(fault, reason=f"{fault.reason} ({row.name})", part=Part.UPDATE)
    return None


def _judged(
    name: str, rows: Sequence[ExpectedRow], got: Mapping[str, Flat], tolerance: Tolerance
) -> Finding:
    asked = [row for row in rows if row.name in got]
    flat = np.stack([(_wide(got[row.name][name]) - row.base).reshape(-1) for row in asked])
    names = tuple(row.name for row in asked)
    finding = _compared(flat, asked, tolerance).finding(name, asked[0].want.shape, names)
    return replace(finding, part=Part.UPDATE)


def _wide(tensor: Any) -> Float:
    return np.asarray(tensor, dtype=np.float64)


def _compared(got: Float, rows: Sequence[ExpectedRow], tolerance: Tolerance) -> Comparison:
    want = np.stack([row.want.reshape(-1) for row in rows])
    cost = np.stack([row.cost.reshape(-1) for row in rows])
    # A step that cancels by chance is measured by the largest one of its element.
    kinds = np.array([row.single for row in rows])
    scale = np.empty_like(want)
    for kind in (True, False):
        scale[kinds == kind] = np.max(np.abs(want[kinds == kind]), axis=0, initial=0.0)
    bar = np.stack([row.bar.reshape(-1) for row in rows])
    estimate = replace(certain(want, bar), scale=scale)
    return compare(got, estimate, tolerance, extra=ROUNDING_SAFETY * tolerance.u * cost)


def certified_rule(truth: RuleTruth, findings: Sequence[Finding], dtype: str) -> list[Finding]:
    """The findings with the wrong results that the same comparison would have rejected."""
    if not any(f.compared for f in findings):
        return [*findings]
    rows, narrow = truth.rows(dtype), truth.narrowed(dtype)
    return [
        replace(f, certificate=_certificate(f.name, rows[f.name], narrow, tolerance_for(dtype)))
        if f.compared
        else f
        for f in findings
    ]


def _certificate(
    output: str,
    rows: Sequence[ExpectedRow],
    narrow: Mapping[str, Mapping[str, Mapping[str, Float]]],
    tolerance: Tolerance,
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
    found = _compared(np.concatenate([*tried.values()]), [*rows] * len(tried), tolerance)
    failed = np.asarray(found.failed.reshape(len(tried), -1).any(axis=1))
    with np.errstate(all="ignore"):
        shares = np.nan_to_num(found.error / (found.bound + found.uncertainty))
    largest = shares.reshape(len(tried), -1).max(axis=1)
    types = {name: next(t for t in TYPES if name.startswith(t.name)) for name in narrow}
    return certificate_of([*tried], failed, types, lambda some: largest[some])


def _whole(verdict: Verdict, reason: str) -> Finding:
    return Finding(name="update", verdict=verdict, reason=reason, part=Part.UPDATE)


def single_steps(truth: RuleTruth, bound: BoundRule, dtype: str) -> Iterator[tuple[str, Flat]]:
    """Every step from the true state before it; the last one first, and twice.

    In reverse order, since the state that the code may keep for itself would otherwise be right.
    """
    for k, t in reversed(list(enumerate(truth.case.times))):
        here, grads = truth.before(k, dtype)
        new = _take_step(truth, bound, here, grads, k)
        if k == len(truth.case.times) - 1:
            _refuse_differing(new, _take_step(truth, bound, here, grads, k))
        yield f"step {t}", new.flat


def step_runs(truth: RuleTruth, bound: BoundRule, dtype: str) -> Iterator[tuple[str, Flat]]:
    """All steps in sequence, each from the result of the last one."""
    here, _ = truth.before(0, dtype)
    init = bound.init
    if truth.case.state is None and init is not None:
        made = attempt("init", lambda: init(_copied(here.params)))
        here = Snapshot(here.params, _mapping("init", made))
    first = truth.case.times[0]
    for k, t in enumerate(truth.case.times):
        grads = truth.gradients(FLOATS[dtype], here.params, k)
        here = _take_step(truth, bound, here, grads, k)
        yield f"steps {first} to {t}", here.flat


def _take_step(
    truth: RuleTruth, bound: BoundRule, here: Snapshot, grads: Tensors, k: int
) -> Snapshot:
    """One step of the code judged, on copies; in-place code may return None."""
    t = truth.case.times[k]
    params, given = _copied(here.params), _copied(grads)
    state = {slot: _copied(old) for slot, old in here.state.items()}
    made = attempt("update", lambda: bound.update(params, given, state, t, **bound.attrs))
    if truth.moves and any(given[n].tobytes() != g.tobytes() for n, g in grads.items()):
        raise broken("update", "update writes into its gradients; copy first")
    if made is None:
        return Snapshot(params if truth.moves else given, state)
    if not (isinstance(made, tuple) and len(made) == 2):
        kind = type(made).__name__
        raise broken(
            "update",
            f"update returned one {kind}; return (tensors, state), or None after working in place",
        )
    tensors, new = (_mapping("update", part) for part in made)
    for slot, old in new.items():
        new[slot] = _mapping(f"state {slot!r} of update", old)
    return Snapshot(_plain(tensors), {slot: _plain(old) for slot, old in new.items()})


def _mapping(role: str, made: Any) -> dict[str, Any]:
    if not isinstance(made, Mapping):
        raise broken(role, f"{role} returned a {type(made).__name__}, not a dict by name")
    found: dict[str, Any] = attempt(role, lambda: dict(made))  # a mapping of its own making
    return found


def _plain(tensors: Mapping[str, Any]) -> dict[str, Any]:
    """Copies of arrays, whose buffer the next call may reuse."""
    found = {name: returned.as_array(a) for name, a in tensors.items()}
    return {n: tensors[n] if a is None else np.array(a) for n, a in found.items()}


def _copied(tensors: Tensors) -> dict[str, Any]:
    return {n: np.array(a) if isinstance(a, np.ndarray) else a for n, a in tensors.items()}


def _refuse_differing(first: Snapshot, second: Snapshot) -> None:
    a, b = first.flat, second.flat
    arrays = [[returned.as_array(flat.get(name)) for name in a] for flat in (a, b)]
    if checked_call.differs(*arrays):
        raise broken(
            "update",
            "update is not deterministic: the same arguments gave other bits. "
            "Look for state outside the arguments",
        )
