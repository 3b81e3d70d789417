"""Flags that several commands share, and what they mean."""

from __future__ import annotations

import argparse
import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

from gradcheck.errors import UsageError
from gradcheck.results.ci_safe import heard

if TYPE_CHECKING:
    from gradcheck.run.workers.collect import Workers
    from gradcheck.spec.choice import Choice
    from gradcheck.spec.suite import Suite

EXECUTORS: Final = ("local", "dask")
"""What jobs can run on, as `run.plan` has it."""


def add_selection(parser: argparse.ArgumentParser, default: str) -> None:
    """What to take from a suite; `default` says what is taken without any flag."""
    group = parser.add_argument_group("what is judged")
    for flag, what in (
        ("op", f"operators that match (repeat); default: {default}"),
        ("model", "models that match (repeat)"),
        ("rule", "update rules that match (repeat)"),
        ("dialect", "only dialects that match (repeat); default: all"),
        ("sample", "only samples, or sizes of models, that match (repeat); default: all"),
    ):
        group.add_argument(f"--{flag}", action="append", default=[], metavar="GLOB", help=what)
    group.add_argument(
        "-k", dest="keyword", metavar="EXPR",
        help="of these, cases with words in their name, operator/dialect/sample: "
        "'softmax and not (empty or zero)'",
    )  # fmt: skip
    add_suite(group)


def add_suite(parser: argparse._ActionsContainer) -> None:
    """Whose operators."""
    parser.add_argument(
        "--suite", action="append", default=[], metavar="MODULE:NAME",
        help="a suite of your own instead of the installed ones (repeat)",
    )  # fmt: skip


def add_implementation(parser: argparse.ArgumentParser) -> None:
    """Whose code is judged, how it is run, and by which convention."""
    group = parser.add_argument_group("whose code, and how it is run")
    group.add_argument(
        "--impl", action="append", default=[], metavar="WHOSE",
        help="whose code: reference (default), torch, jax, pkg.module:NAME, or a manifest, "
        "FILE.toml (repeat)",
    )  # fmt: skip
    group.add_argument(
        "--no-build", dest="build", action="store_false",
        help="run none of the commands in a manifest",
    )  # fmt: skip
    group.add_argument(
        "--no-isolate", dest="isolate", action="store_false",
        help="run Python implementations in this process: for a debugger; a crash ends the run",
    )  # fmt: skip
    group.add_argument(
        "--timeout", type=seconds, default=30.0, metavar="S",
        help="seconds that one call of a Python implementation may take; default 30 (a manifest "
        "says it for itself)",
    )  # fmt: skip
    group.add_argument(
        "--convention", default="", metavar="SYSTEM",
        help="on kinks accept only what this system returns (PyTorch, JAX, ggml, …); "
        "default: any subgradient",
    )  # fmt: skip
    add_seed(group)


def add_jobs(parser: argparse.ArgumentParser) -> None:
    """How many processes."""
    parser.add_argument(
        "-j", "--jobs", type=jobs_of, default=1, metavar="N",
        help="processes to use; auto: one per core; default 1",
    )  # fmt: skip


def add_executor(parser: argparse.ArgumentParser) -> None:
    """On which machines."""
    parser.add_argument(
        "--executor", choices=EXECUTORS, default="local",
        help="what the jobs run on: local (default), processes of this machine; dask, a Dask "
        "cluster, of N local workers unless --scheduler names one (needs gradcheck[dask])",
    )  # fmt: skip
    parser.add_argument(
        "--scheduler", default="", metavar="ADDRESS",
        help="with --executor dask: the cluster of this scheduler (tcp://HOST:8786)",
    )  # fmt: skip


def executor_of(arguments: argparse.Namespace) -> dict[str, Any]:
    """What the flags of `add_executor` say.

    Raises:
        UsageError: they contradict each other, or Dask is not installed.
    """
    if arguments.executor == "dask":
        from gradcheck.run.cluster.connect import check_installed

        check_installed()
    elif arguments.scheduler:
        raise UsageError(
            f"--scheduler {arguments.scheduler}: nothing would run there; add --executor dask"
        )
    return {"executor": arguments.executor, "scheduler": arguments.scheduler}


def workers_of(arguments: argparse.Namespace) -> Workers | None:
    """Where else than on this machine the flags of `add_executor` have work done.

    Raises:
        UsageError: as `executor_of` does.
    """
    if executor_of(arguments)["executor"] == "local":
        return None
    from gradcheck.run.cluster.work import workers

    return workers(arguments.scheduler, arguments.jobs, arguments.suite)


def add_seed(parser: argparse._ActionsContainer) -> None:
    """What the inputs are drawn from."""
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="of all inputs; default 0")


def add_color(parser: argparse._ActionsContainer) -> None:
    """Whether what a terminal shows is coloured."""
    parser.add_argument(
        "--color", choices=("auto", "always", "never"), default="auto",
        help="of what a terminal shows; auto (default): where it can, and NO_COLOR is not set",
    )  # fmt: skip


def seconds(word: str) -> float:
    """What --timeout says.

    Raises:
        ArgumentTypeError: it is no limit.
        ValueError: it is no number.
    """
    found = float(word)
    if not 0 < found < float("inf"):
        raise argparse.ArgumentTypeError(f"{word} seconds are no limit; write a positive number")
    return found


def jobs_of(word: str) -> int:
    """What -j says.

    Raises:
        ArgumentTypeError: it is no number of processes.
    """
    try:
        count = len(os.sched_getaffinity(0)) if word == "auto" else int(word)
    except ValueError:
        raise argparse.ArgumentTypeError(
            f"{word!r} is no number of processes; write 1 or more, or auto"
        ) from None
    if count < 1:
        raise argparse.ArgumentTypeError(f"{word} processes do nothing; write 1 or more, or auto")
    return count


def choice(arguments: argparse.Namespace) -> Choice:
    """What the flags of `add_selection` select."""
    from gradcheck.spec.choice import Choice

    return Choice(
        ops=arguments.op,
        models=arguments.model,
        rules=arguments.rule,
        dialects=arguments.dialect,
        samples=arguments.sample,
        keyword=arguments.keyword,
        seed=getattr(arguments, "seed", 0),
    )


def suite_of(references: Sequence[str]) -> Suite:
    """The suites of `--suite`, or all installed ones.

    Raises:
        UsageError: no suite is installed.
        LoadError: a suite cannot be imported.
    """
    from gradcheck.spec.loading import load_suite

    with heard():  # a user's module may print
        return load_suite(references)
