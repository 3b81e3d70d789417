import numpy as np
from gradcheck_cases.elementwise import add

from gradcheck.arithmetic import F64


def test_a_repeated_operand_gets_the_sum_over_its_repetitions():
    ct = np.array([[1.0, 2.0, 4.0], [8.0, 16.0, 32.0]])
    dx, dy = add.vjp(F64, ct, np.zeros((2, 3)), np.zeros(3))
    assert np.array_equal(dx, ct)
    assert dy.tolist() == [9, 18, 36]
    dx, dy = add.vjp(F64, ct, np.zeros((1, 3)), np.zeros((2, 1)))
    assert dx.tolist() == [[9, 18, 36]]
    assert dy.tolist() == [[7], [56]]
