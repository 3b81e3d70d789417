"""What a report looks like: light, dark, printed, narrow, without JavaScript, under attack."""

import importlib.util
from pathlib import Path

import pytest

from gradcheck.report import diff, power_html
from gradcheck.report.power_html import Cell, Grid, Mutant, PowerPage, Score, Section, Table
from gradcheck.results.diff.change import Side
from gradcheck.results.diff.compare import compared
from gradcheck.results.verdict import Verdict

pytestmark = pytest.mark.slow

CONTRAST = """() => {
  const canvas = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
  const rgba = (colour) => {
    canvas.clearRect(0, 0, 1, 1);
    canvas.fillStyle = colour;
    canvas.fillRect(0, 0, 1, 1);
    const [r, g, b, a] = canvas.getImageData(0, 0, 1, 1).data;
    return [r, g, b, a / 255];
  };
  const over = (top, below) =>
    top.map((c, i) => (i < 3 ? c * top[3] + below[i] * (1 - top[3]) : 1));
  const behind = (element) => {
    const layers = [];
    for (let at = element; at; at = at.parentElement) {
      const colour = rgba(getComputedStyle(at).backgroundColor);
      layers.push(colour);
      if (colour[3] === 1) break;
    }
    return layers.reduceRight((below, top) => over(top, below), rgba("white"));
  };
  const luminance = (colour) => {
    const [r, g, b] = colour.slice(0, 3).map((c) => c / 255)
      .map((c) => (c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4));
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const low = [];
  const seen = new Set();
  for (const element of document.querySelectorAll("body *:not(svg *)")) {
    const own = [...element.childNodes].some((n) => n.nodeType === 3 && n.textContent.trim());
    if (!own || !element.checkVisibility()) continue;
    const back = behind(element);
    const ink = over(rgba(getComputedStyle(element).color), back);
    const [dark, light] = [luminance(ink), luminance(back)].sort((a, b) => a - b);
    const ratio = (light + 0.05) / (dark + 0.05);
    seen.add(ratio.toFixed(1));
    const text = element.textContent.slice(0, 30);
    if (ratio < 4.5) low.push([element.tagName, element.className, text, ratio]);
  }
  return { low, seen: seen.size };
}"""


@pytest.mark.slow(rest=2)
@pytest.mark.parametrize("name", ["failing", "several", "faulty", "outdated"])
def test_every_text_can_be_read(visit, request, name):
    page = visit(request.getfixturevalue(name), reduced_motion="reduce")
    page.locator("td.cell:not(.none):visible").first.click()
    page.wait_for_selector("tr.detail section")
    for scheme in ("light", "dark"):
        page.emulate_media(color_scheme=scheme)
        found = page.evaluate(CONTRAST)
        assert found["low"] == [], scheme
        assert found["seen"] > 3


def test_contrast_that_is_too_low_is_seen(visit, passing):
    page = visit(passing)
    page.evaluate("document.querySelector('h1').style.color = '#aaa'")
    assert [tag for tag, *_ in page.evaluate(CONTRAST)["low"]] == ["H1"]


def background(page):
    return page.evaluate("getComputedStyle(document.body).backgroundColor")


def test_the_theme_is_the_systems_until_it_is_chosen(visit, passing):
    light, dark = (background(visit(passing, color_scheme=s)) for s in ("light", "dark"))
    assert light != dark
    page = visit(passing, color_scheme="light")
    button = page.get_by_role("button", name="theme")
    seen = []
    for _ in range(3):
        button.click()
        seen.append((button.inner_text(), background(page), page.evaluate("location.hash")))
    assert seen == [
        ("theme: light", light, "#theme=light"),
        ("theme: dark", dark, "#theme=dark"),
        ("theme: system", light, ""),
    ]


def test_the_theme_is_remembered(visit, passing):
    page = visit(passing, "#theme=dark", color_scheme="light")
    dark = background(page)
    page.goto(page.url.partition("#")[0])
    assert background(page) != dark  # it was only in the address
    page.keyboard.press("t")
    page.keyboard.press("t")
    page.goto(page.url.partition("#")[0])
    page.reload()
    assert background(page) == dark


def test_a_browser_without_a_store_keeps_the_address(visit, passing):
    page = visit(passing)
    page.evaluate("delete window.localStorage; Object.defineProperty(window, 'localStorage',"
                  " { get() { throw new Error('denied') } })")  # fmt: skip
    page.keyboard.press("t")
    assert page.evaluate("location.hash") == "#theme=light"


def test_a_print_shows_the_report_and_no_tools(visit, failing):
    page = visit(failing, color_scheme="dark")
    page.emulate_media(media="print")
    for gone in (".tools", ".corner", "nav", ".copy"):
        assert page.locator(gone).first.is_hidden()
    told = page.get_by_text("3 of 24 elements are outside their bound")
    assert told.filter(visible=True).count() == 2  # with the evidence, which is folded
    assert page.locator("table.matrix").is_visible()
    assert page.evaluate("getComputedStyle(document.documentElement).colorScheme") == "light"
    ink = page.evaluate("getComputedStyle(document.querySelector('td.cell span')).color")
    assert ink == "rgb(27, 30, 34)"


