"""What exactly is wrong with a VJP: in words, by hypotheses that reproduce what was returned.

A hypothesis is named only if it gives the same numbers to rounding and the right VJP does not.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

import numpy as np

from gradcheck.explain.closeness import array, near, reproduces
from gradcheck.explain.hypothesis import COMPOUND, Hypothesis, hypotheses, narrow, simple
from gradcheck.explain.pattern import pattern
from gradcheck.numerics.arithmetic import F64
from gradcheck.spec.mutant import Mutant
from gradcheck.spec.program import Stage, Values

Gradients = Sequence[Any]

TOLD: Final = 3
"""Names that are given where several hypotheses cannot be told apart."""


def name(
    stage: Stage,
    cts: Gradients,
    got: Gradients,
    values: Values,
    mutants: Sequence[Mutant] = (),
    dtype: str = "float64",
    rest: Callable[[int], str] = lambda _: "",
) -> tuple[str, ...]:
    """What is wrong with one stage: sentences, () where nothing reproduces it.

    `cts` are the reference's cotangents of its outputs, `got` is what it returned for them, one
    per value read (None: nothing), `values` are the reference's, in float64, by name. `mutants`
    are those of its operator; `dtype` is the one in which `got` was computed. `rest(index)` says
    what is wrong with a gradient that no hypothesis reproduces ("": it does not know).
    """
    right = stage.vjp(F64, tuple(cts), values)
    slots = {i for i, g in enumerate(right) if g is not None}
    missing = [i for i in sorted(slots) if got[i] is None or np.shape(got[i]) != np.shape(right[i])]
    said = [_lacking(stage, i, got[i], right[i]) for i in missing]
    left = {i for i in slots - set(missing) if not near(got[i], right[i], dtype)}
    if left:
        left -= _say(stage, list(narrow(stage, tuple(cts), values, dtype)), got, right, left,
                     dtype, said)  # fmt: skip
    ways = itertools.chain(simple(stage, right), hypotheses(stage, tuple(cts), values, mutants))
    for _, alike in itertools.groupby(ways, key=lambda h: h.rank == COMPOUND):
        if left:
            left -= _say(stage, list(alike), got, right, left, dtype, said)
    said += [
        rest(i) or pattern(stage, i, array(got[i]), array(right[i]), dtype) for i in sorted(left)
    ]
    return tuple(text for text in said if text)


def _say(
    stage: Stage,
    found: Sequence[Hypothesis],
    got: Gradients,
    right: Gradients,
    left: set[int],
    dtype: str,
    said: list[str],
) -> set[int]:
    """Add what explains the most gradients, the simplest first; returns which are explained."""
    explained: set[int] = set()
    while left - explained:
        fits: dict[tuple[int, int, frozenset[int]], list[str]] = {}
        for hypothesis in found:
            slots = frozenset(
                i
                for i in left - explained
                if reproduces(hypothesis.gradients[i], got[i], right[i], dtype)
            )
            if slots and _harmless(hypothesis, right, got, slots, dtype):
                key = (-len(slots), hypothesis.rank, slots)
                fits.setdefault(key, []).append(hypothesis.says)
        if not fits:
            break
        best = min(fits, key=lambda key: (*key[:2], sorted(key[2])))
        names = list(dict.fromkeys(fits[best]))
        more = f" (or one of {len(names) - TOLD} more)" if len(names) > TOLD else ""
        said.append(f"{_which(stage, best[2])}: {' Or: '.join(names[:TOLD])}{more}")
        explained |= best[2]
    return explained


def _harmless(
    hypothesis: Hypothesis, right: Gradients, got: Gradients, slots: frozenset[int], dtype: str
) -> bool:
    """Whether it leaves right what was returned right: a single cause explains all that is seen."""
    for i, true in enumerate(right):
        if i in slots or true is None or got[i] is None:
            continue
        if np.shape(got[i]) != np.shape(true) or not near(got[i], true, dtype):
            continue
        if not near(hypothesis.gradients[i], true, dtype):
            return False
    return True


def _which(stage: Stage, slots: Iterable[int]) -> str:
    return ", ".join(f"d{stage.primals[i]}" for i in sorted(slots))


def _lacking(stage: Stage, index: int, got: Any, right: Any) -> str:
    if got is None:
        return f"d{stage.primals[index]}: no gradient of `{stage.reads[index]}` is produced."
    return (
        f"d{stage.primals[index]}: its shape is {np.shape(got)}, "
        f"`{stage.reads[index]}` has {np.shape(right)}."
    )
