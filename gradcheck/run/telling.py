"""The order in which a run with a budget judges its cases: the most telling ones first."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from gradcheck.errors import GradcheckError
from gradcheck.run.plan import Key, key_of
from gradcheck.spec.case import AnyCase, Kind
from gradcheck.spec.mutant import KnownMutants
from gradcheck.spec.suite import Suite


def most_telling(suite: Suite, cases: Sequence[AnyCase]) -> list[AnyCase]:
    """The cases in rounds, with one case of each dialect of an operator, model or rule per round.

    The first round has typical samples: the first ones away from kinks. The next rounds have, of
    each dialect, the sample that the most of the suite's mutants name as the one that must reject
    them. Equal ones, and the dialects of a round, keep the suite's order.
    """
    killers = _killers(suite, cases)
    by_key: dict[Key, list[AnyCase]] = {}
    for case in cases:
        by_key.setdefault(key_of(case), []).append(case)
    rounds: dict[str, int] = {}
    for key, of_key in by_key.items():
        first = next((c for c in of_key if not getattr(c.point, "at_kink", False)), of_key[0])

        def telling(case: AnyCase, first: AnyCase = first, key: Key = key) -> tuple[bool, int]:
            return case is not first, -killers.get((key[1], case.point.name), 0)

        rounds |= {case.name: turn for turn, case in enumerate(sorted(of_key, key=telling))}
    return sorted(cases, key=lambda case: rounds[case.name])


def _killers(suite: Suite, cases: Sequence[AnyCase]) -> Mapping[tuple[str, str], int]:
    """By operator and sample, how many mutants the sample must reject.

    A table that does not load counts as empty: `gradcheck power` reports it.
    """
    found: Counter[tuple[str, str]] = Counter()
    known = KnownMutants(suite)
    for op in dict.fromkeys(case.spec.name for case in cases if case.kind is Kind.OPERATOR):
        try:
            found.update((op, mutant.killer) for mutant in known[op])
        except GradcheckError:
            continue
    return found
