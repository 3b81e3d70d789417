"""Several runs joined to one: shards of a run, and runs of several implementations."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from gradcheck.errors import UsageError
from gradcheck.results.case_result import CaseResult
from gradcheck.results.run import AT_FIRST, AT_MOST, Header, Run, digest_of
from gradcheck.results.stored.log import by_implementation, case_of
from gradcheck.results.words import clean, plural, title
from gradcheck.run.limits import CrashLimit
from gradcheck.run.plan import joined_shards, parsed_shard, shard_of


@dataclass(frozen=True, slots=True)
class Named:
    """A run, and the file that it was read from."""

    name: str
    run: Run

    @property
    def header(self) -> Header:
        """The header of the run."""
        return self.run.header

    @property
    def why(self) -> str:
        """Why it is incomplete; empty if it is complete."""
        return "" if self.run.complete else self.run.stopped or "the run stopped early"


def merged(runs: Sequence[Named]) -> Run:
    """Join the shards of the same implementations, then different implementations side by side.

    Expectations of a baseline are dropped: they belong to the whole.

    Raises:
        UsageError: they do not belong together; the message names the file.
    """
    groups: dict[tuple[str, ...], list[Named]] = {}
    for one in runs:
        _expect_same(one, runs[0])
        groups.setdefault(one.header.implementations, []).append(one)
    return _beside([_whole(group) for group in groups.values()])


def _expect_same(one: Named, first: Named) -> None:
    """Refuse a run whose header differs from the first.

    Raises:
        UsageError: it differs.
    """
    for field, what in (
        ("version", "gradcheck version"),
        ("suite", "suite"),
        ("suite_version", "suite version"),
        ("seed", "seed"),
        ("dtypes", "dtypes"),
        ("python", "Python version"),
        ("numpy", "NumPy version"),
        ("platform", "platform"),
    ):
        ours, theirs = (_shown(getattr(x.header, field)) for x in (one, first))
        if ours != theirs:
            raise UsageError(
                f"{one.name}: {what} {ours}, but {theirs} in {first.name}: "
                "merge runs that differ in nothing but their shard or their implementations"
            )


def _shown(value: object) -> str:
    text = ", ".join(map(str, value)) if isinstance(value, tuple) else str(value)
    return clean(text) or "unknown"


def _whole(group: Sequence[Named]) -> Named:
    """The shards of one run as a whole; a run that is not a shard stays alone.

    Raises:
        UsageError: they overlap, or are not of one selection.
    """
    first = group[0]
    for one in group:
        if one.header.versions != first.header.versions:
            raise UsageError(f"{one.name}: it is of another version of the code than {first.name}")
    _refuse_overlap(group)
    if not first.header.shard:
        return first
    of = _number(first)[1]
    by_number = {_number(one)[0]: one for one in group}
    if len(by_number) < len(group) or any(_number(one)[1] != of for one in group):
        said = ", ".join(f"{one.name} is {one.header.shard}" for one in group)
        raise UsageError(f"these are not shards of one run: {said}")
    parts = [by_number.get(number) for number in range(1, of + 1)]
    stopped = _stopped(parts)
    if not stopped:
        _refuse_others(group, [len(_cases(one)) for one in group])
    together = _interleaved([one.run.results if one else () for one in parts])
    results = sorted(together, key=by_implementation(first.header))
    return Named(
        name=first.name,
        run=Run(
            header=replace(
                first.header, shard="", cases=digest_of(results), require=_required(group)
            ),
            results=tuple(results),
            complete=not stopped,
            stopped=stopped,
            troubles=_all_troubles(group),
        ),
    )


def _refuse_overlap(group: Sequence[Named]) -> None:
    """Raise UsageError where two of the runs have the same result."""
    whose: dict[tuple[str, ...], Named] = {}
    for one in group:
        for result in one.run.results:
            other = whose.setdefault(result.key, one)
            if other is not one:
                raise UsageError(
                    f"{one.name}: {title(result)} is in {other.name}, too: "
                    "merge the shards of one run, each once"
                )
    for one in group:
        if len(group) > 1 and not one.header.shard:
            raise UsageError(
                f"{one.name}: it is not a shard, and {_other(one, group).name} is of the same "
                f"implementations: merge what `gradcheck run --shard I/N` wrote"
            )


def _other(one: Named, group: Sequence[Named]) -> Named:
    return next(other for other in group if other is not one)


def _number(one: Named) -> tuple[int, int]:
    try:
        return parsed_shard(one.header.shard)
    except ValueError as error:
        raise UsageError(f"{one.name}: {clean(str(error))}") from None


def _refuse_others(group: Sequence[Named], counts: Sequence[int]) -> None:
    """Raise UsageError where the sizes of complete shards are not those of one run."""
    ordered = [count for _, count in sorted(zip(map(_number, group), counts, strict=True))]
    if ordered != [len(part) for part in _parts(sum(counts), len(counts))]:
        said = ", ".join(
            f"{one.name} has {plural(count, 'case')}"
            for one, count in zip(group, counts, strict=True)
        )
        raise UsageError(f"these are shards of different selections: {said}")


def _parts(total: int, of: int) -> Iterable[Sequence[int]]:
    return (shard_of(range(total), f"{number}/{of}") for number in range(1, of + 1))


def _stopped(parts: Sequence[Named | None]) -> str:
    """Why a run of these shards is incomplete; empty if it is complete."""
    missing = [f"{number}/{len(parts)}" for number, one in enumerate(parts, 1) if one is None]
    lost = [one for one in parts if one is not None and one.why]
    if not missing and all(one.run.halted for one in lost):
        return _halted({f"shard {one.header.shard}": one for one in lost})
    said = [f"shard {missing[0]} is missing"] if len(missing) == 1 else []
    if len(missing) > 1:
        said = [f"shards {', '.join(missing)} are missing"]
    said += [f"shard {one.header.shard} is incomplete: {one.why}" for one in lost]
    return "; ".join(said)


def _halted(lost: Mapping[str, Named]) -> str:
    """The reason that all of these were stopped by a limit; empty for none."""
    runs = [one.run for one in lost.values()]
    late = next((run for run in runs if run.late), None)
    first = all(run.stopped.startswith(AT_FIRST) for run in runs)
    said = AT_FIRST if first else AT_MOST
    if late is not None:
        said = late.stopped.partition(";")[0]
    return f"{said} in {', '.join(lost)}" if lost else ""


def _cases(one: Named) -> dict[tuple[str, ...], None]:
    """The cases of a run, in their order."""
    return dict.fromkeys(map(case_of, one.run.results))


def _interleaved(parts: Sequence[Sequence[CaseResult]]) -> list[CaseResult]:
    """The results of shards, case by case in the order of one run."""
    by_case: list[dict[tuple[str, ...], list[CaseResult]]] = []
    for results in parts:
        cases: dict[tuple[str, ...], list[CaseResult]] = {}
        for result in results:
            cases.setdefault(case_of(result), []).append(result)
        by_case.append(cases)
    together = joined_shards([[*cases.values()] for cases in by_case])
    crashes = CrashLimit()  # each shard has counted fewer than the run
    counted = (crashes.counted(place, results) for place, results in enumerate(together))
    return [result for results in counted for result in results]


def _required(runs: Iterable[Named]) -> tuple[str, ...]:
    """The requirements of all runs."""
    return tuple(dict.fromkeys(glob for one in runs for glob in one.header.require))


def _all_troubles(group: Iterable[Named]) -> tuple[str, ...]:
    """The troubles of all runs, each once."""
    return tuple(dict.fromkeys(trouble for one in group for trouble in one.run.troubles))


def _beside(runs: Sequence[Named]) -> Run:
    """Runs of different implementations as one.

    Raises:
        UsageError: they share an implementation, or are not of the same cases.
    """
    first = runs[0]
    seen: dict[str, Named] = {}
    for one in runs:
        for name in one.header.implementations:
            if name in seen:
                raise UsageError(f"{one.name}: {clean(name)} is in {seen[name].name}, too")
            seen[name] = one
        if one.run.complete and first.run.complete and one.header.cases != first.header.cases:
            raise UsageError(
                f"{one.name}: its cases are others than those of {first.name}: "
                "run both with --all, or with the same selection of what both have"
            )
    results = tuple(result for one in runs for result in one.run.results)
    header = replace(
        first.header,
        implementations=tuple(seen),
        versions={k: v for one in runs for k, v in one.header.versions.items()},
        cases=digest_of(results),
        require=_required(runs),
    )
    return Run(
        header=header,
        results=results,
        complete=all(one.run.complete for one in runs),
        stopped=_stopped_beside(runs),
        troubles=_all_troubles(runs),
    )


def _stopped_beside(runs: Sequence[Named]) -> str:
    """Why runs of different implementations are incomplete; empty if they are complete."""
    lost = {", ".join(one.header.implementations): one for one in runs if one.why}
    if len(runs) == 1:
        return runs[0].run.stopped
    if all(one.run.halted for one in lost.values()):
        return _halted(lost)
    return "; ".join(f"{whose}: {one.why}" for whose, one in lost.items())
