"""Operands: the gradient is right at other values, or for exchanged or packed arguments."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import combinations, permutations, product
from typing import Any, Final

import numpy as np

from gradcheck.explain.hypothesis import (
    Hypothesis,
    Observations,
    applied,
    predicting,
    read_cotangent,
    read_output,
    read_primal,
    softmax,
)
from gradcheck.explain.probe import RAISES, Array, Float, Probe, near
from gradcheck.spec.defect import Defect

GUARDS: Final = tuple(10.0**-k for k in range(2, 13))
"""What is added to guard a division."""


def _centred(x: Float) -> Float:
    return np.asarray(x - np.mean(x, axis=-1, keepdims=True))


def _normalised(x: Float) -> Float:
    return np.asarray(x / np.sqrt(np.mean(x * x, axis=-1, keepdims=True)))


VALUES: Final[tuple[tuple[str, str, Callable[[Any], Any]], ...]] = (
    (Defect.SAVED_VALUE, "sigmoid({})", lambda x: 1 / (1 + np.exp(-x))),
    (Defect.SAVED_VALUE, "tanh({})", np.tanh),
    (Defect.SAVED_VALUE, "exp({})", np.exp),
    (Defect.SAVED_VALUE, "log({})", np.log),
    (Defect.SAVED_VALUE, "relu({})", lambda x: np.maximum(x, 0)),
    (Defect.SAVED_VALUE, "silu({})", lambda x: x / (1 + np.exp(-x))),
    (Defect.SAVED_VALUE, "softmax({})", softmax),
    (Defect.SAVED_VALUE, "{}, less its mean,", _centred),
    (Defect.SAVED_VALUE, "{}, divided by its root mean square,", _normalised),
    (Defect.SAVED_VALUE, "{} clipped to [0, 1]", lambda x: np.clip(x, 0, 1)),
    (Defect.SAVED_VALUE, "{} rounded to whole numbers", np.round),
    (Defect.SAVED_VALUE, "1 − {}", lambda x: 1 - x),
    (Defect.DERIVATIVE, "{}²", np.square),
    (Defect.DERIVATIVE, "1/{}", lambda x: 1 / x),
    (Defect.SIGN, "|{}|", np.abs),
    (Defect.SIGN, "−{}", np.negative),
    (Defect.SCALE, "ones", np.ones_like),
    (Defect.TERM, "zeros", np.zeros_like),
    (Defect.SAVED_VALUE, "{}, less its largest,", lambda x: x - np.max(x, axis=-1, keepdims=True)),
)
"""Class, words and function of what may be read in the place of a primal."""


Read = Callable[[Probe], Array | None]
Reading = tuple[str, str, Read]
"""Class, words, and the array that is read in the place of a primal."""


def elsewhere(obs: Observations) -> Iterator[Hypothesis]:
    """Each primal in turn replaced by another value: outputs, other arguments, functions of it."""
    for name in obs.first.names:
        floating = obs.first.primal(name).dtype.kind == "f"
        for label, says, read in _other_values(obs, name) if floating else ():
            yield _reading(obs, label, name, says, read)
        for label, says, read in () if floating else _other_indices(name):
            yield _reading(obs, label, name, says, read)


def _reading(obs: Observations, label: str, name: str, says: str, read: Read) -> Hypothesis:
    def of(probe: Probe) -> Float | None:
        value = read(probe)
        if value is None or value.shape != probe.primal(name).shape:
            return None
        return probe.gradient(obs.output, primals={name: value})

    return predicting(obs, label, f"{obs.gradient} reads {says} where it needs {name}", of)


def _other_values(obs: Observations, name: str) -> Iterator[Reading]:
    probe = obs.first
    shape = probe.primal(name).shape
    for k, output in enumerate(probe.outputs):
        if output.shape == shape:
            which = "the output" if len(probe.outputs) == 1 else f"output {k}"
            yield Defect.SAVED_VALUE, which, read_output(k)
    for other, primal in zip(probe.names, probe.primals, strict=True):
        if other != name and primal.shape == shape and primal.dtype.kind == "f":
            yield Defect.SAVED_VALUE, other, read_primal(other)
            yield (
                Defect.SAVED_VALUE,
                f"{name}·{other}",
                applied(np.multiply, read_primal(name), read_primal(other)),
            )
    for k, part in enumerate(probe.ct):
        if part.shape == shape:
            yield Defect.SAVED_VALUE, "the cotangent", read_cotangent(k)
    for label, words, function in VALUES:
        yield label, words.format(name), partial(_applied, name, function)
    for eps in GUARDS:
        yield Defect.EPS, f"{name} + {eps:g}", applied(partial(np.add, eps), read_primal(name))


def _applied(name: str, function: Callable[[Any], Any], probe: Probe) -> Array | None:
    try:
        with np.errstate(all="ignore"):
            value = np.asarray(function(probe.primal(name)))
    except RAISES:  # a scalar has no axis
        return None
    return value if np.isfinite(value).all() else None


def _other_indices(name: str) -> Iterator[Reading]:
    yield Defect.INDEX, f"{name} + 1", lambda p: p.primal(name) + 1
    yield Defect.INDEX, f"{name} − 1", lambda p: p.primal(name) - 1
    yield Defect.INDEX, "0", lambda p: np.zeros_like(p.primal(name))
    yield Defect.INDEX, "positions in order", partial(_in_order, name)
    yield Defect.INDEX, f"{name}, sorted,", lambda p: np.sort(p.primal(name), axis=-1)
    yield (
        Defect.INDEX,
        f"{name}, those below 0 taken for 0,",
        lambda p: np.maximum(p.primal(name), 0),
    )


def _in_order(name: str, probe: Probe) -> Array | None:
    x = probe.primal(name)
    return np.broadcast_to(np.arange(x.shape[-1]), x.shape) if x.ndim else None


# ── another argument's gradient, or arguments exchanged ──────────────────────────────────────

PACKED: Final = {2: ("half", "halves"), 3: ("third", "thirds"), 4: ("quarter", "quarters")}
"""How many tensors share one, and what they are called."""
ORDINALS: Final = ("first", "second", "third", "fourth")


def lost(obs: Observations) -> Iterator[Hypothesis]:
    """Nothing but zeros, to the last bit."""
    name = obs.output
    yield Hypothesis(
        label=Defect.SLOT,
        says=f"{obs.gradient} is zero: it is lost",
        fits=lambda p: (
            p.reproduces(np.zeros_like(p.right[name]), name)
            and not (p.fails(name) and p.got[name].any())
        ),
    )


def slots(obs: Observations) -> Iterator[Hypothesis]:
    """Another primal's gradient, or that of a call with arguments exchanged."""
    name, own = obs.output, obs.gradient
    for other in obs.first.right:
        if other != name:
            yield Hypothesis(
                label=Defect.SLOT,
                says=f"{own} is the gradient of {other}: it stands in the wrong place",
                fits=partial(_stands, name, other),
            )
    yield from _exchanged(obs)
    for other in obs.first.right:
        if other != name:
            apart = all(_apart(probe, name, other) for probe in obs.failing)
            says = (
                f"{own} gets what belongs to {other}, too: nothing keeps it away"
                if apart
                else f"{own} has the gradient of {other} added to it"
            )
            yield predicting(
                obs, Defect.DERIVATIVE if apart else Defect.TERM, says, partial(_added, name, other)
            )


