import ctypes

import numpy as np
import pytest

from gradcheck.errors import Unsupported
from gradcheck.implementations.checked_call import (
    CheckedCall,
    _is_refused_write,
    differs,
    guarded,
    mutated,
)
from gradcheck.implementations.returned import Broken


def test_the_copies_hold_the_same_bits_and_share_nothing():
    x = np.array([[1.0, -0.0, np.nan], [np.inf, 2.0**-1074, 3.0]])
    i = np.array([3, 1])
    copies = guarded([x, x[:, ::2], np.asfortranarray(x), i, np.float32(2.0)])
    for copy, original in zip(copies, [x, x[:, ::2], x, i, np.float32(2.0)], strict=True):
        assert copy.tobytes() == original.tobytes()
        assert copy.dtype == original.dtype
        assert copy.flags.c_contiguous
        assert copy.flags.owndata
        assert not copy.flags.writeable
        assert not np.shares_memory(copy, x)


WRITES = {
    "an item": lambda x: x.__setitem__(0, 1),
    "in place": lambda x: x.__iadd__(1),
    "through out": lambda x: np.multiply(x, 2.0, out=x),
    "through a view": lambda x: x.reshape(-1)[:1].__setitem__(0, 1),
    "fill": lambda x: x.fill(0.0),
    "sort": lambda x: x.sort(),
    "put": lambda x: np.put(x, [0], [1.0]),
    "copyto": lambda x: np.copyto(x, 1.0),
}


@pytest.mark.parametrize("write", WRITES.values(), ids=WRITES)
def test_writing_through_numpy_raises_and_is_recognised(write):
    (copy,) = guarded([np.array([3.0, 1.0, 2.0])])
    with pytest.raises(ValueError, match="read-only") as caught:
        write(copy)
    assert _is_refused_write(caught.value)
    assert copy.tolist() == [3.0, 1.0, 2.0]


@pytest.mark.parametrize(
    "error", [ValueError("shapes differ"), TypeError("read-only"), OSError("read-only file system")]
)
def test_another_error_is_no_write(error):
    assert not _is_refused_write(error)


def through_ctypes(copy):
    ctypes.memset(copy.ctypes.data, 0xFF, 1)


def through_ctypeslib(copy):
    pointer = copy.ctypes.data_as(ctypes.POINTER(ctypes.c_double))
    np.ctypeslib.as_array(pointer, copy.shape)[-1] = 7.0


def through_the_flag(copy):
    copy.flags.writeable = True
    copy[1] = -copy[1]


def through_a_sign_bit(copy):
    copy.setflags(write=True)
    copy[0] = -0.0


def through_the_bits_of_a_nan(copy):
    copy.setflags(write=True)
    copy.view(np.uint64)[2] += 1


@pytest.mark.parametrize(
    "write",
    [
        through_ctypes,
        through_ctypeslib,
        through_the_flag,
        through_a_sign_bit,
        through_the_bits_of_a_nan,
    ],
)
def test_a_write_behind_numpys_back_shows_in_the_bytes(write):
    x, w = np.array([0.0, 1.0, np.nan]), np.array([5.0])
    copies = guarded([w, x])
    assert mutated([w, x], copies, "wx") is None
    write(copies[1])
    assert mutated([w, x], copies, "wx") == "x"


def test_the_first_argument_that_changed_is_named():
    before = [np.zeros(2), np.zeros(2), np.zeros(2)]
    after = [np.zeros(2), np.ones(2), np.ones(2)]
    assert mutated(before, after, ["ct", "x", "w"]) == "x"


def test_a_primal_in_another_memory_order_has_not_changed():
    x = np.arange(6.0).reshape(2, 3)
    for original in (np.asfortranarray(x), x[:, ::-1], np.broadcast_to(x[0], (4, 3))):
        assert mutated([original], guarded([original]), "x") is None


X = np.array([[0.0, 1.0, np.nan], [np.inf, -2.0, 3.0]])


