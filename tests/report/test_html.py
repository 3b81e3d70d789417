import base64
import hashlib
import re
from html.parser import HTMLParser
from importlib import resources

import pytest

from gradcheck.finding import Part
from gradcheck.record import Kind
from gradcheck.report import html, words
from gradcheck.report.html import position, render, times
from gradcheck.verdict import Verdict

FAIL = Verdict.FAIL
VOID = {"meta", "input", "br"}
IMPLIED = {"tr", "td", "th", "thead", "tbody"}  # HTML closes these by itself


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
        if not self.open or self.open[-1] not in ("script", "style"):
            self.texts.append(data)

    @property
    def text(self):
        return " ".join(" ".join(self.texts).split())


def test_every_run_nests(any_run):
    page = Page(render(any_run))
    assert page.tags.count("h1") == 1
    assert any_run.summary in page.text


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
    evil = tuple(
        r.__class__(**{f: getattr(r, f) for f in r.__slots__} | {"dtype": dtype}) for r in results
    )
    page = Page(render(run.__class__(header=run.header, results=evil)))
    assert ("span", "data-is", dtype) in page.attributes
    assert "img" not in page.tags


def test_only_our_script_may_run_and_nothing_is_loaded(failing):
    text = render(failing)
    script = re.search("<script>(.*)</script>", text, re.DOTALL)[1]
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    (policy,) = re.findall('http-equiv="Content-Security-Policy" content="([^"]*)"', text)
    assert policy == (
        f"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{digest}'"
    )
    page = Page(text)
    assert not {"link", "img", "iframe", "object", "form"} & set(page.tags)
    links = [value for _, name, value in page.attributes if name in ("src", "href")]
    assert all(link.startswith("#") for link in links)
    assert not re.search(r"//\w|url\(|@import", text)


def test_everything_is_on_the_page_without_javascript(failing):
    page = Page(render(failing))
    hidden = [tag for tag, name, _ in page.attributes if name == "hidden"]
    assert hidden == ["div"]  # the filter, which is of no use without
    for result in failing.results:
        assert result.repro in page.text or result.verdict is Verdict.PASS
        assert result.sample in page.text
        assert result.reason in page.text


def test_the_top_tells_verdict_counts_and_facts(failing):
    text = Page(render(failing)).text
    head = text[: text.index("Failures, the worst first")]
    assert "11 of 23 checks did not pass" in head
    for fact in ("12 pass", "4 fail", "1 crash", "2 unsupported", "0.1.0", "builtin 2026.11"):
        assert fact in head
    assert '<header class="failed">' in render(failing)
    assert "<title>FAILED: " in render(failing)


def test_a_passing_run_looks_like_one(passing):
    text = render(passing)
    assert "<header>" in text
    assert "<title>passed: all 12 checks passed · gradcheck</title>" in text
    assert "Failures" not in Page(text).text


@pytest.mark.parametrize("changes", [{"complete": False}, {"troubles": ("mine: gone",)}])
def test_a_run_that_is_not_whole_does_not_look_passed(make, changes):
    run = make.run(make.result(), **changes)
    text = render(run)
    assert '<header class="failed">' in text
    assert "What could not be judged" in text
    assert ("mine: gone" in text) == bool(run.troubles)


def test_nothing_checked_does_not_look_passed(empty):
    text = render(empty)
    assert '<header class="failed">' in text
    assert "Nothing was checked" in text


def test_failures_are_expanded_and_rows_are_not(failing):
    page = Page(render(failing))
    opened = [tag for tag, name, _ in page.attributes if name == "open"]
    assert len(opened) == 7  # gradients with a failure
    assert page.tags.count("details") == len(opened) + 12  # rows


def test_a_row_unfolds_to_its_samples(make):
    run = make.run(make.result(), make.result(verdict=FAIL, sample="offset", hunts="a shift"))
    text = Page(render(run)).text
    table = text[text.index("Operators and gradients") :]
    for part in (
        "offset a shift", "dx[1, 3] 0.123456 0.1234 ± 1e-20 4e+09 4.54e+04",
        "typical a missing factor 1/n in the mean gradcheck run --op rms_norm",
    ):  # fmt: skip
        assert part in table


def test_what_failed_has_its_own_repro(make):
    run = make.run(make.result(dtype="float64"), make.result(dtype="float32", verdict=FAIL))
    table = render(run).split('id="table"')[1]
    for result in run.results:
        assert table.count(f"<code>{result.repro}</code>") == 1


