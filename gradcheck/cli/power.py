"""`gradcheck power`: prove that every check can fail."""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING

from gradcheck.cli import console
from gradcheck.cli.flags import (
    add_executor,
    add_jobs,
    add_seed,
    add_suite,
    executor_of,
    suite_of,
    workers_of,
)
from gradcheck.cli.outcome import exit_code, publish, refuse_formats, targets_of
from gradcheck.cli.progress import Progress, add_progress
from gradcheck.errors import UsageError
from gradcheck.results.ci_safe import heard
from gradcheck.spec.selection import DTYPES, LOW, dtypes_of

if TYPE_CHECKING:
    from gradcheck.power.score import Part


def add(parser: argparse.ArgumentParser) -> None:
    """Its flags."""
    parser.description = (
        "Put impostors (zeros, the cotangent, NaN, …), the suite's mutants and mutants of narrow "
        "numbers (made from the specs) to the same judgement as everybody's code, sample by "
        "sample: each must be rejected by some sample."
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
        "--contract", action="store_true",
        help="instead: put copies of a right backward that behave wrongly to every property of a "
        "contract",
    )  # fmt: skip
    parser.add_argument(
        "--diagnosis", action="store_true",
        help="instead: diagnose every mutant of the operators, and hold what is said to be wrong "
        "with it against the class that is written beside it",
    )  # fmt: skip
    parser.add_argument(
        "--black-box", action="store_true",
        help="with --diagnosis: diagnose without the operators' specs, as gradcheck.check does",
    )  # fmt: skip
    parser.add_argument(
        "--narrow", action="store_true",
        help="instead: round what every operator and every stage of a model gets, keeps and gives "
        "to TF32, bfloat16, float16 and float32, and tell what cannot be seen and why",
    )  # fmt: skip
    add_suite(parser)
    parser.add_argument(
        "--dtype", action="append", default=[], metavar="DTYPE",
        help="float64, float32 (repeat); default: both",
    )  # fmt: skip
    add_seed(parser)
    parser.add_argument(
        "--part", default="1/1", metavar="I/N",
        help="only the I-th of N fixed parts of the wrong answers",
    )  # fmt: skip
    add_jobs(parser)
    add_executor(parser)
    parser.add_argument(
        "-o", dest="outputs", action="append", default=[], metavar="FILE",
        help="write a report with all kill matrices: .md .json .txt (repeat)",
    )  # fmt: skip
    add_progress(parser)
    parser.set_defaults(command=power)


def power(arguments: argparse.Namespace) -> int:
    """Attack operators, models, update rules or contracts; returns the exit code."""
    if arguments.contract and (arguments.model or arguments.rule):
        raise UsageError("--contract attacks contracts alone; leave --model and --rule out")
    here = arguments.rule or arguments.contract
    if executor_of(arguments)["executor"] != "local" and here:
        raise UsageError("--rule and --contract take seconds, here; leave --executor out")
    if arguments.black_box and not arguments.diagnosis:
        raise UsageError("--black-box diagnoses mutants; add --diagnosis")
    if arguments.narrow:
        return _narrow(arguments)
    if arguments.diagnosis:
        return _diagnoses(arguments)
    if arguments.model:
        return _models(arguments)
    if arguments.rule:
        return _rules(arguments)
    if arguments.contract:
        return _contracts(arguments)
    return _operators(arguments)


def _operators(arguments: argparse.Namespace) -> int:
    targets = targets_of(arguments.outputs)
    dtypes = _dtypes(arguments)
    part = _part(arguments.part)

    from gradcheck.power.run import Attack, attack
    from gradcheck.report import power as pages

    refuse_formats(targets, pages.FORMATS, "power")
    suite = suite_of(arguments.suite)
    plan = Attack(
        suites=tuple(arguments.suite),
        ops=tuple(spec.name for spec in suite.select(arguments.op)),
        dtypes=tuple(dtypes),
        seed=arguments.seed,
        part=part,
        jobs=arguments.jobs,
    )
    progress = Progress(arguments)
    with heard():
        found = attack(plan, progress, workers_of(arguments))
    progress.clear()
    written = publish(found, targets, pages.render, width=console.width(sys.stdout), short=True)
    return exit_code(
        complete=found.complete,
        invalid=any(score.troubles or score.useless for score in found.scores),
        written=written,
        checked=any(score.trials or score.alarms for score in found.scores),
        passed=found.sound,
    )


