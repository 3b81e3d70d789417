"""Points beside the primals: is it the same function there, and the same error?"""

import numpy as np
import pytest

from gradcheck.judge.beside import jumps

HERE = np.array([4.0, 1.0])


@pytest.mark.parametrize(
    ("close", "afar", "jumped"),
    [
        (0.0, 0.0, False),
        (2.0**-3, 2.0**-3, False),  # a 32nd part of the largest value
        (1.01 * 2.0**-3, 2.0**-3, True),
        (-1.01 * 2.0**-3, -(2.0**-3), True),
        (1.0, 2.0, False),  # twice as far away it moves twice as far
        (1.0, 1.9, True),
        (np.nan, 0.0, True),
        (np.inf, np.inf, True),
    ],
)
def test_a_value_that_moves_at_once_and_then_no_further_jumps(close, afar, jumped):
    moved = [HERE + np.array([0.0, by]) for by in (close, afar)]
    assert jumps([HERE], [moved[0]], [moved[1]]) is jumped


def test_another_shape_is_another_function():
    assert jumps([HERE], [HERE], [HERE[:1]])
    assert jumps([HERE], [HERE[:1]], [HERE])
