"""The exit codes and their precedence; `gate.exit_code_of_run` applies them to a run."""

from __future__ import annotations

TYPE_CHECKING = False  # as type checkers know it, without importing `typing`
if TYPE_CHECKING:
    from typing import Final

OK: Final = 0
GATE: Final = 1
USAGE: Final = 2
LOAD: Final = 3
NOTHING: Final = 4
INTERNAL: Final = 5
INTERRUPTED: Final = 130

HELP: Final = (
    ("0", "all as expected"),
    ("1", "gate failed"),
    ("2", "usage, or a file that cannot be read or written"),
    ("3", "an implementation could not be loaded"),
    ("4", "nothing was checked"),
    ("5", "internal error, or an invalid case"),
    ("130", "interrupted"),
)
"""The rows that `--help` shows."""


def exit_code(
    *,
    complete: bool = True,
    invalid: bool = False,
    unloaded: bool = False,
    written: bool = True,
    checked: bool = True,
    passed: bool,
) -> int:
    """The exit code of highest precedence; codes are never added up.

    Args:
        complete: the run was not interrupted.
        invalid: a case of the suite is invalid.
        unloaded: an implementation could not be loaded.
        written: every report was written.
        checked: something was checked.
        passed: the gate is open.
    """
    if not complete:
        return INTERRUPTED
    if invalid:
        return INTERNAL
    if unloaded:
        return LOAD
    if not written:
        return USAGE
    if not checked:
        return NOTHING
    return OK if passed else GATE
