"""What somebody does with a report: filter, sort, drill down, copy, by mouse and by keyboard."""

import re

import pytest

from gradcheck.report import power_html
from gradcheck.results.finding import Certificate, Heat, VCurve
from gradcheck.results.verdict import Verdict

pytestmark = pytest.mark.slow

FAIL = Verdict.FAIL


@pytest.fixture
def mixed(make):
    """Passes and failures of all kinds, with evidence."""
    heat = Heat(shape=(3, 4), rows=3, columns=4, cells="..3...!....9", cotangent="normal")
    steps = tuple(10.0**-k for k in range(8))
    errors = (1.0, 1e-2, 1e-4, 1e-6, 1e-8, 1e-9, 1e-8, 1e-7)
    curve = VCurve(index=(1, 3), tensor="x", cotangent="normal", steps=steps, errors=errors,
                   bars=tuple(1e-14 / h for h in steps), off=0.1, want=0.5, bound=1e-8,
                   error_bar=1e-20)  # fmt: skip
    proof = Certificate(rejected=("nan", "double"), blind=("half",))
    return make.run(
        make.result("rms_norm", "x", certificate=proof),
        make.result("rms_norm", "x", sample="tiny", certificate=Certificate(
            rejected=("nan",), blind=())),
        make.result("rms_norm", "weight", FAIL, heat=heat, curve=curve, taylor=make.curve(1e-3),
                    diagnosis=make.why(), printed="hello", repro="gradcheck repro 'a b'"),
        make.result("rms_norm", "weight", FAIL, sample="odd", diagnosis=make.why()),
        make.result("softmax", "x", Verdict.CRASH, reason="SIGSEGV"),
        make.result("abs", "x", worst=(make.miss(got=0.5, want=0.5, error=0.0, bound=1.0),)),
        make.result("exp", "x", Verdict.INCONCLUSIVE, reason="bars too wide"),
    )  # fmt: skip


def shown(page):
    """The rows that can be seen, by operator and gradient."""
    return page.evaluate(
        """() => [...document.querySelectorAll("table.matrix > tbody > tr:not(.detail, .block)")]
        .filter((tr) => tr.offsetParent !== null)
        .map((tr) => [...tr.querySelectorAll("th")].map((th) => th.textContent.trim())
             .filter((_, i) => i !== 1).join(" "))"""
    )


def cell(page, row, column=0):
    """A cell of the row that begins with a text."""
    rows = page.locator("table.matrix > tbody > tr:not(.detail)")
    return rows.filter(has_text=re.compile(row)).locator("td.cell").nth(column)


ALL = ["rms_norm dx", "rms_norm dweight", "softmax dx", "abs dx", "exp dx"]


@pytest.mark.slow(rest=4)
def test_a_page_opens_without_complaint(visit, any_run):
    page = visit(any_run)
    assert page.locator("h1").is_visible()
    assert page.locator("footer code").inner_text() == any_run.summary


def test_words_filter_rows_and_cards_and_are_counted(visit, mixed):
    page = visit(mixed)
    assert shown(page) == ALL
    search = page.get_by_role("searchbox", name="filter")
    search.fill("NORM")
    assert shown(page) == ["rms_norm dx", "rms_norm dweight"]
    assert page.locator(".card.failure:visible").count() == 1
    search.fill("norm dweight")
    assert shown(page) == ["rms_norm dweight"]
    assert page.get_by_role("status").filter(has_text="1 of 5 rows").count() == 1
    search.fill("rms_norm/weight/dx")
    assert shown(page) == ["rms_norm dx"]


def test_the_name_of_a_sample_finds_its_rows(visit, until, mixed):
    page = visit(mixed)
    page.get_by_role("searchbox", name="filter").fill("tiny")
    until(page, "document.getElementById('count').textContent === '1 of 5 rows'")
    assert shown(page) == ["rms_norm dx"]


def test_where_nothing_matches_the_page_says_so(visit, mixed):
    page = visit(mixed)
    page.get_by_role("searchbox", name="filter").fill("nobody")
    assert shown(page) == []
    assert page.get_by_text("No row matches.").is_visible()
    page.keyboard.press("Escape")
    assert shown(page) == ALL


def test_what_passes_can_be_hidden(visit, mixed):
    page = visit(mixed)
    page.get_by_label("hide passing").check()
    assert shown(page) == ["rms_norm dweight", "softmax dx", "exp dx"]


