"""Where a mutation is tried: a copy of the repository, and the tests that reach its line."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from collections import Counter, defaultdict
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from mutations import Mutation

HERE = Path(__file__).parent
ROOT = HERE.parent.parent
SECONDS = 8.0
"""Of the processor, what the tests of one mutation may take, as measured without it."""
COPIED = ("gradcheck", "cases", "tests", "examples", "reports", "docs", "benchmarks", "action")


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
        """Those that run its lines and those of its module by name; one of each function first.

        What runs once only, on import or because its result is kept, is not seen to be run by
        others: therefore those by name.
        """
        lines = self.lines[mutation.path]
        of = mutation.lines or set(lines)
        place = Path(mutation.path)
        folder, module = "/".join(place.parts[1:-1]), place.stem
        own, near = f"tests/{folder}/test_{module}.py", f"tests/{folder}/"
        found = {test for test in self.seconds if test.startswith(own)}
        found.update(*(lines[line] for line in of if line in lines))
        turn: Counter[str] = Counter()

        def turn_of(test: str) -> tuple[int, int, float]:
            turn[function := test.partition("[")[0]] += 1
            far = 0 if test.startswith(own) else 1 if test.startswith(near) else 2
            return far, turn[function], self.seconds[test]

        ordered, spent = [], 0.0
        for test in sorted(sorted(found, key=self.seconds.__getitem__), key=turn_of):
            if spent + self.seconds[test] <= SECONDS:
                spent += self.seconds[test]
                ordered.append(test)
        return ordered


class Room:
    """A copy of the repository, in which one mutation at a time is tried."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @classmethod
    def made(cls, folder: Path, paths: Sequence[str]) -> Room:
        """One in which all that the tests of `paths` need is compiled."""
        skip = shutil.ignore_patterns("__pycache__", ".*")
        for name in COPIED:
            shutil.copytree(ROOT / name, folder / name, ignore=skip)
        for file in ROOT.glob("*.*"):
            if file.is_file():
                shutil.copy(file, folder)
        room = cls(folder)
        if room._pytest([*paths, "--collect-only"], {}, None):
            sys.exit("the tests cannot be collected; run them without mutations first")
        return room

    def copied(self, folder: Path) -> Room:
        """Another one like it."""
        shutil.copytree(self.folder, folder)
        return Room(folder)

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
            os.utime(
                path, ns=(times.st_atime_ns, times.st_mtime_ns)
            )  # what is compiled holds again

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
