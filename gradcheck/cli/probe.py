"""`gradcheck probe`: does a program speak the protocol well?"""

from __future__ import annotations

import argparse
from pathlib import Path

from gradcheck.cli import console
from gradcheck.cli.exit_codes import GATE, OK, USAGE
from gradcheck.cli.options import add as add_options
from gradcheck.cli.options import suite_of
from gradcheck.errors import UsageError
from gradcheck.system.user_modules import here

LEVELS = ("frames", "jsonl", "oneshot")


def add(parser: argparse.ArgumentParser) -> None:
    """Add its flags."""
    parser.description = (
        "Start a program that speaks GRADCHECK/1, send it every message that there is and some "
        "that there are not, broken ones included, and say what it does badly."
    )
    parser.add_argument(
        "--level", choices=LEVELS, default="frames", help="how messages travel; default frames"
    )
    add_options(
        parser, "op", help="ask only for operators that match (repeat); default: all that it offers"
    )
    add_options(
        parser, "timeout", type=float, default=10.0,
        help="seconds that an answer may take; default 10",
    )  # fmt: skip
    add_options(parser, "suite")
    parser.add_argument("program", nargs="+", metavar="CMD", help="after --: the program")
    parser.set_defaults(command=probe)


def probe(arguments: argparse.Namespace) -> int:
    """Try the program; returns the exit code."""
    ok = arguments.timeout > 0
    if not ok:
        raise UsageError(f"--timeout {arguments.timeout:g}: nothing answers in no time")
    from gradcheck.cli.conformance.check import Outcome, line, summary
    from gradcheck.implementations.manifest.operation import Program

    if arguments.level == "oneshot":
        from gradcheck.cli.conformance.oneshot import checks
    else:
        from gradcheck.cli.conformance.session import checks

    suite = suite_of(arguments.suite)
    command = tuple(arguments.program)
    program = Program(
        name=Path(command[0]).name,
        path=here() / "gradcheck.toml",
        command=command,
        level=arguments.level,
        timeout=arguments.timeout,
    )
    found = []
    written = True
    for check in checks(program, suite, arguments.op):
        found.append(check)
        written &= console.show(line(check))
    written &= console.show(summary(found))
    if not written:
        return USAGE
    return GATE if any(check.outcome is Outcome.FAIL for check in found) else OK
