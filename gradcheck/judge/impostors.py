"""Wrong gradients that need no knowledge of the operator: what every check must reject."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
Gradients = Sequence[Array | None]

FIRST: Final = 2.0**-7
"""What one element is off by, relative to itself: a binary one per cent."""


@dataclass(frozen=True, slots=True)
class Answers:
    """The right gradients under one cotangent, and other right ones to be passed off as them.

    `gradients` holds one array per primal (None: an index); `ignored()` gives those for a
    cotangent of all ones, `earlier()` those for some other cotangent, `elsewhere()` those at
    other primals (None: not known).
    """

    gradients: Gradients
    ct: tuple[Array, ...]
    ignored: Callable[[], Gradients]
    earlier: Callable[[], Gradients]
    elsewhere: Callable[[], Gradients | None] = lambda: None


@dataclass(frozen=True, slots=True)
class Impostor:
    """One wrong gradient: `make(answers, index)` gives it, or None where it makes no sense."""

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
    """A copy whose largest element is changed."""
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
        lambda a, i: _largest(_own(a, i), lambda g: g * (1 + FIRST)),
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
