"""Failing tensors on file: what went in, what came out and what is true, of each wrong gradient."""

from __future__ import annotations

import hashlib
import io
import json
import re
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray

from gradcheck.errors import GradcheckError
from gradcheck.explain.operator_probes import ProbeCollector
from gradcheck.explain.shrink import Shrunk, shown
from gradcheck.judge.operator import CaseTruth, Unsuitable
from gradcheck.report.scripts.point import cotangent_of, primals_of
from gradcheck.results.case_result import CaseResult, Kind
from gradcheck.results.finding import Finding, Part
from gradcheck.results.run import Run
from gradcheck.results.verdict import Verdict
from gradcheck.run.plan import LoadedPlan
from gradcheck.spec.dtype_selection import LOW
from gradcheck.spec.suite import Case
from gradcheck.system import atomic_io

Array = NDArray[Any]

MOST: Final = 100
"""Files of one run."""
LARGEST: Final = 1 << 28
"""Bytes of all of them."""
LONGEST: Final = 150
"""Characters of a name."""
PLAIN: Final = re.compile(r"[^A-Za-z0-9_.+-]")
WRONG: Final = (
    Verdict.FAIL, Verdict.MISSING, Verdict.INCONCLUSIVE, Verdict.ERROR, Verdict.CRASH,
    Verdict.TIMEOUT,
)  # fmt: skip
FORWARD: Final = "forward"


@dataclass(frozen=True, slots=True, kw_only=True)
class Kept:
    """How many failing gradients are on file, of how many; `trouble` is why one could not be."""

    files: int
    of: int
    trouble: str = ""


def wanted(run: Run) -> list[CaseResult]:
    """The results that are kept: failing gradients of operators that no baseline knows."""
    return [
        result
        for result in run.results
        if result.case.kind is Kind.OPERATOR
        and result.finding.part is Part.GRADIENT
        and result.finding.name != FORWARD
        and result.finding.verdict in WRONG
        and run.fails(result)
    ]


def keep(
    ready: LoadedPlan, run: Run, folder: Path, most: int = MOST, largest: int = LARGEST
) -> Kept:
    """Write a file per failing gradient into `folder`, in the order of the run.

    The code is asked once more, under the cotangent of the worst element, unless it crashed or
    hung. At most `most` files and `largest` bytes are written; one that would be beyond that
    is left out. A file is whole, or not there.
    """
    results = wanted(run)
    named = len({result.case.implementation for result in results}) > 1
    names: set[str] = set()
    room, trouble = largest, ""
    try:
        for result, found in _shown(ready, results):
            if len(names) == most:
                break
            content = _content(result, found)
            if len(content) <= room:
                name = name_of(result, names, named=named)
                atomic_io.replace(folder / name, content)
                names.add(name.lower())
                room -= len(content)
    except OSError as error:
        trouble = error.strerror or str(error)
    except KeyboardInterrupt:  # of what was judged nothing is lost
        trouble = "interrupted"
    return Kept(files=len(names), of=len(results), trouble=trouble)


def name_of(result: CaseResult, taken: set[str], *, named: bool) -> str:
    """The name of a result's file: "silu.default.zero.float32.x.npz", and nobody else's.

    What a file system might not hold is replaced; where that makes two names one, or cuts a name
    short, some digits of a hash tell them apart. With `named`, the implementation is in it.
    """
    parts = [result.case.implementation] * named
    parts += [
        result.case.op,
        result.case.dialect,
        result.case.sample,
        result.case.dtype,
        result.finding.name,
    ]
    plain = PLAIN.sub("_", ".".join(parts)).lstrip(".-") or "_"
    name = f"{plain[:LONGEST]}.npz"
    exact = ".".join(parts) == plain and len(plain) <= LONGEST
    if exact and name.lower() not in taken:
        return name
    digest = hashlib.blake2b("\0".join(parts).encode(errors="backslashreplace"), digest_size=4)
    return f"{plain[:LONGEST]}-{digest.hexdigest()}.npz"


def _shown(ready: LoadedPlan, results: Sequence[CaseResult]) -> Iterator[tuple[CaseResult, Shrunk]]:
    """Each result with the numbers behind it, where they can be had."""
    cases = {case.name: case for case in ready.plan.cases}
    bindings = {binding.name: binding for binding in ready.bindings}
    truths: dict[tuple[str, str], CaseTruth] = {}  # of one case: its gradients share it
    for result in results:
        case = cases.get(f"{result.case.op}/{result.case.dialect}/{result.case.sample}")
        binding = bindings.get(result.case.implementation)
        if case is None or binding is None:
            continue
        key = case.name, result.case.dtype
        try:
            if key not in truths:
                truths = {key: _truth(case, result.case.dtype, ready.plan.convention)}
            truth = truths[key]
            top = result.finding.top
            row = truth.cotangents.names.index(top.cotangent) if top is not None else 0
            finding = Finding(
                name=result.finding.name, verdict=result.finding.verdict, worst=result.finding.worst
            )
            yield result, shown(truth, finding, ProbeCollector(binding, result.case.dtype), row)
        except (Unsuitable, GradcheckError, ValueError):
            continue  # the report has said what is wrong with it


def _truth(case: Case, dtype: str, convention: str) -> CaseTruth:
    if dtype in LOW:
        return CaseTruth.in_low(case, convention, dtype)
    return CaseTruth(case, convention).at(dtype)


def _content(result: CaseResult, found: Shrunk) -> bytes:
    """The file: arrays by role and name, and `about`, a text in JSON."""
    arrays = {f"primal.{name}": array for name, array in primals_of(found).items()}
    arrays |= {f"cotangent.{i}": part for i, part in enumerate(cotangent_of(found))}
    arrays |= {"got": found.got, "want": found.want, "error_bar": found.bar}
    arrays["about"] = np.array(json.dumps(_about(result, found), indent=1))
    return _archived(arrays)


def _about(result: CaseResult, found: Shrunk) -> dict[str, Any]:
    top = result.finding.top
    return {
        "name": result.case.name,
        "hash": result.case.hash,
        "output": result.finding.name,
        "implementation": result.case.implementation,
        "verdict": result.finding.verdict.value,
        "reason": result.finding.reason,
        "cotangent": top.cotangent if top is not None else "",
        "worst_index": list(map(int, top.index)) if top is not None else None,
        "attributes": {key: repr(value) for key, value in found.case.attrs.items()},
        "seed": result.case.seed,
        "repro": result.repro,
    }


def _archived(arrays: Mapping[str, Array]) -> bytes:
    """An .npz file; the same arrays are the same bytes, whenever it is written."""
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as archive:
        for name, array in arrays.items():
            one = io.BytesIO()
            npy.write_array(one, _plain(array), allow_pickle=False)
            archive.writestr(zipfile.ZipInfo(f"{name}.npy"), one.getvalue())
    return stream.getvalue()


def _plain(array: Array) -> Array:
    """The array; of bfloat16, which NumPy lacks, in float32, which holds all of its numbers."""
    return array.astype(np.float32) if array.dtype.kind == "V" else array
