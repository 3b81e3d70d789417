"""Conversations with a program: one process for all requests, or one per request (`oneshot`)."""

from __future__ import annotations

import secrets
import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, Final, TypeVar

from gradcheck.errors import LoadError, Unsupported
from gradcheck.implementations.manifest.operation import Program
from gradcheck.implementations.processes.child import Child
from gradcheck.implementations.processes.crash_or_hang import Ending, WorkerError, in_words, said_in
from gradcheck.implementations.processes.frames import MAGIC
from gradcheck.implementations.protocol import folder
from gradcheck.implementations.protocol.levels import LEVELS, STRAY_MAX, Level, Received, Strays
from gradcheck.implementations.protocol.message import (
    NAME,
    SHOWN,
    VERSION,
    A,
    Block,
    Done,
    Failure,
    Hello,
    Lacking,
    Pong,
    Raw,
    Request,
    Result,
    Violation,
    check_seq,
    fitting,
    parse,
    shown,
    tame,
)
from gradcheck.results.printed import Heard, shortened
from gradcheck.results.verdict import Verdict

T = TypeVar("T")
STRAYED: Final = "your program printed to stdout: "
HELLO_MAX: Final = 1 << 20
"""Bytes of a `hello`: room for some ten thousand operators."""
SEQ: Final = 1 << 31
"""`seq` is drawn below: what an operator's code has left behind does not know that of the next."""


class Failed(Exception):  # noqa: N818  the program has
    """The program answered that it could not do what it was asked; `trace` may say where."""

    def __init__(self, failure: Failure) -> None:
        """Repeat its words."""
        super().__init__(tame(failure.message) or "no message")
        self.trace = failure.traceback


