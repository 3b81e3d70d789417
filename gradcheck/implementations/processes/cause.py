"""Why a process died, in the words of its own: a sanitizer's report, or a failed assertion."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from typing import Final

from gradcheck.implementations.processes.ending import Ending
from gradcheck.results.verdict import Verdict

LONGEST: Final = 300
"""Characters of a line that are repeated."""
REPORT: Final = re.compile(
    r"^(?:==\d+==)?\s*(?:ERROR|WARNING): (?P<tool>\w+Sanitizer): (?P<kind>.+)\n"
    r"(?P<rest>(?:.+\n|\n(?=0x|Address ))*)",
    re.MULTILINE,
)
"""Its first paragraphs: the access, the stack, and where the address lies."""
KIND: Final = re.compile(r" (?:on|in|at|of|\().*")
"""What follows the kind of a mistake: addresses and threads."""
ACCESS: Final = re.compile(r"^\s*(READ|WRITE) of size \d+", re.IGNORECASE | re.MULTILINE)
FRAME: Final = re.compile(
    r"^\s+#\d+ 0x[0-9a-f]+ +in (?P<place>.+?)(?: \(BuildId.*)?$", re.MULTILINE
)
RUNTIME: Final = re.compile(r"__interceptor_|__(?:a|ub|m|t)san_|sanitizer|lib\wsan|libclang_rt")
"""Frames of the sanitizer itself."""
LIES: Final = re.compile(r"is located (\d+ bytes .+?)(?: \[0x| \(0x|$)", re.MULTILINE)
UNDEFINED: Final = re.compile(
    r"^(?P<place>\S+:\d+:\d+): runtime error: (?P<what>.+)$", re.MULTILINE
)
ASSERTION: Final = re.compile(
    r"^.*(?:\b[Aa]ssert\w*\b.*\bfail|ASSERT\w*\s*\(|\b[Cc]heck failed\b|\bCHECK\w* failed"
    r"|terminate called |panicked at|\*\*\* .+ detected \*\*\*|double free or corruption"
    r"|(?:free|alloc|unlink_chunk|munmap_chunk)\(\): |corrupted (?:size|double)).*"
    r"(?:(?<=:)\n.*|\n\s+what\(\):.*)?"
    r"|^(?:panic|fatal error): .*",
    re.MULTILINE,
)
"""A line by which libraries and languages say that they give up, with what belongs to it."""


def because(ending: Ending) -> str:
    """The reason of an ending, with what the process said of it itself, in one line.

    A sanitizer's report stands in place of the signal, which is its way to end.
    """
    if ending.verdict is not Verdict.CRASH:
        return ending.reason
    report = _report(ending.printed)
    said = "" if report else said_in(ending.printed)
    return report or (f"{ending.reason}: {said}" if said else ending.reason)


def explained(ending: Ending) -> Ending:
    """The ending, with that reason."""
    return replace(ending, reason=because(ending))


def said_in(printed: str) -> str:
    r"""The line by which code says why it gives up, or a sanitizer what is wrong; else empty.

    >>> said_in("log\nops.c:7: GGML_ASSERT(n > 0) failed\n#1 main\n")
    'ops.c:7: GGML_ASSERT(n > 0) failed'
    """
    found = ASSERTION.search(printed)
    return _report(printed) or (_line(found[0]) if found else "")


def _report(printed: str) -> str:
    """What a sanitizer found, without addresses, which differ from run to run."""
    found = REPORT.search(printed)
    if found:
        kind = KIND.sub("", found["kind"].removeprefix("attempting "))
        facts = ", ".join(_facts(found["rest"]))
        return _line(": ".join(filter(None, [found["tool"], kind, facts])))
    undefined = UNDEFINED.search(printed)
    if undefined:
        return _line(f"UndefinedBehaviorSanitizer: {undefined['what']}, at {undefined['place']}")
    return ""


def _facts(rest: str) -> Iterator[str]:
    """The access and the line that makes it, and where the memory lies."""
    access, lies = ACCESS.search(rest), LIES.search(rest)
    places = (frame["place"] for frame in FRAME.finditer(rest))
    place = next((f"in {p}" for p in places if not RUNTIME.search(p)), "")
    what = f"{access[0].strip() if access else ''} {place}".strip()
    if what:
        yield what
    if lies:  # as newer runtimes say it
        yield lies[1].replace("to the right of", "after").replace("to the left of", "before")


def _line(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= LONGEST else f"{line[:LONGEST]} …"
