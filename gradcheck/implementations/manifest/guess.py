"""What the name of a C function suggests: which operator it belongs to."""

from __future__ import annotations

import difflib
import re
from collections.abc import Collection
from dataclasses import dataclass

from gradcheck.implementations.manifest.vocabulary import BACKWARD, FORWARD, NOISE, OPERATORS


@dataclass(frozen=True, slots=True)
class Named:
    """The operator that a function's name suggests, and which of its functions it is."""

    operator: str
    backward: bool
    rest: tuple[str, ...] = ()
    """Words that say neither: perhaps a dialect."""


def operator_of(symbol: str, operators: Collection[str]) -> Named | None:
    """The operator that a function's name suggests; None where it suggests none.

    >>> operator_of("my_rmsnorm_backward_f32", ["rms_norm"])
    Named(operator='rms_norm', backward=True, rest=('my',))
    """
    words = _words(symbol)
    backward = any(word in BACKWARD for word in words)
    core = [word for word in words if word not in BACKWARD | FORWARD | NOISE]
    known = {**_other_names(operators), **{name.replace("_", ""): name for name in operators}}
    runs = [core[i:j] for i in range(len(core)) for j in range(len(core), i, -1)]
    for run in sorted(runs, key=len, reverse=True):
        if "".join(run) in known:
            rest = tuple(word for word in core if word not in run)
            return Named(known["".join(run)], backward, rest)
    near = difflib.get_close_matches("".join(core), known, n=1, cutoff=0.85)
    return Named(known[near[0]], backward) if near else None


def _other_names(operators: Collection[str]) -> dict[str, str]:
    return {short: name for short, name in OPERATORS.items() if name in operators}


def _words(symbol: str) -> list[str]:
    """rmsNormBackward, RMSNorm_backward and rmsnormbackward: their words in lower case."""
    text = re.sub(r"([a-z0-9])([A-Z])|([A-Z])(?=[A-Z][a-z])", r"\1\3_\2", symbol).lower()
    found: list[str] = []
    for word in filter(None, text.split("_")):
        end = next((e for e in sorted(BACKWARD | FORWARD, key=len, reverse=True)
                    if len(e) > 2 and word.endswith(e) and word != e), "")  # fmt: skip
        found += [word.removesuffix(end), end] if end else [word]
    return found
