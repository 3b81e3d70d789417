"""The command line: its commands, and the exit code of an error. `--help` imports nothing heavy."""

from __future__ import annotations

import gc
import os
import sys

from gradcheck import __version__
from gradcheck.cli import console
from gradcheck.cli.exit_codes import HELP, INTERNAL, INTERRUPTED, OK, USAGE
from gradcheck.cli.parser import FIRST_STEPS, Parser, epilog, mention
from gradcheck.errors import GradcheckError
from gradcheck.system.process import as_ctrl_c

TYPE_CHECKING = False  # as type checkers know it, without importing `typing`
if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Sequence
    from typing import Final

COMMANDS: Final = (
    ("demo", "judge three bundled kernels: right, wrong, crashing"),
    ("run", "judge implementations"),
    ("repro", "show one case in full, or write it as a script"),
    ("list", "list operators, models and update rules"),
    ("explain", "show an operator's signature, formula, samples and tolerances"),
    ("init", "write a first manifest, empty kernels or a CI workflow"),
    ("report", "render a stored run in another format"),
    ("merge", "join the shards of a run"),
    ("baseline", "manage a file of known failures"),
    ("diff", "compare two runs"),
    ("power", "mutation test: try the checks on wrong gradients"),
    ("export", "write cases to files, for code that cannot be called"),
    ("judge", "judge the answers to exported cases"),
    ("probe", "test a program's use of the protocol"),
    ("schema", "print the JSON schema of reports"),
    ("completion", "print a script for bash, zsh or fish"),
)
"""Name, and line in `--help`."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; returns the exit code."""
    console.open_streams()
    gc.set_threshold(100_000, 20, 20)  # a short-lived process: collecting costs 5% of it
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
        import traceback  # door: only for an internal error

        console.tell(traceback.format_exc().rstrip())
        console.say(f"internal error: {type(error).__name__}: {error}; please report it")
        return INTERNAL
    finally:
        console.tell("", end="")  # a closed stderr does not change the exit code


def _carried_out(words: Sequence[str]) -> int:
    """Run the command; every signal that ends it acts as Ctrl-C."""
    if words[:1] == ["help"]:  # as other tools have it
        words = [*words[1:], "--help"]
    with as_ctrl_c():
        parser = _parser(words)
        if words and words[0].startswith("-") and not parser.knows(words[0]):
            parser.refuse(words[:1])
        arguments, unknown = parser.parse_known_args(words)
        if unknown:
            arguments.parser.refuse(unknown)
        try:
            return _function(arguments.command)(arguments)
        except GradcheckError as error:
            from gradcheck.cli.project_defaults import origin  # door: only for an error

            console.say(f"{origin(arguments, str(error))}{error}")
            return error.exit_code


def _parser(words: Sequence[str] | None = None) -> Parser:
    """The parser; of commands that are not among `words` it knows the names alone."""
    first = epilog("first steps", FIRST_STEPS)
    codes = epilog("exit codes", HELP)
    parser = Parser(
        prog="gradcheck",
        description="Judge hand-written backward passes against the true derivative.",
        epilog=f"{first}\n\n{codes}",
    )
    parser.add_argument("-V", "--version", action="store_true", help="print the version and exit")
    parser.set_defaults(command="main:no_command", whole=_parser)
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", prog="gradcheck")
    for name, what in COMMANDS:
        if words is None or name in words:
            from gradcheck.cli import flags  # door: a command is named

            flags.ADD[name](commands.add_parser(name, help=what))
        else:
            mention(commands, name, what)
    return parser


def _function(where: str) -> Callable[[argparse.Namespace], int]:
    """The function, `module:name`, that carries a command out; its module is imported now."""
    from importlib import import_module  # door: not for --help

    module, _, name = where.partition(":")
    found: Callable[[argparse.Namespace], int] = getattr(
        import_module(f"gradcheck.cli.{module}"), name
    )
    return found


def no_command(arguments: argparse.Namespace) -> int:
    """Print the version, or the help."""
    if arguments.version:
        return OK if console.show(f"gradcheck {__version__}\n") else USAGE
    arguments.parser.print_help(sys.stderr)
    return USAGE