def test_verdicts_can_be_chosen(visit, mixed):
    page = visit(mixed)
    page.get_by_role("checkbox", name="CRASH").check()
    assert shown(page) == ["softmax dx"]
    page.get_by_role("checkbox", name="INCONCLUSIVE").check()
    assert shown(page) == ["softmax dx", "exp dx"]
    page.get_by_role("checkbox", name="CRASH").uncheck()
    page.get_by_role("checkbox", name="INCONCLUSIVE").uncheck()
    assert shown(page) == ALL


def test_columns_sort_up_down_and_back(visit, mixed):
    page = visit(mixed)
    head = page.locator("th").get_by_role("button", name="float64")
    worst = ["softmax dx", "rms_norm dweight", "exp dx", "rms_norm dx", "abs dx"]
    for wanted, order in ((worst, "descending"), (worst[::-1], "ascending"), (ALL, None)):
        head.click()
        assert page.locator("th[data-result]").get_attribute("aria-sort") == order
        assert shown(page) == wanted
    page.get_by_role("button", name="operator").click()
    assert [row.split()[0] for row in shown(page)] == ["abs", "exp", *["rms_norm"] * 2, "softmax"]
    page.get_by_role("button", name="elements").click()
    assert shown(page)[0] == "rms_norm dx"


def test_the_address_holds_what_is_shown(visit, until, mixed):
    page = visit(mixed)
    page.get_by_role("searchbox", name="filter").fill("rms norm")
    page.get_by_label("hide passing").check()
    page.get_by_role("button", name="operator").click()
    cell(page, "rms_norm.*dweight").click()
    wanted = "filter=rms+norm&hide=passing&sort=operator&open=rms_norm/weight/dweight/float64"
    until(page, f"location.hash === '#{wanted}'")
    page.reload()
    assert shown(page) == ["rms_norm dweight"]
    assert page.get_by_role("searchbox", name="filter").input_value() == "rms norm"
    assert page.get_by_label("hide passing").is_checked()
    page.get_by_role("heading", name="rms_norm weight dweight float64").wait_for()
    page.go_back()
    until(page, "!document.querySelector('tr.detail')")
    page.go_forward()
    page.wait_for_selector("tr.detail section")


def test_what_was_typed_is_one_step_back(visit, until, mixed):
    page = visit(mixed)
    page.get_by_label("hide passing").check()
    page.get_by_role("searchbox", name="filter").type("softmax")
    until(page, "location.hash.includes('filter=softmax')")
    page.go_back()
    until(page, "document.getElementById('hide').checked === false")
    assert shown(page) == ALL


def test_a_link_to_a_part_keeps_the_rest_of_the_address(visit, mixed):
    page = visit(mixed, "#filter=softmax")
    page.get_by_role("link", name="all operators").click()
    assert page.evaluate("location.hash") == "#filter=softmax"
    assert page.evaluate("document.activeElement.id") == "table"


def test_an_address_that_means_nothing_does_no_harm(visit, mixed):
    page = visit(mixed, "#open=no/such/cell&only=nothing&sort=-never&theme=pink&=&%E0%A4%A")
    assert shown(page) == []  # nothing stands as "nothing"
    assert page.locator("tr.detail").count() == 0


def test_a_cell_unfolds_to_its_samples_and_its_certificate(visit, mixed):
    page = visit(mixed)
    cell(page, "rms_norm.*dx").click()
    samples = page.get_by_role("table", name="All samples")
    samples.wait_for()
    assert samples.get_by_role("rowheader").all_inner_texts()[0].startswith("typical")
    row = samples.get_by_role("row").nth(1).inner_text()
    for part in ("PASS", "dx[1, 3]", "0.5", "0.5 ± 1e-20", "2.22e-16", "7.11e-15", "0/24", "2/3",
                 "a missing factor 1/n in the mean"):  # fmt: skip
        assert part in row
    kills = page.get_by_role("table", name="Self-check: wrong gradients given to the same checks")
    found = [[mark.get_attribute("aria-label") for mark in line.get_by_role("img").all()]
             for line in kills.get_by_role("row").all()[1:]]  # fmt: skip
    assert found == [["rejected", "rejected", "blind"], ["rejected", "equal", "equal"]]
    assert cell(page, "rms_norm.*dx").get_attribute("aria-expanded") == "true"
    cell(page, "rms_norm.*dx").click()
    assert page.locator("tr.detail").count() == 0


