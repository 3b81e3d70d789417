"""The gradients of a loss of any size, tensor by tensor, each along random directions."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from gradcheck.judge.compare import empty_pass
from gradcheck.judge.directional_check import DirectionalCheck, miss_of
from gradcheck.judge.locate import one_element
from gradcheck.numerics.arrays import Array
from gradcheck.numerics.directional_slope import TensorView
from gradcheck.numerics.draw import CHUNK
from gradcheck.numerics.line_function import Given, Heading, Scalar, unit_of
from gradcheck.results.finding import Finding, Part
from gradcheck.results.verdict import Verdict
from gradcheck.results.words import share


def judge_tensors(
    value: Callable[[], Any],
    tensors: Mapping[str, Array],
    gradients: Mapping[str, Array | Sequence[Array] | Finding],
    *,
    seed: Sequence[object] = (0,),
    search: int = 400,
) -> list[Finding]:
    """One finding per floating tensor, in their order.

    Args:
        value: the scalar function of all tensors; it reads them where they are.
        tensors: C-contiguous writable float64 or float32 arrays, which are moved in place, one at
            a time, and restored bit by bit; integer ones are left alone.
        gradients: per floating tensor the gradient (shaped like it; a list is summed), or a
            finding that says what is wrong with it, which is passed on.
        seed: what the random directions are called, beside the tensor's own name.
        search: evaluations that may be spent per tensor on finding wrong elements; 0: none.

    Returns:
        The findings. If the function itself cannot be differenced (it raises, is not finite, or
        is not deterministic), a single one that says so, called "loss".
    """
    scalar = Scalar(value)
    floating = {name: t for name, t in tensors.items() if t.dtype.kind == "f"}
    base = value_at(scalar, floating)
    if isinstance(base, Finding):
        return [base]
    return [
        _judge(scalar, base, name, tensor, gradients.get(name), (*seed, name), search)
        for name, tensor in floating.items()
    ]


def _judge(
    scalar: Scalar,
    base: float,
    name: str,
    tensor: Array,
    gradient: Array | Sequence[Array] | Finding | None,
    seed: tuple[object, ...],
    search: int,
) -> Finding:
    if isinstance(gradient, Finding):
        return gradient
    if gradient is None:
        reason = f"no gradient for {name}: give zeros where it is zero"
        return Finding(name=name, verdict=Verdict.MISSING, reason=reason)
    if tensor.size == 0:
        return empty_pass(name)
    before, given = scalar.evaluations, Given.of(gradient)
    sums = checksum(given.buffers)
    view = TensorView(scalar, base, tensor, given, unit_of(tensor))
    finding = _not_finite(name, view) or DirectionalCheck(name, view, seed).judge(search)
    if checksum(given.buffers) != sums:
        reason = f"the loss writes into the gradient of {name}: hand over a copy of it"
        finding = Finding(name=name, verdict=Verdict.ERROR, reason=reason)
    return replace(finding, evaluations=scalar.evaluations - before)


def _not_finite(name: str, view: TensorView) -> Finding | None:
    """A finding about NaN or infinity in the tensor or its gradient: where, and the true value."""
    if strange := not_finite(view.tensor):
        reason = f"{name} holds {strange[0]} numbers that are not finite: no slope there"
        return Finding(name=name, verdict=Verdict.INCONCLUSIVE, reason=reason)
    for buffer in view.given.buffers:
        if not (strange := not_finite(buffer)):
            continue
        count, index, value = strange
        silent = replace(view, given=Given((np.broadcast_to(0.0, (view.size,)),)))
        want = one_element(silent, index, Heading(0))
        return Finding(
            name=name,
            verdict=Verdict.FAIL,
            reason=f"{share(count, view.size, 'element')} not finite",
            compared=view.size,
            failed=count,
            worst=(miss_of(view, replace(want, got=value)),),
        )
    return None


def value_at(scalar: Scalar, tensors: Mapping[str, Array]) -> float | Finding:
    """The function's value at the point, or what keeps it from being differenced."""

    def broken(verdict: Verdict, reason: str) -> Finding:
        return Finding(name="loss", verdict=verdict, reason=reason, part=Part.VALUE)

    before = {name: checksum([tensor]) for name, tensor in tensors.items()}
    values = []
    for _ in range(2):
        scalar.refusal = ""
        values.append(scalar())
        if scalar.refusal:
            return broken(Verdict.ERROR, f"loss raised {scalar.refusal}")
    for name, tensor in tensors.items():
        if checksum([tensor]) != before[name]:
            return broken(Verdict.ERROR, f"loss writes into {name}: it must only read it")
    if not np.isfinite(values[0]):
        reason = f"loss is {values[0]} here: it has no derivative"
        return broken(Verdict.INCONCLUSIVE, reason)
    if values[0] != values[1]:
        return broken(
            Verdict.ERROR,
            f"loss is not deterministic: it was {values[0]!r}, then {values[1]!r}. Freeze its "
            "seed, and what it counts or averages from call to call",
        )
    return values[0]


def not_finite(tensor: Array) -> tuple[int, int, float] | None:
    """How many elements are not finite, and the first of them, by flat index; None: all are."""
    flat, count, first = tensor.reshape(-1), 0, -1
    for at in range(0, flat.size, CHUNK):
        strange = np.flatnonzero(~np.isfinite(flat[at : at + CHUNK]))
        if strange.size and first < 0:
            first = at + int(strange[0])
        count += int(strange.size)
    return (count, first, float(flat[first])) if count else None


def checksum(arrays: Sequence[Array]) -> tuple[int, ...]:
    """Numbers that change when the bytes of arrays do (but for a mere exchange of words)."""
    sums = []
    for array in arrays:
        flat = array.reshape(-1)
        words = flat.view(np.uint32 if flat.itemsize % 4 == 0 else np.uint8)
        sums.append(int(np.add.reduce(words, dtype=np.uint64)) if words.size else 0)
    return tuple(sums)
