"""Atomic writes: a file is either unchanged or complete."""

from __future__ import annotations

import errno
import os
import shutil
import stat
import tempfile
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from gradcheck.system.process import number_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from io import FileIO

    Text = str | bytes | Iterable[str]
    """The content of a file: text, bytes, or pieces of text."""


def save(path: Path, text: Text) -> None:
    """Write a file: a regular or new one atomically, a device or pipe in place.

    A long text may come in pieces, so that only one is in memory at a time.

    Raises:
        OSError: it cannot be written; a regular file is as it was.
    """
    if is_special(path):
        with opened(path) as stream:
            for piece in _pieces(text):
                left = memoryview(piece)
                while left:
                    left = left[stream.write(left) or 0 :]
    else:
        replace(path, text)


def is_special(path: Path) -> bool:
    """Whether a path is a device, a pipe, or a descriptor of this process: written as it is.

    Raises:
        OSError: the path cannot be examined.
    """
    if number_of(str(path)) is not None:
        return True
    try:
        return not stat.S_ISREG(path.stat().st_mode)
    except FileNotFoundError:
        return False


def opened(path: Path) -> FileIO:
    """Open a file for writing, in place and unbuffered.

    A descriptor of this process is duplicated: opened again, its file would be truncated.

    Raises:
        OSError: it cannot be opened.
    """
    own = number_of(str(path))
    if own is None:
        return path.open("wb", buffering=0)
    return os.fdopen(os.dup(own), "wb", buffering=0)


def replace(path: Path, text: Text) -> None:
    """Write beside `path`, then rename; links and permissions are kept.

    Raises:
        OSError: it cannot be written; the old file is unchanged.
    """
    target = Path(os.path.realpath(path))
    with _aside(target, text) as aside:
        if target.exists():
            shutil.copymode(target, aside)
        aside.replace(target)


def create(path: Path, text: str) -> None:
    """Create a file, atomically.

    Raises:
        FileExistsError: it exists.
        OSError: it cannot be written.
    """
    with _aside(path, text) as aside:
        try:
            path.hardlink_to(aside)
        except FileExistsError:
            raise
        except OSError:  # a file system without such links
            if os.path.lexists(path):
                raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST)) from None
            aside.replace(path)


@contextmanager
def _aside(target: Path, text: Text) -> Iterator[Path]:
    """A temporary file beside `target` with `text`, on the disk; removed after the block."""
    handle, name = tempfile.mkstemp(prefix=f".{target.name[:40]}.", dir=target.parent)
    aside = Path(name)
    try:
        with os.fdopen(handle, "wb") as stream:
            stream.writelines(_pieces(text))
            stream.flush()
            os.fsync(stream.fileno())
        aside.chmod(0o666 & ~_umask())
        yield aside
    finally:
        aside.unlink(missing_ok=True)


def _pieces(text: Text) -> Iterator[bytes]:
    if isinstance(text, bytes):
        yield text
    else:
        for piece in (text,) if isinstance(text, str) else text:
            yield piece.encode("utf-8")


def _umask() -> int:
    """The process's umask, which can be read only by setting it."""
    mask = os.umask(0)
    os.umask(mask)
    return mask
