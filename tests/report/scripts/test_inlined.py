"""A counterpart's source, with values put in, computes what the counterpart computes."""

import math

import numpy as np
import pytest

from gradcheck.report.scripts.inlined import inlined

SOURCE = '''
"""Operators."""
import math
import numpy as np
import numpy.linalg as la
from .beside import shifted

LIMIT = -3


def plain(x, w=None, *, eps):
    """One line."""
    return np.sqrt(x * x + eps) if w is None else w * np.sqrt(x * x + eps)


def branches(x, y=None, *, kind, scale):
    """Only one is taken."""
    scale = 1.0 if scale is None else scale
    if kind == "sum":
        return np.sum(x) * scale
    elif kind == "norm":
        return la.norm(x)
    if math.isinf(scale):
        return x
    return np.where(x > LIMIT, helped(x, 1), x)


def helped(x, shift=None):
    """Its own test stays."""
    if shift is not None:
        x = shifted(x) + shift
    return x


def renamed(a, b, *, power):
    a = a**power
    return a + b


OTHERS: dict = {"flat": lambda v: np.ravel(v)}
'''
BESIDE = "def shifted(x):\n    return x + 100\n"


@pytest.fixture
def source(tmp_path):
    (tmp_path / "beside.py").write_text(BESIDE)
    (tmp_path / "here.py").write_text(SOURCE)
    return tmp_path / "here.py"


def value(found, **primals):
    """What the lines give."""
    names = {"numpy": np, **primals}
    exec("\n".join([*found.before, f"result = {found.call}"]), names)  # noqa: S102
    return names["result"]


@pytest.mark.parametrize(
    ("primals", "eps", "call"),
    [
        (["x"], "1e-05", "numpy.sqrt(x * x + 1e-05)"),
        (["x", "gain"], "0.5", "gain * numpy.sqrt(x * x + 0.5)"),
    ],
)
def test_one_expression_becomes_the_call(source, primals, eps, call):
    found = inlined(source, "plain", primals, {"eps": eps})
    assert (found.before, found.call) == ((), call)


def test_only_what_values_decide_is_dropped(source):
    x = np.array([-5.0, 2.0])
    found = inlined(source, "branches", ["x"], {"kind": "'none'", "scale": "2.0"})
    assert value(found, x=x).tolist() == [-5.0, 103.0]
    text = "\n".join(found.before)
    assert "if shift is not None:" in text
    assert "def shifted(x):" in text
    assert "norm" not in text
    assert "-3" in text
    assert '"""' not in text


def test_a_value_that_is_changed_and_a_primal_of_another_name(source):
    found = inlined(source, "renamed", ["y", "x"], {"power": "3"})
    assert found.call == "renamed(y, x)"
    assert value(found, y=2.0, x=1.0) == 9.0
    assert (
        value(inlined(source, "branches", ["x"], {"kind": "'norm'", "scale": "None"}), x=[3, 4])
        == 5
    )


def test_a_function_of_a_table_without_a_name(source):
    assert inlined(source, "flat", ["x"], {}).call == "numpy.ravel(x)"


def test_math_is_imported_where_it_is_left(tmp_path):
    (tmp_path / "here.py").write_text("import math\ndef f(x):\n    return math.sqrt(x)\n")
    found = inlined(tmp_path / "here.py", "f", ["x"], {})
    assert value(found, x=4.0) == math.sqrt(4.0)
