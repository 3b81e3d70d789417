"""The streams of the command line: text for stdout, messages for stderr, colour and width."""

from __future__ import annotations

import os
import sys

from gradcheck.system import process

TYPE_CHECKING = False  # as type checkers know it, without importing `typing`
if TYPE_CHECKING:
    from typing import Final, TextIO

COLOR_VARIABLES: Final = ("FORCE_COLOR", "CLICOLOR_FORCE")
"""Environment variables that ask for colour without a terminal; 0 does not."""
PIPE_WIDTH: Final = 100
"""Columns of a stream that is not a terminal."""
MAX_WIDTH: Final = 160
"""Columns beyond which a line is hard to read."""


class ClosedPipe(Exception):  # noqa: N818  not an error
    """The reader of stdout has closed it."""


def open_streams() -> None:
    """Replace streams that the caller has closed (`<&-`, `>&-`) by empty ones."""
    process.open_standard()
    for number, name in enumerate(process.STANDARD):
        if getattr(sys, name) is None:
            mode = "w" if number else "r"
            setattr(sys, name, open(number, mode, encoding="utf-8", closefd=False))  # noqa: SIM115


def say(text: str) -> None:
    """Write one line to stderr; what `text` quotes after a colon and line break stands below it."""
    # door: only for a message
    from gradcheck.results.printed import MARK, lines
    from gradcheck.results.words import clean

    line, quotes, quoted = text.partition(":\n")
    told = [f"gradcheck: {clean(line)}{':' if quotes else ''}"]
    tell("\n".join([*told, *(f"  {MARK}{foreign}" for foreign in lines(quoted))]))


def tell(text: str, end: str = "\n") -> None:
    """Write trusted lines to stderr; drop them if it is closed."""
    try:
        print(text, file=sys.stderr, flush=True, end=end)
    except (OSError, ValueError):
        drop(sys.stderr)


def show(text: str) -> bool:
    """Write to stdout, escaping what its encoding lacks; False if that fails.

    Raises:
        ClosedPipe: its reader has closed it.
    """
    encoding = sys.stdout.encoding or "utf-8"
    try:
        sys.stdout.write(text.encode(encoding, "backslashreplace").decode(encoding))
        sys.stdout.flush()
    except BrokenPipeError:
        drop(sys.stdout)
        raise ClosedPipe from None
    except OSError as error:
        drop(sys.stdout)
        say(f"stdout: {error.strerror}")
        return False
    return True


def drop(stream: TextIO) -> None:
    """Redirect a stream to /dev/null, so that the interpreter can flush it."""
    try:
        number = stream.fileno()
    except (OSError, ValueError):  # it has no descriptor
        return
    nothing = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nothing, number)
    os.close(nothing)


def colored(choice: str) -> bool:
    """Whether stdout gets colour; `choice` is "always", "never" or "auto".

    "auto" follows NO_COLOR, then FORCE_COLOR and CLICOLOR_FORCE, then whether stdout is a terminal
    that can do more than print.
    """
    if choice != "auto":
        return choice == "always"
    if os.environ.get("NO_COLOR"):
        return False
    if any(os.environ.get(name, "0") not in ("", "0") for name in COLOR_VARIABLES):
        return True
    return sys.stdout.isatty() and not dumb()


def dumb() -> bool:
    """Whether the terminal can only print, as that of an editor."""
    return os.environ.get("TERM") == "dumb"


def width(stream: TextIO) -> int:
    """Columns of a terminal, at most `MAX_WIDTH`; `PIPE_WIDTH` for a file or a pipe."""
    return min(columns(stream), MAX_WIDTH) if stream.isatty() else PIPE_WIDTH


def columns(stream: TextIO | None, usual: int = PIPE_WIDTH) -> int:
    """Columns of a terminal, or the value of COLUMNS; `usual` for other streams."""
    said = os.environ.get("COLUMNS", "")
    if said.isdecimal() and int(said) > 0:
        return int(said)
    try:
        return (os.get_terminal_size(stream.fileno()).columns if stream else 0) or usual
    except (OSError, ValueError):  # no descriptor, or none of a terminal
        return usual
