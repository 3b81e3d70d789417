"""What every spec is asked on import, of an operator, a model, or an update rule: is it sound?"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from gradcheck.errors import SpecError

NAME: Final = re.compile(r"[a-z0-9][a-z0-9_.-]*")


def check_name(kind: str, name: str) -> None:
    """Refuse a name that cannot stand in a case's.

    Raises:
        SpecError: it holds something else than lower-case letters, digits and marks.
    """
    if not NAME.fullmatch(name):
        raise SpecError(
            f"{kind} name {name!r}: use lower-case letters, digits, '_', '-' and '.', "
            "so that it can stand in a case name and on a command line"
        )


def check_unique(owner: str, kind: str, names: Sequence[str]) -> None:
    """Refuse names that stand twice.

    Raises:
        SpecError: one does.
    """
    if len(set(names)) == len(names):
        return
    for name in names:
        if names.count(name) > 1:
            raise SpecError(f"{owner}: two {kind}s are called {name!r}; rename one")


def check_texts(owner: str, **texts: str) -> None:
    """Refuse texts that say nothing to the reader.

    Raises:
        SpecError: one is empty.
    """
    for what, text in texts.items():
        if not text.strip():
            raise SpecError(f"{owner}: `{what}` is empty; the reader needs it")


def check_attrs(
    owner: str,
    parts: Sequence[tuple[str, Mapping[str, Any]]],
    defaults: Mapping[str, Any],
    function: str,
) -> None:
    """Refuse attributes of named parts (samples, dialects) that `function` does not take.

    Raises:
        SpecError: there is one.
    """
    for name, attrs in parts:
        for attr in attrs:
            if attr not in defaults:
                raise SpecError(
                    f"{owner}, {name!r}: attribute {attr!r} is not a keyword of {function}; "
                    f"known: {sorted(defaults) or 'none'}"
                )


def check_held(owner: str, name: str, array: NDArray[Any], *, nan: bool = False) -> None:
    """Refuse drawn values of `name` that float32 would lose; NaN, too, unless `nan`.

    Raises:
        SpecError: there is one that becomes infinite there, or zero.
    """
    with np.errstate(over="ignore"):
        single = array.astype(np.float32)
    kept = np.isfinite(single) == np.isfinite(array)
    held = bool(np.all(kept & ((single != 0) | (array == 0))))
    if not held or (np.isnan(array).any() and not nan):
        raise SpecError(
            f"{owner}: float32 does not hold the values of {name!r}: finite ones become "
            "infinite or zero, or are NaN; keep them between 1e-45 and 3e38"
        )
