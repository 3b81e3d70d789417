"""What `[tool.gradcheck]` may hold: the long flags of `gradcheck run`, and of which types."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Final, Literal

import msgspec
from msgspec import Meta

from gradcheck.errors import UnknownNameError, UsageError
from gradcheck.results.words import clean


@dataclass(frozen=True, slots=True)
class Kind:
    """A type of values, and how to write one."""

    type: Any
    how: str


WORDS: Final = Kind(str | list[str], 'write a text, or a list of texts: ["a", "b"]')
TEXT: Final = Kind(str, "write a text")
SWITCH: Final = Kind(bool, "write true or false")
KINDS: Final[Mapping[str, Kind]] = {
    **dict.fromkeys(("op", "model", "rule", "dialect", "sample", "suite"), WORDS),
    **dict.fromkeys(("impl", "dtype", "output", "require"), WORDS),
    **dict.fromkeys(("baseline", "convention", "format", "keep-artifacts", "scheduler"), TEXT),
    **dict.fromkeys(("contract", "train", "project", "taylor"), SWITCH),
    **dict.fromkeys(("no-build", "no-isolate", "quiet", "verbose", "progress"), SWITCH),
    "color": Kind(Literal["auto", "always", "never"], 'write "auto", "always" or "never"'),
    "executor": Kind(Literal["local", "dask"], 'write "local" or "dask"'),
    "seed": Kind(int, "write a whole number"),
    "jobs": Kind(
        Annotated[int, Meta(ge=1)] | Literal["auto"], 'write a number of processes, or "auto"'
    ),
    "max-fail": Kind(Annotated[int, Meta(ge=1)], "write a number of cases, 1 or more"),
    **dict.fromkeys(
        ("timeout", "max-time"),
        Kind(Annotated[float, Meta(gt=0, le=1e9)], "write seconds, a positive number"),
    ),
}
"""The keys there are."""


def checked(table: Mapping[str, Any], where: str) -> dict[str, Any]:
    """The values of a table by key: a list where a flag may be repeated.

    Raises:
        UsageError: an unknown key, or a value of another type; `where` begins the message.
    """
    for key, value in table.items():
        if key not in KINDS:
            raise UsageError(f"{where}: {clean(str(UnknownNameError('key', key, KINDS)))}")
        try:
            msgspec.convert(value, KINDS[key].type, strict=True)
        except msgspec.ValidationError:
            raise UsageError(f"{where}: {key} = {_shown(value)}: {KINDS[key].how}") from None
    return {
        key: [value] if KINDS[key] is WORDS and isinstance(value, str) else value
        for key, value in table.items()
    }


def _shown(value: Any) -> str:
    text = clean(str(value).lower() if isinstance(value, bool) else repr(value))
    return text if len(text) <= 60 else f"{text[:59]}…"
