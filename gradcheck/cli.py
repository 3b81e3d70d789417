"""The command line: parse, select, run, report, exit. Nothing heavy is imported for `--help`."""

from __future__ import annotations

import argparse
import gc
import os
import sys
from collections.abc import Callable, Sequence
from contextlib import redirect_stdout
from pathlib import Path
from typing import TYPE_CHECKING

from gradcheck import console
from gradcheck.errors import GradcheckError, UnknownNameError, UsageError
from gradcheck.selection import DTYPES, LOW, all_dtypes_of, dtypes_of

if TYPE_CHECKING:
    from gradcheck.choice import Choice
    from gradcheck.power.score import Part
    from gradcheck.record import Run
    from gradcheck.suite import Suite

OK, GATE, USAGE, LOAD, NOTHING, INTERNAL, INTERRUPTED = 0, 1, 2, 3, 4, 5, 130

EPILOG = """\
examples:
  gradcheck run                                  every operator, the suite's own VJPs
  gradcheck run --op rms_norm --op 'soft*'       some of them
  gradcheck run --impl mykernels:IMPL            your VJPs: IMPL = {"rms_norm": MyRmsNorm, ...}
  gradcheck run --impl torch -o report.html      PyTorch's autograd, with an HTML report
  gradcheck run --model gpt2                     a whole model: parameters, then stages
  gradcheck run --rule 'adam*'                   update rules, step by step
  gradcheck explain rms_norm                     what is checked, and why
  gradcheck power --op rms_norm                  that the check rejects wrong answers

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
    _add_run(commands.add_parser("run", help="judge implementations", epilog=EPILOG,
                                 formatter_class=argparse.RawDescriptionHelpFormatter))  # fmt: skip
    _add_power(commands.add_parser("power", help="prove that every check can fail"))
    _add_list(commands.add_parser("list", help="operators, models and update rules"))
    _add_explain(commands.add_parser("explain", help="what one check consists of"))
    return parser


def _no_command(parser: argparse.ArgumentParser) -> Callable[[argparse.Namespace], int]:
    def command(arguments: argparse.Namespace) -> int:
        if arguments.version:
            from gradcheck import __version__

            return OK if console.show(f"gradcheck {__version__}\n") else USAGE
        parser.print_help(sys.stderr)
        return USAGE

    return command


def _add_selection(parser: argparse.ArgumentParser, default: str) -> None:
    for flag, what in (
        ("op", f"operators that match (repeat); default: {default}"),
        ("model", "models that match (repeat)"),
        ("rule", "update rules that match (repeat)"),
        ("dialect", "only dialects that match (repeat); default: all"),
        ("sample", "only samples, or sizes of models, that match (repeat); default: all"),
    ):
        parser.add_argument(f"--{flag}", action="append", default=[], metavar="GLOB", help=what)
    parser.add_argument(
        "--suite", action="append", default=[], metavar="MODULE:NAME",
        help="a suite of your own instead of the installed ones (repeat)",
    )  # fmt: skip


def _add_run(parser: argparse.ArgumentParser) -> None:
    _add_selection(parser, "all, unless another kind is named")
    parser.add_argument(
        "--impl", action="append", default=[], metavar="WHOSE",
        help="whose code: reference (default), torch, or pkg.module:NAME (repeat)",
    )  # fmt: skip
    parser.add_argument(
        "--dtype", action="append", default=[], metavar="DTYPE",
        help="float64, float32, float16, bfloat16, all (repeat); models: mp50, float64, float32; "
        "default: float64 and float32, and mp50 for the suite's own models",
    )  # fmt: skip
    parser.add_argument(
        "--convention", default="", metavar="SYSTEM",
        help="on kinks accept only what this system returns (PyTorch, JAX, ggml, …); "
        "default: any subgradient",
    )  # fmt: skip
    parser.add_argument("--seed", type=int, default=0, help="of all inputs; default 0")
    parser.add_argument(
        "--train", action="store_true",
        help="models: train each at its smallest size; does every step's loss fall as predicted?",
    )  # fmt: skip
    parser.add_argument(
        "--project", action="store_true",
        help="models: hold gradients against slopes of the loss, as of any function, and not "
        "element by element",
    )  # fmt: skip
    parser.add_argument(
        "--taylor", action="store_true",
        help="also the Taylor remainder of every gradient along one direction (in -o reports)",
    )  # fmt: skip
    _add_jobs(parser)
    parser.add_argument(
        "-o", dest="outputs", action="append", default=[], metavar="FILE[:FORMAT]",
        help="write a report: .md .html .json .xml .txt (repeat)",
    )  # fmt: skip
    parser.add_argument(
        "--format", default="terminal", metavar="FORMAT",
        help="what stdout carries: terminal (default), markdown, html, json, junit",
    )  # fmt: skip
    parser.add_argument("--color", choices=("auto", "always", "never"), default="auto")
    parser.add_argument("-q", "--quiet", action="store_true", help="no progress on stderr")
    parser.set_defaults(command=_run)


def _add_power(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Put impostors (zeros, the cotangent, NaN, …) and the suite's mutants to the same "
        "judgement as everybody's code, in every sample: each must be rejected by some sample."
    )
    parser.add_argument(
        "--op", action="append", default=[], metavar="GLOB",
        help="only operators that match (repeat); default: all",
    )  # fmt: skip
    parser.add_argument(
        "--model", action="append", default=[], metavar="GLOB",
        help="instead: plant faults in the models that match (repeat), and see that each is "
        "found and blamed on its stage",
    )  # fmt: skip
    parser.add_argument(
        "--rule", action="append", default=[], metavar="GLOB",
        help="instead: put wrong update rules to every sample of the rules that match (repeat)",
    )  # fmt: skip
    parser.add_argument(
        "--suite", action="append", default=[], metavar="MODULE:NAME",
        help="a suite of your own instead of the installed ones (repeat)",
    )  # fmt: skip
    parser.add_argument(
        "--dtype", action="append", default=[], metavar="DTYPE",
        help="float64, float32 (repeat); default: both",
    )  # fmt: skip
    parser.add_argument("--seed", type=int, default=0, help="of all inputs; default 0")
    parser.add_argument(
        "--part", default="1/1", metavar="I/N",
        help="only the I-th of N fixed parts of the wrong answers",
    )  # fmt: skip
    _add_jobs(parser)
    parser.add_argument(
        "-o", dest="outputs", action="append", default=[], metavar="FILE",
        help="write a report with all kill matrices: .md .json .txt (repeat)",
    )  # fmt: skip
    parser.add_argument("-q", "--quiet", action="store_true", help="no progress on stderr")
    parser.set_defaults(command=_power)


def _add_jobs(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "-j", "--jobs", type=_jobs, default=1, metavar="N",
        help="processes to use; auto: one per core; default 1",
    )  # fmt: skip


def _jobs(word: str) -> int:
    count = len(os.sched_getaffinity(0)) if word == "auto" else int(word)
    if count < 1:
        raise argparse.ArgumentTypeError(f"{word} processes do nothing; write 1 or more, or auto")
    return count


def _add_list(parser: argparse.ArgumentParser) -> None:
    _add_selection(parser, "all, models and rules too")
    parser.add_argument("--json", action="store_true", help="as JSON")
    parser.set_defaults(command=_list)


def _add_explain(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", metavar="OP|MODEL|RULE")
    parser.add_argument("--suite", action="append", default=[], metavar="MODULE:NAME")
    parser.set_defaults(command=_explain)


# ── run ──────────────────────────────────────────────────────────────────────────────────────


def _run(arguments: argparse.Namespace) -> int:
    from gradcheck import report

    targets = [report.format_of(text) for text in arguments.outputs]
    if arguments.format not in report.FORMATS:
        raise UnknownNameError("format", arguments.format, report.FORMATS)
    implementations = list(dict.fromkeys(arguments.impl)) or ["reference"]
    dtypes, model_dtypes = all_dtypes_of(
        arguments.dtype,
        operators=bool(arguments.op or arguments.rule) or not arguments.model,
        models=bool(arguments.model),
        certify="reference" in implementations,
    )
    _check_writable([path for path, _ in targets])

    from gradcheck.run import Plan, execute

    suite = _suite(arguments.suite)
    chosen = _choice(arguments).cases(suite)
    plan = Plan(
        suite=suite,
        cases=chosen.operators,
        models=chosen.models,
        rules=chosen.rules,
        implementations=implementations,
        dtypes=dtypes,
        model_dtypes=model_dtypes,
        seed=arguments.seed,
        suites=arguments.suite,
        convention=_convention(arguments.convention, suite),
        jobs=arguments.jobs,
        taylor=arguments.taylor,
        project=arguments.project,
        train=arguments.train,
    )
    progress = console.Progress(not arguments.quiet and sys.stderr.isatty())
    with redirect_stdout(sys.stderr):  # what the code judged prints is no part of a report
        run = execute(plan, progress)
    progress.clear()
    written = [_write(path, form, run) for path, form in targets]
    text = report.render(
        run,
        arguments.format,
        color=console.colored(arguments.color),
        width=console.width(sys.stdout),
    )
    if arguments.format != "terminal":  # the terminal report shows them itself
        for trouble in run.troubles:
            console.say(trouble)
    written.append(console.show(text))
    return _exit_code(run, written=all(written))


def _choice(arguments: argparse.Namespace) -> Choice:
    from gradcheck.choice import Choice

    return Choice(
        ops=arguments.op,
        models=arguments.model,
        rules=arguments.rule,
        dialects=arguments.dialect,
        samples=arguments.sample,
        seed=getattr(arguments, "seed", 0),
    )


def _check_writable(paths: Sequence[Path]) -> None:
    """Refuse before the run what could not be written after it."""
    for path in paths:
        folder = path.parent
        try:
            if paths.count(path) > 1:
                raise UsageError(f"-o {path}: named twice; give each report its own file")
            if path.is_dir():
                raise UsageError(f"-o {path}: it is a folder; name a file in it")
            if not folder.is_dir():
                raise UsageError(f"-o {path}: there is no folder {folder}; create it first")
            if not os.access(path if path.exists() else folder, os.W_OK):
                raise UsageError(f"-o {path}: no permission to write there")
        except OSError as error:  # a name that is too long, a folder that may not be searched
            raise UsageError(f"-o {path}: {error.strerror}") from error


def _convention(word: str, suite: Suite) -> str:
    """The system that a word means, however it is capitalised.

    Raises:
        UnknownNameError: no operator of the suite knows a convention of it.
    """
    known = {
        system
        for spec in suite
        for kink in spec.kinks
        for convention in kink.conventions
        for system in convention.systems
    }
    by_lower = {system.lower(): system for system in known}
    if word and word.lower() not in by_lower:
        raise UnknownNameError("system with conventions on kinks", word, sorted(known))
    return by_lower.get(word.lower(), "")


def _write(path: Path, form: str, run: Run) -> bool:
    from gradcheck import report

    return _save(path, report.render(run, form))


def _save(path: Path, text: str) -> bool:
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        console.say(f"-o {path}: {error.strerror}; the results are on stdout")
        return False
    return True


def _exit_code(run: Run, *, written: bool) -> int:
    """One code, never ORed: the highest-precedence one wins."""
    from gradcheck.verdict import Verdict

    footer = run.footer
    if not run.complete:
        return INTERRUPTED
    if footer.counts[Verdict.INVALID]:
        return INTERNAL
    if run.troubles:
        return LOAD
    if not written:
        return USAGE
    if not footer.checked:
        return NOTHING
    return OK if run.passed else GATE


# ── power ────────────────────────────────────────────────────────────────────────────────────


def _power(arguments: argparse.Namespace) -> int:
    if arguments.model:
        return _power_models(arguments)
    if arguments.rule:
        return _power_rules(arguments)
    from gradcheck import report

    targets = [report.format_of(text) for text in arguments.outputs]
    dtypes = dtypes_of(arguments.dtype)
    if set(dtypes) & set(LOW):
        raise UsageError(f"power attacks float64 and float32, not {' or '.join(LOW)}")
    part = _part(arguments.part)
    _check_writable([path for path, _ in targets])

    from gradcheck.power.run import Attack, attack
    from gradcheck.report import power as pages

    for path, form in targets:
        if form not in pages.FORMATS:
            raise UsageError(f"-o {path}: power writes {', '.join(pages.FORMATS)}, not {form}")
    suite = _suite(arguments.suite)
    plan = Attack(
        suites=tuple(arguments.suite),
        ops=tuple(spec.name for spec in suite.select(arguments.op)),
        dtypes=tuple(dtypes),
        seed=arguments.seed,
        part=part,
        jobs=arguments.jobs,
    )
    progress = console.Progress(not arguments.quiet and sys.stderr.isatty())
    with redirect_stdout(sys.stderr):
        power = attack(plan, progress)
    progress.clear()
    written = [_save(path, pages.render(power, form)) for path, form in targets]
    text = pages.render(power, "terminal", width=console.width(sys.stdout), short=True)
    written.append(console.show(text))
    if not power.complete:
        return INTERRUPTED
    if any(found.troubles or found.useless for found in power.scores):
        return INTERNAL
    if not all(written):
        return USAGE
    if not any(found.trials or found.alarms for found in power.scores):
        return NOTHING
    return OK if power.sound else GATE


def _power_models(arguments: argparse.Namespace) -> int:
    from gradcheck import report

    if arguments.op or arguments.rule or arguments.part != "1/1":
        raise UsageError("--model plants faults in models; leave --op, --rule and --part out")
    targets = [report.format_of(text) for text in arguments.outputs]
    dtypes = dtypes_of(arguments.dtype)
    if not set(dtypes) <= set(DTYPES):
        raise UsageError(f"power attacks {' and '.join(DTYPES)} alone")
    _check_writable([path for path, _ in targets])

    from gradcheck.power.model import Sowing, sow
    from gradcheck.report import fault as pages

    for path, form in targets:
        if form not in pages.FORMATS:
            raise UsageError(f"-o {path}: power writes {', '.join(pages.FORMATS)}, not {form}")
    suite = _suite(arguments.suite)
    plan = Sowing(
        suites=tuple(arguments.suite),
        models=tuple(dict.fromkeys(c.spec.name for c in suite.model_cases(arguments.model))),
        dtypes=tuple(dtypes),
        seed=arguments.seed,
        jobs=arguments.jobs,
    )
    progress = console.Progress(not arguments.quiet and sys.stderr.isatty())
    with redirect_stdout(sys.stderr):
        harvest = sow(plan, progress)
    progress.clear()
    written = [_save(path, pages.render(harvest, form)) for path, form in targets]
    text = pages.render(harvest, "terminal", width=console.width(sys.stdout), short=True)
    written.append(console.show(text))
    if not harvest.complete:
        return INTERRUPTED
    if any(score.troubles for score in harvest.scores):
        return INTERNAL
    if not all(written):
        return USAGE
    if not harvest.sown:
        return NOTHING
    return OK if harvest.sound else GATE


def _power_rules(arguments: argparse.Namespace) -> int:
    from gradcheck import report

    if arguments.op or arguments.dtype or arguments.part != "1/1":
        raise UsageError("--rule attacks update rules; leave --op, --dtype and --part out")
    targets = [report.format_of(text) for text in arguments.outputs]
    _check_writable([path for path, _ in targets])

    from gradcheck.power.rule import attack_rules
    from gradcheck.report import rule_power as pages

    for path, form in targets:
        if form not in pages.FORMATS:
            raise UsageError(f"-o {path}: power writes {', '.join(pages.FORMATS)}, not {form}")
    suite = _suite(arguments.suite)
    cases = suite.rule_cases(arguments.rule, seed=arguments.seed)
    power = attack_rules(suite, cases, arguments.seed)
    written = [_save(path, pages.render(power, form)) for path, form in targets]
    written.append(console.show(pages.render(power, "terminal")))
    if not all(written):
        return USAGE
    if not power.kills:
        return NOTHING
    return OK if power.sound else GATE


def _part(text: str) -> Part:
    from gradcheck.power.score import Part

    number, slash, of = text.partition("/")
    ok = slash and number.isdecimal() and of.isdecimal() and 1 <= int(number) <= int(of)
    if not ok:
        raise UsageError(f"--part {text}: write I/N with 1 ≤ I ≤ N, such as 1/5")
    return Part(int(number), int(of))


# ── list, explain ────────────────────────────────────────────────────────────────────────────


def _list(arguments: argparse.Namespace) -> int:
    from gradcheck.report import catalogue

    suite = _suite(arguments.suite)
    chosen = _choice(arguments).everything(suite)
    listing = catalogue.as_json if arguments.json else catalogue.as_table
    if not console.show(f"{listing(suite, chosen)}\n"):
        return USAGE
    return OK if chosen else NOTHING


def _explain(arguments: argparse.Namespace) -> int:
    from gradcheck.report import catalogue

    suite = _suite(arguments.suite)
    if arguments.name not in suite.home:
        raise UnknownNameError("operator, model or rule", arguments.name, suite.home)
    return OK if console.show(f"{catalogue.explain(suite, arguments.name)}\n") else USAGE


def _suite(references: Sequence[str]) -> Suite:
    from gradcheck.suite import load_suite

    with redirect_stdout(sys.stderr):  # a user's module may print
        return load_suite(references)
