"""The check of a sharded model: tensor by tensor, by scalars alone; who is wrong is named."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from benchmarks.sharded.layout import Part
from benchmarks.sharded.mesh import Lost, Mesh
from benchmarks.sharded.remote import Forward, RemotePlace
from benchmarks.sharded.wire import Reply
from gradcheck.judge.compare import ERROR_BAR_FACTOR
from gradcheck.judge.directional_check import DirectionalCheck, DirectionalResult
from gradcheck.judge.locate import DIRECTION_ROUNDINGS
from gradcheck.judge.loss import value_at
from gradcheck.numerics.directional_slope import slope_search
from gradcheck.numerics.line_function import Scalar
from gradcheck.results.finding import Finding
from gradcheck.results.verdict import Verdict

SEARCH = 400
"""Forwards that may be spent per tensor on finding wrong elements."""
SAME = 64.0
"""Units of u by which the sums of replicas may differ: they have the same numbers."""


@dataclass(frozen=True, slots=True)
class Judged:
    """What is known of one tensor, and what it cost: forwards, directions drawn, bytes."""

    finding: Finding
    forwards: int
    draws: int
    bytes: int


def check(mesh: Mesh, *, seed: int = 0, search: int = SEARCH) -> Iterator[Judged]:
    """Judge the gradient of every tensor, in their order, as `check_model` would.

    The first finding is the loss's own. Where a worker is lost, it and the tensors that are left
    are NOTRUN, and the first of them says why.
    """
    forward = Forward(mesh)
    scalar = Scalar(forward)
    count = _Count(mesh, scalar)
    base = value_at(scalar, {})
    if mesh.lost is not None:
        base = Finding(name="loss", verdict=Verdict.NOTRUN, reason=str(mesh.lost))
    if isinstance(base, Finding):
        yield count.judged(base)
        return
    yield count.judged(Finding(name="loss", verdict=Verdict.PASS))
    said = ""
    for name in mesh.layout.shapes:
        place = RemotePlace(mesh, forward, scalar, base, name)
        try:
            finding = _judge(place, ("check_model", seed, name), search)
        except Lost as error:
            reason = "" if said else str(error)
            said = str(error)
            finding = Finding(name=name, verdict=Verdict.NOTRUN, reason=reason)
        yield count.judged(replace(finding, evaluations=count.forwards))


@dataclass(slots=True)
class _Count:
    """What was spent since the last finding."""

    mesh: Mesh
    scalar: Scalar
    _before: tuple[int, int, int] = (0, 0, 0)

    @property
    def forwards(self) -> int:
        """Of the whole model."""
        return self.scalar.evaluations - self._before[0]

    def judged(self, finding: Finding) -> Judged:
        """A finding, and what it cost."""
        now = self.scalar.evaluations, self.mesh.draws, self.mesh.bytes
        forwards, draws, size = (a - b for a, b in zip(now, self._before, strict=True))
        self._before = now
        return Judged(finding, forwards, draws, size)


def _judge(place: RemotePlace, seed: tuple[object, ...], search: int) -> Finding:
    early = _surveyed(place, place.survey())
    if early is not None:
        return early
    judging = DirectionalCheck(place.name, place, seed)
    finding = judging.judge(search)
    apart = _replicas(place)
    if apart:
        return replace(finding, verdict=Verdict.FAIL, reason=apart)
    if finding.verdict is Verdict.FAIL:
        where = _wrong_parts(place, next(s for s in judging.results if s.wrong))
        return replace(finding, reason="; ".join(filter(None, [finding.reason, where])))
    return finding


def _surveyed(place: RemotePlace, replies: dict[int, Reply]) -> Finding | None:
    """What can be said before anything moves: numbers that are none, replicas that differ."""
    title, parts = place.mesh.layout.title, place.parts
    strange = [part.worker for part in parts if replies[part.worker].numbers[2]]
    if strange:
        count = int(sum(replies[worker].numbers[2] for worker in strange))
        reason = f"{count} numbers are not finite, at {' and '.join(map(title, strange))}"
        return Finding(name=place.name, verdict=Verdict.FAIL, reason=reason, compared=place.size)
    if parts[0].counts and parts[-1].counts:
        return None
    first = parts[0].worker
    others = [p.worker for p in parts if replies[p.worker].count != replies[first].count]
    if others:
        said = f"{' and '.join(map(title, others))} has another replica of it than {title(first)}"
        return Finding(name=place.name, verdict=Verdict.FAIL, reason=said, compared=place.size)
    return None


def _replicas(place: RemotePlace) -> str:
    """How the gradients of replicas differ; an empty string if they do not."""
    for found in place.replicas.values():
        first, *others = sorted(found)
        for worker in others:
            apart = abs(found[worker] - found[first])
            if not apart <= SAME * place.u * abs(found[first]):
                title = place.mesh.layout.title
                return (
                    f"its replicas have different gradients: along one direction {title(first)} "
                    f"says {found[first]:.6g}, {title(worker)} says {found[worker]:.6g}"
                )
    return ""


def _wrong_parts(place: RemotePlace, strike: DirectionalResult) -> str:
    """Whose parts of a tensor are wrong, if not all of them are; an empty string else."""
    if len(place.parts) == 1 or not place.parts[-1].counts:
        return ""
    wrong = [part for part in place.parts if _is_wrong(place, part, strike)]
    if not wrong or len(wrong) == len(place.parts):
        return ""
    return f"wrong in the part of {_named(place, wrong)} alone"


def _is_wrong(place: RemotePlace, part: Part, strike: DirectionalResult) -> bool:
    with place.ray(strike.heading, part.start, part.stop) as ray:
        norm = ray.products()[1]
        slope = slope_search(place, ray).settle(abs(strike.error) / 32)
    return abs(slope.value) > ERROR_BAR_FACTOR * slope.bar + DIRECTION_ROUNDINGS * place.u * norm


def _named(place: RemotePlace, parts: Sequence[Part]) -> str:
    title = place.mesh.layout.title
    return " and ".join(f"{title(p.worker)}, elements {p.start} to {p.stop - 1}" for p in parts)
