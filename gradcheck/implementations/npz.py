"""Requests and answers as .npz files, for those who have NumPy and nothing else.

An answer is a stranger's file: nothing is unpickled, and no array is read that says it is larger
than what was asked for.
"""

from __future__ import annotations

import io
import math
import os
import stat
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, BinaryIO, Final

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray

from gradcheck.implementations.protocol.folder import META, BadFolder, meta
from gradcheck.implementations.protocol.message import Block, Form, Request, tame
from gradcheck.numerics.dtypes import dtype_named

Array = NDArray[Any]
ROOM: Final = 1 << 16
"""Bytes that an .npy file may have besides eight times what its array needs."""
HEADERS: Final = {(1, 0): npy.read_array_header_1_0, (2, 0): npy.read_array_header_2_0}


def write(path: Path, request: Request) -> None:
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


def read(path: Path, request: Request) -> dict[str, Array]:
    """The arrays of an answer ("gradient.x", …) by the names of what was wanted.

    They have the shapes and dtypes that they came with. One that is not there is absent.

    Raises:
        BadFolder: the file is no plain .npz file of arrays of numbers, or holds an array that
            nobody asked for.
    """
    wanted = {f"{form.role}.{form.name}.npy": form for form in request.wanted}
    try:
        with _opened(path) as file, zipfile.ZipFile(file) as archive:
            return {
                wanted[info.filename].name: _read(archive, info, wanted[info.filename])
                for info in _known(archive, wanted)
            }
    except BadFolder:
        raise
    except Exception as error:  # noqa: BLE001  a broken archive raises anything
        raise BadFolder(f"{path.name} is no .npz file: {tame(str(error))}") from None


def _opened(path: Path) -> BinaryIO:
    """A plain file: no link, and no pipe that would hang us."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError as error:
        raise BadFolder(f"{path.name} is no plain file: {error.strerror}") from None
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise BadFolder(f"{path.name} is no plain file")
    return os.fdopen(descriptor, "rb")


def _known(archive: zipfile.ZipFile, wanted: Mapping[str, Form]) -> list[zipfile.ZipInfo]:
    infos = archive.infolist()
    names = ", ".join(name.removesuffix(".npy") for name in wanted)
    for info in infos:
        if info.filename not in wanted:
            name = tame(info.filename.removesuffix(".npy"))
            raise BadFolder(f'the array "{name}" is not asked for; wanted: {names}')
    if len({info.filename for info in infos}) != len(infos):
        raise BadFolder("it holds an array twice")
    return infos


def _read(archive: zipfile.ZipFile, info: zipfile.ZipInfo, form: Form) -> Array:
    name = info.filename.removesuffix(".npy")
    if info.file_size > 8 * form.nbytes + ROOM:
        raise BadFolder(
            f"{name} has {info.file_size:,} bytes, {form.nbytes:,} are wanted: too many to read"
        )
    stream = io.BytesIO(archive.read(info))
    version = npy.read_magic(stream)
    if version not in HEADERS:
        raise BadFolder(f"{name} is an .npy file of version {version}; save it with np.savez")
    shape, fortran, dtype = HEADERS[version](stream)
    if dtype.hasobject:
        raise BadFolder(f"{name} holds Python objects, which are not read; save numbers")
    data = stream.read()
    if math.prod(shape) * dtype.itemsize != len(data) or min(shape, default=0) < 0:
        raise BadFolder(f"{name} has {len(data)} bytes for {dtype} of shape {shape}")
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
