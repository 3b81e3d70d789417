"""The log of a run, whole: what `-o run.jsonl` writes while a run goes on."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gradcheck.stored.log import whole

if TYPE_CHECKING:
    from gradcheck.record import Run


def render(run: Run) -> str:
    """The run as lines of JSON."""
    return whole(run).decode("ascii")
