"""`gradcheck completion`: a script for a shell that completes commands, flags, names and files."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from typing import Any, Final

import shtab

from gradcheck.cli import console
from gradcheck.cli.exit_codes import OK, USAGE
from gradcheck.cli.project_defaults import suite_of
from gradcheck.report import FORMATS
from gradcheck.spec.dtype_selection import ALL, CERTIFIED, DTYPES, LOW

ENDINGS: Final = ("FILE", ".json", ".jsonl", ".toml", ".so", ".h")
"""How the metavars of files begin or end."""


def completion(arguments: argparse.Namespace) -> int:
    """Print the script; returns the exit code. `whole` makes the parser of all commands."""
    parser = arguments.whole()
    names = _names(arguments.suite)
    for action in _actions(parser):
        wanted = _wanted(action, names)
        if wanted is not None:
            action.complete = wanted  # type: ignore[attr-defined]  # where shtab looks for it
    script = shtab.complete(parser, arguments.shell, preamble=PREAMBLE)  # type: ignore[arg-type]
    return OK if console.show(f"{script.rstrip()}\n") else USAGE


PREAMBLE: Final = {
    "bash": """\
_gradcheck_file_impl() {
  compgen -W "reference torch jax" -- "$1"
  compgen -f -X '!*.toml' -- "$1"
  compgen -d -- "$1"
}
""",
    "zsh": """\
_gradcheck_impl() {
  compadd -- reference torch jax
  _files -g '*.toml'
}
""",
}
IMPLEMENTATION: Final = {
    "bash": "_gradcheck_file_impl",
    "zsh": "_gradcheck_impl",
    "fish": "reference torch jax (__fish_complete_suffix .toml)",
}
"""Values of --impl that can be listed: modules cannot."""


def _names(references: list[str]) -> dict[str, list[str]]:
    """The values of a flag, by the attribute that it sets."""
    suite = suite_of(references)
    points = [s.name for op in suite for s in op.samples]
    points += [s.name for model in suite.models.values() for s in model.sizes]
    points += [s.name for rule in suite.rules.values() for s in rule.samples]
    specs = [*suite, *suite.models.values(), *suite.rules.values()]
    systems = {s for op in suite for k in op.kinks for c in k.conventions for s in c.systems}
    return {
        "op": [*suite.operators],
        "model": [*suite.models],
        "rule": [*suite.rules],
        "dialect": sorted({dialect.name for spec in specs for dialect in spec.dialects}),
        "sample": sorted({*points}),
        "name": [*suite.home],
        "require": [*suite.home],
        "dtype": [*DTYPES, *LOW, CERTIFIED, ALL],
        "format": [*FORMATS],
        "convention": sorted(systems),
    }


def _actions(parser: argparse.ArgumentParser) -> Iterator[argparse.Action]:
    """The flags and arguments of all commands."""
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for choice in action._choices_actions:  # shells show a few words
                action.choices[choice.dest].description = choice.help
            for below in action.choices.values():
                yield from _actions(below)
        else:
            yield action


def _wanted(action: argparse.Action, names: dict[str, list[str]]) -> dict[str, Any] | None:
    """The values that shells offer; None: the parser's choices, or nothing."""
    metavar = str(action.metavar or "")
    if action.choices is not None or action.nargs == 0:
        return None
    if action.dest == "impl":
        return IMPLEMENTATION
    if metavar == "DIR":
        return dict(shtab.DIRECTORY)
    if metavar.startswith(("FILE", "CMD")) or metavar.endswith(ENDINGS):
        return dict(shtab.FILE)
    known = action.dest in names and metavar != "CASE"
    return _words(action.dest, names[action.dest]) if known else None


def _words(kind: str, words: list[str]) -> dict[str, Any]:
    """A completion by a list of words."""
    function, line = f"_gradcheck_{kind}", " ".join(words)
    body = f'{function}() {{\n  compgen -W "{line}" -- "$1"\n}}\n'
    return {"bash": function, "zsh": f"({line})", "fish": line, "preamble": {"bash": body}}
