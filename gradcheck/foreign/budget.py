"""How often one operator's code may hang or crash before the rest of it is left out."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Final

from gradcheck.verdict import Verdict

LIMITS: Final = {Verdict.TIMEOUT: 3, Verdict.CRASH: 10}
WORDS: Final = {Verdict.TIMEOUT: "hangs", Verdict.CRASH: "crashes"}
_COUNTED: Final = ContextVar("counted", default=True)


@contextmanager
def uncounted() -> Iterator[None]:
    """Ends cost nothing meanwhile: who asks out of curiosity leaves the verdicts' budget alone."""
    token = _COUNTED.set(False)
    try:
        yield
    finally:
        _COUNTED.reset(token)


class Budget:
    """Counts ends of processes, operator by operator."""

    def __init__(self) -> None:
        """Nothing is spent."""
        self._spent: Counter[tuple[str, Verdict]] = Counter()

    def spend(self, op: str, verdict: Verdict) -> None:
        """Count one CRASH or TIMEOUT of an operator; other verdicts cost nothing."""
        self._spent[op, verdict] += verdict in LIMITS and _COUNTED.get()

    def exhausted(self, op: str) -> str | None:
        """Why the rest of an operator is not run; None: it is."""
        for verdict, limit in LIMITS.items():
            if self._spent[op, verdict] >= limit:
                return f"not run after {limit} {WORDS[verdict]} of {op}"
        return None
