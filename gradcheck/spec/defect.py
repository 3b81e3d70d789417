"""The classes of defects of a wrong backward pass: a code, a short word and a meaning each."""

from __future__ import annotations

from enum import StrEnum
from typing import Final


class Defect(StrEnum):
    """A class of defects.

    Its value is a code, which stored reports hold; `word` is its name in reports and baselines,
    `says` what belongs to it. Codes and words are promises to users with files.

    Example:
        >>> Defect.SCALE, Defect("F").word
            (<Defect.SCALE: 'F'>, 'scale')
    """

    word: str
    says: str

    def __new__(cls, code: str, word: str, says: str) -> Defect:
        self = str.__new__(cls, code)
        self._value_, self.word, self.says = code, word, says
        return self

    SIGN = "S", "sign", "the gradient, or one of its terms, has the other sign"
    SCALE = "F", "scale", "a factor is missing or extra: a constant, an attribute, an argument"
    REDUCTION = (
        "R",
        "reduction",
        "the factor is a count: a mean where a sum belongs, or the reverse",
    )
    TERM = "T", "term", "a term is missing, extra or mis-weighted"
    DERIVATIVE = "D", "derivative", "the local derivative, or the formula, is another function"
    BROADCAST = (
        "B",
        "broadcast",
        "the reduction over a broadcast or a repetition is missing or wrong",
    )
    ACCUMULATION = (
        "A",
        "accumulation",
        "overwritten where it must add up, or a buffer not initialised",
    )
    DUPLICATES = "DI", "duplicates", "wrong only where an index occurs more than once"
    INDEX = "I", "index", "an index, offset, axis or window is off"
    LAYOUT = "L", "layout", "memory order, stride, transposition, or J in place of its transpose"
    ALIASING = "X", "aliasing", "arguments or saved values are written over before they are read"
    SAVED_VALUE = (
        "V",
        "saved-value",
        "evaluated at another value: the output, a stale or earlier one",
    )
    EPS = "E", "eps", "eps is wrong, left out, or in the wrong place"
    ATTRIBUTE = "P", "attribute", "an attribute is ignored, or taken at another value"
    SLOT = "G", "slot", "a gradient is lost, or stands in another argument's place"
    COTANGENT = "U", "cotangent", "the upstream cotangent is ignored, or read as one number or row"
    KINK = "K", "kink", "wrong only on a kink or a tie"
    NON_FINITE = "N", "non-finite", "NaN or an infinity at some points"
    PRECISION = "O", "precision", "overflow, underflow, cancellation, rounding"
    SHAPE = "W", "shape", "wrong only at particular shapes or sizes"
    NONDETERMINISM = "C", "nondeterminism", "a race, an uninitialised read, a random number"
    MASK = "M", "mask", "another random mask than forward's"
    DOUBLE = "DD", "double", "the derivative of a backward is wrong"
    NONLINEAR = "NL", "nonlinear", "not linear in the cotangent"


def defect_named(text: str) -> Defect | None:
    """The class with a word or a code; None if there is none.

    >>> defect_named("scale"), defect_named("F"), defect_named("colour")
    (<Defect.SCALE: 'F'>, <Defect.SCALE: 'F'>, None)
    """
    return next((defect for defect in Defect if text in (defect.word, defect.value)), None)


LABELS: Final = {defect.value: defect for defect in Defect}
"""The classes by their codes."""
UNKNOWN: Final = "no known pattern"
"""The word for a gradient that was diagnosed without success."""
