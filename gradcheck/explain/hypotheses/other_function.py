"""Another function: the slope, or the gradient, is that of another function or a known mutant."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

import numpy as np

from gradcheck.explain.hypotheses.elementwise import (
    MIN_SIZE,
    answers_diagonally,
    follows_values,
    is_diagonal,
    over,
    slope,
)
from gradcheck.explain.hypothesis import (
    Hypothesis,
    Observations,
    Rule,
    predicting,
    read_output,
    read_primal,
)
from gradcheck.explain.probe import RAISES, Float, Probe, bare, called
from gradcheck.numerics.arithmetic import F64
from gradcheck.numerics.arrays import Attrs, as_tuple
from gradcheck.spec.defect import Defect
from gradcheck.spec.mutant import Mutant
from gradcheck.spec.operator import OpSpec

SAME_SLOPE: Final = 1e-6
MIN_WRONG_ELEMENTS: Final = 3
MIN_SCATTERED_ELEMENTS: Final = 5
"""The same, where they do not lie in one region."""
MIN_SHARE_OF_PROBES: Final = 0.4
"""Share of failing probes that must show what the slope depends on."""


def flipped(obs: Observations) -> Iterator[Hypothesis]:
    """Wrong elements are the negatives of the right ones."""
    name = obs.output

    def fits(probe: Probe) -> bool:
        wrong = probe.wrong(name)
        if name not in probe.got or not wrong.any():
            return name in probe.got
        guess = np.where(wrong, -probe.right[name], probe.right[name])
        return probe.reproduces(guess, name)

    if 0 < _share(obs) < 1:
        where = _region(obs)
        says = f"{obs.gradient} has the other sign {where or 'in some elements'}"
        yield Hypothesis(label=Defect.SIGN, says=says, fits=fits)


def other(obs: Observations) -> Iterator[Hypothesis]:
    """The slope is another, unnamed function of each element's own data."""
    name = obs.output
    shown = [probe for probe in obs.failing if _shows(probe, name)]
    wrong = sum(int(probe.wrong(name).sum()) for probe in shown)
    enough = wrong >= MIN_WRONG_ELEMENTS and len(shown) >= MIN_SHARE_OF_PROBES * len(obs.failing)
    if not enough or not _free(shown, name):
        return
    where = _region(obs)
    if not where and wrong < MIN_SCATTERED_ELEMENTS:
        return
    evidence = [
        "each element of it is the cotangent's times a number that depends on the values at that "
        "element alone"
    ]
    evidence += [f"where it is wrong, it is {value}" for value in _there(shown, name)]
    yield Hypothesis(
        label=Defect.DERIVATIVE,
        says=f"{obs.gradient} has another slope than forward" + (f" {where}" if where else ""),
        fits=lambda p: not p.fails(name) or not _shows(p, name) or _by_element(p, name),
        evidence=tuple(evidence),
    )


def _shows(probe: Probe, name: str) -> bool:
    """Whether a probe can show it: enough finite elements, each with a cotangent of its own."""
    return (
        name in probe.got
        and probe.right[name].size >= MIN_SIZE
        and bool(np.isfinite(probe.got[name]).all())
        and all(p.shape == probe.right[name].shape or p.size == 1 for p in probe.primals)
        and is_diagonal(probe, name)
    )


def _free(probes: Sequence[Probe], name: str) -> bool:
    """Whether the slope is neither off by a factor nor wrong on kinks alone."""
    kinked = [name in p.kinked and not (p.wrong(name) & ~p.kinked[name]).any() for p in probes]
    return not all(kinked) and not all(_factor(probe, name) for probe in probes)


def _factor(probe: Probe, name: str) -> bool:
    right, got = probe.right[name], probe.got[name]
    there = right != 0
    if not there.any():
        return False
    ratio = got[there] / right[there]
    return bool(np.ptp(ratio) <= SAME_SLOPE * np.max(np.abs(ratio)) and not got[~there].any())


def _by_element(probe: Probe, name: str) -> bool:
    return answers_diagonally(probe, name) and follows_values(probe, name)


def _share(obs: Observations) -> float:
    masks = [probe.wrong(obs.output) for probe in obs.failing]
    return float(sum(mask.sum() for mask in masks) / sum(mask.size for mask in masks))


def _region(obs: Observations) -> str:
    """Where it is wrong, if it is right elsewhere: beyond one value of the primal."""
    name = obs.output
    probes: Sequence[Probe] = [p for p in (*obs.failing, *obs.passing) if name in p.got]
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
    """Whether many elements of the true gradient are 0, so that zeros are no accident."""
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
    """The wrong elements in words, if they are 0 or the cotangent times one number."""
    found = [(slope(probe, probe.got[name]), probe.wrong(name)) for probe in probes]
    slopes = np.concatenate([s[wrong] for s, wrong in found if s is not None])
    if not slopes.any():
        yield "0"
    elif np.ptp(slopes) <= SAME_SLOPE * np.max(np.abs(slopes)):
        yield f"{slopes[0]:.6g} times the cotangent"


