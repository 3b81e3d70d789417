import math

import pytest

from gradcheck.explain.hypotheses.factor import in_words


@pytest.mark.parametrize(
    ("c", "words"),
    [
        (0.5, "half of the right value: a factor 2 is missing"),
        (2.0, "twice the right value"),
        (-7.0, "-7 times the right value"),
        (2 / 3, "2/3 of the right value"),
        (math.log(2), "log 2 times the right value"),
        (1 / math.sqrt(2), "1/(√2) of the right value"),
        (0.123456789, "0.123457 times the right value"),
        (3.7, "3.7 times the right value"),
    ],
)
def test_a_factor_in_words(c, words):
    assert in_words(c, 1e-6) == words
