"""Probes of one implementation: the same code asked at several samples, seeds and attributes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from gradcheck.arithmetic import F64, dtype_named
from gradcheck.binding import Binding, Bound
from gradcheck.contract.returned import Broken, as_array
from gradcheck.errors import SpecError, Unsupported
from gradcheck.explain.probe import RAISES, Cotangent, Float, Gradients, Probe
from gradcheck.judge.lowprecision import rounded
from gradcheck.judge.probe import guarded_call
from gradcheck.rounding import ROUNDING, allowance
from gradcheck.selection import LOW
from gradcheck.spec import Attrs, OpSpec, as_tuple
from gradcheck.suite import Case
from gradcheck.verdict import Verdict

Array = NDArray[Any]

OTHERS: Final = 6
"""Samples beside the case's own."""
SEEDS: Final = 2
"""Seeds of each."""
LARGEST: Final = 700
"""Elements of all primals above which a sample is too large to form suspicions at."""
ENDED: Final = (Verdict.CRASH, Verdict.TIMEOUT)
UNITS: Final = {"float16": 2.0**-11, "bfloat16": 2.0**-8, "float32": 2.0**-24, "float64": 2.0**-53}


@dataclass(frozen=True, slots=True)
class OfSpec:
    """The truth that a spec's own text tells."""

    spec: OpSpec

    def forward(self, primals: Sequence[Array], attrs: Attrs) -> tuple[Float, ...]:
        """The spec's forward in float64."""
        return tuple(np.asarray(o) for o in as_tuple(self.spec.forward(F64, *primals, **attrs)))

    def vjp(
        self, ct: Cotangent, primals: Sequence[Array], attrs: Attrs
    ) -> tuple[Float | None, ...]:
        """The spec's VJP in float64."""
        return as_tuple(self.spec.vjp(F64, _bare(ct), *primals, **attrs))

    def cost(
        self, ct: Cotangent, primals: Sequence[Array], attrs: Attrs
    ) -> tuple[Float | None, ...]:
        """The running error of the spec's VJP, in units of u."""
        parts = tuple(ROUNDING.asarray(part) for part in ct)
        carried = [ROUNDING.asarray(p) if p.dtype.kind == "f" else p for p in primals]
        found = as_tuple(self.spec.vjp(ROUNDING, _bare(parts), *carried, **attrs))
        return tuple(allowance(g) for g in found)


@dataclass
class Interrogation:
    """One implementation of one operator's dialect in one dtype, asked where it tells most.

    After a call that died nothing more is asked of it.
    """

    binding: Binding
    dtype: str
    _dead: bool = False
    _kept: dict[tuple[str, int], Probe | None] = field(default_factory=dict)

    def probes(self, case: Case) -> list[Probe]:
        """Probes at other samples of the case's dialect first, then at the case itself."""
        found = [self._probe(other) for other in (*others(case), *_seeded(case, SEEDS + 1))]
        return [probe for probe in found if probe is not None]

    def own(self, case: Case) -> list[Probe]:
        """Probes at the case itself alone, drawn from several seeds; its own first."""
        found = [self._probe(other) for other in _seeded(case, SEEDS + 1)]
        return [probe for probe in found if probe is not None]

    def _probe(self, case: Case) -> Probe | None:
        key = (case.name, case.seed)
        if key not in self._kept:
            self._kept[key] = None if self._dead else self._asked(case)
        return self._kept[key]

    def _asked(self, case: Case) -> Probe | None:
        spec, dtype = case.spec, self.dtype
        truth = OfSpec(spec)
        try:
            primals = case.primals
            if dtype in LOW:
                primals = tuple(rounded(p, dtype) for p in primals)
            with np.errstate(all="ignore"):
                outputs = truth.forward(primals, case.attrs)
            bound = self.binding.bind(case, dtype)
            if bound is None:
                return None
            kinked = {
                kink.primal or case.primal_names[0]: np.asarray(
                    kink.gap(F64, *primals, **case.attrs)
                )
                == 0
                for kink in spec.kinks
            }
        except (*RAISES, SpecError, Unsupported):
            return None
        draw = case.draw("diagnosis")
        ct = tuple(_held(draw.away(0.0, *o.shape), dtype) for o in outputs)
        call = self._calling(bound, case, primals)
        try:
            raw = call(ct)
        except (Broken, Unsupported):
            return None
        probe = Probe(
            where=case.sample.name,
            seed=case.seed,
            names=case.primal_names,
            primals=primals,
            attrs=case.attrs,
            ct=ct,
            got=_fitting(raw, case.primal_names, primals),
            truth=truth,
            ask=lambda ct: _fitting(call(ct), case.primal_names, primals),
            dtype=dtype,
            u=UNITS[dtype],
            kinked=kinked,
            raw=raw,
        )
        return probe if probe.vjp() is not None else None

    def _calling(
        self, bound: Bound, case: Case, primals: Sequence[Array]
    ) -> Callable[[Cotangent], dict[str, Array | None]]:
        names, kind = case.primal_names, dtype_named(self.dtype)
        typed = [p.astype(kind) if p.dtype.kind == "f" else p for p in primals]

        def call(ct: Cotangent) -> dict[str, Array | None]:
            try:
                out = guarded_call(
                    "vjp", bound.vjp, tuple(p.astype(kind) for p in ct), typed, names, bound.attrs
                )
            except Broken as error:
                self._dead = self._dead or error.finding.verdict in ENDED
                raise
            pairs = zip(names, as_tuple(out), strict=False)
            return {name: as_array(gradient) for name, gradient in pairs}

        return call


def _fitting(
    raw: Mapping[str, Array | None], names: Sequence[str], primals: Sequence[Array]
) -> Gradients:
    """What came back in the shape of its primal, in float64 copies."""
    shapes = {n: p.shape for n, p in zip(names, primals, strict=True) if p.dtype.kind == "f"}
    with np.errstate(all="ignore"):
        return {
            name: np.array(gradient, dtype=np.float64)
            for name, gradient in raw.items()
            if gradient is not None and shapes.get(name) == gradient.shape
        }


def _bare(parts: tuple[Any, ...]) -> Any:
    return parts[0] if len(parts) == 1 else parts


def _held(ct: Float, dtype: str) -> Float:
    """A cotangent whose values the dtype holds."""
    return ct.astype(dtype_named(dtype)).astype(np.float64)


def _seeded(case: Case, count: int) -> Iterator[Case]:
    for seed in range(count):
        yield replace(case, seed=case.seed + seed)


def others(case: Case) -> list[Case]:
    """Cases of the same dialect that tell most: ordinary values, other attributes, other shapes."""
    ordinary: list[Case] = []
    repeats: list[Case] = []
    attrs: set[str] = set()
    shapes: set[tuple[tuple[int, ...], ...]] = set()
    for sample in case.spec.samples:
        if sample.at_kink or (sample.dialects and case.dialect.name not in sample.dialects):
            continue
        other = replace(case, sample=sample)
        try:
            size = sum(p.size for p in other.primals)
            small = 1 < size <= LARGEST and all(p.size for p in other.primals)
        except Exception:  # noqa: BLE001  a suite's own; the ordinary judgement says so
            continue
        if not small:
            continue
        key, shape = repr(sorted(other.attrs.items())), tuple(p.shape for p in other.primals)
        new = key not in attrs or shape not in shapes
        attrs.add(key)
        shapes.add(shape)
        (ordinary if new else repeats).append(other)
    chosen = [*ordinary, *repeats][:OTHERS]
    return [seeded for other in chosen for seeded in _seeded(other, SEEDS)]
