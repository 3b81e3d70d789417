import base64
import hashlib
import re
from html import unescape
from html.parser import HTMLParser
from importlib import resources

import pytest

from gradcheck.report import html, html_matrix
from gradcheck.report.causes import causes
from gradcheck.report.html import render
from gradcheck.results import words
from gradcheck.results.case_result import Kind
from gradcheck.results.finding import Part
from gradcheck.results.verdict import Verdict
from tests.case_results import changed

FAIL = Verdict.FAIL
VOID = {"meta", "input", "br", "col"}
IMPLIED = {"tr", "td", "th", "thead", "tbody"}  # HTML closes these by itself
TEMPLATES = resources.files("gradcheck.report").joinpath("templates")


class Page(HTMLParser):
    """The tags, attributes and texts of a page; complains about what does not nest."""

    def __init__(self, text):
        super().__init__()
        self.tags, self.attributes, self.texts, self.open = [], [], [], []
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes += [(tag, name, value) for name, value in attrs]
        if tag not in VOID | IMPLIED:
            self.open.append(tag)

    def handle_endtag(self, tag):
        if tag not in IMPLIED:
            assert self.open.pop() == tag

    def handle_data(self, data):
        if not self.open or self.open[-1] not in ("script", "style", "template"):
            self.texts.append(data)

    @property
    def text(self):
        return " ".join(" ".join(self.texts).split())


def rows(text):
    """The lines of the page's tables, each as the texts of its cells."""
    body = unescape(text[text.index('class="matrix') :])
    lines = re.findall(r"<tr[^>]*>(<th scope=\"row\">.*?)\n(?=<|$)", body, re.DOTALL)
    return [
        [" ".join(re.sub("<[^>]*>", " ", part).split()) for part in re.split("<t[hd][^>]*>", line)]
        for line in lines
    ]


@pytest.mark.slow(keep=2)
def test_every_run_nests(any_run):
    page = Page(render(any_run))
    assert page.tags.count("h1") == 1
    assert any_run.summary in page.text


@pytest.mark.slow(keep=2)
def test_the_same_run_has_the_same_bytes(any_run):
    assert render(any_run) == render(any_run)


def test_hostile_text_stays_text(hostile, make):
    text = render(hostile)
    page = Page(text)
    assert page.tags.count("script") == 1
    assert "img" not in page.tags
    assert not [name for _, name, _ in page.attributes if name.startswith("on")]
    assert "alert(1)" in page.text
    assert words.clean(make.hostile) in page.text
    assert "\x1b" not in text
    assert "<script>alert" not in text


def test_attributes_hold_hostile_text_whole(make):
    dtype = '"><img src=x onerror=alert(1)>'
    run = make.run(make.result(dtype="float64"), dtypes=("float64", dtype))
    results = (*run.results, make.result(dtype="float32"))
    evil = tuple(changed(r, dtype=dtype) for r in results)
    page = Page(render(run.__class__(header=run.header, results=evil)))
    assert ("th", "data-sort", dtype) in page.attributes
    assert "img" not in page.tags


def test_only_our_script_may_run_and_nothing_is_loaded(failing):
    text = render(failing)
    script = re.search("<script>(.*?)</script>", text, re.DOTALL)[1]
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    (policy,) = re.findall('http-equiv="Content-Security-Policy" content="([^"]*)"', text)
    assert policy == (
        f"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{digest}'; "
        "base-uri 'none'; form-action 'none'"
    )
    page = Page(text)
    assert not {"link", "img", "iframe", "object", "form"} & set(page.tags)
    links = [value for _, name, value in page.attributes if name in ("src", "href")]
    assert all(link.startswith("#") for link in links)
    shown = text.replace("http://www.w3.org/", "")  # names of vocabularies, never fetched
    assert not re.search(r"https?://\w|url\(|@import|\bfetch\b|XMLHttpRequest|\bimport\(", shown)


@pytest.mark.parametrize("name", html.SCRIPTS)
def test_the_script_writes_no_markup(name):
    text = TEMPLATES.joinpath(name).read_text()
    assert not re.search(r"innerHTML|outerHTML|insertAdjacent|document\.write|\beval\b", text)


