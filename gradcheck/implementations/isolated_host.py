"""The process in which a user's Python runs: it loads an implementation and answers calls.

Started by `implementations.isolated`. Whatever the code does to its process (a segmentation fault,
`os._exit`, an endless loop) ends this one alone.
"""

from __future__ import annotations

import builtins
import contextlib
import ctypes
import faulthandler
import os
import signal
import sys
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Final

import numpy as np

from gradcheck.errors import GradcheckError
from gradcheck.implementations.bound import Bound, BoundModel, BoundRule, Implementation, bind
from gradcheck.implementations.isolated_calls import WRITTEN
from gradcheck.implementations.load import load
from gradcheck.implementations.processes import frames
from gradcheck.implementations.processes.floats import FLUSHING, Floats
from gradcheck.implementations.processes.frames import ParentChannel, end_with_parent
from gradcheck.implementations.returned import Broken, broken, is_ours
from gradcheck.implementations.wire import (
    EARLIER,
    KEPT,
    Cargo,
    OversizedError,
    Packer,
    Unpacker,
    span,
)
from gradcheck.spec.case import AnyCase
from gradcheck.spec.loading import load_suite
from gradcheck.spec.model import ModelCase
from gradcheck.spec.suite import Case, Suite
from gradcheck.system.posix import libc

COMPILERS: Final = ("jax", "numba", "torch._dynamo", "triton")
"""Modules of compilers that compile a function when it is first called with arguments of a size."""
NONE: Final = {"kind": "none"}
"""The answer where nothing is bound."""
TEXT: Final = 20_000
"""Characters of an exception's text that are worth sending."""


@dataclass(frozen=True, slots=True)
class _Given:
    """The arrays that a call returned, and what they held then."""

    call: int
    arrays: list[Any]
    bytes: list[bytes]


