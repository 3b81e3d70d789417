"""What every run of the tests takes, and what is left to the soak."""

import zlib

import pytest

MOST = 200
"""Elements of all primals of an ordinary case."""


def ordinary(cases):
    """The cases of ordinary size: samples that are there for one size are left to the soak."""
    return [case for case in cases if sum(p.size for p in case.primals) <= MOST]


def seeds(count, few):
    """`range(count)` as parameters: every run takes the first `few` seeds, the soak the others."""
    rest = pytest.param(range(few, count), marks=pytest.mark.soak, id=f"{few}-{count}")
    return [pytest.param(range(few), id=f"0-{few}"), rest]


def few(every, ordinary):
    """`every` one as a parameter: each run takes those that are `ordinary`, the soak the others."""
    return [one if ordinary(one) else pytest.param(one, marks=pytest.mark.soak) for one in every]


def third(names):
    """Names as parameters: each run takes a third of them, always the same, the soak the others."""
    return few(names, lambda name: zlib.crc32(name.encode()) % 3 == 0)