def test_a_failure_unfolds_to_why_and_to_its_pictures(visit, mixed):
    page = visit(mixed)
    cell(page, "rms_norm.*dweight").click()
    detail = page.locator("tr.detail")
    detail.locator("section").wait_for()
    first = detail.locator("details.case").first
    for part in ("scale: dw is 1/3 of the right value", "3 is the number of rows", "hello",
                 "gradcheck repro 'a b'"):  # fmt: skip
        assert part in first.inner_text()
    assert first.locator("figure svg").count() == 3
    label = first.locator("figure.heat svg").get_attribute("aria-label")
    static = page.locator(".card figure.heat")
    assert label == static.locator("svg").get_attribute("aria-label")
    # The picture that the script builds is the one that stands in the page.
    same = "e => e.querySelector('svg').innerHTML.replace(/\\s+|xmlns=\"[^\"]*\"/g, '')"
    assert first.locator("figure.heat").evaluate(same) == static.evaluate(same)
    assert "as above" in detail.locator("details.case").nth(1).inner_text()


def test_what_cannot_be_unpacked_is_said(visit, mixed):
    page = visit(mixed)
    page.evaluate("document.querySelector('template.packed').content.textContent = 'bm90aGluZw=='")
    cell(page, "rms_norm.*dx").click()
    page.get_by_text("This browser cannot unpack the details").wait_for()


def test_a_browser_that_cannot_unpack_filters_and_sorts_all_the_same(visit, mixed):
    page = visit(mixed, before="delete window.DecompressionStream")
    page.locator("th").get_by_role("button", name="float64").click()
    page.get_by_role("button", name="operator").click()
    assert [row.split()[0] for row in shown(page)] == ["abs", "exp", *["rms_norm"] * 2, "softmax"]
    page.get_by_role("searchbox", name="filter").fill("abs")
    assert shown(page) == ["abs dx"]
    cell(page, "abs").click()
    page.get_by_text("This browser cannot unpack the details").wait_for()


def test_a_command_is_copied(visit, until, mixed):
    page = visit(mixed, permissions=["clipboard-read", "clipboard-write"])
    button = page.locator(".card .copy").first
    button.click()
    until(page, "document.getElementById('said').textContent === 'copied'")
    wanted = page.locator(".card code.run").first.inner_text()
    assert page.evaluate("navigator.clipboard.readText()") == wanted


def test_where_copying_is_forbidden_the_command_is_selected(visit, until, mixed):
    page = visit(mixed)
    page.evaluate("Object.defineProperty(navigator, 'clipboard', { value: undefined })")
    page.locator(".card .copy").first.click()
    until(page, "document.getElementById('said').textContent === 'selected'")
    wanted = page.locator(".card code.run").first.inner_text()
    assert page.evaluate("getSelection().toString()") == wanted


def test_keys_walk_open_and_close(visit, mixed):
    page = visit(mixed)
    page.keyboard.press("/")
    assert page.evaluate("document.activeElement.id") == "filter"
    page.keyboard.type("jk?")  # letters, while somebody types
    assert page.get_by_role("searchbox", name="filter").input_value() == "jk?"
    page.keyboard.press("Escape")
    page.keyboard.press("Escape")
    cell(page, "rms_norm.*dx").focus()
    page.keyboard.press("ArrowDown")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    page.get_by_role("heading", name="softmax weight dx").wait_for()
    page.keyboard.press("ArrowUp")
    page.keyboard.press(" ")
    page.get_by_role("heading", name="rms_norm weight dweight float64").wait_for()
    page.keyboard.press("Escape")
    assert page.locator("tr.detail").count() == 0


def test_one_cell_of_a_table_is_reached_by_tab(visit, mixed):
    page = visit(mixed)
    reached = page.locator("td.cell[tabindex='0']")
    assert reached.count() == 1
    cell(page, "abs").click()
    assert reached.count() == 1
    assert reached.inner_text().startswith("PASS")


def test_keys_go_from_failure_to_failure(visit, mixed):
    page = visit(mixed, reduced_motion="reduce")
    active = "document.activeElement.textContent.replace(/\\s+/g, ' ').trim()"
    seen = []
    for _ in range(6):
        page.keyboard.press("j")
        seen.append(page.evaluate(active))
    assert [text.split()[0] for text in seen] == ["CRASH", "FAIL", "INCONCLUSIVE", "FAIL", "CRASH",
                                                  "INCONCLUSIVE"]  # fmt: skip
    assert page.evaluate("document.activeElement.tagName") == "TD"
    page.keyboard.press("k")
    assert page.evaluate(active).startswith("CRASH")


