"""The engine's own mutation score: small changes of its modules, and which of them a test notices.

`python tests/mutants -o reports/engine-mutants.md` draws mutations by the hash of their names,
adds those chosen by hand (`chosen.toml`), and runs against each the tests that reach its line, in
a copy of the repository. It exits 1 where fewer than 95% die, where one survives without a reason
(`survivors.toml`), or where a reason is of one that died or is not drawn any more.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import tomllib
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from queue import SimpleQueue

from mutations import Mutation, chosen, mutations
from rooms import HERE, ROOT, Reach, Room
from score import Fate, complaints, report, share

DRAWN = {
    "numerics": 60, "judge": 46, "judge/contract": 26, "results/stored": 9,
    "results/baseline": 17, "results/diff": 8, "cli/exit_codes.py": 1, "cli/reports.py": 2,
}  # fmt: skip
"""Of each package one mutation of so many is drawn."""
ALSO = {
    "judge": ("tests/api",),
    "results/stored": (
        "tests/report/test_stored.py", "tests/report/test_json.py", "tests/report/test_schema.py",
    ),
    "cli/exit_codes.py": ("tests/cli/test_exit_codes.py", "tests/cli/test_usage.py"),
    "cli/reports.py": ("tests/cli/test_reports.py", "tests/cli/test_usage.py"),
}  # fmt: skip
"""Tests that belong to a package beside its own folder."""
PATIENCE = 60.0
"""Seconds more that they may take before the mutation counts as one that hangs."""


def paths(part: str) -> list[str]:
    """The tests of a package."""
    own = [f"tests/{part}"] if (ROOT / "tests" / part).is_dir() else []
    return [*own, *ALSO.get(part, ())]


def drawn() -> list[Mutation]:
    """Those chosen by hand, and of each package those whose names have a small hash."""
    found = []
    for part, one_of in DRAWN.items():
        base = ROOT / "gradcheck" / part
        files = sorted(base.glob("*.py")) if base.is_dir() else [base]
        every = [m for f in files for m in mutations(str(f.relative_to(ROOT)), f.read_bytes())]
        found += [mutation for mutation in every if mutation.place * one_of < 1]
    return [*chosen(HERE / "chosen.toml", ROOT), *sorted(found, key=lambda m: m.place)]


def noted(rooms: SimpleQueue[Room], jobs: int) -> list[dict]:
    """What the tests of all packages run."""

    def note(part: str) -> dict:
        room = rooms.get()
        try:
            return room.note(paths(part))
        finally:
            rooms.put(room)

    with ThreadPoolExecutor(jobs) as pool:
        return list(pool.map(note, DRAWN))


def fates(
    wanted: Sequence[Mutation], known: Reach, rooms: SimpleQueue[Room], jobs: int, kept: Path
) -> list[Fate]:
    """What becomes of each, told on stderr as it is known; `kept` names those that died before."""
    dead = set(kept.read_text().splitlines()) if kept.exists() else set()

    def fate(mutation: Mutation) -> Fate:
        if mutation.name in dead:
            return Fate(mutation, killed=True)
        tests = known.tests(mutation)
        limit = PATIENCE + 3 * sum(map(known.seconds.__getitem__, tests))
        room = rooms.get()
        try:
            killed = bool(tests) and room.tries(mutation, tests, limit)
        finally:
            rooms.put(room)
        sys.stderr.write(f"{'killed  ' if killed else 'SURVIVED'} {mutation.name}\n")
        if killed:
            with kept.open("a") as file:
                file.write(f"{mutation.name}\n")
        return Fate(mutation, killed)

    with ThreadPoolExecutor(jobs) as pool:
        return list(pool.map(fate, wanted))


def main() -> int:
    """Draw, try, report."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("part", nargs="*", help="try only what has this in its name; no report")
    parser.add_argument("-o", dest="output", type=Path, help="where the report goes")
    parser.add_argument("-j", dest="jobs", type=int, default=os.cpu_count())
    parser.add_argument(
        "--kept", type=Path, help="a folder, while tests are written: who runs what, and what died"
    )
    asked = parser.parse_args()
    reasons = tomllib.loads((HERE / "survivors.toml").read_text())["reasons"]
    wanted = [m for m in drawn() if not asked.part or any(p in m.name for p in asked.part)]
    rooms: SimpleQueue[Room] = SimpleQueue()
    every = [path for part in DRAWN for path in paths(part)]
    with tempfile.TemporaryDirectory() as folder:
        first = Room.made(Path(folder) / "0", every)
        rooms.put(first)
        for i in range(1, asked.jobs):
            rooms.put(first.copied(Path(folder) / str(i)))
        kept = asked.kept or Path(folder)
        lines = kept / "lines.json"
        if not lines.exists():
            lines.write_text(json.dumps(noted(rooms, asked.jobs)))
        known = Reach.read(lines)
        found = fates(wanted, known, rooms, asked.jobs, kept / "killed.txt")
    if asked.output and not asked.part:
        asked.output.write_text(report(found, reasons))
    said = [] if asked.part else complaints(found, reasons)
    sys.stderr.write("\n".join([share(found), *said, ""]))
    return 1 if said else 0


if __name__ == "__main__":
    sys.exit(main())
