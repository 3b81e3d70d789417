"""A real browser, without a window, and pages in it: every page is watched while it is open."""

import importlib.util
import os
import shutil
from pathlib import Path

import pytest

from gradcheck.report import render

VARIABLE = "GRADCHECK_CHROMIUM"
NAMES = ("chromium", "chromium-browser", "google-chrome")

# The runs are those of the tests of reports.
_spec = importlib.util.spec_from_file_location(
    "report_runs", Path(__file__).parents[1] / "report" / "conftest.py"
)
_runs = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(_runs)
for _name in ("make", "any_run", *_runs.RUNS):
    globals()[_name] = getattr(_runs, _name)


@pytest.fixture(scope="session")
def browser():
    """One browser for all tests of a process."""
    playwright = pytest.importorskip(
        "playwright.sync_api", reason="playwright is not installed: pip install 'gradcheck[test]'"
    )
    path = os.environ.get(VARIABLE) or next(filter(None, map(shutil.which, NAMES)), None)
    if path is None:
        pytest.skip(f"no {', '.join(NAMES)} on the PATH, and {VARIABLE} names none")
    with playwright.sync_playwright() as found:
        # A sandbox needs a user namespace, which containers seldom have; the pages are our own.
        browser = found.chromium.launch(executable_path=path, args=["--no-sandbox"])
        yield browser
        browser.close()


class Watch:
    """What a page asked for and complained about."""

    def __init__(self, page):
        self.requests, self.complaints = [], []
        page.on("request", lambda request: self.requests.append(request.url))
        page.on("console", lambda message: self.complaints.append(message.text))
        page.on("pageerror", lambda error: self.complaints.append(str(error)))
        page.on("dialog", lambda dialog: self.complaints.append(f"dialog: {dialog.message}"))


@pytest.fixture(scope="session")
def until():
    """Waits for an expression in a page to be true; the policy forbids Playwright's own way."""

    def until(page, expression):
        for _ in range(10_000):
            if page.evaluate(expression):
                return
            page.wait_for_timeout(30)
        raise AssertionError(f"never true: {expression}")

    return until


@pytest.fixture
def visit(browser, tmp_path):
    """Opens the report of a run: `visit(run, hash="", before="", **context)`.

    `before` is a script that runs before the page's own. `visit.open(path, …)` opens a file.

    When the test is over, no page may have complained, or asked for anything but its own file.
    """
    contexts, watches = [], []

    def at(path, hash="", before="", **context):
        contexts.append(browser.new_context(**context))
        contexts[-1].add_init_script(before or "void 0")
        page = contexts[-1].new_page()
        page.set_default_timeout(300_000)
        watches.append((path, Watch(page)))
        page.goto(f"file://{path}{hash}")
        page.watch = watches[-1][1]
        return page

    def visit(run, hash="", before="", **context):
        path = tmp_path / f"report-{len(contexts)}.html"
        path.write_text(render(run, "html"), "utf-8")
        return at(path, hash, before, **context)

    visit.open = at
    yield visit
    for context in contexts:
        context.close()
    for path, watch in watches:
        assert watch.complaints == []
        assert {url.partition("#")[0] for url in watch.requests} == {f"file://{path}"}
