"""Another cotangent, or another value of an attribute, is used in the place of the one given."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from typing import Any, Final

import numpy as np

from gradcheck.explain.hypothesis import Hypothesis, Observations, predicting
from gradcheck.explain.probe import RAISES, Cotangent, Float, Gradients, Probe
from gradcheck.implementations.returned import Broken
from gradcheck.numerics.arrays import Attrs
from gradcheck.spec.defect import Defect

Edit = Callable[[Probe], Cotangent | None]
Part = Callable[[Float], Float]

CLIP_BOUNDS: Final = (1.0, 0.5, 2.0, 5.0, 10.0, 0.1)
MAX_AXES: Final = 4
"""Axes, from either end, of which one entry may stand for all."""
OUTER_AXES: Final = (-3, -4)
"""Axes that few arrays have: there an index is forgotten."""


def cotangent(obs: Observations) -> Iterator[Hypothesis]:
    """The true VJP of another cotangent: of ones, of its mean, of one of its rows, of its size."""
    if len(obs.first.ct) > 1:
        yield from _of_outputs(obs)
    for label, words, edit in edits(obs):
        yield predicting(obs, label, f"{obs.gradient} {words}", partial(_with, edit, obs.output))


def _with(edit: Edit, name: str, probe: Probe) -> Float | None:
    try:
        with np.errstate(all="ignore"):
            ct = edit(probe)
    except RAISES:
        return None
    return None if ct is None else probe.gradient(name, ct)


def edits(obs: Observations) -> Iterator[tuple[str, str, Edit]]:
    """Class, words and edit of each."""
    probe = obs.first
    if _copies(probe, obs.output):
        yield (
            Defect.ACCUMULATION,
            "holds 1 where the cotangent belongs: it is never written",
            _each(np.ones_like),
        )
    else:
        yield (
            Defect.COTANGENT,
            "ignores the cotangent: it is taken for all ones",
            _each(np.ones_like),
        )
    for label, words, part in CHANGES_OF_ALL:
        yield label, words, _each(part)
    yield from _slices(probe)
    for bound in CLIP_BOUNDS:
        yield (
            Defect.NONLINEAR,
            f"clips the cotangent to [-{bound:g}, {bound:g}]",
            _each(_clipped(bound)),
        )
        yield Defect.NONLINEAR, f"clips the cotangent's norm to {bound:g}", _each(_shortened(bound))


def _copies(probe: Probe, name: str) -> bool:
    """Whether each element of the gradient is one of the cotangent's, or 0."""
    found = probe.vjp(tuple(np.ones_like(part) for part in probe.ct))
    if found is None or not np.isin(found[name], (0.0, 1.0)).all():
        return False
    values = np.concatenate([part.ravel() for part in probe.ct])
    return bool(np.isin(probe.right[name], (*values, 0.0)).all())


def _each(part: Part) -> Edit:
    return lambda probe: tuple(np.asarray(part(of)) for of in probe.ct)


def _filled(value: Callable[[Float], float]) -> Part:
    return lambda ct: np.full_like(ct, value(ct)) if ct.size else ct


CHANGES_OF_ALL: Final[tuple[tuple[str, str, Part], ...]] = (
    (Defect.COTANGENT, "takes the mean of the cotangent for all of it", _filled(np.mean)),
    (Defect.COTANGENT, "takes the first element of the cotangent for all of it",
     _filled(lambda c: c.flat[0])),
    (Defect.COTANGENT, "takes the last element of the cotangent for all of it",
     _filled(lambda c: c.flat[-1])),
    (Defect.COTANGENT, "takes the sum of the cotangent for each of its elements", _filled(np.sum)),
    (Defect.NONLINEAR, "takes the cotangent's magnitude: its sign is lost", np.abs),
    (Defect.NONLINEAR, "takes the cotangent's magnitude, negated", lambda ct: -np.abs(ct)),
    (Defect.NONLINEAR, "is not linear in the cotangent: it is multiplied in twice", np.square),
    (Defect.NONLINEAR, "is not linear in the cotangent: it is multiplied by its magnitude",
     lambda ct: ct * np.abs(ct)),
    (Defect.NONLINEAR, "takes the sign of the cotangent alone", np.sign),
    (Defect.NONLINEAR, "loses the negative part of the cotangent", lambda ct: np.maximum(ct, 0.0)),
    (Defect.NONLINEAR, "loses the positive part of the cotangent", lambda ct: np.minimum(ct, 0.0)),
    (Defect.NONLINEAR, "divides the cotangent by its norm",
     lambda ct: ct / np.linalg.norm(ct.ravel())),
    (Defect.NONLINEAR, "divides the cotangent by its largest element",
     lambda ct: ct / np.max(np.abs(ct))),
    (Defect.NONLINEAR, "puts the cotangent in order", lambda ct: np.sort(ct, axis=-1)),
    (Defect.NONLINEAR, "puts the cotangent in order along axis 0", lambda ct: np.sort(ct, axis=0)),
    (Defect.NONLINEAR, "puts the cotangent in descending order", lambda ct: -np.sort(-ct, axis=-1)),
    (Defect.COTANGENT, "drops the cotangent's mean over each row",
     lambda ct: ct - ct.mean(axis=-1, keepdims=True)),
)  # fmt: skip


