"""Calls of functions in another process: arguments are sent there, answers come back."""

from __future__ import annotations

import builtins
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from gradcheck import errors
from gradcheck.errors import Unsupported
from gradcheck.implementations.processes import frames
from gradcheck.implementations.processes.crash_or_hang import Ending, WorkerError
from gradcheck.implementations.returned import Broken, broken
from gradcheck.implementations.wire import Cargo, Packer, Unpacker
from gradcheck.results.finding import Finding, Part
from gradcheck.results.verdict import Verdict
from gradcheck.spec.program import Stage, StageVjp

if TYPE_CHECKING:
    from gradcheck.implementations.isolated import Isolated

FOUND: Final = (Verdict.FAIL, Verdict.MISSING, Verdict.ERROR)
"""Verdicts that the other process may report; this process decides all others."""
MALFORMED: Final = (frames.FrameError, ValueError, KeyError, IndexError, TypeError, AttributeError)
"""Exceptions of reading a malformed answer."""
FORGED: Final = "the code wrote into the channel of its own process"
"""The reason for a process whose answer is malformed or answers another request."""
Given = tuple[Mapping[str, Any], Sequence[Any]]
"""A header and its blocks."""


WRITTEN: Final = ("recipe", "callee")
"""What a `Bound` says for scripts."""


class Handle:
    """Something bound in the process; it is bound again where that has been started anew."""

    def __init__(
        self,
        owner: Isolated,
        op: str,
        variant: str,
        asked: Mapping[str, Any],
        attrs: dict[str, Any],
    ) -> None:
        """Bind nothing yet: `asked` is the request, to which `attrs` of the point are added.

        Crashes are counted by `variant`.
        """
        self.owner, self.op, self.variant = owner, op, variant
        self._asked, self._point_attrs = asked, attrs
        self._generation, self._number = -1, 0
        self.facts: Mapping[str, Any] = {}
        self.attrs: dict[str, Any] = {}
        self.written: dict[str, dict[str, Any]] = {}

    def __del__(self) -> None:
        self.owner.drop(self._generation, self._number)

    def bound(self) -> bool:
        """Bind it; False: the implementation says nothing about it.

        Raises:
            Broken: the process died of it.
            Whatever binding raises there.
        """
        packer = Packer(Cargo(), adds=True)
        asked = {**self._asked, "attrs": packer.pack(self._point_attrs)}
        try:
            return self._take(self.owner.exchange(asked, packer.blocks))
        except WorkerError as end:
            raise self.owner.crashed(self.variant, "vjp", end.ending) from None

    def offered(self) -> bool:
        """Bind it; False: the implementation says nothing about it, in a fresh process too.

        Raises:
            Broken: the process died of it, or a fresh process supports it.
            Whatever binding raises there.
        """
        try:
            if self.bound():
                return True
        except Unsupported:
            self.owner.confirm(self, Handle._binds, calls=False)
            raise
        self.owner.confirm(self, Handle._binds, calls=False)
        return False

    def _binds(self) -> bool:
        try:
            return self.bound()
        except Unsupported:
            return False

    def role(self, name: str) -> Callable[..., Any]:
        """One of its functions."""
        return lambda *args, **options: self.call(name, args, options)

    def role_if_any(self, name: str) -> Callable[..., Any] | None:
        """One of its functions, or None where it has no such."""
        return self.role(name) if name in self.facts["roles"] else None

    def stage(self, stage: Stage) -> StageVjp | None:
        """A model's implementation of one stage's VJP."""
        asked = {"kind": "stage", "number": self._live(), "name": stage.name}
        handle = StageHandle(self, asked)
        return handle.vjp if handle.offered() else None

    def call(self, role: str, args: Sequence[Any], options: Mapping[str, Any]) -> Any:
        """Call it there.

        Raises:
            Broken: the process died or hung, or only a fresh process supports it.
            Whatever the function raises there.
        """
        try:
            return self._once(role, args, options)
        except (Unsupported, NotImplementedError):
            self.owner.confirm(self, lambda other: other._supports(role, args, options), calls=True)
            raise
        except WorkerError as end:
            ending = end.ending
        why = self.owner.crashed(self.variant, role, ending)
        if self.owner.repeats(self.variant, ending) and not self._dies_again(role, args, options):
            text = f"{why.finding.reason}; not in a process of its own, so it depends on the calls "
            why = broken(role, f"{text}before: look for memory that is kept, or freed twice",
                         Verdict.CRASH)  # fmt: skip
        raise why from None

    def _dies_again(self, role: str, args: Sequence[Any], options: Mapping[str, Any]) -> bool:
        try:
            self._once(role, args, options)
        except WorkerError:
            return True
        except Exception:  # noqa: BLE001  the process lives
            return False
        return False

    def elsewhere(self, owner: Isolated) -> Handle:
        """An equal handle, to be bound in another process."""
        return Handle(owner, self.op, self.variant, self._asked, self._point_attrs)

    def _supports(self, role: str, args: Sequence[Any], options: Mapping[str, Any]) -> bool:
        """Whether the call raises anything but `Unsupported` and NotImplementedError."""
        try:
            if not self.bound():
                return False
            self._once(role, args, options)
        except (Unsupported, NotImplementedError):
            return False
        except Exception:  # noqa: BLE001  any other end means that it is supported
            return True
        return True

    def _once(self, role: str, args: Sequence[Any], options: Mapping[str, Any]) -> Any:
        cargo = Cargo()
        packer = Packer(cargo, adds=True)
        asked = {
            "kind": "call",
            "number": self._live(),
            "role": role,
            "call": self.owner.calls,
            "args": packer.pack(tuple(args)),
            "options": packer.pack(dict(options)),
        }

        def give(name: str) -> Given:
            (values,) = (a for a in args if isinstance(a, Mapping) and not isinstance(a, dict))
            try:
                value = values[name]
            except KeyError as error:
                return {"kind": "lacking", "text": str(error.args[0])}, ()
            more = Packer(cargo, adds=True)
            return {"kind": "value", "value": more.pack(value)}, more.blocks

        self.owner.runs(self.op)
        seconds = None
        if self.facts["compiles"]:
            sizes = _sizes((args, options))
            seconds = self.owner.seconds(f"{self.variant} {role} {sizes}")
        frame = self.owner.exchange(asked, packer.blocks, give, seconds, cargo)
        try:
            found = self.owner.answered(frame, cargo)
        except MALFORMED as error:
            self.owner.close()
            raise WorkerError(nonsense(error)) from None
        if isinstance(found, Raised):
            raise found.error
        return found

    def _live(self) -> int:
        """The number of the binding in the present process."""
        if self._generation != self.owner.generation:
            self.bound()
        return self._number

    def _take(self, frame: frames.Frame) -> bool:
        said = frame.header
        if said["kind"] == "raised":
            raise exception_of(said)
        if said["kind"] == "none":
            return False
        self._generation, self._number = self.owner.generation, int(said["number"])
        self.facts = said
        if "attrs" in said:
            self.attrs = Unpacker(Cargo(), adds=False).unpack(said["attrs"], frame.blocks)
        unpacker = Unpacker(Cargo(), adds=False)
        self.written = {n: unpacker.unpack(said[n], frame.blocks) for n in WRITTEN if n in said}
        return True


