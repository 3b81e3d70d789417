"""Memory with pages that may not be touched, and bytes beside a block that must not change.

This runs in the worker process: the standard library alone, and quick to import.
"""

from __future__ import annotations

import ctypes
import os
from functools import cache
from typing import Final

from gradcheck.system.posix import mmap

PAGE: Final = mmap.PAGESIZE
MARGIN: Final = 1 << 16
"""Bytes that are watched on either side of a block without guard pages."""
PERIOD: Final = 1 << 13
"""Bytes after which the pattern beside a block repeats."""
FAR: Final = 1 << 30
"""Bytes to go on by where addresses are taken."""
NONE, READ, WRITE = 0, 1, 3
"""PROT_NONE, PROT_READ, PROT_READ | PROT_WRITE."""
PROTECTION: Final = {"none": NONE, "read": READ, "write": WRITE}

_libc = ctypes.CDLL(None, use_errno=True)
_libc.mmap.restype = ctypes.c_void_p
_libc.mmap.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int,
                       ctypes.c_long)  # fmt: skip
_libc.mprotect.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
_libc.munmap.argtypes = (ctypes.c_void_p, ctypes.c_size_t)
_libc.madvise.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
_libc.mincore.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_char_p)
_libc.sigpending.argtypes = (ctypes.c_void_p,)
_view = ctypes.pythonapi.PyMemoryView_FromMemory
_view.restype = ctypes.py_object
_view.argtypes = (ctypes.c_void_p, ctypes.c_ssize_t, ctypes.c_int)
WRITABLE: Final = 0x200
"""PyBUF_WRITE."""


