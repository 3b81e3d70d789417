"""What became of the mutations, as a report, and what keeps the score from being accepted."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from mutations import Mutation

ENOUGH = 0.95
"""The part that has to die."""


@dataclass(frozen=True)
class Fate:
    """What became of a mutation: whether a test noticed."""

    mutation: Mutation
    killed: bool


def report(found: Sequence[Fate], reasons: Mapping[str, str]) -> str:
    """The figures and all survivors, as Markdown."""
    lines = [
        "# Mutations of the engine",
        "",
        "Made by `tox -e mutants`. One small change at a time, and the tests that reach its line: "
        "does one fail? Which are drawn depends on their names alone. A reason stands in "
        "`tests/mutants/survivors.toml`; one that is not needed any more is an error.",
        "",
        f"**{share(found)}**",
        "",
        *_table("package", found, lambda m: _part(m.path)),
        *_table("kind", found, lambda m: m.kind),
        "## Survivors",
        "",
        "| where | change | reason |",
        "|---|---|---|",
    ]
    for m in sorted((f.mutation for f in found if not f.killed), key=lambda m: (m.path, m.line)):
        change = m.change.replace("|", "\\|")
        reason = reasons.get(m.name, "**none**").replace("|", "\\|")
        lines.append(f"| {m.path}:{m.line} `{m.where}` | `{change}` | {reason} |")
    return "\n".join(lines) + "\n"


def share(found: Sequence[Fate]) -> str:
    killed = sum(fate.killed for fate in found)
    return f"{killed} of {len(found)} killed: {100 * killed / len(found):.1f}%"


def _part(path: str) -> str:
    return "/".join(Path(path).parts[1:-1])


def _table(head: str, found: Sequence[Fate], key: Callable[[Mutation], str]) -> list[str]:
    groups: dict[str, list[bool]] = defaultdict(list)
    for fate in found:
        groups[key(fate.mutation)].append(fate.killed)
    rows = [f"| {name} | {len(g)} | {sum(g)} | {len(g) - sum(g)} |" for name, g in groups.items()]
    return [f"| {head} | mutations | killed | survived |", "|---|---:|---:|---:|", *rows, ""]


def complaints(found: Sequence[Fate], reasons: Mapping[str, str]) -> list[str]:
    """What keeps the score from being accepted."""
    said = []
    if sum(fate.killed for fate in found) < ENOUGH * len(found):
        said.append(f"{share(found)}; at least {ENOUGH:.0%} have to die")
    survived = {fate.mutation.name for fate in found if not fate.killed}
    said += [f"survives without a reason: {name}" for name in sorted(survived - set(reasons))]
    tried = {fate.mutation.name for fate in found}
    for name in sorted(set(reasons) - survived):
        why = "a test kills it now" if name in tried else "it is not drawn"
        said.append(f"survivors.toml has a reason too many ({why}): {name}")
    return said
