"""The log of a run, whole: what `-o run.jsonl` writes while a run goes on."""

from __future__ import annotations

from io import StringIO
from typing import TYPE_CHECKING

from gradcheck.stored.log import Log

if TYPE_CHECKING:
    from gradcheck.record import Run


class _Kept(StringIO):
    """A stream whose text outlives its end."""

    text = ""

    def close(self) -> None:
        self.text = self.getvalue()
        super().close()


def render(run: Run) -> str:
    """The run as lines of JSON."""
    stream = _Kept()
    log = Log(stream)
    log.begins(run.header)
    log.sees(run.results, of=run)
    log.ends(run)
    return stream.text
