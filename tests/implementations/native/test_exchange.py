"""Two sizes in each other's place are a mistake in the manifest, and said to be one."""

import pytest
from gradcheck_cases import SUITE

from gradcheck.cli.main import main

PARAMETERS = "double *dx, const double *dy, const double *y, int rows, int cols"
RIGHT = {"rows": "rows(x)", "cols": "dim(x, -1)"}
SWAPPED = {"rows": "dim(x, -1)", "cols": "rows(x)"}


@pytest.fixture
def softmax(native, entry):
    """`softmax(symbol, rows=, cols=)`: what is said of the manifest that binds it so."""

    def said(symbol, c="", samples=(), **bind):
        roles = {"dx": "grad:x", "dy": "cotangent", "y": "out"}
        text = entry(symbol, PARAMETERS, op="softmax", **roles, **bind)
        cases = SUITE.cases(["softmax"], [], list(samples))
        made = native(text, c)
        assert made.smoke(cases, ["float64"]) == []
        return made.exchanged(cases, ["float64", "float32"])

    return said


def test_exchanged_sizes_are_named_with_what_to_write(softmax):
    (said,) = softmax("softmax_rows", **SWAPPED)
    assert said.startswith("gradcheck.toml, op 1 (softmax): bind: `rows` and `cols` are exchanged")
    assert said.endswith('with rows = "rows(x)" and cols = "dim(x, -1)" they are right')
    assert "softmax/default/typical" in said


def test_a_right_manifest_is_left_alone(softmax):
    assert softmax("softmax_rows", **RIGHT) == []


@pytest.mark.parametrize("bind", [RIGHT, SWAPPED])
def test_code_that_is_wrong_either_way_is_left_to_the_judge(softmax, bind):
    assert softmax("softmax_wrong", **bind) == []


def test_sizes_that_are_given_alike_are_not_exchanged(softmax):
    assert softmax("softmax_wrong", rows="rows(x)", cols="rows(x)") == []


def test_where_rows_and_columns_are_as_many_nothing_can_be_told(softmax):
    assert softmax("softmax_rows", samples=["square"], **SWAPPED) == []


def test_code_that_hangs_is_asked_once(softmax):
    assert softmax("softmax_hangs", "timeout = 0.5", **SWAPPED) == []


def test_a_run_ends_before_it_begins(kernels, entry, tmp_path, capsys):
    roles = {"dx": "grad:x", "dy": "cotangent", "y": "out"}
    path = tmp_path / "gradcheck.toml"
    head = f'schema = 1\n[impl]\nname = "kernels"\n[c]\nlibrary = "{kernels}"\n'
    path.write_text(head + entry("softmax_rows", PARAMETERS, op="softmax", **roles, **SWAPPED))
    assert main(["run", "--impl", str(path), "--op", "softmax", "--dtype", "float64"]) == 2
    said = capsys.readouterr()
    assert said.out == ""
    (line,) = said.err.splitlines()
    assert "are exchanged, it seems" in line
