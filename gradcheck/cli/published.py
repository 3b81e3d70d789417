"""Where the report of a run goes: the flags, and the reports that they ask for."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from gradcheck.cli import console
from gradcheck.cli.flags import add_color
from gradcheck.cli.gate import code_of
from gradcheck.cli.outcome import save
from gradcheck.cli.progress import add_progress
from gradcheck.errors import UnknownNameError

if TYPE_CHECKING:
    from gradcheck.cli.outcome import Target
    from gradcheck.results.run import Run


def add_output(parser: argparse.ArgumentParser) -> None:
    """Where the report of a run goes."""
    group = parser.add_argument_group("reports")
    group.add_argument(
        "-o", "--output", dest="outputs", action="append", default=[], metavar="FILE[:FORMAT]",
        help="write a report: .md .html .json .xml .txt; .jsonl, a log that grows with the run; or "
        "FILE:FORMAT, also with concise, summary (a CI job's page), github, gitlab, badge (repeat)",
    )  # fmt: skip
    group.add_argument(
        "--format", default="terminal", metavar="FORMAT",
        help="what stdout carries: terminal (default), concise (a line per failing gradient), "
        "markdown, summary, html, json, jsonl, junit, github, gitlab, badge",
    )  # fmt: skip
    group.add_argument(
        "-v", "--verbose", action="store_true",
        help="a row for every case, every failure in full (terminal), or a line each (concise)",
    )  # fmt: skip
    add_color(group)
    add_progress(group, "no progress on stderr, and no line on how code was loaded")


def publish_run(
    found: Run,
    arguments: argparse.Namespace,
    targets: Sequence[Target],
    terminal: Callable[..., str] | None = None,
    *,
    written: bool = True,
) -> int:
    """Report a run as the flags of `add_output` say; returns the exit code.

    `terminal` renders what a terminal shows, if that is not the report of a run; `written` says
    whether all else that was to be written is.
    """
    from gradcheck import report

    saved = [written, *(save(path, report.pieces(found, form)) for path, form in targets)]
    how: dict[str, Any] = {
        "color": console.colored(arguments.color),
        "width": console.width(sys.stdout),
    }
    if arguments.format == "terminal" and terminal is not None:
        text = terminal(**how)
    else:
        text = report.render(found, arguments.format, **how, verbosity=_verbosity(arguments))
    if arguments.format != "terminal":  # the terminal report shows them itself
        wrong = found.gate.problems if found.gate is not None else ()
        for line in (*found.troubles, *(problem.text for problem in wrong), *found.unmet):
            console.say(line)
    saved.append(console.show(text))
    exit_zero = getattr(arguments, "exit_zero", False)
    return code_of(found, written=all(saved), exit_zero=exit_zero)


def _verbosity(arguments: argparse.Namespace) -> int:
    """How much is shown: what is usual, more (-v), or less (-q, which goes before a table's -v)."""
    return -1 if arguments.quiet else int(arguments.verbose)


def check_format(word: str) -> None:
    """Refuse a format that there is not.

    Raises:
        UnknownNameError: there is none.
    """
    from gradcheck import report

    if word not in report.FORMATS:
        raise UnknownNameError("format", word, report.FORMATS)
