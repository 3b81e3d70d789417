"""The command line: which command, and what becomes of an error. `--help` imports nothing heavy."""

from __future__ import annotations

import argparse
import gc
import os
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from gradcheck import console
from gradcheck.commands import (
    baseline,
    demo,
    diff,
    export,
    init,
    listing,
    merge,
    power,
    probe,
    report,
    repro,
    run,
    schema,
)
from gradcheck.commands.outcome import INTERNAL, INTERRUPTED, OK, USAGE
from gradcheck.errors import GradcheckError

EPILOG = """\
examples:
  gradcheck run                                  every operator, the suite's own VJPs
  gradcheck run --op rms_norm --op 'soft*'       some of them
  gradcheck run --impl mykernels:IMPL            your VJPs: IMPL = {"rms_norm": MyRmsNorm, ...}
  gradcheck run --impl torch -o report.html      PyTorch's autograd, with an HTML report
  gradcheck run --impl gradcheck.toml            a C library, or a program in any language
  gradcheck run --model gpt2                     a whole model: parameters, then stages
  gradcheck run --rule 'adam*'                   update rules, step by step
  gradcheck repro CASE --export repro.py         one case, in full and as a script
  gradcheck explain rms_norm                     what is checked, and why
  gradcheck init --lib build/libk.so             write that manifest: guesses, to be confirmed
  gradcheck run --shard 1/4 -o 1.jsonl           a quarter, with a log; `gradcheck merge` joins
  gradcheck report run.jsonl -o report.html      a log rendered again, in any format
  gradcheck baseline write known-failures.toml   list what fails today; the gate fails on the rest
  gradcheck diff main.json pr.json               what a change did, result by result
  gradcheck power --op rms_norm                  that the check rejects wrong answers
  gradcheck export DIR, gradcheck judge DIR      cases on file, and the answers to them
  gradcheck probe -- ./grads                     does a program speak the protocol well?

exit codes:
  0 all as expected    1 gate failed      2 usage or output path    3 implementation not loaded
  4 nothing checked    5 internal error or an invalid case          130 interrupted
"""


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; returns the exit code."""
    gc.set_threshold(50_000, 20, 20)  # a short-lived process: collecting costs 5% of it
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # small products: more are slower
    arguments = _parser().parse_args(argv)
    console.open_streams()
    try:
        sys.path.insert(0, os.getcwd())  # noqa: PTH109  so that --impl finds the user's modules
        with _asked_to_end():
            code: int = arguments.command(arguments)
    except GradcheckError as error:
        console.say(str(error))
        return error.exit_code
    except KeyboardInterrupt:
        console.say("interrupted")
        return INTERRUPTED
    except BrokenPipeError:  # `gradcheck … | head`: the reader has seen enough
        console.drop_stdout()
        return INTERRUPTED
    except Exception as error:  # noqa: BLE001  1 would say that the gate failed
        import traceback

        traceback.print_exc()
        console.say(f"internal error: {type(error).__name__}: {error}; please report it")
        return INTERNAL
    return code


@contextmanager
def _asked_to_end() -> Iterator[None]:
    """SIGTERM (a cancelled job) as Ctrl-C: report what is known, and leave nothing behind."""
    try:
        before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    except ValueError:  # not the main thread: signals are somebody else's
        yield
        return
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="gradcheck",
        description="Judge hand-written backward passes against the true derivative.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="store_true", help="print the version and exit")
    parser.set_defaults(command=_no_command(parser))
    commands = parser.add_subparsers(title="commands", metavar="COMMAND")
    run.add(commands.add_parser("run", help="judge implementations", epilog=EPILOG,
                                 formatter_class=argparse.RawDescriptionHelpFormatter))  # fmt: skip
    demo.add(commands.add_parser("demo", help="three bundled kernels: right, wrong, crashing"))
    repro.add(commands.add_parser("repro", help="one case in full, or as a script"))
    report.add(commands.add_parser("report", help="a run on file, rendered again"))
    merge.add(commands.add_parser("merge", help="shards of a run as one"))
    baseline.add(commands.add_parser("baseline", help="failures that are known, and no others"))
    diff.add(commands.add_parser("diff", help="what changed between two runs"))
    power.add(commands.add_parser("power", help="prove that every check can fail"))
    listing.add_list(commands.add_parser("list", help="operators, models and update rules"))
    listing.add_explain(commands.add_parser("explain", help="what one check consists of"))
    init.add(commands.add_parser("init", help="a first manifest for a C library or a program"))
    export.add_export(
        commands.add_parser("export", help="cases on file, for code that is not bound")
    )
    export.add_judge(commands.add_parser("judge", help="the answers to them"))
    probe.add(commands.add_parser("probe", help="lint a program that speaks the protocol"))
    schema.add(commands.add_parser("schema", help="what a JSON report holds"))
    return parser


def _no_command(parser: argparse.ArgumentParser) -> Callable[[argparse.Namespace], int]:
    def command(arguments: argparse.Namespace) -> int:
        if arguments.version:
            from gradcheck import __version__

            return OK if console.show(f"gradcheck {__version__}\n") else USAGE
        parser.print_help(sys.stderr)
        return USAGE

    return command