@pytest.mark.parametrize("same", [X.copy(), np.asfortranarray(X), X[::-1][::-1]])
def test_the_same_bits_are_the_same_in_any_memory_order(same):
    assert not differs([X, None], [same, None])


def changed(at, value):
    out = X.copy()
    out[at] = value
    return out


@pytest.mark.parametrize(
    "other",
    [
        changed((1, 1), np.nextafter(-2.0, 0.0)),
        changed((0, 0), -0.0),
        changed((0, 2), 0.0),
        changed((1, 2), np.nan),
        X.reshape(3, 2),
        X[:1],
        np.zeros((0, 3)),
        None,
    ],
)
def test_one_bit_one_sign_or_another_shape_differs(other):
    assert differs([X], [other])
    assert differs([other], [X])
    assert differs([X, X], [X, other])


def test_nothing_does_not_differ_from_nothing():
    assert not differs([], [])
    assert not differs([None], [None])


def test_two_lists_of_another_length_are_not_compared_silently():
    with pytest.raises(ValueError, match="longer"):
        differs([X], [X, X])


def padded(filler):
    """Long doubles whose unused bytes hold `filler`."""
    raw = np.full(X.size * np.longdouble().itemsize, filler, np.uint8)
    out = raw.view(np.longdouble).reshape(X.shape)
    used = 10  # bytes that hold a number
    wide = X.astype(np.longdouble).reshape(-1).view(np.uint8).reshape(X.size, -1)
    raw.reshape(X.size, -1)[:, :used] = wide[:, :used]
    return out


@pytest.mark.skipif(np.finfo(np.longdouble).nmant != 63, reason="long double has no unused bytes")
def test_bytes_that_hold_no_number_do_not_count():
    one, other = padded(0x00), padded(0xA5)
    assert one.tobytes() != other.tobytes()
    assert not differs([one], [other])
    other[0, 0] = -other[0, 0]
    assert differs([one], [other])
    one[0, 0], other[0, 0] = 0.0, -0.0
    assert differs([one], [other])


# ── the class ────────────────────────────────────────────────────────────────────────────────


def test_a_call_gets_read_only_copies_and_its_cotangent_bare():
    x, seen = np.arange(3.0), []

    def vjp(ct, *primals, scale):
        seen.append((ct, primals))
        return scale * ct if isinstance(ct, np.ndarray) else None

    call = CheckedCall("vjp", vjp)
    assert call([np.ones(3)], [x], ["x"], {"scale": 2.0}).tolist() == [2.0, 2.0, 2.0]
    ((ct, (copy,)),) = seen
    assert [ct.flags.writeable, copy.flags.writeable, np.shares_memory(copy, x)] == [False] * 3
    call([np.ones(3), np.zeros(1)], [x], ["x"], {"scale": 2.0})
    assert isinstance(seen[1][0], tuple)


def test_a_call_that_writes_behind_numpys_back_is_broken_and_names_the_argument():
    for role, name in (("vjp", "x"), ("jvp", "us")):
        call = CheckedCall(role, lambda *arrays, at=name == "x": through_ctypes(arrays[at]))
        with pytest.raises(Broken, match=f"{role} writes into its argument {name}; copy first"):
            call([np.ones(3)], [np.ones(3)], ["x"], {})


@pytest.mark.parametrize("declined", [Unsupported("no float16"), NotImplementedError("no float16")])
def test_what_has_answered_supports_its_case(declined):
    answers = [1, declined]

    def forward(x):
        found = answers.pop(0)
        if found is declined:
            raise found
        return found

    call = CheckedCall("forward", forward)
    assert call([], [np.ones(1)], ["x"], {}) == 1
    with pytest.raises(Broken, match="it had answered another call of this case") as caught:
        call([], [np.ones(1)], ["x"], {})
    assert caught.value.finding.verdict == "error"
    answers.append(declined)
    with pytest.raises((Unsupported, Broken)) as caught:
        CheckedCall("forward", forward)([], [np.ones(1)], ["x"], {})
    verdict = caught.value.finding.verdict if caught.type is Broken else "unsupported"
    assert (verdict, str(caught.value)) == ("unsupported", "no float16")
