"""A gradient does not depend on which other gradients are asked for."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Final

from gradcheck.judge.contract.asking import Breach, Vacuous
from gradcheck.judge.contract.subject import Subject

SAYS: Final = "A gradient is the same whichever others are asked for with it."
ALL: Final = 3
"""Primals up to which every subset is asked for; of more, single ones and all but one."""


def subsets(subject: Subject) -> Breach | None:
    """Every proper subset of the primals, against all of them at once."""
    if len(subject.names) < 2:
        raise Vacuous("there is one gradient only")
    ct = subject.cts[0]
    every = subject.ask_some(
        tuple(n in subject.names for n in subject.truth.names), ct, "asked for all gradients"
    )
    for some in _subsets(subject.names):
        needs = tuple(name in some for name in subject.truth.names)
        what = f"asked for {' and '.join(f'd{name}' for name in some)} alone"
        got = subject.ask_some(needs, ct, what)
        off = subject.differ(ct, got, every)
        if off:
            return Breach(f"{what}, {off}")
    plain = subject.ask(ct)
    off = subject.differ(ct, every, plain)
    return Breach(f"asked for all gradients by `needs`, {off}") if off else None


def _subsets(names: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    sizes = range(1, len(names)) if len(names) <= ALL else (1, len(names) - 1)
    for size in sizes:
        yield from itertools.combinations(names, size)
