"""The pages for people in trouble: each message in their tables is one that gradcheck prints."""

import ast
import re
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
GUIDES = ROOT / "docs" / "guides"
SYSTEM = (
    "Segmentation fault", "SIGSEGV in", "ModuleNotFoundError", "'IMPL'", "undefined symbol",
    "cannot open shared object file", "GLIBC_", "not found",
)  # fmt: skip
"""Words that Python, the shell or the loader adds."""


@cache
def printed() -> str:
    """Every text in the code, with … for what is filled in."""
    texts = []
    for path in (ROOT / "gradcheck").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.JoinedStr):
                parts = (v.value if isinstance(v, ast.Constant) else "…" for v in node.values)
                texts.append("".join(map(str, parts)))
            elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                texts.append(node.value)
    return "\n".join(texts)


def never_printed(page: str) -> list[str]:
    """Parts of messages in the first column of tables that no code prints."""
    cells = re.findall(r"^\| (.*?) \|", page, flags=re.MULTILINE)
    parts = [
        part.strip(" :,")
        for cell in cells
        for message in re.findall(r"`([^`]+)`", cell)
        for part in re.split("…|" + "|".join(map(re.escape, SYSTEM)), message)
    ]
    return [part for part in parts if part not in printed()]


@pytest.mark.parametrize("name", ["troubleshooting", "inconclusive"])
def test_each_message_is_one_that_is_printed(name):
    page = (GUIDES / f"{name}.md").read_text(encoding="utf-8")
    assert len(re.findall(r"^\| `", page, flags=re.MULTILINE)) >= 10
    assert never_printed(page) == []


def test_a_message_that_changed_is_noticed():
    page = "| `symbol … is nowhere in …` | a | b |\n| `there is no library …` | a | b |\n"
    assert never_printed(page) == ["is nowhere in"]
