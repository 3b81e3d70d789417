"""A sample of the corpus: nothing right is a FAIL, nothing wrong a PASS."""

from __future__ import annotations

from zlib import crc32

import numpy as np
import pytest

from tests.black_box.corpus import corpus
from tests.black_box.judged import Asked, Judged, judge
from tests.black_box.planted import planted
from tests.black_box.verify import error

ONE_OF = 31
"""Of so many pairs one is in the sample."""


def sample() -> list[str]:
    """Names, by their hash; without PyTorch and JAX, whose import takes seconds."""
    return [name for name in corpus(plain=True) if crc32(name.encode()) % ONE_OF == 0]


def amiss(judged: list[Judged]) -> list[Judged]:
    """Right ones that are FAIL or no verdict at all, and wrong ones that PASS."""
    held = ("PASS", "INCONCLUSIVE")
    return [j for j in judged if (j.verdict == "PASS" if j.error else j.verdict not in held)]


@pytest.mark.suite(keep=4, rest=2)
@pytest.mark.parametrize("name", sample())
def test_what_is_right_is_no_fail_and_what_is_wrong_no_pass(name):
    judged = judge(corpus(plain=True)[name], Asked(places=1, modes=(False,)))
    assert not amiss(judged)


def test_every_error_that_shows_is_planted():
    pair = corpus(plain=True)["loss/contrastive 1"]
    names = [p.name for p in planted(pair, pair.cast("float64"), "float64", places=2)]
    assert names[:5] == ["zeros", "negated", "halved", "×1.1", "×1.001"]
    assert sum(name.startswith("1% off") for name in names) == 2
    assert names[7:] == [
        *("row of 0 zeroed", "row of 1 zeroed", "term 0 dropped", "term 1 dropped"),
        "right for ones alone",
    ]


def test_no_error_is_planted_in_what_is_zero():
    pair = corpus(plain=True)["zero/floor ordinary"]
    assert not [*planted(pair, pair.cast("float64"), "float64", places=2)]


@pytest.mark.slow(keep=2)
@pytest.mark.parametrize("name", sample()[::3])
def test_what_is_right_is_right_at_many_digits(name):
    pair = corpus(plain=True)[name]
    with np.errstate(all="ignore"):
        assert error(pair) <= pair.loses


def test_a_wrong_pair_is_seen_at_many_digits():
    pair = corpus(plain=True)["kink/abs beside 0.01"]
    wrong = type(pair)(
        **{
            **{name: getattr(pair, name) for name in pair.__dataclass_fields__},
            "vjp": lambda ct, x: 1.001 * pair.vjp(ct, x),
        }
    )
    assert error(pair) <= pair.loses < error(wrong)


def test_every_kind_has_as_many_pairs_as_were_asked_for():
    kinds = [pair.kind for pair in corpus(plain=True).values()]
    assert len(kinds) >= 400
    assert all(kinds.count(kind) >= 40 for kind in ("quantised", "complex"))
    assert kinds.count("linear algebra") >= 60
