"""Why a gradient of a function that no spec describes is wrong: differences are the truth."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Final

import numpy as np

from gradcheck.errors import Unsupported
from gradcheck.explain.diagnoses import remembering, told, unsteady
from gradcheck.explain.differenced import Differenced, Estimated, Unknown
from gradcheck.explain.hypotheses.table import RULES
from gradcheck.explain.probe import Array, Cotangent, Probe
from gradcheck.explain.probe_collector import UNITS, came, fitting
from gradcheck.implementations.returned import Broken
from gradcheck.judge.call import guarded_call
from gradcheck.judge.cotangents import Cotangents
from gradcheck.numerics.arrays import Attrs, as_tuple
from gradcheck.numerics.draw import Draw
from gradcheck.numerics.estimator import Estimate
from gradcheck.numerics.evaluate import Point
from gradcheck.results.finding import Finding

LARGEST: Final = 400
"""Elements of all primals above which only what the check has differenced is known."""
OUTPUTS: Final = 1600
"""Elements of all outputs, likewise."""
HERE: Final = "the point checked"
ELSEWHERE: Final = ((0.75, 1.25), (1.25, 1.75))
"""Factors on the primals, drawn for each element: signs stay, and so does what is zero."""


@dataclass(frozen=True, kw_only=True)
class Checked:
    """What `gradcheck.check` was given, and what it has found out.

    `point` is forward in float64, where it can be asked there; `kinds` are the dtypes of its
    outputs as they are given; `estimates` are gradients under `cotangents`, by the names of
    primals; `rules` names those that may be tried (None: all).
    """

    forward: Callable[..., Any]
    vjp: Callable[..., Any]
    primals: tuple[Array, ...]
    names: tuple[str, ...]
    attrs: Attrs
    dtype: str
    point: Point
    kinds: tuple[np.dtype[Any], ...]
    cotangents: Cotangents
    estimates: Mapping[str, Estimate] = field(default_factory=dict)
    rules: frozenset[str] | None = None


def explained(checked: Checked, findings: Sequence[Finding]) -> list[Finding]:
    """The findings; those that say that something is wrong with their diagnoses.

    Nothing is asked where nothing is wrong. What is told may depend on how fast forward is, the
    verdict never does.
    """
    if not any(finding.verdict.wrong for finding in findings):
        return [*findings]
    guilty = frozenset(f.name for f in findings if f.verdict.wrong)
    asked = _Asked(checked, guilty)
    return [asked.explained(f) if f.verdict.wrong else f for f in findings]


class _Asked:
    """Probes of one function, made when the first is needed."""

    def __init__(self, checked: Checked, guilty: frozenset[str]) -> None:
        self._checked, self._guilty = checked, guilty

    def explained(self, finding: Finding) -> Finding:
        if unsteady(finding):
            return remembering(finding, self._steady)
        if finding.diagnosis is not None or finding.name not in self._checked.names:
            return finding
        known = [p for p in self._probes if finding.name in p.right or not finding.compared]
        only = self._checked.rules
        rules = RULES if only is None else tuple(rule for rule in RULES if rule.name in only)
        found = told(finding, known, rules) if known else None
        return finding if found is None else replace(finding, diagnosis=found)

    @cached_property
    def _truth(self) -> Differenced:
        checked, point = self._checked, self._checked.point
        u = UNITS[checked.dtype]
        moving = sum(point.primals[i].size for i in point.differentiable)
        outputs = checked.cotangents.flat.shape[1]
        if moving <= LARGEST and outputs <= OUTPUTS:
            asked = [i for i, name in enumerate(checked.names) if name in self._guilty]
            truth = Differenced(checked.forward, point, u, asked)
            if truth.affords(point):
                return truth
        known = {i: checked.estimates[name] for i, name in enumerate(checked.names)
                 if name in checked.estimates}  # fmt: skip
        cts = checked.cotangents.flat
        return Estimated(checked.forward, point, u, checked.attrs, cts, known)

    @cached_property
    def _steady(self) -> Probe | None:
        """A probe of code that gives other bits each time: nothing that it gives is held."""
        checked = self._checked
        return self._probe(HERE, checked.primals, checked.attrs, self._cts[0])

    @cached_property
    def _probes(self) -> list[Probe]:
        """The point checked, under two cotangents; other primals; each number among attributes.

        One of them at a time is elsewhere: what a factor is called becomes a constant there.
        """
        checked = self._checked
        primals, attrs = checked.primals, checked.attrs
        points: list[tuple[str, tuple[Array, ...], Attrs, Cotangent]]
        points = [(HERE, primals, attrs, ct) for ct in self._cts[:2]]
        if not isinstance(self._truth, Estimated):
            shapes = [part.shape for part in self._cts[0]]
            for seed, factors in enumerate(ELSEWHERE):
                draw = Draw("black box", seed, *shapes)
                ct = tuple(draw.away(0.0, *shape) for shape in shapes)
                points.append(("other primals", _moved(primals, draw, factors), attrs, ct))
            for key, value in attrs.items():
                if isinstance(value, float) and np.isfinite(value):
                    other = {**attrs, key: 1.5 * value + 0.0625}
                    points.append((f"{key} = {other[key]:g}", primals, other, self._cts[0]))
        found = [self._probe(*point) for point in points]
        return [probe for probe in found if probe is not None]

    @property
    def _cts(self) -> tuple[Cotangent, ...]:
        return self._checked.cotangents.values

    def _probe(
        self, where: str, primals: tuple[Array, ...], attrs: Attrs, ct: Cotangent
    ) -> Probe | None:
        """None where forward is not defined, or the code fails."""
        checked, truth = self._checked, self._truth
        names = checked.names
        wide = tuple(p.astype(np.float64) if p.dtype.kind == "f" else p for p in primals)

        def call(ct: Cotangent) -> dict[str, Array | None]:
            # A forward that saves what its backward reads must have seen these primals last.
            guarded_call("forward", checked.forward, (), primals, names, attrs)
            typed = tuple(p.astype(kind) for p, kind in zip(ct, checked.kinds, strict=True))
            out = guarded_call("vjp", checked.vjp, typed, primals, names, attrs)
            return came(names, as_tuple(out))

        try:
            outputs = truth.forward(wide, attrs)
            if not all(np.isfinite(o).all() for o in outputs):
                return None
            raw = call(ct)
        except (Broken, Unsupported, Unknown):
            return None
        probe = Probe(
            where=where,
            seed=0,
            names=names,
            primals=wide,
            attrs=attrs,
            ct=ct,
            got=fitting(raw, names, wide),
            truth=truth,
            ask=lambda ct: fitting(call(ct), names, wide),
            dtype=checked.dtype,
            u=UNITS[checked.dtype],
            raw=raw,
        )
        truth.stand(wide, attrs)
        return probe if probe.vjp() is not None else None


def _moved(primals: Sequence[Array], draw: Draw, factors: tuple[float, float]) -> tuple[Array, ...]:
    return tuple(
        (p * draw.uniform(*factors, *p.shape)).astype(p.dtype) if p.dtype.kind == "f" else p
        for p in primals
    )
