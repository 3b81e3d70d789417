"""`gradcheck report`: a run on file, rendered again."""

from __future__ import annotations

import argparse
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from gradcheck.cli.flags import add_suite, suite_of
from gradcheck.cli.gate import add_gate, baseline_of, held, required_of
from gradcheck.cli.outcome import targets_of
from gradcheck.cli.published import add_output, check_format, publish_run
from gradcheck.errors import UsageError

if TYPE_CHECKING:
    from gradcheck.results.run import Run
    from gradcheck.spec.suite import Suite


def add(parser: argparse.ArgumentParser) -> None:
    """Its flags."""
    parser.description = (
        "Render a run again, in any format, without running anything: from the log or the JSON "
        "report that `gradcheck run -o` wrote. A log that was cut short is an incomplete run. What "
        "a baseline made of the run is in it; --baseline holds it against another one, or against "
        "what the file says now. The exit code is the gate's, as of `run`."
    )
    parser.add_argument(
        "log", metavar="RUN.jsonl", type=_path, help="a log, or a JSON report; - for stdin"
    )
    add_suite(parser)
    add_gate(parser)
    add_output(parser)
    parser.set_defaults(command=report)


def _path(word: str) -> Path:
    return Path("/dev/stdin" if word == "-" else word)


def report(arguments: argparse.Namespace) -> int:
    """Render the run; returns the exit code."""
    targets = targets_of(arguments.outputs)
    check_format(arguments.format)
    baseline = baseline_of(arguments, targets)
    from gradcheck.results.stored.read import read

    found = read(arguments.log)
    suite = cache(lambda: suite_for(found, arguments.suite, str(arguments.log)))
    found = required_of(found, arguments, suite)
    if baseline is not None:
        found = replace(found, gate=None)
        found = held(found, baseline, suite())
    return publish_run(found, arguments, targets)


def suite_for(found: Run, references: list[str], name: str) -> Suite:
    """The suite that a run was made with, which `references` name; `name` is the run's file.

    Raises:
        UsageError: it is another one.
    """
    suite = suite_of(references)
    ours, theirs = (suite.name, suite.version), (found.header.suite, found.header.suite_version)
    if ours != theirs:
        raise UsageError(
            f"{name}: it is of the suite {' '.join(theirs)}, and this is {' '.join(ours)}; run "
            "again, or name its suite with --suite"
        )
    return suite
