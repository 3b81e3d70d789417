"""Every pair held against many digits, on the command line."""

from __future__ import annotations

import sys

import numpy as np

from .corpus import corpus
from .verify import error


def verify_all(kinds: list[str], names: list[str]) -> int:
    """Print what is not right, or cannot be verified; 1 if there is any."""
    count = bad = hidden = 0
    for name, pair in corpus().items():
        if (kinds and pair.kind not in kinds) or (names and not any(n in name for n in names)):
            continue
        count += 1
        hidden += pair.hidden
        try:
            with np.errstate(all="ignore"):
                far = error(pair)
        except Exception as problem:  # noqa: BLE001 - said, and counted
            sys.stdout.write(f"UNKNOWN {name}: {type(problem).__name__}: {problem}\n")
            bad += 1
            continue
        sys.stdout.flush()
        if not far <= pair.loses:
            sys.stdout.write(f"WRONG {name}: {far:.2g} of the largest element\n")
            bad += 1
    sys.stdout.write(
        f"{count} pairs, {bad} not verified, {hidden} held against differences alone\n"
    )
    return 1 if bad else 0
