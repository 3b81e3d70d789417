"""The command line: its commands, and the exit code of an error. `--help` imports nothing heavy."""

from __future__ import annotations

import gc
import os
import sys

from gradcheck.cli import console, examples
from gradcheck.cli.exit_codes import HELP, INTERNAL, INTERRUPTED, OK, USAGE
from gradcheck.cli.parser import Parser, mention
from gradcheck.errors import GradcheckError
from gradcheck.system.process import as_ctrl_c

TYPE_CHECKING = False  # as type checkers know it, without importing `typing`
if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Sequence
    from typing import Final

COMMANDS: Final = (
    ("demo", "demo:add", "three bundled kernels: right, wrong, crashing"),
    ("run", "run:add", "judge implementations"),
    ("repro", "repro:add", "one case in full, or as a script"),
    ("list", "listing:add_list", "operators, models and update rules"),
    ("explain", "listing:add_explain", "what one check consists of"),
    ("init", "init:add", "a first manifest for a C library or a program"),
    ("report", "stored:add_report", "a run on file, rendered again"),
    ("merge", "stored:add_merge", "shards of a run as one"),
    ("baseline", "baseline:add", "failures that are known, and no others"),
    ("diff", "stored:add_diff", "what changed between two runs"),
    ("power", "power:add", "prove that every check can fail"),
    ("export", "export:add_export", "cases on file, for code that is not bound"),
    ("judge", "export:add_judge", "the answers to them"),
    ("probe", "probe:add", "lint a program that speaks the protocol"),
    ("schema", "listing:add_schema", "what a JSON report holds"),
    ("completion", "completion:add", "a script for bash, zsh or fish"),
)
"""Name, the function in `gradcheck.cli` that adds its flags, and its line in `--help`."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; returns the exit code."""
    console.open_streams()
    gc.set_threshold(50_000, 20, 20)  # a short-lived process: collecting costs 5% of it
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # small products: more are slower
    try:
        return _carried_out(sys.argv[1:] if argv is None else argv)
    except GradcheckError as error:
        console.say(str(error))
        return error.exit_code
    except KeyboardInterrupt:
        console.tell("gradcheck: interrupted")
        return INTERRUPTED
    except console.ClosedPipe:  # `gradcheck … | head`
        return INTERRUPTED
    except Exception as error:  # noqa: BLE001  1 would say that the gate failed
        if isinstance(error, FileNotFoundError) and not os.path.exists(os.curdir):  # noqa: PTH110
            console.say("the working directory was removed; change into another one")
            return USAGE
        import traceback

        console.tell(traceback.format_exc().rstrip())
        console.say(f"internal error: {type(error).__name__}: {error}; please report it")
        return INTERNAL
    finally:
        console.tell("", end="")  # a closed stderr does not change the exit code


def _carried_out(words: Sequence[str]) -> int:
    """Run the command; every signal that ends it acts as Ctrl-C."""
    with as_ctrl_c():
        arguments, unknown = _parser(words).parse_known_args(words)
        if unknown:
            arguments.parser.refuse(unknown)
        command: Callable[[argparse.Namespace], int] = arguments.command
        return command(arguments)


def _parser(words: Sequence[str] | None = None) -> Parser:
    """The parser; of commands that are not among `words` it knows the names alone."""
    first = examples.text("first steps", examples.FIRST)
    codes = examples.text("exit codes", HELP)
    parser = Parser(
        prog="gradcheck",
        description="Judge hand-written backward passes against the true derivative.",
        epilog=f"{first}\n\n{codes}",
    )
    parser.add_argument("--version", action="store_true", help="print the version and exit")
    parser.set_defaults(command=_no_command(parser), whole=_parser)
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", prog="gradcheck")
    for name, where, what in COMMANDS:
        if words is None or name in words:
            _adder(where)(commands.add_parser(name, help=what))
        else:
            mention(commands, name, what)
    return parser


def _adder(where: str) -> Callable[[Parser], None]:
    """The function that adds a command's flags; its module is imported now."""
    from importlib import import_module

    module, _, name = where.partition(":")
    add: Callable[[Parser], None] = getattr(import_module(f"gradcheck.cli.{module}"), name)
    return add


def _no_command(parser: Parser) -> Callable[[argparse.Namespace], int]:
    def command(arguments: argparse.Namespace) -> int:
        if arguments.version:
            from gradcheck import __version__

            return OK if console.show(f"gradcheck {__version__}\n") else USAGE
        parser.print_help(sys.stderr)
        return USAGE

    return command
