"""The page on diagnosis: its table is the code's, and the rule that it shows works as shown."""

import re
from pathlib import Path

from gradcheck.spec.defect import LABELS
from tests.explain.scenes import changed, named

PAGE = (Path(__file__).parents[2] / "docs" / "diagnosis.md").read_text(encoding="utf-8")


def test_the_table_of_classes_is_the_codes():
    rows = re.findall(r"^\| ([A-Z]+) \| (\S+) \| (.+) \|$", PAGE, flags=re.MULTILINE)
    assert rows == [(code, label.word, label.says) for code, label in LABELS.items()]


def test_the_rule_that_it_shows_works():
    function, row = re.findall(r"```python\n(.*?)```", PAGE, flags=re.DOTALL)
    scope = {}
    exec(function, scope)  # noqa: S102  our own page
    exec("from gradcheck.explain.hypothesis import Rule", scope)  # noqa: S102
    rule = eval(row.strip().rstrip(","), scope)  # noqa: S307
    found = named("rms_norm", changed("rms_norm", w=lambda g: g / 2), "w", [rule])
    assert (found.label, found.rule) == ("F", "halved")
    assert found.says == "dw is half of the right value"
    assert not named("rms_norm", changed("rms_norm", w=lambda g: g / 3), "w", [rule]).label
