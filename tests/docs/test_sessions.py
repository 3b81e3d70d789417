"""What pages of docs/ show is what happens: every session prints what its page says."""

from pathlib import Path

import pytest

from tests.shown import ROOT, Session, carried_out, session, skeleton

PAGES = sorted(
    path
    for path in (ROOT / "docs").rglob("*.md")
    if session(path.read_text(encoding="utf-8")) is not None
)


@pytest.mark.slow(rest=3)
@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_a_session_prints_what_its_page_shows(page: Path, tmp_path: Path) -> None:
    found = session(page.read_text(encoding="utf-8"))
    assert isinstance(found, Session)
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
