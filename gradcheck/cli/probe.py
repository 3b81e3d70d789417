"""`gradcheck probe`: does a program speak the protocol well?"""

from __future__ import annotations

import argparse
from pathlib import Path

from gradcheck.cli import console
from gradcheck.cli.flags import add_suite, suite_of
from gradcheck.cli.outcome import GATE, OK, USAGE
from gradcheck.errors import UsageError
from gradcheck.system.user_modules import here

LEVELS = ("frames", "jsonl", "oneshot")


def add(parser: argparse.ArgumentParser) -> None:
    """Flags of `probe`."""
    parser.description = (
        "Start a program that speaks GRADCHECK/1, send it every message that there is and some "
        "that there are not, broken ones included, and say what it does badly."
    )
    parser.add_argument(
        "--level", choices=LEVELS, default="frames", help="how messages travel; default frames"
    )
    parser.add_argument(
        "--op", action="append", default=[], metavar="GLOB",
        help="ask only for operators that match (repeat); default: all that it offers",
    )  # fmt: skip
    parser.add_argument(
        "--timeout", type=float, default=10.0, metavar="S",
        help="seconds that an answer may take; default 10",
    )  # fmt: skip
    add_suite(parser)
    parser.add_argument("program", nargs="+", metavar="CMD", help="after --: the program")
    parser.set_defaults(command=probe)


def probe(arguments: argparse.Namespace) -> int:
    """Try the program; returns the exit code."""
    ok = arguments.timeout > 0
    if not ok:
        raise UsageError(f"--timeout {arguments.timeout:g}: nothing answers in no time")
    from gradcheck.cli.conformance import report as page
    from gradcheck.cli.conformance.check import Outcome
    from gradcheck.implementations.manifest.operation import Program

    if arguments.level == "oneshot":
        from gradcheck.cli.conformance.probe_oneshot import probe as checks_of
    else:
        from gradcheck.cli.conformance.probe import probe as checks_of

    suite = suite_of(arguments.suite)
    command = tuple(arguments.program)
    program = Program(
        name=Path(command[0]).name,
        path=here() / "gradcheck.toml",
        command=command,
        level=arguments.level,
        timeout=arguments.timeout,
    )
    checks = []
    written = True
    for check in checks_of(program, suite, arguments.op):
        checks.append(check)
        written &= console.show(page.line(check))
    written &= console.show(page.summary(checks))
    if not written:
        return USAGE
    return GATE if any(check.outcome is Outcome.FAIL for check in checks) else OK
