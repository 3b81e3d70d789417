"""Sizes: right for most sizes and wrong for some; right for entries alone, not together."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import Final

import numpy as np

from gradcheck.explain.hypothesis import Hypothesis, Observations
from gradcheck.explain.probe import RAISES, Array, Probe, agree
from gradcheck.numerics.arrays import Attrs
from gradcheck.numerics.draw import Draw
from gradcheck.spec.defect import Defect

BLOCKS: Final = (4, 8, 16, 32, 64, 128)
"""What loops are unrolled or blocked by."""
MIN_LENGTH: Final = 4
"""Elements up to which a size that is right may be right by accident."""
MAX_LENGTH: Final = 150
EXTRA_SIZES: Final = 3
MIN_LAST_SIZE: Final = 18
"""Up to which size a short axis is continued: past two blocks of eight."""
MIN_SIZES_ASKED: Final = 5
MAX_ENTRIES_ALONE: Final = 7
OTHER_ENTRY_FACTORS: Final = (0.875, -0.75)
"""Factors on other entries of primals and cotangent, to see whether one reads them."""
MIN_ENTRY_SIZE: Final = 2
"""Elements of an entry below which nothing in it can be mixed up."""
MIN_SHARE_OF_PROBES: Final = 0.5
"""Share of failing probes whose axes must be told from each other."""

Predicate = Callable[[int], bool]
Condition = Callable[[Probe], bool]


def sizes(obs: Observations) -> Iterator[Hypothesis]:
    """Along one axis, cut and continued, it is wrong from some size on, or between blocks."""
    name = obs.output
    probe = max(obs.failing, key=lambda p: max(_long(p), default=0))
    for n in sorted(_long(probe), reverse=True):
        if not _right_somewhere(probe, name, n):
            continue
        found = _verdicts(probe, name, n, np.arange(n))
        if len(found) < MIN_SIZES_ASKED or found != _verdicts(probe, name, n, _shuffled(n)):
            continue
        for words, predicate, there in (*_predicates(probe), *_relations(probe, n)):
            right = [m for m in found if not predicate(m)]
            if MIN_SIZES_ASKED // 2 < len(right) < len(found) and all(
                found[m] == predicate(m) for m in found
            ):
                yield Hypothesis(
                    label=Defect.SHAPE,
                    says=f"{obs.gradient} is wrong only where an axis has {words}",
                    fits=_at_such(name, there),
                    evidence=(
                        f"the axis of {n} at {probe.where} was cut to and continued to "
                        f"{len(found)} sizes from {min(found)} to {max(found)}: the gradient is "
                        f"right at {len(right)} of them, whatever stands where",
                    ),
                )


def _at_such(name: str, there: Condition) -> Callable[[Probe], bool]:
    """Whether a probe is wrong only under the condition."""
    return lambda probe: not probe.fails(name) or there(probe)


def _long(probe: Probe) -> set[int]:
    """Lengths of axes that are worth cutting."""
    return {n for p in probe.primals for n in p.shape if MIN_LENGTH < n <= MAX_LENGTH}


def _right_somewhere(probe: Probe, name: str, n: int) -> bool:
    """A first look at a few sizes."""
    few = {2, n // 2, n - 1, *(block for block in BLOCKS if block <= _last(n))}
    return any(
        found is not None and name in found.got and not found.fails(name)
        for m in sorted(few)
        for found in [_taken(probe, n, np.resize(np.arange(n), m))]
    )


def _verdicts(probe: Probe, name: str, n: int, order: Array) -> dict[int, bool]:
    """By size: whether the gradient is wrong with so many of the axis's entries, in an order."""
    out = {}
    for m in range(1, _last(n) + 1):
        found = _taken(probe, n, np.resize(order, m))
        if found is not None:
            out[m] = found.fails(name)
    return out


def _last(n: int) -> int:
    """The largest size that an axis is continued to."""
    return max(n + EXTRA_SIZES, MIN_LAST_SIZE)


def _shuffled(n: int) -> Array:
    return Draw("other order", n).permutation(n)


def _numbers(attrs: Attrs) -> set[int]:
    """Whole numbers among attributes: a limit equal to one of them is an ignored attribute."""
    flat = (v for value in attrs.values() for v in (value if type(value) is tuple else (value,)))
    return {v for v in flat if isinstance(v, int) and not isinstance(v, bool)}


def _predicates(probe: Probe) -> Iterator[tuple[str, Predicate, Condition]]:
    """Conditions on sizes: in words, as a function of the size, and at any probe."""
    numbers = _numbers(probe.attrs)
    blocks = [block for block in BLOCKS if block not in numbers]
    found = [(f"more than {block} elements", _above(block)) for block in blocks]
    found += [(f"a length that is no multiple of {block}", _remainder(block)) for block in blocks]
    found += [(f"a remainder after blocks of {n}", _remainder(n, n)) for n in blocks]
    found.append(("a length that is no power of two", lambda m: m & (m - 1) != 0))
    found.append(("an odd length above 1", _remainder(2, 1)))
    for words, predicate in found:
        yield words, predicate, _some_length(predicate)


def _relations(probe: Probe, n: int) -> Iterator[tuple[str, Predicate, Condition]]:
    numbers = _numbers(probe.attrs)
    for i, value in enumerate(probe.primals):
        for k, other in enumerate(value.shape):
            if other not in {1, n, *numbers}:
                words = f"more elements than axis {k} of {probe.names[i]} has"
                yield words, _above(other), _longer(i, k)


def _some_length(predicate: Predicate) -> Condition:
    return lambda probe: any(predicate(n) for p in probe.primals for n in p.shape)


def _longer(i: int, axis: int) -> Condition:
    return lambda p: any(n > p.primals[i].shape[axis] for x in p.primals for n in x.shape)


