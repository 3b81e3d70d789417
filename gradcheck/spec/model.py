"""What a model is, as frozen data: its program, its sizes, and the values given at each of them."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, ClassVar, Final

import numpy as np

from gradcheck.errors import SpecError
from gradcheck.numerics.arithmetic import F64
from gradcheck.numerics.arrays import Attrs
from gradcheck.spec.case import AnyCase, Kind
from gradcheck.spec.operator import DEFAULT, Array, Dialect, dialect_named
from gradcheck.spec.spec_checks import (
    check_attrs,
    check_held,
    check_name,
    check_texts,
    check_unique,
)

if TYPE_CHECKING:
    from gradcheck.spec.program import Program, Stage, Values

MARGIN: Final = 2.0**-10
"""Distance that every value of a smooth size keeps from every kink, in units of the value."""
ATTEMPTS: Final = 200
"""Draws after which a size that never keeps its distance is at fault."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Size:
    """One named set of dimensions of a model, and what it hunts.

    Values keep their distance from kinks. `at_kink` marks a size where some may sit exactly on
    one (equal pixels in a pooling window), provided that the loss has a derivative all the same.
    """

    name: str
    hunts: str
    attrs: Attrs = field(default_factory=dict)
    at_kink: bool = False

    def __post_init__(self) -> None:
        check_name("size", self.name)
        if not self.hunts.strip():
            raise SpecError(f"size {self.name!r}: say in `hunts` which defect it would expose")


@dataclass(frozen=True)
class ModelSpec:
    """A model: `build(**dimensions)` returns its program; dimensions are keywords with defaults.

    `dialects` are variants (another loss, say) as in an operator; `sizes` are the dimensions at
    which it is judged, the first one the smallest.

    Raises:
        SpecError: the parts contradict each other.
    """

    name: str
    build: Callable[..., Program]
    sizes: tuple[Size, ...]
    says: str
    source: str
    dialects: tuple[Dialect, ...] = DEFAULT

    def __post_init__(self) -> None:
        me = f"model {self.name!r}"
        check_name("model", self.name)
        check_texts(me, says=self.says, source=self.source)
        if not self.sizes:
            raise SpecError(f"{me} has no sizes: add at least one Size")
        check_unique(me, "size", [s.name for s in self.sizes])
        check_unique(me, "dialect", [d.name for d in self.dialects])
        parts = [(s.name, s.attrs) for s in self.sizes]
        parts += [(d.name, d.attrs) for d in self.dialects]
        check_attrs(me, parts, self.defaults, "build")

    @cached_property
    def defaults(self) -> Attrs:
        """Dimensions and their default values."""
        parameters = inspect.signature(self.build).parameters.values()
        for p in parameters:
            if p.kind is not p.KEYWORD_ONLY or p.default is p.empty:
                raise SpecError(
                    f"model {self.name!r}: make {p.name!r} of build keyword-only, with a default"
                )
        return {p.name: p.default for p in parameters}

    @property
    def points(self) -> tuple[Size, ...]:
        """The sizes, under the name that all kinds of specs share."""
        return self.sizes

    def dialect(self, name: str) -> Dialect:
        """The dialect called `name`.

        Raises:
            UnknownNameError: there is none.
        """
        return dialect_named(name, self.name, self.dialects)


@dataclass(frozen=True)
class ModelCase(AnyCase):
    """One point to judge a model at: model, dialect and size, with the values of everything given.

    Parameters and inputs are float64 (within the range of float32) or int64, and read-only.
    A number depends on the names of the model, the size and the tensor, and on the seed alone.
    """

    kind: ClassVar[Kind] = Kind.MODEL
    spec: ModelSpec
    dialect: Dialect
    size: Size
    seed: int
    suite: str

    @property
    def point(self) -> Size:
        """The size."""
        return self.size

    @cached_property
    def program(self) -> Program:
        """The program at these dimensions."""
        return self.spec.build(**self.attrs)

    @cached_property
    def given(self) -> dict[str, Array]:
        """Parameters and inputs by name.

        The first of up to 200 draws at which every stage keeps its distance from its operator's
        kinks (or sits exactly on them, if the size says so).

        Raises:
            SpecError: float32 does not hold a value, or no draw keeps its distance.
        """
        near = ""
        for attempt in range(ATTEMPTS):
            given = self._drawn(attempt)
            near = self._too_near(given)
            if not near:
                for array in given.values():
                    array.flags.writeable = False
                return given
        raise SpecError(
            f"{self.name}: in {ATTEMPTS} draws some value always came close to a kink, the last "
            f"time at stage {near!r}; make the size smaller, or mark it at_kink"
        )

    @property
    def params(self) -> dict[str, Array]:
        """Parameters by name."""
        return {name: self.given[name] for name in self.program.params}

    @property
    def inputs(self) -> dict[str, Array]:
        """Inputs by name."""
        return {name: self.given[name] for name in self.program.inputs}

    def _meaning(self) -> Iterator[bytes]:
        for name, array in self.given.items():
            yield f"{name}{array.dtype}{array.shape}".encode()
            yield np.ascontiguousarray(array).tobytes()
        for stage in self.program.stages:
            yield f"{stage.name}{stage.op.name}{stage.reads}{stage.outputs}".encode()
            yield repr(sorted(stage.all_attrs.items())).encode()

    def _drawn(self, attempt: int) -> dict[str, Array]:
        given = {}
        retry = (attempt,) if attempt else ()
        for role, tensors in (("param", self.program.params), ("input", self.program.inputs)):
            for name, drawn in tensors.items():
                array = np.array(drawn(self.draw(role, name, *retry)))
                if array.dtype.kind in "iu":
                    array = array.astype(np.int64)
                else:
                    check_held(self.name, name, array)
                    array = array.astype(np.float64)
                given[name] = array
        return given

    def _too_near(self, given: Values) -> str:
        """The first stage one of whose values lies closer to a kink than `MARGIN`."""
        kinked = [stage for stage in self.program.stages if stage.op.kinks]
        if not kinked:
            return ""
        with np.errstate(all="ignore"):
            values = self.program.forward(F64, given)
            for stage, gap in _gaps(kinked, values):
                fine = gap >= MARGIN
                if self.size.at_kink:
                    fine |= gap == 0
                if not fine.all():
                    return stage.name
        return ""


def _gaps(stages: list[Stage], values: Values) -> Iterator[tuple[Stage, Array]]:
    for stage in stages:
        primals = [values[name] for name in stage.reads]
        for kink in stage.op.kinks:
            yield stage, np.abs(kink.gap(F64, *primals, **stage.all_attrs))
