"""Which elements of a wrong gradient are wrong: bisection along a masked direction.

The error e of a span of elements along the direction d is the sum of its halves' errors along d. So
one half is measured, and the other one is the rest; a half whose error exceeds its error bar is
split again, down to one element, whose derivative is then measured alone. The elements found must
explain the error along a second direction too, where two errors that cancel along the first do not
cancel. About six evaluations per halving and wrong element.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from gradcheck.judge.compare import ERROR_BAR_FACTOR
from gradcheck.numerics.directional_slope import Slope, slope_search
from gradcheck.numerics.line_function import Heading, Place

DIRECTION_ROUNDINGS: Final = 12.0
"""Units of u of ‖g∘d‖₂ that an implementation may have rounded."""
HALF_SHARPNESS: Final = 32.0
"""A half is measured until its error bar is so many times smaller than the whole's error."""
LITTLE_SHARE: Final = 16.0
"""A half with less than 1/16 of the whole's error, by one step, leaves all of it to the other."""
ELEMENT_PRECISION: Final = 1e-6
"""The error bar to aim for at a wrong element, relative to its error."""
MAX_WRONG: Final = 8
"""Wrong elements after which the search ends."""


@dataclass(frozen=True, slots=True)
class DirectionError:
    """The error along the whole direction that starts the search."""

    heading: Heading
    slope: Slope


@dataclass(frozen=True, slots=True)
class WrongElement:
    """One wrong element, by its flat index; `want` ± `bar` is its true derivative."""

    index: int
    got: float
    want: float
    bar: float


@dataclass(frozen=True, slots=True)
class Located:
    """The wrong elements; `complete` if they explain the errors along all directions."""

    wrong: tuple[WrongElement, ...]
    complete: bool


@dataclass(frozen=True, slots=True)
class Span:
    """Elements start … stop, their error along the direction, its bar, and a level of steps."""

    start: int
    stop: int
    error: float
    bar: float
    level: int


def locate(
    site: Place,
    seen: Sequence[DirectionError],
    allowed: float,
    *,
    most: int = MAX_WRONG,
    search: int = 400,
    precise: float = ELEMENT_PRECISION,
) -> Located:
    """The wrong elements of `site`'s gradient, largest error first.

    Args:
        site: the tensor, the gradient and the function.
        seen: the errors along whole directions, the first one to be bisected.
        allowed: error along a direction that the implementation's rounding may make.
        most: elements after which to stop.
        search: evaluations after which to stop.
        precise: error bar of an element, as a part of its error, that is narrow enough.
    """
    running = _Search(site, allowed, most, site.value.evaluations + search, precise)
    complete = all(running.explain(one) for one in seen)
    ranked = sorted(running.wrong.values(), key=lambda w: -abs(w.got - w.want))
    return Located(tuple(ranked), complete)


def one_element(
    site: Place,
    index: int,
    heading: Heading,
    precise: float = ELEMENT_PRECISION,
    expected: float = 0.0,
) -> WrongElement:
    """The true derivative with respect to one element, and the one given for it.

    The error bar to aim for is `precise` times the error, which is `expected`.
    """
    with site.ray(heading, index, index + 1) as ray:
        rungs = slope_search(site, ray)
        slope = rungs.settle(precise * expected)
        if not slope.bar <= precise * abs(slope.value):
            slope = rungs.exhaust()
    width = ray.width(index)
    got = site.got(index)
    return WrongElement(index, got, got + slope.value / width, abs(slope.bar / width))


