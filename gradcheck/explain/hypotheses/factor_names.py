"""Names of factors: counts and attributes of a point, and what is made of them."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import partial
from itertools import product
from typing import Any, Final

import numpy as np

from gradcheck.explain.hypothesis import Observations, applied, read_primal
from gradcheck.explain.probe import Array, Probe
from gradcheck.spec.defect import Defect

Value = Callable[[Probe], float | None]
Shape = tuple[int, ...]
Part = Callable[[Shape], Sequence[int] | None]

MAX_NAMED_AXES: Final = 4
NAMED_CONSTANTS: Final = {
    "log 2": math.log(2), "log 10": math.log(10), "√2": math.sqrt(2), "π": math.pi,
    "2π": 2 * math.pi, "√π": math.sqrt(math.pi), "√(2π)": math.sqrt(2 * math.pi),
    "√(2/π)": math.sqrt(2 / math.pi), "e": math.e,
}  # fmt: skip
"""Constants that formulas have, and that backward passes lose."""


@dataclass(frozen=True, slots=True)
class Quantity:
    """One number of a point: `words` name it, `of(probe)` is it, None where it does not exist.

    `count`: it is a whole number of elements, of a `part` of `array`, if they have names.
    """

    words: str
    of: Value
    count: bool
    array: str = ""
    part: str = ""


def counts(probe: Probe, own: str) -> Iterator[Quantity]:
    """Lengths and sizes of primals and outputs; those that a sum for `own` runs over come first."""
    shapes = dict(_shapes(probe))
    (words, whole), *parts = PARTS
    for name in shapes:
        yield _counted(name, shapes[name], words, whole)
    for name in shapes:
        if name not in probe.names:
            for a, b in ((name, own), (own, name)):
                words = f"the number of elements of {a} for each of {b}"
                of = partial(_size_ratio, shapes[a], shapes[b])
                yield Quantity(words, of, count=True, array=a)
    for name in shapes:
        for words, part in parts:
            yield _counted(name, shapes[name], words, part)
    for name, values in _used_entries(probe):
        yield Quantity(f"the number of {name}", values, count=True)


def _counted(name: str, shape: Callable[[Probe], Shape], words: str, part: Part) -> Quantity:
    def of(probe: Probe) -> float | None:
        lengths = part(shape(probe))
        return None if lengths is None else float(math.prod(lengths))

    return Quantity(words.format(name), of, count=True, array=name, part=words)


def _size_ratio(
    shape: Callable[[Probe], Shape], each: Callable[[Probe], Shape], probe: Probe
) -> float | None:
    """The size of one array over another's, if it is at least as large."""
    top, bottom = math.prod(shape(probe)), math.prod(each(probe))
    return float(top) / bottom if bottom and top >= bottom else None


def attributes(probe: Probe) -> Iterator[Quantity]:
    """Numbers among the attributes; of a tuple its entries and their product."""
    for name, value in probe.attrs.items():
        if _is_number(value):
            yield Quantity(f"`{name}`", partial(_attribute, name), count=isinstance(value, int))
        elif isinstance(value, (tuple, list)) and value and all(map(_is_number, value)):
            for i in range(len(value)):
                yield Quantity(f"`{name}[{i}]`", partial(_entry, name, i), count=True)
            yield Quantity(f"the product of `{name}`", partial(_product, name), count=True)


def relative(probe: Probe) -> Iterator[Quantity]:
    """Attributes as multiples of their defaults, which is 1 where those are taken."""
    for name, value in probe.attrs.items():
        default = probe.truth.defaults.get(name)
        if _is_number(value) and _is_number(default) and default:
            of = partial(_over_default, name, default)
            yield Quantity(f"`{name}` over its default {default}", of, count=False)


def along(probe: Probe, own: str) -> Iterator[Quantity]:
    """The length of all axes that an attribute names, except for one of them."""
    i = probe.names.index(own)
    for name in probe.attrs:
        if name.startswith(("axis", "axes", "dim")):
            for words, part in (("last", slice(None, -1)), ("first", slice(1, None))):
                of = partial(_lengths, name, i, part)
                yield Quantity(f"the length along all of `{name}` but the {words}", of, count=True)


