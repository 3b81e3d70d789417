"""`gradcheck list`, `explain` and `schema`: what can be judged, and what reports contain."""

from __future__ import annotations

import argparse
import sys
from importlib import resources
from typing import Final

from gradcheck.cli import console
from gradcheck.cli.exit_codes import NOTHING, OK, USAGE
from gradcheck.cli.options import add, add_sections, choice, suite_of
from gradcheck.errors import UnknownNameError
from gradcheck.results import words
from gradcheck.run.options import SELECTION

SCHEMAS: Final = {"report": "report-1.json", "log": "log-1.json"}
"""The files of the published schemas."""


def add_list(parser: argparse.ArgumentParser) -> None:
    """Add the flags of `list`."""
    parser.description = "Show what there is to be judged: operators, models and update rules."
    add_sections(parser, SELECTION, default="all, models and rules too")
    parser.add_argument("--json", action="store_true", help="as JSON")
    parser.set_defaults(command=list_)


def add_explain(parser: argparse.ArgumentParser) -> None:
    """Add the flags of `explain`."""
    parser.description = (
        "Show what a check consists of: formula, source, dialects, what is accepted at kinks, the "
        "samples and the defect that each hunts, and the bounds."
    )
    parser.add_argument("name", metavar="OP|MODEL|RULE", help="one name, as `list` shows it")
    add(parser, "suite")
    parser.set_defaults(command=explain)


def list_(arguments: argparse.Namespace) -> int:
    """Show what the flags select; returns the exit code."""
    from gradcheck.report import catalogue

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
    from gradcheck.report import catalogue, page

    suite = suite_of(arguments.suite)
    if arguments.name not in suite.home:
        raise UnknownNameError("operator, model or rule", arguments.name, suite.home)
    width = min(console.width(sys.stdout), page.WIDTH)
    told = words.several(catalogue.explain(suite, arguments.name, width))
    return OK if console.show(f"{told}\n") else USAGE


def add_schema(parser: argparse.ArgumentParser) -> None:
    """Add the flags of `schema`."""
    parser.description = (
        "Print the JSON schema of a report (-o FILE.json) or of each line of a log (-o FILE.jsonl)."
    )
    parser.add_argument(
        "kind", nargs="?", choices=tuple(SCHEMAS), default="report", help="default: report"
    )
    parser.set_defaults(command=schema)


def schema(arguments: argparse.Namespace) -> int:
    """Print a schema; returns the exit code."""
    file = resources.files("gradcheck.results.stored") / "schemas" / SCHEMAS[arguments.kind]
    return OK if console.show(file.read_text("utf-8")) else USAGE