def test_help_opens_and_closes(visit, mixed):
    page = visit(mixed)
    page.keyboard.press("?")
    dialog = page.get_by_role("dialog", name="Reading this page")
    assert dialog.is_visible()
    page.keyboard.press("j")
    assert dialog.is_visible()
    page.keyboard.press("Escape")
    assert not dialog.is_visible()
    page.get_by_role("button", name="help").click()
    page.get_by_role("button", name="close", exact=True).click()
    assert not dialog.is_visible()


def test_implementations_that_differ_can_be_chosen(visit, several):
    page = visit(several)
    page.get_by_role("checkbox", name="differs").check()
    assert shown(page) == ["softmax dx"]
    assert page.get_by_text("differs", exact=True).count() >= 1
    page.get_by_role("searchbox", name="filter").fill("mine")
    assert shown(page) == ["softmax dx"]
    cell(page, "softmax", 1).click()
    page.get_by_role("heading", name="softmax weight dx float64 mine").wait_for()
    assert page.locator("th").get_by_role("button", name="mine").count() == 2


def test_models_are_filtered_sorted_and_unfolded_too(visit, faulty):
    page = visit(faulty)
    page.get_by_role("searchbox", name="filter").fill("llama/default/dwte")
    assert page.locator("details.model:visible").count() == 1
    assert shown(page) == ["dwte"]
    page.locator("td.cell:visible").first.click()
    page.get_by_role("heading", name="llama default dwte float64").wait_for()
    page.keyboard.press("Escape")
    page.get_by_role("searchbox", name="filter").fill("gpt2")
    page.locator("details.model:visible").locator("th").get_by_role(
        "button", name="float64"
    ).click()
    order = page.evaluate(
        "[...document.querySelectorAll('details.model tbody')][1]"
        ".querySelectorAll('tr:not([hidden]) th[scope=row]')[0].textContent.trim()"
    )
    assert order == "dwte"  # of the gradients, the one that fails


def test_the_mutants_of_a_mutation_test_can_be_filtered(visit, tmp_path):
    def section(op, *names):
        mutants = tuple(
            power_html.Mutant(name=name, state="rejected", says=f"It is {name}.", by="`typical`")
            for name in names
        )
        return power_html.Section(name=op, counts="", mutants=mutants)

    found = power_html.PowerPage(
        command="gradcheck power", headline="all 5 are rejected", passed=True, facts="", scores=(),
        sections=(section("gelu", "halved", "late"), section("silu", "late"),
                  section("relu", "early"), section("exp", "lost")), summary="POWER pass",
    )  # fmt: skip
    path = tmp_path / "power.html"
    path.write_text(power_html.render(found), "utf-8")
    page = visit.open(path)
    assert page.locator("details.mutants[open]").count() == 0
    page.get_by_role("searchbox").fill("late")
    assert page.locator("tbody tr:visible").count() == 2
    assert page.locator("details.mutants:visible").count() == 2
    assert page.locator("#count").inner_text() == "2 of 5 mutants"
    page.get_by_role("searchbox").fill("late silu")
    assert page.locator("tbody tr:visible").all_inner_texts()[0].startswith("late")
    page.get_by_role("searchbox").fill("nothing like it")
    assert page.get_by_text("No mutant matches.").is_visible()
    page.get_by_role("searchbox").fill("")
    assert page.locator("details.mutants[open]").count() == 0
    page.get_by_role("button", name="unfold all").click()
    assert page.locator("tbody tr:visible").count() == 5


def test_causes_beyond_the_first_are_a_line_each_that_unfolds(visit, make):
    whys = [make.why(says=f"`r` is {i}") for i in range(9)]
    results = [make.result(f"op{i}", verdict=FAIL, diagnosis=why) for i, why in enumerate(whys)]
    run = make.run(*results)
    page = visit(run, viewport={"width": 1280, "height": 900})
    cards = page.locator(".card.failure")
    assert cards.count() == 9
    last = cards.nth(8)
    assert last.inner_text().strip() == "FAIL op8/weight · dx: r is 8"
    assert last.bounding_box()["y"] < 1800  # all stand on the first two screens
    last.locator("summary").first.click()
    assert "gradcheck run --op op8" in last.inner_text()
    page.get_by_role("searchbox").fill("op3")
    assert page.locator(".card.failure:visible").count() == 1
