"""The dtypes that the words of a command select, for operators and for models."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from gradcheck.errors import UnknownNameError, UsageError

DTYPES: Final = ("float64", "float32")
"""What is judged unless something else is asked for."""
LOW: Final = ("float16", "bfloat16")
"""Low precision: judged at rounded inputs, never differenced."""
CERTIFIED: Final = "mp50"
"""Models only: the suite's own reverse pass against 50-digit differences."""
ALL: Final = "all"


def dtypes_of(words: Sequence[str]) -> list[str]:
    """The dtypes named, in the usual order; none named: float64 and float32; "all": all four.

    Raises:
        UnknownNameError: a word is no dtype.
        UsageError: it is one for models alone.
    """
    known = (*DTYPES, *LOW)
    if CERTIFIED in words:
        raise UsageError(
            f"--dtype {CERTIFIED} is for models (--model GLOB); operators are held against "
            "50 digits in every dtype"
        )
    _check(words, known)
    if ALL in words:
        return list(known)
    return [dtype for dtype in known if dtype in (words or DTYPES)]


def model_dtypes_of(words: Sequence[str], *, certify: bool = True) -> list[str]:
    """The dtypes of a model run; none named: those of an operator run, after "mp50".

    `certify`: whether the suite's own reverse pass is among what is judged. Without it "mp50"
    has nothing to say, and is left out unless it is named.

    Raises:
        UnknownNameError: a word is no dtype.
        UsageError: models are not judged in it.
    """
    known = (CERTIFIED, *DTYPES)
    for word in words:
        if word in LOW:
            raise UsageError(f"--dtype {word}: models are judged in {', '.join(known)}")
    _check(words, known)
    if words and ALL not in words:
        return [dtype for dtype in known if dtype in words]
    return list(known if certify else DTYPES)


def all_dtypes_of(
    words: Sequence[str], *, operators: bool, models: bool, certify: bool = True
) -> tuple[list[str], list[str]]:
    """The dtypes of operators and of models that are judged in one run: each takes its own.

    Raises:
        UnknownNameError: a word is no dtype.
        UsageError: the words leave operators or models that are asked for without any.
    """
    if not (operators and models):
        ours = dtypes_of(words) if operators else []
        return ours, model_dtypes_of(words, certify=certify) if models else []
    _check(words, (CERTIFIED, *DTYPES, *LOW))
    for_operators = [word for word in words if word != CERTIFIED]
    for_models = [word for word in words if word not in LOW]
    return (
        dtypes_of(for_operators or words),  # with no other word left, it says why not
        model_dtypes_of(for_models or words, certify=certify),
    )


def _check(words: Sequence[str], known: Sequence[str]) -> None:
    for word in words:
        if word not in (*known, ALL):
            raise UnknownNameError("dtype", word, (*known, ALL))
