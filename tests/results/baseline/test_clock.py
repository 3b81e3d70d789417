import ast
from datetime import UTC, datetime
from pathlib import Path

import gradcheck
from gradcheck.results.baseline.entry import today


def test_today_is_the_day_in_utc():
    before = datetime.now(UTC).date()
    found = today()
    assert before <= found <= datetime.now(UTC).date()


def test_no_other_module_of_baselines_asks_for_the_day():
    folder = Path(gradcheck.__file__).parent / "results" / "baseline"
    asking = [
        path.name
        for path in folder.glob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Attribute) and node.attr in ("now", "today", "utcnow", "time")
    ]
    assert asking == ["entry.py"]