class Host:
    """An implementation, and what was bound of it, by number."""

    def __init__(self, channel: ParentChannel) -> None:
        """Nothing is loaded yet."""
        self.channel = channel
        self.implementation: Implementation
        self.suite: Suite
        self.bound: dict[int, dict[str, Callable[..., Any]]] = {}
        self.models: dict[int, tuple[ModelCase, BoundModel]] = {}
        self.given: dict[int, deque[_Given]] = {}
        self._next = 0
        self._stamp = b""
        self._floats = Floats()

    def serve(self) -> None:
        """Answer one request; an exception of the called code is an answer."""
        request = frames.read(self.channel.exactly)
        asked, cargo = request.header, Cargo()
        self._stamp = bytes.fromhex(asked["stamp"])
        for number in asked.get("drop", ()):
            self.bound.pop(number, None)
            self.models.pop(number, None)
            self.given.pop(number, None)
        here = Unpacker(cargo, adds=True, lazily=lambda names: _Remote(names, self, here))
        packer = Packer(cargo, adds=False)
        try:
            with np.errstate(all="ignore"):
                said = self._answer(asked, request.blocks, here, packer)
        except BaseException as error:  # noqa: BLE001  the parent raises it again
            packer = Packer(cargo, adds=False)
            said = _raised(error)
            if asked["kind"] != "begin" and said["builtin"] == "KeyboardInterrupt":
                said["builtin"] = "Exception"  # Ctrl-C is heard by the parent: this is the code's
        self._floats.set()
        _flush()
        self.channel.check()
        self.channel.restore()
        try:
            said = {**said, **_after(here, packer), **self._late(asked, packer)}
            self.send(said, packer.blocks)
        except (OversizedError, frames.FrameError) as error:
            try:
                raise _refused(asked, error) from None
            except Broken as refused:  # where it was raised tells whose it is
                said = _raised(refused)
            self.send({**said, "changed": [], "emptied": [], "late": []}, [])

    def send(self, header: Mapping[str, Any], blocks: Sequence[Any]) -> None:
        """One frame to the parent.

        Raises:
            FrameError: it is too large, and nothing was sent.
        """
        for piece in frames.pieces(header, blocks, self._stamp):
            self.channel.write(piece)

    def _answer(
        self, asked: Mapping[str, Any], blocks: Sequence[memoryview], here: Unpacker, packer: Packer
    ) -> dict[str, Any]:
        kind = asked["kind"]
        if kind == "begin":
            sys.argv[:] = asked["argv"]
            self.suite = load_suite(asked["suites"])
            self.implementation = load(asked["word"], self.suite, build=False)
            self._floats = Floats()  # of its users, who import it as well
            return {"kind": "done"}
        if kind == "bind":
            attrs = here.unpack(asked["attrs"], blocks)
            return self._bind(self._case(asked, attrs), asked["dtype"], packer)
        if kind == "stage":
            return self._stage(asked["number"], asked["name"])
        function = self.bound[asked["number"]][asked["role"]]
        words = here.unpack(asked["args"], blocks)
        options = here.unpack(asked["options"], blocks)
        here.watched = [(d, [*d.items()]) for d in here.cargo.dicts]
        value = function(*words, **options)
        for what in self._floats.changed():
            if what != FLUSHING:  # a library that it has imported may be linked with -Ofast
                raise broken(asked["role"], f"{asked['role']} leaves another {what}; restore it")
        try:
            return {"kind": "returned", "value": packer.pack(value)}
        except OversizedError as error:
            raise _refused(asked, error) from None

    def _late(self, asked: Mapping[str, Any], packer: Packer) -> dict[str, Any]:
        """Writes of this call into arrays that earlier calls returned; its own results are kept."""
        if asked["kind"] != "call":
            return {}
        late = []
        earlier = self.given.setdefault(asked["number"], deque(maxlen=EARLIER))
        for given in earlier:
            for i, array in enumerate(given.arrays):
                now = ctypes.string_at(*span(array))
                if now != given.bytes[i]:
                    given.bytes[i] = now
                    late.append([given.call, i, len(packer.blocks)])
                    packer.blocks.append(now)
        if packer.returned and sum(span(array)[1] for array in packer.returned) <= KEPT:
            held = [ctypes.string_at(*span(array)) for array in packer.returned]
            earlier.append(_Given(asked["call"], packer.returned, held))
        return {"late": late}

    # ── binding ──────────────────────────────────────────────────────────────────────────────

    def _case(self, asked: Mapping[str, Any], attrs: dict[str, Any]) -> AnyCase:
        """The case of a request: a sample of the suite, or a derived one with these attributes."""
        name, dialect, point, seed = asked["names"]
        if name not in self.suite.operators:
            return self.suite.case(name, dialect, point, seed)
        spec = self.suite.operators[name]
        known = next((s for s in spec.samples if s.name == point), spec.samples[0])
        sample = replace(known, name=point, attrs=attrs)
        return Case(spec, spec.dialect(dialect), sample, seed, self.suite.home[name])

    def _bind(self, case: AnyCase, dtype: str, packer: Packer) -> dict[str, Any]:
        bound = bind(self.implementation, case, dtype)
        if bound is None:
            return dict(NONE)
        if isinstance(bound, Bound):
            return self._operator(bound, packer)
        if isinstance(bound, BoundRule):
            return self._rule(bound, packer)
        assert isinstance(case, ModelCase)
        return self._model(case, bound)

    def _operator(self, bound: Bound, packer: Packer) -> dict[str, Any]:
        roles = {"vjp": bound.vjp, "forward": bound.forward, "asked": bound.asked}
        facts: dict[str, Any] = {"strided": bound.strided, "source": bound.source}
        facts["missing"] = dict(bound.missing)
        if bound.into is not None:
            roles["into"] = bound.into.call
            facts["into"] = {
                "accumulates": sorted(bound.into.accumulates),
                "zeroed": sorted(bound.into.zeroed),
                "aliases": [[*pair] for pair in bound.into.aliases],
            }
        for name in WRITTEN:
            if (found := getattr(bound, name)) is not None:
                facts[name] = packer.pack(asdict(found))
        return {**self._kept(roles), **facts, "attrs": packer.pack(dict(bound.attrs))}

    def _model(self, case: ModelCase, bound: BoundModel) -> dict[str, Any]:
        said = self._kept({"gradients": bound.gradients, "loss": bound.loss})
        self.models[said["number"]] = (case, bound)
        return said

    def _rule(self, bound: BoundRule, packer: Packer) -> dict[str, Any]:
        said = self._kept({"update": bound.update, "init": bound.init})
        return {**said, "attrs": packer.pack(dict(bound.attrs))}

    def _stage(self, number: int, name: str) -> dict[str, Any]:
        case, bound = self.models[number]
        stage = next(s for s in case.program.stages if s.name == name)
        vjp = bound.stage(stage)
        if vjp is None:
            return dict(NONE)
        return self._kept({"stage": lambda cts, values: vjp(stage, cts, values)})

    def _kept(self, roles: Mapping[str, Callable[..., Any] | None]) -> dict[str, Any]:
        """Number what can be called."""
        self._next += 1
        found = {role: call for role, call in roles.items() if call is not None}
        self.bound[self._next] = found
        compiles = any(name in sys.modules for name in COMPILERS)
        return {
            "kind": "bound",
            "number": self._next,
            "roles": [*found],
            "compiles": compiles,
        }


