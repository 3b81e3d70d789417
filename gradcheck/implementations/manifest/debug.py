"""From the debug information of a shared library to the prototypes of its functions."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any, Final

from gradcheck.implementations.manifest.prototype import NAMED, is_number
from gradcheck.implementations.manifest.symbols import elf

TAG: Final = "DW_TAG_"
BOOL, FLOAT, SIGNED, UNSIGNED = 2, 4, 5, 7
"""Encodings of numbers (DWARF 5, table 7.11)."""
QUALIFIERS: Final = {f"{TAG}volatile_type", f"{TAG}restrict_type", f"{TAG}atomic_type"}


def prototypes(path: Path, symbols: Collection[str]) -> dict[str, str]:
    """The prototypes, in C, of those of `symbols` that the debug information describes (DWARF).

    Raises:
        LoadError: the library cannot be read.
    """
    found: dict[str, str] = {}
    with elf(path) as file:
        try:
            for die in _subprograms(file):
                if len(found) == len(symbols):  # there may be a hundred megabytes more
                    break
                name = _name(die)
                if name in symbols and name not in found:
                    found[name] = _prototype(die, name)
        except Exception:  # noqa: BLE001  debug information that cannot be read is none
            return found
    return found


def _subprograms(file: Any) -> Iterator[Any]:
    if file.has_dwarf_info():
        for unit in file.get_dwarf_info().iter_CUs():
            yield from _below(unit.get_top_DIE())


def _below(die: Any) -> Iterator[Any]:
    for child in die.iter_children():
        if child.tag == f"{TAG}subprogram":
            yield child
        elif child.tag == f"{TAG}namespace":  # of C++, and the modules of Rust
            yield from _below(child)


def _prototype(die: Any, name: str) -> str:
    parameters = []
    for number, child in enumerate(die.iter_children(), start=1):
        if child.tag == f"{TAG}formal_parameter":
            parameters.append(_declared(_type(child), _name(child) or f"parameter_{number}"))
        elif child.tag == f"{TAG}unspecified_parameters":
            parameters.append("...")
    return _declared(_type(die), f"{name}({', '.join(parameters) or 'void'})")


def _declared(ctype: str, name: str) -> str:
    return f"{ctype}{name}" if ctype.endswith("*") else f"{ctype} {name}"


def _type(die: Any) -> str:
    """The type that an entry refers to, as C writes it."""
    if "DW_AT_type" not in die.attributes:
        return "void"
    return _written(die.get_DIE_from_attribute("DW_AT_type"))


def _written(die: Any) -> str:
    tag, name = die.tag.removeprefix(TAG), _name(die)
    if tag == "base_type":
        return _number(die, name)
    if tag == "pointer_type":
        inner = _type(die)
        if name.startswith("*const ") and not inner.startswith("const "):  # Rust's
            inner = f"const {inner}"
        return f"{inner}*" if inner.endswith("*") else f"{inner} *"
    if tag == "const_type":
        inner = _type(die)
        return inner if inner.endswith("*") else f"const {inner}"
    if die.tag in QUALIFIERS:
        return _type(die)
    if tag == "typedef":
        return name if name in NAMED else _through(die, name)
    if tag in ("structure_type", "union_type", "class_type"):
        return f"struct {name or 'unnamed'}"
    if tag == "enumeration_type":
        return "int"
    return name or tag


def _number(die: Any, name: str) -> str:
    """A number's type as C calls it, whatever its own language does."""
    if name == "char" or is_number(name):
        return name
    encoding, size = (die.attributes[f"DW_AT_{key}"].value for key in ("encoding", "byte_size"))
    if encoding == FLOAT:
        return {4: "float", 8: "double"}.get(size, name)
    return {BOOL: "bool", SIGNED: f"int{8 * size}_t", UNSIGNED: f"uint{8 * size}_t"}.get(
        encoding, name
    )


def _through(typedef: Any, name: str) -> str:
    """What a typedef stands for, where that is a number; else its own name."""
    meant = _type(typedef)
    return meant if is_number(meant) else name


def _name(die: Any) -> str:
    attribute = die.attributes.get("DW_AT_name")
    return "" if attribute is None else attribute.value.decode(errors="replace")
