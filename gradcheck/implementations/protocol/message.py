"""The messages of GRADCHECK/1: what is asked, what may be answered, and whether an answer fits.

Tensors travel beside their messages, as bytes (little-endian, C order); how depends on the level.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, ClassVar, Final, TypeVar

import msgspec

VERSION: Final = 1
NAME: Final = "GRADCHECK"
ITEMSIZE: Final = {"float64": 8, "float32": 4, "float16": 2, "bfloat16": 2, "int64": 8}
"""The dtypes of blocks, and the bytes of an element."""
ASKS: Final = ("vjp", "forward")
GIVES: Final = {"vjp": "gradient", "forward": "output"}
"""The role of the blocks that answer each ask."""
SHOWN: Final = 500
"""Characters of a foreign text that a message repeats."""

Raw = bytes | bytearray | memoryview


class Violation(Exception):  # noqa: N818  a rule of the protocol is violated
    """A program broke the protocol; the message says how, after "protocol: ".

    `derailed`: what it sends next can no longer be told apart from the answer to something else.
    """

    def __init__(self, text: str, *, derailed: bool = False) -> None:
        """Say what is wrong."""
        super().__init__(f"protocol: {text}")
        self.derailed = derailed


class Form(msgspec.Struct, frozen=True, kw_only=True):
    """A block: its role, the name of its primal or number of its output, dtype and shape."""

    role: str
    name: str
    dtype: str
    shape: tuple[Annotated[int, msgspec.Meta(ge=0)], ...]

    @property
    def nbytes(self) -> int:
        return math.prod(self.shape) * ITEMSIZE[self.dtype]

    def __str__(self) -> str:
        return f"the {self.role} {shown(self.name)}"


@dataclass(frozen=True, slots=True)
class Block:
    """A form and its bytes."""

    form: Form
    data: Raw


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """One `run`: an operator's VJP or its forward, at one point.

    `attrs` are JSON values (`as_json`). `blocks` are the inputs, in the order of the operator's
    arguments, and, for a VJP, the cotangents. `wanted` says which blocks may answer.
    """

    op: str
    ask: str
    dtype: str
    attrs: Mapping[str, Any] = field(default_factory=dict)
    blocks: tuple[Block, ...] = ()
    wanted: tuple[Form, ...] = ()

    def header(self, seq: Any) -> dict[str, Any]:
        """The message, without the bytes of its blocks."""
        return {
            "kind": "run",
            "seq": seq,
            "op": self.op,
            "ask": self.ask,
            "dtype": self.dtype,
            "attrs": dict(self.attrs),
            "blocks": [msgspec.to_builtins(block.form) for block in self.blocks],
        }


class Offer(msgspec.Struct, frozen=True, kw_only=True):
    """A program's offer for one operator; `attrs` None: it takes all of them."""

    asks: tuple[str, ...]
    dtypes: tuple[str, ...]
    attrs: tuple[str, ...] | None = None


class About(msgspec.Struct, frozen=True, kw_only=True):
    """A program's name, version and language."""

    name: str
    version: str = ""
    language: str = ""


class Hello(msgspec.Struct, frozen=True, kw_only=True):
    """The answer to `hello`."""

    kind: ClassVar[str] = "hello"
    protocol: int
    implementation: About
    ops: dict[str, Offer]


class Result(msgspec.Struct, frozen=True, kw_only=True):
    """Blocks."""

    kind: ClassVar[str] = "result"
    seq: Any
    blocks: tuple[Form, ...]


class Lacking(msgspec.Struct, frozen=True, kw_only=True):
    """The program lacks what it was asked for."""

    kind: ClassVar[str] = "unsupported"
    seq: Any
    reason: str


class Failure(msgspec.Struct, frozen=True, kw_only=True):
    """The program could not do what it was asked for."""

    kind: ClassVar[str] = "error"
    seq: Any
    message: str
    traceback: str = ""


class Pong(msgspec.Struct, frozen=True, kw_only=True):
    """The answer to `ping`."""

    kind: ClassVar[str] = "pong"
    seq: Any


class Done(msgspec.Struct, frozen=True, kw_only=True):
    """The answer to `reset`."""

    kind: ClassVar[str] = "done"
    seq: Any


