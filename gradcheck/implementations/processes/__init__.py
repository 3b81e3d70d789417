"""Child processes in which foreign code runs.

What happens when it crashes or hangs is told in `crash_or_hang`. `child` starts, watches and ends a
process; `c_worker` sends scripts of C calls to `worker`, which runs in one.
"""

from __future__ import annotations

from typing import Final

TIMEOUT: Final = 30.0
"""Default limit of a call, in seconds."""
DESCRIPTORS_LOST: Final = 113
"""Exit status of a child whose own descriptors the called code closed or replaced."""
