"""The log of a run, whole: what `-o run.jsonl` writes while a run goes on."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gradcheck.results.stored.log import whole

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gradcheck.results.run import Run


def render(run: Run) -> str:
    """The run as lines of JSON."""
    return "".join(pieces(run))


def pieces(run: Run) -> Iterator[str]:
    """The same line by line."""
    return (line.decode("ascii") for line in whole(run))
