"""What the reports on mutation runs share: formats, first line, problems, last line."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Final

from gradcheck.report.prose import in_markdown
from gradcheck.results.words import clean

if TYPE_CHECKING:
    from gradcheck.power.contract import ContractPower
    from gradcheck.power.diagnosis import Diagnosed
    from gradcheck.power.model import FaultReport
    from gradcheck.power.narrow import NarrowPower
    from gradcheck.power.operators import Power
    from gradcheck.power.rule import RulePower

FORMATS: Final = ("terminal", "markdown", "html", "json")


def suite_of(found: ContractPower | NarrowPower | RulePower) -> str:
    """The suite, its version and the seed."""
    return f"suite {clean(found.suite)} {clean(found.suite_version)}, seed {found.seed}"


def facts(found: Diagnosed | FaultReport | Power, dtypes: Sequence[str] = ()) -> str:
    """The first line: versions, dtypes, seed, and the part if there are several."""
    part = "" if found.part.of == 1 else f", part {found.part.number} of {found.part.of}"
    suite = f"suite {clean(found.suite)} {clean(found.suite_version)}"
    shown = f"{', '.join(dtypes)}, " if dtypes else ""
    return f"gradcheck {clean(found.version)}, {suite}, {shown}seed {found.seed}{part}"


def filled(text: str, width: int, indent: str = "  ") -> str:
    """Lines that break at blanks: a name is looked for as it is written."""
    return textwrap.fill(text, width, subsequent_indent=indent, break_on_hyphens=False)


def bullets(lines: Iterable[str]) -> list[str]:
    """Problems as a list in markdown, and the empty line behind it; nothing without any."""
    items = [f"- {in_markdown(clean(line))}" for line in lines]
    return [*items, ""] if items else []


def listed(table: str, problems: Iterable[str], last: str) -> str:
    """A table, a line per problem, and the line for scripts, for a terminal."""
    lines = "\n".join(map(clean, problems))
    return "\n\n".join(filter(None, [table, lines, last])) + "\n"


def page(lines: Sequence[str], last: str) -> str:
    """A page in markdown that ends in the line for scripts."""
    return "\n".join([*lines, f"`{last}`\n"])
