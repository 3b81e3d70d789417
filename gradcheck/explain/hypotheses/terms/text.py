"""The text of a spec at every probe, and what an edit of it predicts there."""

from __future__ import annotations

import operator
import re
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Final

import numpy as np

from gradcheck.explain.hypotheses.terms.tape import (
    Change,
    Node,
    Place,
    Tape,
    TooLongError,
    record,
    replay,
)
from gradcheck.explain.hypothesis import Observations
from gradcheck.explain.probe import MAX_RELATIVE_DISTANCE, Array, Probe

MAX_REPLAYED_OPERATIONS: Final = 120_000
"""Operations performed again at the first probe, after which no more edits are tried."""
EDIT_OVERHEAD: Final = 8
"""Operations that an edit costs beside those."""
_index: Final = operator.attrgetter("index")


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """Operations of a text on any tape: those of one kind at one place of the source.

    With `chain`, only those called from there; with `turn`, only the first (0) or the last (−1).
    """

    place: Place
    kind: str
    chain: tuple[Place, ...] | None = None
    turn: int | None = None

    def on(self, run: Run) -> list[Node]:
        """The nodes on one tape; none where the text takes another way."""
        found = run.at.get((self.place, self.kind), [])
        if self.chain is not None:
            found = [node for node in found if node.chain == self.chain]
        return found if self.turn is None or not found else [found[self.turn]]


def targets(node: Node, run: Run) -> Iterator[Target]:
    """All ways to mean a node: with all of its place, of its chain, or as first or last.

    None where it comes from no place in the text.
    """
    if node.place is None:
        return
    at = run.at[node.place, node.kind]
    yield Target(place=node.place, kind=node.kind)
    same = [other for other in at if other.chain == node.chain]
    if len(same) < len(at):
        yield Target(place=node.place, kind=node.kind, chain=node.chain)
    if len(same) > 1 and node.turn in (0, len(same) - 1):
        turn = 0 if node.turn == 0 else -1
        yield Target(place=node.place, kind=node.kind, chain=node.chain, turn=turn)


@dataclass(frozen=True, slots=True, kw_only=True)
class Ref:
    """A value of the text on any tape: a leaf by name, an output of forward, or an operation.

    In a loop it is the value of the same iteration, moved by `step`. `of` is applied to it.
    """

    name: str = ""
    output: int = -1
    chain: tuple[Place, ...] = ()
    kind: str = ""
    step: int | None = None
    of: Callable[[Array], Array] | None = None

    def node(self, run: Run, turn: int) -> Node | None:
        """The operation, seen from another in its turn `turn`."""
        if self.name:
            return run.leaves.get(self.name)
        if self.output >= 0:
            return run.tape.forward[self.output]
        same = run.chains.get((self.chain, self.kind), [])
        k = 0 if self.step is None else turn + self.step
        return same[k] if 0 <= k < len(same) else None

    def on(self, run: Run, turn: int) -> Array | None:
        """Its value, seen from an operation in its turn `turn`."""
        found = self.node(run, turn)
        if found is None or self.of is None:
            return None if found is None else found.value
        with np.errstate(all="ignore"):
            return self.of(found.value)


class Run:
    """The text of one probe on a tape, as far as one gradient depends on it."""

    def __init__(self, probe: Probe, output: str) -> None:
        """Record it.

        Raises:
            Exception: whatever the text raises.
        """
        self.probe, self.output = probe, output
        spec = probe.truth.spec
        assert spec is not None
        self.tape: Tape = record(spec, probe.ct, probe.names, probe.primals, probe.attrs)
        self.needed = self.tape.needed(probe.names.index(output))
        self.leaves = {n.name: n for n in self.tape.nodes if n.name}
        self.at: dict[tuple[Place, str], list[Node]] = {}
        self.chains: dict[tuple[tuple[Place, ...], str], list[Node]] = {}
        self.users: dict[int, list[Node]] = {}
        for node in self.needed:
            if node.place is not None:
                self.at.setdefault((node.place, node.kind), []).append(node)
            for parent in node.parents:
                self.users.setdefault(parent, []).append(node)
        for node in self.tape.nodes:
            if node.chain:
                self.chains.setdefault((node.chain, node.kind), []).append(node)
        if not self.needed or not np.array_equal(
            self.needed[-1].value, probe.right[output], equal_nan=True
        ):
            raise TooLongError

    @cached_property
    def with_ct(self) -> set[int]:
        """Indices of the operations that the cotangent flows through."""
        found = {n.index for n in self.tape.nodes if n.name.startswith("ct") and not n.chain}
        for node in self.needed:
            if not found.isdisjoint(node.parents):
                found.add(node.index)
        return found

    @cached_property
    def known(self) -> set[int]:
        """Indices of the values that forward has, too, arguments included."""
        tape = self.tape
        own = {key_of(n) for n in tape.nodes[tape.length :]}
        return {n.index for n in tape.nodes[: tape.length] if n.name or key_of(n) in own}

    @cached_property
    def elementwise(self) -> bool:
        """Whether the operator acts element by element."""
        spec = self.probe.truth.spec
        assert spec is not None
        return not re.search(r"[a-z]", spec.signature)

    def ancestors(self, node: Node) -> list[Node]:
        """The operations and leaves that a value was computed from, itself included."""
        found: dict[int, Node] = {}
        stack = [node.index]
        while stack:
            k = stack.pop()
            if k not in found:
                found[k] = self.tape.nodes[k]
                stack.extend(found[k].parents)
        return [*found.values()]

    def again(self, changes: Changes) -> Array | None:
        """The gradient with operations performed otherwise; None where that is not defined."""
        if not changes:
            return self.needed[-1].value
        try:
            with np.errstate(all="ignore"):
                found = replay(self.needed, changes)
        except (ArithmeticError, LookupError, TypeError, ValueError):
            return None
        return found if found.shape == self.needed[-1].value.shape else None