def _stands(name: str, other: str, probe: Probe) -> bool:
    """Whether the gradient of `other` was returned for `name`, possibly in its own shape.

    They may have changed places before they were reduced to the shapes of what was broadcast.
    """
    right, raw = probe.right.get(other), probe.raw.get(name)
    if right is None or raw is None or raw.shape == right.shape:
        fits = name in probe.got and probe.reproduces(right, name)
        return fits or (raw is not None and right is not None and near(raw, right, probe.dtype))
    if raw.size == right.size:
        return probe.fails(name) and near(np.ravel(raw), right.ravel(), probe.dtype)
    small, large = sorted((np.asarray(raw, dtype=np.float64), right), key=lambda a: a.size)
    return probe.fails(name) and near(_summed(large, small.shape), small, probe.dtype)


def _summed(x: Float, shape: tuple[int, ...]) -> Float | None:
    """The sum over the axes along which `shape` was broadcast; None if it was not."""
    if len(shape) > x.ndim:
        return None
    lead = x.ndim - len(shape)
    axes = [k for k in range(x.ndim) if k < lead or shape[k - lead] == 1]
    return np.asarray(x.sum(axis=tuple(axes))).reshape(shape) if _fits(x, shape, lead) else None


def _fits(x: Float, shape: tuple[int, ...], lead: int) -> bool:
    return all(n in (1, x.shape[lead + k]) for k, n in enumerate(shape))


def _apart(probe: Probe, name: str, other: str) -> bool:
    """Whether no element of both gradients differs from 0."""
    a, b = probe.right[name], probe.right[other]
    return a.shape == b.shape and not ((a != 0) & (b != 0)).any()


def _added(name: str, other: str, probe: Probe) -> Float | None:
    a, b = probe.right[name], probe.right.get(other)
    return a + b if b is not None and a.shape == b.shape else None


