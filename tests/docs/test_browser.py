"""The site in a browser, opened from a folder: no request leaves it, no error, and search works."""

from __future__ import annotations

from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

CHROMIUM = Path("/usr/bin/chromium")


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


def test_a_formula_is_drawn_and_not_spelt(site, opened):
    page, _ = opened
    page.goto((site / "reference/operators/norm/rms_norm.html").as_uri())
    box = page.locator(".formula math mfrac").first.bounding_box()
    assert box["height"] > 30, "a fraction stands above its line"
    assert "\\" not in page.inner_text(".formula")
