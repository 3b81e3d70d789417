"""Child processes in which foreign code runs: crashes and hangs become verdicts here."""

from __future__ import annotations

from typing import Final

TIMEOUT: Final = 30.0
"""Default limit of a call, in seconds."""
DESCRIPTORS_LOST: Final = 113
"""Exit status of a child whose own descriptors the called code closed or replaced."""
