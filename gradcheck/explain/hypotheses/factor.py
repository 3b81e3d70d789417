"""Factors: the right gradient times a number, a count, an attribute or an array."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from fractions import Fraction
from functools import partial
from itertools import product
from typing import Any, Final

import numpy as np

from gradcheck.explain.hypotheses.elementwise import is_diagonal
from gradcheck.explain.hypotheses.factor_names import (
    NAMED_CONSTANTS,
    Quantity,
    Value,
    along,
    attributes,
    counts,
    relative,
)
from gradcheck.explain.hypothesis import (
    Hypothesis,
    Observations,
    predicting,
    read_output,
    read_primal,
)
from gradcheck.explain.probe import Array, Float, Probe

NAME_TOLERANCE: Final = 1e-6
"""Relative distance within which a number is a fraction or a constant that has a name."""
TRIAL_TOLERANCE: Final = 1e-3
"""Relative distance within which a name is worth a try."""
MAX_FRACTION_TERM: Final = 12

Form = tuple[str, str, Callable[[float], float]]

COUNTED: Final[tuple[Form, ...]] = (
    ("R", "is 1/n of the right value, n being {}: averaged instead of summed", lambda n: 1 / n),
    ("R", "is n times the right value, n being {}: summed instead of averaged", lambda n: n),
    ("R", "is (n - 1)/n of the right value, n being {}: n stands for n - 1",
     lambda n: (n - 1) / n),
    ("R", "is n/(n - 1) of the right value, n being {}: n - 1 stands for n",
     lambda n: n / (n - 1)),
)  # fmt: skip
ROOTS: Final[tuple[Form, ...]] = (
    ("F", "is 1/√n of the right value, n being {}", lambda n: 1 / math.sqrt(n)),
    ("F", "is √n times the right value, n being {}", math.sqrt),
)
SQUARES: Final[tuple[Form, ...]] = (
    ("F", "is 1/n² of the right value, n being {}", lambda n: 1 / n**2),
    ("F", "is n² times the right value, n being {}", lambda n: n**2),
)
GIVEN: Final[tuple[Form, ...]] = (
    ("F", "is {} times the right value", lambda a: a),
    ("F", "is 1/{} of the right value", lambda a: 1 / a),
    ("F", "is {0}² times the right value", lambda a: a * a),
    ("F", "is 1/{0}² of the right value", lambda a: 1 / a**2),
    ("F", "is √{} times the right value", math.sqrt),
    ("F", "is 1/√{} of the right value", lambda a: 1 / math.sqrt(a)),
    ("F", "is 1 - {} times the right value", lambda a: 1 - a),
    ("F", "is 1/(1 - {}) times the right value", lambda a: 1 / (1 - a)),
    ("F", "is {0}/(1 - {0}) times the right value", lambda a: a / (1 - a)),
    ("F", "is (1 - {0})/{0} times the right value", lambda a: (1 - a) / a),
    ("F", "is 2 (1 - {}) times the right value", lambda a: 2 * (1 - a)),
    ("F", "is 1 + {} times the right value", lambda a: 1 + a),
    ("F", "is 1/(1 + {}) of the right value", lambda a: 1 / (1 + a)),
    ("F", "is -{} times the right value", lambda a: -a),
    ("F", "is {} times the right value, where that is not 0", lambda a: a or 1.0),
    ("F", "is -1/{} of the right value", lambda a: -1 / a),
)
POWERS: Final = ((1.0, "{}"), (-1.0, "1/{}"), (0.5, "√{}"), (-0.5, "1/√{}"))


@dataclass(frozen=True, slots=True)
class Factor:
    """A name for a factor: its class, its words, and its value at a point."""

    label: str
    words: str
    of: Value


def number(c: float, close: float) -> Factor:
    """The factor that is one number everywhere."""
    near = float(Fraction(c).limit_denominator(MAX_FRACTION_TERM))
    exact = near if abs(near - c) <= close * abs(c) else c  # without what rounding added to it
    return Factor("F", f"is {in_words(exact, close)}", constant(exact))


def constant(value: float) -> Value:
    """Return the same value at every point."""
    return lambda probe: value


def in_words(c: float, close: float) -> str:
    """A factor as one says it: "half of the right value", "-7 times the right value"."""
    for words, value in NAMED_CONSTANTS.items():
        for form, of in ((f"{words} times", value), (f"1/({words}) of", 1 / value)):
            if abs(c - of) <= close * abs(of):
                return f"{form} the right value"
    near = Fraction(c).limit_denominator(MAX_FRACTION_TERM)
    odd = near.denominator > 1 and abs(near.numerator) > MAX_FRACTION_TERM
    if odd or abs(float(near) - c) > close * abs(c):
        return f"{c:.6g} times the right value"
    if near == Fraction(1, 2):
        return "half of the right value: a factor 2 is missing"
    if near == 2:
        return "twice the right value"
    return f"{near} {'times' if near.denominator == 1 else 'of'} the right value"


def named(obs: Observations) -> Iterator[Factor]:
    """Names of factors other than counts, the likeliest first."""
    yield from _degrees(obs.output)
    for quantity in attributes(obs.first):
        if not quantity.count:
            yield from _formed(quantity, GIVEN)
    for quantity in relative(obs.first):
        yield from _formed(quantity, GIVEN[:2])
    for quantity in counts(obs.first, obs.output):
        yield from _formed(quantity, ROOTS)


def counted(obs: Observations) -> Iterator[Factor]:
    """Counts, then products and quotients of two quantities."""
    given, own = [*attributes(obs.first)], [*counts(obs.first, obs.output)]
    whole = [quantity for quantity in given if quantity.count]
    for quantity in (*own, *whole, *along(obs.first, obs.output)):
        yield from _formed(quantity, COUNTED)
    for quantity in whole:
        yield from _formed(quantity, GIVEN)
    for quantity in own:
        yield from _formed(quantity, SQUARES)
    yield from _quotients(own, obs.output)
    yield from _products(own, given)


def _degrees(name: str) -> Iterator[Factor]:
    """The degree of forward in a primal, as if it were a power of it."""
    of = partial(_degree, name)
    words = f"the degree of forward in {name}"
    yield Factor("F", f"is n times the right value, n being {words}", of)
    yield Factor("F", f"is 1/n of the right value, n being {words}", _applied(_inverse, of))


def _inverse(n: float) -> float:
    return 1 / n


def _degree(name: str, probe: Probe) -> float | None:
    """The n of forward(2x) = 2^n forward(x); None where there is none. Zeros are taken for 1."""
    own = probe.primal(name)
    x = np.where(own == 0, 1.0, own)
    once, twice = (
        np.concatenate([y.ravel() for y in probe.truth.forward(values, probe.attrs)])
        for values in ([c * x if n == name else p
                        for n, p in zip(probe.names, probe.primals, strict=True)]
                       for c in (1.0, 2.0))
    )  # fmt: skip
    ratio = twice[once != 0] / once[once != 0]
    if not ratio.size or not (ratio > 0).all() or np.ptp(ratio) > TRIAL_TOLERANCE * ratio[0]:
        return None
    n = float(np.log2(ratio[0]))
    return n if abs(n - round(n)) <= TRIAL_TOLERANCE and round(n) >= 1 else None


def _formed(quantity: Quantity, forms: tuple[Form, ...]) -> Iterator[Factor]:
    for label, words, form in forms:
        yield Factor(label, words.format(quantity.words), _applied(form, quantity.of))


def _applied(form: Callable[[float], float], of: Value) -> Value:
    def value(probe: Probe) -> float | None:
        x = of(probe)
        try:
            return None if x is None else form(x)
        except ZeroDivisionError:  # n - 1 of one: code that divides by it must take another way
            return math.nan
        except (ArithmeticError, ValueError):
            return None

    return value


def _products(own: list[Quantity], given: list[Quantity]) -> Iterator[Factor]:
    """An attribute and a count, or two attributes."""
    for a, b in [*product(given, own), *product(given, given)]:
        for (p, first), (q, second) in product(POWERS, POWERS):
            if a is not b:
                words = (
                    f"is {first.format(a.words)} × {second.format(_short(b))} of the right value"
                )
                yield Factor("F", words, partial(_both, a.of, p, b.of, q))


def _short(quantity: Quantity) -> str:
    return f"({quantity.words})" if quantity.count else quantity.words


def _both(a: Value, p: float, b: Value, q: float, probe: Probe) -> float | None:
    x, y = a(probe), b(probe)
    if x is None or y is None:
        return None
    try:
        c = x**p * y**q
    except ZeroDivisionError:
        return None
    return c if isinstance(c, float) else None  # complex: the root of a negative number


def _quotients(own: list[Quantity], name: str) -> Iterator[Factor]:
    """One count in place of another: R where one sum may run over both."""
    pairs = [(a, b) for a, b in product(own, own) if a is not b]
    words = "is m/n of the right value, m being {}, n being {}"
    for a, b in pairs:
        if a.array == b.array or not (a.array and b.array):
            shown = words.format(a.words, b.words)
            yield Factor("R", shown, partial(_both, a.of, 1.0, b.of, -1.0))
        elif a.part == b.part and name in {a.array, b.array}:
            shown = f"{words.format(a.words, b.words)}: of repetitions"
            yield Factor("R", shown, partial(_repeated, a.of, b.of))
    for a, b in pairs:
        yield Factor("F", words.format(a.words, b.words), partial(_both, a.of, 1.0, b.of, -1.0))


def _repeated(a: Value, b: Value, probe: Probe) -> float | None:
    """One over the other, if that one goes into the other."""
    c = _both(a, 1.0, b, -1.0, probe)
    return c if c and (c.is_integer() or abs(1 / c - round(1 / c)) <= TRIAL_TOLERANCE) else None


SIGNIFICANT_SHARE: Final = 1e-6
"""Share of the largest element from which on an element tells the factor."""
MIN_TELLING_ELEMENTS: Final = 3
TOLERANCE_ULPS: Final = 4
"""The same in units of roundoff, for narrow types."""
PLAIN_NUMBERS: Final = (2.0, 0.5)
"""Factors that are more likely numbers than counts, where nothing varies."""


def scale(obs: Observations) -> Iterator[Hypothesis]:
    """A constant multiple of the right gradient: signs, numbers, attributes, roots of counts."""
    found = _factors(obs)
    same = _constant(found, _loose(obs))
    loose = _loose(obs)
    if same is not None and abs(same + 1) <= loose:
        yield _hypothesis(
            obs, Factor("S", "has the wrong sign: the right value negated", constant(-1))
        )
    for c in PLAIN_NUMBERS:
        if same is not None and abs(same / c - 1) <= loose:
            yield _hypothesis(obs, number(c, loose))
    yield from _fitting(obs, found, named(obs))


def reduction(obs: Observations) -> Iterator[Hypothesis]:
    """A count, its inverse, or another count's; then products with attributes, then any number."""
    found = _factors(obs)
    yield from _fitting(obs, found, counted(obs))
    same = _constant(found, _loose(obs))
    if same is not None:
        yield _hypothesis(obs, number(same, max(NAME_TOLERANCE, TOLERANCE_ULPS * obs.first.u)))