def _lengths(name: str, i: int, part: slice, probe: Probe) -> float | None:
    axes, shape = probe.attrs.get(name), probe.primals[i].shape
    if not isinstance(axes, (tuple, list)):
        return None if axes is None else 1.0
    return float(math.prod(shape[axis] for axis in axes[part]))


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _attribute(name: str, probe: Probe) -> float | None:
    value: Any = probe.attrs.get(name)
    return float(value) if _is_number(value) else None


def _over_default(name: str, default: float, probe: Probe) -> float | None:
    value = _attribute(name, probe)
    return None if value is None else value / default


def _entry(name: str, i: int, probe: Probe) -> float | None:
    value = probe.attrs.get(name)
    return float(value[i]) if isinstance(value, (tuple, list)) and i < len(value) else None


def _product(name: str, probe: Probe) -> float | None:
    value = probe.attrs.get(name)
    return float(np.prod(value)) if isinstance(value, (tuple, list)) else None


def _shapes(probe: Probe) -> Iterator[tuple[str, Callable[[Probe], Shape]]]:
    """Primals and outputs: their names in messages, and their shapes at any point."""
    for name in probe.names:
        yield name, applied(np.shape, read_primal(name))
    for i in range(len(probe.ct)):
        name = "the output" if len(probe.ct) == 1 else f"output {i + 1}"
        yield name, partial(_output_shape, i)


def _output_shape(i: int, probe: Probe) -> Shape:
    return probe.ct[i].shape


def _axis(k: int) -> Part:
    return lambda s: (s[k],) if -len(s) <= k < len(s) else None


def _beyond(rank: int, part: slice) -> Part:
    return lambda s: s[part] if len(s) >= rank else None


PARTS: Final[tuple[tuple[str, Part], ...]] = (
    ("the number of rows of {}", _beyond(1, slice(None, -1))),
    ("the number of elements of {}", lambda s: s),
    ("the length of {}'s last axis", _axis(-1)),
    *((f"the length of {{}}'s axis {k}", _axis(k)) for k in range(MAX_NAMED_AXES - 1)),
    *((f"the length of {{}}'s axis {k}", _axis(k)) for k in range(-2, -MAX_NAMED_AXES - 1, -1)),
    ("the number of elements of {} for each entry of axis 0", _beyond(1, slice(1, None))),
    ("the size of {}'s last two axes", _beyond(2, slice(-2, None))),
    ("the size of {}'s last three axes", _beyond(3, slice(-3, None))),
    ("the number of matrices in {}", _beyond(2, slice(None, -2))),
)


def _used_entries(probe: Probe) -> Iterator[tuple[str, Value]]:
    """How many entries of indices and of masks are in use."""
    for i, (name, value) in enumerate(zip(probe.names, probe.primals, strict=True)):
        if value.dtype.kind != "f":
            for attr, marker in probe.attrs.items():
                if isinstance(marker, int) and not isinstance(marker, bool):

                    def kept(p: Probe, i: int = i, attr: str = attr) -> float:
                        return float(np.count_nonzero(p.primals[i] != p.attrs.get(attr)))

                    yield f"entries of {name} other than `{attr}`", kept
            yield f"entries of {name} from 0", applied(_count_from_0, read_primal(name))
        elif np.isin(value, (0.0, 1.0)).all():
            yield f"ones in {name}", applied(_count_ones, read_primal(name))


def _count_from_0(x: Array) -> float:
    return float((x >= 0).sum())


def _count_ones(x: Array) -> float:
    return float((x == 1).sum())


# ── the names of factors ──────────────────────────────────────────────────────────────────────

NAME_TOLERANCE: Final = 1e-6
"""Relative distance within which a number is a fraction or a constant that has a name."""
TRIAL_TOLERANCE: Final = 1e-3
"""Relative distance within which a name is worth a try."""
MAX_FRACTION_TERM: Final = 12

Form = tuple[str, str, Callable[[float], float]]

