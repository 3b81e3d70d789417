"""The smallest input at which a gradient still fails, and fails for the same reason."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from gradcheck.errors import Unsupported
from gradcheck.explain.engine import RULES, explain
from gradcheck.explain.findings import is_unsteady, with_state
from gradcheck.explain.hypotheses.shape_or_state import malformed
from gradcheck.explain.hypothesis import Rule
from gradcheck.explain.operator_probes import ENDED, ProbeCollector
from gradcheck.explain.probe import Probe
from gradcheck.explain.shrink_steps import plainer, shorter, smaller, sparser
from gradcheck.explain.shrink_trial import (
    CALL,
    FORMS,
    OUTSIDE_DOMAIN,
    Candidate,
    Domain,
    Trials,
    judged,
)
from gradcheck.implementations.bound import Binding
from gradcheck.implementations.returned import Broken
from gradcheck.judge.call import ask_vjp
from gradcheck.judge.cotangents import KINDS
from gradcheck.judge.low_precision import rounded
from gradcheck.judge.operator import CaseTruth, judge_case
from gradcheck.numerics.arrays import dtype_named
from gradcheck.results.finding import Diagnosis, Finding
from gradcheck.results.verdict import Verdict
from gradcheck.spec.dtype_selection import LOW
from gradcheck.spec.suite import Case

Array = NDArray[Any]
Float = NDArray[np.float64]

MAX_POINTS: Final = 500
"""Points at which the code is asked, at most; each costs it up to three calls."""
MIN_KEPT_SIZE: Final = 2.0**-7
"""What may be left of the true gradient's size after one step; a few of them lead to 1e-5."""
WRONG_VERDICTS: Final = (Verdict.FAIL, Verdict.MISSING, Verdict.ERROR)


@dataclass(frozen=True, slots=True, kw_only=True)
class Shrunk:
    """A failure made small: the case, the one cotangent under which it shows, and the numbers.

    `case` has a sample of its own, named after the original's, with the reduced primals and
    attributes; `cotangent` has one part per output of forward, in float64. `finding` is the
    judgement of the gradient `output` there. `got`, `want` (the true gradient) and `bar` (the
    uncertainty of `want`) are float64, in the shape of the primal `output` (of the first floating
    one, where the call as a whole fails); `got` is NaN where no array of that shape was returned.
    """

    case: Case
    cotangent: tuple[Array, ...]
    output: str
    dtype: str
    finding: Finding
    got: Array
    want: Array
    bar: Array


def shrink(
    case: Case,
    binding: Binding,
    dtype: str,
    output: str,
    rules: Sequence[Rule] = RULES,
    budget: int = MAX_POINTS,
    convention: str = "",
) -> Shrunk | None:
    """Show the failure of one gradient in fewer elements and shorter numbers.

    Args:
        case: The case that fails.
        binding: The implementation judged.
        dtype: The dtype in which it is judged.
        output: A primal's name, or "vjp" for the call as a whole.
        rules: Rules of diagnosis. If one explains the failure, smaller inputs must fit its
            hypothesis.
        budget: The number of points at which the code is asked, at most.
        convention: The system whose choice on kinks is the only one allowed (empty: any).

    Returns:
        The smallest failure found, with the original's verdict and symptom (numbers, NaN, shape,
        absence), inside the operator's domain and repeatable; None if the gradient does not fail. A
        call that crashes is not repeated: its case is returned as it is.

    Raises:
        SpecError: The case is invalid.
    """
    if output not in (CALL, *case.primal_names):
        return None
    asked = ProbeCollector(binding, dtype)
    primals = tuple(rounded(p, dtype) for p in case.primals) if dtype in LOW else case.primals
    trials = Trials(asked, output, Domain.of(case, primals), budget, convention)
    start = _start(case, primals, trials)
    if start is None:
        return as_it_is(case, binding, dtype, output, convention)
    diagnosis = _suspected(case, trials, rules)
    if trials.fits is not None and not trials.begins(start):
        trials.fits, diagnosis = None, None  # it does not hold here
    found = _reduced(start, trials) or as_it_is(case, binding, dtype, output, convention)
    if found is None:
        return None
    if is_unsteady(found.finding):
        return replace(found, finding=with_state(found.finding, asked.own(case)))
    if diagnosis is None:
        return found
    return replace(found, finding=replace(found.finding, diagnosis=diagnosis))


def _start(case: Case, primals: tuple[Array, ...], trials: Trials) -> Candidate | None:
    """The case as it is, under the first of the usual cotangents that shows the failure."""
    for kind in KINDS:
        candidate = Candidate(original=case, primals=primals, attrs=case.attrs, kind=kind)
        if trials.left > 0 and trials.begins(candidate):
            return candidate
    return None


def _suspected(case: Case, trials: Trials, rules: Sequence[Rule]) -> Diagnosis | None:
    """Diagnose the failure; every candidate must fit its hypothesis from then on."""
    output, probes = trials.output, trials.asked.probes
    if output == CALL:
        return None
    if trials.symptom is not None and trials.symptom.kind in FORMS:
        formed = malformed(output, probes(case))

        def same(probe: Probe) -> bool:
            again = malformed(output, [probe])
            return again is not None and formed is not None and again.label == formed.label

        trials.fits = None if formed is None or not formed.label else same
        return formed
    explanation = explain(output, probes(case), rules)
    hypothesis = None if explanation is None else explanation.hypothesis
    trials.fits = None if hypothesis is None else hypothesis.fits
    return None if explanation is None else explanation.diagnosis


