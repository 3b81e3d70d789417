"""A run on several processes: its units of work, the workers, and results in the run's order."""

from typing import Final

MAX_TRIES: Final = 2
"""How often a task is begun whose worker ends without an answer."""


class WorkersLostError(RuntimeError):
    """No worker is left that could go on."""

    advice = "run again with -j 1 to see where"
    """What the user can do about it."""
