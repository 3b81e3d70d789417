import numpy as np

from gradcheck.judge.contract.asking import difference, finite, in_digits, place


def test_the_worst_element_is_told_in_as_many_digits_as_it_takes():
    got, want = {"x": np.array([1.0, 2.0, np.nan])}, {"x": np.array([1.0, 2.5, np.nan])}
    allowed = {"x": np.full(3, 0.25)}
    assert difference(got, want, allowed) == "dx[1] is 2, not 2.5"
    assert difference(want, want, allowed) == ""
    lost, three, any_ = np.array([1.0, np.nan]), np.array([1.0, 3.0]), np.full(2, np.inf)
    assert difference({"x": lost}, {"x": three}, {"x": any_}) == "dx[1] is nan, not 3"
    assert in_digits(1.0, 1.0 + 2**-30) == "1, not 1.000000001"


def test_infinities_that_agree_are_no_difference():
    a = {"x": np.array([np.inf, -np.inf])}
    assert difference(a, a, {"x": np.zeros(2)}) == ""
    assert difference(a, {"x": np.array([np.inf, np.inf])}, {"x": np.ones(2)}) == (
        "dx[1] is -inf, not inf"
    )


def test_places_and_magnitudes():
    assert (place((1, 2)), place(())) == ("[1, 2]", "")
    assert finite(np.array([-2.0, np.inf, np.nan], np.float32)).tolist() == [2.0, 0.0, 0.0]
