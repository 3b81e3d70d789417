"""The engine's own mutation score: small changes of its modules, and which of them a test notices.

`python tests/mutants -o reports/engine-mutants.md` draws mutations by the hash of their names,
adds those chosen by hand (`chosen.toml`), and runs against each the tests that reach its line, in
a copy of the repository. It exits 1 where fewer than 95% die, where one survives without a reason
(`survivors.toml`), or where a reason is of one that died or is not drawn any more.
"""

from __future__ import annotations

import argparse
import ast
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import tomllib
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from queue import SimpleQueue

from mutations import Mutation, lines_of_functions, mutations

HERE = Path(__file__).parent
ROOT = HERE.parent.parent
ENOUGH = 0.95
"""The part that has to die."""
DRAWN = {
    "difference": 110, "judge": 140, "contract": 60, "stored": 50, "baseline": 40, "diff": 30,
    "commands/outcome.py": 20,
}  # fmt: skip
"""Mutations drawn of each package."""
ALSO = {
    "judge": ("tests/test_library_kinks.py", "tests/test_library_projection.py"),
    "stored": ("tests/report/test_stored.py", "tests/report/test_json.py"),
    "commands/outcome.py": (
        "tests/cli/test_exit_codes.py", "tests/cli/test_streams.py", "tests/cli/test_usage.py",
        "tests/cli/test_hostile.py",
    ),
}  # fmt: skip
"""Tests that belong to a package beside its own folder."""
SECONDS = 40.0
"""What the tests of one mutation may take, as measured without it."""
PATIENCE = 30.0
"""Seconds more that they may take before the mutation counts as one that hangs."""
COPIED = ("gradcheck", "cases", "tests", "examples", "reports", "docs", "benchmarks", "action")


@dataclass(frozen=True)
class Fate:
    """What became of a mutation: whether a test noticed."""

    mutation: Mutation
    killed: bool


class Reach:
    """Which tests run which line, and how long each takes."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self.lines: dict[str, dict[int, set[str]]] = defaultdict(lambda: defaultdict(set))

    @classmethod
    def read(cls, path: Path) -> Reach:
        found = cls()
        for noted in json.loads(path.read_text()):
            found.add(noted)
        return found

    def add(self, noted: dict) -> None:
        self.seconds |= noted["seconds"]
        names = list(noted["seconds"])
        for file, lines in noted["lines"].items():
            for line, tests in lines.items():
                self.lines[file][int(line)].update(names[i] for i in tests)

    def tests(self, mutation: Mutation) -> list[str]:
        """Those that may notice, its module's own first, one of each function before the next."""
        lines = self.lines[mutation.path]
        of = mutation.lines or set(lines)  # what runs on import is used anywhere
        found = set().union(*(lines[line] for line in of if line in lines))
        folder, module = Path(mutation.path).parts[1], Path(mutation.path).stem
        turn: Counter[str] = Counter()

        def place(test: str) -> tuple[int, int, float]:
            function = test.partition("[")[0]
            turn[function] += 1
            own = f"tests/{folder}/"
            far = 0 if test.startswith(f"{own}test_{module}.py") else 1 + (not test.startswith(own))
            return far, turn[function], self.seconds[test]

        ordered, spent = [], 0.0
        for test in sorted(sorted(found, key=self.seconds.__getitem__), key=place):
            if spent + self.seconds[test] <= SECONDS:
                spent += self.seconds[test]
                ordered.append(test)
        return ordered