class Guarded:
    """A block of `nbytes` bytes at `address`, between what may not be touched.

    `guard` "end": a page that may not be touched follows it at once (after the gap that `align`
    leaves); "start": such a page lies right before it. Both have one on the other side as well,
    with the rest of a page between. "off": `MARGIN` bytes on either side may be touched. All bytes
    beside the block are NaN in every floating type, and other ones for each `number`: a NaN that
    was read beside one block and written beside another is noticed. An empty block's address is a
    guard page's. No block has an address that an earlier one had: a pointer that is kept too long
    leads nowhere.

    Raises:
        ValueError: `align` is not a power of two up to a page, or a word is unknown.
        MemoryError: there is not so much memory.
    """

    def __init__(self, nbytes: int, guard: str = "end", align: int = 1, number: int = 0) -> None:
        """Map it; what it holds is zero, and may be written until `protect`."""
        if not 0 < align <= PAGE or align & (align - 1):
            raise ValueError(f"align is {align}; make it a power of two up to {PAGE}")
        self.nbytes = nbytes
        if guard == "off":
            body = _pages(nbytes + 2 * MARGIN)
            ahead = MARGIN
        elif guard in ("end", "start"):
            body = _pages(nbytes + align - 1) if nbytes else 0
            ahead = 0 if guard == "start" else (body - nbytes) // align * align
        else:
            raise ValueError(f"guard is {guard!r}; make it 'end', 'start' or 'off'")
        edge = 0 if guard == "off" else PAGE
        self._size = body + 2 * edge
        self._start = _walk.mapped(self._size)
        self._body = (self._start + edge, body)
        self.address = self._start + edge + ahead
        self._shut = [self._start, self._start + edge + body] if edge else []
        try:
            self._allow("write")
        except MemoryError:
            self.free()
            raise
        self._gaps = tuple((*gap, _pattern(*gap, number)) for gap in self._beside() if gap[1])
        for start, size, pattern in self._gaps:
            ctypes.memmove(start, pattern, size)
        self._given: bytes | None = None

    def fill(self, content: memoryview) -> None:
        """Put bytes at its beginning."""
        if content.nbytes > self.nbytes:
            raise ValueError(f"{content.nbytes} bytes do not fit into {self.nbytes}")
        if content.nbytes:
            self.view()[: content.nbytes] = content

    def protect(self, access: str) -> None:
        """Forbid writing ("read") or all access ("none") from now on."""
        if access == "read":
            self._given = ctypes.string_at(self.address, self.nbytes)
        elif access == "none":
            self._gaps = ()
            if not _libc.madvise(*self._body, mmap.MADV_DONTNEED):  # what is there later is touched
                self._shut += self._pages()
        if access != "write":
            self._allow(access)

    def _allow(self, access: str) -> None:
        if self._body[1]:
            _protect(*self._body, PROTECTION[access])

    def _pages(self) -> range:
        return range(self._body[0], sum(self._body), PAGE)

    def view(self) -> memoryview:
        """Its bytes; not to be used after `free`."""
        found: memoryview = _view(self.address, self.nbytes, WRITABLE)
        return found

    def strayed(self) -> str:
        """What was written beside it, in words; empty if nothing was."""
        said = []
        for start, size, pattern in self._gaps:
            found = ctypes.string_at(start, size)
            if found == pattern:
                continue
            changed = [i for i, (a, b) in enumerate(zip(found, pattern, strict=True)) if a != b]
            before = start < self.address
            far = size - changed[0] if before else changed[-1] + 1
            far += -far % 4  # the outermost byte may be by chance what it was
            said.append(
                f"wrote up to {far} bytes {'before its start' if before else 'past its end'}"
            )
        return " and ".join(said)

    def trespassed(self) -> str:
        """What was done here that pages forbid, in words with "{}" for the block's name.

        It is empty unless their protection was changed, or a fault was handled.
        """
        touched = _touched(self._start, self._size) if self._shut else b""
        for page in self._shut:
            if touched[(page - self._start) // PAGE] & 1:
                return "touched {}" if page in self._pages() else "touched memory beside {}"
        inner = () if self._given is None else self._pages()
        if self._given is not None and self._given != ctypes.string_at(self.address, self.nbytes):
            return "wrote into {}, which it was given to read"
        if any(map(_writable, (*self._shut, *inner))):
            return "changed the protection of the pages of {}"
        return ""

    def free(self) -> None:
        """Unmap it; touching it afterwards crashes."""
        if self._size:
            _libc.munmap(self._start, self._size)
        self._size = 0

    def _beside(self) -> tuple[tuple[int, int], tuple[int, int]]:
        """Where the gaps before and after it start, and their sizes."""
        (start, size), end = self._body, self.address + self.nbytes
        return (start, self.address - start), (end, start + size - end)


def _pattern(start: int, size: int, number: int) -> bytes:
    """What stands beside block `number` at these addresses."""
    at = (start + 2 * 977 * number) % PERIOD
    return (_NANS * (size // PERIOD + 2))[at : at + size]


def _nans() -> bytes:
    """Half words 0xFFF1 to 0xFFFF in no order: two, or four, are another NaN nearly everywhere."""
    state, found = 1, bytearray(PERIOD)
    for i in range(0, PERIOD, 2):
        state = (1103515245 * state + 12345) % (1 << 31)
        found[i], found[i + 1] = 0xF1 + (state >> 16) % 15, 0xFF
    return bytes(found)


_NANS: Final = _nans()


def _pages(nbytes: int) -> int:
    return nbytes + -nbytes % PAGE


class _Walk:
    """Addresses that are given out once each: they ascend from the middle of those there are."""

    def __init__(self) -> None:
        self._next = 0

    def mapped(self, nbytes: int) -> int:
        """Closed memory at the next ones; elsewhere if the system has something there."""
        if not self._next:
            somewhere = _mapped(PAGE)
            _libc.munmap(somewhere, PAGE)
            self._next = _pages(somewhere // 2)
        found = _mapped(nbytes, self._next)
        self._next += nbytes + (MARGIN if found == self._next else FAR)
        return found


_walk: Final = _Walk()


def _mapped(nbytes: int, wanted: int | None = None) -> int:
    flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
    address = _libc.mmap(wanted, nbytes, NONE, flags, -1, 0)
    if address is None or address == ctypes.c_void_p(-1).value:
        raise MemoryError(f"no {nbytes} bytes of memory: {os.strerror(ctypes.get_errno())}")
    return int(address)


@cache
def _tells() -> bool:
    """Whether the system says of a page that it was never touched."""
    page = _mapped(PAGE)
    found = ctypes.create_string_buffer(1)
    told = _libc.mincore(page, PAGE, found) == 0 and not found.raw[0] & 1
    _libc.munmap(page, PAGE)
    return told


def _touched(start: int, nbytes: int) -> bytes:
    """Per page, whether it is there (bit 0): it was touched; so are all if one is gone."""
    pages = nbytes // PAGE
    if not _tells():
        return bytes(pages)
    found = ctypes.create_string_buffer(pages)
    return b"\1" * pages if _libc.mincore(start, nbytes, found) else found.raw


def _writable(page: int) -> bool:
    """Whether it can be written to, as the kernel finds that puts a few bytes there."""
    return int(_libc.sigpending(page)) == 0


def _protect(address: int, nbytes: int, protection: int) -> None:
    if _libc.mprotect(address, nbytes, protection):
        raise MemoryError(
            f"{nbytes} bytes of memory cannot be protected: {os.strerror(ctypes.get_errno())}"
        )
