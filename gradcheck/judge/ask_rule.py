"""Asking an update rule: copies of its own, in place or not, and what it owes on return."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from gradcheck.implementations import returned
from gradcheck.implementations.bound import BoundRule
from gradcheck.implementations.checked_call import attempt, differs
from gradcheck.implementations.returned import broken
from gradcheck.judge.steps import Flat, RuleTruth, Snapshot
from gradcheck.numerics.arithmetic import FLOATS
from gradcheck.spec.rule import Tensors


def singles(truth: RuleTruth, bound: BoundRule, dtype: str) -> Iterator[tuple[str, Flat]]:
    """Every step from the true state before it; the last one first, and twice.

    Backwards: a memory that the code keeps for itself would otherwise be the right one.
    """
    for k, t in reversed(list(enumerate(truth.case.times))):
        here, grads = truth.before(k, dtype)
        new = _ask(truth, bound, here, grads, k)
        if k == len(truth.case.times) - 1:
            _same(new, _ask(truth, bound, here, grads, k))
        yield f"step {t}", new.flat


def ways(truth: RuleTruth, bound: BoundRule, dtype: str) -> Iterator[tuple[str, Flat]]:
    """All steps one after the other, from what the last one left."""
    here, _ = truth.before(0, dtype)
    init = bound.init
    if truth.case.state is None and init is not None:
        made = attempt("init", lambda: init(_copied(here.params)))
        here = Snapshot(here.params, _mapping("init", made))
    first = truth.case.times[0]
    for k, t in enumerate(truth.case.times):
        grads = truth.gradients(FLOATS[dtype], here.params, k)
        here = _ask(truth, bound, here, grads, k)
        yield f"steps {first} to {t}", here.flat


def _ask(truth: RuleTruth, bound: BoundRule, here: Snapshot, grads: Tensors, k: int) -> Snapshot:
    """One step of the code judged, on copies of its own; in-place code may return None."""
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
    """Copies of what are arrays: the next call may reuse the buffer."""
    found = {name: returned.as_array(a) for name, a in tensors.items()}
    return {n: tensors[n] if a is None else np.array(a) for n, a in found.items()}


def _copied(tensors: Tensors) -> dict[str, Any]:
    return {n: np.array(a) if isinstance(a, np.ndarray) else a for n, a in tensors.items()}


def _same(first: Snapshot, second: Snapshot) -> None:
    a, b = first.flat, second.flat
    arrays = [[returned.as_array(flat.get(name)) for name in a] for flat in (a, b)]
    if differs(*arrays):
        raise broken(
            "update",
            "update is not deterministic: the same arguments gave other bits. "
            "Look for a state that lives outside of what it is given",
        )
