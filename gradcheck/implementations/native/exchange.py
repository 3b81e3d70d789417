"""Sizes that `bind` gives in each other's place: the code itself is asked, before it is judged."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import combinations
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from gradcheck.implementations.manifest.operation import Function, Operation, Value
from gradcheck.implementations.reference import Reference
from gradcheck.implementations.returned import Broken
from gradcheck.numerics.arrays import as_tuple
from gradcheck.results.verdict import Verdict
from gradcheck.spec.suite import Case

Array = NDArray[Any]
Ask = Callable[[Operation, Case, Any, Sequence[Array]], Sequence[Array | None]]
"""What an operation answers for a case: a gradient per primal, given the cotangents."""

CASES: Final = 2
"""That must agree."""
PAIRS: Final = 10
"""Of sizes that are tried."""
CLOSE: Final = 1e-2
"""Of the largest element: sizes in each other's place are off by far more."""


def exchanged(ask: Ask, operation: Operation, cases: Sequence[Case]) -> str:
    """Which two sizes of the VJP are exchanged in `bind`, as a sentence; empty: none, it seems.

    The gradients must be wrong as `bind` is, and right in every case that is tried once two
    sizes have changed places.
    """
    function = operation.vjp
    pairs = [] if function is None else [*_pairs(function)][:PAIRS]
    telling = [case for case in cases if _tells(case)][:CASES] if pairs else []
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
    """Whether rows and columns are told apart, and nothing is empty."""
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
    return bool((error <= CLOSE * largest).all())  # NaN is not near


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
