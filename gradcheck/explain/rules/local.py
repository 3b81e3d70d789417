"""Local derivative: element by element, the slope is another function of the data."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from gradcheck.explain.byelement import (
    SMALLEST,
    answers_diagonally,
    follows_values,
    is_diagonal,
    over,
    slope,
)
from gradcheck.explain.probe import Float, Probe
from gradcheck.explain.suspicion import Scene, Suspicion, predicting

MANY: Final = 700
"""Elements above which no Jacobian is built."""
ALIKE: Final = 1e-6
"""Relative difference below which slopes are one number."""


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


def local(scene: Scene) -> Iterator[Suspicion]:
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
    yield from _flipped(scene)
    yield from _other(scene)


def _reads(probe: Probe, name: str) -> bool:
    """Whether forward depends on a primal at all."""
    if probe.right[name].any():
        return True
    other = {n: -p - 1 if n == name else p for n, p in zip(probe.names, probe.primals, strict=True)}
    found = probe.truth.forward([*other.values()], probe.attrs)
    pairs = zip(found, probe.outputs, strict=True)
    return not all(np.array_equal(a, b, equal_nan=True) for a, b in pairs)


def _passed(scene: Scene, *, diagonal: bool) -> Suspicion:
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


def _named(scene: Scene) -> Iterator[Suspicion]:
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


def _values(scene: Scene) -> Iterator[_Value]:
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


def _diagonal(scene: Scene) -> Iterator[Suspicion]:
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


# ── slopes without a name ────────────────────────────────────────────────────────────────────


def _flipped(scene: Scene) -> Iterator[Suspicion]:
    """Wherever it is wrong, it is the negative of what is right."""
    name = scene.output

    def fits(probe: Probe) -> bool:
        wrong = probe.wrong(name)
        if name not in probe.got or not wrong.any():
            return name in probe.got
        guess = np.where(wrong, -probe.right[name], probe.right[name])
        return probe.reproduces(guess, name)

    if 0 < _share(scene) < 1:
        where = _region(scene)
        says = f"{scene.gradient} has the other sign {where or 'in some elements'}"
        yield Suspicion(label="S", says=says, fits=fits)


def _other(scene: Scene) -> Iterator[Suspicion]:
    """The slope is another function of the same element's data, whatever it may be."""
    name = scene.output
    shown = [probe for probe in scene.failing if _shows(probe, name)]
    wrong = sum(int(probe.wrong(name).sum()) for probe in shown)
    enough = wrong >= TELLING and len(shown) >= ENOUGH * len(scene.failing)
    if not enough or not _free(shown, name):
        return
    where = _region(scene)
    if not where and wrong < SCATTERED:
        return
    evidence = [
        "each element of it is the cotangent's times a number that depends on the values at that "
        "element alone"
    ]
    evidence += [f"where it is wrong, it is {value}" for value in _there(shown, name)]
    yield Suspicion(
        label="D",
        says=f"{scene.gradient} has another slope than forward" + (f" {where}" if where else ""),
        fits=lambda p: not p.fails(name) or not _shows(p, name) or _by_element(p, name),
        evidence=tuple(evidence),
    )


TELLING: Final = 3
"""Wrong elements below which a slope without a name is none."""
SCATTERED: Final = 5
"""The same, where they do not lie in one region."""
ENOUGH: Final = 0.4
"""Share of failing probes that must show what the slope depends on."""


def _shows(probe: Probe, name: str) -> bool:
    """Whether a probe can show it: enough finite elements, each with a cotangent of its own."""
    return (
        name in probe.got
        and probe.right[name].size >= SMALLEST
        and bool(np.isfinite(probe.got[name]).all())
        and all(p.shape == probe.right[name].shape or p.size == 1 for p in probe.primals)
        and is_diagonal(probe, name)
    )


def _free(probes: Sequence[Probe], name: str) -> bool:
    """Whether the slope is none of what has a class of its own: a factor, a kink."""
    kinked = [name in p.kinked and not (p.wrong(name) & ~p.kinked[name]).any() for p in probes]
    return not all(kinked) and not all(_factor(probe, name) for probe in probes)


def _factor(probe: Probe, name: str) -> bool:
    """Whether one number makes all that is right what came."""
    right, got = probe.right[name], probe.got[name]
    there = right != 0
    if not there.any():
        return False
    ratio = got[there] / right[there]
    return bool(np.ptp(ratio) <= ALIKE * np.max(np.abs(ratio)) and not got[~there].any())


def _by_element(probe: Probe, name: str) -> bool:
    return answers_diagonally(probe, name) and follows_values(probe, name)


def _share(scene: Scene) -> float:
    """The share of wrong elements, over all failing probes."""
    masks = [probe.wrong(scene.output) for probe in scene.failing]
    return float(sum(mask.sum() for mask in masks) / sum(mask.size for mask in masks))


def _region(scene: Scene) -> str:
    """Where it is wrong, if it is right elsewhere: beyond one value of the primal."""
    name = scene.output
    probes: Sequence[Probe] = [p for p in (*scene.failing, *scene.passing) if name in p.got]
    x = np.concatenate([p.primal(name).ravel() for p in probes])
    wrong = np.concatenate([p.wrong(name).ravel() for p in probes])
    size = np.concatenate([np.abs(p.right[name]).ravel() for p in probes])
    if wrong.all() or not np.isfinite(x).all():
        return ""
    # where the truth is 0, a wrong factor is right as well
    right = ~wrong & ((size > 0) | (_nothing(probes, name)))
    if wrong.any() and not x[wrong].any() and x[right].all():
        return f"where {name} is 0"
    for word, value in ((name, x), (f"|{name}|", np.abs(x))):
        for sign, there in (("<", value), (">", -value)):
            highest, lowest = np.max(there[wrong]), np.min(there[right], initial=np.inf)
            if highest < lowest < np.inf:
                middle = _between(highest, lowest)
                return f"where {word} {sign} {middle if sign == '<' else -middle:.3g}"
    return ""


def _nothing(probes: Sequence[Probe], name: str) -> bool:
    """Whether the truth is 0 in most elements: zeros are then no accident."""
    zeros = [probe.right[name].ravel() == 0 for probe in probes]
    return bool(np.mean(np.concatenate(zeros)) > 0.2)


def _between(low: float, high: float) -> float:
    """The shortest number between two: 0 if it is, else the fewest digits."""
    if low < 0 < high:
        return 0.0
    for digits in range(-3, 12):
        number = round((low + high) / 2, digits)
        if low <= number <= high:
            return float(number)
    return (low + high) / 2


def _there(probes: Sequence[Probe], name: str) -> Iterator[str]:
    """What stands where it is wrong, if that is one number or the cotangent times one."""
    found = [(slope(probe, probe.got[name]), probe.wrong(name)) for probe in probes]
    slopes = np.concatenate([s[wrong] for s, wrong in found if s is not None])
    if not slopes.any():
        yield "0"
    elif np.ptp(slopes) <= ALIKE * np.max(np.abs(slopes)):
        yield f"{slopes[0]:.6g} times the cotangent"
