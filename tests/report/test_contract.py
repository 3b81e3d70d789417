import json
import re
import xml.etree.ElementTree as ET

import pytest

from gradcheck.report import render
from gradcheck.results.finding import Part
from gradcheck.results.verdict import Verdict

SEEN = "A cotangent of zeros gives gradients of zeros. Here dx[0, 0] is nan"


@pytest.fixture
def kept(make):
    """A run whose contract holds but for one property, and lacks two."""

    def prop(name, verdict=Verdict.PASS, dtype="float64", **changes):
        return make.result(
            output=name, verdict=verdict, part=Part.CONTRACT, dtype=dtype, implementation="mine",
            compared=0, failed=0, worst=(), **changes,
        )  # fmt: skip

    def of(*extra):
        return make.run(
            *(make.result(dtype=d, implementation="mine") for d in ("float64", "float32")),
            *(prop("linear", dtype=d) for d in ("float64", "float32")),
            prop("zero"),
            prop("bounds", Verdict.SKIP, reason="there is no `vjp_into`"),
            prop("written", Verdict.SKIP, reason="there is no `vjp_into`"),
            prop("subsets", Verdict.SKIP, reason="vjp does not take `needs`"),
            *extra,
            implementations=("mine",),
        )

    of.prop = prop
    return of


def test_one_row_counts_what_holds_of_what_could_be_asked(kept):
    text = render(kept(), "terminal", width=120)
    (row,) = (line for line in text.splitlines() if "side conditions" in line and "PASS" in line)
    assert row.split()[:6] == ["side", "conditions", "PASS", "2/2", "PASS", "1/1"]
    assert "linear" not in text
    assert "RESULT pass" in text


def test_what_cannot_be_asked_is_one_line(kept):
    text = " ".join(render(kept(), "terminal", width=120).split())
    assert (
        "SKIP 3 results of rms_norm: side conditions that do not apply: there is no `vjp_into` "
        "(bounds, written); vjp does not take `needs` (subsets)"
    ) in text


def test_of_many_operators_a_few_are_named(make):
    results = [
        make.result(f"op_{i}", "bounds", Verdict.SKIP, part=Part.CONTRACT, reason="there is none")
        for i in range(20)
    ]
    text = " ".join(render(make.run(make.result(), *results), "terminal", width=120).split())
    assert (
        "SKIP 20 results of op_0, op_1, op_2, op_3, op_4, op_5, op_6, op_7, … and 12 more:" in text
    )


def test_what_is_broken_is_shown_below_with_what_is_owed(kept):
    bad = [kept.prop("zero", Verdict.FAIL, "float32", reason=SEEN)]
    text = render(kept(*bad), "terminal", width=120)
    row = next(line for line in text.splitlines() if "FAIL 1/2" in line)
    assert row.split()[:6] == ["side", "conditions", "PASS", "2/2", "FAIL", "1/2"]
    assert f"FAIL rms_norm/weight · side condition zero\n  {SEEN}\n  1 of 2 cases fails\n" in text
    assert "do not apply" not in text  # a failing run says what is wrong alone
    assert "RESULT fail" in text
    whole = render(kept(*bad), "terminal", width=120, verbosity=1)
    assert f"FAIL rms_norm/weight/typical/float32 · side condition zero: {SEEN}"[:100] in whole
    assert "do not apply" in whole


def test_each_dtype_that_breaks_it_is_counted_and_one_is_shown(kept):
    bad = [kept.prop("owned", Verdict.FAIL, d, reason="Mine.") for d in ("float64", "float32")]
    text = render(kept(*bad), "terminal", width=120)
    assert (
        text.count("FAIL rms_norm/weight · side condition owned\n  Mine\n  2 of 2 cases fail") == 1
    )
    whole = render(kept(*bad), "terminal", width=120, verbosity=1)
    told = re.findall(
        r"^FAIL rms_norm/weight/typical/(\w+) · side condition owned: Mine\.", whole, re.M
    )
    assert sorted(told) == ["float32", "float64"]


def test_markdown_counts_too(kept):
    text = render(kept(kept.prop("zero", Verdict.FAIL, "float32", reason=SEEN)), "markdown")
    assert "| `side conditions` | PASS 2/2 | **FAIL** 1/2 | 1 | 0 |" in text
    assert "<summary><b>FAIL</b> rms_norm/weight · side condition zero: A cotan" in text


def test_html_counts_and_names_each(kept, make):
    text = render(kept(kept.prop("zero", Verdict.FAIL, "float32", reason=SEEN)), "html")
    _, packed = make.unpacked(text)
    assert "2/2" in text
    assert "1/2" in text
    assert "side condition linear" in packed["texts"]
    assert "side condition zero" in text


def test_json_and_junit_have_a_result_per_property(kept):
    run = kept(kept.prop("zero", Verdict.ERROR, "float32", reason=SEEN))
    results = [r for r in json.loads(render(run, "json"))["results"] if r["part"] == "contract"]
    assert [r["output"] for r in results].count("zero") == 2
    assert len(results) == 7
    root = ET.fromstring(render(run, "junit"))
    names = [case.get("name") for case in root.iter("testcase")]
    assert "rms_norm/weight/typical/float64/contract: linear" in names
    assert len(list(root.iter("error"))) == 1
    assert len(list(root.iter("skipped"))) == 3


def test_several_implementations_have_a_row_each(make):
    results = [
        make.result(output="linear", part=Part.CONTRACT, implementation=who, worst=(), compared=0,
                    verdict=verdict)
        for who, verdict in (("one", Verdict.PASS), ("two", Verdict.FAIL))
    ]  # fmt: skip
    text = render(make.run(*results, implementations=("one", "two")), "terminal", width=120)
    rows = [line.split() for line in text.splitlines() if "side cond" in line and "/1" in line]
    assert [row[-4:-2] for row in rows] == [["PASS", "1/1"], ["FAIL", "0/1"]]
