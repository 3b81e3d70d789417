"""The keys of gradcheck.toml and their types; unknown keys are errors that name the nearest."""

from __future__ import annotations

import codecs
import difflib
import re
import sys
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal, TypeVar

import msgspec
from msgspec import Struct, field

from gradcheck.errors import LoadError, ManifestError
from gradcheck.system.reading import TooLarge, contents

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


SCHEMA: Final = 1
LARGEST: Final = 4 << 20
"""Bytes of a manifest."""
PLATFORM: Final = {"darwin": "macos", "win32": "windows"}.get(sys.platform, "linux")

PerPlatform = str | dict[str, str]
PerDtype = str | dict[str, str]


class Strict(Struct, forbid_unknown_fields=True, kw_only=True):
    """Base of all tables."""


class Command(Strict):
    """`version.cmd`."""

    cmd: str | list[str]


class Impl(Strict):
    """`[impl]`."""

    name: str
    version: str | Command = ""
    language: str = ""
    homepage: str = ""
    issues: str = ""


class Build(Strict):
    """`[build]`; `timeout` in seconds."""

    cmd: str | list[str]
    timeout: float = 600.0


class Library(Strict):
    """`[c]`; `timeout` in seconds per call, `align` in bytes."""

    library: PerPlatform
    guard: Literal["end", "start", "off"] = "end"
    align: int = 1
    timeout: float = 10.0
    env: dict[str, str] = {}
    sanitize: Literal["address", "undefined"] | None = None


class Table(Strict):
    """`[python]`."""

    entry: str


class Process(Strict):
    """`[subprocess]`; times in seconds."""

    cmd: str | list[str]
    level: Literal["frames", "jsonl", "oneshot"] = "frames"
    startup: float = 30.0
    timeout: float = 10.0
    env: dict[str, str] = {}


class Capabilities(Strict):
    """`[capabilities]`."""

    dtypes: list[str] | None = None
    max_elements: int | None = None


class Part(Strict):
    """One tensor in a parameter's memory."""

    role: str = field(name="is")
    at: str | int = "0"
    shape: list[str | int] = []
    strides: list[str | int] = []
    axes: list[int] = []


class Whole(Part):
    """A parameter that is one tensor, with its layout."""

    size: str | int = ""


class Packed(Strict):
    """A parameter that is several tensors."""

    parts: list[Part]
    size: str | int = ""


class Handle(Strict):
    """`handle` of an operator."""

    create: str
    destroy: str
    bind: dict[str, Any] = {}
    library: PerPlatform | None = None


class Wider(Strict):
    """`slack` of one dtype."""

    ulp: float
    because: str


class Op(Strict):
    """`[[op]]`; `bind` is read parameter by parameter."""

    name: str
    vjp: PerDtype | None = None
    forward: PerDtype | None = None
    bind: dict[str, Any] = {}
    forward_bind: dict[str, Any] = {}
    library: PerPlatform | None = None
    forward_library: PerPlatform | None = None
    attrs: dict[str, Any] = {}
    requires: list[str] = []
    accumulates: list[str] = []
    zeroed: list[str] = []
    aliases: list[tuple[str, str]] = []
    residuals: Literal["self", "reference"] = "self"
    saved: dict[str, str] = {}
    loss_scale: str | int | float = "1"
    missing: dict[str, str] = {}
    handle: Handle | None = None
    alias_of: str = ""
    slack: dict[str, Wider] = {}
    source: str = ""


class Top(Strict):
    """The whole file; operators are read one by one, so that messages name them."""

    schema: int
    impl: Impl
    build: Build | None = None
    c: Library | None = None
    python: Table | None = None
    subprocess: Process | None = None
    capabilities: Capabilities = field(default_factory=Capabilities)
    op: list[dict[str, Any]] = []