def test_what_fails_is_on_the_page_without_javascript(failing):
    page = Page(render(failing))
    hidden = [tag for tag, name, _ in page.attributes if name == "hidden"]
    assert hidden == ["div", "div", "p"]  # buttons and filter, which are of no use without
    for result in failing.results:
        if result.finding.verdict is not Verdict.PASS:
            assert result.repro in page.text or not result.finding.verdict.checked
            assert result.case.sample in page.text or not result.finding.verdict.checked
            assert result.finding.reason in page.text


def test_the_top_tells_verdict_counts_and_facts(failing):
    text = Page(render(failing)).text
    head = text[: text.index("Failures: ")]
    assert "11 of 23 checks failed" in head
    for fact in ("12 pass", "4 fail", "1 crash", "2 unsupported", "0.1.0", "builtin 2026.11"):
        assert fact in head
    assert '<header class="failed">' in render(failing)
    assert "<title>FAILED: " in render(failing)


def test_a_passing_run_looks_like_one(passing):
    text = render(passing)
    assert "<header>" in text
    assert "<title>passed: all 12 checks passed · gradcheck</title>" in text
    assert "Failures" not in Page(text).text
    assert "No failures." in Page(text).text


@pytest.mark.parametrize("changes", [{"complete": False}, {"troubles": ("mine: gone",)}])
def test_a_run_that_is_not_whole_does_not_look_passed(make, changes):
    run = make.run(make.result(), **changes)
    text = render(run)
    assert '<header class="failed">' in text
    assert "Problems" in text
    assert ("mine: gone" in text) == bool(run.troubles)


def test_only_a_run_that_passed_says_that_nothing_fails(make, known):
    assert "<b>No failures.</b>" in render(make.run(make.result()))
    assert "<b>No failures among the checked results.</b>" in render(
        make.run(make.result(), troubles=("mine: gone",))
    )
    assert "<b>No failures but known ones.</b>" in render(known)


def test_why_a_run_stopped_is_said(make):
    run = make.run(make.result(), complete=False, stopped="-x: <one> failure")
    assert "Incomplete: -x: &lt;one&gt; failure. Cases that were not reached are missing" in render(
        run
    )


def test_nothing_checked_does_not_look_passed(empty):
    text = render(empty)
    assert '<header class="failed">' in text
    assert "Nothing was checked" in text
    assert "Nothing was checked" in text
    assert "No failures" not in text


def test_failures_are_expanded(failing):
    page = Page(render(failing))
    opened = [tag for tag, name, _ in page.attributes if name == "open"]
    assert len(opened) == len(causes(failing)) == 6
    assert page.tags.count("details") == 2 * 6  # each with its evidence


def test_a_row_has_a_cell_per_dtype_with_its_worst_error(make):
    run = make.run(make.result(), make.result(verdict=FAIL, sample="offset"),
                   make.result(dtype="float32"))  # fmt: skip
    assert rows(render(run)) == [
        ["", "rms_norm", "weight", "dx", "FAIL 4.5e-04 > 1.0e-08", "PASS 2.4e-07 ≤ 7.6e-06", "2",
         "72"],
    ]  # fmt: skip


def test_headings_say_what_rows_and_columns_are(several):
    text = render(several)
    heads = [value for tag, name, value in Page(text).attributes if (tag, name) == ("th", "scope")]
    assert text.count("<th") == len(heads) + text.count("<thead>")
    assert set(heads) == {"col", "colgroup", "row"}
    assert Page(text).tags.count("caption") == Page(text).tags.count("table")


def test_long_lists_are_cut_and_counted(make):
    found = [
        make.result(f"op{i}", verdict=FAIL, sample=f"s{j}") for i in range(65) for j in range(5)
    ]
    text = render(make.run(*found))
    top, table = text.split('id="table"')
    assert top.count(" open>\n<summary>") == html.OPEN
    assert top.count("… and 2 more, in the table below") == html.CAUSES
    assert "… and 5 more causes, in the table below" in top
    assert len(rows(table)) == 65


