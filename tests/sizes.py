"""Which cases a test takes that asks 50 digits, or a whole ladder, for every element."""

MOST = 200
"""Elements of all primals of an ordinary case."""


def ordinary(cases):
    """The cases of ordinary size: samples that are there for one size are left to the soak."""
    return [case for case in cases if sum(p.size for p in case.primals) <= MOST]
