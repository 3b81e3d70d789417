"""A difference in every format: what is worse first, nothing of anybody's text is obeyed."""

import itertools
import json
import re
from dataclasses import replace
from html.parser import HTMLParser

import pytest

from gradcheck.report import diff_words
from gradcheck.report.diff import FORMATS, LIMIT, render
from gradcheck.report.github import MOST
from gradcheck.report.page import COLOR
from gradcheck.results.diff.change import Mark, Side, slug
from gradcheck.results.diff.compare import compared, implementations
from gradcheck.results.finding import Part
from gradcheck.results.verdict import Verdict
from tests.case_results import changed

V = Verdict
WIDTHS = (60, 80, 100, 120)


def between(old, new, pairs=None):
    names = implementations(old), implementations(new)
    pairs = pairs or (
        dict(zip(*names, strict=True))
        if len(names[0]) == len(names[1]) == 1
        else {name: name for name in names[0] if name in names[1]}
    )
    return compared(Side(name="old.json", run=old), Side(name="new.json", run=new), pairs)


def every_mark(make):
    """A pair of runs with every mark in it."""
    old, new = [], []
    for i, (before, after) in enumerate([
        (V.PASS, V.FAIL), (V.FAIL, V.CRASH), (V.PASS, V.UNBOUND), (V.PASS, V.NOTRUN),
        (V.FAIL, V.MISSING), (V.SKIP, V.PASS), (V.FAIL, V.PASS), (V.FAIL, V.FAIL),
    ]):  # fmt: skip
        old.append(make.result(f"op{i}", verdict=before))
        new.append(make.result(f"op{i}", verdict=after, source="src/k.c:7"))
    near, far = make.miss(error=1e-10), make.miss(error=1e-9)
    for i, (before, after) in enumerate([(near, far), (far, near)]):
        old.append(make.result(f"moved{i}", worst=(before,)))
        new.append(make.result(f"moved{i}", worst=(after,)))
    old += [make.result("gone"), make.result("meant")]
    new += [make.result("came"), make.result("meant", hash="ffff")]
    return make.run(*old), make.run(*new)


@pytest.fixture
def every(make):
    found = between(*every_mark(make))
    assert {e.mark for e in found.entries} == {*Mark}
    return found


@pytest.fixture
def two(make):
    old, new = every_mark(make)
    theirs = make.run(*(changed(r, implementation="theirs") for r in new.results),
                      implementations=("theirs",))  # fmt: skip
    return between(old, theirs)


RUNS = ("passing", "failing", "empty", "several", "hostile", "model", "faulty", "explained",
        "known", "outdated", "foreign")  # fmt: skip


@pytest.fixture(params=[*itertools.permutations(["passing", "failing", "hostile", "foreign"], 2),
                        ("known", "outdated"), ("faulty", "model"), ("empty", "several")],
                ids="-".join)  # fmt: skip
def pair(request):
    return between(*(request.getfixturevalue(name) for name in request.param))


@pytest.mark.slow(keep=7)
@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize("name", RUNS)
def test_a_run_and_itself(name, form, request):
    run = request.getfixturevalue(name)
    found = between(run, run)
    assert (found.changes, found.worse) == ((), False)
    text = render(found, form)
    assert text.endswith("\n")
    if form == "github" and found.compared:
        assert text == found.summary + "\n"


@pytest.mark.suite(keep=13)
@pytest.mark.parametrize("form", FORMATS)
def test_every_pair_is_printable_and_the_same_twice(pair, form):
    text = render(pair, form)
    assert text == render(pair, form)
    assert text.endswith("\n")
    assert all(c.isprintable() or c == "\n" for c in text)


@pytest.mark.suite(keep=10)
@pytest.mark.parametrize("width", WIDTHS)
def test_a_terminal_keeps_its_width(pair, every, two, width):
    for found in (pair, every, two):
        *lines, last = render(found, "terminal", width=width).splitlines()
        assert last == found.summary
        assert not [x for x in lines if x.startswith("DIFF")]
        long = [x for x in lines if len(x) > width and not x.startswith("  run: ")]
        assert long == []
        colored = render(found, "terminal", width=width, color=True)
        assert COLOR.sub("", colored) == render(found, "terminal", width=width)
        assert found.entries == () or colored != COLOR.sub("", colored)