def test_a_chosen_theme_is_not_printed(visit, failing):
    page = visit(failing, "#theme=dark")
    page.emulate_media(media="print")
    ink = page.evaluate("getComputedStyle(document.querySelector('td.cell span')).color")
    assert ink == "rgb(27, 30, 34)"


@pytest.mark.slow(rest=2)
@pytest.mark.parametrize("name", ["failing", "several", "faulty", "outdated", "hostile"])
def test_no_page_is_wider_than_its_window(visit, request, name):
    page = visit(request.getfixturevalue(name))
    page.locator("td.cell:not(.none):visible").first.click()
    page.wait_for_selector("tr.detail section")
    for width in (1920, 768, 360):
        page.set_viewport_size({"width": width, "height": 800})
        assert page.evaluate("document.scrollingElement.scrollWidth") <= width


BESIDE = """() => [...document.querySelectorAll("td.cell span")].filter((span) => {
  if (!span.offsetParent) return false;
  const text = document.createRange();
  text.selectNodeContents(span);
  return text.getBoundingClientRect().right > span.closest("td").getBoundingClientRect().right + 1;
}).length"""
"""How many errors reach into the next cell."""


@pytest.mark.slow(rest=4)
@pytest.mark.parametrize("width", [360, 800, 1100, 1280])
@pytest.mark.parametrize("name", ["failing", "several", "faulty"])
def test_no_number_reaches_into_the_next_cell(visit, request, name, width):
    page = visit(request.getfixturevalue(name), viewport={"width": width, "height": 800})
    assert page.evaluate(BESIDE) == 0
    page.add_style_tag(content="td.cell { max-width: 3rem; width: 3rem }")
    assert page.evaluate(BESIDE) > 0  # the check can see it


def test_without_javascript_everything_that_fails_can_be_read(visit, failing):
    page = visit(failing, java_script_enabled=False)
    text = "".join(page.locator("header, main, footer").all_text_contents())
    assert page.locator("table.matrix").is_visible()
    for part in ("11 of 23 checks failed", "SIGSEGV after 0.2 s", "3 of 24 elements",
                 "rms_norm", "FAIL 4.5e-04 > 1.0e-08", failing.summary):  # fmt: skip
        assert part in " ".join(text.split())
    assert page.locator(".tools").is_hidden()
    assert page.locator(".corner").is_hidden()
    assert page.locator("code.run").first.is_visible()
    assert page.locator("template").first.is_hidden()


def test_without_javascript_a_link_leads_to_its_part(visit, failing):
    page = visit(failing, java_script_enabled=False)
    page.get_by_role("link", name="failures").click()
    assert page.url.endswith("#failures")


@pytest.mark.parametrize("name", ["hostile", "foreign"])
def test_hostile_text_is_inert_wherever_it_is_opened(visit, request, make, name):
    page = visit(request.getfixturevalue(name))
    before = page.evaluate("[...document.querySelectorAll('body *')].map((e) => e.tagName)")
    assert not {"IMG", "SCRIPT"} & set(before)
    for cell in page.locator("td.cell:not(.none):visible").all()[:12]:
        cell.click()
        page.wait_for_selector("tr.detail section")
        inside = page.evaluate("[...document.querySelectorAll('.detail *')].map((e) => e.tagName)")
        assert "TABLE" in inside
        assert not {"IMG", "SCRIPT"} & set(inside)
        cell.click()
    text = page.evaluate("document.body.textContent")
    assert "<script>alert(1)</script>" in text
    assert not {"\x1b", "\x00", "\u202e"} & set(text)


def test_a_script_that_is_not_ours_may_not_run(visit, passing):
    page = visit(passing)
    page.evaluate("""() => {
      const script = document.createElement("script");
      script.textContent = "window.evil = 1";
      document.body.append(script);
    }""")
    assert page.evaluate("window.evil") is None
    assert "Content Security Policy" in page.watch.complaints.pop()


def test_nothing_moves_where_motion_is_not_wanted(visit, passing):
    duration = "getComputedStyle(document.querySelector('td.cell')).transitionDuration"
    assert visit(passing, reduced_motion="reduce").evaluate(duration) == "0s"
    assert visit(passing, reduced_motion="no-preference").evaluate(duration) != "0s"


def test_what_has_the_focus_is_seen(visit, failing):
    page = visit(failing)
    page.keyboard.press("Tab")
    for _ in range(12):
        style = page.evaluate("(({ outlineStyle, outlineWidth }) => [outlineStyle, outlineWidth])"
                              "(getComputedStyle(document.activeElement))")  # fmt: skip
        assert style[0] == "solid", page.evaluate("document.activeElement.outerHTML")
        assert style[1] == "2px"
        page.keyboard.press("Tab")


