"""Ways to lose digits: each is refused, with the reason and the line of the forward."""

import array
import ctypes
import json
import math
import pickle
import struct
from decimal import Decimal

import numpy as np
import pytest

from gradcheck.numerics.highprecision.forward import BigForward
from gradcheck.numerics.highprecision.numbers import Leak, NoArbiter, Spent, Unsupported

X = np.array([0.3, -1.7, 2.1, 0.9])
TABLE = np.zeros(4)
BUFFER = np.zeros(4, dtype=np.float32)
SEEN = {}


def float16(x):
    return x.astype(np.float16) * 2


def buffer_outside(x):
    TABLE[:] = x
    return TABLE * 2


def narrow_buffer(x):
    out = np.zeros(4, dtype=np.float32)
    out[:] = x
    return out


def in_place(x):
    total = np.zeros(4, dtype=np.float16)
    total += x
    return total


def add_at(x):
    np.add.at(TABLE, [0, 0, 1, 2], x)
    return TABLE


def imported_math(x):
    from math import exp

    return x * exp(x[0])


def swallowed(x):
    try:
        factor = struct.unpack("d", struct.pack("d", x[0]))[0]
    except Exception:  # noqa: BLE001  as careless people write
        factor = 1.0
    return x * factor


def pointer(x):
    return np.ctypeslib.as_array(x.ctypes.data_as(ctypes.POINTER(ctypes.c_double)), (4,))


def put(x):
    np.put(TABLE, [0, 1, 2, 3], x)
    return TABLE * 1


def copyto(x):
    np.copyto(TABLE, x, casting="unsafe")
    return TABLE * 1


FUNCTIONS = (
    *(float16, buffer_outside, narrow_buffer, in_place, add_at),
    *(imported_math, swallowed, pointer, put, copyto),
)
LEAKS = {f.__name__: f for f in FUNCTIONS} | {
    "float32 of float64": lambda x: np.asarray(x, dtype=np.float32),
    "back again": lambda x: x.astype("f4").astype("f8"),
    "out argument": lambda x: np.exp(x, out=BUFFER),
    "dtype of a ufunc": lambda x: np.add(x, 1, dtype=np.float32),
    "dtype of a sum": lambda x: np.sum(x, dtype=np.float32),
    "text": lambda x: x * float(f"{x[0]:.3f}"),
    "text of all": lambda x: np.array([float(str(v)) for v in x]),
    "text of elements": lambda x: np.array([float(f"{v}") for v in x.flat]),
    "json text": lambda x: np.array(json.loads(json.dumps([float(v) for v in x]))),
    "memory": lambda x: np.frombuffer(x.tobytes()),
    "bits": lambda x: (x.view(np.int64) >> 20 << 20).view(np.float64),
    "standard array": lambda x: np.array(array.array("d", x)),
    "packed": lambda x: np.array(struct.unpack("4d", struct.pack("4d", *x))),
    "decimals": lambda x: np.array([float(Decimal(v)) for v in x]),
    "copied by pickle": lambda x: pickle.loads(pickle.dumps(x)),
    "python float": lambda x: x * float.__add__(0.0, float.__float__(x[0])),
    "spacing": lambda x: x + np.spacing(x),
    "complex of it": lambda x: x * complex(x[0]).real,
    "bincount": lambda x: np.bincount([0, 1, 1, 2], weights=x),
}


@pytest.mark.parametrize("name", LEAKS)
def test_what_loses_digits_is_refused(name):
    with pytest.raises((Leak, Unsupported)) as raised:
        BigForward(LEAKS[name], [X], {}, 10**5).slopes([np.ones(4)])
    assert "\n" not in str(raised.value)


def test_a_reason_names_the_dtype_and_the_line():
    with pytest.raises(Leak, match=r"^forward rounds to float16 by astype \(test_leaks\.py line"):
        BigForward(float16, [X], {}, 10**5).outputs()


def test_a_swallowed_leak_is_told_all_the_same():
    with pytest.raises(Leak, match=r"makes a float64 of a number \(test_leaks\.py line \d+: `fact"):
        BigForward(swallowed, [X], {}, 10**5).outputs()


def test_a_result_without_big_numbers_is_believed_only_where_it_is_constant():
    def steps(x):
        return (x > 0) * 2.0

    hidden = {}

    def by_the_side(x):
        hidden.setdefault(0, []).append(len(hidden.get(0, ())))
        return np.full(4, len(hidden[0]), dtype=np.float32)

    assert BigForward(steps, [X], {}, 10**5).slopes([np.ones(4)]).ahead.tolist() == [0.0] * 4
    with pytest.raises(Leak, match="no big numbers"):
        BigForward(by_the_side, [X], {}, 10**5).outputs()


def test_what_is_not_known_is_named():
    unknown = np.frompyfunc(math.nextafter, 2, 1)
    with pytest.raises(NoArbiter, match="makes a float64"):
        BigForward(lambda x: unknown(x, 1.0), [X], {}, 10**5).outputs()
    with pytest.raises(Unsupported, match=r"not unique \(test_leaks.py"):
        BigForward(lambda x: np.linalg.svd(x[None])[2], [X], {}, 10**5).outputs()


def test_the_budget_is_a_bound():
    box = BigForward(lambda x: np.exp(x).sum(), [np.ones(1000)], {}, 3000)
    box.outputs()
    with pytest.raises(Spent):
        box.slopes([np.ones(1000)])


@pytest.mark.parametrize("value", [np.inf, np.nan])
def test_primals_and_values_must_be_finite(value):
    with pytest.raises(NoArbiter, match="primal is not finite"):
        BigForward(np.tanh, [np.array([1.0, value])], {}, 1000).outputs()
    with pytest.raises(NoArbiter, match="not finite"):
        BigForward(np.log, [np.array([1.0, -1.0])], {}, 1000).outputs()


def test_the_global_precision_is_left_alone():
    import mpmath

    before = mpmath.mp.dps, type(mpmath.mpf(1)).__float__
    BigForward(np.tanh, [X], {}, 10**5).slopes([X])
    assert (mpmath.mp.dps, type(mpmath.mpf(1)).__float__) == before
    assert float(mpmath.mpf(2)) == 2.0
