import numpy as np
import pytest

from gradcheck.errors import UsageError
from gradcheck.numerics.draw import Draw
from gradcheck.testing.inputs import away, drawn, integers, normal, positive, uniform


def of(wanted, *names):
    return wanted.drawn("x", Draw("test", *names))


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: normal(3, 2.0), r"normal\(…\): invalid axis size 2.0: write"),
        (lambda: normal(True), "invalid axis size True"),
        (lambda: normal(-1), "invalid axis size -1"),
        (lambda: normal("8"), "invalid axis size '8'"),
        (lambda: uniform(1, 1, 3), r"uniform\(1, 1, …\): write the lower end first"),
        (lambda: uniform(float("nan"), 1, 3), "write the lower end first"),
        (lambda: integers(5, 5, 3), r"there is none from 5 up to below 5"),
        (lambda: drawn(np.zeros(3)), r"drawn\(…\) takes a function of a generator, not a ndarray"),
        (lambda: normal(2, 3).rows("zeros"), "unknown kind of row 'zeros': did you mean 'zero'?"),
        (lambda: of(normal(2, 3).rows("zero", "tiny", "large")), "x has 2 rows, and 3 are to be"),
        (lambda: of(normal().rows("zero")), "x: only an array of floating numbers has hard rows"),
        (lambda: of(integers(0, 9, 3, 3).rows("zero")), "x: only an array of floating numbers"),
        (lambda: of(drawn(lambda draw: np.array(["a"]))), "x is drawn as <U1: draw floating"),
        (lambda: of(drawn(lambda draw: draw.normal(2) * 1j)), "x is drawn as complex128"),
        (lambda: of(drawn(lambda draw: None)), "x is drawn as object"),
    ],
)
def test_what_cannot_be_meant_is_refused(make, said):
    with pytest.raises(UsageError, match=said):
        make()


def test_numbers_depend_on_names_alone():
    assert np.array_equal(of(normal(4, 4), "a"), of(normal(4, 4), "a"))
    assert not np.array_equal(of(normal(4, 4), "a"), of(normal(4, 4), "b"))


def test_sizes_are_arguments_or_one_tuple():
    assert of(normal(2, 3)).shape == of(normal((2, 3))).shape == of(normal([2, 3])).shape == (2, 3)
    assert of(normal(np.int64(2))).shape == (2,)
    assert of(normal()).shape == ()
    assert of(normal(0, 3)).shape == (0, 3)


def test_each_stays_in_its_range():
    assert np.abs(of(normal(400, scale=0.25))).max() < 2
    x = of(uniform(-1, 3, 400))
    assert (x.min() >= -1, x.max() <= 3) == (True, True)
    assert np.ptp(x) > 3
    assert of(positive(400)).min() >= 0.125
    assert np.abs(of(away((0.0, 1.0), 400)) - 1).min() >= 0.125
    ids = of(integers(2, 5, 400))
    assert (set(ids.tolist()), ids.dtype) == ({2, 3, 4}, np.int64)
    lower = of(drawn(lambda draw: np.tril(draw.normal(3, 3))))
    assert not np.triu(lower, 1).any()


def test_the_last_rows_are_hard_and_no_other_moves():
    plain, hard = of(normal(6, 5)), of(normal(6, 5).rows("zero", "tiny").rows("large", "constant"))
    assert np.array_equal(plain[:2], hard[:2])
    assert not hard[2].any()
    assert np.array_equal(hard[3], plain[3] * 2.0**-20)
    assert np.array_equal(hard[4], plain[4] * 2.0**12)
    assert (hard[5] == plain[5, 0]).all()
    # They fill float64's mantissa, and float32 loses none of them.
    assert np.all((hard.astype(np.float32) != hard) == (hard != 0))
    np.testing.assert_allclose(hard.astype(np.float32), hard, rtol=2.0**-24)


def test_rows_lie_along_the_last_axis():
    plain, hard = of(normal(2, 2, 3)), of(normal(2, 2, 3).rows("zero"))
    assert not hard[1, 1].any()
    assert np.array_equal(plain.reshape(4, 3)[:3], hard.reshape(4, 3)[:3])
    assert not of(normal(3).rows("zero")).any()
    assert of(normal(2, 0).rows("constant")).shape == (2, 0)
    turned = drawn(lambda draw: draw.normal(5, 2).T)
    assert not of(turned.rows("zero"))[-1].any()
