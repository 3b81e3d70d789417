"""Backtracking line searches and stopping rules, as in ggml's optimiser of 2023.

Sources: the parameters of `ggml_opt_params` and the results of `ggml_opt`; Nocedal & Wright,
Numerical Optimization, chapter 3; Okazaki's libLBFGS, whose search ggml took over.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

Along = Callable[[float], float]

ARMIJO, WOLFE, STRONG_WOLFE = METHODS = ("armijo", "wolfe", "strong-wolfe")
SHORTER, LONGER = 0.5, 2.1
"""Factors of the next step: too long, or too short."""


def search(
    value: Along, slope: Along, step: float, *, method: str = WOLFE, ftol: float = 1e-4,
    wolfe: float = 0.9, min_step: float = 1e-20, max_step: float = 1e20, max_linesearch: int = 20,
) -> tuple[float, str, int]:  # fmt: skip
    """A step along a direction in which the loss falls, how the search ended, and evaluations.

    `value(s)` is the loss at the step s, `slope(s)` its derivative. It ends with "ok", or with
    "invalid-parameters" (no step to start with), "invalid-wolfe" (not ftol < wolfe < 1),
    "uphill" (the direction does not descend), "min-step", "max-step", "max-iterations".
    """
    if not step > 0:
        return step, "invalid-parameters", 0
    if method != ARMIJO and not ftol < wolfe < 1:
        return step, "invalid-wolfe", 0
    start, down = value(0.0), slope(0.0)
    if not down < 0:
        return step, "uphill", 1
    count = 0
    while True:
        count += 1
        factor = _verdict(value, slope, step, start, down, method, ftol, wolfe)
        if not factor:
            return step, "ok", count
        if count >= max_linesearch:
            return step, "max-iterations", count
        step *= factor
        if step < min_step:
            return step, "min-step", count
        if step > max_step:
            return step, "max-step", count


def _verdict(
    value: Along, slope: Along, step: float, start: float, down: float, method: str, ftol: float,
    wolfe: float,
) -> float:  # fmt: skip
    """What the step is to be multiplied by; 0: it will do."""
    ok = value(step) <= start + ftol * step * down
    if not ok:
        return SHORTER
    if method == ARMIJO:
        return 0.0
    ahead = slope(step)
    if ahead < wolfe * down:
        return LONGER
    if method == STRONG_WOLFE and ahead > -wolfe * down:
        return SHORTER
    return 0.0


def stopped(
    losses: Sequence[float], *, gradient_norm: float = float("inf"), param_norm: float = 1.0,
    past: int = 0, delta: float = 1e-5, max_no_improvement: int = 0, eps_f: float = 0.0,
    eps_g: float = 0.0,
) -> str:  # fmt: skip
    """The rule that ends training after these losses, the last one being the newest; "": none.

    * "eps_g": |g| < eps_g · max(1, |p|)
    * "eps_f": |f − f before| < eps_f · |f|
    * "delta": |f − f of `past` steps ago| < delta · max(1, |f|), if `past` > 0
    * "max_no_improvement": so many steps since the smallest loss, if > 0
    """
    now = losses[-1]
    if gradient_norm < eps_g * max(1.0, param_norm):
        return "eps_g"
    if len(losses) > 1 and abs(now - losses[-2]) < eps_f * abs(now):
        return "eps_f"
    if 0 < past < len(losses) and abs(now - losses[-1 - past]) < delta * max(1.0, abs(now)):
        return "delta"
    since = len(losses) - 1 - min(range(len(losses)), key=lambda k: losses[k])
    return "max_no_improvement" if 0 < max_no_improvement <= since else ""
