"""Operators with a spec: the code at several samples, seeds, attributes; diagnoses from these."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from gradcheck.errors import GradcheckError, SpecError, Unsupported
from gradcheck.explain.engine import Explanation, explain, with_operator_rules
from gradcheck.explain.findings import contract_diagnosis, diagnosis_of, with_causes, with_diagnosis
from gradcheck.explain.hypotheses.other_function import known_mutant, other_operator
from gradcheck.explain.hypothesis import Rule
from gradcheck.explain.probe import RAISES, Cotangent, Float, Mask, Probe, bare, returned_arrays
from gradcheck.implementations.bound import Binding, Bound
from gradcheck.implementations.checked_call import CheckedCall, bound_by
from gradcheck.implementations.processes.crash_or_hang import uncounted
from gradcheck.implementations.returned import Broken
from gradcheck.judge.low_precision import rounded
from gradcheck.numerics.arithmetic import F64
from gradcheck.numerics.arrays import Attrs, as_tuple, dtype_named
from gradcheck.numerics.draw import Draw
from gradcheck.numerics.rounding import ROUNDING, allowance
from gradcheck.results.finding import Diagnosis, Finding, Part
from gradcheck.results.verdict import Verdict
from gradcheck.spec.mutant import Mutant
from gradcheck.spec.operator import OpSpec
from gradcheck.spec.suite import Case

Array = NDArray[Any]

MAX_OTHER_SAMPLES: Final = 6
SEEDS_PER_SAMPLE: Final = 2
MAX_SAMPLE_SIZE: Final = 700
"""Elements of all primals above which a sample is too large to form hypotheses at."""
ORDINARY_SIZE: Final = 100
"""Elements of all primals above which another shape tells least: it is there for one size."""
ENDED: Final = (Verdict.CRASH, Verdict.TIMEOUT)


@dataclass(frozen=True, slots=True)
class SpecTruth:
    """The truth that a spec's own text tells."""

    spec: OpSpec

    @property
    def defaults(self) -> Attrs:
        """The attributes' default values."""
        return self.spec.defaults

    @property
    def choices(self) -> Mapping[str, Sequence[Any]]:
        """The values that each attribute takes in dialects and samples."""
        found: dict[str, list[Any]] = {}
        parts = [d.attrs for d in self.spec.dialects] + [s.attrs for s in self.spec.samples]
        for part in parts:
            for key, value in part.items():
                found.setdefault(key, []).append(value)
        return found

    def forward(self, primals: Sequence[Array], attrs: Attrs) -> tuple[Float, ...]:
        """The spec's forward in float64."""
        return tuple(np.asarray(o) for o in as_tuple(self.spec.forward(F64, *primals, **attrs)))

    def vjp(
        self, ct: Cotangent, primals: Sequence[Array], attrs: Attrs
    ) -> tuple[Float | None, ...]:
        """The spec's VJP in float64."""
        return as_tuple(self.spec.vjp(F64, bare(ct), *primals, **attrs))

    def cost(
        self, ct: Cotangent, primals: Sequence[Array], attrs: Attrs
    ) -> tuple[Float | None, ...]:
        """The running error of the spec's VJP, in units of u."""
        parts = tuple(ROUNDING.asarray(part) for part in ct)
        carried = [ROUNDING.asarray(p) if p.dtype.kind == "f" else p for p in primals]
        found = as_tuple(self.spec.vjp(ROUNDING, bare(parts), *carried, **attrs))
        return tuple(allowance(g) for g in found)


