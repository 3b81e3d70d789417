"""Writing a file so that it is either as it was, or whole."""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path


def replace(path: Path, text: str) -> None:
    """Write beside `path`, then rename; a link stays one, and permissions stay as they are.

    Raises:
        OSError: it cannot be written; what was there is untouched.
    """
    target = Path(os.path.realpath(path))
    handle, name = tempfile.mkstemp(prefix=f".{target.name[:40]}.", dir=target.parent)
    aside = Path(name)
    try:
        with os.fdopen(handle, "w", encoding="utf-8", newline="") as stream:
            stream.write(text)
            stream.flush()
            os.fsync(stream.fileno())
        if target.exists():
            shutil.copymode(target, aside)
        else:
            aside.chmod(0o666 & ~_umask())
        aside.replace(target)
    except BaseException:
        aside.unlink(missing_ok=True)
        raise


def _umask() -> int:
    """What a new file's permissions lack; it can be read only by setting it."""
    mask = os.umask(0)
    os.umask(mask)
    return mask
