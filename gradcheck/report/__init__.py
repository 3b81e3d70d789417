"""Reports: every format is a pure function of a `Run`.

A new format is a module here with `render(run)`, a line in `RENDERERS`, its ending in `ENDINGS`,
and a word in the help of `-o` and `--format` (`gradcheck/run/options.py`).

Importing this package loads no renderer: templates and tables cost start-up time that a run
which prints JSON does not owe.
"""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from gradcheck.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from gradcheck.results.run import Run

__all__ = ["ENDINGS", "FORMATS", "RENDERERS", "format_of", "pieces", "render"]

RENDERERS: Final = {
    "terminal": "terminal.render",
    "concise": "terminal.concise",
    "json": "json.report",
    "jsonl": "json.log",
    "markdown": "markdown.render",
    "summary": "markdown.summary",
    "html": "html.render",
    "junit": "junit.render",
    "github": "github.render",
    "gitlab": "gitlab.render",
    "badge": "json.badge",
}
"""The function of this package that renders each format, as a text or in pieces."""
FORMATS: Final = tuple(RENDERERS)
"""The formats by name."""

ENDINGS: Final = {
    ".md": "markdown",
    ".markdown": "markdown",
    ".html": "html",
    ".htm": "html",
    ".json": "json",
    ".jsonl": "jsonl",
    ".xml": "junit",  # and so .junit.xml
    ".txt": "terminal",
}
"""What a file's ending says about its format."""


def format_of(path_text: str) -> tuple[Path, str]:
    """Split `FILE[:FORMAT]` as `-o` takes it.

    What follows the last colon is a format unless it holds a `.`, `/` or backslash, so that
    `runs:3/out.md` is a path.

    >>> format_of("out.md")[1], format_of("out.txt:html")[1]
    ('markdown', 'html')

    Returns:
        The path and the name of the format.

    Raises:
        UsageError: the format is unknown, the ending says nothing, or the path is empty.
    """
    path, colon, tail = path_text.rpartition(":")
    if colon and not set(tail) & set("./\\"):
        format = check_format(tail)
    else:
        path = path_text
        ending = Path(path).suffix.lower()
        if path and path != "-" and ending not in ENDINGS:
            raise UsageError(
                f"-o {path_text}: the ending does not say which format; write "
                f"{path}:FORMAT with one of {', '.join(FORMATS)}, "
                f"or use one of the endings {' '.join(ENDINGS)}"
            )
        format = ENDINGS.get(ending, "")
    if path == "-":
        raise UsageError("-o -: what stdout carries is named by --format FORMAT")
    if not path:
        raise UsageError(
            f"-o {path_text!r}: no file is named; write FILE or FILE:FORMAT "
            f"with one of {', '.join(FORMATS)}"
        )
    return Path(path), format


def render(
    run: Run,
    format: str,
    *,
    color: bool = False,
    width: int = 100,
    verbosity: int = 0,
    durations: int = 0,
) -> str:
    """The report of `run`, ending in a newline.

    Args:
        run: what happened.
        format: one of `FORMATS`.
        color: use ANSI colours (terminal only).
        width: columns to use (terminal only).
        verbosity: above 0, every case; below 0, less (terminal and concise only).
        durations: name so many of the slowest cases (terminal only).

    Raises:
        UsageError: the format is unknown.
    """
    options: dict[str, Any] = {}
    if format == "terminal":
        options = {"color": color, "width": width, "durations": durations}
    if format in ("terminal", "concise"):
        options["verbosity"] = verbosity
    return "".join(_rendered(run, format, **options))


def pieces(run: Run, format: str) -> Iterable[str]:
    """The report of `run` as `render` gives it, in pieces where it is as long as the run.

    Raises:
        UsageError: the format is unknown.
    """
    return _rendered(run, format)


def _rendered(run: Run, format: str, **options: Any) -> Iterable[str]:
    module, _, name = RENDERERS[check_format(format)].partition(".")
    found: str | Iterable[str] = getattr(import_module(f"{__name__}.{module}"), name)(
        run, **options
    )
    return (found,) if isinstance(found, str) else found


def check_format(format: str) -> str:
    if format not in FORMATS:
        raise UsageError(f"unknown format {format!r}; known: {', '.join(FORMATS)}")
    return format