def _clipped(bound: float) -> Part:
    return lambda ct: np.clip(ct, -bound, bound)


def _shortened(bound: float) -> Part:
    return lambda ct: ct * min(1.0, bound / float(np.linalg.norm(ct.ravel())))


def _of_outputs(obs: Observations) -> Iterator[Hypothesis]:
    """The cotangent of one of several outputs is dropped, or stands for another's."""
    for words, edit in _edits_of_outputs(obs.first):
        says = f"{obs.gradient} {words}"
        yield Hypothesis(label=Defect.COTANGENT, says=says, fits=partial(_all_with, edit))
        yield predicting(obs, Defect.TERM, says, partial(_with, edit, obs.output))


def _all_with(edit: Edit, probe: Probe) -> bool:
    return all(probe.reproduces(_with(edit, name, probe), name) for name in probe.right)


def _edits_of_outputs(probe: Probe) -> Iterator[tuple[str, Edit]]:
    count = len(probe.ct)
    for i in range(count):
        yield f"ignores the cotangent of output {i + 1}", partial(_dropped, {i})
    for i in range(count):
        rest = {*range(count)} - {i}
        if count > 2:
            yield f"uses the cotangent of output {i + 1} alone", partial(_dropped, rest)
        for j in range(count):
            if i != j and probe.ct[i].shape == probe.ct[j].shape:
                words = f"uses the cotangent of output {j + 1} for output {i + 1}"
                yield words, partial(_moved_output, i, j, False)
                if i < j:
                    words = f"exchanges the cotangents of outputs {i + 1} and {j + 1}"
                    yield words, partial(_moved_output, i, j, True)


def _dropped(which: set[int], probe: Probe) -> Cotangent:
    return tuple(np.zeros_like(c) if i in which else c for i, c in enumerate(probe.ct))


def _moved_output(i: int, j: int, exchanged: bool, probe: Probe) -> Cotangent:
    parts = [*probe.ct]
    parts[i] = probe.ct[j]
    if exchanged:
        parts[j] = probe.ct[i]
    return tuple(parts)


def _slices(probe: Probe) -> Iterator[tuple[str, str, Edit]]:
    """One row, or one entry of an axis, stands for all of them."""
    rank = max((part.ndim for part in probe.ct), default=0)
    for at, which in ((0, "first"), (-1, "last")):
        words = f"takes the cotangent of the {which} row for all rows"
        yield Defect.COTANGENT, words, _each(partial(_row, at))
    axes = [*range(min(rank, MAX_AXES)), *range(-1, -min(rank, MAX_AXES) - 1, -1)]
    for axis in axes:
        label = Defect.INDEX if axis in OUTER_AXES else Defect.COTANGENT
        for at, which in ((0, "first"), (-1, "last")):
            words = f"takes the {which} entry of the cotangent's axis {axis} for all of them"
            yield label, words, _each(partial(_entry, axis, at))


def _row(at: int, ct: Float) -> Float:
    rows = ct.reshape(-1, ct.shape[-1]) if ct.ndim else ct.reshape(1, 1)
    return np.broadcast_to(rows[at], rows.shape).reshape(ct.shape)


def _entry(axis: int, at: int, ct: Float) -> Float:
    if not -ct.ndim <= axis < ct.ndim:
        return ct
    return np.broadcast_to(np.take(ct, [at], axis=axis), ct.shape)


