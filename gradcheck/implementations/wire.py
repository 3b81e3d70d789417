"""Values as JSON and bytes of arrays, to be sent to another process and back.

What is sent can be nothing but data: unlike a pickle it runs no code where it is read. Arrays keep
their dtype, bits, memory layout and whether they may be written; those that are passed travel
with the memory that they are views of, so that views of one array share it there, too, and what
code reads or writes beside them is equal. Any other object is sent as the name of its type and, if
it converts to an array, its numbers.
"""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.lib.array_utils import byte_bounds
from numpy.typing import NDArray

from gradcheck.implementations.returned import Missing, as_array
from gradcheck.numerics.arrays import dtype_named, is_float

Array = NDArray[Any]
Block = bytes | memoryview
DOUBLE: Final = struct.Struct("<d")
SURROUNDINGS: Final = 1 << 20
"""Bytes around a view that travel with it."""
NAME: Final = 200
"""Characters of a type's name that are worth sending."""
ROOM: Final = 1 << 26
TIMES: Final = 16
"""An answer may have `ROOM` bytes, and so many times those of all arrays that it was asked with."""
VALUES: Final = 1 << 21
"""Values of an answer that are no elements of arrays."""
EARLIER: Final = 4
"""Answers that are looked after: a later call may write into what they were."""
KEPT: Final = 1 << 22
"""Bytes of an answer that is looked after, at most."""


class OversizedError(Exception):
    """An answer is larger than any that could be right; the message says what it would hold."""


@dataclass(frozen=True, slots=True)
class Room:
    """Memory that arrays lie in: where it starts, its bytes, what keeps it alive.

    `before` is what it held when it came (None: it was not sent here).
    """

    low: int
    size: int
    owner: Array
    before: Block | None = None


class Cargo:
    """The arrays and dicts of one conversation, by numbers that both ends share."""

    def __init__(self) -> None:
        """Nothing yet."""
        self.arrays: list[Array] = []
        self.dicts: list[dict[Any, Any]] = []
        self.rooms: list[Room] = []
        self._numbers: dict[int, tuple[str, int]] = {}
        self._places: dict[tuple[int, int], int] = {}

    def number(self, value: Any) -> tuple[str, int] | None:
        """The number of an object that was sent before, if any."""
        return self._numbers.get(id(value))  # `arrays` and `dicts` keep it alive

    def add(self, value: Any) -> None:
        """Number an array or a dict."""
        if isinstance(value, np.ndarray):
            self._numbers[id(value)] = ("r", len(self.arrays))
            self.arrays.append(value)
        else:
            self._numbers[id(value)] = ("rd", len(self.dicts))
            self.dicts.append(value)

    def room_of(self, array: Array) -> tuple[int, bool]:
        """The number of the memory that an array lies in, and whether it is new."""
        owner = _owner(array)
        place = span(owner)
        new = place not in self._places
        if new:
            self._places[place] = len(self.rooms)
            self.rooms.append(Room(*place, owner))
        return self._places[place], new

    @property
    def allowance(self) -> int:
        """Bytes of arrays that an answer may have, by far more than a right one has."""
        return ROOM + TIMES * sum(array.nbytes for array in self.arrays)

    @property
    def sent(self) -> int:
        """Bytes of memory that came, and may come back changed."""
        return sum(room.size for room in self.rooms)

    def changed(self) -> Iterator[tuple[int, bytes]]:
        """The memory that was written to since it came, by number, and what it holds now."""
        for i, room in enumerate(self.rooms):
            if room.before is not None and memoryview(room.before) != room.owner.data:
                yield i, room.owner.tobytes()