@dataclass
class ProbeCollector:
    """Probes of one implementation of one operator's dialect in one dtype, each asked for once.

    After a call that crashed or hung nothing more is asked. Such calls do not count among those
    after which an operator is given up.
    """

    binding: Binding
    dtype: str
    _dead: bool = False
    _kept: dict[tuple[str, int], Probe | None] = field(default_factory=dict)

    def probes(self, case: Case) -> list[Probe]:
        """Probes at other samples of the case's dialect first, then at the case itself."""
        return self._at_each([*others(case), *_seeded(case, SEEDS_PER_SAMPLE + 1)])

    def usual(self, case: Case) -> list[Probe]:
        """Probes that all cases of the dialect share."""
        return self._at_each(others(case))

    def _at_each(self, wanted: Sequence[Case]) -> list[Probe]:
        unique = {(other.name, other.seed): other for other in wanted}
        found = [self._probe(other) for other in unique.values()]
        return [probe for probe in found if probe is not None]

    def own(self, case: Case) -> Probe | None:
        """The probe at the case itself."""
        return self._probe(case)

    def _probe(self, case: Case) -> Probe | None:
        key = (case.name, case.seed)
        if key not in self._kept:
            self._kept[key] = None if self._dead else self._asked(case)
        return self._kept[key]

    def _asked(self, case: Case, ct: Cotangent | None = None) -> Probe | None:
        try:
            return self.ask(case, ct)
        except (*RAISES, SpecError, Broken, Unsupported):
            return None

    def ask(self, case: Case, ct: Cotangent | None = None) -> Probe | None:
        """Ask the code at any case, under `ct` in float64 (None: one drawn for the case).

        Returns None where the code lacks the operator, or the true VJP is not defined.

        Raises:
            Broken: The call as a whole violated its contract.
            Unsupported: The code declares that it lacks this.
            SpecError, or any of `RAISES`: The operator is not defined there.
        """
        spec, dtype = case.spec, self.dtype
        truth = SpecTruth(spec)
        primals = tuple(rounded(p, dtype) for p in case.primals)
        with np.errstate(all="ignore"):
            outputs = truth.forward(primals, case.attrs)
            kinked = _kinked(case, primals)
        with uncounted():
            bound = bound_by(lambda: self.binding.bind(case, dtype))
        if bound is None:
            return None
        if ct is None:
            draw = case.draw("diagnosis")
            ct = tuple(draw.away(0.0, *o.shape) for o in outputs)
        ct = tuple(_held(part, dtype) for part in ct)
        return Probe.asked(
            self._calling(bound, case, primals),
            where=case.sample.name,
            seed=case.seed,
            names=case.primal_names,
            primals=primals,
            attrs=case.attrs,
            ct=ct,
            truth=truth,
            dtype=dtype,
            kinked=kinked,
            at=partial(self._at, case),
        )

    def _at(self, case: Case, primals: Sequence[Array], ct: Cotangent) -> Probe | None:
        """The code at other primals of a case, rounded to the dtype."""
        if self._dead:
            return None
        held = dict(zip(case.primal_names, primals, strict=True))
        held = {n: _held(p, self.dtype) if p.dtype.kind == "f" else p for n, p in held.items()}
        drawn = case.sample.primals(case.draw("primals"))
        values = [held.get(n, p) for n, p in zip(case.spec.primals, drawn, strict=True)]
        sample = replace(case.sample, primals=_always(tuple(values)))
        return self._asked(replace(case, sample=sample), ct)

    def _calling(
        self, bound: Bound, case: Case, primals: Sequence[Array]
    ) -> Callable[[Cotangent], dict[str, Array | None]]:
        names, kind = case.primal_names, dtype_named(self.dtype)
        typed = [p.astype(kind) if p.dtype.kind == "f" else p for p in primals]

        def call(ct: Cotangent) -> dict[str, Array | None]:
            try:
                with uncounted():
                    parts = tuple(p.astype(kind) for p in ct)
                    out = CheckedCall("vjp", bound.vjp)(parts, typed, names, bound.attrs)
            except Broken as error:
                self._dead = self._dead or error.finding.verdict in ENDED
                raise
            return returned_arrays(names, as_tuple(out))

        return call


def _kinked(case: Case, primals: Sequence[Array]) -> dict[str, Mask]:
    found: dict[str, Mask] = {}
    for kink in case.spec.kinks:
        name = kink.primal or case.primal_names[0]
        on = np.asarray(kink.gap(F64, *primals, **case.attrs)) == 0
        found[name] = found[name] | on if name in found else on
    return found


def _held(ct: Float, dtype: str) -> Float:
    return ct.astype(dtype_named(dtype)).astype(np.float64)


def _seeded(case: Case, count: int) -> Iterator[Case]:
    for seed in range(count):
        yield replace(case, seed=case.seed + seed)


def others(case: Case) -> list[Case]:
    """The most telling cases of the same dialect, each from several seeds.

    The first sample, then those with other attributes, then those with other shapes: their values
    are ordinary, and no element sits on a kink.
    """
    attrs: set[str] = set()
    shapes: set[tuple[tuple[int, ...], ...]] = set()
    ranked: list[tuple[int, Case]] = []
    for other in _small(case):
        key, shape = repr(sorted(other.attrs.items())), tuple(p.shape for p in other.primals)
        large = sum(p.size for p in other.primals) > ORDINARY_SIZE
        rank = 0 if not ranked else 1 if key not in attrs else 2 if shape not in shapes else 3
        rank += 2 * (large and rank > 1)
        attrs.add(key)
        shapes.add(shape)
        ranked.append((rank, other))
    chosen = [other for _, other in sorted(ranked, key=lambda pair: pair[0])][:MAX_OTHER_SAMPLES]
    varied = [other for first in chosen[:1] for other in _varied(first)]
    return [seeded for other in (*chosen, *varied) for seeded in _seeded(other, SEEDS_PER_SAMPLE)]


