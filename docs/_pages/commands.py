"""The command line: every command and every flag, from the parser that reads them."""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from _pages.text import block, code, front, joined, link, table, text
from gradcheck.cli import exit_codes, main
from gradcheck.cli import parser as parsing

HOME: Final = "reference/commands"
WIDTH: Final = 88

CODES: Final = {
    exit_codes.OK: "all as expected, and complete",
    exit_codes.GATE: "the gate failed: a result is wrong and not excused",
    exit_codes.USAGE: "usage, manifest, baseline or output path: nothing was judged, or a report "
    "could not be written",
    exit_codes.LOAD: "an implementation or a suite could not be loaded",
    exit_codes.NOTHING: "nothing was checked",
    exit_codes.INTERNAL: "an internal error, or an INVALID case of the suite",
    exit_codes.INTERRUPTED: "interrupted: the report is partial and marked so",
}
"""The exit codes by number; where several apply, the order is `exit_codes.exit_code`'s."""


def pages() -> Iterator[tuple[str, str]]:
    """Each page's path and Markdown."""
    commands = dict(_commands())
    yield f"{HOME}/index.md", _index(commands)
    for name, (parser, says) in commands.items():
        yield f"{HOME}/{name}.md", _command(name, parser, says)


def navigation() -> list[object]:
    """The commands' part of the navigation."""
    return [f"{HOME}/index.md", *({name: f"{HOME}/{name}.md"} for name, _ in _commands())]


def _commands() -> Iterator[tuple[str, tuple[argparse.ArgumentParser, str]]]:
    yield from _below(main._parser())


def parser_of(name: str) -> argparse.ArgumentParser:
    """The parser of one command."""
    return dict(_commands())[name][0]


def _below(
    parser: argparse.ArgumentParser,
) -> Iterator[tuple[str, tuple[argparse.ArgumentParser, str]]]:
    """The subcommands of a parser, by name, with their line in the list."""
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            says = {choice.dest: choice.help or "" for choice in action._choices_actions}
            for name, command in action.choices.items():
                if name in says:  # an alias has no line of its own
                    yield name, (command, says[name])


def _index(commands: dict[str, tuple[argparse.ArgumentParser, str]]) -> str:
    rows = [
        [link(code(f"gradcheck {name}"), f"{name}.md"), text(says)]
        for name, (_, says) in commands.items()
    ]
    codes = [[code(number), text(says)] for number, says in CODES.items()]
    parser = main._parser()
    return joined(
        front("Command line", "Every command of gradcheck, its flags and its exit codes"),
        "# Command line",
        text(parser.description or ""),
        "Generated from the parser; `--help` prints the same.",
        table(["command", "purpose"], rows),
        "## First steps",
        _examples(parsing.FIRST_STEPS),
        "## Exit codes {#exit-codes}",
        "Codes are not combined; if several apply, the first of 130, 5, 3, 2, 4, 1 is used.",
        table(["code", "meaning"], codes),
        "`gradcheck diff` has three: 0 no regression, 1 regression, 2 not comparable.",
        "## Flags before a command",
        *_groups(parser),
    )


def _examples(rows: parsing.Rows) -> str:
    """What `--help` shows below the flags, as a table."""
    return table(["command", "purpose"], [[code(line), text(what)] for line, what in rows])


def _command(name: str, parser: argparse.ArgumentParser, says: str) -> str:
    parts = [
        front(f"gradcheck {name}", says),
        f"# {code(f'gradcheck {name}')}",
        text(parser.description or says[:1].upper() + says[1:] + "."),
        *_usage(parser),
    ]
    if name in parsing.EXAMPLES:
        parts += ["## Examples", _examples(parsing.EXAMPLES[name])]
    for action, (below, what) in _below(parser):
        about = below.description or what
        parts += [f"## {code(f'gradcheck {name} {action}')}", text(about), *_usage(below)]
        if f"{name} {action}" in parsing.EXAMPLES:
            parts.append(_examples(parsing.EXAMPLES[f"{name} {action}"]))
    return joined(*parts)


def _usage(parser: argparse.ArgumentParser) -> list[str]:
    with _columns(WIDTH):
        usage = parser.format_usage().removeprefix("usage: ")
    dedented = "\n".join(line.removeprefix("       ") for line in usage.splitlines())
    return [block("text", dedented), _positionals(parser), *_groups(parser)]


@contextmanager
def _columns(count: int) -> Iterator[None]:
    """Set the width that argparse reads from the environment."""
    before = os.environ.get("COLUMNS")
    os.environ["COLUMNS"] = str(count + 2)
    try:
        yield
    finally:
        if before is None:
            del os.environ["COLUMNS"]
        else:
            os.environ["COLUMNS"] = before


def _positionals(parser: argparse.ArgumentParser) -> str:
    rows = [
        [code(action.metavar or action.dest), text(said(parser, action))]
        for action in parser._actions
        if not action.option_strings and not isinstance(action, argparse._SubParsersAction)
    ]
    return table(["argument", "meaning"], rows) if rows else ""


def _groups(parser: argparse.ArgumentParser) -> list[str]:
    """A table of flags per group, the command's own first."""
    parts = []
    for group in parser._action_groups:
        rows = [
            [_spelt(action), text(said(parser, action))]
            for action in group._group_actions
            if action.option_strings and action.help is not argparse.SUPPRESS
        ]
        if rows:
            own = group.title in ("options", None)
            parts += ["" if own else f"**{text((group.title or '').capitalize())}**"]
            parts += [text(group.description or ""), table(["flag", "meaning"], rows)]
    return parts


def _spelt(action: argparse.Action) -> str:
    takes = ""
    if action.nargs != 0:
        metavar = action.metavar or action.dest.upper()
        if action.choices is not None:
            metavar = "|".join(map(str, action.choices))
        takes = f" {metavar}"
    return ", ".join(
        f"<code>{flag}{takes}</code>".replace("|", "&#124;") for flag in action.option_strings
    )


def said(parser: argparse.ArgumentParser, action: argparse.Action) -> str:
    """The help of a flag or an argument, as `--help` shows it."""
    return str(parser._get_formatter()._expand_help(action)) if action.help else ""
