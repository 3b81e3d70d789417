import numpy as np
import pytest

from gradcheck.judge.contract.determinism import differs

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