def _exchanged(obs: Observations) -> Iterator[Hypothesis]:
    """Two arguments, or an argument and the cotangent, change places in the call."""
    probe, own = obs.first, obs.gradient
    for a, b in combinations(probe.names, 2):
        if _alike(probe.primal(a), probe.primal(b)):
            yield Hypothesis(
                label=Defect.SLOT,
                says=f"{own} is right for {a} and {b} exchanged: one is read as the other",
                fits=partial(_swapped, a, b),
            )
    for a in probe.names:
        if len(probe.ct) == 1 and _alike(probe.primal(a), probe.ct[0]):
            yield Hypothesis(
                label=Defect.SLOT,
                says=f"{own} is right for {a} and the cotangent exchanged: "
                "one is read as the other",
                fits=partial(_taken_for_ct, a),
            )


def _alike(a: Array, b: Array) -> bool:
    return a.shape == b.shape and a.dtype.kind == b.dtype.kind == "f"


def _swapped(a: str, b: str, probe: Probe) -> bool:
    """Whether that explains all gradients, returned in either order."""
    if not _alike(probe.primal(a), probe.primal(b)):
        return False
    found = probe.vjp(primals={a: probe.primal(b), b: probe.primal(a)})
    if found is None:
        return False
    turned = {a: b, b: a}
    return any(
        all(probe.reproduces(found.get(place.get(n, n)), n) for n in found)
        for place in ({}, turned)
    )


def _taken_for_ct(a: str, probe: Probe) -> bool:
    """Whether that explains all gradients: where one alone is wrong, it read something else."""
    primal = probe.primal(a)
    if not _alike(primal, probe.ct[0]):
        return False
    found = probe.vjp((primal,), primals={a: probe.ct[0]})
    if found is None:
        return False
    alone = probe.vjp((primal,))
    if len(found) == 1 and alone is not None and np.array_equal(alone[a], found[a]):
        return False
    return all(probe.reproduces(found[n], n) for n in found)


# ── several tensors in one ───────────────────────────────────────────────────────────────────


def packed(obs: Observations) -> Iterator[Hypothesis]:
    """Parts of a packed tensor: one is lost, or another's stands in its place."""
    shape = obs.first.primal(obs.output).shape
    for axis in range(-len(shape), 0):
        for count in PACKED:
            if _is_packed(obs.first, obs.output, axis, count):
                yield from _parts(obs, axis, count)


def _is_packed(probe: Probe, name: str, axis: int, count: int) -> bool:
    """Whether an axis holds `count` tensors, of which the output has the size of one."""
    whole = probe.primal(name).shape
    return whole[axis] % count == 0 and any(
        len(part.shape) == len(whole) and part.shape[axis] * count == whole[axis]
        for part in probe.ct
    )


def _parts(obs: Observations, axis: int, count: int) -> Iterator[Hypothesis]:
    part, parts = PACKED[count]
    name, own = obs.output, obs.gradient
    for i, j in product(range(count), (None, *range(count))):
        if i != j:
            stands = "0 stands" if j is None else f"that of the {ORDINALS[j]} stands"
            says = f"{own} is lost in its {ORDINALS[i]} {part}: {stands} there"
            order: Order = [j if k == i else k for k in range(count)]
            yield predicting(
                obs, Defect.SLOT, says, partial(_parts_moved, axis, count, order, name)
            )
    for order in permutations(range(count)):
        if order == tuple(range(count)):
            continue
        order_words = f"in the order {', '.join(str(k + 1) for k in order)}"
        for says, edit in (
            (f"{own} has its {parts} {order_words}", _parts_moved),
            (f"{own} is right for the {parts} of {name} {order_words}", _read),
            (f"{own} takes the {parts} of {name} {order_words}", _returned),
        ):
            yield predicting(obs, Defect.SLOT, says, partial(edit, axis, count, order, name))


Order = Sequence[int | None]


def _parts_moved(axis: int, count: int, order: Order, name: str, probe: Probe) -> Float | None:
    if not _is_packed(probe, name, axis, count):
        return None
    return _ordered(probe.right[name], axis, count, order)


def _read(axis: int, count: int, order: Order, name: str, probe: Probe) -> Float | None:
    if not _is_packed(probe, name, axis, count):
        return None
    read = _ordered(probe.primal(name), axis, count, order)
    return probe.gradient(name, primals={name: read})


def _returned(axis: int, count: int, order: Order, name: str, probe: Probe) -> Float | None:
    """Read in another order, and written back in it."""
    found = _read(axis, count, order, name, probe)
    back = [order.index(k) for k in range(count)]
    return None if found is None else _ordered(found, axis, count, back)


def _ordered(x: Array, axis: int, count: int, order: Order) -> Array:
    parts = np.split(x, count, axis=axis)
    return np.concatenate(
        [np.zeros_like(parts[0]) if k is None else parts[k] for k in order], axis=axis
    )