# ── another array in its place ───────────────────────────────────────────────────────────────


def replaced(obs: Observations) -> Iterator[Hypothesis]:
    """A primal, the output, or forward of the cotangent is used in the cotangent's place."""
    if len(obs.first.ct) == 1:
        yield from _other_arrays(obs)
    yield Hypothesis(
        label=Defect.COTANGENT,
        says=f"{obs.gradient} does not depend on the cotangent: any other gives the same",
        fits=partial(_unmoved, obs.output),
    )


def _other_arrays(obs: Observations) -> Iterator[Hypothesis]:
    probe, own, name = obs.first, obs.gradient, obs.output
    for other, primal in zip(probe.names, probe.primals, strict=True):
        if primal.dtype.kind == "f" and primal.shape == probe.ct[0].shape:
            says = f"{own} reads {other} in place of the cotangent"
            yield predicting(
                obs, Defect.COTANGENT, says, partial(_with, partial(_primal, other), name)
            )
    says = f"{own} reads the output in place of the cotangent"
    yield predicting(obs, Defect.COTANGENT, says, partial(_with, lambda p: p.outputs, name))
    if not _linear(probe, name):
        says = f"{own} is not linear in the cotangent: forward is applied to it"
        yield predicting(obs, Defect.NONLINEAR, says, partial(_forwarded, name))
        says = f"{own} is not linear in the cotangent: it passes through forward first"
        yield predicting(obs, Defect.NONLINEAR, says, partial(_with, partial(_through, name), name))


def _primal(name: str, probe: Probe) -> Cotangent:
    return (probe.primal(name),)


def _through(name: str, probe: Probe) -> Cotangent | None:
    """Forward of the cotangent, where it has the shape of a primal and of the output."""
    if probe.ct[0].shape != probe.primal(name).shape:
        return None
    outputs = probe.forward({name: probe.ct[0]})
    return outputs if outputs[0].shape == probe.ct[0].shape else None


def _forwarded(name: str, probe: Probe) -> Float | None:
    found = _through(name, probe)
    return None if found is None else found[0]


def _linear(probe: Probe, name: str) -> bool:
    """Whether forward is linear in a primal, as far as one sum shows."""
    u, v = probe.ct, _turned(probe)
    try:
        parts = [_forwarded(name, replace(probe, ct=ct))
                 for ct in (u, v, tuple(a + b for a, b in zip(u, v, strict=True)))]  # fmt: skip
    except RAISES:
        return True
    a, b, both = parts
    if a is None or b is None or both is None:
        return True
    return bool(np.allclose(a + b, both, rtol=1e-9, atol=1e-9))


# ── asking again ─────────────────────────────────────────────────────────────────────────────


def _unmoved(name: str, probe: Probe) -> bool:
    if not probe.fails(name):
        other = probe.vjp(_turned(probe))
        return other is not None and np.array_equal(other[name], probe.right[name])
    here = probe.got.get(name)
    if here is None or not here.any() or not np.isfinite(here).all():
        return False
    return all(same(probe, name, other, here) for other in (_turned(probe), _scaled(probe, -3.0)))


def _turned(probe: Probe) -> Cotangent:
    """Another cotangent: the values in other places, each one a little larger."""
    return tuple((np.roll(c.ravel(), 1) * 1.25 + 0.5).reshape(c.shape) for c in probe.ct)


def _scaled(probe: Probe, by: float) -> Cotangent:
    return tuple(by * part for part in probe.ct)


def same(probe: Probe, name: str, ct: Cotangent, as_: Float) -> bool:
    """Whether the code returns the same bits under another cotangent."""
    found = asked(probe, ct).get(name)
    return found is not None and np.array_equal(found, as_, equal_nan=True)


def asked(probe: Probe, ct: Cotangent) -> Gradients:
    """The code's gradients under another cotangent; none where it fails to answer."""
    try:
        return probe.ask(ct)
    except (Broken, *RAISES):
        return {}


EPS_VALUES: Final = tuple(10.0**-k for k in range(3, 13))
MAX_FILL_RATIO: Final = 16
"""How many times larger a cotangent may become that is filled with zeros."""
MEANS: Final = {"mean", "sum"}
"""Reductions that differ by a count."""
ORDINARY_VALUES: Final = (0.0, 1.0, 0.5, 2.0, 0.01)

