"""Right models pass at every seed, and their Taylor curves find no error.

The soak writes what it saw to reports/model-false-alarms.md.
"""

import importlib.util
from collections import Counter
from pathlib import Path

import pytest
from gradcheck_cases import SUITE
from tabulate import tabulate

from gradcheck.errors import GradcheckError
from gradcheck.implementations.load import load
from gradcheck.judge.model import CERTIFICATE, judge_model
from gradcheck.judge.model_truth import ModelTruth
from gradcheck.results.finding import Part
from gradcheck.spec.dtype_selection import DTYPES

REPORT = Path(__file__).parents[2] / "reports" / "model-false-alarms.md"
SMALL, LARGE = "small", "large"
SEEDS = {("reference", SMALL): 50, ("reference", LARGE): 5}
if importlib.util.find_spec("torch") is not None:
    SEEDS |= {("torch", SMALL): 10, ("torch", LARGE): 1}
CHUNK = 5
CHUNKS = [(*k, first) for k, count in SEEDS.items() for first in range(0, count, CHUNK)]
PARTS = ["-".join(map(str, chunk)) for chunk in CHUNKS]
COLUMNS = ("gradients", "stages", "numbers", "alarms", "unresolved", "curves", "outside")
SHOWN = 50


def cases_of(size, seed):
    """The models at their large size, or at every other one."""
    return [c for c in SUITE.model_cases(seed=seed) if (c.size.name == LARGE) == (size == LARGE)]


def dtypes_of(word, size):
    """50 digits certify the reference where they are affordable."""
    return (CERTIFICATE, *DTYPES) if (word, size) == ("reference", SMALL) else DTYPES


def judged(word, size, cases):
    """Counts per dtype over the cases, and the alarms, one line each."""
    binding = load(word, SUITE)
    counts = {dtype: Counter() for dtype in dtypes_of(word, size)}
    alarms = []
    for case in cases:
        where = f"{word}, seed {case.seed}: {case.name}"
        try:
            truth = ModelTruth(case)
        except GradcheckError as error:
            alarms += [f"{where}/{dtype}: {error}" for dtype in counts]
            continue
        for dtype, count in counts.items():
            curves = dtype == "float64" and size == SMALL
            for finding in judge_model(truth, binding, dtype, taylor=curves).findings:
                add(count, finding, f"{where}/{dtype}:{finding.name}", alarms)
    for dtype, count in counts.items():
        count["alarms"] = sum(f"/{dtype}:" in alarm for alarm in alarms)
    return {"counts": counts, "alarms": alarms}


def add(count, finding, where, alarms):
    """Count one finding; anything but a pass, and a curve that finds an error, is an alarm."""
    count["gradients"] += finding.part is Part.GRADIENT and finding.verdict.checked
    count["stages"] += finding.part is Part.STAGE and finding.verdict.checked
    count["numbers"] += finding.compared
    count["unresolved"] += finding.unresolved
    if not (finding.verdict.expected and finding.verdict.checked):
        alarms.append(f"{where}: {finding.verdict}: {finding.reason}")
    if finding.taylor is not None:
        right = abs(finding.taylor.intercept) <= finding.taylor.error_bar
        count["curves"] += 1
        count["outside"] += not right


@pytest.mark.suite(rest=0)
def test_every_model_and_dialect_passes_at_another_seed():
    cases = [c for c in cases_of(SMALL, 1) if c.size.name == "uneven"]
    assert {(c.spec.name, c.dialect.name) for c in cases} == {
        (model.name, dialect.name) for model in SUITE.models.values() for dialect in model.dialects
    }
    found = judged("reference", SMALL, cases)
    assert found["alarms"] == []
    for count in found["counts"].values():
        assert count["gradients"] >= len(cases)
        assert count["stages"] >= len(cases)
    assert found["counts"]["float64"]["curves"] > len(cases)
    assert found["counts"]["float64"]["outside"] == 0


@pytest.mark.soak
@pytest.mark.parametrize(("word", "size", "first"), CHUNKS)
def test_no_model_fails_at_any_seed(word, size, first, gather):
    seeds = range(first, min(first + CHUNK, SEEDS[word, size]))
    found = judged(word, size, [case for seed in seeds for case in cases_of(size, seed)])
    whole = gather("models", f"{word}-{size}-{first}", PARTS, found)
    if whole is not None:
        REPORT.write_text(report(whole))
    assert found["alarms"] == []


def report(chunks):
    """The figures as Markdown, the same on every machine that computes the same."""
    rows, alarms = [], [alarm for part in chunks for alarm in part["alarms"]]
    for (word, size), count in SEEDS.items():
        parts = [p for (*k, _), p in zip(CHUNKS, chunks, strict=True) if k == [word, size]]
        for dtype in dtypes_of(word, size):
            total = sum((Counter(part["counts"][dtype]) for part in parts), Counter())
            rows.append([word, size, count, dtype, *(f"{total[name]:,}" for name in COLUMNS)])
    heads = ["implementation", "sizes", "seeds", "dtype", "gradients judged", "stages judged",
             "numbers compared", "false alarms", "unresolved numbers", "Taylor curves",
             "outside their bar"]  # fmt: skip
    small, large = (len(cases_of(size, 0)) for size in (SMALL, LARGE))
    lines = [
        "# False alarms of models",
        "",
        f"Every model of the suite {SUITE.name} {SUITE.version} ({len(SUITE.models)} models, "
        f"{small} small cases and {large} large ones), at every seed from 0 on: anything but PASS "
        "is an alarm. A Taylor curve is outside where it finds an error larger than its bar. Made "
        "by `tox -e soak`.",
        "",
        tabulate(rows, heads, tablefmt="github", disable_numparse=True,
                 colalign=("left", "left", "right", "left", *("right",) * len(COLUMNS))),
    ]  # fmt: skip
    if alarms:
        lines += ["", f"The first {min(SHOWN, len(alarms))} alarms of {len(alarms)}:", ""]
        lines += [f"- {alarm}" for alarm in alarms[:SHOWN]]
    return "\n".join([*lines, ""])
