"""`gradcheck power`: a mutation test of the checks."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import import_module
from typing import Final

from gradcheck.cli import console
from gradcheck.cli.exit_codes import exit_code
from gradcheck.cli.progress import Progress
from gradcheck.cli.project_defaults import check_executor, suite_of, workers_of
from gradcheck.cli.reports import publish, refuse_formats, targets_of
from gradcheck.errors import UsageError
from gradcheck.power.contract import contract_mutants_of
from gradcheck.power.run_mutants import MutationPlan, Part, run
from gradcheck.report.power_page import FORMATS
from gradcheck.results.ci_safe import heard
from gradcheck.spec.dtype_selection import DTYPES, LOW, dtypes_of
from gradcheck.spec.suite import Suite


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """A kind of mutation runs: its report, the flags that it refuses, and its page.

    `options` of the page are the terminal's width, and whether a long report is shortened.
    """

    kind: str
    page: str
    refuses: tuple[str, ...] = ()
    says: str = ""
    dtypes: bool = True
    options: tuple[str, ...] = ()


OPERATORS: Final = Kind(kind="operators", page="power", options=("width", "short"))
MODELS: Final = Kind(
    kind="models", page="fault", options=("width", "short"), refuses=("op", "rule", "part"),
    says="--model plants faults in models; remove --op, --rule and --part",
)  # fmt: skip
RULES: Final = Kind(
    kind="rules", page="rule_power", dtypes=False, refuses=("op", "dtype", "part"),
    says="--rule tests update rules; remove --op, --dtype and --part",
)  # fmt: skip
CONTRACTS: Final = Kind(
    kind="contracts", page="contract_power", dtypes=False, refuses=("op", "dtype", "part"),
    says="--contract tests side conditions; remove --op, --dtype and --part",
)  # fmt: skip
NARROW: Final = Kind(
    kind="narrow", page="narrow", refuses=("rule", "contract", "diagnosis", "part"),
    says="--narrow rounds in operators and models; remove --rule, --contract, --diagnosis and "
    "--part",
)  # fmt: skip
DIAGNOSIS: Final = Kind(
    kind="diagnosis", page="diagnosis_power", dtypes=False, options=("width",),
    refuses=("model", "rule", "contract", "dtype"),
    says="--diagnosis diagnoses mutants of operators in their own dtype; remove --model, "
    "--rule, --contract and --dtype",
)  # fmt: skip


def power(arguments: argparse.Namespace) -> int:
    """Judge wrong answers of the kind that the flags select; returns the exit code."""
    if arguments.contract and (arguments.model or arguments.rule):
        raise UsageError("--contract tests side conditions alone; remove --model and --rule")
    here = arguments.rule or arguments.contract
    check_executor(arguments)
    if arguments.executor != "local" and here:
        raise UsageError("--rule and --contract run in this process; remove --executor")
    if arguments.black_box and not arguments.diagnosis:
        raise UsageError("--black-box diagnoses mutants; add --diagnosis")
    if arguments.narrow:
        return _mutate(arguments, NARROW)
    if arguments.diagnosis:
        return _mutate(arguments, DIAGNOSIS)
    if arguments.model:
        return _mutate(arguments, MODELS)
    if arguments.rule:
        return _mutate(arguments, RULES)
    if arguments.contract:
        return _mutate(arguments, CONTRACTS)
    return _mutate(arguments, OPERATORS)


def _mutate(arguments: argparse.Namespace, kind: Kind) -> int:
    unused = {"part": arguments.part == "1/1"}
    if any(not unused.get(flag, not getattr(arguments, flag)) for flag in kind.refuses):
        raise UsageError(kind.says)
    targets = targets_of(arguments.outputs)
    dtypes = _dtypes(arguments) if kind.dtypes else ()
    part = _part(arguments.part)
    pages = import_module(f"gradcheck.report.{kind.page}")
    refuse_formats(targets, FORMATS, "power")
    suite = suite_of(arguments.suite)
    here = kind in (RULES, CONTRACTS, NARROW)
    plan = MutationPlan(
        kind=kind.kind,
        suites=tuple(arguments.suite),
        names=tuple(dict.fromkeys(_names(arguments, kind, suite))),
        dtypes=tuple(dtypes),
        seed=arguments.seed,
        part=part,
        jobs=1 if here else arguments.jobs,
        black_box=arguments.black_box,
    )
    progress = Progress(arguments)
    with heard():
        found = run(plan, progress, None if here else workers_of(arguments))
    progress.clear()
    options = {"width": console.width(sys.stdout), "short": True}
    shown = {name: options[name] for name in kind.options}
    written = publish(found, targets, pages.render, **shown)
    return exit_code(
        complete=found.complete,
        invalid=found.invalid,
        written=written,
        checked=found.checked,
        passed=found.sound,
    )


def _names(arguments: argparse.Namespace, kind: Kind, suite: Suite) -> Iterator[str]:
    """The operators, models or update rules whose wrong answers are judged."""
    if kind is CONTRACTS:
        yield from (mutant.op for mutant in contract_mutants_of(suite))
    elif kind is RULES:
        yield from (case.spec.name for case in suite.rule_cases(arguments.rule))
    else:
        every = kind is NARROW and not (arguments.op or arguments.model)
        if kind in (OPERATORS, DIAGNOSIS) or arguments.op or every:
            yield from (spec.name for spec in suite.select(arguments.op))
        if arguments.model or every:
            yield from (case.spec.name for case in suite.model_cases(arguments.model))


def _dtypes(arguments: argparse.Namespace) -> list[str]:
    dtypes = dtypes_of(arguments.dtype)
    if not set(dtypes) <= set(DTYPES):
        raise UsageError(f"power tests float64 and float32, not {' or '.join(LOW)}")
    return dtypes


def _part(text: str) -> Part:
    number, slash, of = text.partition("/")
    ok = slash and number.isdecimal() and of.isdecimal() and 1 <= int(number) <= int(of)
    if not ok:
        raise UsageError(f"--part {text}: write I/N with 1 ≤ I ≤ N, such as 1/5")
    return Part(int(number), int(of))
