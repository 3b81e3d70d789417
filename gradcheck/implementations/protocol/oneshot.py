"""One process per request: the program is given a folder, and its exit status is the answer."""

from __future__ import annotations

import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Final

from gradcheck.errors import LoadError, Unsupported
from gradcheck.implementations.manifest.operation import Program
from gradcheck.implementations.processes.cause import said_in
from gradcheck.implementations.processes.child import Child
from gradcheck.implementations.processes.ending import Ended, Ending, in_words
from gradcheck.implementations.protocol import folder
from gradcheck.implementations.protocol.message import (
    SHOWN,
    Block,
    Failure,
    Request,
    Violation,
    fitting,
    shown,
    tame,
)
from gradcheck.implementations.protocol.session import STRAYED, Failed
from gradcheck.results.excerpt import Heard
from gradcheck.results.verdict import Verdict

LACKS: Final = 3
"""The exit status that means "unsupported"."""


class Oneshot:
    """A program of level `oneshot`; it has the same methods as a `Session`, as far as it can."""

    def __init__(self, program: Program) -> None:
        """Nothing is started yet."""
        self.program = program
        self._said = ""

    def run(self, request: Request) -> dict[str, Block]:
        """The blocks that answer a request, by name; one that was left out is absent.

        Raises:
            Unsupported: the program exits with 3.
            Failed: it exits with another status than 0.
            Violation: what it wrote breaks the protocol.
            Ended: it was killed by a signal, or is late.
            LoadError: it does not start.
        """
        with tempfile.TemporaryDirectory(prefix="gradcheck-") as name:
            place = Path(name)
            folder.write(place, request)
            self._started(place)
            try:
                return fitting(request, folder.read(place, request))
            except folder.BadFolder as error:
                raise Violation(shown(str(error), bare=True)) from None

    def printed(self) -> str:
        """What it has printed since this was last asked."""
        said, self._said = self._said, ""
        return said

    def close(self) -> None:
        """Nothing is open between two requests."""

    def status(self, *arguments: str) -> int:
        """Start the program with `arguments`, and wait: its return code, as `subprocess` has it.

        Raises:
            Ended: it is late.
            LoadError: it does not start.
        """
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
        except Ended as error:
            printed = _strays(child) + error.ending.printed
            raise Ended(replace(error.ending, printed=printed)) from None
        finally:
            child.kill()
        return code

    def _started(self, place: Path) -> None:
        """Start the program on a folder, and wait until it has exited with 0."""
        code = self.status(str(place))
        if code < 0:
            reason, printed = in_words(code), self.printed()
            raise Ended(Ending(verdict=Verdict.CRASH, reason=reason, printed=printed))
        last = tame(self._said.strip()[-SHOWN:].rpartition("\n")[2])
        if code == LACKS:
            raise Unsupported(last or f"{self.program.name} says that it lacks this")
        if code:
            last = tame(said_in(self._said)) or last
            said = f"it exited with status {code}" + (f": {last}" if last else "")
            raise Failed(Failure(seq=None, message=said))


def _strays(child: Child) -> str:
    """What came on standard output, where nothing is expected."""
    heard = Heard()
    heard.add(child.unread)
    text = heard.take().rstrip()
    return f"{STRAYED}{text}\n" if text else ""