class Session:
    """A program that speaks `frames` or `jsonl`; its methods raise the exceptions of `run`."""

    def __init__(self, program: Program) -> None:
        """Start nothing yet."""
        self.program = program
        self._strays = Strays()
        self._child: Child | None = None
        self._level: Level
        self._hello: Hello | None = None
        self._said = ""  # what a process that is gone has printed

    @property
    def hello(self) -> Hello:
        """The program's greeting: its operators."""
        if self._hello is None:
            try:
                self._begin()
            except (WorkerError, Violation, Failed) as error:
                ended = error.ending.printed if isinstance(error, WorkerError) else ""
                printed = "" if ended.startswith(STRAYED) else tail(ended + self.printed())
                raise LoadError(
                    f"{self._who}, asked what it offers: {error}{printed}{self._other_level}"
                ) from error
        assert self._hello is not None
        return self._hello

    def run(self, request: Request) -> dict[str, Block]:
        """The blocks that answer a request, by name; one that was left out is absent.

        Raises:
            Unsupported: the program says that it lacks this.
            Failed: the program answered with an error.
            Violation: the answer breaks the protocol.
            WorkerError: the program ended, or is late.
            LoadError: it does not start.
        """
        seq = secrets.randbelow(SEQ)
        expected = sum(form.nbytes for form in request.wanted)
        blocks = [block.data for block in request.blocks]
        received = self.exchange(request.header(seq), blocks, expected)
        answer = self._answer(received[0], seq, Result, Lacking)
        if isinstance(answer, Lacking):
            raise Unsupported(tame(answer.reason) or f"{self.program.name} says that it lacks this")
        assert isinstance(answer, Result)
        _, data = received
        found = (Block(form, raw) for form, raw in zip(answer.blocks, data, strict=True))
        return fitting(request, found)

    def ping(self) -> None:
        self._told("ping", Pong)

    def reset(self) -> None:
        """Tell the program to forget every cache."""
        self._told("reset", Done)

    def exchange(self, header: Mapping[str, Any], blocks: Sequence[Raw], expected: int) -> Received:
        """Send a message and receive the next one, from a program that is started if need be."""
        child = self._ready()

        def call() -> Received:
            self._level.send(header, blocks, self.program.timeout)
            child.deadline(self.program.timeout)
            return self._level.receive(expected)

        return self._watched(call)

    def several(self, data: bytes, count: int) -> list[Received]:
        """Write the bytes of several messages at once, and receive an answer to each."""
        child = self._ready()

        def call() -> list[Received]:
            child.send([data], self.program.timeout)
            child.deadline(self.program.timeout)
            return [self._level.receive(0) for _ in range(count)]

        return self._watched(call)

    def last(self, data: bytes, *, close: bool) -> tuple[int, bytes]:
        """Write bytes, `close` the program's input or leave it open, and wait for its end.

        Returns:
            Its return code, as `subprocess` has it, and what it said before it went.
        """
        child, self._child = self._ready(), None
        try:
            child.send([data], self.program.timeout)
            if close:
                child.close_input()
            return child.wait(self.program.timeout), child.unread
        finally:
            child.kill()
            self._keep(child.printed())

    def printed(self) -> str:
        """The text printed since the last call."""
        strays = self._strays.take()
        said = self._said + (self._child.printed() if self._child is not None else "")
        self._said = ""
        return (f"{STRAYED}{strays.rstrip()}\n" if strays else "") + said

    @property
    def strayed(self) -> str:
        """The beginning of all that it ever printed on standard output, beside answers."""
        return self._strays.first.decode(errors="replace")

    def close(self) -> None:
        """Say `bye`, and see that the process ends. Safe to call twice."""
        child, self._child = self._child, None
        if child is None:
            return
        try:
            self._level.send({"kind": "bye"}, (), 1.0)
        except WorkerError:
            pass  # it is gone already
        finally:
            self._keep(child.printed())
            child.end()

    def _told(self, kind: str, answer: type[Pong] | type[Done]) -> None:
        seq = secrets.randbelow(SEQ)
        header, _ = self.exchange({"kind": kind, "seq": seq}, (), 0)
        self._answer(header, seq, answer)

    def _ready(self) -> Child:
        if self._hello is None:
            _ = self.hello  # begins, and says why if it cannot
        return self._child or self._begin()

    def _begin(self) -> Child:
        program = self.program
        try:
            child = Child(program.command, env=program.environment, cwd=program.path.parent)
        except OSError as error:
            raise LoadError(f"{self._who} does not start: {error.strerror or error}") from error
        self._child = child
        self._level = LEVELS[program.level](child, self._strays)

        def call() -> Hello:
            self._level.send({"kind": "hello", "protocol": [VERSION]}, (), program.startup)
            child.deadline(program.startup)
            header, _ = self._level.receive(0, HELLO_MAX)
            return self._welcome(header)

        try:
            hello = self._watched(call)
        except Exception:
            self._kill()
            raise
        self._hello = self._hello or hello
        return child

    def _welcome(self, header: Mapping[str, Any]) -> Hello:
        spoken = header.get("protocol")
        if header.get("kind") == Hello.kind and spoken != VERSION:
            raise LoadError(
                f"{self._who} speaks {NAME}/{shown(spoken, bare=True)}, "
                f"this gradcheck {NAME}/{VERSION}"
            )
        if header.get("kind") == Failure.kind:
            raise Failed(parse(header, Failure))
        return parse(header, Hello)

    def _answer(self, header: Mapping[str, Any], seq: int, *expected: type[A]) -> A:
        """The message as one of these answers to the request `seq`."""

        def call() -> A:
            answer = parse(header, *expected)
            _check_drawn(getattr(answer, "seq", None), seq)
            return answer

        if header.get("kind") == Failure.kind:
            failure = parse(header, Failure)
            if failure.seq is None:
                self._kill()  # it could not read the request, and ends
            else:
                self._watched(lambda: _check_drawn(failure.seq, seq))
            raise Failed(failure)
        return self._watched(call)

    def _watched(self, call: Callable[[], T]) -> T:
        """The result of `call`; a program that is lost while it runs is ended."""
        try:
            return call()
        except WorkerError as error:
            if self._child is not None and self.program.level == "jsonl":
                with suppress(Violation):  # a flood: the end says more
                    self._strays.add(self._child.unread[:STRAY_MAX])  # a line that was not ended
            self._kill()
            raise WorkerError(self._with_strays(error.ending)) from None
        except Violation as error:
            if error.derailed:
                self._kill()
            raise
        except KeyboardInterrupt:
            self._kill()
            raise

    def _with_strays(self, ending: Ending) -> Ending:
        strays = self._strays.take()
        if not strays.strip():
            return ending
        return replace(
            ending,
            reason=f"{ending.reason}; {STRAYED}{shown(strays)}",
            printed=f"{STRAYED}{strays.rstrip()}\n{ending.printed}",
        )

    def _kill(self) -> None:
        child, self._child = self._child, None
        if child is not None:
            child.kill()
            self._keep(child.printed())

    def _keep(self, printed: str) -> None:
        self._said = shortened(self._said + printed)

    @property
    def _other_level(self) -> str:
        """A hint, if what it says looks like the words of another level."""
        other = {"frames": "jsonl", "jsonl": "frames"}[self.program.level]
        begins = {"jsonl": "{", "frames": MAGIC[:4].decode()}[other]
        return f"; is its level {other}?" if self.strayed.startswith(begins) else ""

    @property
    def _who(self) -> str:
        return f"{self.program.name} ({' '.join(self.program.command)})"


