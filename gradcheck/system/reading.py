"""Reading a file that may be anything: it neither waits for nobody, nor takes all memory."""

from __future__ import annotations

import errno
import io
import os
import stat

from gradcheck.system.descriptors import number_of

TYPE_CHECKING = False  # as type checkers know it, without importing `typing`
if TYPE_CHECKING:
    from pathlib import Path
    from typing import Any, BinaryIO, Final


PIPED: Final = 1 << 31
"""Bytes read of a pipe: nobody knows how much will come."""


class Unsuitable(OSError):  # noqa: N818  a file is
    """There is something at a path, and it is no file to be read; `strerror` says why."""

    def __init__(self, why: str) -> None:
        """Say why, in words that follow the path."""
        super().__init__(errno.EINVAL, why)


class TooLarge(Unsuitable):
    """It is larger than whatever it may be."""

    def __init__(self, largest: int) -> None:
        """Say how large it may be, in bytes."""
        super().__init__(f"it is too large: at most {largest >> 20:,} MiB are read")


def opened(path: Path, largest: int) -> BinaryIO:
    """A file to be read, which raises Unsuitable once it has given more than `largest` bytes.

    Of pipes, those that this process was given are read (`-`, `/dev/stdin`, `<(…)`); at a named
    one, reading would wait for somebody to write.

    Raises:
        Unsuitable: it is a device or a named pipe, or too large.
        OSError: it cannot be opened, or is a folder.
        ValueError: there is a NUL in the name.
    """
    own = number_of(str(path))
    given = own is not None and not stat.S_ISREG(os.fstat(own).st_mode)
    flags = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY
    descriptor = os.dup(own) if own is not None and given else os.open(path, flags)
    largest = min(largest, PIPED) if given else largest
    try:
        _refuse(os.fstat(descriptor), largest, given=given)
    except BaseException:
        os.close(descriptor)
        raise
    return io.BufferedReader(_Capped(descriptor, largest))


def contents(path: Path, largest: int) -> bytes:
    """What a file holds.

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
    """A file that gives no more than so many bytes."""

    def __init__(self, descriptor: int, largest: int) -> None:
        super().__init__(descriptor, "rb")
        self._largest = self._left = largest

    def readinto(self, buffer: Any) -> int | None:
        """As much as there is, if that is not too much."""
        got = super().readinto(buffer)
        self._left -= got or 0
        if self._left < 0:
            raise TooLarge(self._largest)
        return got

    def readall(self) -> bytes:
        """All that is left, piece by piece."""
        found = bytearray()
        while piece := self.read(1 << 20):
            found += piece
        return bytes(found)