@dataclass(slots=True)
class _Search:
    site: Place
    allowed: float
    most: int
    until: int
    precise: float
    wrong: dict[int, WrongElement] = field(default_factory=dict)

    def explain(self, seen: DirectionError) -> bool:
        """Bisect the error that the wrong elements known so far leave; says whether none is left.

        A half that seemed to have no error may keep one: it is bisected in its turn, and measured
        where one step was not enough.
        """
        peeking = self._peeks(seen)
        while True:
            before = len(self.wrong)
            if not self._bisected(seen, peeking):
                return False
            left = self._run(seen.heading, 0, self.site.size, seen.slope)
            if not self._significant(left):
                return True
            if len(self.wrong) == before:
                if not peeking:
                    return False
                peeking = False

    def _peeks(self, seen: DirectionError) -> bool:
        """Whether one step shows the whole error well enough to bisect by one step."""
        whole = self._run(seen.heading, 0, self.site.size, seen.slope)
        if not self._significant(whole):
            return False
        with self.site.ray(seen.heading) as ray:
            peeked = slope_search(self.site, ray).peek(seen.slope.level)
        return abs(peeked.value - seen.slope.value) * LITTLE_SHARE <= abs(whole.error)

    def _bisected(self, seen: DirectionError, peeking: bool) -> bool:
        """Bisect once, down to the elements; False where the search ended early."""
        root = self._run(seen.heading, 0, self.site.size, seen.slope)
        stack = [root] if self._significant(root) else []
        while stack:
            if len(self.wrong) >= self.most or self.site.value.evaluations >= self.until:
                return False
            suspect = stack.pop()
            if suspect.stop - suspect.start > 1:
                halves = self._halves(seen.heading, suspect, peeking)
                stack += sorted(halves, key=lambda half: abs(half.error))  # the worst comes first
            else:
                self._confirm(seen.heading, suspect)
        return True

    def _halves(self, heading: Heading, whole: Span, peeking: bool) -> list[Span]:
        """The halves that are wrong.

        With `peeking`, one step is enough where it leaves nearly all of the error to one half.
        """
        middle = (whole.start + whole.stop) // 2
        target = abs(whole.error) / HALF_SHARPNESS
        with self.site.ray(heading, whole.start, middle) as ray:
            rungs = slope_search(self.site, ray)
            if peeking:
                one = self._lone(heading, whole, middle, rungs.peek(whole.level))
                if one is not None:
                    return [one]
            slope = rungs.glance(target, whole.level) or rungs.settle(target, whole.level)
        left = self._run(heading, whole.start, middle, slope)
        right = Span(middle, whole.stop, whole.error - left.error, whole.bar + left.bar, left.level)
        if not self._significant(left) and not self._significant(right):
            right = self._measure(heading, middle, whole.stop, left.level, target)
        return [half for half in (left, right) if self._significant(half)]

    def _lone(self, heading: Heading, whole: Span, middle: int, left: Slope) -> Span | None:
        """The half that has nearly all of the error, by one step of the left one."""
        part, little = (
            self._run(heading, whole.start, middle, left),
            abs(whole.error) / LITTLE_SHARE,
        )
        if abs(part.error) <= little:
            return replace(whole, start=middle)
        return replace(whole, stop=middle) if abs(whole.error - part.error) <= little else None

    def _measure(self, heading: Heading, start: int, stop: int, level: int, target: float) -> Span:
        with self.site.ray(heading, start, stop) as ray:
            rungs = slope_search(self.site, ray)
            slope = rungs.glance(target, level) or rungs.settle(target, level)
        return self._run(heading, start, stop, slope)

    def _run(self, heading: Heading, start: int, stop: int, slope: Slope) -> Span:
        """A measured error, without that of the elements already known."""
        error, bar = slope.value, slope.bar
        for known in self.wrong.values():
            if start <= known.index < stop:
                width = self.site.ray(heading).width(known.index)
                error -= (known.want - known.got) * width
                bar += known.bar * abs(width)
        return Span(start, stop, error, bar, slope.level)

    def _significant(self, suspect: Span) -> bool:
        return abs(suspect.error) > ERROR_BAR_FACTOR * suspect.bar + self.allowed

    def _confirm(self, heading: Heading, suspect: Span) -> None:
        """Record an element as wrong if its own ladder confirms it."""
        index = suspect.start
        if index in self.wrong:
            return
        found = one_element(self.site, index, heading, self.precise, abs(suspect.error))
        error = abs(found.got - found.want)
        if error > ERROR_BAR_FACTOR * found.bar + DIRECTION_ROUNDINGS * self.site.u * abs(
            found.got
        ):
            self.wrong[index] = found