def test_a_terminal_tells_every_mark_what_is_worse_first(every):
    text = render(every, "terminal")
    leads = re.findall(r"^([A-Z][A-Z ]+[A-Z]) (?:\S+ ·|\d)", text, flags=re.MULTILINE)
    marks = [Mark(lead.lower()) for lead in leads]
    assert sorted(marks) == sorted(Mark)
    told, heaped = (
        marks[: marks.index(Mark.OTHERWISE) + 1],
        marks[marks.index(Mark.OTHERWISE) + 1 :],
    )
    assert told == [Mark.NEWLY_CRASHING, Mark.NEWLY_FAILING, Mark.ERROR_GREW, Mark.OTHERWISE]
    assert heaped[:3] == [Mark.SUPPORT_LOST, Mark.REMOVED, Mark.NOT_REACHED]
    assert "1 newly crashing, 1 newly failing, 1 error grew, 1 support lost, 1 removed" in text
    assert "2 newly failing" not in text


def test_how_it_stood_and_how_it_stands(every, make):
    text = render(every, "terminal")
    assert "\n  typical/float64: PASS 4.4e-16 ≤ 1.4e-14 → FAIL 4.5e-04 > 1.0e-08\n" in text
    assert "\n  typical/float64: FAIL 4.5e-04 > 1.0e-08 → CRASH\n" in text
    assert "\n  typical/float64: PASS 0.081 × tolerance → PASS 0.81 × tolerance\n" in text
    why = make.result(verdict=V.FAIL, diagnosis=make.why())
    text = render(between(make.run(make.result()), make.run(why)), "terminal")
    assert "\n  scale: dw is 1/3 of the right value\n" in text
    assert "→ FAIL 4.5e-04 > 1.0e-08 (scale)\n" in text


def test_a_gradient_is_told_once_with_its_first_results(make):
    samples = [make.result(verdict=V.FAIL, sample=f"s{i}") for i in range(9)]
    old = make.run(*(make.result(sample=f"s{i}") for i in range(9)))
    text = render(between(old, make.run(*samples)), "terminal")
    assert text.count("NEWLY FAILING") == 1
    assert "NEWLY FAILING rms_norm/weight · dx: 9 results\n" in text
    assert "\n  s2/float64: " in text
    assert "\n  s3/float64: " not in text
    assert "\n  … and 6 more\n" in text
    assert text.count("  run: gradcheck ") == 1


def test_what_is_left_out_is_counted(make):
    old = make.run(*(make.result(f"op{i}") for i in range(20)))
    new = make.run(*(make.result(f"op{i}", verdict=V.FAIL) for i in range(20)))
    text = render(between(old, new), "terminal")
    assert text.count("NEWLY FAILING") == 12
    assert "… and 8 more results of 8 more gradients; -o diff.md shows more" in text


def test_two_implementations_are_not_old_and_new(two):
    for form in ("terminal", "markdown", "github"):
        text = render(two, form).lower()
        assert "only b fails" in text
        assert "newly failing" not in text
    text = render(two, "terminal")
    assert text.startswith("A  old.json · reference · 11 checks · 4 did not pass\n")
    assert "\nB  new.json · theirs · " in text
    assert "ONLY A FAILS op6/weight · dx: 1 result\n  3 of 24 elements are outside" in text
    assert "\nA IS FURTHER OFF moved1/weight · dx: 1 result\n  typical/float64: PASS 0.81 " in text
    assert "only B fails: 1, " in text
    assert {entry["mark"] for entry in json.loads(render(two, "json"))["entries"]} == {*Mark}


def test_what_only_the_first_gets_wrong_is_shown_as_its_own(make):
    wrong = make.result(verdict=V.FAIL, diagnosis=make.why(), repro="gradcheck repro theirs")
    right = make.result(implementation="mine", repro="gradcheck repro mine")
    text = render(between(make.run(wrong), make.run(right, implementations=("mine",))), "terminal")
    assert "ONLY A FAILS rms_norm/weight · dx: 1 result\n  scale: dw is 1/3 of the" in text
    assert "\n  run: gradcheck repro theirs\n" in text
    over_time = changed(right, implementation="reference")
    text = render(between(make.run(wrong), make.run(over_time)), "terminal")
    assert "FIXED 1 result of rms_norm/weight · dx\n" in text
    assert "run:" not in text