class _Remote(Mapping[str, Any]):
    """A mapping whose values lie with the parent; each travels when it is first asked for."""

    def __init__(self, names: list[str], host: Host, here: Unpacker) -> None:
        self._names, self._host, self._here = names, host, here
        self._known: dict[str, Any] = {}
        self._lacking: dict[str, str] = {}

    def __getitem__(self, name: str) -> Any:
        name = str(name)
        if name not in self._known and name not in self._lacking:
            _flush()
            self._host.send({"kind": "get", "name": name}, [])
            answer = frames.read(self._host.channel.exactly)
            if answer.header["kind"] == "lacking":
                self._lacking[name] = answer.header["text"]
            else:
                self._known[name] = self._here.unpack(answer.header["value"], answer.blocks)
        if name in self._lacking:
            raise KeyError(self._lacking[name])
        return self._known[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)


def _after(here: Unpacker, packer: Packer) -> dict[str, Any]:
    """Writes of the call into its arguments: bytes of arrays, entries of dicts."""
    arrays = []
    for i, content in here.cargo.changed():
        arrays.append([i, len(packer.blocks)])
        packer.blocks.append(content)
    dicts = [
        [i, [[packer.pack(key), packer.pack(part)] for key, part in now.items()]]
        for i, (now, before) in enumerate(here.watched)
        if len(now) != len(before)
        or any(k is not a or v is not b for (k, v), (a, b) in zip(now.items(), before, strict=True))
    ]
    return {"changed": arrays, "emptied": dicts}


def _refused(asked: Mapping[str, Any], error: Exception) -> Broken:
    """The error that replaces an answer too large to send."""
    role, what = str(asked.get("role", "vjp")), str(error)
    if isinstance(error, frames.FrameError):
        what = (
            f"more than {frames.HEADER_MAX:,} bytes outside of arrays, or more than "
            f"{frames.BLOCKS_MAX:,} arrays"
        )
    return broken(role, f"{role} returned more than could be right: {what}")


def _raised(error: BaseException) -> dict[str, Any]:
    """An exception as data: its name and text, and the class to catch it by."""
    said: dict[str, Any] = {"kind": "raised", "name": type(error).__name__, "text": _text(error)}
    if isinstance(error, Broken) and is_ours(error):
        finding = error.finding
        said["finding"] = {
            "name": finding.name, "verdict": finding.verdict.value, "reason": finding.reason,
            "part": finding.part.value, "printed": finding.printed,
        }  # fmt: skip
    bases = type(error).__mro__
    said["ours"] = next(
        (c.__name__ for c in bases if issubclass(c, GradcheckError) and _is_ours(c)), ""
    )
    said["builtin"] = next(c.__name__ for c in bases if getattr(builtins, c.__name__, None) is c)
    return said


def _is_ours(kind: type) -> bool:
    return kind.__module__ == GradcheckError.__module__


def _text(error: BaseException) -> str:
    try:
        return str(error)[:TEXT]
    except BaseException:  # noqa: BLE001  a foreign __str__
        return "(its text cannot be read)"


def _flush() -> None:
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(BaseException):  # whatever the code has put in their place
            stream.flush()
    libc.fflush(None)


def main(words: Sequence[str]) -> None:
    """Serve the parent at the descriptors that `words` end with, until it is gone."""
    end_with_parent()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent hears Ctrl-C
    faulthandler.enable(os.dup(2))  # where a segmentation fault happened, is in what it printed
    host = Host(ParentChannel(int(words[-2]), int(words[-1])))
    while True:
        host.serve()