class Packer:
    """Turns values into JSON and blocks of bytes.

    With `adds`, arrays and dicts that are new get numbers in `cargo`; without, it is an answer,
    and `returned` are the arrays that were packed.
    """

    def __init__(self, cargo: Cargo, *, adds: bool) -> None:
        """Pack onto what `cargo` holds already."""
        self.cargo, self.adds = cargo, adds
        self.blocks: list[Block] = []
        self.returned: list[Array] = []
        self._open: set[int] = set()
        self._sent = self._packed = 0

    def pack(self, value: Any) -> Any:
        """One value as JSON; its arrays go to `blocks`.

        Raises:
            OversizedError: of an answer, it is too much.
        """
        self._packed += 1
        if not self.adds and self._packed > VALUES:
            raise OversizedError(f"more than {VALUES:,} numbers that are in no array")
        if value is None or isinstance(value, (bool, int, str)):
            return _plain(value)
        if isinstance(value, float) and not isinstance(value, np.generic):
            return ["f", DOUBLE.pack(value).hex()]
        number = self.cargo.number(value)
        if number is not None:
            return list(number)
        if isinstance(value, Missing):
            return ["x", value.why]
        if isinstance(value, (tuple, list, Mapping)):
            if id(value) in self._open:  # it holds itself, as no array does
                return ["o", type(value).__name__, None, None]
            self._open.add(id(value))
            found = self._container(value)
            self._open.remove(id(value))
            return found
        if isinstance(value, (np.ndarray, np.generic)) and _code(value.dtype):
            return self._array(value)
        return self._stranger(value)

    def _container(self, value: Any) -> Any:
        if isinstance(value, (tuple, list)):
            return ["t" if isinstance(value, tuple) else "l", [self.pack(part) for part in value]]
        if self.adds and not isinstance(value, dict):
            return ["m", [*value]]
        value = value if isinstance(value, dict) else dict(value)
        if self.adds:
            self.cargo.add(value)
        return ["d", [[self.pack(key), self.pack(part)] for key, part in value.items()]]

    def _array(self, value: Any) -> Any:
        array = np.asarray(value)
        kind = "n" if isinstance(value, np.generic) else "a"
        number, block, owner = -1, len(self.blocks), array
        if self.adds:
            self.cargo.add(array)
            number, new = self.cargo.room_of(array)
            owner = self.cargo.rooms[number].owner
            block = block if new else -1
        elif kind == "a":
            if span(array)[1] > self.cargo.allowance >= array.nbytes:  # a few numbers, far apart
                kind, array = "c", np.array(array, order="C")
                owner = array
            else:
                self.returned.append(array)
        if block >= 0:
            self._send(owner)
        at = array.ctypes.data - span(owner)[0] if array.size else 0
        strides = None if array.flags.c_contiguous else [*array.strides]
        shape, writable = [*array.shape], array.flags.writeable
        return [kind, number, block, _code(array.dtype), shape, strides, at, writable]

    def _send(self, array: Array) -> None:
        """The bytes that an array lies in, the gaps between its elements included.

        Raises:
            OversizedError: of an answer, they are too many.
        """
        self._sent += span(array)[1]
        if not self.adds and self._sent > (most := self.cargo.allowance):
            raise OversizedError(
                f"an array of shape {array.shape} and dtype {array.dtype} (with it "
                f"{self._sent:,} bytes; at most {most:,} are taken here)"
            )
        if array.flags.c_contiguous and array.size:
            self.blocks.append(array.reshape(-1).view(np.uint8).data)
        else:
            self.blocks.append(ctypes.string_at(*span(array)))

    def _stranger(self, value: Any) -> Any:
        """An object by its type, its dtype if it has one, its numbers if it is like an array."""
        array = as_array(value)
        dtype = getattr(value, "dtype", None)
        numbers = None
        if array is not None and _code(array.dtype):
            numbers = self._array(np.array(array))
            del self.returned[-1:]  # nobody holds what was just made of it
        return ["o", type(value).__name__[:NAME], None if dtype is None else str(dtype), numbers]


