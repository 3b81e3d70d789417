"""The JSON report: header, results and footer as one strict document, one result per line.

JSON has no word for a number that is not finite; such numbers are the strings "nan", "inf" and
"-inf".
"""

from __future__ import annotations

import json
import math
from typing import TYPE_CHECKING, Any

from gradcheck.record import run_dict
from gradcheck.report import printed

if TYPE_CHECKING:
    from gradcheck.record import Run


def render(run: Run) -> str:
    """The run as JSON, in ASCII: a name or reason may hold what no encoding can carry."""
    plain = _finite(run_dict(run))
    for result in plain["results"]:
        result["printed"] = "\n".join(printed.lines(result["printed"]))
    results = ",\n".join(f"    {_dumps(result)}" for result in plain["results"])
    return (
        "{\n"
        f'  "header": {_dumps(plain["header"], indent=2)},\n'
        f'  "results": [\n{results}\n  ],\n'
        f'  "footer": {_dumps(plain["footer"], indent=2)}\n'
        "}\n"
    )


def _dumps(value: Any, indent: int | None = None) -> str:
    text = json.dumps(value, allow_nan=False, indent=indent)
    return text.replace("\n", "\n  ")  # one level down; a string's newline is the escape \n


def _finite(value: Any) -> Any:
    """Plain data in which every number is one that JSON knows."""
    if isinstance(value, dict):
        return {key: _finite(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(part) for part in value]
    if hasattr(value, "item"):  # a NumPy scalar, such as an index that np.argwhere found
        value = value.item()
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value
