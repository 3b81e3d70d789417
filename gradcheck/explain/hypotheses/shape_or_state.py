"""Shape and state: a gradient is missing or misshapen; answers depend on earlier calls."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import Final

import numpy as np

from gradcheck.errors import Unsupported
from gradcheck.explain.hypothesis import Hypothesis, Observations, where_wrong
from gradcheck.explain.probe import Cotangent, Float, Gradients, Probe, near
from gradcheck.implementations.returned import Broken
from gradcheck.numerics.draw import Draw
from gradcheck.results.finding import Diagnosis
from gradcheck.spec.defect import Defect

FORM_RULE: Final = "form"
MAX_PERMUTED_AXES: Final = 6


def malformed(output: str, probes: Sequence[Probe]) -> Diagnosis | None:
    """Why the gradient of the primal `output` has no right form; None where it has one.

    A diagnosis of another shape holds at every probe with a wrong shape.
    """
    faulty = [probe for probe in probes if _faulty(probe, output)]
    if not faulty:
        return None
    obs = Observations(output, faulty, [p for p in probes if not _faulty(p, output)])
    if all(probe.raw[output] is None for probe in faulty):
        return _missing(obs)
    misshapen = [probe for probe in faulty if _misshapen(probe, output)]
    if not misshapen:
        return _of_dtype(obs)
    if any(output not in probe.right for probe in misshapen):  # too large to be differenced
        return _unknown(obs, _shapes(obs, misshapen[0]))
    return _of_shape(obs, [_Shaped(probe, output) for probe in misshapen])


def _faulty(probe: Probe, output: str) -> bool:
    if output not in probe.raw:
        return False  # unknown what was returned
    raw = probe.raw[output]
    return raw is None or raw.dtype.name != probe.dtype or _misshapen(probe, output)


def _misshapen(probe: Probe, output: str) -> bool:
    raw = probe.raw[output]
    return raw is not None and raw.shape != probe.primal(output).shape


def _shapes(obs: Observations, probe: Probe) -> str:
    raw = probe.raw[obs.output]
    shape = None if raw is None else raw.shape
    return (
        f"{obs.gradient} has shape {shape} where {obs.output} has {probe.primal(obs.output).shape}"
    )


def _missing(obs: Observations) -> Diagnosis:
    return Diagnosis(
        label=Defect.SLOT,
        says=f"{obs.gradient} is not returned: {obs.output} gets no gradient",
        rule=FORM_RULE,
        evidence=(where_wrong(obs),),
        cause="not returned",
    )


def _of_dtype(obs: Observations) -> Diagnosis:
    probe = next(p for p in obs.failing if p.raw[obs.output] is not None)
    raw = probe.raw[obs.output]
    assert raw is not None
    return Diagnosis(
        label=Defect.PRECISION,
        says=f"{obs.gradient} comes in {raw.dtype.name}, {obs.output} in {probe.dtype}: "
        "its precision changes on the way",
        rule=FORM_RULE,
        evidence=(where_wrong(obs),),
        cause=f"returned in {raw.dtype.name}",
    )


class _Shaped:
    def __init__(self, probe: Probe, output: str) -> None:
        raw = probe.raw[output]
        assert raw is not None
        self.probe = probe
        with np.errstate(all="ignore"):
            self.raw: Float = np.asarray(raw, dtype=np.float64)
        self.right: Float = np.asarray(probe.right[output])

    def near(self, guess: Float, to: Float) -> bool:
        """Whether two arrays of one shape agree to rounding."""
        return guess.shape == to.shape and near(guess, to, self.probe.dtype)

    # ── what it may be ───────────────────────────────────────────────────────────────────────

    def unreduced(self) -> bool:
        """Whether sums over the axes along which the primal was repeated give the gradient."""
        return any(self.near(summed, self.right) for summed in _sums(self.raw, self.right.shape))

    def overreduced(self) -> bool:
        """Whether it is the gradient summed over some of its axes."""
        return self.raw.size < self.right.size and any(
            self.near(self.raw.reshape(-1), self.right.sum(axis=axes).reshape(-1))
            for axes in _some(self.right.ndim)
        )

    def cotangent(self) -> bool:
        """Whether it is a part of the cotangent, in the shape of the output."""
        return any(self.near(self.raw, part) for part in self.probe.ct)

    def standing(self, other: str) -> bool:
        """Whether it is another primal's gradient."""
        return other in self.probe.right and self.near(self.raw, self.probe.right[other])

    def reshaped(self) -> bool:
        """Whether it holds the right numbers in the right order."""
        return self.near(self.raw.reshape(-1), self.right.reshape(-1))

    def turned(self) -> bool:
        """Whether it is the gradient with its axes in another order."""
        return sorted(self.raw.shape) == sorted(self.right.shape) and any(
            self.near(self.raw.transpose(order), self.right) for order in _orders(self.raw.ndim)
        )

    def cut(self) -> bool:
        """Whether one axis is too short and another too long, as where the wrong one was cut."""
        pairs = zip(self.raw.shape, self.right.shape, strict=False)
        signs = [np.sign(a - b) for a, b in pairs if a != b]
        return self.raw.ndim == self.right.ndim and sorted(signs) == [-1, 1]


