"""Exported requests: their index, and the implementation that reads answers on file."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any, Final, Literal

import msgspec
from msgspec import Struct
from numpy.typing import NDArray

from gradcheck.errors import Unsupported, UsageError
from gradcheck.implementations.bound import Bound, OperatorsOnly
from gradcheck.implementations.protocol import folder
from gradcheck.implementations.protocol.folder import meta
from gradcheck.implementations.protocol.message import GIVES, Request
from gradcheck.implementations.protocol.program import array_of, vjp_request
from gradcheck.implementations.returned import broken
from gradcheck.numerics.arrays import as_tuple
from gradcheck.spec.suite import Case
from gradcheck.system import atomic_io
from gradcheck.system.reading import contents

INDEX: Final = "index.json"
FORMAT: Final = 1
LARGEST: Final = 1 << 28
"""Bytes of an index."""

Layout = Literal["bin", "npz"]
"""A folder of raw bytes per request, or one .npz file."""


class Exported(Struct, frozen=True, kw_only=True):
    """One case in one dtype: its name and hash, and the digest of each request, in order."""

    case: str
    hash: str
    dtype: str
    calls: tuple[str, ...]


class Index(Struct, frozen=True, kw_only=True):
    """An export: from which suite and seed, and its cases.

    `places` are the names of the requests' folders or files, by digest.
    """

    layout: Layout
    suite: str
    suite_version: str
    seed: int
    cases: tuple[Exported, ...]
    places: dict[str, str]
    format: int = FORMAT


def digest(request: Request) -> str:
    """32 hexadecimal digits that say what is asked, to the last bit."""
    found = hashlib.blake2b(digest_size=16)
    found.update(meta(request).encode())
    for block in request.blocks:
        found.update(block.data)
    return found.hexdigest()


def write(folder: Path, index: Index) -> None:
    """Write the index of an export, whole or not at all: it comes last, and seals the folder.

    Raises:
        OSError: the folder cannot be written.
    """
    text = msgspec.json.format(msgspec.json.encode(index), indent=1)
    atomic_io.create(folder / INDEX, f"{text.decode()}\n")


def read(folder: Path) -> Index:
    """The index of an export.

    Raises:
        UsageError: there is none, or it is not an index of this version.
    """
    path = folder / INDEX
    try:
        text = contents(path, LARGEST)
    except OSError as error:
        raise UsageError(
            f"{path}: {error.strerror}; name a folder that `gradcheck export` wrote"
        ) from None
    try:
        index = msgspec.json.decode(text, type=Index)
    except (ValueError, RecursionError) as error:  # msgspec's errors and bad UTF-8 are ValueErrors
        raise UsageError(
            f"{path} is no index of an export ({error}); write the folder again with "
            "`gradcheck export`"
        ) from None
    if index.format != FORMAT:
        raise UsageError(
            f"{path} has format {index.format}, this version reads {FORMAT}; write the folder "
            "again with `gradcheck export`"
        )
    for name in index.places.values():
        if not name or name != Path(name).name or name.startswith("."):
            raise UsageError(f"{path} names a place outside of its folder: {name[:80]!r}")
    return index


Array = NDArray[Any]
ANSWER = ".answer.npz"
"""The ending of an answer's name, where that of the request is ".npz"."""


class Answers(OperatorsOnly):
    """The answers in an exported folder; a call is looked up by the bits of its arguments.

    Raises:
        UsageError: the folder holds no export.
    """

    def __init__(self, name: str, place: Path) -> None:
        """Read the index; `name` is what `--impl` calls it."""
        self.name = name
        self.place = place
        self.index = read(place)
        self._calls = {(case.case, case.dtype): case.calls for case in self.index.cases}

    def bind(self, case: Case, dtype: str) -> Bound | None:
        """The answers to a case; None where there is none to any of its requests."""
        calls = self._calls.get((case.name, dtype), ())
        if not any(self._answered(call) for call in calls):
            return None

        def vjp(ct: Any, *primals: Array, **attrs: Any) -> tuple[Array | None, ...]:
            request = vjp_request(case, dtype, as_tuple(ct), primals, attrs)
            found = self._answer(request)
            return tuple(found.get(name) for name in case.primal_names)

        return Bound(vjp=vjp, forward=None, attrs=case.attrs)

    def _answered(self, call: str) -> bool:
        name = self.index.places.get(call)
        if name is None:
            return False
        if self.index.layout == "npz":
            return _exists(self._file(name))
        start = f"{GIVES['vjp']}."
        try:
            return any(path.name.startswith(start) for path in (self.place / name).iterdir())
        except OSError:
            return False

    def _answer(self, request: Request) -> dict[str, Array]:
        name = self.index.places.get(digest(request))
        if name is None:
            raise Unsupported("answers on file answer nothing but what was exported")
        try:
            if self.index.layout == "npz":
                path = self._file(name)
                return folder.read_npz(path, request) if _exists(path) else {}
            blocks = folder.read(self.place / name, request)
        except (folder.FolderError, OSError) as error:
            raise broken("vjp", f"{name}: {error}") from None
        return {block.form.name: array_of(block) for block in blocks}

    def _file(self, name: str) -> Path:
        return self.place / f"{name.removesuffix('.npz')}{ANSWER}"


def _exists(path: Path) -> bool:
    """Whether anything lies there, a link that leads nowhere too."""
    return path.is_symlink() or path.exists()
