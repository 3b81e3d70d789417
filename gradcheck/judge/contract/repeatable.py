"""Ten calls with the same arguments give the same bits ten times."""

from __future__ import annotations

from typing import Final

from gradcheck.judge.contract import determinism
from gradcheck.judge.contract.asking import Breach
from gradcheck.judge.contract.subject import Subject
from gradcheck.results.verdict import Verdict

SAYS: Final = "The same arguments give the same bits, however often they come."
REPEATS: Final = 10


def repeatable(subject: Subject) -> Breach | None:
    """The ordinary judgement asks twice; a race or a rare branch needs more."""
    ct = subject.cts[0]
    first = subject.ask(ct)
    for repeat in range(2, REPEATS + 1):
        again = subject.ask(ct, f"in call {repeat} with the same arguments")
        changed = [n for n in first if determinism.differs([first[n]], [again[n]])]
        if changed:
            return Breach(f"call {repeat} gives other bits of d{changed[0]}", Verdict.ERROR)
    return None
