"""`check_model`: the gradients of any loss, judged tensor by tensor, in place."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import combinations
from typing import Any, Final

import numpy as np

from gradcheck.api.check import Result
from gradcheck.api.judge_function import short_mantissa_note
from gradcheck.errors import UnknownNameError, UsageError
from gradcheck.implementations import returned
from gradcheck.judge.compare import TOLERANCES
from gradcheck.judge.loss import judge_tensors
from gradcheck.numerics.arrays import Array
from gradcheck.numerics.narrow import fits_narrow
from gradcheck.results.finding import Finding
from gradcheck.results.verdict import Verdict

SEARCH: Final = 400
"""Evaluations of the loss for finding the wrong elements of one tensor."""


def check_model(
    loss: Callable[..., Any],
    params: Mapping[str, Array],
    gradients: Mapping[str, Any],
    *,
    seed: int = 0,
    locate: bool = True,
    search: int = SEARCH,
) -> Result:
    """Judge the gradients of a loss of any size, tensor by tensor, by its values alone.

    `loss()`, or `loss(params)`, returns a number; it reads the arrays of `params` where they are:
    each floating one is moved along a random direction, in place, and restored bit by bit.
    Integer ones are left alone. `gradients` maps the same names to arrays, or to a list of arrays
    that add up to the gradient (the buffers of a tied weight).

    A few forwards per tensor (6 where the loss is smooth in float64) tell a wrong tensor, and one
    wrong element as far as the loss's own rounding allows: each finding says how wrong it must be
    (`smallest_visible_error`). Where a tensor is wrong, `locate` finds its wrong elements by
    bisection, in up to `search` more forwards. Memory: one copy of one tensor.

    Raises:
        UsageError: a parameter is not a C-contiguous writable float64 or float32 array (integers
            apart), two share memory, or none is floating.

    >>> import numpy as np
    >>> w = np.array([1.0, -2.0, 3.0])
    >>> check_model(lambda: np.sum(w**2), {"w": w}, {"w": 2 * w}).ok
    True
    >>> check_model(lambda: np.sum(w**2), {"w": w}, {"w": 2 * w + [0, 0, 1e-6]}).findings[0].reason
    '1 of 3 elements is wrong'
    """
    dtypes = _check_params(params)
    call = _bound(loss, params)
    findings = judge_tensors(
        call,
        params,
        _checked(params, gradients),
        seed=("check_model", seed),
        search=search if locate else 0,
    )
    findings = _noted(findings, params)
    surplus = [_surplus(name, params) for name in gradients if name not in params]
    subject = getattr(loss, "__name__", type(loss).__name__)
    name = "gradients" if subject == "<lambda>" else f"gradients of {subject}"
    return Result(findings=(*findings, *surplus), dtype=" and ".join(dtypes), subject=name)


def _noted(findings: Sequence[Finding], params: Mapping[str, Array]) -> list[Finding]:
    """The findings, with a note at the first pass whose values are too short to show rounding.

    The gradients are known at these values alone, so that nothing can be judged nearby.
    """
    passed = [f for f in findings if f.verdict is Verdict.PASS and f.name in params]
    short = [f for f in passed if fits_narrow(params[f.name], params[f.name].dtype.name)]
    if not short:
        return [*findings]
    kind = params[short[0].name].dtype.name
    note = short_mantissa_note([f.name for f in short if params[f.name].dtype.name == kind], kind)
    noted = replace(short[0], reason="; ".join(filter(None, (short[0].reason, note))))
    return [noted if finding is short[0] else finding for finding in findings]


def _checked(
    params: Mapping[str, Array], gradients: Mapping[str, Any]
) -> dict[str, Array | Sequence[Array] | Finding]:
    """Gradients of the floating parameters, or the faults in their form."""
    out: dict[str, Array | Sequence[Array] | Finding] = {}
    for name, param in params.items():
        if param.dtype.kind != "f" or gradients.get(name) is None:
            continue
        got = gradients[name]
        buffers = got if isinstance(got, (list, tuple)) else [got]
        faults = [returned.fault(b, param, name, role="the model") for b in buffers]
        fault = next((f for f in faults if f is not None), None)
        if not buffers:
            reason = f"no gradient for {name}: its list of buffers is empty"
            fault = Finding(name=name, verdict=Verdict.MISSING, reason=reason)
        out[name] = fault or [np.asarray(b) for b in buffers]
    return out


def _surplus(name: str, params: Mapping[str, Array]) -> Finding:
    reason = f"a gradient of nothing: {UnknownNameError('parameter', name, params)}"
    return Finding(name=name, verdict=Verdict.ERROR, reason=reason)


def _check_params(params: Mapping[str, Array]) -> list[str]:
    """The dtypes of the parameters judged; refuses those that cannot be moved in place."""
    floating = {}
    for name, array in params.items():
        if not isinstance(array, np.ndarray):
            kind = type(array).__name__
            raise UsageError(f"parameter {name!r} is a {kind}: pass the array that loss reads")
        if array.dtype.kind in "iub":
            continue
        if array.dtype.kind != "f" or array.dtype.name not in TOLERANCES:
            raise UsageError(f"parameter {name!r} is {array.dtype}: pass float64 or float32")
        if not array.flags.c_contiguous:
            raise UsageError(
                f"parameter {name!r} is not C-contiguous: pass the array that owns its memory"
            )
        if not array.flags.writeable:
            raise UsageError(f"parameter {name!r} is read-only: it is moved in place; pass a copy")
        floating[name] = array
    if not floating:
        raise UsageError("no floating parameter: there is nothing to differentiate by")
    for (a, first), (b, second) in combinations(floating.items(), 2):
        if np.may_share_memory(first, second):
            raise UsageError(
                f"parameters {a!r} and {b!r} share memory: name it once, and give the list of its "
                "gradient buffers"
            )
    return sorted({array.dtype.name for array in floating.values()})


def _bound(loss: Callable[..., Any], params: Mapping[str, Array]) -> Callable[[], Any]:
    """`loss` as a function without arguments."""
    if not callable(loss):
        raise UsageError(f"loss is a {type(loss).__name__}: pass a function")
    try:
        parameters = inspect.signature(loss).parameters.values()
    except (TypeError, ValueError):
        return loss
    positional = [
        p
        for p in parameters
        if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD) and p.default is p.empty
    ]
    return (lambda: loss(params)) if positional else loss
