"""A VJP returns one gradient per primal, shaped and typed like it; a forward returns arrays."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from gradcheck.numerics.arrays import is_float
from gradcheck.results.finding import Diagnosis, Finding
from gradcheck.results.verdict import Verdict
from gradcheck.spec.defect import Defect

Array = NDArray[Any]

CALL: Final = "call"
"""The rule of a diagnosis that what a call did tells by itself."""
_NOTED: Final[ContextVar[list[Finding] | None]] = ContextVar("noted", default=None)
EARNED: Final = (
    Verdict.FAIL, Verdict.MISSING, Verdict.ERROR, Verdict.CRASH, Verdict.TIMEOUT, Verdict.NOTRUN,
    Verdict.UNSUPPORTED,
)  # fmt: skip
"""Verdicts of a broken contract; foreign code cannot obtain another one."""


@dataclass(frozen=True, slots=True)
class Missing:
    """Stands for a gradient that is not produced, and says why (no full stop)."""

    why: str


class Broken(Exception):  # noqa: N818  a contract is broken
    """A contract of the call as a whole is broken: there is nothing to compare."""

    def __init__(self, finding: Finding) -> None:
        """Carry the finding, and note it."""
        super().__init__(finding.reason)
        self.finding = finding
        noted = _NOTED.get()
        if noted is not None:
            noted.append(finding)


@contextmanager
def failures() -> Iterator[list[Finding]]:
    """Collect the findings of all calls that break their contract meanwhile, handled or not.

    So a crash that a caller swallows can still be reported. Inner blocks collect their own.
    """
    noted: list[Finding] = []
    token = _NOTED.set(noted)
    try:
        yield noted
    finally:
        _NOTED.reset(token)


def broken(
    name: str, reason: str, verdict: Verdict = Verdict.ERROR, *, label: str = "", says: str = ""
) -> Broken:
    """An exception that carries a finding about `name` ("vjp", "forward", or a primal).

    Where the breach itself tells the class of the defect, `label` is its code, and `says` the
    diagnosis in a sentence.
    """
    diagnosis = Diagnosis(label=label, says=says, rule=CALL) if label else None
    return Broken(Finding(name=name, verdict=verdict, reason=reason, diagnosis=diagnosis))


def is_ours(error: Broken) -> bool:
    """Whether gradcheck raised it: foreign code may raise `Broken`, too, and is not believed.

    What counts is the function that raised it.
    """
    last = error.__traceback__
    while last is not None and last.tb_next is not None:
        last = last.tb_next
    if last is None or error.finding.verdict not in EARNED:
        return False
    where = last.tb_frame.f_globals
    name = str(where.get("__name__"))
    home = sys.modules.get(name)
    return name.startswith("gradcheck.") and home is not None and vars(home) is where


def overwrites(name: str, reason: str) -> Broken:
    """An exception for a call that writes into an argument; `reason` says into which."""
    says = f"{name} writes over an argument that others may still read"
    return broken(name, reason, label=Defect.ALIASING, says=says)


def gradients(
    returned: Any,
    names: Sequence[str],
    *,
    role: str = "vjp",
    gives: str = "gradient",
    of: str = "primal",
) -> tuple[Any, ...]:
    """The result of a VJP as one entry per primal.

    A bare array stands for the gradient of a single primal. `role`, `gives` and `of` name the
    function, what it returns, and what it returns one of each for, in the messages.

    Raises:
        Broken: the number of gradients is not the number of primals.
    """
    if isinstance(returned, (tuple, list)):
        if len(returned) == len(names):
            return tuple(returned)
        none = ", None for an index" if of == "primal" else ""
        raise broken(
            role,
            f"{role} returned {len(returned)} {gives}s for {len(names)} {of}s "
            f"({', '.join(names)}); return one per {of}{none}",
        )
    if len(names) == 1:
        return (returned,)
    what = "None" if returned is None else f"one {type(returned).__name__}"
    raise broken(
        role,
        f"{role} returned {what} for {len(names)} {of}s ({', '.join(names)}); return a tuple",
    )


def fault(
    gradient: Any, primal: Array, name: str, *, role: str = "vjp", gives: str = "gradient"
) -> Finding | None:
    """What is wrong with one gradient's form: absent, no numbers, wrong shape or dtype."""
    if gradient is None or isinstance(gradient, Missing):
        why = gradient.why if gradient else f"{role} returned None; return zeros where it is zero"
        reason = f"no {gives} for {name}: {why}"
        return Finding(name=name, verdict=Verdict.MISSING, reason=reason)
    array = as_array(gradient)
    if array is None:
        dtype = getattr(gradient, "dtype", None)
        what = f"a {type(gradient).__name__}" + ("" if dtype is None else f" of {dtype}")
        reason = f"the {gives} of {name} is {what}, not an array of numbers"
    elif array.shape != primal.shape:
        reason = (
            f"the {gives} of {name} has shape {array.shape}, {name} has {primal.shape}; "
            f"give it the shape of {name}"
        )
    elif array.dtype != primal.dtype:
        reason = f"the {gives} of {name} is {array.dtype}, {name} is {primal.dtype}; keep its dtype"
    else:
        return None
    return Finding(name=name, verdict=Verdict.FAIL, reason=reason)


def as_array(value: Any) -> Array | None:
    """`value` as an array of numbers, or None where it is none.

    Python floats pass as float64; strings, objects and ragged lists do not.
    """
    try:
        array = np.asarray(value)
    except KeyboardInterrupt:
        raise
    except BaseException:  # noqa: BLE001  a foreign __array__ may raise anything
        return None
    return array if array.dtype.kind in "iub" or is_float(array.dtype) else None
