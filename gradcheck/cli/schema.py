"""`gradcheck schema`: the schema of what `-o` writes for programs."""

from __future__ import annotations

import argparse
from importlib import resources

from gradcheck.cli import console
from gradcheck.cli.outcome import OK, USAGE

KINDS = {"report": "report-1.json", "log": "log-1.json"}
"""What is published, and in which file."""


def add(parser: argparse.ArgumentParser) -> None:
    """Its flags."""
    parser.description = (
        "Print the JSON schema of a report (-o FILE.json) or of each line of a log (-o FILE.jsonl)."
    )
    parser.add_argument(
        "kind", nargs="?", choices=tuple(KINDS), default="report", help="default: report"
    )
    parser.set_defaults(command=schema)


def schema(arguments: argparse.Namespace) -> int:
    """Print it; returns the exit code."""
    file = resources.files("gradcheck.results.stored") / "schemas" / KINDS[arguments.kind]
    return OK if console.show(file.read_text("utf-8")) else USAGE
