"""The reference with a wrong gradient, and the truth of cases by the names of operators."""

from gradcheck_cases import SUITE

from gradcheck.implementations.bound import Bound
from gradcheck.implementations.reference import Reference
from gradcheck.judge.operator_truth import CaseTruth
from gradcheck.numerics.arrays import as_tuple


class Changed:
    """The reference, with its first gradient changed."""

    name = "changed"

    def __init__(self, change):
        self.change = change

    def bind(self, case, dtype):
        bound = Reference().bind(case, dtype)

        def vjp(ct, *primals, **attrs):
            first, *rest = as_tuple(bound.vjp(ct, *primals, **attrs))
            return (self.change(first), *rest)

        return Bound(vjp=vjp, forward=None, attrs=bound.attrs)


def truth_of(op, sample="typical", dialect=None):
    return CaseTruth(SUITE.cases([op], [dialect] if dialect else [], [sample])[0])
