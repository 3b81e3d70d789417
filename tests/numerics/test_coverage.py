"""Error bars are honest: they cover the true error of at least 999 elements in 1000.

The truth is the 50-digit VJP that the oracle certifies. `python tests/numerics/test_coverage.py`
measures all operators over 20 seeds and prints reports/coverage.md.
"""

import re
import sys
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import pytest
from gradcheck_cases import SUITE

from gradcheck.judge.compare import ROUNDING_SAFETY
from gradcheck.judge.operator import CaseTruth
from gradcheck.numerics.arithmetic import F64
from gradcheck.numerics.estimator import Differences, noise_lines
from gradcheck.numerics.evaluate import Point
from gradcheck.numerics.operator_oracle import as_tuple
from gradcheck.spec import Sample
from gradcheck.spec.suite import Suite
from tests.sizes import ordinary, third

OPERATORS = [spec.name for spec in SUITE]
SEEDS = 20
REPORT = Path(__file__).parents[2] / "reports" / "coverage.md"


@dataclass
class Tally:
    """Elements judged, those outside their bar or without one, and bars relative to the tensor's
    largest Σ |ct·J|.
    """

    elements: int = 0
    missed: int = 0
    unknown: int = 0
    sharpness: list = field(default_factory=list)

    def add(self, estimate, true, keep, shrink=1.0):
        bar = estimate.bar * shrink
        unknown = ~np.isfinite(bar)
        ok = unknown | (np.abs(estimate.value - true) <= bar)
        self.elements += int(keep.sum())
        self.missed += int((keep & ~ok).sum())
        self.unknown += int((keep & unknown).sum())
        scale = np.max(np.where(np.isfinite(estimate.scale), estimate.scale, 0), axis=1, initial=0)
        with np.errstate(divide="ignore", invalid="ignore"):
            relative = bar / scale[:, None]
        self.sharpness.append(relative[keep & np.isfinite(relative)])

    @property
    def coverage(self):
        return 1 - self.missed / self.elements

    @property
    def median(self):
        known = np.concatenate(self.sharpness)
        return float(np.median(known)) if known.size else 0.0  # a forward of steps: exact zeros

    @property
    def honest(self):
        """999 in 1000; where there are fewer, every one."""
        return self.missed <= self.elements // 1000


def blind(truth, index):
    """Differences by somebody who has no spec: values of forward are all there is."""
    point = Point(truth._point.forward, truth.primals)
    return Differences(point, index, truth.cotangents.flat, noise_lines(point))


def measure(cases, shrink=1.0, differences=lambda truth, index: truth.truth(index).differences):
    """Tallies of the triple alone, and after the ladder for all elements."""
    triple, ladder = Tally(), Tally()
    for case in cases:
        truth = CaseTruth(case)
        certain = truth._certain
        assert certain is not None, case.name
        for i in truth.floating:
            it = differences(truth, i)
            keep = np.ones(it.estimate.value.shape, dtype=bool)
            on_kink = truth.declared.on(i)
            if on_kink is not None:
                keep &= ~on_kink
            triple.add(it.estimate, certain[i], keep, shrink)
            it.refine(np.arange(it.estimate.size))
            ladder.add(it.estimate, certain[i], keep, shrink)
    return triple, ladder


# ── every built-in operator ──────────────────────────────────────────────────────────────────


@pytest.mark.suite(keep=3, rest=7)
@pytest.mark.parametrize("name", third(OPERATORS))
def test_the_bars_cover_every_builtin_operator(suite, name):
    triple, ladder = measure(ordinary(suite.cases([name])))
    for tally in (triple, ladder):
        assert tally.elements > 50
        assert tally.honest, tally
        assert tally.median < 1e-9
    assert triple.unknown <= triple.elements // 50
    assert ladder.unknown == 0


@pytest.mark.soak
@pytest.mark.parametrize("name", OPERATORS)
def test_the_bars_cover_every_builtin_operator_at_many_seeds(suite, name):
    cases = [case for seed in range(SEEDS) for case in suite.cases([name], seed=seed)]
    for tally in measure(cases):
        assert tally.honest, tally


@pytest.mark.suite(keep=6, by="gradcheck run")
@pytest.mark.parametrize("name", third(OPERATORS))
def test_differences_agree_with_the_spec_in_float64(suite, name):
    for case in ordinary(suite.cases([name])):
        truth = CaseTruth(case)
        for q, ct in enumerate(truth.cotangents.values):
            bare = ct[0] if len(ct) == 1 else ct
            with np.errstate(all="ignore"):
                gradients = as_tuple(case.spec.vjp(F64, bare, *truth.primals, **case.attrs))
            for i in truth.floating:
                estimate = truth.truth(i).differences.estimate
                rounding = ROUNDING_SAFETY * 2.0**-53 * truth._vjp_rounding[i][q]
                error = np.abs(gradients[i].reshape(-1) - estimate.value[q])
                ok = (error <= estimate.bar[q] + rounding) | np.isinf(estimate.bar[q])
                on_kink = truth.declared.on(i)
                if on_kink is not None:
                    ok |= on_kink
                assert ok.all(), (case.name, truth.names[i], np.flatnonzero(~ok))


# ── hard inputs by name ──────────────────────────────────────────────────────────────────────


def wide(draw, *shape):
    return np.round(draw.normal(*shape) * 1280) / 128


