"""Reading a file that may be a pipe, a device or huge: without hanging or filling the memory."""

from __future__ import annotations

import errno
import io
import os
import stat

from gradcheck.system.process import number_of

TYPE_CHECKING = False  # as type checkers know it, without importing `typing`
if TYPE_CHECKING:
    from pathlib import Path
    from typing import Any, BinaryIO, Final


FLAGS: Final = sum(
    getattr(os, name, 0)
    for name in ("O_RDONLY", "O_CLOEXEC", "O_NONBLOCK", "O_NOCTTY", "O_BINARY")  # Windows: the last
)
MAX_PIPE_BYTES: Final = 1 << 31
"""Bytes read from a pipe, whose length is unknown."""


class Unsuitable(OSError):  # noqa: N818  a file is
    """A path names something other than a readable file; `strerror` says what."""

    def __init__(self, why: str) -> None:
        """Take the reason, in words that follow the path."""
        super().__init__(errno.EINVAL, why)


class TooLarge(Unsuitable):
    """A file exceeds the limit of its reader."""

    def __init__(self, largest: int) -> None:
        """Take the limit in bytes."""
        super().__init__(f"it is too large: at most {largest >> 20:,} MiB are read")


def opened(path: Path, largest: int) -> BinaryIO:
    """Open a file that raises `TooLarge` once more than `largest` bytes were read.

    Pipes that this process was given are read (`-`, `/dev/stdin`, `<(…)`); a named one is refused,
    since reading would wait for a writer.

    Raises:
        Unsuitable: it is a device or a named pipe, or too large.
        OSError: it cannot be opened, or is a folder.
        ValueError: there is a NUL in the name.
    """
    own = number_of(str(path))
    given = own is not None and not stat.S_ISREG(os.fstat(own).st_mode)
    descriptor = os.dup(own) if own is not None and given else os.open(path, FLAGS)
    largest = min(largest, MAX_PIPE_BYTES) if given else largest
    try:
        _refuse(os.fstat(descriptor), largest, given=given)
    except BaseException:
        os.close(descriptor)
        raise
    return io.BufferedReader(_Capped(descriptor, largest))


def contents(path: Path, largest: int) -> bytes:
    """The bytes of a file.

    Raises:
        Unsuitable: it is a device or a named pipe, or larger than `largest` bytes.
        OSError: it cannot be read, or is a folder.
        ValueError: there is a NUL in the name.
    """
    with opened(path, largest) as stream:
        return stream.read()


def _refuse(found: os.stat_result, largest: int, *, given: bool) -> None:
    kind = found.st_mode
    if stat.S_ISREG(kind):
        if found.st_size > largest:
            raise TooLarge(largest)
    elif stat.S_ISDIR(kind):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
    elif not given and stat.S_ISFIFO(kind):
        raise Unsuitable("it is a pipe with a name; name a file, or write < PIPE and /dev/stdin")
    elif stat.S_ISBLK(kind) or (stat.S_ISCHR(kind) and not given):
        raise Unsuitable("it is a device; name a file")


class _Capped(io.FileIO):
    """A file that gives a limited number of bytes."""

    def __init__(self, descriptor: int, largest: int) -> None:
        super().__init__(descriptor, "rb")
        self._largest = self._left = largest

    def readinto(self, buffer: Any) -> int | None:
        """Read what is there, within the limit."""
        got = super().readinto(buffer)
        self._left -= got or 0
        if self._left < 0:
            raise TooLarge(self._largest)
        return got

    def readall(self) -> bytes:
        """Read the rest, piece by piece."""
        found = bytearray()
        while piece := self.read(1 << 20):
            found += piece
        return bytes(found)
