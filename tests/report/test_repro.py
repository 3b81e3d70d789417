"""The text of one case: whole at any width, and inert whatever the code has said."""

import re
from dataclasses import replace

import numpy as np
import pytest

from gradcheck.explain.shrink import Shrunk
from gradcheck.report.repro import Shown, render
from gradcheck.results.finding import Finding
from gradcheck.results.verdict import Verdict
from gradcheck.run.execute import execute
from gradcheck.run.plan import Plan
from tests.case_results import changed

COLOR = re.compile("\x1b\\[[0-9]*m")


@pytest.fixture(scope="module")
def shown(suite):
    """A failure of the README's, without the search for a smaller input."""
    (case,) = suite.cases(["rms_norm"], ["weight"], ["typical"])
    plan = Plan(suite=suite, cases=[case], implementations=["examples.kernels:IMPL"],
                dtypes=["float64"], seed=0, contract=False)  # fmt: skip
    return Shown(run=execute(plan), case=case, dtype="float64", smallest={})


def with_(shown, **changes):
    """The same, its first result changed."""
    first, *rest = shown.run.results
    results = (changed(first, **changes), *rest)
    return replace(shown, run=replace(shown.run, results=results))


@pytest.mark.slow(keep=1)
@pytest.mark.parametrize("width", [60, 72, 80, 100, 200])
def test_no_line_is_wider_than_the_page(shown, width):
    *lines, blank, last = render(shown, width=width).split("\n")[:-1]
    assert blank == ""
    assert last == shown.run.summary
    assert max(map(len, lines)) <= width
    text = "\n".join(lines)
    assert all(f"  dx{list(miss.index)} " in text for miss in shown.run.results[0].finding.worst)


def test_a_narrow_table_gives_up_its_last_columns(shown):
    heads = [line.split() for line in render(shown, width=60).splitlines() if "element " in line]
    full = [line.split() for line in render(shown, width=120).splitlines() if "element " in line]
    assert full[0][-1] == "cotangent"
    assert heads[0] == full[0][: len(heads[0])]
    assert heads[0][:3] == ["element", "got", "want"]


def test_colour_changes_no_text(shown):
    plain, coloured = render(shown, width=100), render(shown, width=100, color=True)
    assert coloured != plain
    assert COLOR.sub("", coloured) == plain


def test_a_large_primal_is_counted_and_not_printed(shown, suite):
    (case,) = suite.cases(["softmax"], samples=["wide"])
    text = render(replace(shown, case=case))
    (primal,) = case.primals
    assert f"  x[{', '.join(map(str, primal.shape))}]: {primal.size:,} elements\n" in text


def test_foreign_text_is_inert(shown):
    hostile = with_(shown, reason="\x1b[31mred\nPASS dx", printed="one\n\x1b[2Jtwo\nRESULT pass")
    lines = render(hostile).splitlines()
    assert not any("\x1b" in line for line in lines)
    assert sum(line.startswith(("PASS", "RESULT")) for line in lines) == 2  # dw, and the last


@pytest.fixture
def small(shown):
    """A smaller input that shows the failure."""
    case = replace(shown.case, sample=replace(
        shown.case.sample, name="typical.shrunk", primals=lambda _: (np.ones(2), np.ones(2))
    ))  # fmt: skip
    return Shrunk(case=case, cotangent=(np.array([1.0, 0.0]),), output="x", dtype="float64",
                  finding=Finding(name="x", verdict=Verdict.FAIL), got=np.array([np.nan, -0.5]),
                  want=np.array([0.25, 1 / 3]), bar=np.array([1e-17, 2.5e-17]))  # fmt: skip


def test_the_smallest_input_is_printed_with_what_it_gives(shown, small):
    word = shown.run.results[0].case.implementation
    text = render(replace(shown, smallest={(word, "x"): small}))
    assert "\n  smallest input that shows it: 4 elements\n    attributes: eps = 1e-05" in text
    assert "\n    x[2] = [1, 1]\n    w[2] = [1, 1]\n    cotangent[2] = [1, 0]\n" in text
    assert "\n    got[2] = [nan, -0.5]\n    want[2] = [0.25, 0.3333333] ± 2.5e-17\n" in text
    assert text.index("smallest input") < text.index("PASS dw")


def test_an_input_that_is_no_smaller_is_not_printed_twice(shown, small):
    word = shown.run.results[0].case.implementation
    same = replace(small, case=shown.case)
    text = render(replace(shown, smallest={(word, "x"): same}))
    assert "\n  no smaller input that shows it was found\n" in text
    assert "smallest input" not in text
