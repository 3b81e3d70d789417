"""The page on differences: its tables are the code's. Its output is a session of its own."""

import re
from pathlib import Path

from gradcheck.results.diff.change import Mark, slug

PAGE = (Path(__file__).parents[2] / "docs" / "diff.md").read_text(encoding="utf-8")


def test_the_table_of_marks_is_the_codes():
    rows = re.findall(r"^\| `([a-z ]+)` \|", PAGE, flags=re.MULTILINE)
    assert rows == [mark.value for mark in Mark]


def test_the_flags_that_it_names_are_marks():
    named = {w for words in re.findall(r"--fail-on ([a-z,-]+)", PAGE) for w in words.split(",")}
    assert {"newly-failing", "change"} <= named <= {*map(slug, Mark), "change", "worse"}
