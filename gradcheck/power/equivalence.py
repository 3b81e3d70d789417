"""Is a mutant the right VJP after all? Said in one sentence, then tried on a thousand inputs."""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from gradcheck.arithmetic import mp50
from gradcheck.draw import Draw
from gradcheck.power.mutant import Mutant
from gradcheck.spec import OpSpec, as_tuple

TRIALS: Final = 1000
AGREEMENT: Final = "1e-45"
"""Relative to the largest element: 50 digits, less what a different order of terms may cost."""


def difference(mutant: Mutant, spec: OpSpec, trials: int = TRIALS) -> str:
    """Where the mutant's gradients differ from the operator's to 50 digits; "" for nowhere."""
    assert mutant.inputs is not None
    xp = mp50()
    for trial in range(trials):
        draw = Draw(0, "equivalence", mutant.op, mutant.name, str(trial))
        drawn, given = mutant.inputs(draw)
        attrs = {**spec.defaults, **given}
        primals = [xp.asarray(p) if np.asarray(p).dtype.kind == "f" else p for p in drawn]
        outputs = as_tuple(spec.forward(xp, *primals, **attrs))
        parts = tuple(xp.asarray(draw.away(0.0, *np.shape(o))) for o in outputs)
        ct = parts[0] if len(parts) == 1 else parts
        right = as_tuple(spec.vjp(xp, ct, *primals, **attrs))
        wrong = as_tuple(mutant.fresh()(xp, ct, *primals, **attrs))
        if not _same(xp, right, wrong):
            shapes = [np.shape(p) for p in drawn]
            return f"it differs from the right VJP at trial {trial}: shapes {shapes}, {attrs}"
    return ""


def _same(xp: Any, right: tuple[Any, ...], wrong: tuple[Any, ...]) -> bool:
    if len(right) != len(wrong):
        return False
    for a, b in zip(right, wrong, strict=True):
        if (a is None) != (b is None):
            return False
        if a is None:
            continue
        if np.shape(a) != np.shape(b):
            return False
        pairs = list(zip(np.ravel(a), np.ravel(b), strict=True))
        size = max((abs(x) for x, _ in pairs), default=0)
        if not all(abs(x - y) <= xp.context.mpf(AGREEMENT) * size for x, y in pairs):
            return False
    return True
