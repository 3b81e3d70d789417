"""Requests and answers as files: a folder of raw bytes, or one .npz file."""

from __future__ import annotations

import io
import json
import math
import os
import stat
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO, Final

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray

from gradcheck.implementations.protocol.message import (
    GIVES,
    VERSION,
    Block,
    Form,
    Raw,
    Request,
    tame,
)
from gradcheck.numerics.arrays import dtype_named

Array = NDArray[Any]
META: Final = "meta.txt"


class FolderError(ValueError):
    """The folder does not hold an answer; the message names the file and the fault."""


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
        FolderError: a file of that name is there already (a request never overwrites).
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
            raise FolderError(f"{folder / name} is there already; give an empty folder") from None


def read(folder: Path, request: Request) -> list[Block]:
    """The arrays wanted that the folder holds; one without a file is left out.

    Raises:
        FolderError: a file is none (a link, a folder, a pipe), has another size, or is an answer
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
        raise FolderError(f"{folder} cannot be opened as a folder: {error.strerror}") from None
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _refuse_others(descriptor: int, request: Request) -> None:
    known = {file_of(form) for form in request.wanted}
    for name in sorted(os.listdir(descriptor)):
        if name.partition(".")[0] == GIVES[request.ask] and name not in known:
            files = ", ".join(sorted(known))
            raise FolderError(f"{tame(name)} is not asked for; wanted: {files}")


def _content(descriptor: int, form: Form) -> bytes | None:
    """The bytes of one array; None: there is no such file."""
    name = file_of(form)
    try:
        stream = _plain_file(name, name, dir_fd=descriptor)
    except FileNotFoundError:
        return None
    with stream:
        size = os.fstat(stream.fileno()).st_size
        if size != form.nbytes:
            shape = " × ".join(map(str, form.shape)) or "1"
            raise FolderError(
                f"{name} has {size:,} bytes; {shape} elements of {form.dtype} are {form.nbytes:,}"
            )
        data = stream.read(form.nbytes)
    if len(data) != form.nbytes:
        raise FolderError(f"{name} became shorter while it was read")
    return data


def _plain_file(path: Path | str, name: str, dir_fd: int | None = None) -> BinaryIO:
    """A regular file: links are not followed, and a pipe without a writer does not block.

    Raises:
        FileNotFoundError: there is none.
        FolderError: it is something else; the message calls it `name`.
    """
    try:
        file = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=dir_fd)
    except FileNotFoundError:
        raise
    except OSError as error:
        raise FolderError(f"{name} is no plain file: {error.strerror}") from None
    if not stat.S_ISREG(os.fstat(file).st_mode):
        os.close(file)
        raise FolderError(f"{name} is no plain file")
    return os.fdopen(file, "rb")


ROOM: Final = 1 << 16
"""Bytes that an .npy file may have besides eight times what its array needs."""
HEADERS: Final = {(1, 0): npy.read_array_header_1_0, (2, 0): npy.read_array_header_2_0}


def write_npz(path: Path, request: Request) -> None:
    """Write a request: arrays such as "input.x", and the text "meta.txt".

    NumPy has no bfloat16: such arrays are the uint16 of their bits.

    Raises:
        OSError: the file cannot be written.
    """
    with zipfile.ZipFile(path, "x") as archive:
        archive.writestr(zipfile.ZipInfo(META), meta(request))
        for block in request.blocks:
            stream = io.BytesIO()
            npy.write_array(stream, _array(block), allow_pickle=False)
            name = f"{block.form.role}.{block.form.name}.npy"
            archive.writestr(zipfile.ZipInfo(name), stream.getvalue())


def read_npz(path: Path, request: Request) -> dict[str, Array]:
    """The arrays of an answer ("gradient.x", …) by the names of what was wanted.

    They have the shapes and dtypes that they came with. One that is not there is absent.

    Raises:
        FolderError: the file is no plain .npz file of arrays of numbers, or holds an array that
            nobody asked for.
    """
    wanted = {f"{form.role}.{form.name}.npy": form for form in request.wanted}
    try:
        with _npz_file(path) as file, zipfile.ZipFile(file) as archive:
            return {
                wanted[info.filename].name: _read(archive, info, wanted[info.filename])
                for info in _known(archive, wanted)
            }
    except FolderError:
        raise
    except Exception as error:  # noqa: BLE001  a broken archive raises anything
        raise FolderError(f"{path.name} is no .npz file: {tame(str(error))}") from None


def _npz_file(path: Path) -> BinaryIO:
    try:
        return _plain_file(path, path.name)
    except FileNotFoundError as error:
        raise FolderError(f"{path.name} is no plain file: {error.strerror}") from None


def _known(archive: zipfile.ZipFile, wanted: Mapping[str, Form]) -> list[zipfile.ZipInfo]:
    infos = archive.infolist()
    names = ", ".join(name.removesuffix(".npy") for name in wanted)
    for info in infos:
        if info.filename not in wanted:
            name = tame(info.filename.removesuffix(".npy"))
            raise FolderError(f'the array "{name}" is not asked for; wanted: {names}')
    if len({info.filename for info in infos}) != len(infos):
        raise FolderError("it holds an array twice")
    return infos


def _read(archive: zipfile.ZipFile, info: zipfile.ZipInfo, form: Form) -> Array:
    name = info.filename.removesuffix(".npy")
    if info.file_size > 8 * form.nbytes + ROOM:
        raise FolderError(
            f"{name} has {info.file_size:,} bytes, {form.nbytes:,} are wanted: too many to read"
        )
    stream = io.BytesIO(archive.read(info))
    version = npy.read_magic(stream)
    if version not in HEADERS:
        raise FolderError(f"{name} is an .npy file of version {version}; save it with np.savez")
    shape, fortran, dtype = HEADERS[version](stream)
    if dtype.hasobject:
        raise FolderError(f"{name} holds Python objects, which are not read; save numbers")
    data = stream.read()
    if math.prod(shape) * dtype.itemsize != len(data) or min(shape, default=0) < 0:
        raise FolderError(f"{name} has {len(data)} bytes for {dtype} of shape {shape}")
    array = np.frombuffer(data, dtype) if data else np.empty(math.prod(shape), dtype)
    array = array.reshape(shape, order="F" if fortran else "C")
    return _as_bfloat16(array) if form.dtype == "bfloat16" else array


def _as_bfloat16(array: Array) -> Array:
    """Bits of bfloat16, which files hold as uint16 (or as NumPy's void of two bytes)."""
    bits = array.dtype in (np.dtype(np.uint16), np.dtype("V2"))
    return array.view(dtype_named("bfloat16")) if bits else array


def _array(block: Block) -> Array:
    dtype = {"bfloat16": "uint16"}.get(block.form.dtype, block.form.dtype)
    data = block.data
    flat = np.frombuffer(data, dtype) if memoryview(data).nbytes else np.empty(0, dtype)
    return flat.reshape(block.form.shape)
