"""A model's findings with the stages to blame: exactly where stages are bound, or by suspicion."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import replace
from typing import Final

import numpy as np
from numpy.typing import NDArray

from gradcheck.binding import BoundModel
from gradcheck.contract.returned import Broken
from gradcheck.explain.blame import rounds, suspects
from gradcheck.explain.reach import Derivatives
from gradcheck.finding import Blame, Finding, Part
from gradcheck.judge.model import ModelJudgement, gradients_of, judge_gradients
from gradcheck.judge.model_truth import ModelTruth
from gradcheck.verdict import Verdict

Float = NDArray[np.float64]

WRONG: Final = (Verdict.FAIL, Verdict.MISSING, Verdict.ERROR)
"""Verdicts that somebody is to blame for."""


class Guilt:
    """Who is to blame at one point of a model, whoever is judged there."""

    def __init__(self, truth: ModelTruth) -> None:
        """Work nothing out yet: a model that passes needs none of it."""
        self._truth = truth
        self._derivatives: dict[tuple[str, ...], Derivatives] = {}

    def blamed(self, judged: ModelJudgement, dtype: str) -> tuple[Finding, ...]:
        """The findings; the loss's (or the first that is wrong) says which stages to blame."""
        wrong = _wrong(judged.of(Part.GRADIENT).values())
        guilty = _wrong(judged.of(Part.STAGE).values())
        known = [name for name in wrong if name in self._truth.values64]
        if judged.bound is None or judged.gradients is None or not (known or guilty):
            return judged.findings
        if guilty:
            return _with(judged.findings, _exact(self._truth, judged.bound, dtype, guilty))
        return _with(judged.findings, self._suspects(judged, dtype, known))

    def _suspects(
        self, judged: ModelJudgement, dtype: str, wrong: Collection[str]
    ) -> tuple[Blame, ...]:
        truth, gradients = self._truth, judged.gradients or {}
        errors: dict[str, Float] = {}
        right = []
        for name, finding in judged.of(Part.GRADIENT).items():
            got = gradients.get(name)
            if name not in truth.values64 or not isinstance(got, np.ndarray):
                continue
            known = truth.gradient(name)
            errors[name] = (got[0] - known.value).reshape(known.shape)
            if finding.verdict is Verdict.PASS:
                right.append(name)
        names = tuple(name for name, error in errors.items() if np.isfinite(error).all())
        if names not in self._derivatives:
            self._derivatives[names] = Derivatives(truth.program, truth.values64, list(names))
        return suspects(
            truth.program,
            truth.values64,
            truth.cts64,
            wrong,
            right,
            errors,
            dtype,
            self._derivatives[names],
        )


def _exact(
    truth: ModelTruth, bound: BoundModel, dtype: str, guilty: Collection[str]
) -> tuple[Blame, ...]:
    def still_wrong(replaced: frozenset[str]) -> list[str]:
        try:
            gradients = gradients_of(truth, bound, dtype, replaced)
        except Broken:  # a whole backward beside the stages: nothing in it can be replaced
            return []
        return _wrong(judge_gradients(truth, bound, gradients, dtype))

    return rounds(truth.program, guilty, still_wrong)


def _wrong(findings: Iterable[Finding]) -> list[str]:
    return [finding.name for finding in findings if finding.verdict in WRONG]


def _with(findings: tuple[Finding, ...], blames: tuple[Blame, ...]) -> tuple[Finding, ...]:
    """The blames stand with the loss; without one, with the first finding that is wrong."""
    places = [i for i, f in enumerate(findings) if f.part is Part.VALUE]
    places += [i for i, f in enumerate(findings) if f.verdict in WRONG]
    at = places[0]
    return (*findings[:at], replace(findings[at], blames=blames), *findings[at + 1 :])
