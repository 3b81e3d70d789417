"""What a call returns is the caller's: no later call changes it."""

from __future__ import annotations

from typing import Final

import numpy as np

from gradcheck.judge.contract import determinism
from gradcheck.judge.contract.asking import Breach
from gradcheck.judge.contract.subject import Subject

SAYS: Final = "What a backward returns stays as it is when the backward is called again."


def owned(subject: Subject) -> Breach | None:
    """Keep the first answer itself, no copy of it, and call again with other cotangents."""
    first = subject.raw(subject.cts[0])
    before = {name: np.array(gradient) for name, gradient in first.items()}
    for ct in subject.cts[1:]:
        subject.raw(ct)
        for name, gradient in first.items():
            if determinism.differs([before[name]], [gradient]):
                return Breach(f"d{name} is a view of a buffer that the next call writes into")
    return None