class Room:
    """A copy of the repository, in which one mutation at a time is tried."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        skip = shutil.ignore_patterns("__pycache__", ".*")
        for name in COPIED:
            shutil.copytree(ROOT / name, folder / name, ignore=skip)
        for file in ROOT.glob("*.*"):
            if file.is_file():
                shutil.copy(file, folder)
        every = sorted({path for part in DRAWN for path in paths(part)})
        if self._pytest([*every, "--collect-only"], {}, None):  # compiles all, once
            sys.exit("the tests cannot be collected; run them without mutations first")

    def note(self, paths: Sequence[str]) -> dict:
        """The lines that the tests of `paths` run; raises where one fails without a mutation."""
        told = self.folder / "lines.json"
        done = self._pytest(paths, {"MUTANTS_LINES": str(told)}, None)
        if done:
            sys.exit(f"the tests of {' '.join(paths)} fail without any mutation; mend them first")
        return json.loads(told.read_text())

    def tries(self, mutation: Mutation, tests: Sequence[str], limit: float) -> bool:
        """Whether a test fails, or takes too long, with the mutation in place."""
        path = self.folder / mutation.path
        source, times = path.read_bytes(), path.stat()
        only = self.folder / "only.txt"
        only.write_text("\n".join(tests))
        try:
            path.write_bytes(mutation.applied(source))
            files = dict.fromkeys(test.partition("::")[0] for test in tests)
            env = {"MUTANTS_ONLY": str(only), "PYTHONDONTWRITEBYTECODE": "1"}
            return self._pytest(list(files), env, limit) != 0
        finally:
            path.write_bytes(source)
            os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))  # what is compiled holds again

    def _pytest(self, paths: Sequence[str], more: dict[str, str], limit: float | None) -> int:
        """The exit status of pytest; whatever it has started is ended with it."""
        where = [self.folder, self.folder / "cases", HERE]
        env = {**os.environ, **more, "PYTHONPATH": os.pathsep.join(map(str, where))}
        command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "reached", *paths]
        command += ["-p", "no:cacheprovider", "--basetemp", str(self.folder / "tmp")]
        with subprocess.Popen(
            command, cwd=self.folder, env=env, start_new_session=True,
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        ) as running:  # fmt: skip
            try:
                return running.wait(limit)
            except subprocess.TimeoutExpired:
                return -1
            finally:
                with suppress(ProcessLookupError):
                    os.killpg(running.pid, signal.SIGKILL)


def paths(part: str) -> list[str]:
    """The tests of a package."""
    own = [f"tests/{part}"] if (ROOT / "tests" / part).is_dir() else []
    return [*own, *ALSO.get(part, ())]


def drawn() -> list[Mutation]:
    """Of each package those whose names have the smallest hashes, and those chosen by hand."""
    found = []
    for part, count in DRAWN.items():
        base = ROOT / "gradcheck" / part
        files = sorted(base.glob("*.py")) if base.is_dir() else [base]
        every = [m for f in files for m in mutations(str(f.relative_to(ROOT)), f.read_bytes())]
        found += sorted(every, key=lambda m: m.place)[:count]
    return [*chosen(), *sorted(found, key=lambda m: m.place)]


def chosen() -> Iterable[Mutation]:
    """What `chosen.toml` asks for; exits where a text to replace is not there exactly once."""
    for entry in tomllib.loads((HERE / "chosen.toml").read_text())["mutation"]:
        path, old, new = f"gradcheck/{entry['file']}", entry["old"], entry["new"]
        source = (ROOT / path).read_text()
        if source.count(old) != 1:
            sys.exit(f"chosen.toml, {entry['says']!r}: {path} has not exactly once {old!r}")
        before = source[: source.index(old)]
        start, line = len(before.encode()), before.count("\n") + 1
        end, last = start + len(old.encode()), line + old.rstrip("\n").count("\n")
        lines = lines_of_functions(ast.parse(source)) & {*range(line, last + 1)}
        yield Mutation(path, line, lines, "by hand", "by hand", entry["says"], start, end, new)


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
        print("killed  " if killed else "SURVIVED", mutation.name, file=sys.stderr, flush=True)
        if killed:
            with kept.open("a") as file:
                file.write(f"{mutation.name}\n")
        return Fate(mutation, killed)

    with ThreadPoolExecutor(jobs) as pool:
        return list(pool.map(fate, wanted))


def report(found: Sequence[Fate], reasons: dict[str, str]) -> str:
    """The figures and all survivors, as Markdown."""
    lines = [
        "# Mutations of the engine",
        "",
        "Made by `tox -e mutants`. One small change at a time, and the tests that reach its line: "
        "is there one that fails? Which are drawn, and what survives, does not depend on the "
        "machine.",
        "",
        f"**{_share(found)}**",
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
        reason = reasons.get(m.name, "**none**")
        lines.append(f"| {m.path}:{m.line} `{m.where}` | `{change}` | {reason} |")
    return "\n".join(lines) + "\n"


def _share(found: Sequence[Fate]) -> str:
    killed = sum(fate.killed for fate in found)
    return f"{killed} of {len(found)} killed: {100 * killed / len(found):.1f}%"


def _part(path: str) -> str:
    return next(part for part in DRAWN if path.startswith(f"gradcheck/{part}"))


def _table(head: str, found: Sequence[Fate], key) -> list[str]:
    groups: dict[str, list[bool]] = defaultdict(list)
    for fate in found:
        groups[key(fate.mutation)].append(fate.killed)
    rows = [f"| {name} | {len(g)} | {sum(g)} | {len(g) - sum(g)} |" for name, g in groups.items()]
    return [f"| {head} | mutations | killed | survived |", "|---|---:|---:|---:|", *rows, ""]


def complaints(found: Sequence[Fate], reasons: dict[str, str]) -> list[str]:
    """What keeps the score from being accepted."""
    said = []
    if sum(fate.killed for fate in found) < ENOUGH * len(found):
        said.append(f"{_share(found)}; at least {ENOUGH:.0%} have to die")
    survived = {fate.mutation.name for fate in found if not fate.killed}
    said += [f"survives without a reason: {name}" for name in sorted(survived - set(reasons))]
    tried = {fate.mutation.name for fate in found}
    for name in sorted(set(reasons) - survived):
        why = "a test kills it now" if name in tried else "it is not drawn"
        said.append(f"survivors.toml has a reason too many ({why}): {name}")
    return said


def main() -> int:
    """Draw, try, report."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("part", nargs="*", help="try only what has this in its name; no report")
    parser.add_argument("-o", dest="output", type=Path, help="where the report goes")
    parser.add_argument("-j", dest="jobs", type=int, default=os.cpu_count())
    parser.add_argument(
        "--kept", type=Path, help="a folder for which test runs which line, and what died before"
    )
    asked = parser.parse_args()
    reasons = tomllib.loads((HERE / "survivors.toml").read_text())["reasons"]
    wanted = [m for m in drawn() if not asked.part or any(p in m.name for p in asked.part)]
    rooms: SimpleQueue[Room] = SimpleQueue()
    with tempfile.TemporaryDirectory() as folder:
        for i in range(asked.jobs):
            rooms.put(Room(Path(folder) / str(i)))
        kept = asked.kept or Path(folder)
        lines = kept / "lines.json"
        if not lines.exists():
            lines.write_text(json.dumps(noted(rooms, asked.jobs)))
        known = Reach.read(lines)
        found = fates(wanted, known, rooms, asked.jobs, kept / "killed.txt")
    if asked.output and not asked.part:
        asked.output.write_text(report(found, reasons))
    said = [] if asked.part else complaints(found, reasons)
    print(_share(found), *said, sep="\n", file=sys.stderr)
    return 1 if said else 0


if __name__ == "__main__":
    sys.exit(main())
