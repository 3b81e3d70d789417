"""Literals give every bit again, and foreign text stays where it was put."""

import ml_dtypes
import numpy as np
import pytest

from gradcheck.errors import UsageError
from gradcheck.report.scripts.c_pieces import array as c_array
from gradcheck.report.scripts.c_pieces import number as c_number
from gradcheck.report.scripts.c_pieces import string
from gradcheck.report.scripts.pieces import WIDTH, array, comment, mapping, number, value

NUMBERS = [0.0, -0.0, 1.0, 0.1, 1 / 3, 1e-45, 1.17549435e-38, 3.4e38, 1e22, 2.0**-149, np.pi]
SPACE = {"np": np, "ml_dtypes": ml_dtypes, "__builtins__": {}}


def read(text):
    return eval(text, SPACE)  # noqa: S307  that is what is tested


@pytest.mark.parametrize("dtype", ["float64", "float32", "float16", "bfloat16"])
def test_a_number_is_the_same_again_bit_by_bit(dtype):
    kind = np.dtype(ml_dtypes.bfloat16 if dtype == "bfloat16" else dtype)
    draw = np.random.default_rng(5)
    for one in [*NUMBERS, *draw.normal(size=200), *np.exp(20 * draw.normal(size=200))]:
        with np.errstate(all="ignore"):
            scalar = np.asarray(one).astype(kind)
        again = np.asarray(read(number(scalar))).astype(kind)
        assert again.tobytes() == scalar.tobytes()


def test_a_float32_takes_the_digits_of_a_float32():
    assert number(np.float32(0.1)) == "0.1"
    assert number(np.float64(np.float32(0.1))) == "0.10000000149011612"


@pytest.mark.parametrize(("one", "text"), [(np.nan, "np.nan"), (-np.inf, "-np.inf"), (3, "3")])
def test_what_is_no_plain_number_has_a_name(one, text):
    assert number(one) == text


@pytest.mark.parametrize("shape", [(), (1,), (0,), (2, 0, 3), (3, 7), (40,), (2, 3, 4), (1, 1, 60)])
def test_an_array_has_its_shape_and_bits_again(shape):
    values = np.random.default_rng(1).normal(size=shape)
    text = array(values, "np.float64", 4, 20)
    again = read(text)
    assert (again.shape, again.tobytes()) == (values.shape, values.tobytes())
    first, *rest = text.splitlines()
    assert len(first) + 20 <= WIDTH
    assert all(len(line) <= WIDTH and line.startswith("    ") for line in rest)


def test_whole_numbers_keep_their_dtype():
    values = np.array([[1, -2], [2**62, 0]])
    again = read(array(values, "np.int64"))
    assert again.dtype == np.int64
    assert np.array_equal(again, values)


@pytest.mark.parametrize(
    "one",
    [None, True, 3, 0.1, "causal", "'\"\\\n", (1,), (1, 2.5), [1, "a"], {"k": (None, 1e-5)},
     np.float32(0.1), np.int64(3), float("inf")],
)  # fmt: skip
def test_an_attribute_is_the_same_again(one):
    again = read(value(one, "eps"))
    assert again == one
    assert read(mapping({"eps": one})) == {"eps": one}


@pytest.mark.parametrize("one", [object(), {1}, lambda: 0, 1j])
def test_an_attribute_that_is_no_data_is_refused(one):
    with pytest.raises(UsageError, match=r"eps is a .*, which no script can hold"):
        value(one, "eps")


HOSTILE = [
    "two\nlines", "a\rb", "\x1b[31mred", "\u202eright to left", "ends in \\", "trigraph ??/",
    "*/ int x; /*", '"""', "\x00", "\u2028line", "\ud800",
]  # fmt: skip


@pytest.mark.parametrize("text", HOSTILE)
def test_a_comment_stays_one(text):
    line = comment(text)
    assert len(line.splitlines()) <= 1
    assert line.isprintable()
    assert not line.endswith(("\\", "??/"))
    line.encode()


@pytest.mark.parametrize("text", [*HOSTILE[:-1], "%s%n", "?", "é", '"; system("x'])
def test_a_string_of_c_holds_its_bytes_and_no_more(text):
    literal = string(text.encode())
    inner = literal[1:-1]
    assert '"' not in inner
    assert "?" not in inner
    assert literal.isascii()
    back = inner.encode().decode("unicode_escape").encode("latin-1")
    assert back == text.encode()


def test_numbers_of_c():
    assert c_number(np.float32(0.1), "float32") == "0.1f"
    assert c_number(1e20, "float64") == "1e+20"
    assert c_number(3, "float32") == "3.0f"
    assert c_number(-(2**63), "int64") == "(-9223372036854775807LL - 1)"
    assert c_number(2**64 - 1, "uint64") == "18446744073709551615ULL"
    assert c_number(True, "bool") == "1"
    assert c_number(-np.inf, "float64") == "-__builtin_inf()"
    text = c_array("x", np.arange(100.0), "float64")
    assert all(len(line) <= WIDTH for line in text.splitlines())