def _sums(raw: Float, shape: tuple[int, ...]) -> Iterator[Float]:
    """Sums of `raw` that have `shape`: over leading axes, and over repetitions along the others.

    A repetition may follow its element (as repeat does) or its whole axis (as tile does).
    """
    lead = raw.ndim - len(shape)
    if lead < 0:
        return
    base = raw.sum(axis=tuple(range(lead)))
    if any(b == 0 or a % b for a, b in zip(base.shape, shape, strict=True)):
        return
    counts = [(a // b, b) for a, b in zip(base.shape, shape, strict=True)]
    tiled = [c for count, size in counts for c in (count, size)]
    repeated = [c for count, size in counts for c in (size, count)]
    yield base.reshape(tiled).sum(axis=tuple(range(0, 2 * len(shape), 2)))
    yield base.reshape(repeated).sum(axis=tuple(range(1, 2 * len(shape), 2)))


def _some(rank: int) -> Iterator[tuple[int, ...]]:
    for count in range(1, rank + 1):
        yield from itertools.combinations(range(rank), count)


def _orders(rank: int) -> Iterator[tuple[int, ...]]:
    if rank <= MAX_PERMUTED_AXES:
        yield from itertools.permutations(range(rank))


def _of_shape(obs: Observations, shaped: Sequence[_Shaped]) -> Diagnosis:
    own = obs.gradient
    first = shaped[0]
    shapes = _shapes(obs, first.probe)
    ranks = {probe.primal(obs.output).ndim for probe in obs.passing}
    lone = bool(ranks) and max(ranks) < min(s.right.ndim for s in shaped)
    hypotheses: tuple[tuple[str, str, Callable[[_Shaped], bool]], ...] = (
        (
            Defect.BROADCAST,
            f"{own} is not summed over the axes along which {obs.output} is repeated",
            _Shaped.unreduced,
        ),
        (Defect.LAYOUT, f"{own} is the right gradient in another shape", _Shaped.reshaped),
        (
            Defect.LAYOUT,
            f"{own} is the cotangent itself: it is left in the output's shape",
            _Shaped.cotangent,
        ),
        *(
            (Defect.SLOT, f"{own} is the gradient of {other}: it stands in the wrong place",
             functools.partial(_Shaped.standing, other=other))
            for other in first.probe.right
        ),
        (Defect.INDEX,
         f"{own} has its axes in another order where there are batch axes: they are counted with "
         "them", lambda s: lone and s.turned()),
        (Defect.LAYOUT, f"{own} is the right gradient with its axes in another order",
         _Shaped.turned),
        (Defect.BROADCAST, f"{own} is summed over axes that {obs.output} has", _Shaped.overreduced),
        (Defect.INDEX, f"{own} is cut along another axis than forward cuts", _Shaped.cut),
    )  # fmt: skip
    for label, says, holds in hypotheses:
        if all(map(holds, shaped)):
            return Diagnosis(
                label=label, says=says, rule=FORM_RULE, evidence=(shapes, where_wrong(obs))
            )
    return _unknown(obs, shapes)


def _unknown(obs: Observations, shapes: str) -> Diagnosis:
    says = f"{obs.gradient}: no known pattern"
    return Diagnosis(label="", says=says, evidence=(shapes, where_wrong(obs)))


STATE_RULE: Final = "recall"
REPEATS: Final = 8
"""Calls with the same arguments that are compared where nothing else tells."""
ZERO_CALLS: Final = 4
"""Calls with a cotangent of zeros between two histories that are compared."""
MAX_REPEAT_DIFFERENCE: Final = 0.3
"""What comes back may differ by so much of itself from one time to the next."""
MAX_REORDERING_ULPS: Final = 1024.0
"""Units of u, of the largest element, below which answers differ as the orders of a sum do."""


def state_defect(probe: Probe, otherwise: str) -> Diagnosis | None:
    """Why `probe.ask` gives different answers to one cotangent; None where it cannot be asked.

    `otherwise` is the class without a pattern: "C" where the same call gave other bits, "V" where
    it did so only after other calls.
    """
    history = _History(probe)
    try:
        for pattern in (history.lags, history.adds, history.leaves, history.overwrites):
            found = pattern()
            if found is not None:
                return found
        return history.varies(otherwise)
    except (Broken, Unsupported):
        return None


class _History:
    """The code's answers at one point after different histories of calls."""

    def __init__(self, probe: Probe) -> None:
        self._probe = probe
        draw = Draw("recall", probe.where, probe.seed)
        self._u = probe.ct
        self._v = tuple(draw.signed(*part.shape) for part in self._u)
        self._zero = tuple(np.zeros_like(part) for part in self._u)

    # ── patterns, each a history of calls of its own ─────────────────────────────────────────

    def lags(self) -> Diagnosis | None:
        """Whether the answer to v, asked after u, is the right answer to u."""
        late = self._after([self._u], self._v)
        names = self._off(late, self._probe.vjp(ct=self._v))
        if not names or self._off(late, self._probe.vjp(ct=self._u), names):
            return None
        return self._diagnosis(
            Defect.SAVED_VALUE,
            f"{_are(names)} the answer to the call before: a buffer is returned before it is "
            "written",
            "asked with another cotangent, it gave the right gradient for the one before",
        )

    def adds(self) -> Diagnosis | None:
        """Whether each call gives one right gradient more than the last."""
        answers = [self._probe.ask(self._u) for _ in range(3)]
        expected = self._probe.vjp(ct=self._u)
        names = self._off(answers[-1], expected)
        if not names or expected is None:
            return None
        for name in names:
            held = [answer.get(name) for answer in answers]
            if not all(_one_more(a, b, expected[name], self._probe.dtype)
                       for a, b in itertools.pairwise(held)):  # fmt: skip
                return None
        return self._diagnosis(
            Defect.ACCUMULATION,
            f"{_are(names)} added to what earlier calls gave: a buffer is never cleared",
            "each of three calls with the same arguments gave one right gradient more, to rounding",
        )

    def leaves(self) -> Diagnosis | None:
        """Whether a cotangent of zeros gets something that follows from the calls before."""
        less = tuple(-part for part in self._u)
        histories = [[*[self._zero] * ZERO_CALLS, ct] for ct in (self._u, less, self._u)]
        first, other, again = (self._after(history, self._zero) for history in histories)
        for name in first:
            if name not in other or name not in again or not np.any(first[name]):
                continue
            moved = max(_norm(first[name]), _norm(first[name] - other[name]))
            if _norm(first[name] - again[name]) <= MAX_REPEAT_DIFFERENCE * moved < np.inf:
                return self._diagnosis(
                    Defect.ACCUMULATION,
                    f"{_name(name)} holds what earlier calls left: something that is summed up is "
                    "not cleared between calls",
                    "a cotangent of zeros, right after another, gave no zeros",
                )
        return None

    def overwrites(self) -> Diagnosis | None:
        """Whether the answer follows from the calls before, with nothing of them left for zeros."""
        zeros, others = [self._zero] * 2, [self._v] * 2
        a, b, c, d = (self._after(h, self._u) for h in (zeros, others, zeros, others))
        names = _differing([a, b])
        if not names or _differing([a, c]) or _differing([b, d]):
            return None
        return self._diagnosis(
            Defect.ALIASING,
            f"{_are(names)} computed from something saved that an earlier call wrote over",
            "after the same calls it gave the same bits, after others it did not",
        )

    def varies(self, otherwise: str) -> Diagnosis | None:
        """Describe how often answers differ, and by how much."""
        answers = [self._probe.ask(self._u) for _ in range(REPEATS)]
        names = _differing(answers)
        if otherwise == Defect.SAVED_VALUE and not names:
            return None  # it takes other calls
        what = " and ".join(map(_name, names)) or "the answer"
        seen = (
            f"{REPEATS} calls with the same arguments gave "
            f"{len({_bits(answer) for answer in answers})} different answers"
            if names
            else f"{REPEATS} further calls with the same arguments gave the same bits"
        )
        if otherwise == Defect.SAVED_VALUE:
            return self._diagnosis(
                Defect.SAVED_VALUE, f"{what} depends on the values of an earlier call", seen
            )
        off = _apart(answers, names)
        why = "a race, a random number, or memory that nobody has written to"
        if 0 < off <= MAX_REORDERING_ULPS * self._probe.u:
            why = "as where a sum runs in another order each time"
            seen += f", {off:.1g} of its largest element apart"
        return self._diagnosis(
            Defect.NONDETERMINISM, f"{what} changes from call to call: {why}", seen
        )

    # ── asking and comparing ─────────────────────────────────────────────────────────────────

    def _after(self, history: Sequence[Cotangent], ct: Cotangent) -> Gradients:
        """The answer to `ct` after other calls."""
        for before in history:
            self._probe.ask(before)
        return self._probe.ask(ct)

    def _off(
        self, got: Gradients, expected: Gradients | None, names: Sequence[str] | None = None
    ) -> list[str]:
        """The gradients that are not as expected; without an expectation, all of `names`."""
        if expected is None:
            return [*(names or ())]
        some = got if names is None else names
        return [
            n for n in some if n in expected and not near(got[n], expected[n], self._probe.dtype)
        ]

    def _diagnosis(self, label: str, says: str, seen: str) -> Diagnosis:
        return Diagnosis(
            label=label, says=says, rule=STATE_RULE, evidence=(f"at {self._probe.where}, {seen}",)
        )


def _one_more(before: Float | None, after: Float | None, step: Float, dtype: str) -> bool:
    if before is None or after is None or not np.any(step):
        return False
    largest = float(np.max(np.abs(after), initial=0.0))
    return near(after - before, step, dtype, largest)


def _differing(answers: Sequence[Gradients]) -> list[str]:
    """The gradients that are not the same bits in all answers."""
    names = dict.fromkeys(name for answer in answers for name in answer)
    return [n for n in names if len({_bits({n: a[n]} if n in a else {}) for a in answers}) > 1]


def _apart(answers: Sequence[Gradients], names: Sequence[str]) -> float:
    """The largest difference between two answers, as a part of their largest element."""
    worst = 0.0
    for name in names:
        held = [answer[name] for answer in answers if name in answer]
        largest = max(_norm(a, np.inf) for a in held)
        change = max(_norm(a - held[0], np.inf) for a in held)
        worst = max(worst, change / largest if largest > 0 else np.inf)
    return worst


def _name(name: str) -> str:
    return f"d{name}" if name.isidentifier() else f"d {name}"


def _are(names: Sequence[str]) -> str:
    return f"{' and '.join(map(_name, names))} {'is' if len(names) == 1 else 'are'}"


def _norm(values: Float, order: float = 2) -> float:
    with np.errstate(all="ignore"):
        return float(np.linalg.norm(values.reshape(-1), order)) if values.size else 0.0


def _bits(answer: Gradients) -> bytes:
    return b"\x1f".join(name.encode() + answer[name].tobytes() for name in sorted(answer))


def earlier(obs: Observations) -> Iterator[Hypothesis]:
    """Wrong gradients repeat, bit by bit, an answer given at another point of the same shape.

    At one of those points at least it was right, and no constant array.
    """
    name = obs.output
    asked = [p for p in (*obs.failing, *obs.passing) if name in p.got]

    def again(probe: Probe) -> list[Probe]:
        return [p for p in asked if p is not probe and _repeats(probe, p, name)]

    kept = [source for probe in obs.failing if name in probe.got for source in again(probe)]
    if any(not source.fails(name) and _varied(source.got[name]) for source in kept):
        yield Hypothesis(
            label=Defect.SAVED_VALUE,
            says=f"{obs.gradient} is the answer to an earlier call of the same shape: it is "
            "kept, and not computed anew",
            fits=lambda probe: not probe.fails(name) or bool(again(probe)),
            evidence=("other primals and cotangents of the same shape get the same bits",),
        )


def _varied(values: Float) -> bool:
    return values.size > 1 and bool(np.any(values != values.reshape(-1)[0]))


def _repeats(probe: Probe, other: Probe, name: str) -> bool:
    """Whether two points have equal answers, though their right gradients differ."""
    a, b = probe.got.get(name), other.got.get(name)
    if a is None or b is None or a.shape != b.shape:
        return False
    expected = probe.right[name], other.right[name]
    return a.tobytes() == b.tobytes() and not np.array_equal(*expected, equal_nan=True)
