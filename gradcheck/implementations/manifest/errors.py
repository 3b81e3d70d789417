"""Values as structures; a mistake is told with its key as the file has it, and the nearest one."""

from __future__ import annotations

import difflib
import re
from typing import Any, TypeVar

import msgspec
from msgspec import Struct

from gradcheck.errors import ManifestError

T = TypeVar("T")


def convert(value: Any, kind: type[T], where: str) -> T:
    """`value` as the structure `kind`.

    Raises:
        ManifestError: an unknown key, a missing one, or a value of another type; `where` begins it.
    """
    try:
        return msgspec.convert(value, kind, strict=True)
    except msgspec.ValidationError as error:
        raise ManifestError(f"{where}: {_in_words(str(error), kind)}") from None


def _in_words(message: str, kind: Any) -> str:
    """Msgspec's message with keys as the file has them, and the nearest key that is known."""
    what, _, place = message.partition(" - at `")
    keys = [part for part in re.split(r"[.\[\]]+", place.rstrip("`").removeprefix("$")) if part]
    dotted = ".".join(keys)
    unknown = re.fullmatch(r"Object contains unknown field `(.*)`", what, flags=re.DOTALL)
    if unknown:
        inside = f" in `{dotted}`" if dotted else ""
        return f"unknown key `{unknown[1]}`{inside}{suggestion(unknown[1], _fields(kind, keys))}"
    lacking = re.fullmatch(r"Object missing required field `(.*)`", what)
    if lacking:
        return f"`{'.'.join([*keys, lacking[1]])}` is missing"
    wrong = re.fullmatch(r"Invalid enum value (.*)", what)
    if wrong:
        allowed = ", ".join(repr(value) for value in _choices(kind, keys))
        return f"`{dotted}` is {wrong[1]}; write one of {allowed}"
    expected = what.replace("Expected", "expected").replace("`", "")
    return f"`{dotted}`: {expected}" if dotted else expected


def _fields(kind: Any, keys: list[str]) -> list[str]:
    """Names of the keys of the structure that `keys` lead to from `kind`."""
    found = _structures(_below(kind, keys))
    return [f.encode_name for one in found for f in msgspec.structs.fields(one)]


def _choices(kind: Any, keys: list[str]) -> list[Any]:
    """The values that the key to which `keys` lead may have."""
    return [value for one in _below(kind, keys) for value in getattr(one, "__args__", ())]


def _below(kind: Any, keys: list[str]) -> list[Any]:
    """The types to which `keys` lead from `kind`; indices and names in a table lead nowhere."""
    kinds = [kind]
    for key in keys:
        below = []
        for one in _structures(kinds):
            found = [f.type for f in msgspec.structs.fields(one) if f.encode_name == key]
            below += found or kinds
        kinds = below
    return kinds


def _structures(kinds: list[Any]) -> list[type[Struct]]:
    """The structures in a list of types, unions and containers."""
    found: list[type[Struct]] = []
    for kind in kinds:
        if isinstance(kind, type) and issubclass(kind, Struct):
            found.append(kind)
        else:
            found += _structures(list(getattr(kind, "__args__", ())))
    return found


def suggestion(name: str, known: list[str]) -> str:
    """The end of a message about an unknown name."""
    near = difflib.get_close_matches(name, known, n=1, cutoff=0.5)
    if near:
        return f"; did you mean `{near[0]}`?"
    return f"; known: {', '.join(known[:20])}" if known else ""