def test_implementations_stand_side_by_side(several, make):
    text = render(several)
    found = rows(text)
    assert [row[1:4] for row in found] == [
        ["rms_norm", "weight", "dx"],
        ["rms_norm", "weight", "dweight"],
        ["softmax", "weight", "dx"],
    ]
    assert [part.split()[0] for part in found[0][4:8]] == ["PASS"] * 4
    *same, softmax = found
    assert not any("differs" in part for row in same for part in row)
    marked = [(part.split()[0], "differs" in part) for part in softmax[4:8]]
    assert marked == [("PASS", False), ("FAIL", True), ("PASS", False), ("PASS", False)]
    assert re.findall(r"data-result>([^<\n]*)", text) == ["reference", "mine"] * 2
    assert "they differ in 1 row" in text
    assert "mine · softmax" in Page(text).text


def test_what_was_not_checked_differs_from_nobody(make):
    results = [make.result(implementation="one"),
               make.result(verdict=Verdict.UNSUPPORTED, implementation="two")]  # fmt: skip
    text = render(make.run(*results, implementations=("one", "two")))
    (row,) = rows(text)
    assert "UNSUPPORTED" in row[5]
    assert not any("differs" in part for part in row)


def test_who_has_no_results_is_named_too(make):
    text = Page(render(make.run(make.result(), implementations=("reference", "lost")))).text
    assert "reference 1 PASS lost no result" in text


@pytest.mark.parametrize(
    ("error", "steps"),
    [
        (0.0, 1),
        (1e-300, 1),
        (1e-6, 1),
        (1.0, 12),
        (1e3, 18),
        (1e300, 18),
        (float("inf"), 18),
    ],
)
def test_a_bar_ends_where_its_error_is(error, steps):
    assert html_matrix.bar(error) == steps


def test_the_tick_of_a_bar_is_the_bound():
    low, high = html_matrix.DECADES
    css = TEMPLATES.joinpath("tables.css").read_text()
    share = 100 * -low / (high - low)
    assert f") {share:.1f}% 0 / 1px 100% no-repeat" in css
    lengths = re.findall(r"\.w(\d+) \{ --long: ([\d.]+)% \}", css)
    assert [int(step) for step, _ in lengths] == [*range(1, html_matrix.STEPS + 1)]
    assert all(
        float(long) == pytest.approx(100 * int(step) / html_matrix.STEPS, abs=0.05)
        for step, long in lengths
    )


def test_what_was_not_compared_has_no_bar(make):
    for result in (make.result(verdict=Verdict.CRASH),
                   make.result(verdict=Verdict.SKIP, worst=(make.miss(),))):  # fmt: skip
        assert '<i class="w' not in render(make.run(result))
    assert '<i class="w' in render(make.run(make.result()))


def many(make, ops):
    return [
        make.result(f"operator_{i}", output, sample=f"sample-{j}", dtype=dtype,
                    worst=(make.miss(got=1.5 + i / 7 + j / 77, want=1.5 + i / 7, bound=2.0),))
        for i in range(ops)
        for output in ("x", "weight", "bias")
        for j in range(10)
        for dtype in ("float64", "float32")
    ]  # fmt: skip


@pytest.mark.slow
def test_fourteen_thousand_results_stay_well_under_a_megabyte(make):
    found = many(make, 233)
    assert len(found) == 13_980
    assert len(render(make.run(*found)).encode()) < 800_000


def luminance(colour):
    parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(one, other):
    dark, light = sorted((luminance(one), luminance(other)))
    return (light + 0.05) / (dark + 0.05)


def test_contrast_is_accessible_in_light_and_dark():
    css = TEMPLATES.joinpath("page.css").read_text()
    found = re.findall(r"--([\w-]+): light-dark\((#\w{6}), (#\w{6})\)", css)
    assert len(found) == css.count("light-dark(") == 20
    assert contrast("#000000", "#ffffff") == pytest.approx(21)
    for scheme in ({n: one for n, one, _ in found}, {n: other for n, _, other in found}):
        for tone in ("good", "bad", "warn", "calm", "accent"):
            assert contrast(scheme[tone], scheme[f"{tone}-back"]) >= 4.5, tone
        for back in ("page", "card", "accent-back"):
            assert contrast(scheme["ink"], scheme[back]) >= 7
            assert contrast(scheme["soft"], scheme[back]) >= 4.5
            for tone in ("good", "bad", "warn", "calm", "accent"):
                assert contrast(scheme[tone], scheme[back]) >= 4.5, tone
        for tone in ("good", "bad", "warn"):
            assert contrast(scheme[f"{tone}-bar"], scheme["card"]) >= 2.5, tone


