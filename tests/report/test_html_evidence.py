import re
from pathlib import Path

import pytest

from gradcheck.report import html_evidence, html_matrix
from gradcheck.report.html import render
from gradcheck.results.finding import Heat
from gradcheck.results.verdict import Verdict

FAIL = Verdict.FAIL
HEAT = Heat(shape=(2, 3), rows=2, columns=3, cells="..3!.0", cotangent="normal")


def pictures(make, run):
    _, *chunks = make.unpacked(render(run))
    return [more["pictures"] for chunk in chunks for more in chunk["more"].values()
            if "pictures" in more]  # fmt: skip


def tags(tree):
    if isinstance(tree, str):
        return []
    return [tree[0], *(tag for child in tree[2:] for tag in tags(child))]


@pytest.mark.parametrize(
    ("text", "trees"),
    [
        ("", []),
        ("a &lt;b&gt; &amp;", ["a <b> &"]),
        ("<p>\n</p>", [["p", {}]]),
        ('<svg viewBox="0 0 1 1"><path d="M0 0"/></svg>',
         [["svg", {"viewBox": "0 0 1 1"}, ["path", {"d": "M0 0"}]]]),
        ("<ul><li>a<li>b</ul>c", [["ul", {}, ["li", {}, "a"], ["li", {}, "b"]], "c"]),
        ("<ul><li>a</li><li><i>b</i></ul>",
         [["ul", {}, ["li", {}, "a"], ["li", {}, ["i", {}, "b"]]]]),
    ],
)  # fmt: skip
def test_markup_as_trees(text, trees):
    assert html_evidence.trees(text) == trees


def test_a_failure_is_drawn_at_the_top_and_where_its_cell_unfolds(make):
    run = make.run(make.result(verdict=FAIL, heat=HEAT, taylor=make.curve(1e-3)))
    text = render(run)
    assert text.count('<figure class="evidence heat">') == 1
    (found,) = pictures(make, run)
    assert [tree[1]["class"] for tree in found] == ["evidence heat", "evidence remainder"]
    assert tags(found[0])[:2] == ["figure", "svg"]


def test_of_a_cell_the_worst_is_drawn(make):
    worse = make.result(verdict=FAIL, sample="worse", heat=HEAT, worst=(make.miss(error=1e9),))
    run = make.run(make.result(verdict=FAIL, heat=HEAT), worse,
                   make.result(verdict=FAIL, dtype="float32", heat=HEAT))  # fmt: skip
    drawn = html_evidence.drawn(html_matrix.matrices(run))
    assert [(r.case.sample, r.case.dtype) for r in drawn] == [
        ("worse", "float64"),
        ("typical", "float32"),
    ]


def test_failures_are_drawn_before_passes_and_no_more_than_a_page_can_hold(make, monkeypatch):
    monkeypatch.setattr(html_evidence, "MOST", 3)
    found = [make.result(f"op{i}", verdict=FAIL if i > 2 else Verdict.PASS, heat=HEAT)
             for i in range(5)]  # fmt: skip
    drawn = html_evidence.drawn(html_matrix.matrices(make.run(*found)))
    assert [r.case.op for r in drawn] == ["op3", "op4", "op0"]


def test_what_has_no_evidence_is_not_drawn(make):
    run = make.run(make.result(verdict=FAIL), make.result("exp"))
    assert pictures(make, run) == []
    assert "<svg" not in render(run)


def test_pictures_at_the_top_are_cut_to_a_sensible_number(make):
    found = [make.result(f"op{i}", verdict=FAIL, heat=HEAT) for i in range(15)]
    assert render(make.run(*found)).count('<figure class="evidence heat">') == 12


def test_every_element_and_attribute_of_a_picture_can_be_built(make):
    script = Path(html_evidence.__file__).with_name("templates") / "pictures.js"
    text = script.read_text("utf-8")
    names = set(re.findall(r'"([a-z]+)"', text.partition("const DESCRIBES")[0]))
    attributes = re.search(r"DESCRIBES = /(.*)/;", text)[1]
    run = make.run(make.result(verdict=FAIL, heat=HEAT, taylor=make.curve(1e-3)))

    def walk(tree):
        if isinstance(tree, str):
            return
        assert tree[0] in names
        assert all(re.search(attributes, key) for key in tree[1]), tree[1]
        for child in tree[2:]:
            walk(child)

    for tree in pictures(make, run)[0]:
        walk(tree)
