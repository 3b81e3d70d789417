"""A C library as an implementation, called in a process of its own: `--impl gradcheck.toml`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import combinations
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from gradcheck.errors import ManifestError, Unsupported
from gradcheck.implementations.bound import Bound, OperatorsOnly
from gradcheck.implementations.manifest.operation import Function, NativeLibrary, Operation, Value
from gradcheck.implementations.native.case import NativeCase, Run
from gradcheck.implementations.native.claims import operation_for
from gradcheck.implementations.processes.c_worker import Outcome, Script, Worker
from gradcheck.implementations.processes.crash_analysis import MEMORY, diagnose, handled
from gradcheck.implementations.processes.crash_or_hang import (
    Budget,
    Ending,
    WorkerError,
    because,
    variant_of,
)
from gradcheck.implementations.processes.worker import RequestError
from gradcheck.implementations.reference import Reference
from gradcheck.implementations.returned import Broken, broken
from gradcheck.numerics.arrays import as_tuple
from gradcheck.results.finding import Finding
from gradcheck.results.printed import shortened
from gradcheck.results.verdict import Verdict
from gradcheck.spec.suite import Case

Array = NDArray[Any]
Ask = Callable[[Operation, Case, Any, Sequence[Array]], Sequence[Array | None]]
"""The gradients of an operation for a case, one per primal, given the cotangents."""

MAX_CASES: Final = 2
"""Cases in which exchanged sizes must be right."""
MAX_PAIRS: Final = 10
"""Pairs of sizes that are exchanged."""
TOLERANCE: Final = 1e-2
"""A part of the largest element; exchanged sizes are off by far more."""


def exchanged(ask: Ask, operation: Operation, cases: Sequence[Case]) -> str:
    """A sentence on two sizes of the VJP that `bind` exchanges; empty if none are found.

    The gradients must be wrong as `bind` is, and right in every case that is tried once two
    sizes have changed places.
    """
    function = operation.vjp
    pairs = [] if function is None else [*_pairs(function)][:MAX_PAIRS]
    telling = [case for case in cases if _tells(case)][:MAX_CASES] if pairs else []
    try:
        if not telling or all(_right(ask, operation, case) for case in telling):
            return ""
        for pair in pairs:
            for other in _variants(operation, *pair):
                if all(_right(ask, other, case) for case in telling):
                    return _said(operation, *pair, telling)
    except Exception:  # noqa: BLE001  it hangs; a gap, or a case at fault: its verdict says so
        return ""
    return ""


def _pairs(function: Function) -> Iterator[tuple[str, str]]:
    """Parameters of one integer type, with expressions that differ."""
    sizes = [
        (parameter, meaning)
        for parameter in function.prototype.parameters
        if isinstance(meaning := function.meanings[parameter.name], Value)
        and parameter.ctype.pointer == 0
        and not parameter.ctype.base.startswith("float")
    ]
    for (one, first), (other, second) in combinations(sizes, 2):
        if one.ctype == other.ctype and first.expression != second.expression:
            yield one.name, other.name


def _variants(operation: Operation, one: str, other: str) -> Iterator[Operation]:
    """The operation with two sizes of its VJP exchanged, and of its forward as well."""
    assert operation.vjp is not None
    mended = replace(operation, vjp=_swapped(operation.vjp, one, other))
    yield mended
    forward = operation.forward
    if forward is not None and {one, other} <= set(forward.meanings):
        yield replace(mended, forward=_swapped(forward, one, other))


def _swapped(function: Function, one: str, other: str) -> Function:
    meanings = function.meanings
    return replace(function, meanings={**meanings, one: meanings[other], other: meanings[one]})


def _tells(case: Case) -> bool:
    """Whether swapped sizes would show: no axis is empty, and some shape is not square."""
    shapes = [primal.shape for primal in case.primals]
    return all(0 not in shape for shape in shapes) and any(
        len(shape) > 1 and len({*shape}) > 1 and shape[-1] > 1 for shape in shapes
    )


def _right(ask: Ask, operation: Operation, case: Case) -> bool:
    """Whether the gradients are those of the reference, roughly.

    Raises:
        TimeoutError: the code hung, and would again.
    """
    reference = Reference().bind(case, "float64")
    assert reference.forward is not None
    outputs = as_tuple(reference.forward(*case.primals, **case.attrs))
    cts = [np.cos(1.0 + np.arange(y.size)).reshape(y.shape) for y in outputs]
    primals = [p.astype(operation.dtype) if p.dtype.kind == "f" else p for p in case.primals]
    given = [ct.astype(operation.dtype) for ct in cts]
    want = as_tuple(reference.vjp(_whole(cts), *case.primals, **case.attrs))
    try:
        got = ask(operation, case, _whole(given), primals)
    except Broken as error:
        if error.finding.verdict is Verdict.TIMEOUT:
            raise TimeoutError from None
        return False
    return all(_near(a, b) for a, b in zip(got, want, strict=True) if a is not None)


def _whole(parts: Sequence[Array]) -> Any:
    return parts[0] if len(parts) == 1 else tuple(parts)


def _near(got: Array, want: Any) -> bool:
    if want is None or got.shape != np.shape(want):
        return False
    largest = float(np.max(np.abs(want), initial=0.0))
    error = np.abs(got.astype(np.float64) - want)
    return bool((error <= TOLERANCE * largest).all())  # NaN is not near


def _said(operation: Operation, one: str, other: str, cases: Sequence[Case]) -> str:
    assert operation.vjp is not None
    first, second = (operation.vjp.meanings[name] for name in (one, other))
    assert isinstance(first, Value)
    assert isinstance(second, Value)
    where = " and ".join(case.name for case in cases)
    return (
        f"{operation.where}: bind: `{one}` and `{other}` are exchanged, it seems: as written, the "
        f'gradients are wrong in {where}; with {one} = "{second.expression}" and '
        f'{other} = "{first.expression}" they are right'
    )


class Native(OperatorsOnly):
    """The operations of a C library, called in a worker process that is started when needed.

    After 10 crashes or 3 hangs of one dialect, the rest of it is NOTRUN.
    """

    def __init__(self, library: NativeLibrary, name: str = "") -> None:
        """Start nothing yet; `name` is the word of `--impl` (empty: the manifest's path)."""
        self.name = name or str(library.path)
        self.library = library
        self._budget = Budget()
        self._printed = ""
        self._worker: Worker | None = None
        self._handles: dict[str, bool] = {}

    @property
    def version(self) -> str:
        return f"{self.library.name} {self.library.version}".strip()

    def bind(self, case: Case, dtype: str) -> Bound | None:
        """The operation for `op/dialect`, else for `op`.

        Raises:
            Unsupported: the library does not claim to do this case.
            Broken: the operator has crashed or hung too often; or the manifest yields nonsense
                for this case.
        """
        self._printed = ""  # what was printed since is another case's
        found = self.case(case, dtype)
        if found is None:
            return None
        spent = self._budget.exhausted(variant_of(case.spec.name, case.dialect.name))
        if spent is not None:
            raise broken("vjp", spent, Verdict.NOTRUN)
        try:
            return found.bound(self.printed)
        except ManifestError as error:
            raise broken("vjp", str(error)) from error

    def case(self, case: Case, dtype: str) -> NativeCase | None:
        """The calls for a case; None if the library does not have its operator.

        Raises:
            Unsupported: it has it in other dtypes alone.
        """
        operation = operation_for(self.library, case, dtype)
        if operation is None:
            return None
        return NativeCase(self.library, operation, case, self._running(case))

    def smoke(self, cases: Sequence[Case], dtypes: Sequence[str]) -> list[str]:
        """Mistakes of the manifest, found by laying out each case's calls; none is made.

        The first of each entry, with its case.
        """
        problems: dict[str, str] = {}
        for case in cases:
            for dtype in dtypes:
                where, mistake = self._mistake(case, dtype)
                if mistake:
                    problems.setdefault(where, f"{mistake} (in {case.name}/{dtype})")
        return [*problems.values()]

    def exchanged(self, cases: Sequence[Case], dtypes: Sequence[str]) -> list[str]:
        """Sizes that the manifest gives in each other's place; each entry is called to see it."""
        entries: dict[str, tuple[Operation, list[Case]]] = {}
        for case in cases:
            for dtype in dtypes:
                try:
                    operation = operation_for(self.library, case, dtype)
                except Unsupported:
                    continue
                if operation is not None:
                    entries.setdefault(operation.where, (operation, []))[1].append(case)
        probe = Native(self.library)  # its crashes are nobody's

        def ask(operation: Operation, case: Case, ct: Any, primals: Sequence[Any]) -> Any:
            asked = NativeCase(self.library, operation, case, probe._running(case))
            return asked.vjp(ct, *primals, **case.attrs)

        try:
            found = [exchanged(ask, operation, few) for operation, few in entries.values()]
        finally:
            probe.close()
        return [mistake for mistake in found if mistake]

    def _mistake(self, case: Case, dtype: str) -> tuple[str, str]:
        """The entry that a case is laid out by, and what is wrong with it there, if anything."""
        where = ""
        try:
            operation = operation_for(self.library, case, dtype)
            if operation is not None:
                where = operation.where
                NativeCase(self.library, operation, case, _nothing).lay_out()
        except ManifestError as error:
            return where, str(error)
        except Exception:  # noqa: BLE001  a gap, or a case at fault: its verdict says so
            return where, ""
        return where, ""

    def printed(self) -> str:
        """An excerpt of what the code has printed since this was last asked."""
        text, self._printed = self._printed, ""
        return text

    def close(self) -> None:
        if self._worker is not None:
            self._worker.close()
            self._worker = None

    def _start(self, *, handled: bool = False) -> Worker:
        """A new worker; with `handled` the library's own handlers get faults."""
        return Worker(self.library.environment, self.library.timeout, handled=handled)

    def _running(self, case: Case) -> Run:
        op = case.spec.name

        def run(script: Script, role: str) -> Outcome:
            handled = self._handles.get(op, False)
            if self._worker is not None and self._worker.handled is not handled:
                self.close()
            self._worker = self._worker or self._start(handled=handled)
            try:
                outcome = self._worker.run(script)
            except WorkerError as ended:
                found = self._again(op, script, ended.ending)
                if isinstance(found, Ending):
                    raise self._broken(case, script, role, found) from None
                outcome = found
            except RequestError as error:
                raise broken(role, str(error)) from None
            self._hear(outcome.printed)
            return outcome

        return run

    def _again(self, op: str, script: Script, ending: Ending) -> Outcome | Ending:
        """The ending of a script; its outcome, if the operator's code handles its own faults.

        This is tried once, at the first fault of an operator.
        """
        if op in self._handles or ending.returncode not in MEMORY:
            return ending
        found = handled(script, ending, self._start, lambda: self._start(handled=True))
        self._handles[op] = not isinstance(found, Ending)
        return found

    def _broken(self, case: Case, script: Script, role: str, ending: Ending) -> Broken:
        variant = variant_of(case.spec.name, case.dialect.name)
        self._budget.spend(variant, ending.verdict)
        self._hear(ending.printed)
        reason = because(ending)
        if self._budget.investigates(variant, ending.verdict):
            known = self._handles.get(case.spec.name, False)
            reason = diagnose(script, ending, lambda: self._start(handled=known))
        heard = ending.printed
        return Broken(Finding(name=role, verdict=ending.verdict, reason=reason, printed=heard))

    def _hear(self, text: str) -> None:
        self._printed = shortened(self._printed + text)


def _nothing(script: Script, role: str) -> Outcome:
    """Refuse to make a call."""
    raise AssertionError(f"{role} is called while calls are only laid out: {script}")
