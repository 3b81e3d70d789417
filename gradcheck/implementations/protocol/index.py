"""What an exported folder holds: where each request lies, and which cases it belongs to.

The index is for `gradcheck judge` alone. Requests themselves name no case, and lie in the order of
their digests, so that nothing about them tells what is expected.
"""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Final, Literal

import msgspec
from msgspec import Struct

from gradcheck.errors import UsageError
from gradcheck.implementations.protocol.folder import meta
from gradcheck.implementations.protocol.message import Request
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
        UsageError: there is none, or it was written by another version or by nobody.
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
