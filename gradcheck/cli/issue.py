"""`gradcheck repro --issue`: the script of an issue is run before it is written."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from gradcheck.errors import UsageError
from gradcheck.implementations.load import WORDS
from gradcheck.report.scripts.issue import WRONG, Issue, markdown, script
from gradcheck.report.scripts.python import Table
from gradcheck.results.verdict import Verdict

IMPORTING: Final = 120.0
"""Seconds that importing a framework may take."""


@dataclass(frozen=True, slots=True)
class _Ran:
    """What a script printed, and its return code; None: it did not end in time."""

    out: str
    err: str
    code: int | None


def tried(issue: Issue, path: Path, timeout: float) -> str:
    """The text of the issue at `path`; its script was run, and shows what the issue says.

    Raises:
        UsageError: no script shows it.
    """
    plain = issue.callee.framework != "jax" or issue.callee.compiled
    for form in (issue,) if plain else (issue, issue.compiled()):
        text = script(form)
        ran = _run(form, text, timeout)
        if _shows(form, ran):
            return text if path.suffix == ".py" else markdown(form, text, ran.out, ran.code)
    last = (ran.err.strip().splitlines() or [f"it ends with {ran.code}"])[-1]
    raise UsageError(
        f"--issue: called by {issue.callee.framework} alone, the function does not show it "
        f"({last}); --export FILE.py writes a longer script"
    )


def _run(issue: Issue, text: str, timeout: float) -> _Ran:
    """Run a script by this Python; modules of a user's table are found."""
    own = issue.callee.module and issue.word not in WORDS
    folders = [Table.at(issue.callee.module).folder] if own else []
    path = os.pathsep.join(filter(None, [*folders, os.environ.get("PYTHONPATH", "")]))
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "issue.py")
        file.write_text(text, encoding="utf-8")
        try:
            done = subprocess.run(
                [sys.executable, "-B", str(file)],
                env={**os.environ, "PYTHONPATH": path},
                capture_output=True,
                encoding="utf-8",
                errors="replace",
                check=False,
                timeout=IMPORTING + timeout,
            )
        except subprocess.TimeoutExpired:
            return _Ran("", "", None)
    return _Ran(done.stdout, done.stderr, done.returncode)


def _shows(issue: Issue, ran: _Ran) -> bool:
    """Whether a script ended as the judgement says, and for the same reason."""
    if issue.verdict is Verdict.PASS:
        return ran.code == 0
    if issue.verdict in (Verdict.FAIL, Verdict.MISSING):
        return ran.code == 1 and WRONG in ran.out
    if issue.verdict is Verdict.TIMEOUT:
        return ran.code is None
    if issue.verdict is Verdict.CRASH:
        return ran.code not in (None, 0, 1)
    raised = (ran.err.strip().splitlines() or [""])[-1].partition(":")[0].rpartition(".")[2]
    return ran.code == 1 and bool(raised) and any(raised in text for text in issue.says)