Change = Callable[[Probe], Attrs | None]


Reading = tuple[str, str, Change]
"""Class, words, and what an attribute is taken for."""


def attributes(obs: Observations) -> Iterator[Hypothesis]:
    """One attribute at its default, at a value it has elsewhere, off by one; then two of them."""
    own = obs.gradient
    attrs = obs.first.attrs
    for key in attrs:
        for label, says, change in _single(obs, key):
            yield predicting(obs, label, f"{own} {says}", _at(obs.output, change))
    for a, b in itertools.combinations(attrs, 2):
        if type(attrs[a]) is type(attrs[b]):
            yield predicting(
                obs, Defect.ATTRIBUTE, f"{own} takes {a} and {b} for each other",
                _at(obs.output, partial(_exchanged_attrs, a, b)),
            )  # fmt: skip
    if len(attrs) > 1:
        yield predicting(
            obs,
            Defect.ATTRIBUTE,
            f"{own} takes all attributes at their defaults, whatever is given",
            _at(obs.output, lambda probe: probe.truth.defaults),
        )


def is_eps(key: str) -> bool:
    """Whether an attribute is one of those small numbers that guard a division."""
    return key == "eps" or key.endswith(("_eps", "epsilon"))


def values(obs: Observations) -> Iterator[Hypothesis]:
    """One attribute at a value that no sample has, or at a function of its own."""
    for key, value in obs.first.attrs.items():
        for other in _others(key, value):
            label: str = Defect.EPS if is_eps(key) else Defect.ATTRIBUTE
            says = f"{obs.gradient} matches {key} = {other!r}, whatever is given"
            yield predicting(obs, label, says, _at(obs.output, _constant(key, other)))
        for label, of, change in _functions(key, value):
            says = f"{obs.gradient} takes {of} for {key}"
            yield predicting(obs, label, says, _at(obs.output, change))


def _single(obs: Observations, key: str) -> Iterator[Reading]:
    """Values that may be used in place of one attribute, the likeliest first."""
    value, truth = obs.first.attrs[key], obs.first.truth
    if key in truth.defaults:
        default = truth.defaults[key]
        says = f"takes {key} = {default!r}, its default, whatever is given"
        yield Defect.ATTRIBUTE, says, _constant(key, default)
        yield (
            Defect.ATTRIBUTE,
            f"takes {key} = {default!r}, its default, for one that is 0",
            lambda p: {key: p.attrs[key] or default},
        )
    if isinstance(value, bool):
        label = Defect.LAYOUT if key.startswith("transpose") else Defect.ATTRIBUTE
        yield label, f"takes {key} for its opposite", _related(key, lambda v: not v)
    seen: list[Any] = []
    for other in truth.choices.get(key, ()):
        if not any(_equal(other, s) for s in seen) and not _switches_off(other):
            seen.append(other)
            label = Defect.EPS if is_eps(key) else Defect.ATTRIBUTE
            yield (
                label,
                f"matches {key} = {other!r}, whatever is given",
                _constant(key, other),
            )
    if isinstance(value, int) and not isinstance(value, bool):
        yield Defect.INDEX, f"takes {key} + 1 for {key}", _related(key, lambda v: v + 1)
        yield Defect.INDEX, f"takes {key} − 1 for {key}", _related(key, lambda v: v - 1)
    if isinstance(value, tuple) and len(value) > 1:
        yield Defect.ATTRIBUTE, f"reads {key} in reverse", _related(key, lambda v: v[::-1])
        yield (
            Defect.ATTRIBUTE,
            f"takes the first of {key} for all of them",
            _related(key, _first_of),
        )
        yield Defect.ATTRIBUTE, f"takes the last of {key} for all of them", _related(key, _last_of)
    for b in obs.first.attrs:
        if b != key and type(obs.first.attrs[b]) is type(value):
            yield Defect.ATTRIBUTE, f"reads {b} where it needs {key}", partial(_of_other, key, b)
    if isinstance(value, (str, bool)) or value is None:
        for other in (*truth.choices.get(key, ()), truth.defaults.get(key)):
            label = (
                Defect.REDUCTION
                if isinstance(value, str) and {value, other} <= MEANS
                else Defect.ATTRIBUTE
            )
            if type(other) is type(value) or None in (value, other):
                says = f"takes {key} = {other!r} where {value!r} is given"
                yield label, says, partial(_instead, key, value, other)


