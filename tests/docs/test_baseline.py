"""The page on baselines: its entry is one, its table is the code's, its keys are all there are."""

import re
from pathlib import Path

from gradcheck.cli.flags import BASELINE_ACTIONS
from gradcheck.results.baseline.file import KEYS, VERDICTS, parsed
from gradcheck.results.verdict import Breach

PAGE = (Path(__file__).parents[2] / "docs" / "baseline.md").read_text(encoding="utf-8")
(TOML,) = re.findall(r"```toml\n(.*?)```", PAGE, flags=re.DOTALL)


def test_the_entry_that_it_shows_is_one():
    (entry,) = parsed(TOML, "known-failures.toml").entries
    assert (entry.label, entry.max_error, str(entry.expires)) == ("scale", 0.04, "2027-03-01")


def test_the_entry_has_every_key_and_names_every_verdict():
    entry = TOML.partition("[[known]]")[2]
    assert tuple(re.findall(r"^(\w+) =", entry, flags=re.MULTILINE)) == tuple(
        sorted(KEYS, key=lambda key: entry.index(f"\n{key} ="))
    )
    assert all(verdict in entry for verdict in VERDICTS)


def test_the_table_of_lines_is_the_codes():
    rows = re.findall(r"^\| `([A-Z ]+)` \|", PAGE, flags=re.MULTILINE)
    assert rows == [breach.value.upper() for breach in Breach]


def test_every_action_is_explained():
    assert re.findall(r"^- `gradcheck baseline (\w+) FILE`", PAGE, flags=re.MULTILINE) == [
        *BASELINE_ACTIONS
    ]
