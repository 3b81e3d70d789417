"""Where reports go: checked before a run, written to files and to stdout after it."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gradcheck import report
from gradcheck.cli import console
from gradcheck.cli.gate import exit_code_of_run
from gradcheck.errors import UnknownNameError, UsageError
from gradcheck.system.process import is_open, number_of

if TYPE_CHECKING:
    from gradcheck.results.run import Run

Target = tuple[Path, str]
"""Where a report goes, and its format."""


def targets_of(outputs: Sequence[str]) -> list[Target]:
    """The reports of `-o`.

    Raises:
        UsageError: one has no known format, or could not be written after the run.
    """
    targets = [report.format_of(text) for text in outputs]
    check_writable([path for path, _ in targets])
    return targets


def check_writable(paths: Sequence[Path], flag: str = "-o") -> None:
    """Refuse before the run what could not be written after it; messages name `flag`.

    Raises:
        UsageError: a path cannot be written.
    """
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
    """Create a folder that a run writes into, unless it exists; messages name `flag`.

    Raises:
        UsageError: it cannot be created, or nothing can be written there.
    """
    try:
        path.mkdir(parents=True, exist_ok=True)
    except FileExistsError:
        raise UsageError(f"{flag} {path}: it is not a folder; name another") from None
    except (OSError, ValueError) as error:  # a NUL in the name
        raise UsageError(f"{flag} {path}: {getattr(error, 'strerror', None) or error}") from None
    if not os.access(path, os.W_OK | os.X_OK):
        raise UsageError(f"{flag} {path}: no permission to write there")


def _check_aside(path: Path, flag: str) -> None:
    """Check the folder of a link's target, where a report is made before it is renamed."""
    from gradcheck.system.atomic_io import is_special  # door: it imports tempfile

    folder = type(path)(os.path.realpath(path)).parent
    if is_special(path):
        return
    if not folder.is_dir():
        raise UsageError(f"{flag} {path}: {folder} is not a folder; create it")
    if not os.access(folder, os.W_OK | os.X_OK):
        raise UsageError(
            f"{flag} {path}: no write permission in {folder}, needed for a temporary file"
        )


def save(path: Path, text: str | Iterable[str], flag: str = "-o") -> bool:
    """Write a report; False, and a line on stderr, if that fails."""
    from gradcheck.system import atomic_io  # door: it imports tempfile

    try:
        atomic_io.save(path, text)
    except OSError as error:
        console.say(f"{flag} {path}: {error.strerror}; the results are on stdout")
        return False
    return True


def refuse_formats(targets: Sequence[Target], formats: Sequence[str], what: str) -> None:
    """Refuse formats that a command does not write; messages call it `what`.

    Raises:
        UsageError: a target has one.
    """
    for path, form in targets:
        if form not in formats:
            raise UsageError(f"-o {path}: {what} writes {', '.join(formats)}, not {form}")


def publish(
    found: Any, targets: Sequence[Target], render: Callable[..., str], **options: Any
) -> bool:
    """Render to every target, then to the terminal with `options`; False if a write failed."""
    written = [save(path, render(found, form)) for path, form in targets]
    written.append(console.show(render(found, "terminal", **options)))
    return all(written)


def publish_run(
    found: Run,
    arguments: argparse.Namespace,
    targets: Sequence[Target],
    terminal: Callable[..., str] | None = None,
    *,
    written: bool = True,
) -> int:
    """Report a run as the flags of the section "reports" say.

    Args:
        found: the run.
        arguments: the parsed flags.
        targets: the files to write.
        terminal: renders the terminal's text, if that is not the report of a run.
        written: whether the run's other files were written.

    Returns:
        The exit code.
    """
    slowest = getattr(arguments, "durations", None) or 0
    # Without --durations, files of equal results are equal.
    stored = found if slowest else replace(found, timing=None)
    saved = [written, *(save(path, report.pieces(stored, form)) for path, form in targets)]
    how = page_options(arguments)
    if arguments.format == "terminal" and terminal is not None:
        text = terminal(**how)
    else:
        # -q goes before the -v of a project
        verbosity = -1 if arguments.quiet else int(arguments.verbose)
        shown = found if arguments.format == "terminal" else stored
        form = "concise" if verbosity < 0 and arguments.format == "terminal" else arguments.format
        text = report.render(shown, form, **how, verbosity=verbosity, durations=slowest)
    if arguments.format != "terminal":  # which shows them itself
        wrong = found.gate.problems if found.gate is not None else ()
        for line in (*found.troubles, *(problem.text for problem in wrong), *found.unmet):
            console.say(line)
    saved.append(console.show(text))
    exit_zero = getattr(arguments, "exit_zero", False)
    return exit_code_of_run(found, written=all(saved), exit_zero=exit_zero)


def page_options(arguments: argparse.Namespace) -> dict[str, Any]:
    """Colour and width of what stdout shows."""
    return {"color": console.colored(arguments.color), "width": console.width(sys.stdout)}


def check_format(word: str) -> None:
    """Refuse an unknown format.

    Raises:
        UnknownNameError: no format has that name.
    """
    if word not in report.FORMATS:
        raise UnknownNameError("format", word, report.FORMATS)
