"""Local derivative: element by element, the slope is another function of the data."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from gradcheck.explain.byelement import answers_diagonally, is_diagonal, over, slope
from gradcheck.explain.diagnosis_rule import Observations, Suspicion, predicting
from gradcheck.explain.hypotheses import unknown_derivative
from gradcheck.explain.probe import Float, Probe

MANY: Final = 700
"""Elements above which no Jacobian is built."""


def _sigmoid(x: Float) -> Float:
    return np.asarray(1 / (1 + np.exp(-x)))


def _normal(x: Float) -> Float:
    return np.asarray(np.exp(-x * x / 2) / np.sqrt(2 * np.pi))


SLOPES: Final[tuple[tuple[str, Callable[[Any], Any]], ...]] = (
    ("{}", lambda v: v),
    ("2·{}", lambda v: 2 * v),
    ("{}²", np.square),
    ("{}³", lambda v: v**3),
    ("1/{}", lambda v: 1 / v),
    ("1/{}²", lambda v: 1 / v**2),
    ("√{}", np.sqrt),
    ("1/√{}", lambda v: 1 / np.sqrt(v)),
    ("1/(2√{})", lambda v: 0.5 / np.sqrt(v)),
    ("sign {}", np.sign),
    ("|{}|", np.abs),
    ("[{} > 0]", lambda v: v > 0),
    ("[{} < 0]", lambda v: v < 0),
    ("1 − {}", lambda v: 1 - v),
    ("1 + {}", lambda v: 1 + v),
    ("{0} (1 − {0})", lambda v: v * (1 - v)),
    ("1 − {}²", lambda v: 1 - v * v),
    ("exp {}", np.exp),
    ("exp −{}", lambda v: np.exp(-v)),
    ("log {}", np.log),
    ("sigmoid {}", _sigmoid),
    ("sigmoid −{}", lambda v: _sigmoid(-v)),
    ("sigmoid′ {}", lambda v: _sigmoid(v) * _sigmoid(-v)),
    ("tanh {}", np.tanh),
    ("tanh′ {}", lambda v: 1 - np.tanh(v) ** 2),
    ("silu′ {}", lambda v: _sigmoid(v) * (1 + v * _sigmoid(-v))),
    ("sin {}", np.sin),
    ("cos {}", np.cos),
    ("the normal density at {}", _normal),
    ("relu {}", lambda v: np.maximum(v, 0)),
    ("[|{}| ≤ 1]", lambda v: np.abs(v) <= 1),
)
"""Slopes as words and functions of one value."""


@dataclass(frozen=True, slots=True)
class _Value:
    """Something that a slope may be a function of, at any probe."""

    word: str
    read: Callable[[Probe], Float]


def local(scene: Observations) -> Iterator[Suspicion]:
    """The slope by name; a diagonal for a whole Jacobian; where a slope is wrong, as it is."""
    probe, name = scene.first, scene.output
    if name not in probe.got or over(probe, probe.right[name].shape) is None:
        return
    if not _reads(probe, name):
        says = f"{scene.gradient} is not 0, though forward's output does not depend on {name}"
        yield predicting(
            scene, "T", says, lambda p: p.got[name] if not p.right[name].any() else None
        )
        return
    diagonal = is_diagonal(probe, name)
    yield _passed(scene, diagonal=diagonal)
    if not diagonal:
        yield from _diagonal(scene)
        return
    if not answers_diagonally(probe, name):
        return
    yield from _named(scene)
    yield from unknown_derivative.flipped(scene)
    yield from unknown_derivative.other(scene)


def _reads(probe: Probe, name: str) -> bool:
    """Whether forward depends on a primal at all."""
    if probe.right[name].any():
        return True
    other = {n: -p - 1 if n == name else p for n, p in zip(probe.names, probe.primals, strict=True)}
    found = probe.truth.forward([*other.values()], probe.attrs)
    pairs = zip(found, probe.outputs, strict=True)
    return not all(np.array_equal(a, b, equal_nan=True) for a, b in pairs)


def _passed(scene: Observations, *, diagonal: bool) -> Suspicion:
    """The cotangent as it came: another order of it if that is all that it should be."""
    name = scene.output
    ct, right = over(scene.first, scene.first.right[name].shape), scene.first.right[name]
    if ct is not None and np.array_equal(np.sort(ct.ravel()), np.sort(right.ravel())):
        label, why = "L", "it is not put back in order"
    else:
        label, why = "D", "the slope is missing" if diagonal else "forward might as well not be"
    says = f"{scene.gradient} passes the cotangent on as it came: {why}"
    return predicting(scene, label, says, lambda p: over(p, p.right[name].shape))


# ── slopes with a name ───────────────────────────────────────────────────────────────────────


def _named(scene: Observations) -> Iterator[Suspicion]:
    """One function of a value, alone or times or over another value."""
    found = slope(scene.first, scene.first.got[scene.output])
    values = list(_values(scene))
    pairs: list[tuple[_Value, _Value | None]] = [(value, None) for value in values]
    pairs += [(a, b) for a in values for b in values if a is not b]
    if found is None:
        return
    for value, other in pairs:
        factor = other.read(scene.first) if other else None
        for words, function in SLOPES:
            alone = _of(value.read(scene.first), function)
            for word, both in _COMBINED if other else _ALONE:
                with np.errstate(all="ignore"):
                    guess = both(alone, factor)
                if _alike(guess, found):
                    named = words.format(value.word) + word.format(other.word if other else "")
                    says = f"{scene.gradient} has the slope {named}, which is another function's"
                    of = _predicted(scene.output, value, function, other, both)
                    yield predicting(scene, "D", says, of)


_Both = tuple[str, Callable[[Any, Any], Any]]
_ALONE: Final[tuple[_Both, ...]] = (("", lambda a, _: a),)
_COMBINED: Final[tuple[_Both, ...]] = (
    (" · {}", lambda a, b: a * b),
    (" / {}", lambda a, b: a / b),
)


def _of(value: Float, function: Callable[[Any], Any]) -> Float:
    with np.errstate(all="ignore"):
        return np.asarray(function(value), dtype=np.float64)


def _alike(guess: Float, found: Float) -> bool:
    """A first look: whether slopes agree to about six digits, wherever both are finite."""
    with np.errstate(all="ignore"):
        guess = np.broadcast_to(guess, found.shape)
        size = np.max(np.abs(found[np.isfinite(found)]), initial=0.0)
        close = np.abs(guess - found) <= 1e-4 * size
        return bool((close | ~np.isfinite(guess) | ~np.isfinite(found)).all())


def _predicted(
    name: str,
    value: _Value,
    function: Callable[[Any], Any],
    other: _Value | None,
    both: Callable[..., Any],
) -> Callable[[Probe], Float | None]:
    def of(probe: Probe) -> Float | None:
        ct = over(probe, probe.right[name].shape)
        if ct is None:
            return None
        with np.errstate(all="ignore"):
            factor = both(
                _of(value.read(probe), function), other.read(probe) if other is not None else None
            )
            return np.asarray(ct * factor)

    return of


def _values(scene: Observations) -> Iterator[_Value]:
    """Primals and the output of the gradient's shape, and numbers among primals."""
    shape = scene.first.right[scene.output].shape
    names = sorted(scene.first.names, key=lambda name: name != scene.output)
    for name in names:
        primal = scene.first.primal(name)
        if primal.dtype.kind == "f" and primal.shape in (shape, ()):
            yield _Value(name, _primal(name))
    if len(scene.first.outputs) == 1 and scene.first.outputs[0].shape == shape:
        yield _Value("y" if "y" not in names else "the output", lambda probe: probe.outputs[0])


def _primal(name: str) -> Callable[[Probe], Float]:
    return lambda probe: probe.primal(name)


# ── the diagonal in the place of the whole Jacobian ──────────────────────────────────────────


def _diagonal(scene: Observations) -> Iterator[Suspicion]:
    name = scene.output
    if scene.first.ct[0].shape != scene.first.right[name].shape:
        return

    def of(probe: Probe) -> Float | None:
        (ct,) = probe.ct
        if ct.size > MANY or ct.shape != probe.right[name].shape:
            return None
        out = np.zeros(ct.size)
        for k in range(ct.size):
            one = np.zeros(ct.size)
            one[k] = ct.flat[k]
            found = probe.vjp((one.reshape(ct.shape),))
            if found is None:
                return None
            out[k] = found[name].flat[k]
        return out.reshape(ct.shape)

    if answers_diagonally(scene.first, name):
        says = f"{scene.gradient} applies only the diagonal of the Jacobian"
        evidence = (
            "each element of it depends on its own element of the cotangent alone, where "
            "the right one depends on others too",
        )
        yield predicting(scene, "T", says, of, evidence)