def test_long_lists_are_cut_and_counted(make):
    found = [
        make.result(f"op{i}", verdict=FAIL, sample=f"s{j}") for i in range(45) for j in range(5)
    ]
    text = render(make.run(*found))
    top, table = text.split('id="table"')
    assert top.count("<details open") == html.GROUPS
    assert top.count("… and 2 more, in the table below") == html.GROUPS
    assert "… and 5 more failing gradients, in the table below" in top
    assert all(table.count(f"<code>{result.repro}</code>") == 1 for result in found)


def test_implementations_are_told_apart(several):
    text = render(several)
    assert "<h3>reference</h3>" in text
    assert "<h3>mine</h3>" in text
    assert "mine · softmax" in Page(text).text


def test_hiding_what_passes_hides_nothing_else(failing):
    details = re.findall(r'<details( class="passed")?>\n<summary.*?</summary>', render(failing))
    assert sum(bool(hidden) for hidden in details) == 2
    rows = re.findall(r'<details class="passed">\n(<summary.*?</summary>)', render(failing))
    for row in rows:
        assert "PASS" in row
        assert "FAIL" not in row


@pytest.mark.parametrize(
    ("error", "percent"),
    [
        (0.0, 1),
        (1e-300, 1),
        (1e-6, 1),
        (1.0, 67),
        (1e3, 100),
        (1e300, 100),
        (float("nan"), 100),
    ],
)
def test_a_bar_ends_where_its_error_is(make, error, percent):
    assert position(make.result(worst=(make.miss(error=error, bound=1.0),))) == percent


def test_the_tick_of_a_bar_is_the_bound():
    low, high = html.DECADES
    css = resources.files("gradcheck.report").joinpath("templates/report.css").read_text()
    assert f"left: {100 * -low / (high - low):.1f}%" in css


def test_what_was_not_compared_has_no_bar(make):
    assert position(make.result(verdict=Verdict.CRASH)) is None
    assert position(make.result(verdict=Verdict.SKIP, worst=(make.miss(),))) is None
    assert times(make.miss(bound=0.0)) == "–"


def test_three_thousand_results_stay_well_under_a_megabyte(make):
    found = [
        make.result(f"operator_{i}", output, sample=f"sample-{j}", dtype=dtype)
        for i in range(50)
        for output in ("x", "weight", "bias")
        for j in range(10)
        for dtype in ("float64", "float32")
    ]
    assert len(found) == 3000
    assert len(render(make.run(*found)).encode()) < 800_000


def luminance(colour):
    parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(one, other):
    dark, light = sorted((luminance(one), luminance(other)))
    return (light + 0.05) / (dark + 0.05)


def test_contrast_is_accessible_in_light_and_dark():
    css = resources.files("gradcheck.report").joinpath("templates/report.css").read_text()
    light, dark = (
        dict(re.findall(r"--([\w-]+): (#\w{6})", block)) for block in css.split("@media")[:2]
    )
    assert set(light) == set(dark)
    assert contrast("#000000", "#ffffff") == pytest.approx(21)
    for scheme in (light, dark):
        for tone in ("good", "bad", "warn", "calm"):
            assert contrast(scheme[tone], scheme[f"{tone}-back"]) >= 4.5, tone
        for back in ("page", "card"):
            assert contrast(scheme["ink"], scheme[back]) >= 7
            assert contrast(scheme["soft"], scheme[back]) >= 4.5
            for tone in ("good", "bad", "warn"):
                assert contrast(scheme[f"{tone}-bar"], scheme[back]) >= 2.5, tone


def opened(text):
    return re.findall(r'<details class="card model"( open)?', text)


def test_a_model_is_a_part_of_its_own_with_its_gradients_and_stages(model):
    text = render(model)
    found = Page(text).text
    assert opened(text) == [" open"]
    part = found[found.index("model dialect passed") :]
    for row in ("gpt2 default 3/3 gradients, 2/2 stages", "dwte", "embed", "3 gradients",
                "2 stages, each at the reference's values", "worst ± error bar"):  # fmt: skip
        assert row in part
    assert "gpt2" not in found[found.index("all operators") : found.index("model dialect passed")]


def test_of_several_models_those_that_fail_are_unfolded(faulty):
    assert opened(render(faulty)) == [" open", ""]


def test_a_models_row_unfolds_to_its_sizes(model):
    text = Page(render(model)).text
    assert "tiny what tiny shows" in text
    assert "large what large shows" in text