def _models(arguments: argparse.Namespace) -> int:
    if arguments.op or arguments.rule or arguments.part != "1/1":
        raise UsageError("--model plants faults in models; leave --op, --rule and --part out")
    targets = targets_of(arguments.outputs)
    dtypes = _dtypes(arguments)

    from gradcheck.power.model import FaultPlan, sow
    from gradcheck.report import fault as pages

    refuse_formats(targets, pages.FORMATS, "power")
    suite = suite_of(arguments.suite)
    plan = FaultPlan(
        suites=tuple(arguments.suite),
        models=tuple(dict.fromkeys(c.spec.name for c in suite.model_cases(arguments.model))),
        dtypes=tuple(dtypes),
        seed=arguments.seed,
        jobs=arguments.jobs,
    )
    progress = Progress(arguments)
    with heard():
        harvest = sow(plan, progress, workers_of(arguments))
    progress.clear()
    written = publish(harvest, targets, pages.render, width=console.width(sys.stdout), short=True)
    return exit_code(
        complete=harvest.complete,
        invalid=any(score.troubles for score in harvest.scores),
        written=written,
        checked=bool(harvest.sown),
        passed=harvest.sound,
    )


def _rules(arguments: argparse.Namespace) -> int:
    if arguments.op or arguments.dtype or arguments.part != "1/1":
        raise UsageError("--rule attacks update rules; leave --op, --dtype and --part out")
    targets = targets_of(arguments.outputs)

    from gradcheck.power.rule import attack_rules
    from gradcheck.report import rule_power as pages

    refuse_formats(targets, pages.FORMATS, "power")
    suite = suite_of(arguments.suite)
    cases = suite.rule_cases(arguments.rule, seed=arguments.seed)
    found = attack_rules(suite, cases, arguments.seed)
    written = publish(found, targets, pages.render)
    return exit_code(written=written, checked=bool(found.kills), passed=found.sound)


def _contracts(arguments: argparse.Namespace) -> int:
    if arguments.op or arguments.dtype or arguments.part != "1/1":
        raise UsageError("--contract attacks contracts; leave --op, --dtype and --part out")
    targets = targets_of(arguments.outputs)

    from gradcheck.power.contract import attack_contracts
    from gradcheck.report import contract_power as pages

    refuse_formats(targets, pages.FORMATS, "power")
    found = attack_contracts(suite_of(arguments.suite), arguments.seed)
    written = publish(found, targets, pages.render)
    return exit_code(written=written, checked=bool(found.killed), passed=found.sound)


def _narrow(arguments: argparse.Namespace) -> int:
    if arguments.rule or arguments.contract or arguments.diagnosis or arguments.part != "1/1":
        raise UsageError(
            "--narrow rounds in operators and models; leave --rule, --contract, --diagnosis and "
            "--part out"
        )
    targets = targets_of(arguments.outputs)
    dtypes = _dtypes(arguments)

    from gradcheck.power.narrow_table import narrow_power
    from gradcheck.report import narrow as pages

    refuse_formats(targets, pages.FORMATS, "power")
    suite = suite_of(arguments.suite)
    every = not (arguments.op or arguments.model)
    ops = [spec.name for spec in suite.select(arguments.op) if arguments.op or every]
    cases = suite.model_cases(arguments.model) if arguments.model or every else []
    models = list(dict.fromkeys(case.spec.name for case in cases))
    progress = Progress(arguments)
    with heard():
        found = narrow_power(suite, ops, models, dtypes, arguments.seed, progress)
    progress.clear()
    written = publish(found, targets, pages.render)
    return exit_code(written=written, checked=bool(found.outcomes), passed=found.sound)


def _diagnoses(arguments: argparse.Namespace) -> int:
    if arguments.model or arguments.rule or arguments.contract or arguments.dtype:
        raise UsageError(
            "--diagnosis diagnoses mutants of operators in their own dtype; leave --model, "
            "--rule, --contract and --dtype out"
        )
    targets = targets_of(arguments.outputs)
    part = _part(arguments.part)

    from gradcheck.power.diagnosis import Naming, diagnose_mutants
    from gradcheck.report import diagnosis_power as pages

    refuse_formats(targets, pages.FORMATS, "power")
    plan = Naming(
        suites=tuple(arguments.suite),
        ops=tuple(spec.name for spec in suite_of(arguments.suite).select(arguments.op)),
        seed=arguments.seed,
        part=part,
        jobs=arguments.jobs,
        black_box=arguments.black_box,
    )
    progress = Progress(arguments)
    with heard():
        found = diagnose_mutants(plan, progress, workers_of(arguments))
    progress.clear()
    written = publish(found, targets, pages.render, width=console.width(sys.stdout))
    return exit_code(
        complete=found.complete,
        invalid=bool(found.troubles),
        written=written,
        checked=bool(found.named),
        passed=found.sound,
    )


def _dtypes(arguments: argparse.Namespace) -> list[str]:
    dtypes = dtypes_of(arguments.dtype)
    if not set(dtypes) <= set(DTYPES):
        raise UsageError(f"power attacks float64 and float32, not {' or '.join(LOW)}")
    return dtypes


def _part(text: str) -> Part:
    from gradcheck.power.score import Part

    number, slash, of = text.partition("/")
    ok = slash and number.isdecimal() and of.isdecimal() and 1 <= int(number) <= int(of)
    if not ok:
        raise UsageError(f"--part {text}: write I/N with 1 ≤ I ≤ N, such as 1/5")
    return Part(int(number), int(of))
