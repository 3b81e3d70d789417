"""Cases as requests on file, for code that is not bound; and whether an export is still valid."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from gradcheck.errors import UsageError
from gradcheck.implementations.protocol import answers, folder
from gradcheck.implementations.protocol.answers import Exported, Index, Layout
from gradcheck.implementations.protocol.message import Request
from gradcheck.implementations.protocol.program import vjp_request
from gradcheck.judge.operator import CaseTruth, Unsuitable
from gradcheck.numerics.arrays import dtype_named
from gradcheck.spec.dtype_selection import LOW
from gradcheck.spec.suite import Case, Suite

Progress = Callable[[int, int, str], None]
README: Final = "README.txt"
NAME_DIGITS: Final = 6
"""Digits of a digest in the name of a request."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Exportation:
    """The number of requests and cases written; `skipped` cases do not fit their dtype."""

    requests: int
    cases: int
    skipped: int


def export(
    place: Path,
    suite: Suite,
    cases: Sequence[Case],
    dtypes: Sequence[str],
    seed: int,
    layout: Layout,
    progress: Progress | None = None,
) -> Exportation:
    """Write each case's requests, one per cotangent and dtype, into the empty folder `place`.

    Raises:
        UsageError: the folder is not empty, or cannot be written.
        SpecError: a case contradicts its spec.
    """
    _check_empty(place)
    requests: dict[str, Request] = {}
    exported: list[Exported] = []
    for done, case in enumerate(cases):
        if progress is not None:
            progress(done, len(cases), case.name)
        for dtype, asked in requests_of(case, dtypes):
            found = {answers.digest(request): request for request in asked}
            requests |= found
            exported.append(
                Exported(case=case.name, hash=case.fingerprint, dtype=dtype, calls=tuple(found))
            )
    places = _places(requests, layout)
    try:
        _write(place, requests, places, layout)
        whole = Index(
            layout=layout,
            suite=suite.name,
            suite_version=suite.version,
            seed=seed,
            cases=tuple(exported),
            places=places,
        )
        answers.write(place, whole)
    except OSError as error:
        raise UsageError(f"{error.filename or place}: {error.strerror}") from None
    return Exportation(
        requests=len(requests),
        cases=len({one.case for one in exported}),
        skipped=len(cases) * len(dtypes) - len(exported),
    )


def requests_of(case: Case, dtypes: Sequence[str]) -> Iterator[tuple[str, list[Request]]]:
    """The requests of a case in each dtype that holds it, one per cotangent.

    Raises:
        SpecError: the case contradicts its spec.
    """
    exact: CaseTruth | None = None
    for dtype in dtypes:
        if dtype in LOW:
            try:
                truth = CaseTruth.in_low(case, "", dtype)
            except Unsuitable:
                continue
        else:
            exact = exact or CaseTruth(case)
            truth = exact.at(dtype)
        kind = dtype_named(dtype)
        primals = [p.astype(kind) if p.dtype.kind == "f" else p for p in truth.primals]
        cts = truth.cotangents.typed(dtype)
        yield dtype, [vjp_request(case, dtype, ct, primals, case.attrs) for ct in cts]


def still_true(place: Path, found: Index, suite: Suite) -> list[Case]:
    """The cases of an export, from the suite of today.

    Raises:
        UsageError: the export is of another suite, or a case has changed since.
    """
    again = f"write it again with `gradcheck export`; what lies in {place} answers other questions"
    ours, theirs = (suite.name, suite.version), (found.suite, found.suite_version)
    if ours != theirs:
        raise UsageError(
            f"{place} is an export of the suite {' '.join(theirs)}, this is {' '.join(ours)}: "
            f"{again} (or name its suite with --suite)"
        )
    known = {case.name: case for case in suite.cases(seed=found.seed)}
    dtypes: dict[str, list[str]] = {}
    for one in found.cases:
        case = known.get(one.case)
        if case is None or case.fingerprint != one.hash:
            raise UsageError(f"{place}: {one.case} is another case today: {again}")
        dtypes.setdefault(one.case, []).append(one.dtype)
    today = {
        (name, dtype): tuple(dict.fromkeys(answers.digest(request) for request in asked))
        for name in dtypes
        for dtype, asked in requests_of(known[name], dtypes[name])
    }
    for one in found.cases:
        if today.get((one.case, one.dtype)) != one.calls:
            raise UsageError(f"{place}: {one.case} is asked otherwise today: {again}")
    return [known[name] for name in dtypes]


def _check_empty(place: Path) -> None:
    try:
        place.mkdir(exist_ok=True)
        if any(place.iterdir()):
            raise UsageError(f"{place} is not empty; name a new folder")
    except OSError as error:
        raise UsageError(f"{place}: {error.strerror}") from None


def _places(requests: dict[str, Request], layout: Layout) -> dict[str, str]:
    """Neutral names: the number and the first digits of each digest, in order."""
    digits = len(str(len(requests)))
    ending = ".npz" if layout == "npz" else ""
    return {
        digest: f"{number:0{digits}}-{digest[:NAME_DIGITS]}{ending}"
        for number, digest in enumerate(sorted(requests), start=1)
    }


def _write(
    place: Path, requests: dict[str, Request], places: dict[str, str], layout: Layout
) -> None:
    write = folder.write_npz if layout == "npz" else folder.write
    for digest, name in places.items():
        write(place / name, requests[digest])
    (place / README).write_text(HOW[layout], encoding="utf-8")


BIN: Final = """\
Each folder here holds one request: meta.txt says what is asked, and each input.NAME.bin and
cotangent.NUMBER.bin is an array, raw bytes, little-endian, in C order.

Compute the gradients that the last lines of meta.txt name, for those inputs under that cotangent,
and write each into the same folder as gradient.NAME.bin, in the same form. What you leave out is
reported as missing; a folder without any answer as not answered.

Then, where this folder lies:  gradcheck judge THIS_FOLDER
"""

NPZ: Final = """\
Each file here holds one request: "meta.txt" says what is asked, arrays are called "input.NAME" and
"cotangent.NUMBER". (bfloat16, which NumPy lacks, is uint16: the bits of each number.)

Compute the gradients that the last lines of "meta.txt" name, for those inputs under that cotangent,
and save them beside the request, whose name ends in .answer.npz then:

    import glob, numpy as np
    for path in glob.glob("*-??????.npz"):
        request = np.load(path)
        words = [line.split() for line in request["meta.txt"].decode().splitlines()]
        op = next(word[1] for word in words if word[0] == "op")
        if op == "silu":
            x, ct = request["input.x"], request["cotangent.0"]
            s = 1 / (1 + np.exp(-x))
            np.savez(path[:-4] + ".answer.npz", **{"gradient.x": ct * s * (1 + x * (1 - s))})

What you leave out is reported as missing; a request without an answer as not answered.

Then, where this folder lies:  gradcheck judge THIS_FOLDER
"""
HOW: Final[dict[Layout, str]] = {"bin": BIN, "npz": NPZ}