COUNTED: Final[tuple[Form, ...]] = (
    (Defect.REDUCTION, "is 1/n of the right value, n being {}: averaged instead of summed",
     lambda n: 1 / n),
    (Defect.REDUCTION, "is n times the right value, n being {}: summed instead of averaged",
     lambda n: n),
    (Defect.REDUCTION, "is (n - 1)/n of the right value, n being {}: n stands for n - 1",
     lambda n: (n - 1) / n),
    (Defect.REDUCTION, "is n/(n - 1) of the right value, n being {}: n - 1 stands for n",
     lambda n: n / (n - 1)),
)  # fmt: skip
ROOTS: Final[tuple[Form, ...]] = (
    (Defect.SCALE, "is 1/√n of the right value, n being {}", lambda n: 1 / math.sqrt(n)),
    (Defect.SCALE, "is √n times the right value, n being {}", math.sqrt),
)
SQUARES: Final[tuple[Form, ...]] = (
    (Defect.SCALE, "is 1/n² of the right value, n being {}", lambda n: 1 / n**2),
    (Defect.SCALE, "is n² times the right value, n being {}", lambda n: n**2),
)
GIVEN: Final[tuple[Form, ...]] = (
    (Defect.SCALE, "is {} times the right value", lambda a: a),
    (Defect.SCALE, "is 1/{} of the right value", lambda a: 1 / a),
    (Defect.SCALE, "is {0}² times the right value", lambda a: a * a),
    (Defect.SCALE, "is 1/{0}² of the right value", lambda a: 1 / a**2),
    (Defect.SCALE, "is √{} times the right value", math.sqrt),
    (Defect.SCALE, "is 1/√{} of the right value", lambda a: 1 / math.sqrt(a)),
    (Defect.SCALE, "is 1 - {} times the right value", lambda a: 1 - a),
    (Defect.SCALE, "is 1/(1 - {}) times the right value", lambda a: 1 / (1 - a)),
    (Defect.SCALE, "is {0}/(1 - {0}) times the right value", lambda a: a / (1 - a)),
    (Defect.SCALE, "is (1 - {0})/{0} times the right value", lambda a: (1 - a) / a),
    (Defect.SCALE, "is 2 (1 - {}) times the right value", lambda a: 2 * (1 - a)),
    (Defect.SCALE, "is 1 + {} times the right value", lambda a: 1 + a),
    (Defect.SCALE, "is 1/(1 + {}) of the right value", lambda a: 1 / (1 + a)),
    (Defect.SCALE, "is -{} times the right value", lambda a: -a),
    (Defect.SCALE, "is {} times the right value, where that is not 0", lambda a: a or 1.0),
    (Defect.SCALE, "is -1/{} of the right value", lambda a: -1 / a),
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
    return Factor(Defect.SCALE, f"is {in_words(exact, close)}", constant(exact))


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
    yield Factor(Defect.SCALE, f"is n times the right value, n being {words}", of)
    yield Factor(
        Defect.SCALE, f"is 1/n of the right value, n being {words}", _applied(_inverse, of)
    )


def _inverse(n: float) -> float:
    return 1 / n


def _degree(name: str, probe: Probe) -> float | None:
    """The n of forward(2x) = 2^n forward(x); None where there is none. Zeros are taken for 1."""
    own = probe.primal(name)
    x = np.where(own == 0, 1.0, own)
    once, twice = (
        np.concatenate([y.ravel() for y in probe.forward({name: c * x})]) for c in (1.0, 2.0)
    )
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
    for a, b in [*product(given, own), *product(given, given)]:
        for (p, first), (q, second) in product(POWERS, POWERS):
            if a is not b:
                words = (
                    f"is {first.format(a.words)} × {second.format(_short(b))} of the right value"
                )
                yield Factor(Defect.SCALE, words, partial(_both, a.of, p, b.of, q))


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
            yield Factor(Defect.REDUCTION, shown, partial(_both, a.of, 1.0, b.of, -1.0))
        elif a.part == b.part and name in {a.array, b.array}:
            shown = f"{words.format(a.words, b.words)}: of repetitions"
            yield Factor(Defect.REDUCTION, shown, partial(_repeated, a.of, b.of))
    for a, b in pairs:
        yield Factor(
            Defect.SCALE, words.format(a.words, b.words), partial(_both, a.of, 1.0, b.of, -1.0)
        )


def _repeated(a: Value, b: Value, probe: Probe) -> float | None:
    """One over the other, if that one goes into the other."""
    c = _both(a, 1.0, b, -1.0, probe)
    return c if c and (c.is_integer() or abs(1 / c - round(1 / c)) <= TRIAL_TOLERANCE) else None
