"""A line search is judged by what it promises: its inequalities with 50 digits, or its failure."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from gradcheck.numerics.arrays import Attrs
from gradcheck.numerics.fifty_digits import mp50
from gradcheck.results.finding import Finding, Part
from gradcheck.results.verdict import Verdict

Along = Callable[[Any, Any], Any]
"""`(xp, s)` → the loss, or its slope, at the step s along the direction."""
Search = Callable[..., tuple[float, str, int]]
"""`(value, slope, step, *, method, …)` → the step, how it ended, evaluations."""

OK: Final = "ok"
ROUNDING: Final = 8.0
"""Units of u that a float64 search may be off where an inequality is tight."""
PROMISES: Final[Mapping[str, tuple[str, ...]]] = {
    "armijo": ("armijo",),
    "wolfe": ("armijo", "curvature"),
    "strong-wolfe": ("armijo", "strong curvature"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """A loss along a direction, where a search starts, and how it must end.

    `value` and `slope` are texts in `xp`; `ends` is "ok" (the inequalities hold) or the name of
    the failure that must be reported.
    """

    name: str
    hunts: str
    value: Along
    slope: Along
    step: float = 1.0
    ends: str = OK
    attrs: Attrs


def judge_search(line: Line, search: Search) -> Finding:
    """Whether `search` keeps what its method promises on `line`; its step is exact as returned."""
    xp = mp50()

    def along(of: Along) -> Callable[[float], float]:
        return lambda s: float(of(xp, xp.const(repr(float(s)))))

    step, end, _ = search(along(line.value), along(line.slope), line.step, **line.attrs)
    if end != line.ends:
        return _finding(line, False, f"it ends with {end!r} at step {step:g}, not {line.ends!r}")
    if end != OK:
        return _finding(line, True, "")
    broken = [
        name for name, held in _inequalities(line, step).items()
        if name in PROMISES[line.attrs["method"]] and not held
    ]  # fmt: skip
    said = " and ".join(broken)
    return _finding(line, not broken, f"at step {step:g} the {said} condition does not hold")


def _inequalities(line: Line, step: float) -> dict[str, bool]:
    """Each condition at `step`, with 50 digits (Nocedal & Wright, 3.6 and 3.7)."""
    xp = mp50()
    zero, s = xp.const("0"), xp.const(repr(float(step)))
    f0, f = line.value(xp, zero), line.value(xp, s)
    d0, d = line.slope(xp, zero), line.slope(xp, s)
    ftol, wolfe = line.attrs.get("ftol", 1e-4), line.attrs.get("wolfe", 0.9)
    u = ROUNDING * 2.0**-53
    return {
        "armijo": bool(f <= f0 + ftol * s * d0 + u * (abs(f) + abs(f0))),
        "curvature": bool(d >= wolfe * d0 - u * abs(d0)),
        "strong curvature": bool(abs(d) <= wolfe * abs(d0) + u * abs(d0)),
    }


def _finding(line: Line, ok: bool, reason: str) -> Finding:
    return Finding(
        name=line.name,
        verdict=Verdict.PASS if ok else Verdict.FAIL,
        reason="" if ok else reason,
        compared=1,
        failed=int(not ok),
        part=Part.UPDATE,
    )
