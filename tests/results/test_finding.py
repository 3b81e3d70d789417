import math

import pytest

from gradcheck.results.finding import Taylor


@pytest.mark.parametrize(
    ("changes", "share"),
    [({"intercept": 0.05}, 0.2), ({"intercept": -0.05}, 0.2), ({"product": 0.0}, math.inf),
     ({"error_bar": math.inf}, math.inf), ({"intercept": math.nan}, math.inf)],
)  # fmt: skip
def test_what_is_missing_is_a_part_of_the_whole_or_means_nothing(changes, share):
    plain = {"steps": (1.0, 0.5), "remainders": (0.0, 0.0), "slopes": (3.0,), "intercept": 0.0,
             "error_bar": 1e-12, "linear": False, "product": 0.25, "noise": 1e-16}  # fmt: skip
    assert Taylor(**{**plain, **changes}).share == share
