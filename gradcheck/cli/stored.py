"""`gradcheck report`, `merge` and `diff`: runs on file, rendered again, joined or compared."""

from __future__ import annotations

import argparse
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Final

from gradcheck.cli import console
from gradcheck.cli.exit_codes import exit_code
from gradcheck.cli.gate import baseline_of, held, required_of
from gradcheck.cli.project_defaults import suite_of
from gradcheck.cli.reports import (
    check_format,
    page_options,
    publish_run,
    refuse_formats,
    save,
    targets_of,
)
from gradcheck.errors import UnknownNameError, UsageError
from gradcheck.report import diff as pages
from gradcheck.results.diff.change import Diff, Mark, Side, chosen, slug
from gradcheck.results.diff.compare import compared, implementations, of
from gradcheck.results.run import Run
from gradcheck.results.stored.read import read
from gradcheck.results.words import plural

if TYPE_CHECKING:
    from gradcheck.spec.suite import Suite

SEPARATOR: Final = "::"
"""Between a report and one of its implementations."""


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
    from gradcheck.run.merge import Named, merged  # door: it imports NumPy

    named = [Named(str(path), read(path)) for path in arguments.runs]
    found = merged(named)
    suite = cache(lambda: suite_for(found, arguments.suite, named[0].name))
    found = required_of(found, arguments, suite)
    if baseline is not None:
        found = held(found, baseline, suite())
    elif any(one.run.gate for one in named):
        console.say("the baseline of the parts is ignored: name it with --baseline FILE")
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
            f"{name}: its suite is {' '.join(theirs)}, expected {' '.join(ours)}; run "
            "again, or name its suite with --suite"
        )
    return suite


# ── diff ─────────────────────────────────────────────────────────────────────────────────────────


def diff(arguments: argparse.Namespace) -> int:
    """Compare two reports; returns the exit code."""
    targets = targets_of(arguments.outputs)
    refuse_formats(targets, pages.FORMATS, "diff")
    if arguments.format not in pages.FORMATS:
        raise UnknownNameError("format", arguments.format, pages.FORMATS)
    marks = _marks(arguments.fail_on)
    found = _found(arguments)
    written = [save(path, pages.render(found, form)) for path, form in targets]
    shown = pages.render(found, arguments.format, **page_options(arguments))
    written.append(console.show(shown))
    if not found.compared:
        console.say("nothing can be compared: the reports have no case in common")
    return exit_code(
        written=all(written) and found.compared > 0, passed=not chosen(found.entries, marks)
    )


def _marks(words: list[str]) -> list[str]:
    """The marks of `--fail-on`.

    Raises:
        UnknownNameError: a mark does not exist.
    """
    known = ["worse", "change", *map(slug, Mark)]
    found = [part.strip() for word in words for part in word.split(",")]
    for word in found:
        if word not in known:
            raise UnknownNameError("mark", word, known)
    return found or ["worse"]


def _found(arguments: argparse.Namespace) -> Diff:
    """The difference between the reports that the arguments name.

    Raises:
        UsageError: a report cannot be read, or the pair is ambiguous.
    """
    first, one = _named(arguments.old)
    if arguments.new is None:
        if one:
            raise UsageError(
                f"{arguments.old}: name NEW, too: {first}{SEPARATOR}OTHER, or a report"
            )
        old, new, pairs = _within(first)
    else:
        second, other = _named(arguments.new)
        run = read(first)
        old = _side(first, run, one)
        new = _side(second, run if second == first else read(second), other)
        pairs = _pairs(old, new, explicit=bool(one or other))
    return compared(old, new, pairs, arguments.factor)


def _named(word: str) -> tuple[Path, str]:
    """A report, and the implementation named behind it; a file's own name may contain `::`."""
    path, apart, name = word.partition(SEPARATOR)
    if not apart or Path(word).exists():
        return Path(word), ""
    if not path or not name:
        raise UsageError(f"{word!r}: write REPORT{SEPARATOR}IMPLEMENTATION")
    return Path(path), name


def _within(path: Path) -> tuple[Side, Side, dict[str, str]]:
    """Both sides of a report on two implementations.

    Raises:
        UsageError: it has fewer or more.
    """
    run = read(path)
    names = implementations(run)
    if len(names) != 2:
        raise UsageError(
            f"{path}: it has {plural(len(names), 'implementation')} "
            f"({', '.join(names) or 'none'}), and one report alone is compared if it has two; "
            f"name another report, or {path}{SEPARATOR}A {path}{SEPARATOR}B"
        )
    return _side(path, run, names[0]), _side(path, run, names[1]), {names[0]: names[1]}


def _side(path: Path, run: Run, name: str) -> Side:
    """A report, or one implementation of it.

    Raises:
        UnknownNameError: it has no such implementation.
    """
    side = Side(name=str(path), run=run)
    if not name:
        return side
    if name not in implementations(run):
        raise UnknownNameError(f"implementation of {path}", name, implementations(run))
    return of(side, (name,))


def _pairs(old: Side, new: Side, *, explicit: bool) -> dict[str, str]:
    """Which implementations are compared: the only ones, or those of the same name.

    Raises:
        UsageError: the pair is ambiguous.
    """
    before, after = implementations(old.run), implementations(new.run)
    if len(before) == len(after) == 1:
        return {before[0]: after[0]}
    common = [name for name in before if name in after]
    if explicit and len(common) != 1:
        common = []
    if not common:
        raise UsageError(
            f"{old.name} has {', '.join(before) or 'none'}, and {new.name} "
            f"{', '.join(after) or 'none'}: name the two to compare, "
            f"{old.name}{SEPARATOR}NAME {new.name}{SEPARATOR}NAME"
        )
    return {name: name for name in common}
