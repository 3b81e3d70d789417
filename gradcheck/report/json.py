"""The JSON report: header, results and footer as one strict document, one result per line."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gradcheck.stored.plain import dumped, run_dict

if TYPE_CHECKING:
    from gradcheck.record import Run


def render(run: Run) -> str:
    """The run as JSON."""
    plain = run_dict(run)
    results = ",\n".join(f"    {dumped(result)}" for result in plain["results"])
    return (
        "{\n"
        f'  "header": {_indented(plain["header"])},\n'
        f'  "results": [\n{results}\n  ],\n'
        f'  "footer": {_indented(plain["footer"])}\n'
        "}\n"
    )


def _indented(value: Any) -> str:
    return dumped(value, indent=2).replace("\n", "\n  ")  # a string's newline is the escape \n