def _factors(obs: Observations) -> list[float]:
    """The factor at each failing probe; none where there is none at one of them."""
    seen = [factor_at(probe, obs.output) for probe in obs.failing]
    found = [c for c in seen if c is not None]
    shown = len(found) == len(seen) and any(found) and _telling(obs) >= MIN_TELLING_ELEMENTS
    return found if shown else []


def _constant(found: list[float], loose: float) -> float | None:
    """The factor, where it is the same at all probes."""
    if not found or max(found) - min(found) > loose * abs(max(found)):
        return None
    return found[0]


def _fitting(
    obs: Observations, found: list[float], factors: Iterable[Factor]
) -> Iterator[Hypothesis]:
    """The names that have the right value at all failing probes."""
    loose = _loose(obs)
    for factor in factors if found else ():
        if all(_near(factor.of(p), c, loose) for p, c in zip(obs.failing, found, strict=True)):
            yield _hypothesis(obs, factor)


def factor_at(probe: Probe, name: str) -> float | None:
    """The one number that the right gradient was multiplied by; None where there is none."""
    if name not in probe.got:
        return None
    got, right = probe.got[name].ravel(), probe.right[name].ravel()
    size = float(right @ right)
    if not (np.isfinite(got).all() and np.isfinite(size) and size > 0):
        return None
    c = float(got @ right) / size
    return c if probe.reproduces(c * probe.right[name], name) else None


