"""What `gradcheck probe` found, a line per check."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from typing import Final

from gradcheck.cli.conformance.check import Check, Outcome
from gradcheck.results.words import clean

WIDTH: Final = 100
INDENT: Final = " " * 6


def line(check: Check) -> str:
    """One check; what it says stands below, if it is more than a few words."""
    head = f"{check.outcome.value:<4}  {clean(check.name)}"
    says = clean(check.says)
    if not says:
        return f"{head}\n"
    if len(head) + len(says) + 2 <= WIDTH:
        return f"{head}: {says}\n"
    below = textwrap.fill(says, WIDTH, initial_indent=INDENT, subsequent_indent=INDENT)
    return f"{head}\n{below}\n"


def summary(checks: Sequence[Check]) -> str:
    """How many, and how many are no good."""
    failed = sum(check.outcome is Outcome.FAIL for check in checks)
    return f"\n{len(checks)} checks, {failed} FAIL\n"
