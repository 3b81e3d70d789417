"""Why a call leaves other bits where memory held other bytes before: which of them it read."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gradcheck.implementations.manifest.operation import RoleKind
from gradcheck.implementations.native.layout import Key, Place
from gradcheck.implementations.native.memory import REST, Bits, Left, Slot, tensor
from gradcheck.implementations.native.plan import Holds, Plan
from gradcheck.implementations.returned import Broken, broken
from gradcheck.results.verdict import Verdict

Array = NDArray[Any]
Again = Callable[[frozenset[Slot], dict[Key, Array]], Left]
"""Run the plan again: with these slots poisoned, and these tensors preloaded."""

MADE = (RoleKind.GRAD, RoleKind.VALUE)


def judged(plan: Plan, role: str) -> Callable[[Slot], bool]:
    """Which of the places that are written count: of a VJP, not what its forward left."""

    def counts(slot: Slot) -> bool:
        after = plan.blocks[slot.block].places[slot.place].after
        return after.kind in MADE if role == "vjp" else after.kind is RoleKind.OUT

    return counts


def blame(
    plan: Plan, slots: Sequence[Slot], clean: Left, again: Again, role: str, symbol: str
) -> Broken:
    """What is wrong with a call that left `clean` where all was zero, and other bits elsewhere.

    `slots` are the parts of memory that were poisoned; `role` is "vjp" or "forward", `symbol` what
    messages call the function.
    """
    counts = judged(plan, role)
    if not clean.same(again(frozenset(), {}), counts):
        return broken(
            role,
            f"{symbol} is not deterministic: the same arguments gave other bits. Look for "
            "a buffer or a random generator that lives from call to call",
            label="C",
            says=f"{symbol} gives other bits for the same arguments",
        )
    for slot in slots:
        found = again(frozenset([slot]), {})
        if not clean.same(found, counts):
            return _of(plan, slot, clean, found, again, role, symbol)
    reason = f"{symbol} reads memory that nobody has written to"
    return broken(role, reason, Verdict.FAIL, label="C", says=reason)


def _of(
    plan: Plan, slot: Slot, clean: Left, found: Left, again: Again, role: str, symbol: str
) -> Broken:
    block = plan.blocks[slot.block]
    if slot.place == REST:
        if block.holds is Holds.ANYTHING:
            reason = (
                f"{symbol} depends on what was in scratch `{block.name}` before; initialise it, or "
                f"declare it `zeros[…]`"
            )
            says = f"scratch `{block.name}` is read before it is initialised"
            return broken(role, reason, Verdict.FAIL, label="A", says=says)
        reason = f"{symbol} reads outside of its part of `{block.name}`"
        says = f"an index into `{block.name}` leaves its part"
        return broken(role, reason, Verdict.FAIL, label="I", says=says)
    place = block.places[slot.place]
    what, name = _called(place.after, role)
    if not judged(plan, role)(slot):
        reason = f"forward leaves elements of {what} (`{block.name}`) unwritten that {symbol} reads"
        says = f"elements of {what} are read that nobody has written"
        return broken(role, reason, Verdict.FAIL, label="A", says=says)
    missed = _unwritten(clean.places[slot], found.places[slot])
    alone = found.same(clean, lambda other: other != slot and judged(plan, role)(other))
    differs = found.places[slot] != clean.places[slot]
    if alone and np.array_equal(missed, differs):
        n, total = int(missed.sum()), place.count
        some = f"{n} of {total} elements of {what} are never written"
        advice = "" if name == "forward" else "; write zeros there, or declare it `zeroed`"
        says = f"elements of {what} keep what their buffer held before"
        return broken(name, some + advice, Verdict.FAIL, label="A", says=says)
    if _adds(plan, place, clean, again):
        reason = (
            f"{symbol} adds to `{block.name}` instead of overwriting it; clear it first, or "
            "declare that it `accumulates`"
        )
        says = f"{what} is added to what its buffer held, which was not cleared"
    else:
        reason = f"{symbol} depends on what `{block.name}` held before, which it should overwrite"
        says = f"{what} depends on what its buffer held before"
    return broken(name, reason, Verdict.FAIL, label="A", says=says)


def _called(key: Key, role: str) -> tuple[str, str]:
    """What messages call a tensor, and the finding's name."""
    if key.kind is RoleKind.GRAD:
        return f"the gradient of {key.name}", key.name
    if key.kind is RoleKind.SAVED:
        return f"the residual {key.name}", role
    return f"output {key.index}", "forward"


def _unwritten(clean: Bits, found: Bits) -> NDArray[np.bool_]:
    """The elements that hold what was there before the call, in both runs."""
    return np.asarray((clean == 0) & (found == np.iinfo(found.dtype).max))


def _adds(plan: Plan, place: Place, clean: Left, again: Again) -> bool:
    """Whether what was there before is added: ones before, one more after."""
    before = tensor(plan, clean, place.after, place.shape, np.float64)
    ones = np.ones(place.shape)
    found = again(frozenset(), {place.before: ones})
    after = tensor(plan, found, place.after, place.shape, np.float64)
    assert before is not None
    assert after is not None
    # A verdict does not hang on it, only its words: half of what was added is enough.
    return bool((np.abs(after - before - ones) <= 0.5).all())