def _varied(case: Case) -> Iterator[Case]:
    """A case with each number among its attributes elsewhere in turn: names become constants."""
    attrs = {} if case.dialect.without else case.attrs  # a sample draws every primal
    for key, value in attrs.items():
        if isinstance(value, float) and np.isfinite(value):
            sample, other = case.sample, 1.5 * value + 0.0625
            name = f"{sample.name}.{key}"
            new = replace(
                sample,
                name=name,
                attrs={**sample.attrs, key: other},
                primals=_always(case.primals),
            )
            yield replace(case, sample=new)


def _always(primals: tuple[Array, ...]) -> Callable[[Draw], tuple[Array, ...]]:
    return lambda _: primals


def _small(case: Case) -> Iterator[Case]:
    for sample in case.spec.samples:
        if sample.at_kink or (sample.dialects and case.dialect.name not in sample.dialects):
            continue
        other = replace(case, sample=sample)
        try:
            primals = other.primals
        except Exception:  # noqa: BLE001  a suite's own; the ordinary judgement says so
            continue
        if all(p.size for p in primals) and 1 < sum(p.size for p in primals) <= MAX_SAMPLE_SIZE:
            yield other


class Key(NamedTuple):
    """Whatever shares probes and explanations."""

    implementation: str
    op: str
    dialect: str
    dtype: str
    seed: int


@dataclass
class Diagnoses:
    """The engine behind `gradcheck.explain.case_diagnosis.LazyDiagnoser`: each is made once."""

    operators: Mapping[str, OpSpec]
    mutants: Callable[[], Mapping[str, Sequence[Mutant]]]
    _collectors: dict[Key, ProbeCollector] = field(default_factory=dict)
    _usual: dict[tuple[Key, str], Explanation | None] = field(default_factory=dict)

    def explained(
        self, case: Case, binding: Binding, dtype: str, findings: Sequence[Finding]
    ) -> list[Finding]:
        """The findings; those of wrong gradients with their diagnoses."""
        key = Key(binding.name, case.spec.name, case.dialect.name, dtype, case.seed)
        collector = self._collectors.setdefault(key, ProbeCollector(binding, dtype))

        def explained(finding: Finding) -> Finding:
            if not finding.guilty:
                return finding
            if finding.part is Part.CONTRACT:
                finding = contract_diagnosis(finding)
            return with_diagnosis(
                finding,
                case.primal_names,
                lambda: collector.own(case),
                lambda: self._diagnosis(finding, case, key),
            )

        return with_causes([explained(finding) for finding in findings])

    def _diagnosis(self, finding: Finding, case: Case, key: Key) -> Diagnosis | None:
        output, rules = finding.name, self._rules(case)
        probes = self._collectors[key].probes(case)
        if not finding.compared:
            return diagnosis_of(finding, probes, rules)
        usual, likely = self._explanation(output, case, key), self._wide(output, case, key)
        explanation = explain(output, probes, rules, usual, likely)
        if explanation is None:
            return None
        found = explanation.diagnosis
        if found.label or usual is None or usual.hypothesis is None:
            return found
        elsewhere = f"at other samples {usual.hypothesis.says}"
        return replace(found, evidence=(*found.evidence, elsewhere))

    def _explanation(self, output: str, case: Case, key: Key) -> Explanation | None:
        """The explanation at the dialect's samples, which all its cases share."""
        if (key, output) not in self._usual:
            probes = self._collectors[key].usual(case)
            likely = self._wide(output, case, key)
            self._usual[key, output] = explain(output, probes, self._rules(case), None, likely)
        return self._usual[key, output]

    def _wide(self, output: str, case: Case, key: Key) -> Explanation | None:
        """The explanation of the same code in float64, which tells more apart."""
        if key.dtype == "float64":
            return None
        wide = key._replace(dtype="float64")
        if wide not in self._collectors:
            self._collectors[wide] = ProbeCollector(self._collectors[key].binding, wide.dtype)
        return self._explanation(output, case, wide)

    def _rules(self, case: Case) -> tuple[Rule, ...]:
        op = case.spec.name
        mutants = known_mutant(self._mutants_of(op))
        return with_operator_rules(other_operator(op, self.operators), mutants)

    @cached_property
    def _known(self) -> Mapping[str, Sequence[Mutant]]:
        return self.mutants()

    def _mutants_of(self, op: str) -> Sequence[Mutant]:
        try:
            return self._known.get(op, ())
        except GradcheckError:  # a broken table must not hide what is wrong
            return ()
