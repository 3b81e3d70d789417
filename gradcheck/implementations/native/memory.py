"""A plan's memory before and after a call, and the mistakes that unwritten or stale bytes show."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from gradcheck.errors import ManifestError
from gradcheck.implementations.manifest.operation import Operation, RoleKind
from gradcheck.implementations.native.layout import Element, Key, Place, key_of
from gradcheck.implementations.native.plan import Block, Holds, Plan
from gradcheck.implementations.processes.c_worker import Access, Buffer, Guard, Outcome, Script
from gradcheck.implementations.returned import Broken, broken
from gradcheck.results.verdict import Verdict
from gradcheck.results.words import plural
from gradcheck.spec.defect import Defect

Array = NDArray[Any]
Bits = NDArray[np.unsignedinteger[Any]]
"""Elements as whole numbers of their width."""

REST: Final = -1
"""The part of a block outside of tensors: its padding, or all of a workspace."""


class Slot(NamedTuple):
    """A part of a block that may hold anything before the call: a place, or `REST`."""

    block: str
    place: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Contents:
    """A plan's memory before a call: tensors that are given, and everything else.

    `preloads` are what gradients and outputs hold; without one, a slot holds ones in every bit if
    it is in `poisoned` (as floats NaN, as whole numbers −1), else zeros.
    """

    tensors: Mapping[Key, Array]
    preloads: Mapping[Key, Array] = field(default_factory=dict)
    poisoned: frozenset[Slot] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryAfter:
    """Memory after a script: the elements of each place that was written, as bits [n].

    `returned` are the numbers that calls returned, by the tensor that they are; `damaged` names the
    blocks whose padding was written to.
    """

    places: Mapping[Slot, Bits]
    returned: Mapping[Key, float]
    damaged: tuple[str, ...]

    def same(self, other: MemoryAfter, keep: Callable[[Slot], bool] = lambda _: True) -> bool:
        """Whether two runs left the same bits in the places for which `keep` holds."""
        numbers = {k: np.float64(v).tobytes() for k, v in self.returned.items()}
        others = {k: np.float64(v).tobytes() for k, v in other.returned.items()}
        return numbers == others and all(
            np.array_equal(bits, other.places[slot])
            for slot, bits in self.places.items()
            if keep(slot)
        )


def slots(plan: Plan, operation: Operation) -> list[Slot]:
    """The slots that may hold anything before: results that are overwritten, workspace, padding."""
    kept = operation.accumulates | operation.zeroed
    out = []
    for name, block in plan.blocks.items():
        if block.holds is Holds.ANYTHING and block.size:
            out.append(Slot(name, REST))
        if block.holds is not Holds.TENSORS:
            continue
        out += [
            Slot(name, i)
            for i, place in enumerate(block.places)
            if not place.given and place.count
            if not (place.before.kind is RoleKind.GRAD and place.before.name in kept)
        ]
        if sum(p.count for p in block.places) < block.size:
            out.append(Slot(name, REST))
    return out


def script(plan: Plan, contents: Contents, guard: Guard, align: int, where: str) -> Script:
    """The script that makes the plan's calls on `contents`."""
    buffers = tuple(_buffer(block, contents, guard, align, where) for block in plan.blocks.values())
    return Script(buffers=buffers, calls=tuple(plan.calls))


def _buffer(block: Block, contents: Contents, guard: Guard, align: int, where: str) -> Buffer:
    access = Access.WRITE if block.written else Access.READ
    if block.holds is Holds.NOTHING:
        access = Access.NONE
    content: bytes | memoryview = block.content
    if block.holds is not Holds.CONSTANT:
        content = fill(block, contents, where).data
    return Buffer(
        name=block.name,
        content=content,
        access=access,
        guard=guard,
        align=max(align, block.itemsize),
    )


def fill(block: Block, contents: Contents, where: str) -> Bits:
    """The elements of a block before the call."""
    cells = np.zeros(block.size, dtype=f"u{block.itemsize}")
    rest = Slot(block.name, REST) in contents.poisoned
    if rest:
        cells[:] = np.iinfo(cells.dtype).max
    for number, place in enumerate(block.places):
        given = contents.tensors if place.given else contents.preloads
        if place.given or place.before in given:
            cells[place.cells] = _encoded(block, place, given[place.before], where)
        elif Slot(block.name, number) in contents.poisoned:
            cells[place.cells] = np.iinfo(cells.dtype).max
        elif rest:
            cells[place.cells] = 0
    return cells


