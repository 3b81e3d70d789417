"""`gradcheck merge`: the shards of a run as one, and runs of several implementations."""

from __future__ import annotations

import argparse
from functools import cache
from pathlib import Path

from gradcheck.cli import console
from gradcheck.cli.flags import add_suite
from gradcheck.cli.gate import add_gate, baseline_of, held, required_of
from gradcheck.cli.outcome import targets_of
from gradcheck.cli.published import add_output, check_format, publish_run
from gradcheck.cli.report import suite_for


def add(parser: argparse.ArgumentParser) -> None:
    """Its flags."""
    parser.description = (
        "Join what `gradcheck run --shard I/N -o SHARD.jsonl` wrote: the reports are those of one "
        "run of all cases, byte for byte. Runs of different implementations of the same cases "
        "stand side by side. A shard that is missing or incomplete makes the run incomplete."
    )
    parser.add_argument(
        "runs", metavar="SHARD.jsonl", type=Path, nargs="+", help="logs, or JSON reports"
    )
    add_suite(parser)
    add_gate(parser)
    add_output(parser)
    parser.set_defaults(command=merge)


def merge(arguments: argparse.Namespace) -> int:
    """Join the runs; returns the exit code."""
    targets = targets_of(arguments.outputs)
    check_format(arguments.format)
    baseline = baseline_of(arguments, targets)
    from gradcheck.results.stored.read import read
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
