"""A tape of every operation of a spec's text, and its replay with some of them changed.

The text runs once, in float64, on arrays that note each operation with its operands and its place
in the source. To ask what the text would give with one operation changed, only what depends on
that operation is computed again.
"""

from __future__ import annotations

import operator
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import CodeType
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from gradcheck.numerics import arithmetic
from gradcheck.numerics.arithmetic import F64
from gradcheck.numerics.arrays import Attrs, as_tuple

Array = NDArray[Any]
Place = tuple[CodeType, int]
"""A code object and the offset of the instruction that performs an operation."""

_OWN: Final = frozenset({__file__, arithmetic.__file__})
_PLAIN: Final = frozenset({np.shape, np.ndim, np.size})
MAX_OPERATIONS: Final = 4000
"""Operations beyond which a text is too long to be asked again and again."""


class TooLongError(RuntimeError):
    """The text performs more operations than are worth noting."""


@dataclass(slots=True, eq=False)
class Node:
    """One operation: `kind` names it, `operands` are nodes and bare values, `value` its result.

    `call(operands)` performs it. `chain` is its place in the source, innermost first, with the
    places it was called from; `turn` counts the operations with the same chain, which a loop makes;
    `function` and `kwargs` are what it calls. A leaf (a primal, the cotangent, an attribute) has no
    place but a `name`.
    """

    index: int
    kind: str
    operands: tuple[Any, ...]
    call: Callable[[Sequence[Any]], Any]
    value: Array
    chain: tuple[Place, ...] = ()
    turn: int = 0
    name: str = ""
    parents: tuple[int, ...] = ()
    function: Any = None
    kwargs: Mapping[str, Any] = field(default_factory=dict)

    @property
    def place(self) -> Place | None:
        """Where in the source it stands; None for a leaf."""
        return self.chain[0] if self.chain else None


Change = Callable[[Node, list[Any]], Any]
"""What a changed operation gives: its node and the values of its operands there."""


class Traced(np.ndarray[Any, Any]):
    """An array that records its operations; those inside numpy functions count as constants."""

    node: Node | None
    tape: Tape | None

    def __array_finalize__(self, obj: Any) -> None:
        self.node = self.tape = None

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **kwargs: Any) -> Any:
        tape = next(t.tape for t in _traced((*inputs, *kwargs.values())))
        if method != "__call__" or "out" in kwargs or tape is None:
            plain = [_plain(x) for x in inputs]
            return getattr(ufunc, method)(*plain, **{k: _plain(v) for k, v in kwargs.items()})
        return tape.note(ufunc.__name__, ufunc, inputs, kwargs)

    def __array_function__(self, function: Any, types: Any, args: Any, kwargs: Any) -> Any:
        tape = next((t.tape for t in _traced(args) if t.tape), None)
        if function in _PLAIN or tape is None:
            return function(*map(_plain, args), **{k: _plain(v) for k, v in kwargs.items()})
        return tape.note(function.__name__, function, args, kwargs)

    def __getitem__(self, key: Any) -> Any:
        if self.tape is None:
            return _plain(self)[_plain(key)]
        return self.tape.note("getitem", operator.getitem, (self, key), {})

    def __iter__(self) -> Iterator[Any]:
        return (self[k] for k in range(len(self)))


def _traced(args: Any) -> Iterator[Traced]:
    for arg in args:
        if isinstance(arg, Traced):
            yield arg
        elif isinstance(arg, (list, tuple)):
            yield from _traced(arg)


def _plain(x: Any) -> Any:
    if isinstance(x, Traced):
        return x.view(np.ndarray)
    if isinstance(x, (list, tuple)):
        return type(x)(_plain(part) for part in x)
    return x


@dataclass(slots=True)
class Tape:
    """All operations in order, and which of them the outputs are."""

    nodes: list[Node] = field(default_factory=list)
    outputs: tuple[Node | None, ...] = ()
    """The gradients, one per primal; None for what is none, or was not computed."""
    length: int = 0
    """Operations of the VJP: those of forward, whose values may be taken by mistake, follow."""
    forward: tuple[Node | None, ...] = ()
    _turns: dict[tuple[Any, ...], int] = field(default_factory=dict)

    def leaf(self, name: str, value: Any) -> Traced:
        """An argument of the text."""
        node = Node(len(self.nodes), "leaf", (), lambda _: value, np.asarray(value), name=name)
        return self._held(node)

    def _held(self, node: Node) -> Traced:
        self.nodes.append(node)
        out = node.value.view(Traced)
        out.node, out.tape = node, self
        return out

    def note(self, kind: str, function: Any, args: Sequence[Any], kwargs: Any) -> Any:
        """Perform an operation on traced and bare arguments, and note it."""
        kwargs = {k: _plain(v) for k, v in kwargs.items()}
        operands: list[Any] = []
        widths: list[int] = []  # −1: the argument is one operand; else a list of so many
        for arg in args:
            many = kind != "getitem" and isinstance(arg, (list, tuple)) and bool([*_traced(arg)])
            operands.extend(map(_node, arg) if many else (_node(arg),))
            widths.append(len(arg) if many else -1)
        call = _calling(function, widths, kwargs)
        with np.errstate(all="ignore"):
            value = call([o.value if isinstance(o, Node) else o for o in operands])
        if not isinstance(value, (np.ndarray, np.generic, float)):
            return value
        if len(self.nodes) >= MAX_OPERATIONS:
            raise TooLongError
        chain = _chain()
        turn = self._turns[chain, kind] = self._turns.get((chain, kind), -1) + 1
        parents = tuple(o.index for o in operands if isinstance(o, Node))
        return self._held(
            Node(len(self.nodes), kind, tuple(operands), call, np.asarray(value), chain, turn,
                 parents=parents, function=function, kwargs=kwargs)
        )  # fmt: skip

    def needed(self, output: int) -> list[Node]:
        """The operations that a gradient depends on, in order."""
        last = self.outputs[output]
        if last is None:
            return []
        seen = {last.index}
        for node in reversed(self.nodes[: last.index + 1]):
            if node.index in seen:
                seen.update(node.parents)
        return [self.nodes[k] for k in sorted(seen)]


