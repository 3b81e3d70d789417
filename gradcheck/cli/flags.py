"""The flags of every command; those of a run come from the table in `gradcheck/run/options.py`.

A parser names the function of `gradcheck.cli` that carries its command out, so that `--help`
imports no module of a command.
"""

from __future__ import annotations

import argparse
import math
import os
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

from gradcheck.run.options import (
    GATE,
    HOW,
    IMPLEMENTATION,
    LIMITS,
    OPTIONS,
    REPORTS,
    SELECTION,
    SWITCH,
    WHERE,
    Option,
)

PLAN: Final = (SELECTION, IMPLEMENTATION, HOW)
"""The sections that describe a plan."""
RUN: Final = (*PLAN, GATE, LIMITS, WHERE, REPORTS)
"""The sections of `gradcheck run`."""
SHELLS: Final = ("bash", "zsh", "fish")
BASELINE_ACTIONS: Final = {
    "write": "list every failure in a new FILE",
    "update": "set what was measured now, and list new failures; comments and patterns stay",
    "prune": "remove entries that match no failure any more",
    "check": "only compare the run with FILE",
}

# ── from the table ───────────────────────────────────────────────────────────────────────────────


def add(parser: argparse._ActionsContainer, *names: str, **changes: Any) -> None:
    """Add options by name; `changes` are arguments of `argparse` that differ in this command."""
    for name in names:
        _add(parser, option_named(name), changes)


def add_sections(parser: argparse.ArgumentParser, *sections: str, default: str = "") -> None:
    """Add all options of some sections; `default` describes a selection without flags."""
    for section in sections:
        group = parser.add_argument_group(section) if section.strip() else parser
        for option in OPTIONS:
            if option.section == section:
                changes = {}
                if default and option.name == "op":
                    changes["help"] = f"operators that match (repeat); default: {default}"
                _add(group, option, changes)


def option_named(name: str) -> Option:
    """An option of the table."""
    return next(option for option in OPTIONS if option.name == name)


def _add(parser: argparse._ActionsContainer, option: Option, changes: Mapping[str, Any]) -> None:
    flags = [*filter(None, [option.short]), *[f"--{option.name}"] * (not option.short_only)]
    how: dict[str, Any] = {"dest": option.dest, "help": option.help}
    if option.kind is SWITCH:
        how["action"] = "store_false" if option.negated else "store_true"
    else:
        how |= {"default": option.initial, "metavar": option.metavar}
        how |= {"action": "append"} if option.repeatable else {}
        how |= {"choices": option.choices} if option.choices else {}
        how |= {"type": TYPES[option.name]} if option.name in TYPES else {}
    how |= {**option.parse, **changes}
    if how.get("action") == "optional":
        how["action"] = argparse.BooleanOptionalAction
    parser.add_argument(*flags, **how)


def open_to_defaults(parser: argparse.ArgumentParser) -> None:
    """Let a project set the flags of `parser` that are not given; call it last."""
    flags = {action.dest for action in parser._actions}
    known = [option for option in OPTIONS if option.config and option.dest in flags]
    usual = {option.name: parser.get_default(option.dest) for option in known}
    parser.set_defaults(**{option_named(key).dest: None for key in usual}, usual=usual)
    parser.add_argument(
        "--no-config", dest="config", action="store_false",
        help="ignore [tool.gradcheck] in pyproject.toml",
    )  # fmt: skip


# ── values ───────────────────────────────────────────────────────────────────────────────────────


