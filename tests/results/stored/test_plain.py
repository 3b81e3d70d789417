"""What JSON has no word for is a text, wherever in a document it stands."""

import json

import numpy as np
import pytest

from gradcheck.results.stored.plain import dumped

NAN, INF = float("nan"), float("inf")


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (1.5, 1.5),
        (NAN, "nan"),
        ([1, [NAN, 2.5]], [1, ["nan", 2.5]]),
        ((1, (INF, 2.5)), [1, ["inf", 2.5]]),
        ({"a": {"b": [-INF]}, "c": None}, {"a": {"b": ["-inf"]}, "c": None}),
        ([np.float32(np.inf), np.int64(3), np.bool_(True)], ["inf", 3, True]),
    ],
)
def test_every_number_is_one_that_json_knows_or_its_name(value, expected):
    def refused(word):
        pytest.fail(f"{word} is no JSON")

    assert json.loads(dumped(value), parse_constant=refused) == expected
