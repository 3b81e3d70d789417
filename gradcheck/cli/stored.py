"""`gradcheck report` and `gradcheck merge`: runs on file, rendered again or joined."""

from __future__ import annotations

import argparse
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from gradcheck.cli import console
from gradcheck.cli.gate import baseline_of, held, required_of
from gradcheck.cli.options import add, add_sections, suite_of
from gradcheck.cli.reports import check_format, publish_run, targets_of
from gradcheck.errors import UsageError
from gradcheck.results.stored.read import read
from gradcheck.run.options import GATE, REPORTS

if TYPE_CHECKING:
    from gradcheck.results.record import Run
    from gradcheck.spec.suite import Suite


def add_report(parser: argparse.ArgumentParser) -> None:
    """Add the flags of `report`."""
    parser.description = (
        "Render a run again, in any format, without running anything: from the log or the JSON "
        "report that `gradcheck run -o` wrote. A log that was cut short is an incomplete run. What "
        "a baseline made of the run is in it; --baseline holds it against another one, or against "
        "what the file says now. The exit code is the gate's, as of `run`."
    )
    parser.add_argument(
        "log", metavar="RUN.jsonl", type=_path, help="a log, or a JSON report; - for stdin"
    )
    add(parser, "suite")
    add_sections(parser, GATE, REPORTS)
    parser.set_defaults(command=report)


def add_merge(parser: argparse.ArgumentParser) -> None:
    """Add the flags of `merge`."""
    parser.description = (
        "Join what `gradcheck run --shard I/N -o SHARD.jsonl` wrote: the reports are those of one "
        "run of all cases, byte for byte. Runs of different implementations of the same cases "
        "stand side by side. A shard that is missing or incomplete makes the run incomplete."
    )
    parser.add_argument(
        "runs", metavar="SHARD.jsonl", type=Path, nargs="+", help="logs, or JSON reports"
    )
    add(parser, "suite")
    add_sections(parser, GATE, REPORTS)
    parser.set_defaults(command=merge)


def _path(word: str) -> Path:
    return Path("/dev/stdin" if word == "-" else word)


def report(arguments: argparse.Namespace) -> int:
    """Render a stored run; returns the exit code."""
    targets = targets_of(arguments.outputs)
    check_format(arguments.format)
    baseline = baseline_of(arguments, targets)
    found = read(arguments.log)
    suite = cache(lambda: suite_for(found, arguments.suite, str(arguments.log)))
    found = required_of(found, arguments, suite)
    if baseline is not None:
        found = replace(found, gate=None)
        found = held(found, baseline, suite())
    return publish_run(found, arguments, targets)


def merge(arguments: argparse.Namespace) -> int:
    """Join the runs; returns the exit code."""
    targets = targets_of(arguments.outputs)
    check_format(arguments.format)
    baseline = baseline_of(arguments, targets)
    from gradcheck.run.merge import Named, merged

    named = [Named(str(path), read(path)) for path in arguments.runs]
    found = merged(named)
    suite = cache(lambda: suite_for(found, arguments.suite, named[0].name))
    found = required_of(found, arguments, suite)
    if baseline is not None:
        found = held(found, baseline, suite())
    elif any(one.run.gate for one in named):
        console.say("what a baseline said of the parts is left out: name it with --baseline FILE")
    return publish_run(found, arguments, targets)


def suite_for(found: Run, references: list[str], name: str) -> Suite:
    """The suite that a run was made with.

    Args:
        found: the run.
        references: the suites of `--suite`.
        name: the run's file, for messages.

    Raises:
        UsageError: the references name another suite.
    """
    suite = suite_of(references)
    ours, theirs = (suite.name, suite.version), (found.header.suite, found.header.suite_version)
    if ours != theirs:
        raise UsageError(
            f"{name}: it is of the suite {' '.join(theirs)}, and this is {' '.join(ours)}; run "
            "again, or name its suite with --suite"
        )
    return suite
