import numpy as np
import pytest
from gradcheck_cases import SUITE

from gradcheck.judge.contract.resize import Resized, resized, several_rows
from gradcheck.judge.contract_check import contract_cases


def case_of(op, dialect, sample="typical"):
    (case,) = SUITE.cases([op], [dialect], [sample])
    return case


@pytest.mark.parametrize("size", [0, 1, 8, 129])
def test_all_axes_of_one_size_change_together(size):
    case = case_of("rms_norm", "weight")
    assert [p.shape for p in resized(case, -1, size).primals] == [(3, size), (size,)]
    assert [p.shape for p in resized(case, 0, size).primals] == [(size, 7), (7,)]


def test_values_depend_on_names_and_the_size_alone():
    case = case_of("rms_norm", "weight")
    one, two, other = (resized(case, -1, n).primals[0] for n in (9, 9, 10))
    np.testing.assert_array_equal(one, two)
    assert not np.array_equal(one, other[:, :9])


def test_a_sample_that_writes_numbers_out_has_one_size():
    assert resized(case_of("rms_norm", "plain", "unsolved"), -1, 5) is None
    assert resized(case_of("rms_norm", "weight", "zero-gain"), -1, 7) is None


def test_operators_that_can_be_asked_at_one_size_alone():
    points = contract_cases(SUITE.cases())
    fixed = {
        case.spec.name
        for case in SUITE.cases()
        if case.name in points and resized(case, -1, 9) is None
    }
    assert fixed == {"max", "moe", "sort", "top_k"}  # whose samples keep off their kinks


def test_every_way_to_draw_follows():
    draw = Resized(7, 4, "a test")
    drawn = [
        draw.normal(3, 7), draw.uniform(0.0, 1.0, 3, 7), draw.positive(3, 7), draw.signed(3, 7),
        draw.signs(3, 7), draw.powers(3, 7), draw.near(1.0, 3, 7), draw.away(0.0, 3, 7),
        draw.integers(0, 7, 3, 7), draw.probabilities(3, 7),
    ]  # fmt: skip
    assert {np.shape(x) for x in drawn} == {(3, 4)}
    assert drawn[8].max() < 4
    assert sorted(draw.permutation(7)) == [0, 1, 2, 3]


def test_rows_are_several_elements_along_two_axes():
    assert several_rows([np.array([1, 2]), np.zeros((3, 7))])
    assert not several_rows([np.zeros((1, 7))])
    assert not several_rows([np.zeros(7), np.zeros((3, 7))])
    assert not several_rows([np.array([1])])
