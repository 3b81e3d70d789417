"""Design records in the navigation, by number and by title."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Final

FOLDER: Final = Path(__file__).resolve().parents[1] / "adr"


@cache
def navigation() -> list[object]:
    """The index, then every record as "0001 Title"."""
    entries: list[object] = ["adr/README.md"]
    for path in sorted(FOLDER.glob("[0-9]*.md")):
        title = path.read_text(encoding="utf-8").splitlines()[0].removeprefix("# ")
        entries.append({title: f"adr/{path.name}"})
    return entries
