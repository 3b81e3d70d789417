"""What pages of docs/ show is what happens: every session prints what its page says."""

from pathlib import Path

import pytest

from tests.shown import ROOT, Session, carried_out, session, skeleton

PAGES = {
    path: found
    for path in sorted((ROOT / "docs").rglob("*.md"))
    if (found := session(path.read_text(encoding="utf-8"))) is not None
}
FRAMEWORKS = {"autograd", "jax", "torch"}
PEERS = [path for path, found in PAGES.items() if FRAMEWORKS & set(found.needs)]


@pytest.mark.slow(rest=3)
@pytest.mark.parametrize(
    "page", [path for path in PAGES if path not in PEERS], ids=lambda p: p.stem
)
def test_a_session_prints_what_its_page_shows(page: Path, tmp_path: Path) -> None:
    compared(page, tmp_path)


@pytest.mark.frameworks(rest=2)
@pytest.mark.parametrize("page", PEERS, ids=lambda page: page.stem)
def test_a_session_with_a_framework_prints_what_its_page_shows(page: Path, tmp_path: Path) -> None:
    compared(page, tmp_path)


def test_another_checker_accepts_each_gradient_that_gradcheck_rejects() -> None:
    steps = PAGES[ROOT / "docs" / "guides" / "from-other-checkers.md"].steps
    shown = [step.shown.splitlines()[:2] for step in steps if step.command]
    assert [first.split(": ")[1] for first, _ in shown] == ["True", *["nothing raised"] * 2]
    assert all(second.startswith("gradcheck: FAIL") for _, second in shown)


def compared(page: Path, tmp_path: Path) -> None:
    """Carry out the session of a page; fail where it prints something else."""
    found = PAGES[page]
    if found.lacks:
        pytest.skip(f"{page.name} needs {found.lacks}")
    commands = 0
    for step, printed in carried_out(found, tmp_path):
        commands += 1
        assert skeleton(printed) == skeleton(step.shown), f"$ {step.command}\n{printed}"
    assert commands, "a session without a command shows nothing"


def test_a_session_notices_what_is_not_true(tmp_path: Path) -> None:
    page = '<!-- session -->\n```python title="a.py"\nprint("two")\n```\n'
    page += "```console\n$ python a.py\none\n$ echo three >&2; exit 3\nthree\n```\n"
    found = session(page)
    assert found is not None
    (first, one), (second, two) = carried_out(found, tmp_path)
    assert skeleton(one) != skeleton(first.shown)
    assert skeleton(two) == skeleton(second.shown)


def test_every_guide_is_a_session_or_says_why_not() -> None:
    for path in sorted((ROOT / "docs" / "guides").glob("*.md")):
        text = path.read_text(encoding="utf-8")
        told = "<!-- no session: " in text
        assert told != (session(text) is not None), f"{path.name}: mark it, one way or the other"


def test_a_page_says_where_it_starts_and_what_it_needs() -> None:
    found = session("<!-- session: from=examples/c needs=gcc,no_such_thing -->\n")
    assert found == Session("examples/c", ("gcc", "no_such_thing"), ())
    assert found.lacks == "no_such_thing"
    assert session("# No mark\n\n```console\n$ ls\n```\n") is None
