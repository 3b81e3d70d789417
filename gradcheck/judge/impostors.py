"""Wrong gradients that need no knowledge of the operator: every check must reject them.

Some are plain mistakes (zeros, a wrong sign, a stale value). The narrowings are right formulas in a
narrower type, which round what they read, keep or return. A kernel that computes in TF32 or float16
does at least one of these; a check that rejects each of them alone rejects the kernel. A
`Certificate` lists those that a check rejects at one sample.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import Any, Final

import numpy as np

from gradcheck.judge.compare import TOLERANCES, Tolerance, largest_scale, tolerance_of
from gradcheck.judge.cotangents import Cotangents
from gradcheck.judge.gradient_truth import GradientTruth
from gradcheck.numerics.arithmetic import F64, Arithmetic
from gradcheck.numerics.arrays import Array, Float, Mask
from gradcheck.numerics.draw import key_of
from gradcheck.numerics.narrow import (
    BFLOAT16,
    COTANGENT,
    FLOAT16,
    OPERANDS,
    PRODUCTS,
    RESULT,
    SUMS,
    TYPES,
    Narrow,
    NarrowArithmetic,
    Narrowing,
    narrower,
)
from gradcheck.results.finding import Certificate

Gradients = Sequence[Array | None]
ELEMENT_ERROR: Final = 2.0**-7
"""The relative error of one wrong element: a binary one per cent."""
Vjp = Callable[[Arithmetic, tuple[Array, ...], Sequence[Array]], "list[Float]"]
"""A VJP in an arithmetic, for a cotangent, at primals: one flat row per primal, [n] each."""
NARROWINGS: Final = (
    *(Narrowing(what, one) for what in (OPERANDS, COTANGENT, RESULT) for one in TYPES),
    Narrowing(PRODUCTS, FLOAT16),
    Narrowing(SUMS, BFLOAT16),
)
NARROWINGS_BY_NAME: Final = {one.name: one for one in NARROWINGS}
SAME_SHARE: Final = 1e-12
"""An impostor nowhere further off than this part of the largest Σ|ct·J| equals the truth."""
SAME_BARS: Final = 4.0
"""Error bars that it may be off besides: equal gradients are not equally well known."""
WIDEST_DTYPE: Final = "float32"
"""The differenced dtype with the widest tolerance: the others reject more."""
DESCRIPTIONS: Final = {
    OPERANDS: "the gradient at primals that were rounded to",
    COTANGENT: "the gradient for a cotangent that was rounded to",
    RESULT: "the gradient rounded to",
    PRODUCTS: "the gradient with every product kept in",
    SUMS: "the gradient with every sum kept in",
}
ARITHMETICS: Final = {
    PRODUCTS: NarrowArithmetic(products=FLOAT16),
    SUMS: NarrowArithmetic(sums=BFLOAT16),
}


@dataclass(frozen=True, slots=True)
class Answers:
    """The right gradients under one cotangent, and others that may be returned in their place.

    `gradients` holds one array per primal (None: an index); `ignored()` gives those for a cotangent
    of all ones, `earlier()` those for some other cotangent, `elsewhere()` those at other primals
    (None: not known).
    """

    gradients: Gradients
    ct: tuple[Array, ...]
    ignored: Callable[[], Gradients]
    earlier: Callable[[], Gradients]
    elsewhere: Callable[[], Gradients | None] = lambda: None


@dataclass(frozen=True, slots=True)
class Impostor:
    """One wrong gradient: `make(answers, index)` gives it, or None where it does not apply."""

    name: str
    says: str
    make: Callable[[Answers, int], Array | None]


def _times(factor: float) -> Callable[[Answers, int], Array | None]:
    return lambda answers, i: _own(answers, i) * np.asarray(factor, _own(answers, i).dtype)


def _own(answers: Answers, index: int) -> Array:
    gradient = answers.gradients[index]
    assert gradient is not None
    return gradient


def _largest(gradient: Array, value: Callable[[Any], Any]) -> Array:
    out = gradient.copy()
    if out.size:
        flat = out.reshape(-1)
        size = np.abs(flat)
        place = size.argmax()  # NaN counts as the largest of all
        if np.isnan(size[place]):
            place = np.where(np.isnan(size), 0.0, size).argmax()
        flat[place] = value(flat[place])
    return out


def _mean(answers: Answers, index: int) -> Array | None:
    gradient = _own(answers, index)
    count = max(part.size for part in answers.ct) if answers.ct else 1
    return gradient / np.asarray(count, gradient.dtype) if count > 1 else None


def _cotangent(answers: Answers, index: int) -> Array | None:
    shape = _own(answers, index).shape
    return next((part.copy() for part in answers.ct if part.shape == shape), None)


def _rolled(answers: Answers, index: int) -> Array | None:
    gradient = _own(answers, index)
    if not gradient.ndim:
        return None
    return np.concatenate([gradient[..., -1:], gradient[..., :-1]], axis=-1)


def _transposed(answers: Answers, index: int) -> Array | None:
    gradient = _own(answers, index)
    square = gradient.ndim >= 2 and gradient.shape[-1] == gradient.shape[-2] > 1
    return np.swapaxes(gradient, -1, -2).copy() if square else None


def _swapped(answers: Answers, index: int) -> Array | None:
    shape = _own(answers, index).shape
    for j, other in enumerate(answers.gradients):
        if j != index and other is not None and other.shape == shape:
            return other.copy()
    return None


def _ignored(answers: Answers, index: int) -> Array | None:
    return answers.ignored()[index]


def _stale(answers: Answers, index: int) -> Array | None:
    earlier = answers.earlier()[index]
    return None if earlier is None else _own(answers, index) + earlier


def _elsewhere(answers: Answers, index: int) -> Array | None:
    gradients = answers.elsewhere()
    other = None if gradients is None else gradients[index]
    return other if other is not None and other.shape == _own(answers, index).shape else None


IMPOSTORS: Final = (
    Impostor("zeros", "nothing but zeros", lambda a, i: np.zeros_like(_own(a, i))),
    Impostor("ones", "a buffer that nobody wrote to", lambda a, i: np.ones_like(_own(a, i))),
    Impostor("cotangent", "the cotangent itself", _cotangent),
    Impostor("nan", "NaN in one element", lambda a, i: _largest(_own(a, i), lambda _: np.nan)),
    Impostor("negated", "the other sign", _times(-1.0)),
    Impostor("double", "twice as much", _times(2.0)),
    Impostor("half", "half as much", _times(0.5)),
    Impostor("one-percent", "1% too much", _times(1.01)),
    Impostor("mean", "divided by the number of outputs", _mean),
    Impostor(
        "one-element",
        "the largest element 1% off",
        lambda a, i: _largest(_own(a, i), lambda g: g * (1 + ELEMENT_ERROR)),
    ),
    Impostor(
        "one-zero", "the largest element zero", lambda a, i: _largest(_own(a, i), lambda g: g * 0)
    ),
    Impostor("rolled", "shifted by one along the last axis", _rolled),
    Impostor("transposed", "transposed", _transposed),
    Impostor("swapped", "another primal's gradient", _swapped),
    Impostor("ignored", "the gradient for a cotangent of all ones", _ignored),
    Impostor("stale", "added to an earlier call's gradient", _stale),
    Impostor("elsewhere", "the gradient at other primals", _elsewhere),
)


def describe(narrowing: Narrowing) -> str:
    """A narrowing in words."""
    return f"{DESCRIPTIONS[narrowing.what]} {narrowing.type.title}"


@dataclass
class NarrowedGradients:
    """Each narrowing's gradients of one VJP at one point, under one cotangent."""

    vjp: Vjp
    primals: Sequence[Array]
    ct: tuple[Array, ...]
    right: Sequence[Float]
    _known: dict[tuple[str, bytes], list[Float]] = field(default_factory=dict)

    @cached_property
    def offs(self) -> dict[str, list[Float]]:
        """How far each primal's gradient is off, [n] each, by the names of narrowings."""
        return {one.name: self._off_by(one) for one in NARROWINGS}

    def _off_by(self, narrowing: Narrowing) -> list[Float]:
        what, kept = narrowing.what, narrowing.type
        if what == RESULT:
            return [kept.rounded(row) - row for row in self.right]
        if what in ARITHMETICS:
            return self._off(ARITHMETICS[what], self.ct, self.primals)
        if what == OPERANDS:
            return self._off(F64, self.ct, self._rounded(kept))
        return self._off(F64, tuple(kept.rounded(p) for p in self.ct), self.primals)

    def moved(self, kept: Narrow, index: int) -> Float:
        """How far the gradient of primal `index` is off at primals beside these, [n].

        They are as far away as rounding to the type may move them; zeros stay.
        """
        return self._off(F64, self.ct, self._beside(kept))[index]

    def holds(self, kept: Narrow) -> bool:
        """Whether the type holds all primals as they are."""
        pairs = zip(self.primals, self._rounded(kept), strict=True)
        return all(np.array_equal(p, r, equal_nan=p.dtype.kind == "f") for p, r in pairs)

    def _rounded(self, kept: Narrow) -> list[Array]:
        return [kept.rounded(p) if p.dtype.kind == "f" else p for p in self.primals]

    def _beside(self, kept: Narrow) -> list[Array]:
        rng = np.random.Generator(np.random.Philox(key=key_of("beside", kept.name)))
        unit = 2.0**-kept.bits
        return [
            p * (1 + unit * rng.choice([-1.0, 1.0], p.shape)) if p.dtype.kind == "f" else p
            for p in self.primals
        ]

    def _off(self, xp: Arithmetic, ct: tuple[Array, ...], primals: Sequence[Array]) -> list[Float]:
        """Computed once for the same numbers: float16 and TF32 round most of them alike."""
        key = str(id(xp)), b"".join(p.tobytes() for p in (*ct, *primals))
        if key not in self._known:
            with np.errstate(all="ignore"):
                found = self.vjp(xp, ct, primals)
                self._known[key] = [a - b for a, b in zip(found, self.right, strict=True)]
        return self._known[key]


