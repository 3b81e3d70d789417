"""What happens when foreign code crashes or hangs: from the end of its process to a verdict.

1. Each call has a deadline in seconds. `c_worker.Worker` sets it for a C function, `isolated` for
   Python, `protocol.session` for a program; moving data and loading have their own.
2. `child.Child` waits. When the deadline passes, it kills the process with everything that this has
   started; the `Ending` is a TIMEOUT. When the process ends before it answers, it is a CRASH, with
   the signal or the exit status. Both are raised as a `WorkerError`.
3. The caller makes a finding of it (for C, `native.library`): `placed` names the call, and
   `because` adds the last words of a sanitizer or of an assertion. After a crash in C,
   `crash_analysis` finds out which memory was touched.
4. The next case starts a new process. After three hangs or ten crashes of an operator's dialect
   (`LIMITS`) its other cases are NOTRUN: `gradcheck.run.limits.CrashLimit` counts them in the order
   of the run's cases, and `Budget` within one case, or for a caller without a run.
"""

from __future__ import annotations

import re
import signal
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, replace
from typing import Final

from gradcheck.implementations.processes import DESCRIPTORS_LOST
from gradcheck.results.verdict import Verdict


@dataclass(frozen=True, slots=True, kw_only=True)
class Ending:
    """How a process ended: CRASH or TIMEOUT, why, and an excerpt of what it printed.

    `returncode` is that of `subprocess`; None where gradcheck ended the process.
    """

    verdict: Verdict
    reason: str
    printed: str = ""
    returncode: int | None = None


class WorkerError(Exception):
    """A process crashed or hung before it answered; `ending` says how."""

    def __init__(self, ending: Ending) -> None:
        """Carry the ending."""
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
    """The reason of an ending in `what`, which had `limit` seconds."""
    if ending.verdict is Verdict.TIMEOUT:
        return f"{what} did not return within {limit:g} s"
    code = ending.returncode
    if code == DESCRIPTORS_LOST:
        return f"{what} closed file descriptors that are not its own"
    if code is not None and code >= 0:
        return f"{what} ended the process with {in_words(code)}"
    return f"{ending.reason} in {what}"


# ── how many are allowed ────────────────────────────────────────────────────────────────────────

LIMITS: Final = {Verdict.TIMEOUT: 3, Verdict.CRASH: 10}
PLURALS: Final = {Verdict.TIMEOUT: "hangs", Verdict.CRASH: "crashes"}
MAX_INVESTIGATED: Final = 3
"""Crashes of one dialect that are looked into; each takes some processes more."""
ONLY: Final = "default"
"""The name of the dialect of an operator that has no others."""
_COUNTED: Final = ContextVar("counted", default=True)
_CASE: Final = ContextVar("case", default="")


@contextmanager
def uncounted() -> Iterator[None]:
    """Count no crash or hang in the block: diagnosis does not use up the budget of verdicts."""
    token = _COUNTED.set(False)
    try:
        yield
    finally:
        _COUNTED.reset(token)


def of_case(name: str) -> None:
    """Give the case `name` a budget of its own; with an empty name, budgets are per dialect.

    A run counts over cases itself (`gradcheck.run.limits.CrashLimit`), where their order is known.
    """
    _CASE.set(name)


def variant_of(op: str, dialect: str) -> str:
    """What is counted together: an operator's dialect, as messages call it.

    >>> variant_of("relu", "default"), variant_of("layer_norm", "affine")
    ('relu', 'layer_norm/affine')
    """
    return op if dialect == ONLY else f"{op}/{dialect}"


def too_often(variant: str, spent: Callable[[Verdict], int]) -> str | None:
    """The reason not to run the rest of a dialect, given its crashes and hangs; None: run it."""
    for verdict, limit in LIMITS.items():
        if spent(verdict) >= limit:
            return f"not run after {limit} {PLURALS[verdict]} of {variant}"
    return None


class Budget:
    """Counts crashes and hangs per dialect (`variant_of`), and per case after `of_case`."""

    def __init__(self) -> None:
        """Start at zero."""
        self._spent: Counter[tuple[str, str, Verdict]] = Counter()
        self._crashes: Counter[str] = Counter()

    def spend(self, variant: str, verdict: Verdict) -> None:
        """Count one CRASH or TIMEOUT; other verdicts cost nothing."""
        self._spent[_CASE.get(), variant, verdict] += verdict in LIMITS and _COUNTED.get()
        self._crashes[variant] += verdict is Verdict.CRASH

    def investigates(self, variant: str, verdict: Verdict) -> bool:
        """Whether the crash that was counted last is one of the first, which are run again."""
        return verdict is Verdict.CRASH and self._crashes[variant] <= MAX_INVESTIGATED

    def exhausted(self, variant: str) -> str | None:
        """The reason not to run the rest of a dialect; None: run it."""
        return too_often(variant, lambda verdict: self._spent[_CASE.get(), variant, verdict])


# ── what the process said about it ──────────────────────────────────────────────────────────────

MAX_LINE: Final = 300
"""Characters of a line that are repeated."""
REPORT: Final = re.compile(
    r"^(?:==\d+==)?\s*(?:ERROR|WARNING): (?P<tool>\w+Sanitizer): (?P<kind>.+)\n"
    r"(?P<rest>(?:.+\n|\n(?=0x|Address ))*)",
    re.MULTILINE,
)
"""The first paragraphs of a report: the access, the stack, and where the address lies."""
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
"""A line in which a library or language aborts, with its continuation."""


def because(ending: Ending) -> str:
    """The reason of an ending, with the process's own words, in one line.

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
    return line if len(line) <= MAX_LINE else f"{line[:MAX_LINE]} …"