def _check_drawn(got: Any, sent: int) -> None:
    """Refuse the answer to another request; the message does not depend on the random seq."""
    try:
        check_seq(got, sent)
    except Violation:
        raise Violation(
            "the answer has another seq than the request; send it back as it came", derailed=True
        ) from None


def tail(printed: str) -> str:
    """The program's last words on its end, to be appended to a message."""
    last = tame(said_in(printed) or printed.strip()[-SHOWN:].rpartition("\n")[2])
    return f"; it printed: {last}" if last else ""


LACKS: Final = 3
"""The exit status that means "unsupported"."""


class Oneshot:
    """A program of level `oneshot`, with the methods of a `Session` that it supports."""

    def __init__(self, program: Program) -> None:
        """Start nothing yet."""
        self.program = program
        self._said = ""

    def run(self, request: Request) -> dict[str, Block]:
        """The blocks that answer a request, by name; one that was left out is absent.

        Raises:
            Unsupported: the program exits with 3.
            Failed: it exits with another status than 0.
            Violation: what it wrote breaks the protocol.
            WorkerError: it was killed by a signal, or is late.
            LoadError: it does not start.
        """
        with tempfile.TemporaryDirectory(prefix="gradcheck-") as name:
            place = Path(name)
            folder.write(place, request)
            self._started(place)
            try:
                return fitting(request, folder.read(place, request))
            except folder.FolderError as error:
                raise Violation(shown(str(error), bare=True)) from None

    def printed(self) -> str:
        said, self._said = self._said, ""
        return said

    def close(self) -> None: ...

    def status(self, *arguments: str) -> int:
        """Start the program with `arguments`, and wait: its return code, as `subprocess` has it."""
        program = self.program
        command = [*program.command, *arguments]
        try:
            child = Child(command, env=program.environment, cwd=program.path.parent)
        except OSError as error:
            raise LoadError(f"{program.name} does not start: {error.strerror or error}") from error
        try:
            child.close_input()
            code = child.wait(program.timeout)
            self._said = _strays(child) + child.printed()
        except WorkerError as error:
            printed = _strays(child) + error.ending.printed
            raise WorkerError(replace(error.ending, printed=printed)) from None
        finally:
            child.kill()
        return code

    def _started(self, place: Path) -> None:
        code = self.status(str(place))
        if code < 0:
            reason, printed = in_words(code), self.printed()
            raise WorkerError(Ending(verdict=Verdict.CRASH, reason=reason, printed=printed))
        last = tame(self._said.strip()[-SHOWN:].rpartition("\n")[2])
        if code == LACKS:
            raise Unsupported(last or f"{self.program.name} says that it lacks this")
        if code:
            last = tame(said_in(self._said)) or last
            said = f"it exited with status {code}" + (f": {last}" if last else "")
            raise Failed(Failure(seq=None, message=said))


def _strays(child: Child) -> str:
    """Standard output of a program that should print nothing there."""
    heard = Heard()
    heard.add(child.unread)
    text = heard.take().rstrip()
    return f"{STRAYED}{text}\n" if text else ""
