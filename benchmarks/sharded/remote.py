"""A tensor that lies in many processes, as a ladder sees it: `Line` and `Place` over a mesh."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Self

import numpy as np

from benchmarks.sharded.layout import Part
from benchmarks.sharded.mesh import Mesh
from benchmarks.sharded.wire import Ask, Reply, Request
from gradcheck.numerics.draw import direction
from gradcheck.numerics.line_function import Heading, Pair, Scalar

HERE = Request(ask=Ask.HERE)


@dataclass(slots=True)
class Forward:
    """The loss of the sharded model where it stands just now, and after the next move.

    `request` is what the next call asks of all workers, `moved` what they returned beside it.
    """

    mesh: Mesh
    request: Request = HERE
    moved: dict[int, float] = field(default_factory=dict)

    def __call__(self) -> float:
        """One forward of the whole model."""
        request, self.request = self.request, HERE
        replies = self.mesh.ask(request, self.mesh.everyone)
        self.moved = {worker: reply.numbers[1] for worker, reply in replies.items()}
        last = (self.mesh.layout.stages - 1) * self.mesh.layout.ranks
        return replies[last].numbers[0]


@dataclass(slots=True)
class RemoteLine:
    """A ray through elements start … stop of a sharded tensor: nothing but scalars travels."""

    place: RemotePlace
    heading: Heading
    start: int
    stop: int

    @property
    def value(self) -> Scalar:
        """The function."""
        return self.place.value

    @property
    def unit(self) -> float:
        """How far t = 1 goes, in the tensor's own units."""
        return self.place.unit

    @property
    def dtype(self) -> np.dtype[Any]:
        """The tensor's."""
        return self.place.dtype

    def __enter__(self) -> Self:
        """Every worker keeps what it moves, when it is first told to."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self.place.mesh.lost is None:
            self.place.mesh.ask(self._request(Ask.RESTORE), self._workers())

    def pair(self, t: float) -> Pair:
        """Both ends at `t`, and ⟨g, x₊ − x₋⟩ in float64."""
        above = self.at(t)
        below = self._value(self._request(Ask.BACK, t))
        return Pair(above, below, self._total(self.place.forward.moved))

    def at(self, t: float) -> float:
        """The value at one point of the line."""
        return self._value(self._request(Ask.AHEAD, t))

    def products(self) -> tuple[float, float]:
        """⟨g, d⟩·unit, and ‖g∘d‖₂·unit: what it measures if signs are random."""
        replies = self.place.mesh.ask(self._request(Ask.SUMS), self._workers())
        for worker, reply in replies.items():
            self.place.heard(worker, self.heading, reply)
        product = self._total({w: r.numbers[0] for w, r in replies.items()})
        square = self._total({w: r.numbers[1] for w, r in replies.items()})
        return product * self.unit, float(np.sqrt(square)) * self.unit

    def width(self, index: int) -> float:
        """How far t = 1 moves one element of the tensor, of either sign."""
        kind = np.dtype(np.float64)
        d = float(next(direction(self.heading.key, index, index + 1, kind))[0])
        slope = self.place.got(index) if self.heading.uphill else 0.0
        return float(np.copysign(d, slope) if slope else d) * self.unit

    def _value(self, request: Request) -> float:
        """A forward after a move; a worker that is lost ends the check, it is no refusal."""
        self.place.forward.request = request
        value = self.value()
        if self.place.mesh.lost:
            raise self.place.mesh.lost
        return value

    def _total(self, found: dict[int, float]) -> float:
        """The sum over the parts of the tensor; of replicas the first one counts."""
        return float(sum(found[part.worker] for part in self._parts() if part.counts))

    def _parts(self) -> list[Part]:
        return [p for p in self.place.parts if p.start < self.stop and self.start < p.stop]

    def _workers(self) -> Iterable[int]:
        return [part.worker for part in self._parts()]

    def _request(self, ask: Ask, t: float = 0.0) -> Request:
        return Request(
            ask=ask,
            tensor=self.place.tensor,
            key=self.heading.key,
            uphill=self.heading.uphill,
            start=self.start,
            stop=self.stop,
            t=t,
            unit=self.unit,
        )


@dataclass(slots=True)
class RemotePlace:
    """One tensor of a sharded model: where its parts lie, and what is known of it.

    `replicas` has what each worker said of ⟨g, d⟩, by direction, where all have the whole tensor.
    """

    mesh: Mesh
    forward: Forward
    value: Scalar
    base: float
    name: str
    unit: float = 1.0
    replicas: dict[Heading, dict[int, float]] = field(default_factory=dict)

    @property
    def tensor(self) -> int:
        """Its number in the model."""
        return [*self.mesh.layout.shapes].index(self.name)

    @property
    def parts(self) -> tuple[Part, ...]:
        """Who holds what of it."""
        return self.mesh.layout.parts(self.name)

    @property
    def shape(self) -> tuple[int, ...]:
        """The whole tensor's."""
        return self.mesh.layout.shapes[self.name]

    @property
    def size(self) -> int:
        """Elements of the whole tensor."""
        return int(np.prod(self.shape))

    @property
    def dtype(self) -> np.dtype[Any]:
        """The tensor's."""
        return np.dtype(self.mesh.dtype)

    @property
    def u(self) -> float:
        """The unit roundoff of the gradient that is judged."""
        return float(np.finfo(self.dtype).eps) / 2

    def got(self, index: int) -> float:
        """One element of that gradient, by its flat index."""
        (part,) = [p for p in self.parts if p.counts and p.start <= index < p.stop]
        request = Request(ask=Ask.GOT, tensor=self.tensor, start=index, stop=index + 1)
        return self.mesh.ask(request, [part.worker])[part.worker].numbers[0]

    def ray(self, heading: Heading, start: int = 0, stop: int | None = None) -> RemoteLine:
        """The line through elements start … stop."""
        return RemoteLine(self, heading, start, self.size if stop is None else stop)

    def heard(self, worker: int, heading: Heading, reply: Reply) -> None:
        """Keep what a replica says of its own gradient."""
        if not all(part.counts for part in self.parts):
            self.replicas.setdefault(heading, {})[worker] = reply.numbers[0]

    def survey(self) -> dict[int, Reply]:
        """Ask all who hold a part what it is like; sets `unit`."""
        request = Request(ask=Ask.SURVEY, tensor=self.tensor)
        replies = self.mesh.ask(request, [part.worker for part in self.parts])
        counted = [replies[part.worker].numbers for part in self.parts if part.counts]
        largest = max(numbers[0] for numbers in counted)
        if 0 < largest < np.inf:
            total = sum(square * (own / largest) ** 2 for own, square, _ in counted)
            self.unit = float(largest * np.sqrt(total / self.size))
        return replies
