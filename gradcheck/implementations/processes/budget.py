"""How often one operator's code may hang or crash before the rest of it is left out."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Final

from gradcheck.results.verdict import Verdict

LIMITS: Final = {Verdict.TIMEOUT: 3, Verdict.CRASH: 10}
WORDS: Final = {Verdict.TIMEOUT: "hangs", Verdict.CRASH: "crashes"}
_COUNTED: Final = ContextVar("counted", default=True)
_CASE: Final = ContextVar("case", default="")


@contextmanager
def uncounted() -> Iterator[None]:
    """Ends cost nothing meanwhile: who asks out of curiosity leaves the verdicts' budget alone."""
    token = _COUNTED.set(False)
    try:
        yield
    finally:
        _COUNTED.reset(token)


def of_case(name: str) -> None:
    """From here on each case has a budget of its own; with an empty name operators have one.

    A run counts over cases itself (`gradcheck.run.limits`), where their order is known.
    """
    _CASE.set(name)


def too_often(op: str, spent: Callable[[Verdict], int]) -> str | None:
    """Why the rest of an operator is not run, given how often it has ended so; None: it is."""
    for verdict, limit in LIMITS.items():
        if spent(verdict) >= limit:
            return f"not run after {limit} {WORDS[verdict]} of {op}"
    return None


class Budget:
    """Counts ends of processes, operator by operator, and case by case where that is said."""

    def __init__(self) -> None:
        """Nothing is spent."""
        self._spent: Counter[tuple[str, str, Verdict]] = Counter()

    def spend(self, op: str, verdict: Verdict) -> None:
        """Count one CRASH or TIMEOUT of an operator; other verdicts cost nothing."""
        self._spent[_CASE.get(), op, verdict] += verdict in LIMITS and _COUNTED.get()

    def exhausted(self, op: str) -> str | None:
        """Why the rest of an operator is not run; None: it is."""
        return too_often(op, lambda verdict: self._spent[_CASE.get(), op, verdict])
