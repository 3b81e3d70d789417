"""`gradcheck demo`: bundled kernels, one right, one wrong, one that crashes, put to the judge."""

from __future__ import annotations

import argparse
from importlib.resources import files
from pathlib import Path
from typing import Final

from gradcheck import report
from gradcheck.cli import console
from gradcheck.cli.exit_codes import INTERNAL, INTERRUPTED, OK, USAGE
from gradcheck.cli.project_defaults import suite_of
from gradcheck.cli.reports import page_options
from gradcheck.errors import UsageError
from gradcheck.report.page import Page
from gradcheck.results.ci_safe import heard
from gradcheck.results.run import Run
from gradcheck.run import execute as running
from gradcheck.run.plan import Plan
from gradcheck.spec.case_selection import CaseSelection
from gradcheck.system.atomic_io import create

KERNELS: Final = "gradcheck.demo.kernels:IMPL"
FILE: Final = "kernels.py"
SHOWN: Final = {
    ("silu", "x"): "pass",
    ("rms_norm", "x"): "fail",
    ("rms_norm", "w"): "pass",
    ("relu", "vjp"): "crash",
}
"""The verdict that the demo expects for each gradient."""
SEEN: Final = (
    ("silu", "PASS: every element is within its tolerance, and the true derivative is known well "
     "enough to say so. The self-check counts deliberately wrong gradients that the same checks "
     "would have rejected."),
    ("rms_norm", "FAIL: its dx is wrong. The first line names the error, the lines below are the "
     "evidence. The command after `run:` shows this case in full."),
    ("relu", "CRASH: it reads memory outside its arrays. Its process died; the run went on."),
)  # fmt: skip
NEXT: Final = (
    ("gradcheck demo --copy DIR", "copy these kernels to a file, to repair and to break"),
    ("gradcheck run --impl mykernels.py",
     "judge your own, in Python: IMPL = {\"silu\": my_silu_vjp, ...}"),
    ("gradcheck init --lib build/libk.so", "bind your own, in C; --kind process: any language"),
    ("gradcheck explain rms_norm", "how an operator is checked, and why"),
)  # fmt: skip
EXIT: Final = (
    "The demo ran as expected and exits with 0. `gradcheck run` would exit with 1: the gate failed."
)
COPIED: Final = """\
{path} is written: a comment in rms_norm has the right line, relu needs another mask.
    cd {folder}
    gradcheck run --impl kernels.py
"""


def demo(arguments: argparse.Namespace) -> int:
    """Judge the kernels, or copy them; returns the exit code."""
    if arguments.copy is not None:
        return _copy(arguments.copy)
    with heard():
        found = running.execute(_plan())
    how = page_options(arguments)
    judged = report.render(found, "terminal", **how)
    if not found.complete:
        return INTERRUPTED
    if not _as_expected(found):
        console.show(judged)
        console.say("this is not what the demo should show; please report it")
        return INTERNAL
    return OK if console.show(f"{judged}\n{_explained(Page(**how))}") else USAGE


def _explained(page: Page) -> str:
    """What the demo has shown, and what to type next."""
    seen = page.listed("What you have seen", SEEN)
    after = page.listed("What to type next", NEXT)
    return "\n".join([*seen, "", *after, "", *page.wrap(EXIT), ""])


def _plan() -> Plan:
    """The kernels at one sample each, without their contract, for brevity."""
    suite = suite_of([])
    ops = sorted({op for op, _ in SHOWN})
    chosen = CaseSelection(ops=ops, dialects=["default", "weight"], samples=["typical"]).cases(
        suite
    )
    return Plan(
        suite=suite,
        cases=chosen.operators,
        implementations=[KERNELS],
        dtypes=["float32"],
        seed=0,
        contract=False,
        isolate=True,
    )


def _as_expected(found: Run) -> bool:
    return {(r.case.op, r.finding.name): r.finding.verdict.value for r in found.results} == SHOWN


def _copy(folder: Path) -> int:
    """Write the kernels, without overwriting anything.

    Raises:
        UsageError: they cannot be written.
    """
    path = folder / FILE
    text = (files("gradcheck.demo") / FILE).read_text(encoding="utf-8")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        create(path, text)
    except FileExistsError:
        what = "it exists already" if path.exists() else "it is not a folder"
        where = path if path.exists() else folder
        raise UsageError(f"--copy {where}: {what}; name another folder") from None
    except (OSError, ValueError) as error:
        said = getattr(error, "strerror", None) or error
        raise UsageError(f"--copy {path}: {said}") from None
    return OK if console.show(COPIED.format(path=path, folder=folder)) else USAGE