def certificate_of(
    names: Sequence[str],
    failed: Mask,
    types: Mapping[str, Narrow],
    shares: Callable[[list[int]], Float],
) -> Certificate:
    """The impostors `names` that a comparison rejects, by those that `failed`.

    `types` holds the types of those that only round, and `shares(some)` the parts of the bound that
    these are off.
    """
    passed = [k for k in range(len(names)) if not failed[k]]
    within = [k for k in passed if names[k] in types]
    pairs = zip(within, shares(within) if within else (), strict=True)
    return Certificate(
        rejected=tuple(name for k, name in enumerate(names) if failed[k]),
        blind=tuple(names[k] for k in passed if names[k] not in types),
        tolerated=tuple(_tolerated(names[k], types[names[k]], float(s)) for k, s in pairs),
    )


def _tolerated(name: str, kind: Narrow, share: float) -> str:
    """The name of a rounding of a `share` of the bound, and the bits at which it would show."""
    bits = kind.bits - 1 + math.floor(math.log2(share)) if share > 0 else -1
    return f"{name}: shows from {bits} bits" if bits >= 0 else f"{name}: shows at no precision"


@dataclass(slots=True)
class Certifier:
    """The impostors of every gradient of one case, made from the true gradients.

    `truths` holds None for an index; `narrowed` are the gradients of narrower types under the first
    cotangent.
    """

    truths: Sequence[GradientTruth | None]
    cotangents: Cotangents
    narrowed: NarrowedGradients
    _made: dict[int, tuple[list[str], Float]] = field(default_factory=dict)
    _widest: dict[tuple[int, float], tuple[tuple[bytes, ...], Mask]] = field(default_factory=dict)

    def certificate(self, index: int, tolerance: Tolerance) -> Certificate:
        """Which impostors of the gradient of primal `index` the comparison rejects."""
        truth = self.truths[index]
        assert truth is not None
        if index not in self._made:  # a dtype changes what is allowed, not what is wrong
            self._made[index] = self._make(truth, index)
        names, stack = self._made[index]
        known = [
            k
            for k, name in enumerate(names)
            if name not in NARROWINGS_BY_NAME or NARROWINGS_BY_NAME[name].below(tolerance.dtype)
        ]
        failed = self._rejected(truth, index, stack, tolerance) if names else np.zeros(0, bool)
        return certificate_of(
            [names[k] for k in known],
            failed[known],
            {name: narrowing.type for name, narrowing in NARROWINGS_BY_NAME.items()},
            lambda some: truth.excess(stack[[known[k] for k in some]], tolerance),
        )

    def short(self, tolerance: Tolerance) -> Narrow | None:
        """A type that holds all primals, and whose rounding would show at other primals."""
        held = [t for t in narrower(tolerance.dtype) if self.narrowed.holds(t)]
        coarsest = min(held, key=lambda t: t.bits, default=None)
        if coarsest is None:
            return None
        for index, truth in enumerate(self.truths):
            if truth is not None and truth.shape and 0 not in truth.shape:
                off = self.narrowed.moved(coarsest, index)
                if truth.rejects(_beside(truth, [off]), tolerance).any():
                    return coarsest
        return None

    def _rejected(
        self, truth: GradientTruth, index: int, stack: Float, tolerance: Tolerance
    ) -> Mask:
        """Which of `stack` [k, q, n] fail, judged by the widest tolerance for all dtypes at once.

        An impostor that fails by it fails by all others, whose bounds are smaller everywhere. It is
        judged again only if the truth was refined in between.
        """
        if tolerance.dtype not in TOLERANCES:
            return truth.rejects(stack, tolerance)
        known, key = _state(truth), (index, tolerance.extra_ulp)
        before, failed = self._widest.get(key, ((), None))
        if failed is None or before != known:
            failed = truth.rejects(stack, tolerance_of(WIDEST_DTYPE, tolerance.extra_ulp))
            self._widest[key] = known, failed
        if tolerance.dtype == WIDEST_DTYPE or failed.all():
            return failed
        sharper = failed.copy()
        sharper[~failed] = truth.rejects(stack[~failed], tolerance)
        return sharper

    def _make(self, truth: GradientTruth, index: int) -> tuple[list[str], Float]:
        """Names of the impostors, and each as rows: [k, q, n].

        An impostor that equals the truth here (zeros, where the gradient is zero) is left out.
        """
        answers, right = self._answers(), truth.settled()
        estimate = truth.differences.estimate
        known = np.isfinite(estimate.bar)
        if truth.kinks is not None:
            known = known & ~truth.kinks.interval.which  # a jump has a bar that hides everything
        bar = np.where(known, estimate.bar, 0.0)
        same = SAME_SHARE * np.max(largest_scale(estimate), initial=0.0) + SAME_BARS * bar
        names: list[str] = []
        rows: list[Array] = []
        with np.errstate(all="ignore"):
            for impostor in IMPOSTORS:
                wrong = [w for a in answers if (w := impostor.make(a, index)) is not None]
                if len(wrong) == len(answers):
                    names.append(impostor.name)
                    rows += [np.ravel(w) for w in wrong]
            stack = np.stack(rows).reshape(len(names), *right.shape)
            every = self.narrowed.offs.items()
            offs = {name: off[index] for name, off in every if off[index].any()}
            stack = np.concatenate([stack, _beside(truth, [*offs.values()])])
            proves = ~np.all(np.abs(stack - right) <= same, axis=(1, 2))
        names += offs
        return [names[k] for k in np.flatnonzero(proves)], stack[proves]

    def _answers(self) -> list[Answers]:
        rows = [None if t is None else t.settled() for t in self.truths]

        def under(q: int) -> list[Array | None]:
            pairs = zip(self.truths, rows, strict=True)
            return [
                None if truth is None or values is None else values[q].reshape(truth.shape)
                for truth, values in pairs
            ]

        known = [under(q) for q in range(len(self.cotangents.values))]
        ignored = known[self.cotangents.names.index("ones")]
        return [
            Answers(known[q], ct, lambda: ignored, partial(known.__getitem__, 0 if q else 1))
            for q, ct in enumerate(self.cotangents.values)
        ]


def _beside(truth: GradientTruth, offs: Sequence[Float]) -> Float:
    """The true gradient, off by each of `offs` [n] under the first cotangent: [k, q, n]."""
    right = truth.settled()
    stack = np.repeat(right[None], len(offs), axis=0)
    for rows, off in zip(stack, offs, strict=True):
        rows[0] += off
    return stack


def _state(truth: GradientTruth) -> tuple[bytes, ...]:
    """Everything about the truth that a comparison depends on."""
    now = truth.differences.estimate
    return tuple(part.tobytes() for part in (now.value, now.bar, now.scale, now.terms))