def test_the_words_for_two_are_about_them():
    assert {*Mark} - {*diff_words.TWO} == {Mark.NOT_REACHED, Mark.NOT_COMPARABLE}


def test_several_implementations_are_named(several, make):
    worse = replace(several, results=tuple(
        changed(r, verdict=V.FAIL) for r in several.results))  # fmt: skip
    text = render(between(several, worse), "terminal")
    assert "NEWLY FAILING reference · softmax/weight · dx" in text
    assert "NEWLY FAILING mine · softmax/weight · dx" in text


def test_what_else_differs_is_said(make, passing):
    header = replace(
        passing.header, numpy="2.2.0", suite_version="2026.12", seed=3, shard="1/2",
        platform="Linux aarch64", versions={"reference": "v2"},
    )  # fmt: skip
    other = replace(passing, header=header, complete=False, troubles=("mine does not load",))
    for form in ("terminal", "markdown"):
        text = " ".join(render(between(passing, other), form).replace("\\", "").split())
        for said in ("NumPy 2.1.0 → 2.2.0", "suite builtin 2026.11 → builtin 2026.12",
                     "seed 0 → 3", "platform Linux x8664 → Linux aarch64",
                     "shard none → 1/2", "incomplete: the run stopped early",
                     "mine does not load", "reference unknown → v2"):  # fmt: skip
            assert said in text.replace("x86_64", "x8664"), said
        assert "Python" not in text
        assert "gradcheck 0.1.0" not in text
    plain = json.loads(render(between(passing, other), "json"))
    assert plain["new"]["header"]["numpy"] == "2.2.0"
    assert (plain["new"]["complete"], plain["new"]["troubles"]) == (False, ["mine does not load"])


def test_nothing_is_said_of_what_is_the_same(passing):
    text = render(between(passing, passing), "terminal")
    assert "differs" not in text
    assert "\n\nnothing changed (12 as before)\n\nDIFF same compared=12 same=12 " in text


def test_baselines_are_named_and_play_no_part(make):
    old = make.run(make.result())
    failing = make.run(make.result(verdict=V.FAIL))
    from gradcheck.results.verdict import Known

    known = make.gated(failing, [Known.XFAIL])
    text = render(between(old, known), "terminal")
    assert "baseline known.toml" in text
    assert "NEWLY FAILING" in text
    assert "→ FAIL (XFAIL) 4.5e-04 > 1.0e-08" in text
    assert "Compared by verdict: failures listed in a baseline (XFAIL) count as failures." in text
    assert "Compared by verdict" not in render(between(old, failing), "terminal")
    plain = json.loads(render(between(old, known), "json"))
    assert plain["entries"][0]["new"]["known"] == "xfail"
    assert render(between(failing, known), "github") == between(failing, known).summary + "\n"


def test_json_has_every_entry(every):
    plain = json.loads(render(every, "json"))
    assert len(plain["entries"]) == len(every.entries)
    assert plain["counts"] == {mark.value: 1 for mark in Mark}
    assert (plain["worse"], plain["same"], plain["factor"]) == (True, 0, 2.0)
    by_mark = {entry["mark"]: entry for entry in plain["entries"]}
    grew = by_mark["error grew"]
    assert grew["new"]["times_bound"] == pytest.approx(10 * grew["old"]["times_bound"])
    assert by_mark["added"]["old"] is None
    assert by_mark["removed"]["new"] is None
    assert "hash is another" in by_mark["not comparable"]["why"]


def test_a_whole_call_says_that_it_is_one(make):
    name = "rms_norm/weight/typical/float64"
    crash = make.result(output="vjp", verdict=V.CRASH, name=name)
    found = between(make.run(make.result(name=name)), make.run(crash))
    (entry,) = json.loads(render(found, "json"))["entries"]
    assert (entry["output"], entry["old"]["output"], entry["new"]["output"]) == ("x", "x", "vjp")
    assert "NEWLY CRASHING rms_norm/weight · dx" in render(found, "terminal")


