"""Right code passes at every seed. The soak writes what it saw to reports/false-alarms.md."""

import importlib.util
from collections import Counter
from pathlib import Path

import pytest
from gradcheck_cases import SUITE
from tabulate import tabulate

from gradcheck.errors import GradcheckError
from gradcheck.implementations.load import load
from gradcheck.judge.operator import CaseTruth, judge_case
from gradcheck.spec.dtype_selection import DTYPES

REPORT = Path(__file__).parents[2] / "reports" / "false-alarms.md"
SEEDS = {"reference": 200}
if importlib.util.find_spec("torch") is not None:
    SEEDS["torch"] = 20
CHUNK = 10
CHUNKS = [(word, first) for word, count in SEEDS.items() for first in range(0, count, CHUNK)]
SHOWN = 50


def judged(word, seeds):
    """Counts per dtype over every case of the suite, and the alarms, one line each."""
    binding = load(word, SUITE)
    counts = {dtype: Counter() for dtype in DTYPES}
    alarms = []
    for seed in seeds:
        for case in SUITE.cases(seed=seed):
            try:
                truth = CaseTruth(case)
            except GradcheckError as error:
                alarms.append(f"{word}, seed {seed}: {case.name}: {error}")
                continue
            for dtype in DTYPES:
                for finding in judge_case(truth, binding, dtype):
                    count = counts[dtype]
                    count["gradients"] += finding.name != "forward" and finding.verdict.checked
                    count["numbers"] += finding.compared
                    count["unresolved"] += finding.unresolved
                    count["left out"] += not finding.verdict.checked
                    if not finding.verdict.expected:
                        count["alarms"] += 1
                        where = f"{case.name}/{dtype}:{finding.name}"
                        alarms.append(
                            f"{word}, seed {seed}: {where}: {finding.verdict}: {finding.reason}"
                        )
    return {"counts": counts, "alarms": alarms}


@pytest.mark.suite
@pytest.mark.soak  # in each run `gradcheck run` judges all of them at seed 0
def test_the_reference_raises_no_alarm_at_another_seed():
    found = judged("reference", [1])
    assert found["alarms"] == []
    for dtype in DTYPES:
        assert found["counts"][dtype]["gradients"] >= len(SUITE.cases())
        assert found["counts"][dtype]["left out"] == 0


@pytest.mark.soak
@pytest.mark.parametrize(("word", "first"), CHUNKS)
def test_no_alarm_at_any_seed(word, first, gather):
    found = judged(word, range(first, first + CHUNK))
    parts = [f"{word}-{first}" for word, first in CHUNKS]
    whole = gather("false-alarms", f"{word}-{first}", parts, found)
    if whole is not None:
        REPORT.write_text(report(whole))
    assert found["alarms"] == []


def report(chunks):
    """The figures as Markdown, the same on every machine that computes the same."""
    rows, alarms = [], []
    for word, count in SEEDS.items():
        parts = [part for (w, _), part in zip(CHUNKS, chunks, strict=True) if w == word]
        alarms += [alarm for part in parts for alarm in part["alarms"]]
        for dtype in DTYPES:
            total = sum((Counter(part["counts"][dtype]) for part in parts), Counter())
            columns = ("gradients", "numbers", "alarms", "unresolved", "left out")
            rows.append([word, count, dtype, *(f"{total[name]:,}" for name in columns)])
    heads = ["implementation", "seeds", "dtype", "gradients judged", "numbers compared",
             "false alarms", "unresolved numbers", "left out"]  # fmt: skip
    lines = [
        "# False alarms",
        "",
        f"Every case of the suite {SUITE.name} {SUITE.version} ({len(SUITE)} operators, "
        f"{len(SUITE.cases())} cases), at every seed from 0 on: anything but PASS is an alarm. "
        "Made by `tox -e soak`; values of forward are judged and compared too.",
        "",
        tabulate(rows, heads, tablefmt="github", disable_numparse=True,
                 colalign=("left", "right", "left", *("right",) * 5)),
    ]  # fmt: skip
    if alarms:
        lines += ["", f"The first {min(SHOWN, len(alarms))} alarms of {len(alarms)}:", ""]
        lines += [f"- {alarm}" for alarm in alarms[:SHOWN]]
    return "\n".join([*lines, ""])
