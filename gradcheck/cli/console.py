"""The streams of the command line: what goes to stdout, what is said on stderr, and how."""

from __future__ import annotations

import os
import sys

from gradcheck.system import descriptors

TYPE_CHECKING = False  # as type checkers know it, without importing `typing`
if TYPE_CHECKING:
    from typing import Final, TextIO

FORCED: Final = ("FORCE_COLOR", "CLICOLOR_FORCE")
"""What asks for colour where there is no terminal; 0 asks for nothing."""
USUAL: Final = 100
"""Columns of what is no terminal."""
WIDEST: Final = 160
"""Columns beyond which a line is hard to read."""


class Unread(Exception):  # noqa: N818  nobody reads
    """Whoever reads stdout has seen enough."""


def open_streams() -> None:
    """A stream that the caller has closed holds nothing (`<&-`), or swallows all (`>&-`)."""
    descriptors.fill()
    for number, name in enumerate(descriptors.STANDARD):
        if getattr(sys, name) is None:
            mode = "w" if number else "r"
            setattr(sys, name, open(number, mode, encoding="utf-8", closefd=False))  # noqa: SIM115


def say(text: str) -> None:
    """One line on stderr, whatever `text` holds; below it, framed, what it quotes after a colon."""
    from gradcheck.results.printed import MARK, lines
    from gradcheck.results.words import clean

    line, quotes, quoted = text.partition(":\n")
    told = [f"gradcheck: {clean(line)}{':' if quotes else ''}"]
    tell("\n".join([*told, *(f"  {MARK}{foreign}" for foreign in lines(quoted))]))


def tell(text: str, end: str = "\n") -> None:
    """Lines on stderr, of ours; where it cannot be written, for nobody."""
    try:
        print(text, file=sys.stderr, flush=True, end=end)
    except (OSError, ValueError):
        drop(sys.stderr)


def show(text: str) -> bool:
    """Write to stdout; what its encoding lacks is escaped. False: it cannot be written.

    Raises:
        Unread: nobody reads it.
    """
    encoding = sys.stdout.encoding or "utf-8"
    try:
        sys.stdout.write(text.encode(encoding, "backslashreplace").decode(encoding))
        sys.stdout.flush()
    except BrokenPipeError:
        drop(sys.stdout)
        raise Unread from None
    except OSError as error:
        drop(sys.stdout)
        say(f"stdout: {error.strerror}")
        return False
    return True


def drop(stream: TextIO) -> None:
    """Let the interpreter flush what is left of a stream into nothing."""
    try:
        number = stream.fileno()
    except (OSError, ValueError):  # it has no descriptor
        return
    nothing = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nothing, number)
    os.close(nothing)


def colored(choice: str) -> bool:
    """Whether stdout takes colour: "always", "never", or "auto".

    "auto" is what the environment says (NO_COLOR, then FORCE_COLOR and CLICOLOR_FORCE), else
    whether stdout is a terminal that can do more than print.
    """
    if choice != "auto":
        return choice == "always"
    if os.environ.get("NO_COLOR"):
        return False
    if any(os.environ.get(name, "0") not in ("", "0") for name in FORCED):
        return True
    return sys.stdout.isatty() and not dumb()


def dumb() -> bool:
    """Whether the terminal can do no more than print: an editor's, say."""
    return os.environ.get("TERM") == "dumb"


def width(stream: TextIO) -> int:
    """Columns of a terminal, as far as lines are pleasant to read; 100 for a file or a pipe."""
    return min(columns(stream), WIDEST) if stream.isatty() else USUAL


def columns(stream: TextIO | None, usual: int = USUAL) -> int:
    """Columns of a terminal, or what COLUMNS says of it; `usual`: of what is none."""
    said = os.environ.get("COLUMNS", "")
    if said.isdecimal() and int(said) > 0:
        return int(said)
    try:
        return (os.get_terminal_size(stream.fileno()).columns if stream else 0) or usual
    except (OSError, ValueError):  # no descriptor, or none of a terminal
        return usual
