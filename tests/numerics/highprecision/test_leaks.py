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


def float32_of_float64(x):
    return np.asarray(x, dtype=np.float32)


def back_again(x):
    return x.astype("f4").astype("f8")


def buffer_outside(x):
    TABLE[:] = x
    return TABLE * 2


def narrow_buffer(x):
    out = np.zeros(4, dtype=np.float32)
    out[:] = x
    return out


def out_argument(x):
    return np.exp(x, out=BUFFER)


def in_place(x):
    total = np.zeros(4, dtype=np.float16)
    total += x
    return total


def add_at(x):
    np.add.at(TABLE, [0, 0, 1, 2], x)
    return TABLE


def dtype_of_a_ufunc(x):
    return np.add(x, 1, dtype=np.float32)


def dtype_of_a_sum(x):
    return np.sum(x, dtype=np.float32)


def imported_math(x):
    from math import exp

    return x * exp(x[0])


def swallowed(x):
    try:
        factor = struct.unpack("d", struct.pack("d", x[0]))[0]
    except Exception:  # noqa: BLE001  as careless people write
        factor = 1.0
    return x * factor


def text(x):
    return x * float(f"{x[0]:.3f}")


def text_of_all(x):
    return np.array([float(str(v)) for v in x])


def text_of_elements(x):
    return np.array([float(f"{v}") for v in x.flat])


def json_text(x):
    return np.array(json.loads(json.dumps([float(v) for v in x])))


def memory(x):
    return np.frombuffer(x.tobytes())


def pointer(x):
    return np.ctypeslib.as_array(x.ctypes.data_as(ctypes.POINTER(ctypes.c_double)), (4,))


def bits(x):
    return (x.view(np.int64) >> 20 << 20).view(np.float64)


def standard_array(x):
    return np.array(array.array("d", x))


def packed(x):
    return np.array(struct.unpack("4d", struct.pack("4d", *x)))


def decimals(x):
    return np.array([float(Decimal(v)) for v in x])


def copied_by_pickle(x):
    return pickle.loads(pickle.dumps(x))


def python_float(x):
    return x * float.__add__(0.0, float.__float__(x[0]))


def spacing(x):
    return x + np.spacing(x)


def put(x):
    np.put(TABLE, [0, 1, 2, 3], x)
    return TABLE * 1


def copyto(x):
    np.copyto(TABLE, x, casting="unsafe")
    return TABLE * 1


def complex_of_it(x):
    return x * complex(x[0]).real


def bincount(x):
    return np.bincount([0, 1, 1, 2], weights=x)


LEAKS = {f.__name__: f for f in (
    float16, float32_of_float64, back_again, buffer_outside, narrow_buffer, out_argument, in_place,
    add_at, dtype_of_a_ufunc, dtype_of_a_sum, imported_math, swallowed, text, text_of_all,
    text_of_elements,
    json_text, memory, pointer, bits, standard_array, packed, decimals, copied_by_pickle,
    python_float, spacing, put, copyto, complex_of_it, bincount,
)}  # fmt: skip


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
