"""`gradcheck list`, `explain` and `schema`: what can be judged, and what reports contain."""

from __future__ import annotations

import argparse
import sys
from importlib import resources
from typing import Final

from gradcheck.cli import console
from gradcheck.cli.exit_codes import NOTHING, OK, USAGE
from gradcheck.cli.project_defaults import choice, suite_of
from gradcheck.errors import UnknownNameError
from gradcheck.report import catalogue, page
from gradcheck.results import words

SCHEMAS: Final = {"report": "report-1.json", "log": "log-1.json"}
"""The files of the published schemas."""


def list_(arguments: argparse.Namespace) -> int:
    """Show what the flags select; returns the exit code."""
    suite = suite_of(arguments.suite)
    chosen = choice(arguments).everything(suite)
    if arguments.json:
        text = catalogue.as_json(suite, chosen)
    else:  # in a pipe a line each, for grep
        width = console.width(sys.stdout) if sys.stdout.isatty() else None
        text = catalogue.as_table(suite, chosen, width)
    if not console.show(f"{text}\n"):
        return USAGE
    return OK if chosen else NOTHING


def explain(arguments: argparse.Namespace) -> int:
    """Show one spec; returns the exit code."""
    suite = suite_of(arguments.suite)
    if arguments.name not in suite.home:
        raise UnknownNameError("operator, model or rule", arguments.name, suite.home)
    width = min(console.columns(sys.stdout), page.WIDTH)
    told = words.several(catalogue.explain(suite, arguments.name, width))
    return OK if console.show(f"{told}\n") else USAGE


def schema(arguments: argparse.Namespace) -> int:
    """Print a schema; returns the exit code."""
    file = resources.files("gradcheck.results.stored") / "schemas" / SCHEMAS[arguments.kind]
    return OK if console.show(file.read_text("utf-8")) else USAGE
