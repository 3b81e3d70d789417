"""The classes of defects that a wrong backward may have: one short word and one meaning each."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class Label:
    """One class: `word` is its name in reports and baselines, `says` what belongs to it."""

    word: str
    says: str


LABELS: Final = {
    "S": Label("sign", "the gradient, or one of its terms, has the other sign"),
    "F": Label("scale", "a factor is missing or extra: a constant, an attribute, an argument"),
    "R": Label("reduction", "the factor is a count: a mean where a sum belongs, or the reverse"),
    "T": Label("term", "a term is missing, extra or mis-weighted"),
    "D": Label("derivative", "the local derivative, or the formula, is another function"),
    "B": Label("broadcast", "the reduction over a broadcast or a repetition is missing or wrong"),
    "A": Label("accumulation", "overwritten where it must add up, or a buffer not initialised"),
    "DI": Label("duplicates", "wrong only where an index occurs more than once"),
    "I": Label("index", "an index, offset, axis or window is off"),
    "L": Label("layout", "memory order, stride, transposition, or J in place of its transpose"),
    "X": Label("aliasing", "arguments or saved values are written over before they are read"),
    "V": Label("saved-value", "evaluated at another value: the output, a stale or earlier one"),
    "E": Label("eps", "eps is wrong, left out, or in the wrong place"),
    "P": Label("attribute", "an attribute is ignored, or taken at another value"),
    "G": Label("slot", "a gradient is lost, or stands in another argument's place"),
    "U": Label("cotangent", "the upstream cotangent is ignored, or read as one number or row"),
    "K": Label("kink", "wrong only on a kink or a tie"),
    "N": Label("non-finite", "NaN or an infinity at some points"),
    "O": Label("precision", "overflow, underflow, cancellation, rounding"),
    "W": Label("shape", "wrong only at particular shapes or sizes"),
    "C": Label("nondeterminism", "a race, an uninitialised read, a random number"),
    "M": Label("mask", "another random mask than forward's"),
    "DD": Label("double", "the derivative of a backward is wrong"),
    "NL": Label("nonlinear", "not linear in the cotangent"),
}
"""By the code that mutants carry. The words are promises: baselines hold them."""
UNKNOWN: Final = "no known pattern"
"""What a gradient is called that was diagnosed without success."""