# ── markdown ─────────────────────────────────────────────────────────────────────────────────


def test_the_comment_says_what_is_worse_on_its_first_line(every):
    first = render(every, "markdown").splitlines()[0]
    assert first.startswith("**gradcheck diff: 1 newly crashing, 1 newly failing, 1 error grew, ")
    assert first.endswith("1 still failing, 0 as before)")


def test_the_comment_is_short_and_counts_what_it_leaves_out(make):
    text = "x" * 500
    old = make.run(*(make.result(f"op{i}") for i in range(900)))
    new = make.run(*(make.result(f"op{i}", verdict=V.FAIL, reason=text) for i in range(900)))
    page = render(between(old, new), "markdown")
    shown = page.count("<details>")
    assert len(page.encode()) <= LIMIT
    assert 30 < shown < 900
    assert page.count("</details>") == shown
    assert f"… and {900 - shown} more gradients, left out for size" in page
    assert page.startswith("**gradcheck diff: 900 newly failing** (0 as before)\n")


def test_a_gradient_unfolds_to_a_table_and_a_line_to_paste(every):
    page = render(every, "markdown")
    block = page[page.index("<b>newly failing</b>") :].partition("</details>")[0]
    assert "| result | old | new |\n|---|---|---|\n| `typical/float64` | PASS " in block
    assert "```sh\ngradcheck run --op op0 " in block


# ── html ─────────────────────────────────────────────────────────────────────────────────────


class Elements(HTMLParser):
    """Which elements a page has, and its text."""

    def __init__(self, text):
        super().__init__()
        self.found, self.text = [], ""
        self.feed(text)
        self.close()

    def handle_starttag(self, tag, attrs):
        # A label holds a name; all other values are the page's own.
        values = [(name, value) for name, value in attrs if name != "aria-label"]
        self.found.append((tag, tuple(values)))

    def handle_data(self, data):
        self.text += data


@pytest.mark.suite(keep=5)
def test_the_page_has_no_script_and_asks_for_nothing(pair, every):
    for found in (pair, every):
        page = render(found, "html")
        elements = Elements(page).found
        assert page.startswith("<!doctype html>\n")
        assert not {tag for tag, _ in elements} & {"script", "img", "link", "iframe", "svg"}
        names = {name for _, attrs in elements for name, _ in attrs}
        assert not [name for name in names if name.startswith("on") or name in ("src", "href")]
        assert "default-src 'none'" in page


def test_hostile_text_is_no_element(make):
    def page(text):
        old = make.result(text, verdict=V.PASS, name="a", output="x")
        new = make.result(text, verdict=V.FAIL, name="a", output="x", dialect=text, sample=text,
                          reason=text, repro=text, diagnosis=make.why(says=text))  # fmt: skip
        lost = make.result("b", verdict=V.UNSUPPORTED, reason=text)
        return render(between(make.run(old, make.result("b")), make.run(new, lost)), "html")

    calm, hostile = Elements(page("calm")), Elements(page(make.hostile))
    bare = ("code", ())  # of what stands between backticks
    assert [e for e in hostile.found if e != bare] == [e for e in calm.found if e != bare]
    assert "<script>alert(1)</script>" in hostile.text


def test_the_page_says_what_the_terminal_says(every):
    text = Elements(render(every, "html")).text
    assert "1 newly crashing, 1 newly failing" in text
    assert every.summary in text
    for mark in Mark:
        assert mark.value in text
    assert "FAIL 4.5e-04 > 1.0e-08" in text


def test_a_page_of_very_many_gradients_counts_the_rest(make):
    old = make.run(*(make.result(f"op{i}") for i in range(230)))
    new = make.run(*(make.result(f"op{i}", verdict=V.FAIL) for i in range(230)))
    page = render(between(old, new), "html")
    assert page.count("<details") == 200
    assert "… and 30 more gradients" in page


# ── annotations ──────────────────────────────────────────────────────────────────────────────


