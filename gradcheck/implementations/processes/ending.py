"""How a process ended, in words; and the end of one that was needed, as an exception."""

from __future__ import annotations

import signal
from dataclasses import dataclass
from typing import Final

from gradcheck.results.verdict import Verdict

LOST: Final = 113
"""The exit status of a process of ours whose own descriptors the code called closed or replaced."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ending:
    """A process that is gone: CRASH or TIMEOUT, why, and an excerpt of what it printed.

    `returncode` is as `subprocess` gives it; None where we had to end it.
    """

    verdict: Verdict
    reason: str
    printed: str = ""
    returncode: int | None = None


class Ended(Exception):  # noqa: N818  a process has
    """A process ended, or had to be ended, before it answered."""

    def __init__(self, ending: Ending) -> None:
        """Carry how."""
        super().__init__(ending.reason)
        self.ending = ending


def in_words(returncode: int) -> str:
    """A return code of `subprocess` as a reader knows it: "SIGSEGV", "exit status 3"."""
    if returncode >= 0:
        return f"exit status {returncode}"
    try:
        return signal.Signals(-returncode).name
    except ValueError:
        return f"signal {-returncode}"


def placed(ending: Ending, what: str, limit: float) -> str:
    """The reason of an ending that happened in `what`, which had `limit` seconds."""
    if ending.verdict is Verdict.TIMEOUT:
        return f"{what} did not return within {limit:g} s"
    code = ending.returncode
    if code == LOST:
        return f"{what} closed file descriptors that are not its own"
    if code is not None and code >= 0:
        return f"{what} ended the process with {in_words(code)}"
    return f"{ending.reason} in {what}"