def opened(text):
    return re.findall(r'<details class="card model"( open)?', text)


def test_a_model_is_a_part_of_its_own_with_its_gradients_and_stages(model):
    text = render(model)
    found = Page(text).text
    assert opened(text) == [" open"]
    part = found[found.index("Models gpt2") :]
    for row in ("gpt2 default 3/3 gradients, 2/2 stages", "dwte", "embed", "3 gradients",
                "2 stages, each at the reference's values", "worst ± uncertainty"):  # fmt: skip
        assert row in part
    assert "gpt2" not in found[found.index("all operators") : found.index("Models gpt2")]


def test_models_of_several_implementations_stand_side_by_side(make):
    found = [make.of_model("wte", implementation="one"),
             make.of_model("wte", FAIL, implementation="two"),
             make.of_model("ln_f", part=Part.STAGE, implementation="two")]  # fmt: skip
    text = render(make.run(*found, implementations=("one", "two")))
    gradient, stage = rows(text[text.index('class="card model"') :])
    assert [part.split()[0] for part in gradient[1:4]] == ["dwte", "PASS", "FAIL"]
    assert ["differs" in part for part in gradient[2:4]] == [False, True]
    assert [part.split()[0] for part in stage[1:4]] == ["ln_f", "–", "PASS"]
    assert "one: 1/1 gradients; two: 0/1 gradients, 1/1 stages" in text


def test_of_several_models_those_that_fail_are_unfolded(faulty):
    assert opened(render(faulty)) == [" open", ""]


def test_faulty_stages_stand_behind_the_failures_with_all_stages_in_a_row(faulty):
    text = render(faulty)
    found = Page(text).text
    failures, start = found.index("Failures: "), found.index("Faulty stages")
    said = found[start : found.index("Models", start)]
    assert failures < start
    for words_ in ("faulty stage: h.0.attn (1 of 25 stages)", "its dk lacks a factor",
                   "faulty stage: one of embed, h.0.attn (2 of 25 stages)", "one fault at a time",
                   "between the right gradient of ln_f.w and the wrong one of wte"):  # fmt: skip
        assert words_ in said
    strip = re.findall(r'<li class="chip (\w+)" title="[^"]*">(\S+) ([^<]+)</li>', text)
    assert strip == [("bad", "✗", "embed"), ("bad", "✗", "h.0.attn"), ("good", "✓", "ln_f"),
                     ("calm", "·", "22 others")]  # fmt: skip


def test_where_nobody_is_to_blame_there_is_no_such_part(model):
    assert "Faulty stages" not in Page(render(model)).text


def test_what_projections_see_is_told_per_case(faulty):
    assert "an error of 0.25 of a typical element in d ln_f.b" in Page(render(faulty)).text


def test_a_page_of_models_alone_has_its_filter_too(make):
    text = render(make.run(make.of_model()))
    assert text.count('class="tools"') == 1
    assert '<a href="#models">' in text
    assert text.count('id="models"') == 1
    assert 'id="table"' not in text


def test_rules_and_trainings_are_told_too(make):
    told = make.of_model("training", part=Part.TRAINING, reason="loss 2 → 1")
    rule = make.result("adam", "m.w", kind=Kind.RULE, part=Part.UPDATE)
    text = render(make.run(told, rule))
    assert "rule variant new value float64 samples elements" in Page(text).text
    assert ('id="table">Rules<' in text, "all operators" in text) == (True, False)
    assert 'href="#table">all operators and rules<' in render(make.run(make.result(), rule))
    assert "adam weight m.w PASS" in Page(text).text
    assert "1/1 trainings" in Page(text).text


