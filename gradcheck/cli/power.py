"""`gradcheck power`: prove that every check can fail."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Final

from gradcheck.cli import console
from gradcheck.cli.exit_codes import exit_code
from gradcheck.cli.options import add as add_options
from gradcheck.cli.options import check_executor, suite_of, workers_of
from gradcheck.cli.progress import Progress
from gradcheck.cli.reports import publish, refuse_formats, targets_of
from gradcheck.errors import UsageError
from gradcheck.results.ci_safe import heard
from gradcheck.spec.selection import DTYPES, LOW, dtypes_of

if TYPE_CHECKING:
    from gradcheck.power.run_mutants import Part
    from gradcheck.spec.suite import Suite


def add(parser: argparse.ArgumentParser) -> None:
    """Add its flags."""
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
    add_options(parser, "suite")
    parser.add_argument(
        "--dtype", action="append", default=[], metavar="DTYPE",
        help="float64, float32 (repeat); default: both",
    )  # fmt: skip
    add_options(parser, "seed")
    parser.add_argument(
        "--part", default="1/1", metavar="I/N",
        help="only the I-th of N fixed parts of the wrong answers",
    )  # fmt: skip
    add_options(parser, "jobs", "executor", "scheduler")
    parser.add_argument(
        "-o", dest="outputs", action="append", default=[], metavar="FILE",
        help="write a report with all kill matrices: .md .json .txt (repeat)",
    )  # fmt: skip
    add_options(parser, "quiet", help="no progress on stderr")
    add_options(parser, "progress")
    parser.set_defaults(command=power)


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
    says="--model plants faults in models; leave --op, --rule and --part out",
)  # fmt: skip
RULES: Final = Kind(
    kind="rules", page="rule_power", dtypes=False, refuses=("op", "dtype", "part"),
    says="--rule attacks update rules; leave --op, --dtype and --part out",
)  # fmt: skip
CONTRACTS: Final = Kind(
    kind="contracts", page="contract_power", dtypes=False, refuses=("op", "dtype", "part"),
    says="--contract attacks contracts; leave --op, --dtype and --part out",
)  # fmt: skip
NARROW: Final = Kind(
    kind="narrow", page="narrow", refuses=("rule", "contract", "diagnosis", "part"),
    says="--narrow rounds in operators and models; leave --rule, --contract, --diagnosis and "
    "--part out",
)  # fmt: skip
DIAGNOSIS: Final = Kind(
    kind="diagnosis", page="diagnosis_power", dtypes=False, options=("width",),
    refuses=("model", "rule", "contract", "dtype"),
    says="--diagnosis diagnoses mutants of operators in their own dtype; leave --model, "
    "--rule, --contract and --dtype out",
)  # fmt: skip


def power(arguments: argparse.Namespace) -> int:
    """Judge wrong answers of the kind that the flags select; returns the exit code."""
    if arguments.contract and (arguments.model or arguments.rule):
        raise UsageError("--contract attacks contracts alone; leave --model and --rule out")
    here = arguments.rule or arguments.contract
    check_executor(arguments)
    if arguments.executor != "local" and here:
        raise UsageError("--rule and --contract take seconds, here; leave --executor out")
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

    from gradcheck.power.run_mutants import MutationPlan, run  # door: it imports NumPy
    from gradcheck.report.power_page import FORMATS  # door: most commands write no such page

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
        from gradcheck.power.contract import contract_mutants_of

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
        raise UsageError(f"power attacks float64 and float32, not {' or '.join(LOW)}")
    return dtypes


def _part(text: str) -> Part:
    from gradcheck.power.run_mutants import Part

    number, slash, of = text.partition("/")
    ok = slash and number.isdecimal() and of.isdecimal() and 1 <= int(number) <= int(of)
    if not ok:
        raise UsageError(f"--part {text}: write I/N with 1 ≤ I ≤ N, such as 1/5")
    return Part(int(number), int(of))
