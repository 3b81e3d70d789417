"""Known functions: the gradient is that of another operator, or of a known mutant."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from gradcheck.explain.hypothesis import Hypothesis, Observations, Rule, predicting
from gradcheck.explain.probe import RAISES, Float, Probe
from gradcheck.numerics.arithmetic import F64
from gradcheck.numerics.arrays import Attrs, as_tuple
from gradcheck.spec.mutant import Mutant
from gradcheck.spec.operator import OpSpec


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
                for given in (partial(_shared, attrs), partial(_own, attrs)):
                    yield predicting(obs, "D", says, _gradient(other.vjp, obs.output, given))


def _own(attrs: Attrs, probe: Probe) -> Attrs:
    return attrs


def _shared(attrs: Attrs, probe: Probe) -> Attrs:
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
            ct = probe.ct[0] if len(probe.ct) == 1 else probe.ct
            found = as_tuple(other.vjp(F64, ct, *probe.primals, **attrs))
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


def _given(probe: Probe) -> Attrs:
    return probe.attrs


def _nearest(known: Sequence[Mutant], obs: Observations) -> Iterator[Hypothesis]:
    for mutant in known:
        if mutant.vjp is None or mutant.equivalent:
            continue  # stateful mutants are not functions of their arguments
        says = f"{obs.gradient} is that of a known defect, {mutant.full_name}: {mutant.says}"
        yield predicting(
            obs, mutant.label, says.rstrip("."), _gradient(mutant.vjp, obs.output, _given)
        )


def _gradient(
    vjp: Callable[..., Any], output: str, attrs: Callable[[Probe], Attrs]
) -> Callable[[Probe], Float | None]:
    """The gradient that another VJP gives, with attributes that may depend on the probe."""

    def gradient(probe: Probe) -> Float | None:
        ct = tuple(np.array(part) for part in probe.ct)  # a mutant may write over it
        bare = ct[0] if len(ct) == 1 else ct
        try:
            with np.errstate(all="ignore"):
                found = as_tuple(vjp(F64, bare, *probe.primals, **attrs(probe)))
        except RAISES:
            return None
        if len(found) != len(probe.names):
            return None
        value = found[probe.names.index(output)]
        return None if value is None else np.asarray(value, dtype=np.float64)

    return gradient
