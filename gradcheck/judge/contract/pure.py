"""A call writes into none of its arguments, even if it may."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from gradcheck.judge.contract import purity
from gradcheck.judge.contract.asking import Breach
from gradcheck.judge.contract.subject import Subject
from gradcheck.results.verdict import Verdict

SAYS: Final = "A backward leaves the cotangent, the inputs and what was saved as they were."

Array = NDArray[Any]


def pure(subject: Subject) -> Breach | None:
    """Arguments that may be written to, where the ordinary judgement passes read-only ones."""
    ct, primals = subject.cts[0], subject.primals
    for how in ("vjp", "vjp_into") if subject.bound.into is not None else ("vjp",):
        given, values = _copies(ct), _copies(primals)
        if how == "vjp":
            subject.raw(given, "with arguments that may be written to", values, ready=True)
        else:
            outs = {name: out.array for name, out in subject.outs({}).items()}
            subject.fill_these(outs, given, values, "with arguments that may be written to")
        names = (*("ct",) * len(ct), *subject.truth.names)
        changed = purity.mutated((*ct, *primals), (*given, *values), names)
        if changed is not None:
            return Breach(f"{how} writes into {changed} where it may", Verdict.ERROR)
    return None


def _copies(arrays: Sequence[Array]) -> tuple[Array, ...]:
    return tuple(np.array(a, order="C") for a in arrays)
