"""Writing a file so that it is either as it was, or whole."""

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
    """What a file is to hold: as a text, as it is, or in pieces."""


def save(path: Path, text: Text) -> None:
    """Write a file whole: a regular one, or a new one, aside; a device or a pipe as it is.

    A long text may come in pieces, of which only one has to be there at a time.

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
        OSError: that cannot be told.
    """
    if number_of(str(path)) is not None:
        return True
    try:
        return not stat.S_ISREG(path.stat().st_mode)
    except FileNotFoundError:
        return False


def opened(path: Path) -> FileIO:
    """A file begun anew, in place, without a buffer.

    A descriptor of this process goes on where it is: opened again, a file would be cut off.

    Raises:
        OSError: it cannot be opened.
    """
    own = number_of(str(path))
    if own is None:
        return path.open("wb", buffering=0)
    return os.fdopen(os.dup(own), "wb", buffering=0)


def replace(path: Path, text: Text) -> None:
    """Write beside `path`, then rename; a link stays one, and permissions stay as they are.

    Raises:
        OSError: it cannot be written; what was there is untouched.
    """
    target = Path(os.path.realpath(path))
    with _aside(target, text) as aside:
        if target.exists():
            shutil.copymode(target, aside)
        aside.replace(target)


def create(path: Path, text: str) -> None:
    """Write a file that is not there yet: whole, or not at all.

    Raises:
        FileExistsError: it is there.
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
    """`text` in a file of its own beside `target`, on the disk; it is gone after the block."""
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
    """A text, or bytes, is one piece, not one per character."""
    if isinstance(text, bytes):
        yield text
    else:
        for piece in (text,) if isinstance(text, str) else text:
            yield piece.encode("utf-8")


def _umask() -> int:
    """What a new file's permissions lack; it can be read only by setting it."""
    mask = os.umask(0)
    os.umask(mask)
    return mask
