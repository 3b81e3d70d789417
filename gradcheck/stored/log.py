"""A run as a log that grows with it: a header, a line per result, a footer that seals it.

Every line is one JSON object with one key. What ends without a footer was cut short; all whole
lines before are good.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any, TextIO

from gradcheck.record import Run
from gradcheck.stored.plain import dumped, footer_dict, header_dict, result_dict

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from gradcheck.record import Header, Record


class Log:
    """Writes one run; a disk that is full ends the log, never the run.

    `trouble` says what went wrong, empty while nothing has.
    """

    def __init__(self, stream: TextIO) -> None:
        """Write to a stream, which the log closes at its end."""
        self.trouble = ""
        self._stream: TextIO | None = stream
        self._digest = hashlib.sha256()
        self._run: Run | None = None

    @classmethod
    def at(cls, path: Path) -> Log:
        """Begin a file anew, in place: who reads meanwhile sees a log that is not finished.

        Raises:
            OSError: the file cannot be opened.
        """
        return cls(path.open("w", encoding="ascii", newline="\n"))

    def begins(self, header: Header) -> None:
        """The first line."""
        self._run = Run(header=header, results=())
        self._write("header", header_dict(header))

    def sees(self, results: Sequence[Record], of: Run | None = None) -> str:
        """A line per result, on its way to the disk before the next case is judged.

        `of`: the run that they are of, where it is known already what a baseline makes of it.
        """
        run = of or self._run
        assert run is not None, "a log begins with a header"
        for result in results:
            self._write("result", result_dict(run, result))
        return ""

    def ends(self, run: Run) -> None:
        """The last line, with the hash of all before it."""
        self._write("footer", {**footer_dict(run), "sha256": self._digest.hexdigest()})
        self.close()

    def close(self) -> None:
        """Close the stream; a log that has no footer by then stays without."""
        if self._stream is None:
            return
        stream, self._stream = self._stream, None
        try:
            stream.close()
        except OSError as error:
            self.trouble = self.trouble or error.strerror or str(error)

    def _write(self, key: str, value: dict[str, Any]) -> None:
        if self._stream is None:
            return
        line = f"{dumped({key: value})}\n"
        self._digest.update(line.encode("ascii"))
        try:
            self._stream.write(line)
            self._stream.flush()
        except OSError as error:
            self.trouble = error.strerror or str(error)
            self.close()
