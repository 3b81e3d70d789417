"""Checks of a program of level `oneshot`: its answers, and its exit status without one."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Final

from gradcheck.cli.conformance.check import Check, Fault, Outcome, judge_first, tried
from gradcheck.implementations.manifest.operation import Program
from gradcheck.implementations.processes.crash_or_hang import in_words
from gradcheck.implementations.protocol import folder
from gradcheck.implementations.protocol.message import Request
from gradcheck.implementations.protocol.program import Process, forward_request
from gradcheck.implementations.protocol.session import Oneshot
from gradcheck.numerics.arrays import dtype_named, is_float
from gradcheck.spec.dtype_selection import DTYPES
from gradcheck.spec.suite import Case, Suite

MAX_SAMPLES: Final = 2
"""Samples tried of an operator: each starts a process or two."""


def checks(program: Program, suite: Suite, globs: Sequence[str] = ()) -> Iterator[Check]:
    """Try a program, one check after the other, with the operators that match `globs`.

    Raises:
        UnknownNameError: a glob matches nothing.
        LoadError: it does not start.
    """
    process = Process(program.name, program)
    assert isinstance(process.session, Oneshot)
    specs = suite.select(globs)
    lacking, known = [], None
    for spec in specs:
        cases = suite.cases([spec.name])
        for dtype in DTYPES:
            attempt = partial(judge_first, process, cases, dtype, MAX_SAMPLES)
            check = tried(f"{spec.name} in {dtype}", attempt)
            if check.lacks:
                lacking.append(check.name)
            else:
                yield check
                known = known or (cases[0], dtype)
    if lacking:
        says = f"exit status 3 for {len(lacking)} of {2 * len(specs)}"
        yield Check(name="operators that it lacks", outcome=Outcome.OK, says=says)
    case, dtype = known or (suite.cases([specs[0].name])[0], DTYPES[0])
    yield from _broken(process.session, _request(case, dtype))


def _request(case: Case, dtype: str) -> Request:
    kind = dtype_named(dtype)
    primals = [p.astype(kind) if is_float(p.dtype) else p for p in case.primals]
    return forward_request(case, dtype, primals, case.attrs)


def _broken(program: Oneshot, request: Request) -> Iterator[Check]:
    """Folders that hold no request, or half of one: exit with a status other than 0."""
    first = folder.file_of(request.blocks[0].form)

    def cut(place: Path) -> None:
        data = (place / first).read_bytes()
        (place / first).write_bytes(data[:-1])

    def without(name: str) -> Callable[[Path], None]:
        return lambda place: (place / name).unlink()

    def other(old: str, new: str) -> Callable[[Path], None]:
        def change(place: Path) -> None:
            meta = place / folder.META
            meta.write_text(meta.read_text().replace(old, new))

        return change

    changes: dict[str, Callable[[Path], object]] = {
        "an operator that it does not know": other(f"op {request.op}", "op gradcheck"),
        "an ask that it does not know": other(f"ask {request.ask}", "ask gradcheck"),
        "a dtype that it does not know": other(f"dtype {request.dtype}", "dtype float8"),
        "a folder without `meta.txt`": without(folder.META),
        "an empty `meta.txt`": lambda place: (place / folder.META).write_bytes(b""),
        "a folder without an input": without(first),
        "an input that was cut short": cut,
    }
    for name, change in changes.items():
        yield tried(name, partial(_refused, program, request, change))
    yield tried("no folder at all", partial(_gives_up, program))
    yield tried("a folder that there is not", partial(_gives_up, program, "/nowhere/gradcheck"))


def _refused(program: Oneshot, request: Request, change: Callable[[Path], object]) -> None:
    with tempfile.TemporaryDirectory(prefix="gradcheck-") as name:
        place = Path(name)
        folder.write(place, request)
        change(place)
        _gives_up(program, name)


def _gives_up(program: Oneshot, *arguments: str) -> None:
    code = program.status(*arguments)
    if code < 0:
        raise Fault(f"it died of {in_words(code)}; exit with a status other than 0")
    if code == 0:
        raise Fault("it exited with status 0; exit with another")
