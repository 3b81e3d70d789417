import ctypes
import math
import struct
from itertools import product

import pytest

from gradcheck.implementations.processes.guarded_memory import MARGIN, PAGE, Guarded


@pytest.fixture
def guarded():
    """`guarded(…)`: a block that is freed in the end."""
    made = []

    def make(*words, **options):
        made.append(Guarded(*words, **options))
        return made[-1]

    yield make
    for block in made:
        block.free()


def poke(address, data):
    ctypes.memmove(address, data, len(data))


def test_a_block_lies_where_it_should_and_holds_what_it_is_given(guarded):
    sizes, aligns = (1, 24, PAGE - 1, PAGE, 3 * PAGE + 5), (1, 8, 64, PAGE)
    for nbytes, align, guard in product(sizes, aligns, ("end", "start", "off")):
        block = guarded(nbytes, guard, align)
        assert block.address % align == 0
        if guard == "end":
            assert -(block.address + nbytes) % PAGE < align  # as near to the guard page as can be
        if guard == "start":
            assert block.address % PAGE == 0
        content = bytes(i % 251 for i in range(nbytes))
        block.fill(memoryview(content))
        assert bytes(block.view()) == content
        assert block.strayed() == "", (nbytes, align, guard)


@pytest.mark.parametrize("guard", ["end", "start", "off"])
def test_an_empty_block_has_an_address(guarded, guard):
    block = guarded(0, guard)
    assert block.address > 0
    assert block.view().nbytes == 0
    assert block.strayed() == ""
    block.protect("none")


@pytest.mark.slow(keep=1)
@pytest.mark.parametrize(
    ("at", "size", "words"),
    [
        (24, 8, "wrote up to 8 bytes past its end"),
        (100, 4, "wrote up to 80 bytes past its end"),
        (-8, 8, "wrote up to 8 bytes before its start"),
        (-MARGIN, 4, f"wrote up to {MARGIN} bytes before its start"),
        (24 + MARGIN - 1, 1, f"wrote up to {MARGIN} bytes past its end"),
        (-4, 32, "wrote up to 4 bytes before its start and wrote up to 4 bytes past its end"),
        (0, 24, ""),
    ],
)
def test_what_is_written_beside_a_block_is_seen(guarded, at, size, words):
    block = guarded(24, "off")
    poke(block.address + at, bytes(size))
    assert block.strayed() == words


def test_gaps_of_alignment_are_watched(guarded):
    block = guarded(20, "end", 64)
    poke(block.address + 20, b"\x00" * 4)
    assert block.strayed() == "wrote up to 4 bytes past its end"
    other = guarded(20, "start")
    poke(other.address + 20, b"\x00")
    assert other.strayed() == "wrote up to 4 bytes past its end"


@pytest.mark.parametrize("form", ["<d", "<f", "<e"])
def test_what_lies_beside_a_block_is_nan_and_another_one_for_each_block(guarded, form):
    first, second = guarded(24, "off", number=0), guarded(24, "off", number=1)
    size, near = struct.calcsize(form), 4096
    seen = [ctypes.string_at(block.address + 24, near) for block in (first, second)]
    for text in seen:
        assert all(math.isnan(value) for (value,) in struct.iter_unpack(form, text))
    words = [[text[i : i + size] for i in range(0, near, size)] for text in seen]
    same = sum(a == b for a, b in zip(*words, strict=True))
    assert same <= {"<d": 2, "<f": 20, "<e": 300}[form]


def test_freeing_twice_does_nothing():
    block = Guarded(10)
    block.free()
    block.free()


@pytest.mark.parametrize("align", [0, -8, 3, 2 * PAGE])
def test_an_impossible_alignment_is_refused(align):
    with pytest.raises(ValueError, match=f"align is {align}; make it a power of two"):
        Guarded(8, "end", align)


def test_an_unknown_guard_is_refused():
    with pytest.raises(ValueError, match="guard is 'both'; make it"):
        Guarded(8, "both")


def test_more_than_fits_is_refused(guarded):
    with pytest.raises(ValueError, match="9 bytes do not fit into 8"):
        guarded(8).fill(memoryview(bytes(9)))


def test_too_much_memory_is_refused():
    with pytest.raises(MemoryError, match=r"no \d+ bytes of memory"):
        Guarded(1 << 60)
