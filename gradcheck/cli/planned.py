"""What a run judges, of whom, and how: the flags, and the plan that they make."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from gradcheck.cli.flags import add_implementation, add_jobs, add_selection, choice, suite_of
from gradcheck.errors import UnknownNameError
from gradcheck.spec.selection import all_dtypes_of

if TYPE_CHECKING:
    from gradcheck.run.plan import Plan
    from gradcheck.spec.suite import Suite


def add_plan(parser: argparse.ArgumentParser) -> None:
    """What is judged, of whom, and how."""
    add_selection(parser, "all, unless another kind is named")
    add_implementation(parser)
    parser.add_argument(
        "--dtype", action="append", default=[], metavar="DTYPE",
        help="float64, float32, float16, bfloat16, all (repeat); models: mp50, float64, float32; "
        "default: float64 and float32, and mp50 for the suite's own models",
    )  # fmt: skip
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
        "--full", dest="project", action="store_const", const=False, default=False,
        help="models: element by element, which is the default, whatever a project says",
    )  # fmt: skip
    parser.add_argument(
        "--taylor", action="store_true",
        help="also the Taylor remainder of every gradient along one direction (in -o reports)",
    )  # fmt: skip
    parser.add_argument(
        "--contract", action=argparse.BooleanOptionalAction, default=None,
        help="what a backward owes beyond its numbers (linear, no state, any layout, …), once per "
        "operator and dialect; default: of all but the reference",
    )  # fmt: skip
    add_jobs(parser)


def plan_of(arguments: argparse.Namespace) -> Plan:
    """What the flags of `add_plan` ask for.

    Raises:
        UsageError, LoadError: they cannot be right.
    """
    implementations = list(dict.fromkeys(arguments.impl)) or ["reference"]
    dtypes, model_dtypes = all_dtypes_of(
        arguments.dtype,
        operators=bool(arguments.op or arguments.rule) or not arguments.model,
        models=bool(arguments.model),
        certify="reference" in implementations,
    )

    from gradcheck.run.plan import Plan

    suite = suite_of(arguments.suite)
    chosen = choice(arguments).cases(suite)
    return Plan(
        suite=suite,
        cases=chosen.operators,
        models=chosen.models,
        rules=chosen.rules,
        implementations=implementations,
        dtypes=dtypes,
        model_dtypes=model_dtypes,
        seed=arguments.seed,
        suites=arguments.suite,
        convention=convention_of(arguments.convention, suite),
        jobs=arguments.jobs,
        taylor=arguments.taylor,
        project=arguments.project,
        train=arguments.train,
        build=arguments.build,
        contract=arguments.contract,
        isolate=arguments.isolate,
        timeout=arguments.timeout,
        config=arguments.config,
    )


def convention_of(word: str, suite: Suite) -> str:
    """The system that a word means, however it is capitalised.

    Raises:
        UnknownNameError: no operator of the suite knows a convention of it.
    """
    if not word:  # no operator is looked at: the suite imports them when they are
        return ""
    known = {
        system
        for spec in suite
        for kink in spec.kinks
        for convention in kink.conventions
        for system in convention.systems
    }
    by_lower = {system.lower(): system for system in known}
    if word.lower() not in by_lower:
        raise UnknownNameError("system with conventions on kinks", word, sorted(known))
    return by_lower[word.lower()]
