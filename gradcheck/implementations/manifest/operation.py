"""The operations of a manifest, read and checked: functions, and the meaning of each argument.

Expressions are kept as text; `manifest.expression` evaluates them where shapes and attributes are
known.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any

from gradcheck.implementations.processes.c_worker import Guard
from gradcheck.spec.operator import Slack


@dataclass(frozen=True, slots=True, kw_only=True)
class CType:
    """A C type: `base` is one of `script.SCALARS`, "char", "void" or "opaque".

    `pointer` counts the stars (0 or 1; a pointer to a pointer is refused); `const` says that what
    it points to is. "opaque" is a type that only its library knows.
    """

    base: str
    pointer: int = 0
    const: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Parameter:
    """One parameter of a prototype."""

    name: str
    ctype: CType


@dataclass(frozen=True, slots=True, kw_only=True)
class Prototype:
    """A C function as declared; `text` is what the user wrote."""

    text: str
    symbol: str
    returns: CType
    parameters: tuple[Parameter, ...]


class RoleKind(StrEnum):
    """The meaning of the elements behind a pointer."""

    IN = "in"
    """A primal."""
    COTANGENT = "cotangent"
    OUT = "out"
    """Forward's output: written by a forward, given to a VJP."""
    GRAD = "grad"
    """A primal's gradient; written."""
    SAVED = "saved"
    """A residual: written by a forward, given to a VJP."""
    VALUE = "value"
    """Forward's output, written by a VJP that computes it as well."""
    STATUS = "status"
    """A returned int: anything but 0 is an error."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Role:
    """A role, of the primal or residual called `name`, or of output number `index`.

    `optional`: a null pointer where the case has no such primal, or its gradient is not asked for.
    `extents` are a residual's shape.
    """

    kind: RoleKind
    name: str = ""
    index: int = 0
    optional: bool = False
    extents: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """The place of one tensor's elements in a buffer.

    The tensor's own shape, or `shape` (as many elements, in C order); element i, j, … lies at
    `at` + i·strides[0] + j·strides[1] + …, in elements. Without `strides` they are contiguous,
    `axes` first to last from the outermost in memory to the innermost (empty: C order).
    `role` is what it holds before the call; `becomes` what it holds after, if that is another.
    """

    role: Role
    becomes: Role | None = None
    at: str = "0"
    shape: tuple[str, ...] = ()
    strides: tuple[str, ...] = ()
    axes: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Tensors:
    """A pointer to one tensor or more; `size` in elements (empty: up to the last of a view)."""

    views: tuple[View, ...]
    size: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scratch:
    """A pointer to `size` elements of workspace: zero, or (`anything`) not initialised."""

    size: str
    anything: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Value:
    """A scalar by value, a C string, or an array of numbers: what an expression gives."""

    expression: str


class Special(StrEnum):
    """Pointers that lead to no tensor."""

    UNUSED = "unused"
    """To memory that may not be touched; of a scalar, zero."""
    NULL = "null"
    HANDLE = "handle"
    """To what the operation's constructor returned."""


Meaning = Tensors | Scratch | Value | Special


def expressions(meant: Meaning) -> Iterator[str]:
    """Every expression in a meaning."""
    if isinstance(meant, Value):
        yield meant.expression
    elif isinstance(meant, Scratch):
        yield meant.size
    elif isinstance(meant, Tensors):
        if meant.size:
            yield meant.size
        for view in meant.views:
            yield from (view.at, *view.shape, *view.strides, *view.role.extents)
            if view.becomes is not None:
                yield from view.becomes.extents


@dataclass(frozen=True, slots=True, kw_only=True)
class Function:
    """A C function, the library that it lies in, and what each of its parameters means.

    `returned` is what its result is (None: it is ignored, or void).
    """

    prototype: Prototype
    library: Path
    meanings: Mapping[str, Meaning]
    returned: Role | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """An operator as one library has it, in one dtype.

    `attrs` are values fixed in the code; `requires` are expressions that a case must fulfil.
    `forward` is None where the library has none (the suite's own is used for what a VJP needs),
    `vjp` where only the forward is there. `accumulates` and `zeroed` name primals, as in
    `binding.Into`; `aliases` are pairs (primal, "ct" or primal). `saved` gives residuals as
    expressions of primals, for `residuals` "reference". `loss_scale` is what the code's gradients
    are multiplied by. `missing` names gradients that the code lacks, with the reason. `create` and
    `destroy` make and free an opaque handle.
    """

    op: str
    dialect: str
    dtype: str
    where: str
    """File and key, for messages: "gradcheck.toml, op 3 (rms_norm)"."""
    vjp: Function | None
    forward: Function | None
    attrs: Mapping[str, Any] = field(default_factory=dict)
    requires: tuple[str, ...] = ()
    accumulates: frozenset[str] = frozenset()
    zeroed: frozenset[str] = frozenset()
    aliases: tuple[tuple[str, str], ...] = ()
    saved: Mapping[str, str] = field(default_factory=dict)
    residuals: str = "self"
    loss_scale: str = "1"
    missing: Mapping[str, str] = field(default_factory=dict)
    create: Function | None = None
    destroy: Function | None = None
    slack: Slack | None = None
    source: str = ""


def functions(operation: Operation) -> list[Function]:
    """The functions that an operation has, its VJP first."""
    found = (operation.vjp, operation.forward, operation.create, operation.destroy)
    return [function for function in found if function is not None]


def views(function: Function) -> Iterator[View]:
    """Every view of every tensor parameter."""
    for meaning in function.meanings.values():
        if isinstance(meaning, Tensors):
            yield from meaning.views


def roles(function: Function | None) -> Iterator[Role]:
    """Every role of a parameter, and that of the result."""
    if function is not None:
        for meaning in function.meanings.values():
            yield from roles_of(meaning)
        if function.returned is not None:
            yield function.returned


def roles_of(meaning: Meaning) -> Iterator[Role]:
    """The roles in a meaning, before the call and after it."""
    if isinstance(meaning, Tensors):
        for view in meaning.views:
            yield view.role
            if view.becomes is not None:
                yield view.becomes


@dataclass(frozen=True, slots=True, kw_only=True)
class NativeLibrary:
    """A manifest with a [c] table, read and checked: its operations, and how to call them.

    `operations` are keyed by (operator or operator/dialect, dtype). `timeout` is in seconds per
    call; `environment` is added to the worker's. `sanitize` is a value of -fsanitize.
    """

    name: str
    path: Path
    operations: Mapping[tuple[str, str], Operation]
    guard: Guard = "end"
    align: int = 1
    timeout: float = 10.0
    environment: Mapping[str, str] = field(default_factory=dict)
    sanitize: str = ""
    max_elements: int | None = None
    version: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """A manifest with a [subprocess] table: a program that speaks GRADCHECK/1.

    `level` is "frames", "jsonl" or "oneshot"; `startup` and `timeout` are in seconds.
    """

    name: str
    path: Path
    command: tuple[str, ...]
    level: str = "frames"
    startup: float = 30.0
    timeout: float = 10.0
    environment: Mapping[str, str] = field(default_factory=dict)
    version: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class PythonEntry:
    """A manifest with a [python] table: a table of Python objects, as for pkg.module:NAME."""

    name: str
    path: Path
    entry: str


Manifest = NativeLibrary | Program | PythonEntry
