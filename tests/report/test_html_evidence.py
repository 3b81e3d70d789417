import re
from importlib import resources
from pathlib import Path

import pytest
from lxml import etree, html

from gradcheck.report import html_evidence, html_matrix, kills, models, render
from gradcheck.report.html import page_templates
from gradcheck.report.html import render as page
from gradcheck.results.finding import Heat, Part
from gradcheck.results.verdict import Verdict

FAIL = Verdict.FAIL
HEAT = Heat(shape=(2, 3), rows=2, columns=3, cells="..3!.0", cotangent="normal")


def pictures(make, run):
    _, *chunks = make.unpacked(page(run))
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
    text = page(run)
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
    assert "<svg" not in page(run)


def test_pictures_at_the_top_are_cut_to_a_sensible_number(make):
    found = [make.result(f"op{i}", verdict=FAIL, heat=HEAT) for i in range(15)]
    assert page(make.run(*found)).count('<figure class="evidence heat">') == 12


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


CSS = (resources.files("gradcheck.report") / "templates" / "evidence.css").read_text()


@pytest.fixture(scope="module")
def draw():
    """`draw("vcurve", result)`: what a macro writes."""

    def draw(macro, given):
        source = f'{{% from "evidence.html.j2" import {macro} with context %}}{{{{ {macro}(it) }}}}'
        return page_templates().from_string(source).render(it=given)

    return draw


def markup_of(draw, run):
    for result in run.results:
        yield draw("vcurve", result.finding)
        yield draw("heat", result.finding)
        if result.finding.taylor is not None:
            yield draw("taylor", result.finding)


def test_pictures_are_well_formed_and_named(draw, evidenced):
    drawn = [text for text in markup_of(draw, evidenced) if text.strip()]
    assert len(drawn) == 3 + 5 + 2 + 1
    for text in drawn:
        tree = etree.fromstring(text)
        svg = tree.find("svg") if tree.tag == "figure" else None
        if svg is not None:
            assert svg.get("role") == "img"
            assert svg.get("aria-label")
            assert svg.findtext("title")
            assert svg.find("desc") is not None
            assert len(tree.find("figcaption").xpath("string()").strip()) > 10
            wide, high = map(float, svg.get("viewBox").split()[2:])
            assert wide > 0 < high
        assert "nan" not in "".join(v for e in tree.iter() for k, v in e.items() if k != "class")


def test_what_has_no_evidence_has_no_picture(draw, make):
    for macro in ("vcurve", "heat"):
        assert draw(macro, make.result().finding).strip() == ""
    flat = make.curve(remainders=(0.0,) * 8)
    assert draw("taylor", make.result(taylor=flat).finding).startswith("<p")


@pytest.mark.slow
def test_markup_needs_neither_ids_nor_scripts_nor_styles_of_its_own(draw, evidenced, hostile):
    for run in (evidenced, hostile):
        for text in filter(str.strip, markup_of(draw, run)):
            for element in etree.fromstring(text).iter():
                assert element.tag not in ("script", "style", "img", "a", "use")
                assert not [k for k in element.attrib if re.match("id|style|on|href|src", k)]


def test_foreign_text_is_inert_in_pictures_and_tables(draw, hostile):
    texts = [
        *markup_of(draw, hostile),
        *(draw("kills", m) for m in kills.matrices(hostile)),
    ]
    for text in filter(str.strip, texts):
        assert "\x1b" not in text
        assert "<img" not in text
        tags = {
            element.tag for element in html.fromstring(text).iter() if element.tag != etree.Comment
        }
        assert not tags & {"script", "img", "b"}


def test_every_class_of_a_picture_has_a_rule(draw, evidenced):
    found = set()
    for text in markup_of(draw, evidenced):
        for names in re.findall(r'class="([^"]+)"', text):
            found.update(names.split())
    plain = {"soft", "key", "evidence", "vcurve", "remainder", "small", "clear", "dots"}
    styled = set(re.findall(r"\.([a-z][\w-]*)", CSS))
    assert found - plain <= styled


def test_a_heat_map_says_each_glyph_that_it_shows(draw, make):
    text = draw("heat", make.result(heat=make.heat(("0.5!?",))).finding)
    assert re.findall(r"<i class=\"[^\"]+\">(.?)</i> ([^<\n]+)", text) == [
        ("", "within the tolerance"), ("?", "unresolved"), ("0", "≥ 1 × tolerance"),
        ("5", "≥ 10⁵ × tolerance"), ("!", "NaN or infinite"),
    ]  # fmt: skip


