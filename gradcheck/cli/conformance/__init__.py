"""`gradcheck probe`: checks of a program that speaks GRADCHECK/1."""

from __future__ import annotations

import argparse
from pathlib import Path

from gradcheck.cli import console
from gradcheck.cli.conformance import oneshot, session
from gradcheck.cli.conformance.check import Outcome, line, summary
from gradcheck.cli.exit_codes import GATE, OK, USAGE
from gradcheck.cli.project_defaults import suite_of
from gradcheck.errors import UsageError
from gradcheck.implementations.manifest.operation import Program
from gradcheck.system.user_modules import here


def probe(arguments: argparse.Namespace) -> int:
    """Try the program; returns the exit code."""
    ok = arguments.timeout > 0
    if not ok:
        raise UsageError(f"--timeout {arguments.timeout:g}: nothing answers in no time")
    checks = oneshot.checks if arguments.level == "oneshot" else session.checks
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
