"""Requests and answers as files in a folder: the level `oneshot`, and what `export` writes.

`meta.txt` says what is asked, one fact per line; each array is a file of raw bytes,
`ROLE.NAME.bin`, little-endian and in C order. What a program has left in its folder is as hostile
as anything else that it says: links are not followed, and no file is read that has not the size
that was asked for.
"""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from gradcheck.implementations.protocol.message import (
    GIVES,
    VERSION,
    Block,
    Form,
    Raw,
    Request,
    tame,
)

META: Final = "meta.txt"


class BadFolder(ValueError):  # noqa: N818  a folder is
    """What a folder holds is no answer; the message names the file and says what is wrong."""


def meta(request: Request) -> str:
    """The text of `meta.txt`; outputs that are wanted are announced without their shape."""
    lines = [
        f"protocol {VERSION}",
        f"op {request.op}",
        f"ask {request.ask}",
        f"dtype {request.dtype}",
        *(f"attr {name} {_json(value)}" for name, value in request.attrs.items()),
        *(_line(block.form) for block in request.blocks),
        *(_line(form) for form in request.wanted),
    ]
    return "".join(f"{line}\n" for line in lines)


def file_of(form: Form) -> str:
    """The name of the file that holds an array's bytes."""
    return f"{form.role}.{form.name}.bin"


def write(folder: Path, request: Request) -> None:
    """Write a request into a folder, which is made if it is missing.

    Raises:
        BadFolder: a file of that name is there already (a request never overwrites).
        OSError: the folder cannot be written.
    """
    folder.mkdir(exist_ok=True)
    files: list[tuple[str, Raw]] = [(META, meta(request).encode())]
    files += [(file_of(block.form), block.data) for block in request.blocks]
    for name, data in files:
        try:
            with (folder / name).open("xb") as file:
                file.write(data)
        except FileExistsError:
            raise BadFolder(f"{folder / name} is there already; give an empty folder") from None


def read(folder: Path, request: Request) -> list[Block]:
    """The arrays wanted that the folder holds; one without a file is left out.

    Raises:
        BadFolder: a file is none (a link, a folder, a pipe), has another size, or is an answer
            that nobody asked for.
        OSError: the folder cannot be read.
    """
    found = []
    with _opened(folder) as descriptor:
        _refuse_others(descriptor, request)
        for form in request.wanted:
            data = _content(descriptor, form)
            if data is not None:
                found.append(Block(form, data))
    return found


def _line(form: Form) -> str:
    shape = () if form.role == GIVES["forward"] else form.shape
    return " ".join([form.role, form.name, form.dtype, *map(str, shape)])


def _json(value: object) -> str:
    return json.dumps(value, separators=(",", ":"), allow_nan=False)


@contextmanager
def _opened(folder: Path) -> Iterator[int]:
    """A descriptor of the folder: what replaces it meanwhile is not followed."""
    try:
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    except OSError as error:
        raise BadFolder(f"{folder} cannot be opened as a folder: {error.strerror}") from None
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _refuse_others(descriptor: int, request: Request) -> None:
    known = {file_of(form) for form in request.wanted}
    for name in sorted(os.listdir(descriptor)):
        if name.partition(".")[0] == GIVES[request.ask] and name not in known:
            files = ", ".join(sorted(known))
            raise BadFolder(f"{tame(name)} is not asked for; wanted: {files}")


def _content(descriptor: int, form: Form) -> bytes | None:
    """The bytes of one array; None: there is no such file."""
    name = file_of(form)
    try:  # O_NONBLOCK: a pipe without a writer must not hang us
        file = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=descriptor)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise BadFolder(f"{name} is no plain file: {error.strerror}") from None
    status = os.fstat(file)
    if not stat.S_ISREG(status.st_mode):
        os.close(file)
        raise BadFolder(f"{name} is no plain file")
    with os.fdopen(file, "rb") as stream:
        if status.st_size != form.nbytes:
            shape = " × ".join(map(str, form.shape)) or "1"
            raise BadFolder(
                f"{name} has {status.st_size:,} bytes; {shape} elements of {form.dtype} "
                f"are {form.nbytes:,}"
            )
        data = stream.read(form.nbytes)
    if len(data) != form.nbytes:
        raise BadFolder(f"{name} became shorter while it was read")
    return data