def _telling(obs: Observations) -> int:
    """Significant elements over all failing probes."""
    found = 0
    for probe in obs.failing:
        right = np.abs(probe.right[obs.output])
        found += int((right > SIGNIFICANT_SHARE * np.max(right, initial=0.0)).sum())
    return found


def _near(a: float | None, c: float, loose: float) -> bool:
    return a is not None and math.isfinite(a) and abs(a - c) <= loose * abs(c)


def _loose(obs: Observations) -> float:
    """Relative distance within which a name fits a factor that was measured in the dtype."""
    return max(TRIAL_TOLERANCE, TOLERANCE_ULPS * obs.first.u)


def _hypothesis(obs: Observations, factor: Factor) -> Hypothesis:
    def predicted(probe: Probe) -> Array | None:
        c = factor.of(probe)
        if c is None or (math.isnan(c) and probe.fails(obs.output)):
            return None
        return probe.right[obs.output] * (1.0 if math.isnan(c) else c)

    return predicting(
        obs, factor.label, f"{obs.gradient} {factor.words}", predicted, _shown(obs, factor)
    )


def _shown(obs: Observations, factor: Factor) -> tuple[str, ...]:
    """The factor at two points where it differs."""
    shown: dict[float, str] = {}
    for probe in obs.failing:
        c = factor.of(probe)
        if c is not None and math.isfinite(c):
            shown.setdefault(round(c, 12), f"{c:.6g} at {probe.where}")
    return ("the factor is " + ", ".join([*shown.values()][:2]),) if len(shown) > 1 else ()


