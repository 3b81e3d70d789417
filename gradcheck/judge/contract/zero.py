"""A cotangent of zeros gives zeros."""

from __future__ import annotations

from typing import Final

import numpy as np

from gradcheck.judge.contract.asking import Breach
from gradcheck.judge.contract.differing import place
from gradcheck.judge.contract.subject import Subject

SAYS: Final = "A cotangent of zeros gives gradients of zeros."


def zero(subject: Subject) -> Breach | None:
    """Exactly zero: a NaN or a remainder is none."""
    ct = tuple(np.zeros_like(part) for part in subject.cts[0])
    wanted = subject.want(ct)
    for name, got in subject.ask(ct, "for a cotangent of zeros").items():
        strange = np.argwhere((got != 0) & ~np.isnan(np.asarray(wanted[name])))
        if len(strange):
            index = tuple(int(i) for i in strange[0])
            return Breach(f"d{name}{place(index)} is {float(got[index]):g}")
    return None
