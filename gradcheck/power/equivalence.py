"""Is a mutant the right VJP after all? A declared proof is tried on a thousand inputs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from gradcheck.errors import CODE_ERRORS, raised
from gradcheck.numerics.arrays import Attrs, as_tuple
from gradcheck.numerics.draw import Draw
from gradcheck.numerics.fifty_digits import mp50
from gradcheck.spec.mutant import Mutant
from gradcheck.spec.operator import Array, OpSpec

TRIALS: Final = 1000
AGREEMENT: Final = "1e-45"
"""Relative to the largest element: 50 digits, less the rounding of another order of terms."""


def difference(mutant: Mutant, spec: OpSpec, trials: int = TRIALS) -> str:
    """Evidence that a mutant is not the operator's VJP to 50 digits; "" for none.

    Its inputs must differ in values and in shapes: a thousand times the same proves little.
    """
    assert mutant.inputs is not None
    seen: set[bytes] = set()
    shapes: set[tuple[tuple[int, ...], ...]] = set()
    for trial in range(trials):
        draw = Draw(0, "equivalence", mutant.op, mutant.name, str(trial))
        try:
            drawn, given = mutant.inputs(draw)
            attrs = {**spec.defaults, **given}
            same = _agree(mutant, spec, draw, drawn, attrs)
        except CODE_ERRORS as error:
            return f"trial {trial} raises {raised(error)}"
        shape = tuple(np.shape(p) for p in drawn)
        if not same:
            return f"it differs from the right VJP at trial {trial}: shapes {list(shape)}, {attrs}"
        seen.add(b"".join(np.asarray(p).tobytes() for p in drawn))
        shapes.add(shape)
    if len(seen) == 1 < trials:
        return "its `inputs` are the same in every trial; draw them"
    if len(shapes) == 1 < trials:
        return f"its `inputs` have the shapes {list(*shapes)} in every trial; draw these too"
    return ""


def _agree(mutant: Mutant, spec: OpSpec, draw: Draw, drawn: Sequence[Array], attrs: Attrs) -> bool:
    xp = mp50()
    primals = [xp.asarray(p) if np.asarray(p).dtype.kind == "f" else p for p in drawn]
    outputs = as_tuple(spec.forward(xp, *primals, **attrs))
    parts = tuple(xp.asarray(draw.away(0.0, *np.shape(o))) for o in outputs)
    ct = parts[0] if len(parts) == 1 else parts
    right = as_tuple(spec.vjp(xp, ct, *primals, **attrs))
    wrong = as_tuple(mutant.fresh()(xp, ct, *primals, **attrs))
    return _same(xp, right, wrong)


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
        finite = xp.context.isfinite
        size = max((abs(x) for x, _ in pairs if finite(x)), default=0)
        allowed = xp.context.mpf(AGREEMENT) * size
        if not all(x == y or abs(x - y) <= allowed for x, y in pairs):
            return False
    return True
