"""What a factor may be called: numbers, counts, attributes, and what is made of two of them."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from fractions import Fraction
from functools import partial
from itertools import product
from typing import Final

import numpy as np

from gradcheck.explain.diagnosis_rule import Observations
from gradcheck.explain.probe import Probe
from gradcheck.explain.quantity import NAMED, Quantity, Value, along, attributes, counts, relative

CLOSE: Final = 1e-6
"""Relative distance within which a number is a fraction or a constant that has a name."""
LOOSE: Final = 1e-3
"""Relative distance within which a name is worth a try."""
SMALL: Final = 12
"""Numerators and denominators up to which a factor is written as a fraction."""

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
    near = float(Fraction(c).limit_denominator(SMALL))
    exact = near if abs(near - c) <= close * abs(c) else c  # without what rounding added to it
    return Factor("F", f"is {in_words(exact, close)}", constant(exact))


def constant(value: float) -> Value:
    """The same value at every point."""
    return lambda probe: value


def in_words(c: float, close: float) -> str:
    """A factor as one says it: "half of the right value", "-7 times the right value"."""
    for words, value in NAMED.items():
        for form, of in ((f"{words} times", value), (f"1/({words}) of", 1 / value)):
            if abs(c - of) <= close * abs(of):
                return f"{form} the right value"
    near = Fraction(c).limit_denominator(SMALL)
    odd = near.denominator > 1 and abs(near.numerator) > SMALL
    if odd or abs(float(near) - c) > close * abs(c):
        return f"{c:.6g} times the right value"
    if near == Fraction(1, 2):
        return "half of the right value: a factor 2 is missing"
    if near == 2:
        return "twice the right value"
    return f"{near} {'times' if near.denominator == 1 else 'of'} the right value"


def named(scene: Observations) -> Iterator[Factor]:
    """What a factor may be called that is no count, the likeliest first."""
    yield from _degrees(scene.output)
    for quantity in attributes(scene.first):
        if not quantity.count:
            yield from _formed(quantity, GIVEN)
    for quantity in relative(scene.first):
        yield from _formed(quantity, GIVEN[:2])
    for quantity in counts(scene.first, scene.output):
        yield from _formed(quantity, ROOTS)


def counted(scene: Observations) -> Iterator[Factor]:
    """Counts, then what is made of two quantities."""
    given, own = [*attributes(scene.first)], [*counts(scene.first, scene.output)]
    whole = [quantity for quantity in given if quantity.count]
    for quantity in (*own, *whole, *along(scene.first, scene.output)):
        yield from _formed(quantity, COUNTED)
    for quantity in whole:
        yield from _formed(quantity, GIVEN)
    for quantity in own:
        yield from _formed(quantity, SQUARES)
    yield from _quotients(own, scene.output)
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
    if not ratio.size or not (ratio > 0).all() or np.ptp(ratio) > LOOSE * ratio[0]:
        return None
    n = float(np.log2(ratio[0]))
    return n if abs(n - round(n)) <= LOOSE and round(n) >= 1 else None


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
    return c if isinstance(c, float) else None  # of a negative number there is no root


def _quotients(own: list[Quantity], name: str) -> Iterator[Factor]:
    """One count in place of another: R where both count what one sum may run over."""
    pairs = [(a, b) for a, b in product(own, own) if a is not b]
    words = "is m/n of the right value, m being {}, n being {}"
    for a, b in pairs:
        if a.array == b.array or not (a.array and b.array):
            told = words.format(a.words, b.words)
            yield Factor("R", told, partial(_both, a.of, 1.0, b.of, -1.0))
        elif a.part == b.part and name in {a.array, b.array}:
            told = f"{words.format(a.words, b.words)}: of repetitions"
            yield Factor("R", told, partial(_repeated, a.of, b.of))
    for a, b in pairs:
        yield Factor("F", words.format(a.words, b.words), partial(_both, a.of, 1.0, b.of, -1.0))


def _repeated(a: Value, b: Value, probe: Probe) -> float | None:
    """One over the other, if that one goes into the other."""
    c = _both(a, 1.0, b, -1.0, probe)
    return c if c and (c.is_integer() or abs(1 / c - round(1 / c)) <= LOOSE) else None
