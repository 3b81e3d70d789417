"""The streams of the command line: what goes to stdout, what is said on stderr, and how."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path
from typing import TextIO


def open_streams() -> None:
    """A stream that the caller has closed (`>&-`) swallows what it is given."""
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            setattr(sys, name, Path(os.devnull).open("w", encoding="utf-8"))  # noqa: SIM115


def say(text: str) -> None:
    """One line on stderr, whatever `text` holds; below it, framed, what it quotes after a colon."""
    from gradcheck.report.printed import MARK, lines
    from gradcheck.report.words import clean

    line, quotes, quoted = text.partition(":\n")
    print(f"gradcheck: {clean(line)}{':' if quotes else ''}", file=sys.stderr)
    for foreign in lines(quoted):
        print(f"  {MARK}{foreign}", file=sys.stderr)


def show(text: str) -> bool:
    """Write to stdout; what its encoding lacks is escaped. False: it cannot be written."""
    encoding = sys.stdout.encoding or "utf-8"
    try:
        sys.stdout.write(text.encode(encoding, "backslashreplace").decode(encoding))
        sys.stdout.flush()
    except BrokenPipeError:
        raise
    except OSError as error:
        drop_stdout()
        say(f"stdout: {error.strerror}")
        return False
    return True


def drop_stdout() -> None:
    """Let the interpreter flush what is left of stdout into nothing."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def colored(choice: str) -> bool:
    """Whether stdout takes colour: "always", "never", or "auto" (a terminal without NO_COLOR)."""
    if choice == "auto":
        return sys.stdout.isatty() and not os.environ.get("NO_COLOR")
    return choice == "always"


def width(stream: TextIO) -> int:
    """Columns of a terminal; 100 for a file or a pipe."""
    if not stream.isatty():
        return 100
    import shutil  # deferred: it imports every compressor there is

    return shutil.get_terminal_size((100, 24)).columns


class Progress:
    """One line on stderr, for runs that last longer than a second."""

    def __init__(self, shown: bool) -> None:
        """Start the clock; nothing is ever printed unless `shown`."""
        self._shown = shown
        self._start = self._last = time.monotonic()
        self._length = 0

    def __call__(self, done: int, total: int, name: str) -> None:
        """Say how far the run is, at most ten times a second."""
        now = time.monotonic()
        if not self._shown or now - self._start < 1 or now - self._last < 0.1:
            return
        self._last = now
        left = (now - self._start) / max(done, 1) * (total - done)
        self._print(f"{done}/{total}  {left:.0f} s left  {name}")

    def clear(self) -> None:
        """Leave an empty line behind."""
        if self._length:
            self._print("")

    def _print(self, text: str) -> None:
        text = text[:100]
        sys.stderr.write(f"\r{text.ljust(self._length)}\r{text}")
        sys.stderr.flush()
        self._length = len(text)
