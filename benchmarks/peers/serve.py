"""The process of one peer: `python -m benchmarks.peers.serve KEY`, a JSON line per request.

Requests: `import`; `check` (timed); `count` (rejections among many inputs); `floor` (what
a sweep over all elements costs at least). What goes wrong in a check is an answer, `{"error": …}`.
Standard output belongs to the protocol; what libraries print goes to standard error.
"""

from __future__ import annotations

import json
import os
import resource
import statistics
import sys
import time
import warnings
from collections.abc import Callable
from importlib import import_module
from importlib.metadata import version
from typing import Any

Answer = dict[str, Any]


class Server:
    """What a peer's process keeps: the adapter, once it is imported."""

    def __init__(self, key: str) -> None:
        """Nothing heavy yet: the import is one of the things that are timed."""
        self.key = key
        self.adapter: Any = None
        self.room = 0

    def answer(self, request: dict[str, Any]) -> Answer:
        """One request."""
        words = dict(request)
        call: Callable[..., Answer] = getattr(self, f"do_{words.pop('do')}")
        try:
            return call(**words)
        except MemoryError as error:
            return {"error": f"over {self.room >> 30} GiB: {error}"[:200]}
        except Exception as error:  # noqa: BLE001 - whatever it is, the row says it
            return {"error": f"{type(error).__name__}: {error}".splitlines()[0][:200]}

    def do_import(self) -> Answer:
        """Import the tool with everything that it needs."""
        start = time.perf_counter(), time.process_time()
        from benchmarks.peers import PEERS

        peer = PEERS[self.key]
        self.adapter = import_module(f"benchmarks.peers.{peer.module}").ADAPTER(peer.variant)
        wall, cpu = time.perf_counter() - start[0], time.process_time() - start[1]
        self.room = peer.memory
        if peer.memory:
            resource.setrlimit(resource.RLIMIT_AS, (peer.memory, peer.memory))
        versions = {package: version(package) for package in ("numpy", *peer.needs)}
        return {"wall": wall, "cpu": cpu, "versions": versions}

    def do_check(self, workload: str, seed: int, times: int = 1) -> Answer:
        """Checks of the right gradient in a row, each timed; inputs are made before that."""
        given = _workload(workload)
        checks = [self.adapter.prepare(given, seed + k, None) for k in range(times)]
        wall, cpu, accepted = [], [], 0
        for check in checks:
            start = time.perf_counter(), time.process_time()
            accepted += bool(check())
            cpu.append(time.process_time() - start[1])
            wall.append(time.perf_counter() - start[0])
        return {"rejected": times - accepted, "wall": wall, "cpu": cpu}

    def do_count(
        self, workload: str, seed: int, trials: int, budget: float, size: float = 0.0
    ) -> Answer:
        """Rejections among up to `trials` inputs, `size` the planted error, within a budget.

        The budget is processor time; the first trial is made in any case.
        """
        from benchmarks.planted import plant

        given = _workload(workload)
        made = rejected = 0
        start = time.process_time()
        while made < trials and (not made or time.process_time() - start < budget):
            trial = seed + made
            planted = plant(given, trial, given.primals(trial), size) if size else None
            rejected += not self.adapter.prepare(given, trial, planted)()
            made += 1
        return {"made": made, "rejected": rejected, "cpu": time.process_time() - start}

    def do_floor(self, workload: str, seed: int) -> Answer:
        """The processor time of both signs of every element, in the best stacks of copies."""
        from benchmarks.floor import sweep

        return {"cpu": sweep(_workload(workload), seed)}

    def do_scalar(self, workload: str, seed: int) -> Answer:
        """The check of ⟨v, f⟩, which has no structure to use: the median of a few."""
        from benchmarks.floor import scalar

        given = scalar(_workload(workload), seed)
        taken, accepted = [], []
        for trial in range(seed, seed + (5 if given.small else 1)):
            check = self.adapter.prepare(given, trial, None)
            start = time.process_time()
            accepted.append(bool(check()))
            taken.append(time.process_time() - start)
        return {"accepted": all(accepted), "cpu": statistics.median(taken)}


def _workload(name: str) -> Any:
    from benchmarks.workloads import HARD, WORKLOADS

    return {**WORKLOADS, **HARD}[name]


def main() -> None:
    """Answer until standard input ends."""
    channel = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    warnings.simplefilter("ignore")  # a tool's own remarks on what it is given
    server = Server(sys.argv[1])
    for line in sys.stdin:
        channel.write(json.dumps(server.answer(json.loads(line))) + "\n")
        channel.flush()


if __name__ == "__main__":
    main()
