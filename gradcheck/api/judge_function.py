"""One function and its VJP, judged at given primals: along one direction, by element, and nearby.

Where the numbers of a primal fit in a narrower type, code that rounds them to it is exact there. So
what passes at primals with short mantissas is judged once more at all primals times one factor,
which fills their mantissas and keeps relations between elements: zeros, ties, signs, order. A
gradient that is right at the primals and wrong there may be right for these primals alone (they
have norm 1, or a value was saved elsewhere): then its error grows with the distance, and a rounding
error does not.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

import numpy as np

from gradcheck.api.elementwise_check import ElementwiseCheck, Request
from gradcheck.errors import Unsupported
from gradcheck.implementations.returned import Broken
from gradcheck.judge.call import ask_forward, ask_vjp
from gradcheck.judge.compare import TOLERANCES
from gradcheck.judge.cotangents import first_cotangent
from gradcheck.judge.quick_check import quick_check
from gradcheck.numerics.arrays import Array
from gradcheck.numerics.narrow import fits_narrow
from gradcheck.results.finding import Finding
from gradcheck.results.verdict import Verdict

Primals = tuple[Array, ...]
Findings = tuple[Finding, ...]

NEAR_FACTOR: Final = 0.9784007352901021
"""Less than 1, for domains that end at ±1; at least four units of bfloat16's last place away. A
small integer times this lies between two numbers of each narrow type: none of 1, 3, 5 and 7 within
0.15 units in the last place of one."""
FAR_FACTORS: Final = (0.9402144884612985, 0.8777144884601089, 0.815214488468164)
"""Factors about three, six and nine times as far from 1."""
MIN_GROWTH: Final = 0.5
"""An error grows with the distance if it grows by this part of the distance, at each FAR_FACTOR."""
MAX_CHANGE: Final = 2.0**-5
"""A change at NEAR_FACTOR, relative to the largest value, that may be a jump."""
MAX_NAMED: Final = 3
"""Primals that a note names; the others are counted."""
MANTISSAS: Final = {"float64": "float32's 24 bits", "float32": "TF32's 11 bits"}


def judge_function(request: Request, primals: Primals, passed: Findings | None = None) -> Findings:
    """The findings at `primals`; where those are short and everything passes, nearby too.

    `passed` are the findings of a quick check that was made already.
    """
    known = passed if _may_be_quick(request) else None
    found = _judge_at(request, primals) if known is None else known
    if request.dtype not in TOLERANCES or any(f.verdict is not Verdict.PASS for f in found):
        return found
    short = [
        n
        for n, p in zip(request.names, primals, strict=True)
        if p.dtype.kind == "f" and fits_narrow(p, request.dtype)
    ]
    return _judge_nearby(request, primals, found, short) if short else found


def judge_quickly(request: Request, primals: Primals) -> Findings | None:
    """PASS along one direction, or None."""
    return quick_check(
        request.forward,
        request.vjp,
        primals,
        request.names,
        request.attrs,
        request.dtype,
        request.seed,
        request.subject,
    )


def _judge_at(request: Request, primals: Primals) -> Findings:
    """Along one direction if that is enough; otherwise element by element."""
    passed = judge_quickly(request, primals) if _may_be_quick(request) else None
    return ElementwiseCheck(request, primals).findings() if passed is None else passed


def _may_be_quick(request: Request) -> bool:
    first_order = request.order == 1 and request.jvp is None
    return request.dtype in TOLERANCES and not request.full and first_order


# ── beside short mantissas ───────────────────────────────────────────────────────────────────────


def _judge_nearby(
    request: Request, primals: Primals, passed: Findings, short: Sequence[str]
) -> Findings:
    """The findings that `passed` at primals of which `short` have short mantissas, judged nearby.

    A gradient that is wrong there, and not for being elsewhere, is a FAIL; where that cannot be
    decided, a note says so.
    """
    near = scaled(primals, NEAR_FACTOR)
    if judge_quickly(request, near) is not None:
        return passed
    try:
        found = _persistent_failures(request, primals, near)
    except (Broken, Unsupported):
        found = None
    if found is not None and all(f.verdict is Verdict.PASS for f in found):
        return passed
    wrong = {f.name: f for f in found or () if f.verdict is Verdict.FAIL}
    if wrong:
        return tuple([wrong.get(finding.name, finding) for finding in passed])
    note = short_mantissa_note(short, request.dtype)
    first, *others = passed
    return replace(first, reason="; ".join(filter(None, (first.reason, note)))), *others


def _persistent_failures(request: Request, primals: Primals, near: Primals) -> Findings | None:
    """Findings at `near`, with those failures alone that persist farther away; None if unknown."""
    plain = replace(request, full=False, order=1, jvp=None, explain=False)
    found = _judge_at(plain, near)
    if all(f.verdict is Verdict.PASS for f in found):
        return found
    moving = _moving_gradients(request, primals, near, scaled(primals, FAR_FACTORS[1]))
    failing = {f.name: f for f in found if f.verdict is Verdict.FAIL and f.name in moving}
    persistent: set[str] = set()
    for factor in FAR_FACTORS:
        if len(persistent) < len(failing):
            far = {f.name: f for f in _judge_at(plain, scaled(primals, factor))}
            persistent |= {n for n, f in failing.items() if persists(f, far.get(n), factor)}
    if not persistent:
        return None
    explained = _judge_at(replace(plain, explain=request.explain), near)
    reason = (
        f"right at the primals given, which fit in {MANTISSAS[request.dtype]} of mantissa, and "
        f"wrong at {NEAR_FACTOR:.4g} times them: is something rounded to a narrower type?"
    )
    return tuple(
        replace(f, reason="; ".join(filter(None, (reason, f.reason))))
        for f in explained
        if f.name in persistent
    )


def _moving_gradients(request: Request, *points: Primals) -> set[str]:
    """Names of primals whose gradient differs at the first two points; none where forward jumps."""
    outputs = [ask_forward(request.forward, p, request.names, request.attrs) for p in points]
    if jumps(*outputs):
        return set()
    sizes = [o.size for o in outputs[0]]
    v = first_cotangent(request.seed, request.subject, sum(sizes))
    parts = zip(np.split(v, np.cumsum(sizes)[:-1]), outputs[0], strict=True)
    ct = tuple(part.reshape(o.shape).astype(o.dtype) for part, o in parts)
    here, there = (_gradients(request, ct, p) for p in points[:2])
    return {n for n in here if n in there and not np.array_equal(here[n], there[n])}


def _gradients(request: Request, ct: Primals, primals: Primals) -> dict[str, Array]:
    """The gradients of vjp, called right after forward, which may save values for it."""
    ask_forward(request.forward, primals, request.names, request.attrs)
    answer = ask_vjp(request.vjp, [ct], primals, request.names, request.attrs)
    return {n: g for n, g in answer.gradients.items() if not isinstance(g, Finding)}


def scaled(primals: Sequence[Array], factor: float) -> Primals:
    """Floating primals times a factor, each in its dtype; integer ones unchanged."""
    return tuple((p * factor).astype(p.dtype) if p.dtype.kind == "f" else p for p in primals)


def jumps(base: Sequence[Array], near: Sequence[Array], far: Sequence[Array]) -> bool:
    """Whether forward's values jump between the primals and NEAR_FACTOR times them."""
    for here, close, afar in zip(base, near, far, strict=True):
        if not here.shape == close.shape == afar.shape:
            return True
        change = np.abs(close - here)
        large = change > MAX_CHANGE * np.max(np.abs(here), initial=0.0)
        if not np.isfinite(close).all() or np.any(large & (2 * change > np.abs(afar - here))):
            return True
    return False


def persists(near: Finding, far: Finding | None, factor: float) -> bool:
    """Whether both fail, at NEAR_FACTOR and at `factor`, with an error that does not grow."""
    if far is None or not near.verdict is far.verdict is Verdict.FAIL:
        return False
    if not near.worst or not far.worst:
        return False
    close, afar = (max(miss.error for miss in f.worst) for f in (near, far))
    return bool(afar < MIN_GROWTH * (1.0 - factor) / (1.0 - NEAR_FACTOR) * close)


def short_mantissa_note(names: Sequence[str], dtype: str) -> str:
    """A note that a pass at primals `names` shows no rounding to a narrower type."""
    more = [] if len(names) <= MAX_NAMED else [f"{len(names) - MAX_NAMED} more"]
    said = " and ".join([*names[:MAX_NAMED], *more])
    return (
        f"{said} {'fits' if len(names) == 1 else 'fit'} in {MANTISSAS[dtype]} of mantissa: code "
        "that rounds to that would not show here; give random numbers"
    )
