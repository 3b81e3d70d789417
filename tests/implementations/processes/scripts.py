"""Scripts of C calls, and how they end."""

from __future__ import annotations

import struct
import time
from pathlib import Path

import pytest

from gradcheck.implementations.processes.c_worker import (
    Access,
    Buffer,
    Call,
    Pointer,
    Scalar,
    Script,
)
from gradcheck.implementations.processes.crash_or_hang import WorkerError

LONG = 300.0
"""Seconds in which any call returns that returns at all."""
CT, X = (1.0, 2.0, 3.0), (4.0, -5.0, 6.0)
DX = (4.0, -10.0, 18.0)


def doubles(*values):
    return struct.pack(f"<{len(values)}d", *values)


def read(block):
    return struct.unpack(f"<{len(block) // 8}d", block)


def argument(name, content, access=Access.READ, guard="end", align=8):
    return Buffer(name=name, content=content, access=access, guard=guard, align=align)


def vjp_script(library, *symbols, fill=0.0, guard="end", align=8, n=3, **others):
    """dx = ct * x by these functions in turn; `others` replace buffers by their names."""
    usual = {
        "dx": argument("dx", doubles(fill, fill, fill), Access.WRITE, guard, align),
        "ct": argument("ct", doubles(*CT), guard=guard, align=align),
        "x": argument("x", doubles(*X), guard=guard, align=align),
    }
    arguments = (*(Pointer(buffer=name) for name in usual), Scalar(ctype="int32", value=n))
    return Script(
        buffers=tuple({**usual, **others}.values()),
        calls=tuple(Call(library=library, symbol=s, arguments=arguments) for s in symbols),
    )


def of_call(library, symbol, *arguments, **rest):
    """A script of one call without buffers."""
    one = Call(library=library, symbol=symbol, arguments=arguments, **rest)
    return Script(buffers=(), calls=(one,))


def ended(call):
    with pytest.raises(WorkerError) as caught:
        call()
    return caught.value.ending


def gone(pid):
    """Whether a process is no more, or at most a zombie that init has not reaped."""
    for _ in range(30_000):
        try:
            state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        except (FileNotFoundError, ProcessLookupError):
            return True
        if state in "ZX":
            return True
        time.sleep(0.01)
    return False
