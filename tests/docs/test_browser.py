"""The site in a browser, opened from a folder: accessible, searchable, and without requests."""

from __future__ import annotations

from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

CHROMIUM = Path("/usr/bin/chromium")
DESKTOP = {"viewport": {"width": 1280, "height": 900}}
VIEWS = {
    "desktop": {**DESKTOP, "color_scheme": "light"},
    "dark": {**DESKTOP, "color_scheme": "dark"},
    "phone": {"viewport": {"width": 390, "height": 844}, "is_mobile": True, "has_touch": True},
}
READ = [
    "index", "tutorial", "guides/index", "guides/numpy", "guides/c", "guides/read", "pytest",
    "baseline", "diff", "glossary", "manifest", "explanation/judgement", "reference/verdicts",
    "reference/api", "reference/commands/run", "reference/operators/norm/rms_norm",
]  # fmt: skip
"""Pages that axe-core examines, of every kind."""
OTHERS, TROUBLE = "guides/from-other-checkers", "guides/troubleshooting"
FOUND = {
    "tolerance": OTHERS,
    "finite difference": OTHERS,
    "gradient check": OTHERS,
    "numerical gradient": OTHERS,
    "check_grads": OTHERS,
    "atol": OTHERS,
    "backward": "guides/pytorch",
    "segfault": TROUBLE,
    "hang": TROUBLE,
    "import error": TROUBLE,
    "flaky": TROUBLE,
    "slow": TROUBLE,
    "inconclusive": "guides/inconclusive",
    "windows": "guides/platforms",
    "ctypes": "guides/c",
    "exit code": "guides/ci",
    "layer norm": "reference/operators/norm/layer_norm",
}
"""What people type, and the page that comes first."""


@pytest.fixture(scope="module")
def browser():
    driver = pytest.importorskip("playwright.sync_api")
    if not CHROMIUM.exists():
        pytest.skip(f"no {CHROMIUM}")
    with driver.sync_playwright() as playwright:
        found = playwright.chromium.launch(executable_path=str(CHROMIUM), args=["--no-sandbox"])
        yield found
        found.close()


@pytest.fixture
def opened(site, browser):
    """A page of a browser, and what it complained of or asked of others."""
    wrong: list[str] = []
    page = browser.new_page()
    page.set_default_timeout(300_000)
    page.on("console", lambda said: wrong.append(said.text) if said.type == "error" else None)
    page.on("pageerror", lambda error: wrong.append(str(error)))
    page.on("requestfailed", lambda request: wrong.append(f"failed: {request.url}"))
    page.on(
        "request",
        lambda request: (
            wrong.append(f"asked for {request.url}")
            if not request.url.startswith((site.as_uri(), "data:"))
            else None
        ),
    )
    yield page, wrong
    page.close()


@pytest.mark.slow(rest=0)
def test_pages_ask_nobody_and_report_no_error(site, opened):
    page, wrong = opened
    for name in ("index", "reference/operators/norm/rms_norm", "explanation/judgement",
                 "reference/api"):  # fmt: skip
        page.goto((site / f"{name}.html").as_uri())
        page.wait_for_selector("h1")
        assert wrong == [], name
        wide = page.evaluate("document.documentElement.scrollWidth > window.innerWidth")
        assert not wide, f"{name} scrolls sideways"


def test_a_search_finds_an_operator_by_a_part_of_its_name(site, opened):
    page, wrong = opened
    page.goto((site / "index.html").as_uri())
    page.click("input.md-search__input")
    page.keyboard.type("layer norm", delay=20)
    page.wait_for_selector(".md-search-result__item a[href*='layer_norm']")
    assert wrong == []


@pytest.mark.slow(rest=0)
def test_guides_come_before_design_records_and_synonyms_are_known(site, opened):
    page, wrong = opened
    page.goto((site / "index.html").as_uri())
    page.click("input.md-search__input")

    def found(words: str) -> list[str]:
        page.fill("input.md-search__input", "")
        page.keyboard.type(words)
        page.wait_for_function(
            "words => document.querySelector('.md-search-result__item a')?.href"
            ".endsWith('?h=' + words.replaceAll(/[ _]/g, '+'))",
            arg=words,
        )
        links = page.locator(".md-search-result__item > a").evaluate_all(
            "all => all.map(a => a.href)"
        )
        pages = [link.partition(f"{site.name}/")[2].partition(".html")[0] for link in links]
        return list(dict.fromkeys(pages))

    for words, first in FOUND.items():
        pages = found(words)
        assert first == pages[0], f"{words}: {pages}"
        assert not any(one.startswith(("adr/", "reports/", "project/")) for one in pages[:2]), words
    assert found("flaky")[-1] == "adr/0024-known-failures", "a record is found at all"
    assert wrong == []


def test_a_formula_is_drawn_and_not_spelt(site, opened):
    page, _ = opened
    page.goto((site / "reference/operators/norm/rms_norm.html").as_uri())
    box = page.locator(".formula math mfrac").first.bounding_box()
    assert box["height"] > 30, "a fraction stands above its line"
    assert "\\" not in page.inner_text(".formula")


@pytest.fixture(scope="module")
def axe():
    return pytest.importorskip("axe_playwright_python.sync_playwright").Axe()


@pytest.mark.slow(rest=1)
@pytest.mark.parametrize("view", VIEWS)
def test_axe_finds_nothing(site, browser, axe, view):
    context = browser.new_context(**VIEWS[view])
    page = context.new_page()
    for name in READ:
        page.goto((site / f"{name}.html").as_uri())
        found = axe.run(page).response["violations"]
        assert [(one["id"], one["nodes"][0]["html"]) for one in found] == [], name
    context.close()


def test_axe_sees_pale_text_and_a_button_without_a_name(site, opened, axe):
    page, _ = opened
    page.goto((site / "tutorial.html").as_uri())
    page.evaluate("document.querySelector('article p').style.color = '#999'")
    page.evaluate("document.querySelector('.block button').removeAttribute('title')")
    found = {one["id"] for one in axe.run(page).response["violations"]}
    assert found == {"color-contrast", "button-name"}


def test_a_copy_button_takes_the_command_alone(site, opened):
    page, _ = opened
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    page.goto((site / "tutorial.html").as_uri())

    def copied(text):
        page.locator(".block", has_text=text).first.locator("button").click()
        return page.evaluate("navigator.clipboard.readText()")

    assert copied("gradcheck demo") == "gradcheck demo | head -15"
    assert copied("def linear_backward").startswith("import numpy as np\n\nimport gradcheck\n")


@pytest.mark.parametrize("view", ["desktop", "phone"])
def test_keys_scroll_what_is_wider_than_the_page(site, browser, view):
    context = browser.new_context(**VIEWS[view])
    page = context.new_page()
    page.goto((site / "tutorial.html").as_uri())
    wide = page.locator(".block pre").filter(has_text="RESULT pass").first
    wide.focus()
    page.keyboard.press("ArrowRight")
    page.wait_for_timeout(500)
    assert wide.evaluate("block => block.scrollLeft") > 0
    context.close()
