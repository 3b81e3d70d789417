"""Where the processor time of long commands goes: by part of the harness, by family, by case.

`python -m benchmarks.profile` runs each command in a process of its own, with one worker, and
prints tables for the README: a part's share of the processor time, and the longest cases. A timer
that counts the processor's time interrupts the command every two milliseconds, and the functions
that are active then are looked up in `PARTS`; so nothing is slowed down but the sampler's own 1%,
where a tracing profiler doubles whatever makes many short calls. Only shares are meant: the
machine is shared. `python -m benchmarks.profile COMMAND… --functions 30` names functions.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, Final

INTERVAL: Final = 0.002
OTHERS: Final = "what is left"

COMMANDS: Final = {
    "suite": ("run", "-j", "1"),
    "models": ("run", "--model", "*", "-j", "1"),
    "rules": ("run", "--rule", "*", "-j", "1"),
    "power": ("power", "--part", "1/5", "-j", "1"),
    "faults": ("power", "--model", "*", "--dtype", "float64", "-j", "1"),
    "diagnosis": ("power", "--diagnosis", "--part", "1/8", "-j", "1"),
}

PARTS: Final = (
    ("imports", ("<frozen importlib._bootstrap>",)),
    ("oracle: 50 digits", ("numerics/operator_oracle.py", "power/equivalence.py")),
    (
        "rounding carried through the spec",
        (
            "rounding.py",
            "judge/model_truth.py:PropagatedRounding",
            "judge/operator_truth.py:CaseTruth._vjp_rounding",
            "judge/operator_truth.py:CaseTruth._forward_rounding",
        ),
    ),
    ("differences: pilot, triple, ladder, noise", ("difference/",)),
    ("impostors and what they would do", ("judge/impostors.py",)),
    ("kinks", ("judge/declared_kinks.py", "judge/stage.py")),
    ("comparison, verdicts", ("judge/compare.py", "judge/gradient_truth.py", "judge/operator.py")),
    ("contract: what a backward owes besides", ("contract/", "judge/contract_check.py")),
    ("diagnosis: rules, interrogation", ("explain/",)),
    ("models: stages, their truth", ("judge/model", "judge/stage.py", "model.py", "program.py")),
    ("update rules: 50 digits, steps", ("judge/rule_truth.py", "judge/rule.py", "judge/rule.py")),
    ("evidence: curves, heat maps", ("judge/evidence_curves.py", "judge/compare.py")),
    ("the code judged, asked", ("judge/call.py", "binding/", "power/attack.py")),
    ("cases: primals, fingerprints", ("suite.py", "spec.py", "draw.py", "judge/cotangents.py")),
    ("records, reports", ("record.py", "recorded.py", "stored/", "report/")),
)  # fmt: skip
"""A part, and how its functions are called ("file:name", from the front).

The first part that is active at all has the time: a difference that is taken for an impostor's
sake is a difference.
"""

CASES: Final = {
    "judging.py:_judge": lambda at: (at["case"].spec, at["case"].name),
    "power/score.py:score": lambda at: (at["spec"], at["spec"].name),
    "power/diagnosis.py:named": lambda at: (at["cases"][0].spec, at["mutant"].full_name),
}
"""Where it is known what is being judged: its spec, and its name."""


class Sampler:
    """Counts, in seconds of the processor's time, what is active when the timer rings."""

    def __init__(self, package: Path) -> None:
        """Look up what belongs to `package`."""
        self.package = f"{package}{os.sep}"
        self.parts: Counter[str] = Counter()
        self.families: Counter[str] = Counter()
        self.cases: Counter[str] = Counter()
        self.functions: Counter[str] = Counter()
        self._last = time.process_time()
        self._known: dict[CodeType, tuple[str, int]] = {}

    def start(self) -> None:
        """Ring from now on."""
        signal.signal(signal.SIGPROF, self._sample)
        signal.setitimer(signal.ITIMER_PROF, INTERVAL, INTERVAL)

    def stop(self) -> None:
        """Ring no more."""
        signal.setitimer(signal.ITIMER_PROF, 0.0)

    def _sample(self, signum: int, frame: FrameType | None) -> None:
        now = time.process_time()
        spent, self._last = now - self._last, now
        best, inner, family, case = len(PARTS), "", "", ""
        for at in _outward(frame):
            code = at.f_code
            if code not in self._known:
                self._known[code] = self._look_up(code)
            own, part = self._known[code]
            best = min(best, part)
            if own:
                inner = inner or own
                if own in CASES and not case:
                    spec, case = CASES[own](at.f_locals)
                    family = getattr(spec, "family", spec.name)
        part = PARTS[best][0] if best < len(PARTS) else OTHERS
        self.parts[part] += spent
        self.functions[f"{part} · {inner}"] += spent
        if case:
            self.families[family] += spent
            self.cases[case] += spent

    def _look_up(self, code: CodeType) -> tuple[str, int]:
        """A function's name, if it is the package's, and the place of its part."""
        own = code.co_filename.removeprefix(self.package)
        if own == code.co_filename and not own.startswith("<frozen"):
            return "", len(PARTS)
        name = f"{own}:{code.co_qualname}"
        places = (i for i, (_, starts) in enumerate(PARTS) if name.startswith(starts))
        return "" if own.startswith("<") else name, next(places, len(PARTS))


