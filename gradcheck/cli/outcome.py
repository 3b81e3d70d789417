"""What a command leaves behind: reports in files and on stdout, and one exit code."""

from __future__ import annotations

import os

from gradcheck.cli import console
from gradcheck.errors import UsageError

TYPE_CHECKING = False  # as type checkers know it, without importing `typing`
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from pathlib import Path
    from typing import Any, Final

    Target = tuple[Path, str]
    """Where a report goes, and its format."""

OK: Final = 0
GATE: Final = 1
USAGE: Final = 2
LOAD: Final = 3
NOTHING: Final = 4
INTERNAL: Final = 5
INTERRUPTED: Final = 130


def targets_of(outputs: Sequence[str]) -> list[Target]:
    """The reports of `-o`.

    Raises:
        UsageError: one has no known format, or could not be written after the run.
    """
    from gradcheck import report

    targets = [report.format_of(text) for text in outputs]
    check_writable([path for path, _ in targets])
    return targets


def check_writable(paths: Sequence[Path], flag: str = "-o") -> None:
    """Refuse before the run what could not be written after it; `flag` named it.

    Raises:
        UsageError: a path cannot be written.
    """
    from gradcheck.system.descriptors import is_open, number_of

    for path in paths:
        number, folder = number_of(str(path)), path.parent
        try:
            if paths.count(path) > 1:
                raise UsageError(f"{flag} {path}: named twice; give each report its own file")
            if number is not None:
                if not is_open(number):
                    raise UsageError(f"{flag} {path}: it is closed; name a file")
                continue
            if path.is_dir():
                raise UsageError(f"{flag} {path}: it is a folder; name a file in it")
            if not folder.is_dir():
                raise UsageError(f"{flag} {path}: there is no folder {folder}; create it first")
            if not os.access(path if path.exists() else folder, os.W_OK):
                raise UsageError(f"{flag} {path}: no permission to write there")
            _check_aside(path, flag)
        except OSError as error:  # a name that is too long, a folder that may not be searched
            raise UsageError(f"{flag} {path}: {error.strerror}") from error


def check_folder(path: Path, flag: str) -> None:
    """Make a folder that is to be written into, where it is not there yet; `flag` named it.

    Raises:
        UsageError: there can be none, or nothing can be written there.
    """
    try:
        path.mkdir(parents=True, exist_ok=True)
    except FileExistsError:
        raise UsageError(f"{flag} {path}: it is no folder; name another") from None
    except (OSError, ValueError) as error:  # a NUL in the name
        raise UsageError(f"{flag} {path}: {getattr(error, 'strerror', None) or error}") from None
    if not os.access(path, os.W_OK | os.X_OK):
        raise UsageError(f"{flag} {path}: no permission to write there")


def _check_aside(path: Path, flag: str) -> None:
    """A report is written aside, then renamed: what links lead to is in a folder of its own."""
    from gradcheck.system.atomic_io import is_special

    folder = type(path)(os.path.realpath(path)).parent
    if is_special(path):
        return
    if not folder.is_dir():
        raise UsageError(f"{flag} {path}: it leads to {folder}, which is no folder; create it")
    if not os.access(folder, os.W_OK | os.X_OK):
        raise UsageError(
            f"{flag} {path}: no permission to write into {folder}, where a report is made before "
            "it takes its name"
        )


def save(path: Path, text: str | Iterable[str], flag: str = "-o") -> bool:
    """Write a report; False, and a line on stderr, where it cannot be."""
    from gradcheck.system import atomic_io

    try:
        atomic_io.save(path, text)
    except OSError as error:
        console.say(f"{flag} {path}: {error.strerror}; the results are on stdout")
        return False
    return True


def refuse_formats(targets: Sequence[Target], formats: Sequence[str], what: str) -> None:
    """Refuse formats that a command does not write; messages call it `what`.

    Raises:
        UsageError: there is one.
    """
    for path, form in targets:
        if form not in formats:
            raise UsageError(f"-o {path}: {what} writes {', '.join(formats)}, not {form}")


def publish(
    found: Any, targets: Sequence[Target], render: Callable[..., str], **options: Any
) -> bool:
    """Render to every target, then to the terminal with `options`; False: something failed."""
    written = [save(path, render(found, form)) for path, form in targets]
    written.append(console.show(render(found, "terminal", **options)))
    return all(written)


def exit_code(
    *,
    complete: bool = True,
    invalid: bool = False,
    unloaded: bool = False,
    written: bool = True,
    checked: bool = True,
    passed: bool,
) -> int:
    """One code, never ORed: the highest-precedence one wins.

    `complete`: the run was not interrupted; `invalid`: a case of our own is at fault; `unloaded`:
    an implementation could not be loaded; `written`: every report was; `checked`: something was.
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