MAX_JACOBIAN_SIZE: Final = 700


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
    word: str
    read: Callable[[Probe], Float]


def local(obs: Observations) -> Iterator[Hypothesis]:
    """The slope by name; a diagonal for a whole Jacobian; where a slope is wrong, as it is."""
    probe, name = obs.first, obs.output
    if name not in probe.got or over(probe, probe.right[name].shape) is None:
        return
    if not _reads(probe, name):
        says = f"{obs.gradient} is not 0, though forward's output does not depend on {name}"
        yield predicting(
            obs, Defect.TERM, says, lambda p: p.got[name] if not p.right[name].any() else None
        )
        return
    diagonal = is_diagonal(probe, name)
    yield _passed(obs, diagonal=diagonal)
    if not diagonal:
        yield from _diagonal(obs)
        return
    if not answers_diagonally(probe, name):
        return
    yield from _named(obs)
    yield from flipped(obs)
    yield from other(obs)


def _reads(probe: Probe, name: str) -> bool:
    if probe.right[name].any():
        return True
    found = probe.forward({name: -probe.primal(name) - 1})
    pairs = zip(found, probe.outputs, strict=True)
    return not all(np.array_equal(a, b, equal_nan=True) for a, b in pairs)


def _passed(obs: Observations, *, diagonal: bool) -> Hypothesis:
    """The cotangent itself; class L where the right gradient is a permutation of it."""
    name = obs.output
    ct, right = over(obs.first, obs.first.right[name].shape), obs.first.right[name]
    if ct is not None and np.array_equal(np.sort(ct.ravel()), np.sort(right.ravel())):
        label, why = Defect.LAYOUT, "it is not put back in order"
    else:
        label, why = (
            Defect.DERIVATIVE,
            "the slope is missing" if diagonal else "forward might as well not be",
        )
    says = f"{obs.gradient} passes the cotangent on as it came: {why}"
    return predicting(obs, label, says, lambda p: over(p, p.right[name].shape))


# ── slopes with a name ───────────────────────────────────────────────────────────────────────


def _named(obs: Observations) -> Iterator[Hypothesis]:
    """One function of a value, alone or times or over another value."""
    found = slope(obs.first, obs.first.got[obs.output])
    values = list(_values(obs))
    pairs: list[tuple[_Value, _Value | None]] = [(value, None) for value in values]
    pairs += [(a, b) for a in values for b in values if a is not b]
    if found is None:
        return
    for value, other in pairs:
        factor = other.read(obs.first) if other else None
        for words, function in SLOPES:
            alone = _of(value.read(obs.first), function)
            for word, both in _COMBINED if other else _ALONE:
                with np.errstate(all="ignore"):
                    guess = both(alone, factor)
                if _alike(guess, found):
                    named = words.format(value.word) + word.format(other.word if other else "")
                    says = f"{obs.gradient} has the slope {named}, which is another function's"
                    of = _predicted(obs.output, value, function, other, both)
                    yield predicting(obs, Defect.DERIVATIVE, says, of)


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


def _values(obs: Observations) -> Iterator[_Value]:
    """Primals and the output of the gradient's shape, and numbers among primals."""
    shape = obs.first.right[obs.output].shape
    names = sorted(obs.first.names, key=lambda name: name != obs.output)
    for name in names:
        primal = obs.first.primal(name)
        if primal.dtype.kind == "f" and primal.shape in (shape, ()):
            yield _Value(name, read_primal(name))
    if len(obs.first.outputs) == 1 and obs.first.outputs[0].shape == shape:
        yield _Value("y" if "y" not in names else "the output", read_output(0))


# ── the diagonal in the place of the whole Jacobian ──────────────────────────────────────────


def _diagonal(obs: Observations) -> Iterator[Hypothesis]:
    name = obs.output
    if obs.first.ct[0].shape != obs.first.right[name].shape:
        return

    def of(probe: Probe) -> Float | None:
        (ct,) = probe.ct
        if ct.size > MAX_JACOBIAN_SIZE or ct.shape != probe.right[name].shape:
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

    if answers_diagonally(obs.first, name):
        says = f"{obs.gradient} applies only the diagonal of the Jacobian"
        evidence = (
            "each element of it depends on its own element of the cotangent alone, where "
            "the right one depends on others too",
        )
        yield predicting(obs, Defect.TERM, says, of, evidence)


