"""Gradients in tests: what a test file says, what it is given, and what pytest makes of it."""

from __future__ import annotations

from typing import Final

MARKER: Final = "gradcheck"
"""What pytest marks all of it with: `-m gradcheck`."""
CARRIED: Final = "gradcheck"
"""The attribute of a report under which results travel, as text."""
BASELINE: Final = "gradcheck::baseline"
"""The item that looks at the baseline by its names and dates."""
WORKER: Final = "workerinput"
"""What xdist gives the configuration of each of its processes."""