HARD = {
    "softmax of N(0, 10)": ("softmax", lambda d: (wide(d, 24, 16),)),
    "softmax of 1000 ± 3": ("softmax", lambda d: (1000 + d.uniform(-3, 3, 24, 16),)),
    "tanh of N(0, 8)": ("tanh", lambda d: (d.normal(400, scale=8.0),)),
    "sigmoid of N(0, 8)": ("sigmoid", lambda d: (d.normal(400, scale=8.0),)),
    "silu of N(0, 8)": ("silu", lambda d: (d.normal(400, scale=8.0),)),
    "tiny rows": ("rms_norm", lambda d: (d.normal(40, 8, scale=2.0**-13), d.normal(8))),
    "tinier rows": ("rms_norm", lambda d: (d.normal(40, 8, scale=2.0**-20), d.normal(8))),
    "tiny rows of one": ("rms_norm", lambda d: (d.normal(200, 1, scale=2.0**-13), d.normal(1))),
    "layer_norm at 1000": (
        "layer_norm",
        lambda d: (1000 + d.normal(40, 8), d.normal(8), d.normal(8)),
    ),
    "near-constant rows": (
        "layer_norm",
        lambda d: (1 + d.normal(40, 8, scale=2.0**-12), d.normal(8), d.normal(8)),
    ),
    "sharp attention": (
        "attention",
        lambda d: (d.normal(12, 12, scale=8.0), d.normal(12, 12), d.normal(12, 12)),
    ),
    "sharp logits": (
        "softmax_cross_entropy",
        lambda d: (wide(d, 40, 16), d.integers(0, 16, 40)),
    ),
    "gelu of N(0, 4)": ("gelu", lambda d: (d.normal(400, scale=4.0),)),
}


def hard_cases(name, seeds=range(2)):
    operator, primals = HARD[name]
    sample = Sample(name="hard", primals=primals, hunts="a bar that is too narrow")
    spec = replace(SUITE.operators[operator], samples=(sample,))
    suite = Suite("hard", "1", (spec,))
    return [case for seed in seeds for case in suite.cases(seed=seed)]


@pytest.mark.suite(keep=3)
@pytest.mark.parametrize("name", HARD)
def test_the_bars_cover_hard_inputs(name):
    for tally in measure(hard_cases(name)):
        assert tally.elements >= 1000
        assert tally.honest, tally
        assert tally.median < 1e-6


@pytest.mark.suite(keep=3)
@pytest.mark.parametrize("name", [name for name in HARD if "gelu" not in name])
def test_the_bars_cover_hard_inputs_without_a_spec(name):
    # (A gelu that is exactly 0 far out hides its slope from everyone who sees only values.)
    for tally in measure(hard_cases(name), differences=blind):
        assert tally.elements >= 1000
        assert tally.honest, tally


@pytest.mark.soak
@pytest.mark.parametrize("name", HARD)
def test_the_bars_cover_hard_inputs_at_many_seeds(name):
    for tally in measure(hard_cases(name, range(SEEDS))):
        assert tally.honest, tally


@pytest.mark.slow(keep=1)
@pytest.mark.parametrize("name", ["softmax of N(0, 10)", "layer_norm at 1000", "tiny rows"])
def test_narrower_bars_would_be_caught(name):
    for tally in measure(hard_cases(name), shrink=1e-3):
        assert not tally.honest


# ── the report ───────────────────────────────────────────────────────────────────────────────


def table():
    """Coverage after the ladder, and of the triple, as Markdown."""
    lines = [
        "# Coverage of the error bars",
        "",
        f"All cases of the built-in suite {SUITE.version}, {SEEDS} seeds, three cotangents each, "
        "float64; the truth is the",
        "50-digit VJP that the oracle certifies; elements on a kink are left out. *Triple*: three "
        "steps for every element.",
        "*Ladder*: all steps. *Missed*: the true error is larger than the bar. *Unknown*: the bar "
        "is infinite, and the",
        "element goes to the next tier. *Bar/scale*: the median bar relative to the tensor's "
        "largest Σ |ct·J|.",
        "Written by `python tests/numerics/test_coverage.py`.",
        "",
        "| operator | elements | triple: missed | unknown | coverage | bar/scale "
        "| ladder: missed | unknown | coverage | bar/scale |",
        "|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|",
    ]
    total = [Tally(), Tally()]
    for name in [*OPERATORS, *HARD]:
        if name in HARD:
            cases = hard_cases(name, range(SEEDS))
        else:
            cases = [case for seed in range(SEEDS) for case in SUITE.cases([name], seed=seed)]
        tallies = measure(cases)
        lines.append(row(name, tallies))
        for whole, part in zip(total, tallies, strict=True):
            whole.elements += part.elements
            whole.missed += part.missed
            whole.unknown += part.unknown
            whole.sharpness += part.sharpness
    return "\n".join([*lines, row("**all**", total)]) + "\n"


def row(name, tallies):
    cells = [name, f"{tallies[0].elements:,}"]
    for t in tallies:
        cells += [f"{t.missed:,}", f"{t.unknown:,}", f"{t.coverage:.5f}", f"{t.median:.0e}"]
    return f"| {' | '.join(cells)} |"


def test_the_committed_report_is_complete_and_good():
    text = REPORT.read_text(encoding="utf-8")
    rows = re.findall(r"^\| ([^|]+?) +\| ([\d,]+) \|.*$", text, re.MULTILINE)
    assert [name for name, _ in rows] == [*OPERATORS, *HARD, "**all**"]
    for found in re.findall(r"\| (\d\.\d{5}) \|", text):
        assert float(found) >= 0.999
    assert len(re.findall(r"\| (\d\.\d{5}) \|", text)) == 2 * len(rows)


if __name__ == "__main__":
    sys.stdout.write(table())
