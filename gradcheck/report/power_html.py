"""The mutation test as one HTML page: scores, survivors, a grid of classes, then every mutant.

The kinds of mutation tests fill a `PowerPage` (`html_page` of `power`, `fault`, `rule_power`, …);
the template writes it. The page needs no network, and JavaScript for its filter only.
"""

from __future__ import annotations

import base64
import hashlib
from dataclasses import dataclass
from typing import Final

from gradcheck.report.html import joined, templates
from gradcheck.results import words

STYLES: Final = ("page.css", "tables.css", "details.css", "power.css", "print.css")
SCRIPTS: Final = ("power.js",)
OPEN: Final = 3
"""Sections of mutants up to which all are unfolded."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Score:
    """So many of so many wrong gradients, or right ones with `alarm`; `note` explains the rest.

    `passed` says whether that is enough, where not all need be rejected.
    """

    name: str
    part: int
    of: int
    note: str = ""
    alarm: bool = False
    passed: bool = False

    @property
    def tone(self) -> str:
        """Good if all are rejected, and no right one is."""
        return "good" if self.passed or self.part == (0 if self.alarm else self.of) else "bad"

    @property
    def share(self) -> str:
        """The part in percent, rounded down: 100% is all; empty where there is none."""
        if not self.of or self.alarm:
            return ""
        tenths = 1000 * self.part // self.of
        return f"{tenths // 10}%" if tenths % 10 == 0 else f"{tenths / 10:.1f}%"


@dataclass(frozen=True, slots=True, kw_only=True)
class Mutant:
    """A wrong gradient in its author's words, and what rejected it.

    `state` is "rejected", "survived" or "equivalent"; `by` what rejected it, `extent` in how much
    of what was tried, `marks` a sign per sample; `note` is a proof, or what to do.
    """

    name: str
    state: str
    says: str
    label: str = ""
    by: str = ""
    extent: str = ""
    marks: str = ""
    note: str = ""
    modelled_on: str = ""

    @property
    def tone(self) -> str:
        """Of the state."""
        return {"rejected": "good", "survived": "bad"}.get(self.state, "calm")


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    """The mutants of one operator, model or update rule."""

    name: str
    counts: str
    mutants: tuple[Mutant, ...]
    notes: tuple[str, ...] = ()
    """Lines of prose below the mutants."""
    samples: tuple[tuple[str, str], ...] = ()
    """The columns of `Mutant.marks`: the name of each, and what it rejects."""

    @property
    def survived(self) -> int:
        """How many of them nothing rejects."""
        return sum(mutant.state == "survived" for mutant in self.mutants)


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """A cell of a grid: its text, tone, and what it stands for."""

    text: str = ""
    tone: str = ""
    says: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Grid:
    """Rows of short cells under upright heads; a head and its explanation each.

    `linked` says that a section has each row's name.
    """

    title: str
    corner: str
    columns: tuple[tuple[str, str], ...]
    rows: tuple[tuple[str, tuple[Cell, ...]], ...]
    note: str = ""
    linked: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """A table of prose."""

    title: str
    heads: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class PowerPage:
    """A mutation test as its page shows it."""

    command: str
    headline: str
    passed: bool
    facts: str
    scores: tuple[Score, ...]
    sections: tuple[Section, ...] = ()
    problems: tuple[str, ...] = ()
    grids: tuple[Grid, ...] = ()
    tables: tuple[Table, ...] = ()
    summary: str

    @property
    def classed(self) -> bool:
        """Whether the mutants have classes."""
        return any(mutant.label for section in self.sections for mutant in section.mutants)

    @property
    def survivors(self) -> list[tuple[Section, Mutant]]:
        """The mutants that nothing rejects."""
        return [(s, m) for s in self.sections for m in s.mutants if m.state == "survived"]


def alarms(part: int, of: int, note: str) -> Score:
    """How many right answers are rejected, of how many."""
    return Score(name="false alarms", part=part, of=of, note=note, alarm=True)


def counted(part: int, of: int) -> Cell:
    """A cell of a grid: so many of so many are rejected."""
    if not of:
        return Cell()
    tone = "good" if part == of else "bad"
    return Cell(text=f"{part}" if part == of else f"{part}/{of}", tone=tone,
                says=f"{part} of {of} rejected")  # fmt: skip


def render(page: PowerPage) -> str:
    """The page as an HTML document."""
    environment = templates()
    script = joined(environment, SCRIPTS)
    digest = hashlib.sha256(script.encode()).digest()
    text = environment.get_template("power.html.j2").render(
        page=page,
        words=words,
        unfolded=len(page.sections) <= OPEN,
        style=joined(environment, STYLES),
        script=script,
        script_hash=base64.b64encode(digest).decode("ascii"),
    )
    return f"{text}\n"