UNITS: Final = {"s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0}


def seconds(word: str) -> float:
    """The value of --timeout, --max-time or --budget, which may end in a unit.

    >>> seconds("90"), seconds("90s"), seconds("1.5m"), seconds("2h")
    (90.0, 90.0, 90.0, 7200.0)

    Raises:
        ArgumentTypeError: it is not a positive number of seconds, minutes or hours.
    """
    number = word.rstrip("smhin")
    try:
        found = float(number) * UNITS[word[len(number) :] or "s"]
    except (KeyError, ValueError):
        found = 0.0
    if not 0 < found < math.inf:
        raise argparse.ArgumentTypeError(
            f"{word!r} is not a duration; write a positive number of seconds, or 90s, 2m, 1h"
        )
    return found


def _jobs(word: str) -> int:
    try:
        count = _cores() if word == "auto" else int(word)
    except ValueError:
        raise argparse.ArgumentTypeError(
            f"{word!r} is not a number of processes; write 1 or more, or auto"
        ) from None
    if count < 1:
        raise argparse.ArgumentTypeError(
            f"{word} processes cannot run anything; write 1 or more, or auto"
        )
    return count


def _cores() -> int:
    """Cores that this process may use; 1 on Windows, which has no worker processes."""
    if sys.platform == "win32":
        return 1
    allowed = getattr(os, "sched_getaffinity", None)  # macOS has none
    return os.cpu_count() or 1 if allowed is None else len(allowed(0))


def _cases(word: str) -> int:
    if not (word.isascii() and word.isdecimal()) or int(word) < 1:
        raise argparse.ArgumentTypeError(f"{word!r} is not a number of cases; write 1 or more")
    return int(word)


def _folder(word: str) -> Path:
    if not word:  # an unset variable must not fill the current folder
        raise argparse.ArgumentTypeError("the name of the folder is empty; write . for this one")
    return Path(word)


def _shard(text: str) -> str:
    from gradcheck.run.plan import parsed_shard  # door: it imports NumPy

    try:
        parsed_shard(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
    return text


def _report_path(word: str) -> Path:
    return Path("/dev/stdin" if word == "-" else word)


def _factor(word: str) -> float:
    factor = float(word)
    if not 1 <= factor < math.inf:
        raise argparse.ArgumentTypeError(f"{word} is not a factor; write 1 or more")
    return factor


TYPES: Final[Mapping[str, Callable[[str], Any]]] = {
    "baseline": Path,
    "budget": seconds,
    "jobs": _jobs,
    "keep-artifacts": _folder,
    "max-fail": _cases,
    "durations": _cases,
    "max-time": seconds,
    "seed": int,
    "shard": _shard,
    "timeout": seconds,
}
"""Functions that read a value from the command line; default: the text itself."""


# ── commands ─────────────────────────────────────────────────────────────────────────────────────


def _demo(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Judge three bundled kernels: one is right, one is wrong, one crashes. It needs no "
        "compiler, reads and writes no file, and takes about two seconds."
    )
    parser.add_argument(
        "--copy", type=Path, metavar="DIR",
        help="instead: write the kernels to DIR/kernels.py, to play with; DIR is made",
    )  # fmt: skip
    add(parser, "color")
    parser.set_defaults(command="demo:demo")


def _run(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Compare gradients with the true derivative. Print a table per implementation, then each "
        "failure with its cause and a command that repeats it. Without a selection, what is "
        "implemented is judged; --all asks for everything."
    )
    add_sections(parser, *RUN)
    parser.set_defaults(command="run:run")
    open_to_defaults(parser)


def _repro(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Judge one case of an operator: what is wrong and why, the worst elements, and the "
        "smallest input that shows it. Optionally write it as a script that needs no gradcheck."
    )
    parser.add_argument(
        "name", metavar="CASE",
        help="operator/dialect/sample/dtype, as in reports; append :x for dx alone",
    )  # fmt: skip
    add_sections(parser, IMPLEMENTATION)
    add(parser, "suite")
    parser.add_argument(
        "--no-shrink", dest="shrink", action="store_false",
        help="do not search for a smaller input that fails",
    )  # fmt: skip
    parser.add_argument(
        "--export", type=Path, metavar="FILE",
        help="also write the case as a script: FILE.py for Python, FILE.c for a C library",
    )  # fmt: skip
    parser.add_argument(
        "--issue", type=Path, metavar="FILE",
        help="also write the case as an issue for a tracker, in a few lines of PyTorch's or JAX's "
        "own API, which are run once: FILE.md, or FILE.py for its script alone",
    )  # fmt: skip
    add_sections(parser, REPORTS)
    parser.set_defaults(command="repro:repro")


def _list(parser: argparse.ArgumentParser) -> None:
    parser.description = "List the operators, models and update rules of the suite."
    add_sections(parser, SELECTION, default="all, models and rules too")
    parser.add_argument("--json", action="store_true", help="as JSON")
    parser.set_defaults(command="listing:list_")


def _explain(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Show an operator's formula, source, dialects (its variants), subgradients accepted at "
        "kinks, samples with the defect that each is designed to catch, and tolerances."
    )
    parser.add_argument("name", metavar="OP|MODEL|RULE", help="one name, as `list` shows it")
    add(parser, "suite")
    parser.set_defaults(command="listing:explain")


def _init(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Write a manifest for --impl. From a C library it takes the functions and, from debug "
        "information or a header, their prototypes. It guesses operators and the role of each "
        "parameter by their names, and marks what you should confirm. With --ci, write a workflow."
    )
    parser.add_argument(
        "--kind", choices=("c", "python", "process"), default="",
        help="a C library (default with --lib or --header), Python objects, or a program",
    )  # fmt: skip
    add(
        parser, "op",
        help="instead: write a Python module, mykernels.py, with an empty vjp of every operator "
        "that matches (repeat); '*': all",
    )  # fmt: skip
    parser.add_argument("--lib", metavar="FILE.so", help="the shared library")
    parser.add_argument("--header", metavar="FILE.h", help="where its functions are declared")
    parser.add_argument(
        "-o", dest="output", default="", metavar="FILE",
        help="file to write, which must not exist; default gradcheck.toml, or the CI service's "
        "workflow file",
    )  # fmt: skip
    parser.add_argument(
        "--ci",
        choices=("github", "gitlab"),
        help="write a workflow that judges --impl on every change",
    )
    add(
        parser, "impl",
        help="with --ci: implementation, as for `gradcheck run` (repeat); default: that of "
        "[tool.gradcheck], or gradcheck.toml",
    )  # fmt: skip
    parser.add_argument(
        "--install", default="", metavar="WHAT",
        help="with --ci: what pip installs there; default: the installed version of gradcheck",
    )  # fmt: skip
    add(parser, "suite")
    parser.set_defaults(command="init:init")


def _report(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Render a stored run in another format: the log or the JSON report that `gradcheck run -o` "
        "wrote. A log that was cut short is an incomplete run. The baseline of the run is stored "
        "with it; --baseline compares with another file, or with what it says now. The exit code "
        "is that of `run`."
    )
    parser.add_argument(
        "log", metavar="RUN.jsonl", type=_report_path, help="a log, or a JSON report; - for stdin"
    )
    add(parser, "suite")
    add_sections(parser, GATE, REPORTS)
    parser.set_defaults(command="stored:report")


def _merge(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Join the shards that `gradcheck run --shard I/N -o SHARD.jsonl` wrote: the reports are "
        "those of one run of all cases, byte for byte. Runs of different implementations are shown "
        "side by side if they judged the same cases. A missing or incomplete shard makes the run "
        "incomplete."
    )
    parser.add_argument(
        "runs", metavar="SHARD.jsonl", type=Path, nargs="+", help="logs, or JSON reports"
    )
    add(parser, "suite")
    add_sections(parser, GATE, REPORTS)
    parser.set_defaults(command="stored:merge")


def _baseline(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Manage a file of known failures. The run is made now, by the flags of `run`, or read from "
        "RUN.json, which `gradcheck run -o RUN.json` wrote. The exit code is that of the gate with "
        "the file as it is afterwards."
    )
    actions = parser.add_subparsers(metavar="ACTION", required=True)
    for action, what in BASELINE_ACTIONS.items():
        one = actions.add_parser(action, help=what, description=f"{what[0].upper()}{what[1:]}.")
        one.add_argument("file", metavar="FILE", type=Path, help="known-failures.toml")
        one.add_argument(
            "report", metavar="RUN.json", type=Path, nargs="?", help="a run made before"
        )
        add_sections(one, *PLAN)
        add(one, "require")
        add(one, "quiet", help="no progress on stderr")
        add(one, "progress")
        one.set_defaults(command="baseline:baseline", action=action)
        open_to_defaults(one)


def _diff(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Compare two runs, result by result. A report is what `gradcheck run -o RUN.json` or "
        "`-o RUN.jsonl` wrote; RUN.json::NAME is one implementation of it."
    )
    parser.add_argument("old", metavar="OLD", help="a report, or REPORT::IMPLEMENTATION")
    parser.add_argument(
        "new", metavar="NEW", nargs="?",
        help="another one; default: the second implementation of OLD",
    )  # fmt: skip
    parser.add_argument(
        "--factor", type=_factor, default=2.0, metavar="F",
        help="an error that grew by more than F, and by more than a tenth of its tolerance, is "
        "worse; default 2",
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
        help="format of stdout: terminal (default), markdown, html, json, github",
    )  # fmt: skip
    add(parser, "color")
    parser.set_defaults(command="stored:diff")


def _power(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Mutation test of the checks: judge wrong gradients (zeros, the cotangent, NaN, …), the "
        "suite's mutants, and mutants that round to narrower types (made from the specs) like any "
        "implementation. Each must be rejected by some sample."
    )
    add(parser, "op", help="only operators that match (repeat); default: all")
    add(
        parser, "model",
        help="instead: plant faults in the models that match (repeat), and check that each is "
        "found and its faulty stage named",
    )  # fmt: skip
    add(
        parser, "rule",
        help="instead: judge wrong update rules at every sample of the rules that match (repeat)",
    )  # fmt: skip
    parser.add_argument(
        "--contract", action="store_true",
        help="instead: check every side condition on copies of a right backward that violate one",
    )  # fmt: skip
    parser.add_argument(
        "--diagnosis", action="store_true",
        help="instead: compare the diagnosis of every mutant of the operators with its class",
    )  # fmt: skip
    parser.add_argument(
        "--black-box", action="store_true",
        help="with --diagnosis: diagnose without the operators' specs, as gradcheck.check does",
    )  # fmt: skip
    parser.add_argument(
        "--narrow", action="store_true",
        help="instead: round inputs, intermediate values and results of every operator and stage "
        "of a model to TF32, bfloat16, float16 and float32; list undetectable roundings with the "
        "reason",
    )  # fmt: skip
    add(parser, "suite")
    add(parser, "dtype", help="float64, float32 (repeat); default: both")
    add(parser, "seed")
    parser.add_argument(
        "--part", default="1/1", metavar="I/N",
        help="only the I-th of N fixed parts of the wrong gradients",
    )  # fmt: skip
    add(parser, "jobs", "executor", "scheduler")
    parser.add_argument(
        "-o", dest="outputs", action="append", default=[], metavar="FILE",
        help="write a report with all mutants: .md .html .json .txt (repeat)",
    )  # fmt: skip
    add(parser, "quiet", help="no progress on stderr")
    add(parser, "progress")
    parser.set_defaults(command="power:power")


def _export(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Write cases of operators to files, for code that cannot be called: its author computes "
        "the gradients in any way, and `gradcheck judge` reads them."
    )
    parser.add_argument("folder", metavar="DIR", type=Path, help="a new folder, or an empty one")
    parser.add_argument(
        "--format", dest="layout", choices=("bin", "npz"), default="bin",
        help="bin: a folder per request, raw bytes, for any language (default); npz: a file per "
        "request, for NumPy",
    )  # fmt: skip
    add_sections(parser, SELECTION, default="all")
    add(
        parser, "dtype",
        help="float64, float32, float16, bfloat16, all (repeat); default: float64 and float32",
    )  # fmt: skip
    add(parser, "seed")
    add(parser, "quiet", help="no progress on stderr")
    add(parser, "progress")
    parser.set_defaults(command="export:export")


def _judge(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Judge the answers to exported cases, in a folder that `gradcheck export` wrote."
    )
    parser.add_argument("folder", metavar="DIR", type=Path, help="the folder, with its answers")
    add(parser, "suite")
    add(
        parser, "convention",
        help="at kinks accept only the subgradient that this system chooses",
    )  # fmt: skip
    add(parser, "jobs")
    add_sections(parser, REPORTS)
    parser.set_defaults(command="export:judge")


def _probe(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Test a program's use of the protocol GRADCHECK/1: start it, send every kind of message, "
        "unknown and broken ones too, and report wrong answers."
    )
    parser.add_argument(
        "--level", choices=("frames", "jsonl", "oneshot"), default="frames",
        help="form of the messages; default frames",
    )  # fmt: skip
    add(parser, "op", help="only operators that match (repeat); default: all that it offers")
    add(
        parser, "timeout", type=float, default=10.0,
        help="seconds that one answer may take; default 10",
    )  # fmt: skip
    add(parser, "suite")
    parser.add_argument("program", nargs="+", metavar="CMD", help="after --: the program")
    parser.set_defaults(command="conformance:probe")


def _schema(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Print the JSON schema of a report (-o FILE.json) or of each line of a log (-o FILE.jsonl)."
    )
    parser.add_argument(
        "kind", nargs="?", choices=("report", "log"), default="report", help="default: report"
    )
    parser.set_defaults(command="listing:schema")


def _completion(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Print a script that completes commands, flags, files, and the current names of operators, "
        "models, update rules, dialects and samples."
    )
    parser.add_argument("shell", choices=SHELLS, help="shell to complete in")
    add(parser, "suite")
    parser.set_defaults(command="completion:completion")


ADD: Final[Mapping[str, Callable[[argparse.ArgumentParser], None]]] = {
    "demo": _demo,
    "run": _run,
    "repro": _repro,
    "list": _list,
    "explain": _explain,
    "init": _init,
    "report": _report,
    "merge": _merge,
    "baseline": _baseline,
    "diff": _diff,
    "power": _power,
    "export": _export,
    "judge": _judge,
    "probe": _probe,
    "schema": _schema,
    "completion": _completion,
}