def test_the_tools_have_names(visit, failing):
    page = visit(failing)
    nameless = page.evaluate(
        """() => [...document.querySelectorAll("input, button, table, summary")]
        .filter((e) => e.checkVisibility())
        .filter((e) => !(e.labels?.length || e.textContent.trim() || e.ariaLabel || e.caption))
        .map((e) => e.outerHTML)"""
    )
    assert nameless == []
    assert page.get_by_role("navigation", name="parts of the report").is_visible()
    assert page.get_by_role("grid").count() == 1


def test_a_verdict_is_never_told_by_colour_alone(visit, failing):
    page = visit(failing)
    words = {v.value.upper() for v in Verdict} | {"XFAIL", "XPASS"}
    marks = page.locator("td.cell:not(.none) b").all_text_contents()
    assert marks
    assert set(marks) <= words


MUTATIONS = PowerPage(
    command="gradcheck power", headline="1 of 3 not rejected", passed=False, facts="seed 0",
    scores=(Score(name="mutants", part=1, of=2), power_html.alarms(0, 4, "right ones rejected")),
    sections=(
        Section(
            name="silu", counts="1 of 2 mutants", notes=("Rejected: `zeros`.",),
            mutants=(
                Mutant(name="halved", state="rejected", says="It is `x / 2`.", label="scale",
                       by="`typical`", extent="1 of 2 samples", marks="●·"),
                Mutant(name="sly", state="survived", says="It is off.", label="term",
                       note="Add a sample."),
                Mutant(name="same", state="equivalent", says="It is right.", label="term"),
            ),
            samples=(("default/typical", "3 elements"),),
        ),
        *(Section(name=f"op{i}", counts="none", mutants=()) for i in range(4)),
    ),
    problems=("`x` is not there",),
    grids=(Grid(title="Grid", corner="operator",
                columns=tuple((f"class{i}", "c") for i in range(30)),
                rows=(("silu", (Cell(text="1/2", tone="bad", says="1 of 2"), *[Cell()] * 29)),)),),
    tables=(Table(title="Table", heads=("a", "b"), rows=(("`x`", "y"),)),),
    summary="POWER fail",
)  # fmt: skip


@pytest.fixture(scope="session")
def axe():
    """The script of axe-core, which examines a page."""
    found = importlib.util.find_spec("axe_playwright_python")
    if found is None:
        pytest.skip("axe-core is not installed: pip install 'gradcheck[test]'")
    return (Path(found.origin).parent / "axe.min.js").read_text("utf-8")


VIOLATIONS = """async () => (await axe.run(document)).violations.map(
  (found) => [found.id, found.nodes.map((node) => node.html)])"""
UNFOLD = "document.querySelectorAll('details').forEach((element) => { element.open = true })"
FORMS = {
    "desktop": {"color_scheme": "light", "viewport": {"width": 1280, "height": 900}},
    "dark": {"color_scheme": "dark", "viewport": {"width": 1280, "height": 900}},
    "phone": {"color_scheme": "light", "viewport": {"width": 390, "height": 844}},
}


def violations(page, axe):
    page.evaluate(axe)
    return page.evaluate(VIOLATIONS)


@pytest.mark.slow(rest=2)
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("name", ["failing", "faulty"])
def test_axe_finds_nothing_in_a_run(visit, request, axe, name, form):
    page = visit(request.getfixturevalue(name), bypass_csp=True, **FORMS[form])
    assert violations(page, axe) == []
    page.locator("td.cell:not(.none):visible").first.click()
    page.wait_for_selector("tr.detail section")
    page.evaluate(UNFOLD)
    assert violations(page, axe) == []


@pytest.mark.slow(rest=1)
@pytest.mark.parametrize("form", FORMS)
def test_axe_finds_nothing_in_a_difference_and_in_a_mutation_test(
    visit, axe, failing, several, tmp_path, form
):
    sides = Side(name="old.json", run=several), Side(name="new.json", run=failing)
    pages = {
        "diff": diff.render(compared(*sides, {"reference": "reference"}), "html"),
        "power": power_html.render(MUTATIONS),
    }
    for name, text in pages.items():
        path = tmp_path / f"{name}.html"
        path.write_text(text, "utf-8")
        page = visit.open(path, bypass_csp=True, **FORMS[form])
        page.evaluate(UNFOLD)
        assert violations(page, axe) == [], name


def test_axe_sees_what_is_wrong(visit, passing, axe):
    page = visit(passing, bypass_csp=True)
    page.evaluate("document.querySelector('h1').style.color = '#aaa'")
    page.evaluate("document.documentElement.removeAttribute('lang')")
    assert {name for name, _ in violations(page, axe)} == {"color-contrast", "html-has-lang"}
