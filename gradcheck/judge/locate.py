"""Which elements of a wrong gradient are wrong: bisection along a direction that is masked.

The error e of a run of elements along the direction d is the sum of its halves' errors along the
same d. So one half is measured and the other one is what is left; a half that is not zero beyond
its error bar is split again, down to one element, whose derivative a ladder of its own confirms.
What was found must explain the error along a second direction too: two errors that cancel in the
one do not in the other. About six evaluations per halving and wrong element.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from gradcheck.judge.compare import KAPPA
from gradcheck.numerics.adaptive_slope import Slope, slope_search
from gradcheck.numerics.ray import Heading, Place

ALLOWED: Final = 12.0
"""Units of u of ‖g∘d‖₂ that an implementation may have rounded."""
SHARP: Final = 32.0
"""A half is measured until its error bar is so many times smaller than the whole's error."""
LITTLE: Final = 16.0
"""Of the whole's error so small a part in one half, at one step, leaves all of it to the other."""
PRECISE: Final = 1e-6
"""The error bar of a wrong element, as a part of its error, with which its ladder is content."""
MOST: Final = 8
"""Wrong elements after which the search ends: they are many."""


@dataclass(frozen=True, slots=True)
class Seen:
    """The error along the whole direction that started the search."""

    heading: Heading
    slope: Slope


@dataclass(frozen=True, slots=True)
class Wrong:
    """One wrong element, by its flat index; `want` ± `bar` is its true derivative."""

    index: int
    got: float
    want: float
    bar: float


@dataclass(frozen=True, slots=True)
class Located:
    """What was found; `complete` if it explains the errors along all directions."""

    wrong: tuple[Wrong, ...]
    complete: bool


@dataclass(frozen=True, slots=True)
class Suspect:
    """Elements start … stop, their error along the direction, its bar, and a level that served."""

    start: int
    stop: int
    error: float
    bar: float
    level: int


def locate(
    site: Place,
    seen: Sequence[Seen],
    allowed: float,
    *,
    most: int = MOST,
    search: int = 400,
    precise: float = PRECISE,
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
    hunt = _Hunt(site, allowed, most, site.value.evaluations + search, precise)
    complete = all(hunt.explain(one) for one in seen)
    ranked = sorted(hunt.wrong.values(), key=lambda w: -abs(w.got - w.want))
    return Located(tuple(ranked), complete)


def one_element(
    site: Place, index: int, heading: Heading, precise: float = PRECISE, expected: float = 0.0
) -> Wrong:
    """The true derivative with respect to one element, and what was given for it.

    It is known well enough with an error bar of `precise` times its error, which is `expected`.
    """
    with site.ray(heading, index, index + 1) as ray:
        rungs = slope_search(site, ray)
        slope = rungs.settle(precise * expected)
        if not slope.bar <= precise * abs(slope.value):
            slope = rungs.exhaust()
    width = ray.width(index)
    got = site.got(index)
    return Wrong(index, got, got + slope.value / width, abs(slope.bar / width))


@dataclass(slots=True)
class _Hunt:
    site: Place
    allowed: float
    most: int
    until: int
    precise: float
    wrong: dict[int, Wrong] = field(default_factory=dict)

    def explain(self, seen: Seen) -> bool:
        """Bisect what the wrong elements known so far leave of an error; says whether all was.

        A half that seemed to have nothing of it may be left over: that is bisected in its turn,
        and measured where one step led nowhere.
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

    def _peeks(self, seen: Seen) -> bool:
        """Whether one step shows the whole error well enough, to bisect by one step."""
        whole = self._run(seen.heading, 0, self.site.size, seen.slope)
        if not self._significant(whole):
            return False
        with self.site.ray(seen.heading) as ray:
            peeked = slope_search(self.site, ray).peek(seen.slope.level)
        return abs(peeked.value - seen.slope.value) * LITTLE <= abs(whole.error)

    def _bisected(self, seen: Seen, peeking: bool) -> bool:
        """Bisect once, down to the elements; False where it ended before."""
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

    def _halves(self, heading: Heading, whole: Suspect, peeking: bool) -> list[Suspect]:
        """The halves that are wrong; none if neither can be told to be.

        With `peeking`, one step is enough where it leaves nearly all of the error to one half.
        """
        middle = (whole.start + whole.stop) // 2
        target = abs(whole.error) / SHARP
        with self.site.ray(heading, whole.start, middle) as ray:
            rungs = slope_search(self.site, ray)
            if peeking:
                one = self._lone(heading, whole, middle, rungs.peek(whole.level))
                if one is not None:
                    return [one]
            slope = rungs.glance(target, whole.level) or rungs.settle(target, whole.level)
        left = self._run(heading, whole.start, middle, slope)
        right = Suspect(
            middle, whole.stop, whole.error - left.error, whole.bar + left.bar, left.level
        )
        if not self._significant(left) and not self._significant(right):
            right = self._measure(heading, middle, whole.stop, left.level, target)
        return [half for half in (left, right) if self._significant(half)]

    def _lone(self, heading: Heading, whole: Suspect, middle: int, left: Slope) -> Suspect | None:
        """The half that has nearly all of the error, by what one step says of the left one."""
        part, little = self._run(heading, whole.start, middle, left), abs(whole.error) / LITTLE
        if abs(part.error) <= little:
            return replace(whole, start=middle)
        return replace(whole, stop=middle) if abs(whole.error - part.error) <= little else None

    def _measure(
        self, heading: Heading, start: int, stop: int, level: int, target: float
    ) -> Suspect:
        with self.site.ray(heading, start, stop) as ray:
            rungs = slope_search(self.site, ray)
            slope = rungs.glance(target, level) or rungs.settle(target, level)
        return self._run(heading, start, stop, slope)

    def _run(self, heading: Heading, start: int, stop: int, slope: Slope) -> Suspect:
        """An error that was measured, without that of the elements already known."""
        error, bar = slope.value, slope.bar
        for known in self.wrong.values():
            if start <= known.index < stop:
                width = self.site.ray(heading).width(known.index)
                error -= (known.want - known.got) * width
                bar += known.bar * abs(width)
        return Suspect(start, stop, error, bar, slope.level)

    def _significant(self, suspect: Suspect) -> bool:
        return abs(suspect.error) > KAPPA * suspect.bar + self.allowed

    def _confirm(self, heading: Heading, suspect: Suspect) -> None:
        """Note an element as wrong if a ladder of its own says so."""
        index = suspect.start
        if index in self.wrong:
            return
        found = one_element(self.site, index, heading, self.precise, abs(suspect.error))
        error = abs(found.got - found.want)
        if error > KAPPA * found.bar + ALLOWED * self.site.u * abs(found.got):
            self.wrong[index] = found