def _encoded(block: Block, place: Place, values: Array, where: str) -> Bits:
    assert block.element is not None
    said = f"{where}, `{block.name}`"
    if values.size != place.count:
        raise ManifestError(
            f"{said} has {_counted(place.count)}, but {place.before.name or 'what it holds'} has "
            f"{_counted(values.size)}; correct the one or the other"
        )
    bits: Bits = block.element.encode(values, said).view(f"u{block.itemsize}")
    return bits


def _counted(count: int) -> str:
    return plural(count, "element")


def left(plan: Plan, contents: Contents, outcome: Outcome, where: str) -> MemoryAfter:
    """The memory after a plan's script."""
    places, damaged = {}, []
    for name, block in plan.blocks.items():
        if not block.written or block.holds is not Holds.TENSORS:
            continue
        cells: Bits = np.frombuffer(outcome.buffers[name], dtype=f"u{block.itemsize}")
        for number, place in enumerate(block.places):
            if place.made:
                places[Slot(name, number)] = cells[place.cells]
        if sum(place.count for place in block.places if place.made) < block.size:
            still = np.ones(block.size, dtype=bool)
            for place in block.places:
                still[place.cells] = not place.made
            if not np.array_equal(fill(block, contents, where)[still], cells[still]):
                damaged.append(name)
    returned = {key_of(role): outcome.returned[call] for call, role in plan.returned}
    numbers = {k: float(v) for k, v in returned.items() if v is not None}
    return MemoryAfter(places=places, returned=numbers, damaged=tuple(damaged))


def tensor(
    plan: Plan, found: MemoryAfter, key: Key, shape: tuple[int, ...], dtype: Any
) -> Array | None:
    """A tensor that was written, in `dtype`: the sum of its parts, if it lies in several places.

    None: nothing of it is written anywhere.
    """
    parts = [
        _decoded(plan.blocks[slot.block].element, bits).reshape(shape)
        for slot, bits in found.places.items()
        if plan.blocks[slot.block].places[slot.place].after == key
    ]
    if key in found.returned:
        parts.append(np.asarray(found.returned[key], dtype=dtype).reshape(shape))
    if len(parts) < 2:
        return parts[0].astype(dtype, copy=False) if parts else None
    whole = sum(part.astype(np.float64) for part in parts)
    return np.asarray(whole).astype(dtype)


def residual(plan: Plan, found: MemoryAfter, key: Key) -> Array | None:
    """The residual or output `key` of a forward, flat, in its C type; None if it is not written."""
    for slot, bits in found.places.items():
        block = plan.blocks[slot.block]
        if block.places[slot.place].after == key and block.element is not None:
            return np.ascontiguousarray(bits).view(block.element.storage)
    value = found.returned.get(key)
    return None if value is None else np.asarray([value])


def _decoded(element: Element | None, bits: Bits) -> Array:
    assert element is not None
    return element.decode(np.ascontiguousarray(bits).view(element.storage))


Again = Callable[[frozenset[Slot], dict[Key, Array]], MemoryAfter]
"""Run the plan again: with these slots poisoned, and these tensors preloaded."""

MADE = (RoleKind.GRAD, RoleKind.VALUE)


def judged(plan: Plan, role: str) -> Callable[[Slot], bool]:
    """Which of the places that are written count: of a VJP, not what its forward left."""

    def counts(slot: Slot) -> bool:
        after = plan.blocks[slot.block].places[slot.place].after
        return after.kind in MADE if role == "vjp" else after.kind is RoleKind.OUT

    return counts