Function = Callable[[Any], Any]


def _rows(of: Callable[[Float], Float]) -> Function:
    """A number for each row, which keeps its axis."""
    return lambda x: of(x) if x.ndim else None


FUNCTIONS: Final[tuple[tuple[str, Function], ...]] = (
    ("{}", lambda x: x),
    ("exp({})", np.exp),
    ("sigmoid({})", lambda x: 1 / (1 + np.exp(-x))),
    ("1 - {}", lambda x: 1 - x),
    ("{}²", np.square),
    ("√{}", np.sqrt),
    ("|{}|", np.abs),
    ("the norm of {}'s rows", _rows(lambda x: np.linalg.norm(x, axis=-1, keepdims=True))),
    ("the root mean square of {}'s rows",
     _rows(lambda x: np.sqrt(np.mean(x * x, axis=-1, keepdims=True)))),
    ("the standard deviation of {}'s rows", _rows(lambda x: np.std(x, axis=-1, keepdims=True))),
    ("the variance of {}'s rows", _rows(lambda x: np.var(x, axis=-1, keepdims=True))),
    ("the sum of {}'s rows", _rows(lambda x: np.sum(x, axis=-1, keepdims=True))),
    ("the largest of {}'s rows", _rows(lambda x: np.max(x, axis=-1, keepdims=True))),
)  # fmt: skip
"""What may be multiplied in, of a primal or an output."""


def argument(obs: Observations) -> Iterator[Hypothesis]:
    """The right gradient times or divided by an array, where forward is not element by element."""
    name, own = obs.output, obs.gradient
    if all(is_diagonal(probe, name) for probe in obs.failing):
        return  # a wrong slope, which is another rule's
    for words, of in _factor_arrays(obs.first):
        for form, function in FUNCTIONS:
            for by_row in (False, True):
                value = partial(_factor, of, function, by_row, name)
                shown = form.format(words) + (", one for each row" if by_row else "")
                says = f"{own} lacks the factor {shown}"
                yield predicting(obs, "F", says, partial(_divided, value, name))
                says = f"{own} has the factor {shown} too much"
                yield predicting(obs, "F", says, partial(_multiplied, value, name))


FactorAt = Callable[[Probe], Float | None]


def _factor_arrays(probe: Probe) -> Iterator[tuple[str, Callable[[Probe], Array]]]:
    for name, primal in zip(probe.names, probe.primals, strict=True):
        if primal.dtype.kind == "f":
            yield name, read_primal(name)
    for i in range(len(probe.ct)):
        yield ("the output" if len(probe.ct) == 1 else f"output {i + 1}"), read_output(i)


def _factor(
    of: Callable[[Probe], Array], function: Function, by_row: bool, name: str, probe: Probe
) -> Float | None:
    """The array in the gradient's shape: as it broadcasts, or one number for each row."""
    value, shape = np.asarray(function(of(probe)), dtype=np.float64), probe.right[name].shape
    lack = len(shape) - value.ndim
    if not value.ndim or lack < 0 or (by_row and not lack):
        return None
    return np.broadcast_to(value.reshape(*value.shape, *(1,) * (lack * by_row)), shape)


def _divided(value: FactorAt, name: str, probe: Probe) -> Float | None:
    """Without the factor; where both are 0, nothing is predicted."""
    factor = value(probe)
    if factor is None or name not in probe.got:
        return None
    right = probe.right[name]
    with np.errstate(all="ignore"):
        return np.where((factor == 0) & (right == 0), probe.got[name], right / factor)


def _multiplied(value: FactorAt, name: str, probe: Probe) -> Float | None:
    factor = value(probe)
    return None if factor is None else probe.right[name] * factor