Answer = Hello | Result | Lacking | Failure | Pong | Done
ANSWERS: Final[dict[str, type[Answer]]] = {
    kind.kind: kind for kind in (Hello, Result, Lacking, Failure, Pong, Done)
}
A = TypeVar("A", bound=Answer)


def parse(header: Mapping[str, Any], *expected: type[A]) -> A:
    """A message from a program as one of the `expected` kinds of answer.

    Raises:
        Violation: it is another kind, or lacks a field, or a field has the wrong type.
    """
    kind = header.get("kind")
    wanted = " or ".join(f"`{one.kind}`" for one in expected)
    if not isinstance(kind, str) or kind not in ANSWERS:
        raise Violation(f"the answer has the kind {shown(kind)}; {wanted} is expected")
    struct = next((one for one in expected if one.kind == kind), None)
    if struct is None:
        raise Violation(f"the answer is a `{kind}` where {wanted} is expected", derailed=True)
    try:
        return msgspec.convert(header, struct)
    except (msgspec.ValidationError, ValueError, RecursionError) as error:  # a lone surrogate, too
        raise Violation(
            f"`{kind}` is not as it should be: {shown(str(error), bare=True)}"
        ) from None


def check_seq(got: Any, sent: Any) -> None:
    """Refuse the answer to another request.

    Raises:
        Violation: `got` is another JSON value than `sent`.
    """
    if _text(got) != _text(sent):
        raise Violation(f"the answer has seq {shown(got)}, asked was {shown(sent)}", derailed=True)


def fitting(request: Request, blocks: Iterable[Block]) -> dict[str, Block]:
    """The blocks of an answer by name; what was wanted and did not come is absent.

    Raises:
        Violation: one has another role, name, dtype or shape than any that was wanted, comes
            twice, or has more or fewer bytes than its shape says.
    """
    wanted = {form.name: form for form in request.wanted}
    found: dict[str, Block] = {}
    for block in blocks:
        form, size = block.form, memoryview(block.data).nbytes
        want = wanted.get(form.name)
        if form.role != GIVES[request.ask]:
            raise Violation(
                f"a block of the answer has the role {shown(form.role)}; "
                f"{request.ask} is answered by blocks with the role {GIVES[request.ask]!r}"
            )
        if want is None:
            names = ", ".join(wanted) or "none"
            raise Violation(f"{form} answers nothing that was asked for; asked for were {names}")
        if form.name in found:
            raise Violation(f"{form} comes twice")
        if form.dtype != want.dtype:
            raise Violation(f"{form} is {shown(form.dtype, bare=True)}; make it {want.dtype}")
        if form.shape != want.shape:
            raise Violation(
                f"{form} has the shape {_listed(form.shape)}, not {_listed(want.shape)}"
            )
        if size != want.nbytes:
            raise Violation(
                f"{form} comes with {size} bytes; {want.dtype} of shape {_listed(want.shape)} "
                f"has {want.nbytes}"
            )
        found[form.name] = block
    return found


def as_json(value: Any) -> Any:
    """An attribute's value as JSON has it: lists, and strings for what is not finite."""
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return [as_json(part) for part in value] if isinstance(value, (tuple, list)) else value


def shown(value: Any, *, bare: bool = False) -> str:
    """Something that a program sent, short and on one line, however long or hostile it is."""
    if not isinstance(value, str):
        return tame(_text(value))
    return tame(value) if bare else f'"{tame(value)}"'


def tame(text: str, limit: int = SHOWN) -> str:
    """A foreign text on one line, without control characters, cut to `limit` characters."""
    start = text[: 4 * limit]
    line = " ".join("".join(c if c.isprintable() else " " for c in start).split())
    return line if len(line) <= limit and len(text) <= 4 * limit else f"{line[:limit]} …"


def _text(value: Any) -> str:
    """A JSON value as text; equal values have equal texts."""
    try:
        return json.dumps(value, sort_keys=True)
    except RecursionError:
        return "something deeply nested"


def _listed(shape: tuple[int, ...]) -> str:
    return tame(json.dumps(list(shape)))
