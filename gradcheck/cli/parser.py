"""The parser of the command line: help that fits the terminal, mistakes answered in one line."""

from __future__ import annotations

import argparse
import re
import sys

from gradcheck.cli import console, examples
from gradcheck.cli.exit_codes import USAGE
from gradcheck.errors import UnknownNameError, nearest

TYPE_CHECKING = False  # as type checkers know it, without importing `typing`
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any, Final, NoReturn

MAX_WIDTH: Final = 100
"""Columns beyond which lines are hard to read."""
PIPE_WIDTH: Final = 80
"""Columns of help that is not shown in a terminal."""
MAX_USAGE_FLAGS: Final = 5
"""Flags that the usage line lists."""
INVALID: Final = re.compile(r"argument (?:COMMAND|ACTION): invalid choice: '(.*?)' \(", re.DOTALL)


class Help(argparse.HelpFormatter):
    """Wraps descriptions and lays out the tables of epilogs in the width of the terminal."""

    def __init__(self, prog: str) -> None:
        """Take the terminal's width, up to `MAX_WIDTH`."""
        width = min(console.columns(sys.__stdout__, PIPE_WIDTH), MAX_WIDTH)
        super().__init__(prog, max_help_position=28, width=width - 2)

    def add_usage(self, usage: Any, actions: Any, groups: Any, prefix: Any = None) -> None:
        """Add the usage line, which lists flags only where they are few."""
        named = [action for action in actions if not action.option_strings]
        if len(actions) - len(named) > MAX_USAGE_FLAGS:
            self._prog += " [flags]"
            actions, groups = named, []
        super().add_usage(usage, actions, groups, prefix)

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        if "\t" not in text:
            return super()._fill_text(text, width, indent)
        return "\n\n".join(_laid_out(block.splitlines(), width) for block in text.split("\n\n"))


def _laid_out(lines: list[str], width: int) -> str:
    """A title and rows of two columns; the second below the first where they do not fit."""
    import textwrap

    title, *rows = lines
    cells = [row.partition("\t")[::2] for row in rows]
    column = 4 + max(len(left) for left, _ in cells)
    if column + max(len(right) for _, right in cells) <= width:
        return "\n".join([title, *(f"  {left}".ljust(column) + right for left, right in cells)])
    shown = [title]
    for left, right in cells:
        shown += [f"  {left}", *textwrap.wrap(right, width, initial_indent=" " * 6,
                                              subsequent_indent=" " * 6)]  # fmt: skip
    return "\n".join(shown)


class Parser(argparse.ArgumentParser):
    """A parser of a command, with the command's examples as its epilog."""

    def __init__(self, **options: Any) -> None:
        """Take the options of `argparse.ArgumentParser`."""
        options.setdefault("formatter_class", Help)
        super().__init__(**options)
        if self.epilog is None:
            self.epilog = examples.of(self.command)
        self.set_defaults(parser=self)

    @property
    def command(self) -> str:
        """The command's words, without the program's name."""
        return self.prog.partition(" ")[2]

    def error(self, message: str) -> NoReturn:
        """Report a mistake in one line on stderr, and exit with the code of a usage error."""
        mistaken = INVALID.search(message)
        if mistaken:
            message = str(UnknownNameError("command", mistaken[1], self._commands()))
        where = f"{self.command}: " if self.command else ""
        console.say(f"{where}{message.removeprefix('argument ')}; see `{self.prog} --help`")
        self.exit(USAGE)

    def _print_message(self, message: str, file: Any = None) -> None:
        """Write help to stdout; exit with the code of a usage error where that fails."""
        if file is not sys.stdout:
            super()._print_message(message, file)
        elif not console.show(message):
            self.exit(USAGE)

    def refuse(self, words: Sequence[str]) -> NoReturn:
        """Report words that this command does not know, with the nearest flag."""
        flag = next((word for word in words if word.startswith("-") and word != "--"), "")
        if not flag:
            hint = (
                "; an operator is named with --op" if "--op" in self._option_string_actions else ""
            )
            self.error(f"unexpected {words[0]!r}{hint}")
        name = flag.partition("=")[0]
        near = nearest(name, self._option_string_actions)
        self.error(f"unknown flag {name!r}" + (f": did you mean {near!r}?" if near else ""))

    def _commands(self) -> list[str]:
        return [
            name
            for action in self._actions
            if isinstance(action, argparse._SubParsersAction)
            for name in action.choices
        ]


def mention(commands: argparse._SubParsersAction[Parser], name: str, what: str) -> None:
    """List a command without making its parser: all of them take half of a start."""
    commands._choices_actions.append(commands._ChoicesPseudoAction(name, [], what))
    commands._name_parser_map[name] = None  # type: ignore[assignment]  # it is a choice