def _above(cap: int) -> Predicate:
    return lambda m: m > cap


def _remainder(block: int, cap: int = 0) -> Predicate:
    return lambda m: m > cap and m % block != 0


def alone(obs: Observations) -> Iterator[Hypothesis]:
    """Along axes whose entries are independent, each entry alone is right."""
    probe, name = obs.first, obs.output
    if any(name not in p.got for p in obs.failing) or _same_numbers(probe, name):
        return
    telling = [p for p in obs.failing if _tells(p, name)]
    axes = (
        _alone(telling[0], name) if len(telling) >= MIN_SHARE_OF_PROBES * len(obs.failing) else ()
    )
    mixed = bool(axes) and _reads_others(telling[0], name, axes)
    if mixed or (axes and _some_right(telling[0], name, axes)):
        which = " and ".join(str(axis) for axis in axes)
        which = f"axis {which}" if len(axes) == 1 else f"axes {which}"
        yield Hypothesis(
            label=Defect.INDEX,
            says=f"{obs.gradient} mixes up the entries along {which}: each alone is right"
            if mixed
            else f"{obs.gradient} is wrong by the place along {which}: each entry alone is right",
            fits=lambda p: not p.fails(name) or not _tells(p, name) or bool(_alone(p, name)),
            evidence=(
                f"asked for one entry of {which} at a time, the code is right; the right gradient "
                "is then the same as that of all together",
            ),
        )


def _alone(probe: Probe, name: str) -> tuple[int, ...]:
    """The first axes, or the one axis, whose entries are right alone; () if none."""
    shape, telling = probe.right[name].shape, _lengths(probe, name)
    every = [tuple(range(k)) for k in range(1, len(shape))] + [(k,) for k in range(1, len(shape))]
    for axes in every:
        whole = all(shape[axis] in telling or shape[axis] == 1 for axis in axes)
        mixed = [axis for axis in axes if shape[axis] > 1]
        if whole and mixed and _right_alone(probe, name, [shape[axis] for axis in mixed]):
            return tuple(mixed)
    return ()


def _reads_others(probe: Probe, name: str, axes: tuple[int, ...]) -> bool:
    """Whether a wrong entry changes with the others: else its place or the size is to blame."""
    wrong = probe.wrong(name)
    for axis in axes:
        n = wrong.shape[axis]
        rest = tuple(k for k in range(wrong.ndim) if k != axis)
        for k in np.flatnonzero(wrong.any(axis=rest)):
            moved = _others_moved(probe, n, int(k))
            if moved is None or name not in moved.got:
                continue
            before, after = (np.take(p.got[name], k, axis) for p in (probe, moved))
            if not agree(after, before):
                return True
    return False


def _some_right(probe: Probe, name: str, axes: tuple[int, ...]) -> bool:
    """Whether entries are right among others that are wrong: at one size, their places differ."""
    wrong = probe.wrong(name)
    rest = tuple(k for k in range(wrong.ndim) if k not in axes)
    return not bool(wrong.any(axis=rest).all())


def _others_moved(probe: Probe, n: int, k: int) -> Probe | None:
    """The code where all but entry `k` of the axes of length `n` have moved."""

    def move(x: Array, factor: float) -> Array:
        if x.dtype.kind != "f" or n not in x.shape:
            return x
        shape = [1] * x.ndim
        shape[x.shape.index(n)] = n
        return x * np.where(np.arange(n) == k, 1.0, factor).reshape(shape)

    primals, ct = OTHER_ENTRY_FACTORS
    cts = tuple(move(part, ct) for part in probe.ct)
    return probe.at([move(p, primals) for p in probe.primals], cts)


def _lengths(probe: Probe, name: str) -> set[int]:
    """Lengths of the gradient's axes by which these can be told from each other."""
    shape = probe.right[name].shape
    return {n for n in shape if n > 1 and shape.count(n) == 1}


def _tells(probe: Probe, name: str) -> bool:
    """Whether there is such an axis, with entries of several elements."""
    return any(probe.right[name].size // n >= MIN_ENTRY_SIZE for n in _lengths(probe, name))


def _same_numbers(probe: Probe, name: str) -> bool:
    """Whether the right numbers were returned in another order."""
    got, right = (np.sort(g[name].ravel()) for g in (probe.got, probe.right))
    return agree(got, right)


def _right_alone(probe: Probe, name: str, lengths: Sequence[int]) -> bool:
    for place in itertools.islice(
        itertools.product(*(range(n) for n in lengths)), MAX_ENTRIES_ALONE
    ):
        found: Probe | None = probe
        whole = probe.right[name]
        for n, k in zip(lengths, place, strict=True):
            found = _taken(found, n, np.array([k])) if found is not None else None
            whole = np.take(whole, [k], whole.shape.index(n))
        if found is None or found.fails(name) or whole.size < MIN_ENTRY_SIZE:
            return False
        if found.right[name].shape != whole.shape or not agree(found.right[name], whole):
            return False
    return True


def _taken(probe: Probe, n: int, indices: Array) -> Probe | None:
    """The code at some entries of all axes of one length, under the cotangent of these."""

    def take(x: Array) -> Array:
        for axis, size in enumerate(x.shape):
            if size == n:
                x = np.take(x, indices, axis)
        return x

    primals = [take(p) for p in probe.primals]
    try:
        with np.errstate(all="ignore"):
            outputs = probe.truth.forward(primals, probe.attrs)
    except RAISES:  # this length means something to an attribute
        return None
    cts = tuple(take(part) for part in probe.ct)
    if any(ct.shape != out.shape for ct, out in zip(cts, outputs, strict=True)):
        return None
    return probe.at(primals, cts)
