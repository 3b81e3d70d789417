"""`gradcheck list` and `gradcheck explain`: what there is, and what one check consists of."""

from __future__ import annotations

import argparse
import sys

from gradcheck.cli import console
from gradcheck.cli.flags import add_selection, add_suite, choice, suite_of
from gradcheck.cli.outcome import NOTHING, OK, USAGE
from gradcheck.errors import UnknownNameError


def add_list(parser: argparse.ArgumentParser) -> None:
    """Flags of `list`."""
    parser.description = "Show what there is to be judged: operators, models and update rules."
    add_selection(parser, "all, models and rules too")
    parser.add_argument("--json", action="store_true", help="as JSON")
    parser.set_defaults(command=list_)


def add_explain(parser: argparse.ArgumentParser) -> None:
    """Flags of `explain`."""
    parser.description = (
        "Show what a check consists of: formula, source, dialects, what is accepted at kinks, the "
        "samples and the defect that each hunts, and the bounds."
    )
    parser.add_argument("name", metavar="OP|MODEL|RULE", help="one name, as `list` shows it")
    add_suite(parser)
    parser.set_defaults(command=explain)


def list_(arguments: argparse.Namespace) -> int:
    """Show what the flags select; returns the exit code."""
    from gradcheck.report import catalogue

    suite = suite_of(arguments.suite)
    chosen = choice(arguments).everything(suite)
    if arguments.json:
        text = catalogue.as_json(suite, chosen)
    else:  # into a pipe a line each: it is to be searched
        width = console.width(sys.stdout) if sys.stdout.isatty() else None
        text = catalogue.as_table(suite, chosen, width)
    if not console.show(f"{text}\n"):
        return USAGE
    return OK if chosen else NOTHING


def explain(arguments: argparse.Namespace) -> int:
    """Show one spec; returns the exit code."""
    from gradcheck.report import catalogue, sections
    from gradcheck.results import words

    suite = suite_of(arguments.suite)
    if arguments.name not in suite.home:
        raise UnknownNameError("operator, model or rule", arguments.name, suite.home)
    width = min(console.width(sys.stdout), sections.WIDTH)
    told = words.several(catalogue.explain(suite, arguments.name, width))
    return OK if console.show(f"{told}\n") else USAGE
