"""The JSON report: header, results and footer as one strict document, one result per line."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gradcheck.results.stored.plain import dumped, footer_dict, header_dict, result_dict

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gradcheck.results.run import Run


def render(run: Run) -> str:
    """The run as JSON."""
    return "".join(pieces(run))


def pieces(run: Run) -> Iterator[str]:
    """The same in pieces, of which only one is there at a time."""
    yield f'{{\n  "header": {_indented(header_dict(run.header))},\n  "results": [\n'
    between = ""
    for result in run.results:
        yield f"{between}    {dumped(result_dict(run, result))}"
        between = ",\n"
    yield f'\n  ],\n  "footer": {_indented(footer_dict(run))}\n}}\n'


def _indented(value: Any) -> str:
    return dumped(value, indent=2).replace("\n", "\n  ")  # a string's newline is the escape \n