def commands(found):
    *lines, last = render(found, "github").splitlines()
    assert last == found.summary
    matches = [re.fullmatch(r"::(error|warning|notice)(?: ([^:]*))?::(.*)", x) for x in lines]
    assert all(matches)
    return [m.groups() for m in matches]


def test_what_newly_fails_is_an_error_beside_its_code(every):
    found = commands(every)
    errors = [(where, text) for kind, where, text in found if kind == "error"]
    assert [where.partition(",title=")[0] for where, _ in errors] == ["file=src/k.c,line=7"] * 2
    assert "op1/weight · dx%3A newly crashing" in errors[0][0]
    assert "op0/weight · dx%3A newly failing" in errors[1][0]
    assert "PASS 4.4e-16 ≤ 1.4e-14 → FAIL 4.5e-04 > 1.0e-08%0Arun: gradcheck run" in errors[1][1]
    warnings = [where for kind, where, _ in found if kind == "warning"]
    assert "moved0/weight · dx%3A error grew" in warnings[0]
    titles = [where.partition("diff%3A ")[2] for where in warnings[1:]]
    assert titles == ["support lost", "removed", "not reached"]


def test_what_is_not_worse_is_not_annotated(make):
    new = every_mark(make)[1]
    assert render(between(new, new), "github").count("\n") == 1
    fixed = between(make.run(make.result(verdict=V.FAIL)), make.run(make.result()))
    assert render(fixed, "github") == fixed.summary + "\n"
    nothing = between(make.run(make.result()), make.run(make.result(seed=1)))
    assert commands(nothing)[0][0] == "error"


def test_annotations_are_few(make):
    old = make.run(*(make.result(f"op{i}") for i in range(25)))
    new = make.run(*(make.result(f"op{i}", verdict=V.FAIL) for i in range(25)))
    found = commands(between(old, new))
    assert [kind for kind, _, _ in found] == ["error"] * MOST + ["notice"]
    assert found[-1][2] == "and 15 more; -o diff.md shows each"


# ── heaps ────────────────────────────────────────────────────────────────────────────────────


def test_a_heap_names_gradients_or_operators(make):
    def heap(*results):
        (found,) = diff_words.heaps(between(make.run(*results), make.run(make.result("one"))))
        return found

    few = heap(make.result("one"), make.result("relu"), make.result("relu", "w"),
               make.result("gelu", part=Part.CONTRACT))  # fmt: skip
    assert diff_words.listed(few) == "relu/weight · dx, dw; gelu/weight · contract"
    many = heap(make.result("one"), *(make.result(f"op{i}") for i in range(9)))
    assert diff_words.listed(many) == "op0, op1, op2, op3, op4, op5, … and 3 more"
    assert many.count == 9


def test_heaps_with_another_reason_are_others(make):
    old = make.run(make.result("a"), make.result("b"), make.result("c"))
    new = make.run(make.result("a", verdict=V.UNBOUND), make.result("b", verdict=V.UNBOUND),
                   make.result("c", verdict=V.UNSUPPORTED, reason="no\nc"))  # fmt: skip
    text = render(between(old, new), "terminal")
    assert "SUPPORT LOST 2 results of a/weight · dx; b/weight · dx: it is no longer checked" in text
    assert "SUPPORT LOST 1 result of c/weight · dx: UNSUPPORTED no c\n" in text


def test_what_fails_and_is_added_is_told_by_itself(make):
    one = make.result("one")
    new = make.run(one, make.result("new", verdict=V.FAIL), make.result("fine"))
    text = render(between(make.run(one), new), "terminal")
    assert "ADDED new/weight · dx: 1 result\n  3 of 24 elements are outside their bound\n" in text
    assert "\n  typical/float64: – → FAIL " in text
    assert "\nADDED 1 result of fine/weight · dx\n" in text
    assert "1 added (1 added, 1 as before)" in text


def test_slugs_are_words():
    assert [slug(mark) for mark in Mark][:3] == ["newly-crashing", "newly-failing", "error-grew"]
    assert all(re.fullmatch("[a-z-]+", slug(mark)) for mark in Mark)