def blame(
    plan: Plan, slots: Sequence[Slot], clean: MemoryAfter, again: Again, role: str, symbol: str
) -> Broken:
    """The mistake of a call that left `clean` where all was zero, and other bits elsewhere.

    `slots` are the parts of memory that were poisoned; `role` is "vjp" or "forward", `symbol` what
    messages call the function.
    """
    counts = judged(plan, role)
    if not clean.same(again(frozenset(), {}), counts):
        return broken(
            role,
            f"{symbol} is not deterministic: the same arguments gave other bits. Look for "
            "a buffer or a random generator that lives from call to call",
            label=Defect.NONDETERMINISM,
            says=f"{symbol} gives other bits for the same arguments",
        )
    for slot in slots:
        found = again(frozenset([slot]), {})
        if not clean.same(found, counts):
            return _of(plan, slot, clean, found, again, role, symbol)
    reason = f"{symbol} reads memory that nobody has written to"
    return broken(role, reason, Verdict.FAIL, label=Defect.NONDETERMINISM, says=reason)


def _of(
    plan: Plan,
    slot: Slot,
    clean: MemoryAfter,
    found: MemoryAfter,
    again: Again,
    role: str,
    symbol: str,
) -> Broken:
    block = plan.blocks[slot.block]
    if slot.place == REST:
        if block.holds is Holds.ANYTHING:
            reason = (
                f"{symbol} depends on what was in scratch `{block.name}` before; initialise it, or "
                f"declare it `zeros[…]`"
            )
            says = f"scratch `{block.name}` is read before it is initialised"
            return broken(role, reason, Verdict.FAIL, label=Defect.ACCUMULATION, says=says)
        reason = f"{symbol} reads outside of its part of `{block.name}`"
        says = f"an index into `{block.name}` leaves its part"
        return broken(role, reason, Verdict.FAIL, label=Defect.INDEX, says=says)
    place = block.places[slot.place]
    what, name = _called(place.after, role)
    if not judged(plan, role)(slot):
        reason = f"forward leaves elements of {what} (`{block.name}`) unwritten that {symbol} reads"
        says = f"elements of {what} are read that nobody has written"
        return broken(role, reason, Verdict.FAIL, label=Defect.ACCUMULATION, says=says)
    missed = _unwritten(clean.places[slot], found.places[slot])
    alone = found.same(clean, lambda other: other != slot and judged(plan, role)(other))
    differs = found.places[slot] != clean.places[slot]
    if alone and np.array_equal(missed, differs):
        n, total = int(missed.sum()), place.count
        of = plural(total, "element")
        some = f"{n:,} of {of} of {what} {'is' if n == 1 else 'are'} never written"
        advice = "" if name == "forward" else "; write zeros there, or declare it `zeroed`"
        says = f"elements of {what} keep what their buffer held before: write every element"
        return broken(name, some + advice, Verdict.FAIL, label=Defect.ACCUMULATION, says=says)
    if _adds(plan, place, clean, again):
        reason = (
            f"{symbol} adds to `{block.name}` instead of overwriting it; clear it first, or "
            "declare that it `accumulates`"
        )
        says = f"{what} is added to what its buffer held: clear it first, or declare `accumulates`"
    else:
        reason = f"{symbol} depends on what `{block.name}` held before, which it should overwrite"
        says = f"{what} depends on what its buffer held before"
    return broken(name, reason, Verdict.FAIL, label=Defect.ACCUMULATION, says=says)


def _called(key: Key, role: str) -> tuple[str, str]:
    """A tensor's name in messages, and that of its finding."""
    if key.kind is RoleKind.GRAD:
        return f"the gradient of {key.name}", key.name
    if key.kind is RoleKind.SAVED:
        return f"the residual {key.name}", role
    return f"output {key.index}", "forward"


def _unwritten(clean: Bits, found: Bits) -> NDArray[np.bool_]:
    """The elements that hold what was there before the call, in both runs."""
    return np.asarray((clean == 0) & (found == np.iinfo(found.dtype).max))


def _adds(plan: Plan, place: Place, clean: MemoryAfter, again: Again) -> bool:
    """Whether the result is added to its buffer: with ones there, it is one more."""
    before = tensor(plan, clean, place.after, place.shape, np.float64)
    ones = np.ones(place.shape)
    found = again(frozenset(), {place.before: ones})
    after = tensor(plan, found, place.after, place.shape, np.float64)
    assert before is not None
    assert after is not None
    # A verdict does not hang on it, only its words: half of what was added is enough.
    return bool((np.abs(after - before - ones) <= 0.5).all())