def _outward(frame: FrameType | None) -> Iterator[FrameType]:
    while frame is not None:
        yield frame
        frame = frame.f_back


def sampled(words: tuple[str, ...]) -> dict[str, Any]:
    """Run a command here; what it did, as data."""
    import gradcheck
    from gradcheck.cli.main import main as run

    sampler = Sampler(Path(gradcheck.__file__).parent)
    sampler.start()
    try:
        code = run(list(words))
    finally:
        sampler.stop()
    used = resource.getrusage(resource.RUSAGE_SELF)
    return {
        "code": code,
        "seconds": used.ru_utime + used.ru_stime,
        "megabytes": used.ru_maxrss / 1024,
        "parts": sampler.parts,
        "families": sampler.families,
        "cases": sampler.cases,
        "functions": sampler.functions,
    }


def measured(name: str) -> dict[str, Any]:
    """What one of the commands does in a process of its own."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder, "profile.json")
        command = [sys.executable, "-m", "benchmarks.profile", name, "--here", str(out)]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        found: dict[str, Any] = json.loads(out.read_text("utf-8"))
    if found["code"] != 0:
        raise SystemExit(f"gradcheck {' '.join(COMMANDS[name])} ended with {found['code']}")
    return found


def table(found: dict[str, dict[str, Any]]) -> str:
    """A part per row, a command per column: shares of the processor's time, then the totals."""
    lines = [f"| part | {' | '.join(found)} |", f"|---|{'---:|' * len(found)}"]
    rows = [part for part, _ in PARTS] + [OTHERS]
    for part in rows:
        shares = [
            run["parts"].get(part, 0.0) / sum(run["parts"].values()) for run in found.values()
        ]
        if max(shares) >= 0.005:
            lines.append(f"| {part} | {' | '.join(f'{100 * s:.0f}%' for s in shares)} |")
    seconds = " | ".join(f"{run['seconds']:.1f}" for run in found.values())
    memory = " | ".join(f"{run['megabytes']:.0f}" for run in found.values())
    return "\n".join(
        [*lines, f"| **seconds of one core** | {seconds} |", f"| peak RSS, MB | {memory} |"]
    )


def longest(title: str, spent: Mapping[str, float], count: int) -> str:
    """The names that took longest, with their share."""
    whole = sum(spent.values())
    top = sorted(spent.items(), key=lambda item: -item[1])[:count]
    lines = [f"| {title} | seconds | share |", "|---|---:|---:|"]
    return "\n".join([*lines, *(f"| {n} | {s:.2f} | {100 * s / whole:.1f}% |" for n, s in top)])


def main() -> None:
    """Run the commands one after another; print Markdown."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("commands", nargs="*", help=f"of {', '.join(COMMANDS)}; default: all")
    parser.add_argument("--cases", type=int, default=20, help="of the first command; default 20")
    parser.add_argument("--functions", type=int, default=0, help="of the first command")
    parser.add_argument("--here", metavar="FILE", help=argparse.SUPPRESS)
    given = parser.parse_args()
    unknown = [name for name in given.commands if name not in COMMANDS]
    if unknown:
        parser.error(f"no command {unknown[0]!r}; known: {', '.join(COMMANDS)}")
    names = given.commands or list(COMMANDS)
    if given.here:
        Path(given.here).write_text(json.dumps(sampled(COMMANDS[names[0]])), "utf-8")
        return
    found = {name: measured(name) for name in names}
    for name in names:
        print(f"- {name}: `gradcheck {' '.join(COMMANDS[name])}`")
    print(f"\n{table(found)}\n")
    first = found[names[0]]
    print(f"{longest('family', first['families'], given.cases)}\n")
    print(longest("case", first["cases"], given.cases))
    if given.functions:
        print(f"\n{longest('function', first['functions'], given.functions)}")


if __name__ == "__main__":
    main()
