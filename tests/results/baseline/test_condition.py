import re
import warnings

import pytest

from gradcheck.results.baseline.condition import LONGEST, Circumstances, Version, check, holds

HERE = Circumstances(dtype="bfloat16", implementation="mine", version="mykernels 2.10.0")


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("dtyp == 'float32'", "there is no `dtyp`; known: device, version, dtype"),
        ("dtype = 'float32'", "it cannot be read"),
        ("", "it cannot be read"),
        ("dtype", "no truth"),
        ("dtype == 3", "`3` is no text"),
        ("dtype == b'float32'", "is no text"),
        ("dtype.upper() == 'A'", "`dtype.upper()` is no text"),
        ("dtype is 'a'", "is not allowed"),
        ("dtype is version", "is not allowed"),
        ("dtype in 'float16'", "write: dtype in ('float16', 'float32')"),
        ("dtype == ('float16', 'a')", "write: dtype in ('float16', 'float32')"),
        ("dtype in ('a', 3)", "`3` is no text"),
        ("not dtype", "no truth"),
        ("open('/etc/passwd')", "is not allowed"),
        ("__import__('os')", "is not allowed"),
        ("dtype + dtype == 'a'", "`dtype + dtype` is no text"),
        ("[d for d in dtype]", "is not allowed"),
        ("dtype == 'a' and version", "no truth"),
        ("dtype == 'a' or (lambda: 1)()", "is not allowed"),
        (f"dtype == '{'x' * LONGEST}'", "characters long"),
        ("(" * 400, "it cannot be read"),
        ("version < dtype or 'a'", "no truth"),
        ("not " * 110 + "dtype", "no truth"),
        ("dtype == 'a'\0", "it cannot be read"),
    ],
)
def test_what_is_no_condition_is_refused(text, says):
    with pytest.raises(ValueError, match=re.escape(says)):
        check(text)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", True),
        ("dtype == 'bfloat16'", True),
        ("dtype == 'float16'", False),
        ("dtype in ('float16', 'bfloat16')", True),
        ("dtype not in ['float16', 'bfloat16']", False),
        ("device == 'cpu' and implementation == 'mine'", True),
        ("device == 'cuda' or implementation != 'mine'", False),
        ("not device == 'cuda'", True),
        ("version < '2.9'", False),  # as texts it would be
        ("version >= '2.9' and version <= '2.10'", True),
        ("version <= '2.9'", False),
        ("version == '2.10'", True),
        ("version != '2.10'", False),
        ("'2.9' < version", True),
        ("'2.9' < version < '3'", True),
    ],
)
def test_a_condition_holds_or_not(text, expected):
    if text:
        check(text)
    assert holds(text, HERE) is expected


@pytest.mark.parametrize("sign", ["<", "<=", "==", "!=", ">=", ">"])
def test_a_version_that_is_not_known_compares_with_nothing(sign):
    for said in ("", "mykernels dev"):
        assert not holds(f"version {sign} '2.1'", Circumstances(
            dtype="float32", implementation="mine", version=said))  # fmt: skip
    assert not holds(f"version {sign} 'dev'", HERE)


def test_versions_compare_with_texts_alone():
    with pytest.raises(TypeError, match="with a text"):
        assert Version("2.1") == 3


@pytest.mark.parametrize("done", ["ignore", "always", "error"])
def test_what_python_warns_of_is_a_mistake_whatever_else_is_done_with_warnings(done):
    with warnings.catch_warnings():
        warnings.simplefilter(done)
        with pytest.raises(ValueError, match=r"it cannot be read: .*invalid escape sequence"):
            check(rf"dtype == '\d {done}'")
