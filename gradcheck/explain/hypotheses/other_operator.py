"""Kin: the gradient is right, but of another operator of the suite."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial

import numpy as np

from gradcheck.explain.diagnosis_rule import Observations, Rule, Suspicion, predicting
from gradcheck.explain.probe import RAISES, Float, Probe
from gradcheck.numerics.arithmetic import F64
from gradcheck.numerics.arrays import Attrs, as_tuple
from gradcheck.spec.operator import OpSpec


def kin(op: str, operators: Mapping[str, OpSpec]) -> Rule:
    """The rule for the operator `op`: all `operators` that take as many primals as it does."""
    return Rule("kin", "it is the gradient of another operator", partial(_kin, op, operators))


def _kin(op: str, operators: Mapping[str, OpSpec], scene: Observations) -> Iterator[Suspicion]:
    if not _values_matter(scene):
        return  # it only moves elements about, or adds them up: so do many, and by accident alike
    for other in operators.values():
        if other.name == op:
            continue
        for dialect in other.dialects:
            count = len(other.primals) - len(dialect.without)
            attrs = {**other.defaults, **dialect.attrs}
            if count == len(scene.first.names) and _takes(other, attrs, scene.first):
                of = other.name if len(other.dialects) == 1 else f"{other.name} ({dialect.name})"
                says = f"{scene.gradient} is the gradient of {of}"
                for shared in (True, False):
                    of_other = _gradient(other, attrs, scene.output, shared=shared)
                    yield predicting(scene, "D", says, of_other)


def _values_matter(scene: Observations) -> bool:
    """Whether the right gradient depends on the values of an argument, at any probe."""
    for probe in scene.failing:
        moved = {
            name: 1.5 * primal + 0.25
            for name, primal in zip(probe.names, probe.primals, strict=True)
            if primal.dtype.kind == "f"
        }
        there = probe.vjp(primals=moved)
        if there is None or not np.array_equal(there[scene.output], probe.right[scene.output]):
            return True
    return False


def _takes(other: OpSpec, attrs: Attrs, probe: Probe) -> bool:
    """Whether it has outputs of the same shapes there, and does something to the cotangent."""
    try:
        with np.errstate(all="ignore"):
            outputs = as_tuple(other.forward(F64, *probe.primals, **attrs))
            shapes = [np.shape(output) for output in outputs]
            if shapes != [part.shape for part in probe.ct]:
                return False
            ct = probe.ct[0] if len(probe.ct) == 1 else probe.ct
            found = as_tuple(other.vjp(F64, ct, *probe.primals, **attrs))
    except RAISES:
        return False
    return not any(
        g is not None and np.shape(g) == part.shape and np.array_equal(g, part)
        for g in found
        for part in probe.ct
    )


def _gradient(
    other: OpSpec, attrs: Attrs, output: str, *, shared: bool
) -> Callable[[Probe], Float | None]:
    """Its gradient, with the attributes that both have as they are given, or with its own."""

    def gradient(probe: Probe) -> Float | None:
        given = {k: v for k, v in probe.attrs.items() if shared and k in attrs}
        ct = probe.ct[0] if len(probe.ct) == 1 else probe.ct
        try:
            with np.errstate(all="ignore"):
                found = as_tuple(other.vjp(F64, ct, *probe.primals, **{**attrs, **given}))
        except RAISES:
            return None
        value = found[probe.names.index(output)]
        return None if value is None else np.asarray(value, dtype=np.float64)

    return gradient
