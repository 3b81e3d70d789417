"""What POSIX systems have and Windows lacks: modules of Python, and the C library of this process.

Importing this module on Windows raises a `UsageError`, so that a command that needs it ends with
one line.
"""

import sys

from gradcheck.errors import UsageError

if sys.platform == "win32":
    raise UsageError(
        "this runs code in processes of its own, which needs Linux, macOS or WSL; on Windows use "
        "`gradcheck run --no-isolate` without -j, or `gradcheck.check` in Python"
    )

import ctypes
import fcntl
import mmap
import resource
import select
from typing import Any

__all__ = ["fcntl", "libc", "mmap", "resource", "select"]

libc: Any = ctypes.CDLL(None)
"""Functions of the C library; set no `argtypes` of them."""