def _first_of(values: tuple[Any, ...]) -> tuple[Any, ...]:
    return values[:1] * len(values)


def _last_of(values: tuple[Any, ...]) -> tuple[Any, ...]:
    return values[-1:] * len(values)


def _switches_off(value: Any) -> bool:
    """Whether the value switches a term off, which other rules name first."""
    return not isinstance(value, (bool, str)) and not value


def _others(key: str, value: Any) -> Iterator[Any]:
    """Values that no sample uses, but a backward may."""
    if isinstance(value, int) and not isinstance(value, bool):
        yield from (0, 1, 2, -1)
    elif isinstance(value, float):
        yield from ORDINARY_VALUES
        if is_eps(key):
            yield from EPS_VALUES
    if value is not None and not isinstance(value, (bool, str)):
        yield None


def _functions(key: str, value: Any) -> Iterator[Reading]:
    """Functions of the right value: class, words, and the change."""
    if isinstance(value, bool):
        return
    if isinstance(value, int):
        yield Defect.ATTRIBUTE, f"twice {key}", _related(key, lambda v: 2 * v)
        yield Defect.ATTRIBUTE, f"half of {key}", _related(key, lambda v: v // 2)
    if isinstance(value, (int, float)):
        label = (
            Defect.SIGN if isinstance(value, float) else Defect.ATTRIBUTE
        )  # the sign of an index is not class S
        yield label, f"−{key}", _related(key, lambda v: -v)
        yield label, f"|{key}|", _related(key, abs)
    if isinstance(value, float):
        yield Defect.ATTRIBUTE, f"1 − {key}", _related(key, lambda v: 1 - v)
        yield Defect.SCALE, f"1/{key}", _related(key, lambda v: 1 / v)
        yield Defect.SCALE, f"{key}²", _related(key, lambda v: v * v)
        yield Defect.ATTRIBUTE, f"{key}, rounded,", _related(key, lambda v: float(round(v)))
        yield Defect.ATTRIBUTE, f"{key}, cut off,", _related(key, lambda v: float(int(v)))


def _constant(key: str, value: Any) -> Change:
    return lambda probe: {key: value}


def _of_other(key: str, other: str, probe: Probe) -> Attrs:
    return {key: probe.attrs[other]}


def _exchanged_attrs(a: str, b: str, probe: Probe) -> Attrs:
    return {a: probe.attrs[b], b: probe.attrs[a]}


def _instead(key: str, value: Any, other: Any, probe: Probe) -> Attrs:
    return {key: other} if _equal(probe.attrs[key], value) else {}


def _related(key: str, change: Callable[[Any], Any]) -> Change:
    def changed(probe: Probe) -> Attrs | None:
        value = probe.attrs[key]
        if value is None:
            return {}
        try:
            return {key: change(value)}
        except (ArithmeticError, TypeError, ValueError):
            return None

    return changed


def _at(output: str, change: Change) -> Callable[[Probe], Float | None]:
    def predicted(probe: Probe) -> Float | None:
        attrs = change(probe)
        if attrs is None:
            return None
        ct = _refitted(probe, attrs) if attrs else probe.ct
        return None if ct is None else probe.gradient(output, ct, attrs=attrs)

    return predicted


def _refitted(probe: Probe, attrs: Attrs) -> Cotangent | None:
    """The cotangent cut, or padded with zeros, to the output's shape under other attributes."""
    try:
        outputs = probe.forward(attrs=attrs)
    except RAISES:
        return None
    if len(outputs) != len(probe.ct):
        return None
    parts = []
    for output, part in zip(outputs, probe.ct, strict=True):
        if output.ndim != part.ndim or output.size > MAX_FILL_RATIO * max(part.size, 1):
            return None
        if output.shape == part.shape:
            parts.append(part)
            continue
        new = np.zeros(output.shape)
        both = tuple(slice(min(a, b)) for a, b in zip(output.shape, part.shape, strict=True))
        new[both] = part[both]
        parts.append(new)
    return tuple(parts)


def _equal(a: Any, b: Any) -> bool:
    return type(a) is type(b) and bool(a == b)
