"""Memory that forward's temporaries free stays with the process, for the next ones."""

from __future__ import annotations

from functools import cache
from typing import Final

import numpy as np

ARENA: Final = 31 << 20


@cache
def keep_pages() -> None:
    """Let glibc keep what is freed.

    It serves what is larger than 128 KiB by fresh pages, which the kernel must clear each time (a
    third of a large sweep). Freeing one block of 31 MiB, even unused, raises both thresholds to
    that size for good. Elsewhere it does nothing.
    """
    np.empty(ARENA, dtype=np.uint8)
