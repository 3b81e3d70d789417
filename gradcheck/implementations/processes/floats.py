"""The floating-point environment of this thread: how it rounds, what it flushes, what traps.

A call may change it, and later code in the thread then computes differently.
The standard library alone, and quick to import: the worker process uses it.
"""

from __future__ import annotations

import ctypes
import os
import struct
import sys
from collections.abc import Mapping
from typing import Final, NamedTuple

from gradcheck.system.posix import libc


class _Form(NamedTuple):
    """How `fenv_t` is read: its control words, and (word, bits, what they say)."""

    words: struct.Struct
    bits: tuple[tuple[int, int, str], ...]


ROUNDING: Final = "rounding mode"
FLUSHING: Final = "flush-to-zero mode"
TRAPS: Final = "set of floating-point exceptions that trap"
FORMS: Final[Mapping[tuple[str, str], _Form]] = {
    ("linux", "x86_64"): _Form(  # the x87 unit's control and tag words, and MXCSR
        struct.Struct("<H6xH18xI"),
        (
            (2, 0x6000, ROUNDING),
            (0, 0x0C00, ROUNDING),
            (2, 0x8040, FLUSHING),
            (2, 0x1F80, TRAPS),
            (0, 0x003F, TRAPS),
            (0, 0x0300, "precision of the x87 unit"),
            (1, 0xFFFF, "x87 register stack (MMX code ends with `emms`)"),
        ),
    ),
    ("linux", "aarch64"): _Form(  # FPCR
        struct.Struct("<I"),
        ((0, 3 << 22, ROUNDING), (0, 1 << 24 | 1 << 19, FLUSHING), (0, 0x9F00, TRAPS)),
    ),
}
"""By system and machine; elsewhere an environment is restored and not described."""
SIZE: Final = 256
"""Bytes: more than any system's `fenv_t`."""

_known: Final = hasattr(libc, "fegetenv") and hasattr(libc, "fesetenv")
_form: Final = FORMS.get((sys.platform, os.uname().machine))


class Floats:
    """The environment as it is when this is made."""

    def __init__(self) -> None:
        """Read it."""
        self._saved = ctypes.create_string_buffer(SIZE)
        if _known:
            libc.fegetenv(self._saved)

    def set(self) -> None:
        """Restore it."""
        if _known:
            libc.fesetenv(self._saved)

    def changed(self) -> tuple[str, ...]:
        """The parts that differ now, in words; exception flags do not count."""
        if not _known or _form is None:
            return ()
        now = ctypes.create_string_buffer(SIZE)
        libc.fegetenv(now)
        was, found = (_form.words.unpack_from(saved) for saved in (self._saved, now))
        if was == found:
            return ()
        said = (what for word, bits, what in _form.bits if (was[word] ^ found[word]) & bits)
        return tuple(dict.fromkeys(said))
