"""What looks at a run while it goes on: logs that grow with it, and what ends it at failures."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from gradcheck.cli import console
from gradcheck.results.run import AT_FIRST, AT_MOST

if TYPE_CHECKING:
    from gradcheck.results.case_result import CaseResult
    from gradcheck.results.run import Header, Run
    from gradcheck.results.stored.log import Log


@dataclass(slots=True)
class Watch:
    """Is told of a run as it goes, and tells its logs.

    `most` cases end it in which something `fails` (None: as many as there are).
    """

    logs: Sequence[Log] = ()
    fails: Callable[[Header, Sequence[CaseResult]], bool] | None = None
    most: int | None = None
    _failed: int = field(default=0, init=False)
    _header: Header | None = field(default=None, init=False)

    def begins(self, header: Header) -> None:
        """Begin the logs."""
        self._header = header
        for log in self.logs:
            log.begins(header)

    def sees(self, results: Sequence[CaseResult]) -> str:
        """What came of one case goes to the logs; why the run is to end now, or nothing."""
        for log in self.logs:
            log.sees(results)
        assert self._header is not None
        if self.most is None or self.fails is None or not self.fails(self._header, results):
            return ""
        self._failed += 1
        if self._failed < self.most:
            return ""
        return AT_FIRST if self.most == 1 else AT_MOST

    def close(self) -> None:
        """Close the logs; one that is not sealed by then is a log that was cut short."""
        for log in self.logs:
            log.close()

    def ends(self, run: Run) -> bool:
        """Seal the logs; False, and a line on stderr for each, where one could not be written."""
        for log in self.logs:
            log.ends(run)
            if log.trouble:
                kept = f"it ends after {log.written:,} of {len(run.results):,} results"
                console.say(f"-o {log.path}: {log.trouble}: {kept}; all of them are on stdout")
        return not any(log.trouble for log in self.logs)