def key_of(node: Node) -> tuple[tuple[int, ...], bytes]:
    """Shape and bits of a value, which identify it."""
    return node.value.shape, node.value.tobytes()


Changes = Mapping[int, Change]
"""What is performed otherwise on one tape, by the operations' indices."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Edit:
    """One change of the text: `changes(run)` is that change on the tape of any probe.

    It is None where the change has no meaning. Of edits that fit equally well, the one with the
    lowest `rank` is likelier.
    """

    label: str
    says: str
    changes: Callable[[Run], Changes | None]
    rank: int = 0
    evidence: tuple[str, ...] = ()


def at(target: Target, change: Change) -> Callable[[Run], Changes]:
    """Change all operations of a target."""
    return lambda run: {node.index: change for node in target.on(run)}


def all_of(every: tuple[Target, ...], change: Change) -> Callable[[Run], Changes]:
    """Change all operations of several targets."""
    return lambda run: {n.index: change for target in every for n in target.on(run)}


@dataclass(slots=True)
class Text:
    """The text under every probe of one gradient."""

    obs: Observations
    work: int = 0
    _runs: dict[int, Run | None] = field(default_factory=dict)

    def run(self, probe: Probe) -> Run | None:
        """The text at one probe; None where it cannot be noted."""
        if id(probe) not in self._runs:
            try:
                self._runs[id(probe)] = Run(probe, self.obs.output)
            except Exception:  # noqa: BLE001  a text may do what a tape cannot note
                self._runs[id(probe)] = None
        return self._runs[id(probe)]

    def predicted(self, probe: Probe, edit: Edit) -> Array | None:
        """The gradient under an edit."""
        run = self.run(probe)
        changes = None if run is None else edit.changes(run)
        return None if run is None or changes is None else run.again(changes)

    @property
    def spent(self) -> bool:
        """Whether so much was tried that no more is."""
        return self.work > MAX_REPLAYED_OPERATIONS

    def tried(self, run: Run, changes: Changes | None) -> Array | None:
        """The gradient at the first probe, with the work counted."""
        first = min(changes, default=len(run.tape.nodes)) if changes else 0
        self.work += EDIT_OVERHEAD + len(run.needed) - bisect_left(run.needed, first, key=_index)
        return None if changes is None else run.again(changes)


class Match:
    """A quick test at the first probe: a prediction that fails it reproduces nothing."""

    def __init__(self, probe: Probe, output: str) -> None:
        """Find the element that tells most."""
        self.probe, self.output = probe, output
        self.got, self.right = probe.got[output], probe.right[output]
        with np.errstate(all="ignore"):
            off = np.abs(self.got - self.right)
        self._finite = bool(np.isfinite(off).all())
        self._k = int(np.argmax(off)) if off.size else 0
        self._off = float(off.flat[self._k]) if off.size else 0.0

    def __call__(self, prediction: Array | None) -> bool:
        """Whether the prediction reproduces the returned gradient."""
        if prediction is None or prediction.shape != self.got.shape:
            return False
        if self._finite:
            mine = abs(float(prediction.flat[self._k]) - float(self.got.flat[self._k]))
            if not mine <= MAX_RELATIVE_DISTANCE * self._off:
                return False
        return self.probe.reproduces(prediction, self.output)


Described = tuple[str, str, Change]
"""A class, what is said of it, and what becomes of an operation."""


@dataclass(frozen=True, slots=True)
class Search:
    """The search for edits of a text that reproduce the returned gradient at the first probe."""

    text: Text
    run: Run
    like: Match

    def fitting(
        self,
        label: str,
        says: str,
        changes: Callable[[Run], Changes | None],
        rank: int = 0,
    ) -> Iterator[Edit]:
        """The edit, if it fits."""
        if self.like(self.text.tried(self.run, changes(self.run))):
            yield Edit(label=label, says=says, changes=changes, rank=rank)

    def targets(self, of: Callable[[Node], Any]) -> Iterator[tuple[Node, Target, Any]]:
        """Each target of an operation for which `of` gives something, once, the last ones first."""
        seen: set[Target] = set()
        for node in reversed(self.run.needed):
            found = of(node)
            for target in targets(node, self.run) if found else ():
                if target not in seen and not self.text.spent:
                    seen.add(target)
                    yield node, target, found

    def everywhere(self, changes_of: Callable[[Node, Run], Iterable[Described]]) -> Iterator[Edit]:
        """Each change that there is of each operation, where it fits."""
        for _, target, changes in self.targets(lambda node: [*changes_of(node, self.run)]):
            for label, says, change in changes:
                yield from self.fitting(
                    label, f"{self.text.obs.gradient}: {says}", at(target, change)
                )