@dataclass(frozen=True, slots=True, kw_only=True)
class File:
    """A manifest whose keys are right; what they mean together is not yet known.

    `ops` has every entry with its place, "gradcheck.toml, op 3 (rms_norm)".
    """

    path: Path
    top: Top
    ops: tuple[tuple[str, Op], ...]

    @property
    def folder(self) -> Path:
        """Relative paths begin here, and commands run here."""
        return self.path.parent


def parse(path: Path) -> File:
    """The manifest at `path`.

    Raises:
        LoadError: it cannot be read.
        ManifestError: it is no TOML, has an unknown key, or a value of the wrong type.
    """
    try:
        raw = contents(path, LARGEST)
    except TooLarge as error:
        raise ManifestError(f"{path}: {error.strerror}") from None
    except OSError as error:
        raise LoadError(f"{path}: {error.strerror}") from None
    return parse_text(raw, path)


def parse_text(raw: bytes, path: Path) -> File:
    """The manifest that `raw` would be, if it stood at `path`.

    Raises:
        ManifestError: it is no TOML, has an unknown key, or a value of the wrong type.
    """
    try:
        content = tomllib.loads(raw.removeprefix(codecs.BOM_UTF8).decode())
    except UnicodeDecodeError as error:
        raise ManifestError(f"{path}: byte {error.start} is no UTF-8; save it as UTF-8") from None
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise ManifestError(f"{path}: no TOML: {error}") from None
    _check_schema(content, path)
    top = convert(content, Top, str(path.name))
    ours = [key for key in ("c", "python", "subprocess") if getattr(top, key) is not None]
    if len(ours) != 1:
        raise ManifestError(
            f"{path.name}: has {' and '.join(f'[{key}]' for key in ours) or 'no code to run'}; "
            "write exactly one of [c], [python], [subprocess]"
        )
    if top.op and top.c is None:
        raise ManifestError(f"{path.name}: [[op]] belongs to [c]; a [{ours[0]}] says its own")
    return File(path=path, top=top, ops=tuple(_ops(top.op, path.name)))


def _check_schema(content: Mapping[str, Any], path: Path) -> None:
    """Before all else: another schema may have other keys."""
    if content.get("schema") != SCHEMA:
        said = f"is {content['schema']!r}" if "schema" in content else "is missing"
        raise ManifestError(f"{path.name}: `schema` {said}; write `schema = {SCHEMA}` at the top")


def _ops(raw: list[dict[str, Any]], file: str) -> list[tuple[str, Op]]:
    """The entries, each with what `alias_of` brings."""
    places = [f"{file}, op {i} ({op.get('name', 'no name')})" for i, op in enumerate(raw, start=1)]
    whole = [_merged(op, raw, place) for op, place in zip(raw, places, strict=True)]
    return [(where, convert(op, Op, where)) for op, where in zip(whole, places, strict=True)]


def _merged(op: dict[str, Any], ops: list[dict[str, Any]], where: str) -> dict[str, Any]:
    wanted, seen = op.get("alias_of", ""), [op.get("name")]
    while wanted:
        named = [other for other in ops if other.get("name") == wanted]
        if not named:
            names = sorted(str(other.get("name")) for other in ops if other is not op)
            raise ManifestError(
                f"{where}: alias_of: no entry {wanted!r}{suggestion(wanted, names)}"
            )
        if len(named) > 1:
            raise ManifestError(f"{where}: alias_of: {len(named)} entries are called {wanted!r}")
        if wanted in seen:
            raise ManifestError(f"{where}: alias_of: {' → '.join(map(str, seen))} → {wanted}")
        seen.append(wanted)
        wanted = named[0].get("alias_of", "")
        op = {**named[0], **op}
    return op


def on_this_platform(library: PerPlatform, where: str) -> str:
    """The path of a library here.

    Raises:
        ManifestError: the table has none for this platform.
    """
    if isinstance(library, str):
        return library
    if PLATFORM not in library:
        raise ManifestError(f"{where}: `library` has no `{PLATFORM}`; add it")
    return library[PLATFORM]