def test_a_large_map_that_is_wrong_everywhere_stays_small(draw, make):
    rows = ["0123456789!?" * 4] * 32
    text = draw("heat", make.result(heat=make.heat(rows, shape=(320, 480))).finding)
    assert len(text) < 40_000


def test_a_kill_matrix_names_every_impostor_and_every_sample(draw, make):
    sure = make.certificate(("zeros", "nan"), ("stale",))
    run = make.run(
        make.result(certificate=sure),
        make.result(sample="weak", certificate=make.certificate(("nan",), ("zeros", "stale"))),
        make.result(sample="sharp", certificate=make.certificate(("nan", "zeros"), ())),
    )
    (matrix,) = kills.matrices(run)
    tree = html.fromstring(draw("kills", matrix))
    heads = [th.text_content().strip() for th in tree.xpath("//thead//th")]
    assert heads == ["sample", "zeros", "nan", "stale"]
    rows = [[cell.text_content().split()[0] for cell in tr] for tr in tree.xpath("//tbody/tr")]
    assert rows == [["weight/typical", "✓", "✓", "○"], ["weight/weak", "○", "✓", "○"]]
    assert "Rejected in no sample: stale." in tree.text_content()
    assert (
        "1 more sample of rms_norm: every gradient that differs there is rejected."
        in tree.text_content()
    )
    assert "rejects nothing" in tree.xpath("//tbody/tr")[1].text_content()
    assert tree.xpath("//td/span/@title")[0] == "zeros: rejected"


def test_the_page_shows_the_matrices_that_have_holes(evidenced, passing):
    page = html.fromstring(render(evidenced, "html"))
    tables = page.xpath("//div[starts-with(@class, 'kills')]/ancestor::details/summary")
    assert [" ".join(table.text_content().split()) for table in tables] == [
        "gelu 2 samples in which a wrong gradient passes"
    ]
    assert not html.fromstring(render(passing, "html")).xpath("//div[starts-with(@class, 'kills')]")


@pytest.mark.parametrize("name", ["low", "mid", "high", "ink", "paper"])
def test_shades_of_heat_follow_light_and_dark(name):
    assert re.search(rf"--heat-{name}: light-dark\(#\w+, #\w+\)", CSS)


def lights(run):
    (blamed,) = models.blamed(run)
    found = html_evidence.stages(run, blamed)
    *stages, others = found if found[-1].name.endswith(" others") else (*found, None)
    assert (others is None) == (len(stages) == 25)
    assert others is None or others.name == f"{25 - len(stages)} others"
    return {light.name: (light.tone, light.mark) for light in stages}


def test_each_stage_is_right_suspect_wrong_or_unknown(make):
    verdicts = {"a": "pass", "b": "fail", "c": "missing", "d": "unbound", "e": "pass", "f": "pass"}
    found = [make.of_model(n, Verdict(v), part=Part.STAGE) for n, v in verdicts.items()]
    blames = (make.blame("e"), make.blame("a", "d", "x", exact=False))
    shown = lights(make.run(*found, make.of_model("loss", part=Part.VALUE, blames=blames)))
    tones = {name: tone for name, (tone, _) in shown.items()}
    assert tones == {"a": "good", "b": "bad", "c": "bad", "d": "warn", "e": "bad", "f": "good",
                     "x": "warn"}  # fmt: skip
    assert len({mark for _, mark in shown.values()}) == len(set(tones.values()))


def test_a_suspect_stays_one_in_every_round_that_does_not_name_it(make):
    blames = (make.blame("a", "b", exact=False), make.blame("b", round=2))
    assert lights(make.run(make.of_model("loss", blames=blames))) == {
        "a": ("warn", "?"), "b": ("bad", "✗"),
    }  # fmt: skip


def test_stages_of_another_implementation_say_nothing(make):
    mine = make.of_model("loss", implementation="mine", blames=(make.blame("a"),))
    other = make.of_model("b", part=Part.STAGE, implementation="other")
    assert lights(make.run(mine, other)) == {"a": ("bad", "✗")}


def test_where_every_stage_is_known_there_are_no_others(make):
    found = [make.of_model(f"s{i}", part=Part.STAGE) for i in range(25)]
    blames = (make.blame("s3"),)
    shown = lights(make.run(*found, make.of_model("loss", part=Part.VALUE, blames=blames)))
    assert [tone for tone, _ in shown.values()].count("good") == 24


def test_marks_are_told_without_colour():
    marks = [mark for _, mark, _ in html_evidence.LIGHTS.values()]
    assert len(set(marks)) == len(marks)
    assert all(re.fullmatch(r"\S", mark) for mark in marks)