class StageHandle(Handle):
    """A stage of a model that is bound there."""

    def __init__(self, model: Handle, asked: Mapping[str, Any]) -> None:
        """Bind nothing yet; the stage is found by the number that its model has there."""
        super().__init__(model.owner, model.op, model.variant, asked, {})
        self.model = model

    def bound(self) -> bool:
        asked = {**self._asked, "number": self.model._live()}
        try:
            return self._take(self.owner.exchange(asked))
        except WorkerError as end:
            raise self.owner.crashed(self.variant, "vjp", end.ending) from None

    def elsewhere(self, owner: Isolated) -> Handle:
        return StageHandle(self.model.elsewhere(owner), self._asked)

    def vjp(self, stage: Stage, cts: Any, values: Mapping[str, Any]) -> Any:
        """The stage's VJP; values travel when it looks at them."""
        return self.call("stage", (cts, values), {})


def _sizes(value: Any) -> str:
    """The shapes and dtypes of arrays among arguments, and the values of attributes."""
    if isinstance(value, np.ndarray):
        return f"{value.dtype}{value.shape}"
    if isinstance(value, dict):
        return f"{{{', '.join(f'{key}: {_sizes(value[key])}' for key in value)}}}"
    if isinstance(value, (tuple, list)):
        return f"({', '.join(map(_sizes, value))})"
    return type(value).__name__ if isinstance(value, Mapping) else repr(value)


@dataclass(frozen=True, slots=True)
class Raised:
    """The function raised, after it may have written into its arguments."""

    error: BaseException


def exception_of(said: Mapping[str, Any], *, interrupts: bool = False) -> BaseException:
    """The exception of the other process, with its name and text, to be caught as what it was.

    A KeyboardInterrupt is one only where it `interrupts`: of a call it is the code's own.
    """
    text = str(said["text"])
    told = said.get("finding")
    if told is not None and Verdict(told["verdict"]) in FOUND:
        return Broken(
            Finding(
                name=told["name"],
                verdict=Verdict(told["verdict"]),
                reason=told["reason"],
                part=Part(told["part"]),
                printed=told["printed"],
            )
        )
    if said["ours"]:
        ours = getattr(errors, said["ours"])
        found: BaseException = ours.__new__(ours, text)
        return found
    base = getattr(builtins, said["builtin"])
    if issubclass(base, BaseExceptionGroup):  # it cannot be made without its parts
        base = Exception
    if issubclass(base, KeyboardInterrupt) and not interrupts:
        base = Exception
    kind = type(str(said["name"]), (base,), {"__str__": lambda _: text})
    made: BaseException = base.__new__(kind)
    return made


def nonsense(error: Exception) -> Ending:
    """The end of a process whose answer makes no sense."""
    return Ending(
        verdict=Verdict.CRASH,
        reason=f"{FORGED} ({error})",
    )
