"""A double backward, judged as any VJP: the function that it differentiates is the user's VJP."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gradcheck.implementations.returned import Broken, broken
from gradcheck.judge.black_box import PrimalCheck, promoted
from gradcheck.judge.compare import Rules
from gradcheck.judge.conditioning import Conditioning, asking
from gradcheck.judge.cotangents import Cotangents, draw_cotangents
from gradcheck.judge.probe import ask_vjp
from gradcheck.judge.second import Gradients
from gradcheck.numerics.draw import Draw
from gradcheck.numerics.estimator import NoiseProbe
from gradcheck.numerics.evaluate import flatten
from gradcheck.numerics.richardson import top_step
from gradcheck.results.finding import Finding

Array = NDArray[Any]
Float = NDArray[np.float64]

ROLE = "double_vjp"


def as_vjp(double_vjp: Callable[..., Any], outputs: int, primals: Sequence[Array]) -> Any:
    """`double_vjp` as a VJP of the function (each part of ct, each primal) → gradients.

    It calls `double_vjp(ggs, ct, *primals)` with `ggs` in the form in which vjp returns gradients,
    and flattens its answer (d_ct, d_primal, …).

    Raises:
        Broken: the answer has another form.
    """
    floating = [p.dtype.kind == "f" for p in primals]

    def vjp(gg: Any, *arguments: Array, **attrs: Any) -> tuple[Any, ...]:
        rest = iter(gg if isinstance(gg, tuple) else (gg,))
        entries = tuple(next(rest) if moves else None for moves in floating)
        ggs = entries if len(entries) > 1 else entries[0]
        ct = arguments[0] if outputs == 1 else arguments[:outputs]
        found = double_vjp(ggs, ct, *arguments[outputs:], **attrs)
        count = 1 + len(primals)
        if not isinstance(found, (tuple, list)) or len(found) != count:
            what = len(found) if isinstance(found, (tuple, list)) else type(found).__name__
            raise broken(
                ROLE,
                f"{ROLE} returned {what}; return a tuple of {count}: the gradient of ct, then one "
                "per primal, None for an index",
            )
        first = (found[0],) if outputs == 1 else found[0]
        if not isinstance(first, (tuple, list)) or len(first) != outputs:
            raise broken(
                ROLE,
                f"{ROLE} returned for ct no tuple of {outputs}: ct has one part per output of "
                "forward, and so has its gradient",
            )
        return (*first, *found[1:])

    return vjp


def judge_double(
    double_vjp: Callable[..., Any], gradients: Gradients, draw: Draw, rules: Rules
) -> list[Finding]:
    """One finding per part of ct and per floating primal: the gradients of `gradients`."""
    names, values, attrs = gradients.arguments, gradients.values, gradients.attrs
    primals = gradients.point.primals
    rows = [f"double d{name}" for name in names]
    vjp = as_vjp(double_vjp, len(gradients.ct), gradients.primals)
    drawn = draw_cotangents(draw, [v.shape for v in values])
    cotangents = drawn.held([v.dtype for v in values])
    typed = [
        tuple(c.astype(v.dtype) for c, v in zip(row, values, strict=True))
        for row in cotangents.values
    ]
    try:
        answer = ask_vjp(vjp, typed, primals, rows, attrs, ROLE)
    except Broken as error:
        return [error.finding]
    point = promoted(gradients.point, values)
    around = NoiseProbe(point)
    conditioning = Conditioning(asking(vjp, cotangents, attrs, ROLE), point, rules)
    findings = []
    for i in point.differentiable:
        got = answer.gradients[rows[i]]
        if isinstance(got, Finding):
            findings.append(got)
            continue
        least = _least_scale(point.primals[i], values, cotangents)
        subject = (names[i], "vjp")
        black_box = PrimalCheck(point, i, rows[i], cotangents, around, conditioning, least, subject)
        findings.append(black_box.judge(got))
    return findings


def _least_scale(argument: Array, values: Sequence[Array], cotangents: Cotangents) -> Float:
    """What changing all of vjp's values over the argument's reach would be, [q, 1].

    The second derivative of what is piecewise linear is zero: that needs something to be small
    against.
    """
    terms = np.abs(cotangents.flat * flatten(values))
    return np.asarray(np.max(terms, axis=1, initial=0.0, keepdims=True) / top_step(argument))