class Unpacker:
    """Turns JSON and blocks of bytes back into values.

    `lazily` gives a mapping for names whose values are asked for one by one. `watched` is for
    dicts, what entries they had; `returned` are the arrays that came without a number.
    """

    def __init__(
        self,
        cargo: Cargo,
        *,
        adds: bool,
        lazily: Callable[[list[str]], Mapping[str, Any]] | None = None,
    ) -> None:
        """Unpack onto what `cargo` holds already; with `adds`, what is new is numbered there."""
        self.cargo, self.adds, self._lazily = cargo, adds, lazily
        self.returned: list[Array] = []
        self.watched: list[tuple[dict[Any, Any], list[tuple[Any, Any]]]] = []

    def unpack(self, said: Any, blocks: Sequence[Block]) -> Any:
        """One value.

        Raises:
            ValueError, KeyError, IndexError, TypeError: the message is malformed.
        """
        if said is None or isinstance(said, (bool, int, str)):
            return said
        kind, *rest = said
        if kind in ("t", "l"):
            parts = [self.unpack(part, blocks) for part in rest[0]]
            return tuple(parts) if kind == "t" else parts
        if kind == "d":
            return self._dict(rest[0], blocks)
        if kind in ("a", "c", "n"):
            found = self._array(rest, blocks)
            if kind == "a" and not self.adds:
                self.returned.append(found)
            return found[()] if kind == "n" else found
        if kind == "o":
            name, dtype, numbers = rest
            array = None if numbers is None else self._array(numbers[1:], blocks)
            return stranger(name, dtype, array)
        if kind == "m" and self._lazily is not None:
            return self._lazily(rest[0])
        return self._small(kind, rest[0])

    def _small(self, kind: str, said: Any) -> Any:
        if kind == "f":
            return DOUBLE.unpack(bytes.fromhex(said))[0]
        if kind == "x":
            return Missing(said)
        held: dict[str, Sequence[Any]] = {"r": self.cargo.arrays, "rd": self.cargo.dicts}
        return held[kind][said]

    def _dict(self, entries: Any, blocks: Sequence[Block]) -> dict[Any, Any]:
        found: dict[Any, Any] = {}
        if self.adds:
            self.cargo.add(found)
        for key, part in entries:
            found[self.unpack(key, blocks)] = self.unpack(part, blocks)
        return found

    def _array(self, said: Sequence[Any], blocks: Sequence[Block]) -> Array:
        number, block, code, shape, strides, at, writable = said
        if block >= 0:
            room = np.array(memoryview(blocks[block]), dtype=np.uint8)
            if self.adds:
                self.cargo.rooms.append(Room(*span(room), room, blocks[block]))
        else:
            room = self.cargo.rooms[number].owner
        dtype = _dtype(code)
        empty = 0 in shape
        array = np.empty(shape, dtype) if empty else np.ndarray(shape, dtype, room, at, strides)
        array.flags.writeable = writable
        if self.adds:
            self.cargo.add(array)
        return array


def span(array: Array) -> tuple[int, int]:
    """Where the memory of an array starts that its elements lie in, and how many bytes it is."""
    if not array.size:
        return array.ctypes.data, 0
    low, high = byte_bounds(array)
    return low, high - low


def put_back(low: int, size: int, content: Block) -> None:
    """Overwrite memory with the content of its copy in another process, even if read-only.

    Raises:
        ValueError: the content has another size.
    """
    if size != memoryview(content).nbytes:
        raise ValueError("memory came back with another size")
    ctypes.memmove(low, bytes(content), size)


def _owner(array: Array) -> Array:
    """The array that `array` is a view of, unless that is much larger."""
    owner = array
    while isinstance(owner.base, np.ndarray):
        owner = owner.base
    low, size = span(array)
    start, whole = span(owner)
    inside = start <= low and low + size <= start + whole
    return owner if inside and whole <= SURROUNDINGS + 4 * size else array


def stranger(name: str, dtype: str | None, array: Array | None) -> Any:
    """A stand-in for an object of another process: its type's name, its dtype, its numbers."""

    def numbers(self: Any, *_: Any, **__: Any) -> Array:
        if array is None:
            raise TypeError("it is no array of numbers")
        return array

    has: dict[str, Any] = {"__array__": numbers}
    if dtype is not None:
        has["dtype"] = dtype
    return type(name.replace("\0", "") or "object", (), has)()


def _plain(value: Any) -> Any:
    """An instance of a plain type without what a subclass adds, which JSON may not know."""
    for kind in (bool, int, str):
        if isinstance(value, kind):
            return kind(value)
    return None


def _code(dtype: np.dtype[Any]) -> str:
    """The name of a dtype in messages; empty if its numbers are not sent."""
    if dtype.kind in "biufc":
        return dtype.str
    return dtype.name if is_float(dtype) else ""


def _dtype(code: str) -> np.dtype[Any]:
    dtype = np.dtype(code) if code[:1] in "<>|=" else dtype_named(code)
    if dtype.hasobject:  # its bytes would be taken for addresses
        raise ValueError(f"no numbers are sent as {code}")
    return dtype
