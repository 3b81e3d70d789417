"""The pictures as markup: well formed, named for those who cannot see them, inert, styled."""

import re
from importlib import resources

import pytest
from lxml import etree, html

from gradcheck.report import kills, render
from gradcheck.report.html import page_templates

CSS = (resources.files("gradcheck.report") / "templates" / "evidence.css").read_text()


@pytest.fixture(scope="module")
def draw():
    """`draw("vcurve", result)`: what a macro writes."""

    def draw(macro, given):
        source = f'{{% from "evidence.html.j2" import {macro} with context %}}{{{{ {macro}(it) }}}}'
        return page_templates().from_string(source).render(it=given)

    return draw


def pictures(draw, run):
    for result in run.results:
        yield draw("vcurve", result.finding)
        yield draw("heat", result.finding)
        if result.finding.taylor is not None:
            yield draw("taylor", result.finding)


def test_pictures_are_well_formed_and_named(draw, evidenced):
    drawn = [text for text in pictures(draw, evidenced) if text.strip()]
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
        for text in filter(str.strip, pictures(draw, run)):
            for element in etree.fromstring(text).iter():
                assert element.tag not in ("script", "style", "img", "a", "use")
                assert not [k for k in element.attrib if re.match("id|style|on|href|src", k)]


def test_foreign_text_is_inert_in_pictures_and_tables(draw, hostile):
    texts = [*pictures(draw, hostile), *(draw("kills", m) for m in kills.matrices(hostile))]
    for text in filter(str.strip, texts):
        assert "\x1b" not in text
        assert "<img" not in text
        tags = {
            element.tag for element in html.fromstring(text).iter() if element.tag != etree.Comment
        }
        assert not tags & {"script", "img", "b"}


def test_every_class_of_a_picture_has_a_rule(draw, evidenced):
    found = set()
    for text in pictures(draw, evidenced):
        for names in re.findall(r'class="([^"]+)"', text):
            found.update(names.split())
    plain = {"soft", "key", "evidence", "vcurve", "remainder", "small", "clear", "dots"}
    styled = set(re.findall(r"\.([a-z][\w-]*)", CSS))
    assert found - plain <= styled


def test_a_heat_map_says_each_glyph_that_it_shows(draw, make):
    text = draw("heat", make.result(heat=make.heat(("0.5!?",))).finding)
    assert re.findall(r"<i class=\"[^\"]+\">(.?)</i> ([^<\n]+)", text) == [
        ("", "within the bound"), ("?", "not resolved"), ("0", "≥ 1 × bound"),
        ("5", "≥ 10⁵ × bound"), ("!", "no number"),
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
    assert "1 more sample of rms_norm: nothing passes that differs there." in tree.text_content()
    assert "rejects nothing" in tree.xpath("//tbody/tr")[1].text_content()
    assert tree.xpath("//td/span/@title")[0] == "zeros: rejected"


def test_the_page_shows_the_matrices_that_have_holes(evidenced, passing):
    page = html.fromstring(render(evidenced, "html"))
    tables = page.xpath("//div[starts-with(@class, 'kills')]/ancestor::details/summary")
    assert [" ".join(table.text_content().split()) for table in tables] == [
        "gelu 2 samples in which something wrong passes"
    ]
    assert not html.fromstring(render(passing, "html")).xpath("//div[starts-with(@class, 'kills')]")


@pytest.mark.parametrize("name", ["low", "mid", "high", "ink", "paper"])
def test_shades_of_heat_follow_light_and_dark(name):
    assert re.search(rf"--heat-{name}: light-dark\(#\w+, #\w+\)", CSS)
