"""What the worker process is to do, as data: memory to lay out, C functions to call on it.

The worker knows nothing of gradients. A script is complete in itself: it allocates its buffers,
makes its calls in order, returns what the buffers hold, and frees them.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final, Literal

SCALARS: Final = (
    "int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64",
    "float32", "float64", "bool",
)  # fmt: skip
"""C types of scalar arguments and results, by width; `size_t` is uint64, `int` int32."""

Guard = Literal["end", "start", "off"]


class Access(StrEnum):
    """What the code called may do with a buffer."""

    READ = "read"
    """Its pages are read-only: a write kills the worker."""
    WRITE = "write"
    NONE = "none"
    """Any access kills the worker."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Buffer:
    """One block of memory, `nbytes` long, that begins with `content`.

    `guard` says on which side a page lies that may not be touched; the block touches it, except
    that its start is a multiple of `align` bytes (1: of the element's own alignment, which the
    caller gives). The gap that alignment leaves is watched: what changes there is reported.
    """

    name: str
    content: bytes | memoryview
    access: Access = Access.WRITE
    guard: Guard = "end"
    align: int = 1

    @property
    def nbytes(self) -> int:
        """Its length."""
        return memoryview(self.content).nbytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Pointer:
    """The address of a buffer, `offset` bytes in."""

    buffer: str
    offset: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Scalar:
    """A number passed by value, as one of `SCALARS`."""

    ctype: str
    value: int | float


@dataclass(frozen=True, slots=True, kw_only=True)
class Kept:
    """What an earlier call returned (an opaque handle)."""

    name: str


Argument = Pointer | Scalar | Kept | None
"""None is a null pointer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """One call of `symbol` in the shared library at `library`.

    `returns` is one of `SCALARS`, "pointer", or "void"; a pointer is kept under `keep`. `label`
    is what messages call it. A null pointer under `keep` ends the script with an error.
    """

    library: str
    symbol: str
    arguments: tuple[Argument, ...]
    returns: str = "void"
    keep: str = ""
    label: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Script:
    """Buffers, and the calls to make on them."""

    buffers: tuple[Buffer, ...]
    calls: tuple[Call, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What a script left: every writable buffer's bytes, what each call returned.

    `strayed` says, per buffer, what was written outside of it (into its alignment gap); `breaches`
    are sentences on what else a call must not leave behind: another rounding mode, memory that it
    was given to read; `printed` is an excerpt of what the code printed meanwhile.
    """

    buffers: dict[str, memoryview]
    returned: tuple[int | float | None, ...]
    strayed: dict[str, str]
    breaches: tuple[str, ...]
    printed: str