def zeros(obs: Observations) -> Iterator[Hypothesis]:
    """Elements that are 0 are skipped; a tensor that is 0 as a whole is."""
    name = obs.output
    for other in obs.first.names:
        values = [probe.primal(other) for probe in obs.failing]
        if values[0].dtype.kind != "f" or not all((value == 0).any() for value in values):
            continue
        slopes = any(is_diagonal(probe, name) for probe in obs.failing)
        if not slopes and not any(value.any() for value in values):
            says = f"{obs.gradient} is 0 where all of {other} is: it never leaves 0"
            yield predicting(obs, Defect.SLOT, says, _skipped(name, other, whole=True))
        says = f"{obs.gradient} is 0 where {other} is: zeros are skipped"
        yield predicting(obs, Defect.DERIVATIVE, says, _skipped(name, other, whole=False))


def _skipped(name: str, other: str, *, whole: bool) -> Callable[[Probe], Float | None]:
    def of(probe: Probe) -> Float | None:
        value, right = probe.primal(other), probe.right[name]
        if whole:
            return right if value.any() else np.zeros_like(right)
        return np.where(value == 0, 0.0, right) if value.shape == right.shape else None

    return of


def other_operator(op: str, operators: Mapping[str, OpSpec]) -> Rule:
    """The rule for the operator `op`: all `operators` that take as many primals as it does."""
    return Rule("kin", "it is the gradient of another operator", partial(_kin, op, operators))


def _kin(op: str, operators: Mapping[str, OpSpec], obs: Observations) -> Iterator[Hypothesis]:
    if not _values_matter(obs):
        return  # it only moves elements about, or adds them up: so do many, and by accident alike
    for other in operators.values():
        if other.name == op:
            continue
        for dialect in other.dialects:
            count = len(other.primals) - len(dialect.without)
            attrs = {**other.defaults, **dialect.attrs}
            if count == len(obs.first.names) and _takes(other, attrs, obs.first):
                of = other.name if len(other.dialects) == 1 else f"{other.name} ({dialect.name})"
                says = f"{obs.gradient} is the gradient of {of}"
                for given in (partial(_shared_attrs, attrs), partial(_own_attrs, attrs)):
                    yield predicting(
                        obs, Defect.DERIVATIVE, says, _vjp_gradient(other.vjp, obs.output, given)
                    )


def _own_attrs(attrs: Attrs, probe: Probe) -> Attrs:
    return attrs


def _shared_attrs(attrs: Attrs, probe: Probe) -> Attrs:
    """An operator's attributes, with those that the probe has too as given there."""
    return {**attrs, **{k: v for k, v in probe.attrs.items() if k in attrs}}


def _values_matter(obs: Observations) -> bool:
    """Whether the right gradient depends on the values of an argument, at any probe."""
    for probe in obs.failing:
        moved = {
            name: 1.5 * primal + 0.25
            for name, primal in zip(probe.names, probe.primals, strict=True)
            if primal.dtype.kind == "f"
        }
        there = probe.vjp(primals=moved)
        if there is None or not np.array_equal(there[obs.output], probe.right[obs.output]):
            return True
    return False


def _takes(other: OpSpec, attrs: Attrs, probe: Probe) -> bool:
    """Whether its outputs have the same shapes there, and its VJP changes the cotangent."""
    try:
        with np.errstate(all="ignore"):
            outputs = as_tuple(other.forward(F64, *probe.primals, **attrs))
            shapes = [np.shape(output) for output in outputs]
            if shapes != [part.shape for part in probe.ct]:
                return False
            found = as_tuple(other.vjp(F64, bare(probe.ct), *probe.primals, **attrs))
    except RAISES:
        return False
    return not any(
        g is not None and np.shape(g) == part.shape and np.array_equal(g, part)
        for g in found
        for part in probe.ct
    )


def known_mutant(known: Sequence[Mutant]) -> Rule:
    """The rule for one operator, whose `known` defects are these."""
    return Rule("nearest", "it is a known defect of the operator", partial(_nearest, known))


def _given_attrs(probe: Probe) -> Attrs:
    return probe.attrs


def _nearest(known: Sequence[Mutant], obs: Observations) -> Iterator[Hypothesis]:
    for mutant in known:
        if mutant.vjp is None or mutant.equivalent:
            continue  # stateful mutants are not functions of their arguments
        says = f"{obs.gradient} is that of a known defect, {mutant.full_name}: {mutant.says}"
        yield predicting(
            obs, mutant.label, says.rstrip("."), _vjp_gradient(mutant.vjp, obs.output, _given_attrs)
        )


def _vjp_gradient(
    vjp: Callable[..., Any], output: str, attrs: Callable[[Probe], Attrs]
) -> Callable[[Probe], Float | None]:
    """The gradient that another VJP gives, with attributes that may depend on the probe."""

    def gradient(probe: Probe) -> Float | None:
        found = called(vjp, probe.ct, probe.primals, attrs(probe))
        if found is None:
            return None
        value = found[probe.names.index(output)]
        return None if value is None else np.asarray(value, dtype=np.float64)

    return gradient