def test_what_follows_from_a_faulty_stage_is_named_in_its_card(make):
    found = [
        make.of_model("ln_f", FAIL, part=Part.STAGE),
        make.of_model("wte", FAIL, blames=(make.blame("ln_f"),)),
        make.of_model("wte", FAIL, op="svm"),
    ]
    text = render(make.run(*found))
    cards = re.findall('<details class="card failure bad-edge"', text)
    assert len(cards) == 2  # of the stage, and of the other model
    found = Page(text).text.partition("Faulty stages")[0]
    stage, svm = found.split("FAIL gpt2 · stage ln_f")[1].split("FAIL svm · dwte")
    assert "evidence, 1 consequence" in stage
    assert "affected downstream: gpt2/default · dwte" in stage
    assert "consequence" not in svm


def test_a_cause_says_who_where_what_how_sure_a_value_how_many_and_the_command(make):
    run = make.run(
        *(make.result(op, verdict=FAIL, diagnosis=make.why(cause="its sign is wrong"),
                      source="k.py:7") for op in ("gelu", "relu")),
        make.result("exp", verdict=FAIL, diagnosis=make.why(says="`r` is used <once>"),
                    source="k.py:9"),
    )  # fmt: skip
    text = render(run)
    top = Page(text).text.split("Failures: 2 causes")[1].split("Operators and gradients")[0]
    both, one = top.split("FAIL exp")
    assert "FAIL 2 gradients of 2 operators (gelu, relu) : its sign is wrong" in both
    assert "(scale; wrong in all 5 probes) dx[1, 3] got 0.123456, expected 0.1234: rel. err" in both
    assert "2 of 2 checks fail gradcheck run --op gelu" in both
    assert one.startswith("/weight · dx : r is used <once> k.py:9")
    assert "<code>r</code> is used &lt;once&gt;" in text


def test_all_of_many_causes_are_named_at_the_top(make):
    one = make.why(cause="computed in float32")
    run = make.run(
        *(make.result(f"op{i}", verdict=FAIL, sample=f"s{j}", diagnosis=one)
          for i in range(50) for j in range(25)),
        *(make.result(f"other{i}", verdict=FAIL, diagnosis=make.why(says=f"reason {i}"))
          for i in range(10)),
    )  # fmt: skip
    text = render(run)
    top, _ = text.split('id="table"')
    assert top.count('<details class="card failure') == 11
    assert len(top) < 100_000  # of 1,250 failures with one cause a few are told
    found = Page(text).text.split("Failures: 11 causes")[1]
    assert "50 gradients of 50 operators (op0, op1, op2, …) : computed in float32" in found
    for i in range(10):
        assert f"FAIL other{i}/weight · dx : reason {i} " in found


def test_the_evidence_is_told_once_for_each_gradient(make):
    results = [
        make.result(output="w", verdict=FAIL, sample=f"s{i}", diagnosis=make.why())
        for i in range(5)
    ]
    top, _ = Page(render(make.run(*results))).text.split("Operators and gradients")
    assert "FAIL s0 float64 scale: dw is 1/3 of the right value reason" in top
    assert top.count("scale, as above worst dw[1, 3]") == html.SAMPLES - 1
    assert top.count("evidence 3 is the number of rows") == 1
    assert "… and 2 more, in the table below: 2 FAIL evidence" not in top
    assert "… and 2 more, in the table below: 2 FAIL " in top


def test_diagnoses_that_differ_are_counted_in_the_card(explained):
    text = Page(render(explained)).text
    assert "6 of 6 cases fail; 1 of them term" in text
    assert "in the table below: 3 FAIL: 2 scale, 1 term (dw lacks a term)" in text
    assert "pattern none known; the residual is 0.3 worst" in text
    assert "MISSING typical float64 slot: dx is lost reason no gradient for x" in text
    lone = text[text.index("FAIL exp/weight · dx") :]
    assert lone.startswith("FAIL exp/weight · dx : 3 of 24 elements")


def test_what_a_pass_printed_is_shown_once_per_dialect(make):
    found = [make.result(sample=f"s{i}", printed="hello <b>") for i in range(3)]
    text = render(make.run(*found))
    assert text.count("hello &lt;b&gt;") == 1
    assert "and 2 other results:" in text