def replay(nodes: Sequence[Node], changes: Mapping[int, Change]) -> Array:
    """The value of the last of `nodes`, with the operations in `changes` (by index) changed.

    Raises whatever a changed operation raises where it is not defined.
    """
    new: dict[int, Any] = {}
    for node in nodes:
        change = changes.get(node.index)
        if change is None and new.keys().isdisjoint(node.parents):
            continue
        operands = [new.get(o.index, o.value) if isinstance(o, Node) else o for o in node.operands]
        new[node.index] = node.call(operands) if change is None else change(node, operands)
    last = nodes[-1]
    return np.asarray(new.get(last.index, last.value))


def _node(x: Any) -> Any:
    return x.node if isinstance(x, Traced) and x.node is not None else _plain(x)


def _calling(function: Any, widths: Sequence[int], kwargs: Any) -> Callable[[Sequence[Any]], Any]:
    if all(width < 0 for width in widths):
        return lambda operands: function(*operands, **kwargs)

    def call(operands: Sequence[Any]) -> Any:
        args, rest = [], list(operands)
        for width in widths:
            count = max(width, 1)
            args.append(rest[0] if width < 0 else rest[:width])
            del rest[: count if width != 0 else 0]
        return function(*args, **kwargs)

    return call


def _chain() -> tuple[Place, ...]:
    found: list[Place] = []
    frame = sys._getframe(2)
    while frame is not None and frame.f_code is not _RUN:
        code = frame.f_code
        if code.co_filename not in _OWN and "numpy" not in code.co_filename:
            found.append((code, frame.f_lasti))
        frame = frame.f_back  # type: ignore[assignment]
    return tuple(found)


class Tracing:
    """The arithmetic that texts are given: float64's, every call of it noted on a tape."""

    def __init__(self, tape: Tape) -> None:
        """Note on `tape`."""
        self._tape = tape

    def __getattr__(self, name: str) -> Any:
        own = getattr(F64, name)
        if not callable(own) or isinstance(own, type):
            return own
        tape = self._tape
        return lambda *args, **kwargs: tape.note(name, own, args, kwargs)

    def asarray(self, values: Any) -> Any:
        return values if isinstance(values, Traced) else self._tape.note(
            "asarray", F64.asarray, (values,), {}
        )  # fmt: skip


def _run(function: Any, /, *args: Any, **attrs: Any) -> tuple[Any, ...]:
    with np.errstate(all="ignore"):
        return as_tuple(function(*args, **attrs))


_RUN: Final = _run.__code__


def record(spec: Any, ct: Sequence[Array], names: Sequence[str], primals: Sequence[Array],
           attrs: Attrs) -> Tape:  # fmt: skip
    """The tape of a spec's VJP at one point, forward's operations behind it.

    `names` are the primals'. Attributes that are real numbers are noted, too.

    Raises:
        Exception: whatever the text raises where it cannot run on traced arrays.
    """
    tape = Tape()
    xp = Tracing(tape)
    cts = [tape.leaf("ct" if len(ct) == 1 else f"ct[{k}]", part) for k, part in enumerate(ct)]
    held = [tape.leaf(name, p) for name, p in zip(names, primals, strict=True)]
    given = {k: tape.leaf(k, v) if isinstance(v, float) else v for k, v in attrs.items()}
    whole: Any = cts[0] if len(cts) == 1 else tuple(cts)
    tape.outputs = _found(_run(spec.vjp, xp, whole, *held, **given))
    tape.length = len(tape.nodes)
    tape.forward = _found(_run(spec.forward, xp, *held, **given))
    return tape


def _found(outputs: Sequence[Any]) -> tuple[Node | None, ...]:
    return tuple(o.node if isinstance(o, Traced) else None for o in outputs)
