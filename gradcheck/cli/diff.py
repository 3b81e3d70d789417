"""`gradcheck diff`: what changed between two runs, or how two implementations differ."""

from __future__ import annotations

import argparse
import math
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gradcheck.cli import console
from gradcheck.cli.flags import add_color
from gradcheck.cli.outcome import exit_code, refuse_formats, save, targets_of
from gradcheck.errors import UnknownNameError, UsageError

if TYPE_CHECKING:
    from gradcheck.results.diff.change import Diff, Side
    from gradcheck.results.run import Run

APART = "::"
"""Between a report and the implementation in it that is meant."""


def add(parser: argparse.ArgumentParser) -> None:
    """Its flags."""
    parser.description = (
        "Hold two reports against each other, result by result. A report is what `gradcheck run "
        "-o RUN.json` or `-o RUN.jsonl` wrote; RUN.json::NAME is one implementation of it."
    )
    parser.add_argument("old", metavar="OLD", help="a report, or REPORT::IMPLEMENTATION")
    parser.add_argument(
        "new", metavar="NEW", nargs="?",
        help="another one; default: the second implementation of OLD",
    )  # fmt: skip
    parser.add_argument(
        "--factor", type=_factor, default=2.0, metavar="F",
        help="an error that grew by more than F, and by more than a tenth of its bound, is worse; "
        "default 2",
    )  # fmt: skip
    parser.add_argument(
        "--fail-on", action="append", default=[], metavar="MARK",
        help="exit 1 for these marks (newly-failing, error-grew, …; repeat, or a,b), for `worse` "
        "(default) or for any `change`",
    )  # fmt: skip
    parser.add_argument(
        "-o", dest="outputs", action="append", default=[], metavar="FILE[:FORMAT]",
        help="write a report: .md .html .json .txt, or FILE:github (repeat)",
    )  # fmt: skip
    parser.add_argument(
        "--format", default="terminal", metavar="FORMAT",
        help="what stdout carries: terminal (default), markdown, html, json, github",
    )  # fmt: skip
    add_color(parser)
    parser.set_defaults(command=diff)


def diff(arguments: argparse.Namespace) -> int:
    """Compare two reports; returns the exit code."""
    from gradcheck.report import diff as pages
    from gradcheck.results.diff.change import chosen

    targets = targets_of(arguments.outputs)
    refuse_formats(targets, pages.FORMATS, "diff")
    if arguments.format not in pages.FORMATS:
        raise UnknownNameError("format", arguments.format, pages.FORMATS)
    marks = _marks(arguments.fail_on)
    found = _found(arguments)
    written = [save(path, pages.render(found, form)) for path, form in targets]
    how: dict[str, Any] = {
        "color": console.colored(arguments.color),
        "width": console.width(sys.stdout),
    }
    written.append(console.show(pages.render(found, arguments.format, **how)))
    if not found.compared:
        console.say("nothing can be compared: the reports have no case in common")
    return exit_code(
        written=all(written) and found.compared > 0, passed=not chosen(found.entries, marks)
    )


def _factor(word: str) -> float:
    factor = float(word)
    if not 1 <= factor < math.inf:
        raise argparse.ArgumentTypeError(f"{word} is no factor to grow by; write 1 or more")
    return factor


def _marks(words: list[str]) -> list[str]:
    """The marks of `--fail-on`.

    Raises:
        UnknownNameError: there is no such mark.
    """
    from gradcheck.results.diff.change import Mark, slug

    known = ["worse", "change", *map(slug, Mark)]
    found = [part.strip() for word in words for part in word.split(",")]
    for word in found:
        if word not in known:
            raise UnknownNameError("mark", word, known)
    return found or ["worse"]


def _found(arguments: argparse.Namespace) -> Diff:
    """The difference that is asked for.

    Raises:
        UsageError: a report cannot be read, or it is not clear what to compare.
    """
    from gradcheck.results.diff.compare import compared

    first, one = _named(arguments.old)
    if arguments.new is None:
        if one:
            raise UsageError(f"{arguments.old}: name NEW, too: {first}{APART}OTHER, or a report")
        old, new, pairs = _within(first)
    else:
        second, other = _named(arguments.new)
        run = _read(first)
        old = _side(first, run, one)
        new = _side(second, run if second == first else _read(second), other)
        pairs = _pairs(old, new, explicit=bool(one or other))
    return compared(old, new, pairs, arguments.factor)


def _named(word: str) -> tuple[Path, str]:
    """A report, and the implementation that is named behind it; a file may be called like that."""
    path, apart, name = word.partition(APART)
    if not apart or Path(word).exists():
        return Path(word), ""
    if not path or not name:
        raise UsageError(f"{word!r}: write REPORT{APART}IMPLEMENTATION")
    return Path(path), name


def _read(path: Path) -> Run:
    from gradcheck.results.stored.read import read

    return read(path)


def _within(path: Path) -> tuple[Side, Side, dict[str, str]]:
    """Both sides of a report that holds two implementations.

    Raises:
        UsageError: it holds fewer or more.
    """
    from gradcheck.results.diff.compare import implementations

    run = _read(path)
    names = implementations(run)
    if len(names) != 2:
        raise UsageError(
            f"{path}: it holds {len(names)} implementation{'s' * (len(names) != 1)} "
            f"({', '.join(names) or 'none'}), and one report alone is compared where it holds two; "
            f"name another report, or {path}{APART}A {path}{APART}B"
        )
    return _side(path, run, names[0]), _side(path, run, names[1]), {names[0]: names[1]}


def _side(path: Path, run: Run, name: str) -> Side:
    """A report, or one implementation of it.

    Raises:
        UnknownNameError: it does not hold that one.
    """
    from gradcheck.results.diff.change import Side
    from gradcheck.results.diff.compare import implementations, of

    side = Side(name=str(path), run=run)
    if not name:
        return side
    if name not in implementations(run):
        raise UnknownNameError(f"implementation of {path}", name, implementations(run))
    return of(side, (name,))


def _pairs(old: Side, new: Side, *, explicit: bool) -> dict[str, str]:
    """Which implementation is held against which: the only ones, or those of one name.

    Raises:
        UsageError: that is not clear.
    """
    from gradcheck.results.diff.compare import implementations

    before, after = implementations(old.run), implementations(new.run)
    if len(before) == len(after) == 1:
        return {before[0]: after[0]}
    common = [name for name in before if name in after]
    if explicit and len(common) != 1:
        common = []
    if not common:
        raise UsageError(
            f"{old.name} holds {', '.join(before) or 'nobody'}, and {new.name} "
            f"{', '.join(after) or 'nobody'}: say which to compare, "
            f"{old.name}{APART}NAME {new.name}{APART}NAME"
        )
    return {name: name for name in common}