def test_blame_comes_first_with_the_stages_in_a_row(faulty):
    text = render(faulty)
    found = Page(text).text
    start, failures = found.index("Who is to blame"), found.index("Failures, the worst first")
    said = found[start:failures]
    assert start < failures
    for words_ in ("guilty: h.0.attn (1 of 25 stages)", "its dk lacks a factor",
                   "one of 2 of 25 stages: embed, h.0.attn", "one fault at a time",
                   "between the right gradient of ln_f.w and the wrong one of wte"):  # fmt: skip
        assert words_ in said
    strip = re.findall(r'<li class="(\w+)" title="[^"]*">(\S+) ([^<]+)</li>', text)
    assert strip == [("bad", "✗", "embed"), ("bad", "✗", "h.0.attn"), ("good", "✓", "ln_f"),
                     ("calm", "·", "22 others")]  # fmt: skip


def test_where_nobody_is_to_blame_there_is_no_such_part(model):
    assert "blame" not in Page(render(model)).text


def test_a_taylor_curve_is_drawn_where_there_is_one(make, faulty):
    page = Page(render(faulty))
    assert page.tags.count("svg") == 1
    assert page.tags.count("circle") == len(make.curve().steps)
    assert "0.001 ± 1e-12 is missing from it; slope 1.0" in page.text
    assert "dashed: what this error alone leaves" in page.text
    operator = Page(render(make.run(make.result(taylor=make.curve()))))
    assert operator.tags.count("svg") == 1
    assert "dashed" not in operator.text
    assert "svg" not in Page(render(make.run(make.result()))).tags


def test_a_curve_that_cannot_be_drawn_is_still_told(make):
    nothing = make.curve(remainders=(0.0,) * 8, linear=True)
    page = Page(render(make.run(make.of_model(taylor=nothing))))
    assert "svg" not in page.tags
    assert "every remainder is noise" in page.text


def test_what_projections_see_is_told_per_case_and_per_row(faulty):
    text = Page(render(faulty)).text
    assert "an error of 0.25 of a typical element in d ln_f.b" in text
    assert "visible: an error of 0.25 of a typical element or more; 26 forward evaluations" in text


def test_a_page_of_models_alone_has_its_filter_too(make):
    text = render(make.run(make.of_model()))
    assert text.count('class="tools"') == 1
    assert '<a href="#models">' in text
    assert text.count('id="models"') == 1
    assert 'id="table"' not in text


def test_rules_and_trainings_are_told_too(make):
    told = make.of_model("training", part=Part.TRAINING, reason="loss 2 → 1")
    rule = make.result("adam", "m.w", kind=Kind.RULE, part=Part.UPDATE)
    text = Page(render(make.run(told, rule))).text
    assert "rule dialect new value float64 samples elements" in text
    assert "adam weight m.w PASS" in text
    assert "1/1 trainings" in text
    assert "loss 2 → 1" in text


def test_what_blame_explains_is_folded(make):
    found = [
        make.of_model("loss", part=Part.VALUE, blames=(make.blame("ln_f"),)),
        make.of_model("ln_f", FAIL, part=Part.STAGE),
        make.of_model("wte", FAIL),
        make.of_model("wte", FAIL, op="svm"),
    ]
    cards = re.findall(r'<details( open)? class="card bad-edge">', render(make.run(*found)))
    assert sorted(cards) == ["", "", " open"]


def test_why_stands_in_the_card_and_in_the_row_and_is_said_once_in_each(make):
    results = [
        make.result(output="w", verdict=FAIL, sample=f"s{i}", diagnosis=make.why())
        for i in range(5)
    ]
    text = Page(render(make.run(*results))).text
    top, table = text.split("Operators and gradients")
    assert "dw 5 results: scale FAIL s0 float64 scale: dw is 1/3 of the right value" in top
    assert top.count("dw is 1/3") == table.count("dw is 1/3") == 1
    assert top.count("scale, as above worst dw[1, 3]") == html.SAMPLES - 1
    assert top.count("evidence 3 is the number of rows") == 1
    assert "… and 2 more, in the table below: 2 FAIL evidence" not in top
    assert "… and 2 more, in the table below: 2 FAIL " in top
    assert "scale: dw is 1/3 of the right value; 3 is the number of rows; wrong in all" in table
    assert table.count("scale: 3 of 24 elements are outside their bound") == 5


def test_diagnoses_that_differ_are_counted_in_the_card(explained):
    text = Page(render(explained)).text
    assert "dw 6 results: 5 scale, 1 term FAIL" in text
    assert "in the table below: 3 FAIL: 2 scale, 1 term (dw lacks a term)" in text
    assert "pattern none known; the residual is 0.3 worst" in text
    assert "MISSING typical float64 slot: dx is lost reason no gradient for x" in text
    lone = text[text.index("FAIL exp weight dx") :]
    assert lone.startswith("FAIL exp weight dx 1 result FAIL typical float64 3 of 24 elements")