def _reduced(start: Candidate, trials: Trials) -> Shrunk | None:
    """The smallest candidate that a whole judgement confirms; None if it confirms none.

    Steps that are not confirmed are undone: forward may have no derivative at a zero where the
    spec's VJP still gives a number.
    """
    candidate, found = start, None
    for steps in ROUNDS:
        less, shrunk = _stepped(candidate, steps, trials)
        if shrunk is None and len(steps) > 1:
            for step in steps:
                one, alone = _stepped(candidate, (step,), trials)
                if alone is not None:
                    less, shrunk, candidate = one, alone, one
        if shrunk is not None:
            candidate, found = less, shrunk
    return found or _confirmed(start, trials)


def _stepped(
    candidate: Candidate, steps: Sequence[Step], trials: Trials
) -> tuple[Candidate, Shrunk | None]:
    """The candidate after some steps, if that is another one, and it is confirmed."""
    less, before = candidate, trials.last
    for step in steps:
        size = 0.0 if trials.last is None else trials.last.largest
        trials.zero, trials.least = step is smaller or size == 0, size * MIN_KEPT_SIZE
        less = step(less, trials)
    shrunk = None if less is candidate else _confirmed(less, trials)
    if shrunk is None:
        trials.last = before
    return less, shrunk


def _away_from_zero(candidate: Candidate, trials: Trials) -> Candidate:
    """The candidate in short numbers that are not zero, where zeros will not do."""
    return shorter(candidate, trials, zeros=False)


def _bare(candidate: Candidate, trials: Trials) -> Candidate:
    """The candidate under a simpler cotangent."""
    return sparser(candidate, trials.cotangent(candidate, candidate.case()), trials)


Step = Callable[[Candidate, Trials], Candidate]
ROUNDS: Final[tuple[tuple[Step, ...], ...]] = (
    (smaller, plainer, smaller),
    (_bare,),
    (shorter,),
    (_away_from_zero,),
    (smaller, _bare, shorter),
)


def _confirmed(candidate: Candidate, trials: Trials) -> Shrunk | None:
    """The candidate as the whole judgement sees it; None where that does not call it wrong."""
    try:
        case = candidate.case()
        ct = trials.cotangent(candidate, case)
        truth, finding = judged(case, trials.asked, trials.output, ct, trials.convention)
    except (Broken, *OUTSIDE_DOMAIN):
        return None
    if finding.name != trials.output or finding.verdict not in WRONG_VERDICTS:
        return None
    return shown(truth, finding, trials.asked, 0)


def as_it_is(
    case: Case, binding: Binding, dtype: str, output: str, convention: str = ""
) -> Shrunk | None:
    """The failure at the case as it stands, under the worst cotangent; None: it does not fail.

    Raises:
        SpecError: the case is at fault.
    """
    truth = CaseTruth(case, convention, low=dtype if dtype in LOW else "").at(dtype)
    findings = judge_case(truth, binding, dtype)
    finding = next((f for f in findings if f.name == output), None)
    if finding is None or finding.verdict not in (*WRONG_VERDICTS, *ENDED):
        return None
    names = truth.cotangents.names
    row = names.index(finding.top.cotangent) if finding.top is not None else 0
    return shown(truth, finding, ProbeCollector(binding, dtype), row)


def shown(truth: CaseTruth, finding: Finding, asked: ProbeCollector, row: int) -> Shrunk:
    """A finding with the numbers behind it, under one of the cotangents."""
    case, names = truth.case, truth.names
    index = names.index(finding.name) if finding.name in names else truth.floating[0]
    estimate = truth.certain(index).differences.estimate
    want, bar = estimate.value[row].copy(), estimate.bar[row].copy()
    got = _got(truth, asked, names[index], row, ended=finding.verdict in ENDED)
    kinks = truth.truth(index).kinks
    if kinks is not None:
        low, high, on = (a[row] for a in (kinks.interval.low, kinks.interval.high, kinks.on[None]))
        want = np.where(on, np.clip(np.where(np.isnan(got), 0.0, got), low, high), want)
        bar = np.where(on, 0.0, bar)
    shape = truth.primals[index].shape
    return Shrunk(
        case=case,
        cotangent=tuple(truth.cotangents.values[row]),
        output=finding.name,
        dtype=asked.dtype,
        finding=finding,
        got=got.reshape(shape),
        want=want.reshape(shape),
        bar=bar.reshape(shape),
    )


def _got(truth: CaseTruth, asked: ProbeCollector, name: str, row: int, *, ended: bool) -> Float:
    """The code's gradient of one primal, [n]; NaN where none of its shape is returned."""
    case, kind = truth.case, dtype_named(asked.dtype)
    nothing = np.full(truth.primals[truth.names.index(name)].size, np.nan)
    typed = [p.astype(kind) if p.dtype.kind == "f" else p for p in truth.primals]
    try:
        bound = None if ended else asked.binding.bind(case, asked.dtype)
        if bound is None:
            return nothing
        cts = truth.cotangents.typed(asked.dtype)
        answer = ask_vjp(bound.vjp, cts, typed, truth.names, bound.attrs)
    except (Broken, Unsupported):
        return nothing
    rows = answer.gradients.get(name)
    return nothing if rows is None or isinstance(rows, Finding) else rows[row]
