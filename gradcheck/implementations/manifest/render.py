"""The text of one entry of a suggested manifest: guesses, and comments on what is not known."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Final

from gradcheck.implementations.manifest.entry import index_primals
from gradcheck.implementations.manifest.operation import Prototype
from gradcheck.implementations.manifest.parameters import (
    Asked,
    Guess,
    dtype_of,
    lacking,
    parameters_of,
    required,
    residual_of,
)
from gradcheck.spec.operator import OpSpec
from gradcheck.spec.suite import Suite

NO_STATUS: Final = ("void", "float32", "float64")
"""What a function returns that returns no status."""
CONFIRM: Final = "# confirm"


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """A function that is taken to be one of an operator's."""

    spec: OpSpec
    dialect: str
    prototype: Prototype
    backward: bool

    @property
    def name(self) -> str:
        """The operator, or operator/dialect."""
        return f"{self.spec.name}/{self.dialect}" if self.dialect else self.spec.name

    @property
    def key(self) -> tuple[str, str]:
        """Operator (with its dialect) and dtype."""
        return self.name, dtype_of(self.prototype)

    @property
    def absent(self) -> frozenset[str]:
        """Primals that its dialect lacks."""
        return frozenset(self.spec.dialect(self.dialect).without if self.dialect else ())


def entry(candidate: Candidate, forward: Candidate | None, suite: Suite) -> tuple[str, bool]:
    """The text of one entry, and whether every parameter has a meaning."""
    spec, prototype = candidate.spec, candidate.prototype
    asked = Asked(
        spec=spec,
        indices=index_primals(spec, suite),
        prototype=prototype,
        backward=True,
        absent=candidate.absent,
    )
    guesses: dict[str, Guess | None] = {}
    if forward is not None:
        guesses = parameters_of(replace(asked, prototype=forward.prototype, backward=False))
        if None in guesses.values() or Guess("out") not in guesses.values():
            forward, guesses = None, {}
    if forward is not None:
        left = (p for p in forward.prototype.parameters if p.ctype.pointer and not p.ctype.const)
        asked = replace(asked, saved=frozenset(p.name for p in left))
    mine = parameters_of(asked)
    lines = ["[[op]]", f"name = {quoted(candidate.name)}  {CONFIRM}: from the function's name"]
    lines.append(f"vjp = {quoted(prototype.text)}")
    if forward is not None:
        lines.append(f"forward = {quoted(forward.prototype.text)}")
    lines += _saved(spec, mine, asked.saved)
    lines += _advice(spec, mine)
    lines += ["", "[op.bind]", *_bound(mine, prototype)]
    if not prototype.returns.pointer and prototype.returns.base not in NO_STATUS:
        lines.append('# return = "status"  # if anything but 0 is an error')
    if forward is not None:
        lines += ["", "[op.forward_bind]", *_bound(guesses, forward.prototype)]
    return "\n".join(lines) + "\n", None not in mine.values()


def _saved(
    spec: OpSpec, guesses: Mapping[str, Guess | None], left: frozenset[str]
) -> Iterator[str]:
    """How residuals follow from the primals, where no forward leaves all of them."""
    needed = [n for n, g in guesses.items() if g is not None and g.text.startswith("saved:")]
    if not left.issuperset(needed):
        yield 'residuals = "reference"'
        pairs = ", ".join(f"{name} = {quoted(residual_of(spec, name))}" for name in needed)
        yield f"saved = {{ {pairs} }}  {CONFIRM}"


def _advice(spec: OpSpec, guesses: Mapping[str, Guess | None]) -> Iterator[str]:
    """What goes with the guesses, and comments on what names cannot say."""
    condition = required(spec, guesses)
    if condition:
        yield f"requires = [{quoted(condition)}]  {CONFIRM}: a call does no more than that"
    fixed = {name: spec.defaults[name] for name in lacking(spec, guesses)}
    values = {n: v for n, v in fixed.items() if isinstance(v, (bool, int, float, str))}
    if values:
        shown = ", ".join(f"{name} = {_toml(value)}" for name, value in values.items())
        yield f"# attrs = {{ {shown} }}  # where the code has fixed other values than these"
    grads = [n for n, g in guesses.items() if g is not None and g.text.startswith("grad:")]
    if grads:
        shown = ", ".join(map(quoted, grads))
        yield f"# accumulates = [{shown}]  # those that the code adds to what is there (+=)"


def _bound(guesses: Mapping[str, Guess | None], prototype: Prototype) -> Iterator[str]:
    """One line per parameter."""
    pointers = {p.name for p in prototype.parameters if p.ctype.pointer}
    for name, found in guesses.items():
        if found is None:
            roles = f"in:x, grad:x, cotangent, saved:{name}[…], scratch[…], …"
            what = roles if name in pointers else "an expression: rows(x), dim(x, -1), an attribute"
            yield f'{name} = "?"  # {what}'
        else:
            yield f"{name} = {quoted(found.text)}{'' if found.sure else f'  {CONFIRM}'}"


def unknown_prototype(symbol: str, spec: OpSpec) -> str:
    """A comment for a function of which only the name is known: what it might look like."""
    grads = ", ".join(f"float* d{name}" for name in spec.primals)
    inputs = ", ".join(f"const float* {name}" for name in spec.primals)
    return comment(f"""\
{symbol}: nothing says what it takes; name its --header, or build the library with -g
[[op]]
name = {quoted(spec.name)}
vjp = "void {symbol}({grads}, const float* dout, {inputs}, int n)"  {CONFIRM}
bind = {{ }}  # what each parameter is
""")


def comment(text: str) -> str:
    """A text as TOML comments, whatever it holds."""
    clean = (re.sub(r"[^ -~\u00a0-\uffff]", "?", line) for line in text.splitlines())
    return "".join(f"# {line}".rstrip() + "\n" for line in clean)


def quoted(text: str) -> str:
    """A text as a TOML string."""
    return json.dumps(text, ensure_ascii=False)


def _toml(value: bool | float | str) -> str:
    return json.dumps(value) if isinstance(value, (bool, str)) else repr(value)
