"""The check of a sharded model over real sockets: what it costs, what it finds.

`python -m benchmarks.sharded --workers 4 --parameters 1e6` starts so many processes, judges every
tensor, and prints formulas beside what was counted, and whether the same model in one process is
judged alike. `--bugs` plants each of `planted.BUGS`; `--kill 2` kills a worker half-way; `--project
1e11` prints what the formulas say of a model that nobody has here.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from benchmarks.sharded import cost
from benchmarks.sharded.check import Judged, check
from benchmarks.sharded.layout import Layout, laid_out
from benchmarks.sharded.mesh import Mesh
from benchmarks.sharded.model import Alone, Shard
from benchmarks.sharded.planted import BUGS, Plant
from benchmarks.sharded.wire import Ask, Request
from gradcheck import check_model
from gradcheck.results.finding import Finding
from gradcheck.results.verdict import Verdict

LARGEST = 2e7
"""Parameters above which the same model is not judged in one process beside."""
WIDTH = 150
"""Characters of what is said of a bug."""


@dataclass(frozen=True, slots=True)
class Measured:
    """A check, and what the workers counted themselves."""

    judged: tuple[Judged, ...]
    check_bytes: int
    forwards: tuple[int, ...]
    model_bytes: tuple[int, int]
    copy: int

    @property
    def findings(self) -> list[Finding]:
        """Of the tensors."""
        return [one.finding for one in self.judged[1:]]


def measured(mesh: Mesh, search: int = 400) -> Measured:
    """Check, then ask the workers what they have done."""
    judged = (*check(mesh, search=search),)
    spent = mesh.bytes
    replies = mesh.ask(Request(ask=Ask.COUNTS), mesh.everyone).values()
    sent, received, copies = zip(*(reply.numbers for reply in replies), strict=True)
    return Measured(
        judged,
        spent,
        tuple(reply.count for reply in replies),
        (int(sum(sent)), int(sum(received))),
        int(max(copies)),
    )


def unsharded(layout: Layout, dtype: str, plant: Plant) -> list[Finding]:
    """The same model, the same directions, in this process by `check_model`."""
    one = Shard(replace(layout, stages=1, ranks=1), 0, Alone(), dtype, bug=plant.in_the_model)
    one.backward()
    plant.into(one)
    return list(check_model(one.loss, one.params, one.gradients).findings)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run what is asked for, and print tables."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.sharded", description=__doc__)
    parser.add_argument("--workers", type=int, default=4)
    parser.add_argument("--parameters", type=float, default=1e6)
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--stages", type=int, default=0, help="default: as many as ranks")
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--dtype", choices=("float64", "float32"), default="float64")
    parser.add_argument("--bugs", action="store_true", help="plant every bug, one by one")
    parser.add_argument("--kill", type=int, metavar="WORKER", help="kill it half-way")
    parser.add_argument("--project", type=float, metavar="PARAMETERS")
    given = parser.parse_args(arguments)
    try:
        layout = laid_out(
            given.workers, given.project or given.parameters, given.layers, given.batch,
            given.stages,
        )  # fmt: skip
    except ValueError as error:
        parser.error(str(error))
    print(
        f"{layout.parameters:,} {given.dtype} parameters in {len(layout.shapes)} tensors, "
        f"{layout.layers} layers of width {layout.width}, batch {layout.batch}; {layout.workers} "
        f"workers: {layout.stages} stages × {layout.ranks} ranks\n"
    )
    if given.project:
        print_projection(cost.Projected(layout, np.dtype(given.dtype).itemsize))
    elif given.bugs:
        print_bugs(layout, given.dtype)
    elif given.kill is not None:
        print_killed(layout, given.dtype, given.kill)
    else:
        print_cost(layout, given.dtype)


def print_cost(layout: Layout, dtype: str) -> None:
    """Formulas beside what was counted."""
    with Mesh(layout, dtype) as mesh:
        found = measured(mesh)
        before = mesh.bytes
        mesh.ask(Request(ask=Ask.HERE), mesh.everyone)
        mesh.ask(Request(ask=Ask.HERE), mesh.everyone)
        probe = mesh.bytes - before
    tensors = found.judged[1:]
    total = sum(one.forwards for one in found.judged)
    size = np.dtype(dtype).itemsize
    matrix = max(tensors, key=lambda one: one.finding.compared)
    holders = {name: len(layout.parts(name)) for name in layout.shapes}
    own = cost.tensor(layout.workers, holders[matrix.finding.name], matrix.forwards, matrix.draws)
    every = 2 * layout.workers * cost.EXCHANGE + sum(
        cost.tensor(layout.workers, holders[one.finding.name], one.forwards, one.draws)
        for one in tensors
    )
    anyway = (
        total * cost.forward(layout, size) + cost.backward(layout, size) + cost.introduction(layout)
    )
    rows = [
        ("bytes of a pair: 2 · workers · 96", cost.pair(layout.workers), probe),
        ("forwards of a tensor", cost.FORWARDS, matrix.forwards),
        (f"bytes of `{matrix.finding.name}`", own, matrix.bytes),
        ("forwards of the whole check, by each worker", total + 1, found.forwards[0]),
        ("bytes of the whole check", every, found.check_bytes),
        ("bytes the model sends anyway", anyway, found.model_bytes[0]),
        ("bytes of a worker's largest copy", _copy(layout, size), found.copy),
    ]
    print("| what | formula | counted |\n|---|---:|---:|")
    for what, formula, counted in rows:
        print(f"| {what} | {formula:,} | {counted:,} |")
    print()
    if layout.parameters <= LARGEST:
        print_compared(found.findings, unsharded(layout, dtype, Plant()))


def _copy(layout: Layout, size: int) -> int:
    rows = max(stop - start for start, stop in map(layout.rows_of, range(layout.ranks)))
    return rows * layout.width * size


def print_compared(ours: Sequence[Finding], theirs: Sequence[Finding]) -> None:
    """Whether two lists of findings are of one opinion."""
    same = sum(a.verdict is b.verdict for a, b in zip(ours, theirs, strict=True))
    print(
        f"in one process: {same} of {len(theirs)} verdicts are the same; slopes of the gradient "
        f"differ by at most {apart(ours, theirs):.1g} of their size, errors by at most "
        f"{apart_in_bars(ours, theirs):.2g} error bars"
    )


def apart(ours: Sequence[Finding], theirs: Sequence[Finding]) -> float:
    """The largest relative difference of what both say of ⟨g, d⟩."""
    pairs = [(a.top, b.top) for a, b in zip(ours, theirs, strict=True)]
    return max(abs(a.got - b.got) / abs(b.got) for a, b in pairs if a and b)


def apart_in_bars(ours: Sequence[Finding], theirs: Sequence[Finding]) -> float:
    """The largest difference of the true slopes that both found, in units of both error bars."""
    pairs = [(a.top, b.top) for a, b in zip(ours, theirs, strict=True)]
    return max(abs(a.want - b.want) / (a.error_bar + b.error_bar) for a, b in pairs if a and b)


def print_bugs(layout: Layout, dtype: str) -> None:
    """Every bug, what is said of it, and what it cost."""
    print("| planted | rejected | in one process | the first | forwards | bytes |")
    print("|---|---:|---:|---|---:|---:|")
    for bug, what in BUGS.items():
        plant = Plant(bug, "1.up", layout.parts("1.up")[-1].worker, 17)
        with Mesh(layout, dtype, plant=plant) as mesh:
            found = measured(mesh, search=200)
        wrong = [one for one in found.findings if one.verdict is not Verdict.PASS]
        seen = sum(one.verdict is not Verdict.PASS for one in unsharded(layout, dtype, plant))
        said = f"`{wrong[0].name}`: {wrong[0].reason}" if wrong else "nothing"
        cut = said if len(said) <= WIDTH else f"{said[:WIDTH]}…"
        forwards = sum(one.forwards for one in found.judged)
        row = f"{what} | {len(wrong)} | {seen} | {cut} | {forwards:,} | {found.check_bytes:,}"
        print(f"| {row} |")


def print_killed(layout: Layout, dtype: str, worker: int) -> None:
    """What is left of a check whose worker is killed."""
    with Mesh(layout, dtype) as mesh:
        kept = []
        for one in check(mesh):
            kept.append(one.finding)
            if len(kept) == len(layout.shapes) // 2:
                mesh.processes[worker].kill()
    judged = [f for f in kept if f.verdict is not Verdict.NOTRUN]
    (line,) = [f.reason for f in kept if f.verdict is Verdict.NOTRUN and f.reason]
    print(f"{len(judged)} findings kept, {len(kept) - len(judged)} not run: {line}")


def print_projection(projected: cost.Projected) -> None:
    """What the formulas say."""
    rows = [
        ("tensors", f"{projected.tensors:,}"),
        ("forwards of the whole model, all tensors", f"{projected.forwards:,}"),
        ("bytes of a pair", f"{cost.pair(projected.layout.workers):,}"),
        ("bytes of the check, all tensors", f"{projected.bytes:,}"),
        ("the same, asking only who holds a part", f"{projected.fewest_bytes:,}"),
        ("bytes that one forward sends anyway", f"{projected.forward:,}"),
        ("parameters per worker, MB", f"{projected.held / 1e6:,.0f}"),
        ("largest copy per worker, MB", f"{projected.copy / 1e6:,.0f}"),
    ]
    print("| what | |\n|---|---:|")
    for what, value in rows:
        print(f"| {what} | {value} |")


if __name__ == "__main__":
    main()
