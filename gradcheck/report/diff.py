"""Reports of a difference: one renderer per module, each a pure function of a `Diff`."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from gradcheck.results.diff.change import Diff

FORMATS: Final = ("terminal", "markdown", "html", "json", "github")
"""The formats by name; each is a module `diff_NAME` with a function `render`."""


def render(diff: Diff, format: str, *, color: bool = False, width: int = 100) -> str:
    """The report in one of `FORMATS`, ending in a newline; colour and width are a terminal's."""
    module = import_module(f"gradcheck.report.diff_{format}")
    options = {"color": color, "width": width} if format == "terminal" else {}
    text: str = module.render(diff, **options)
    return text
