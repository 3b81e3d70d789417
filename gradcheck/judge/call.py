"""Calls of the code judged: read-only arguments, and checks of what it returns."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

import numpy as np

from gradcheck.implementations import returned
from gradcheck.implementations.checked_call import CheckedCall, attempt, differs
from gradcheck.implementations.returned import Broken, broken
from gradcheck.judge.cotangents import Cotangents
from gradcheck.numerics.arrays import Array, Attrs, Float, is_float
from gradcheck.results.finding import Finding
from gradcheck.spec.defect import Defect

MAX_EXTRA_ELEMENTS: Final = 1 << 20
"""A gradient of a wrong shape is refused before it is copied, if it is so much larger."""
RowsAt = Callable[[tuple[Array, ...], str], list[Float] | None]
"""Gradients at given primals in a dtype: rows [q, n] per primal; None where the code refuses."""


@dataclass(frozen=True, slots=True)
class Answer:
    """The result of a VJP: per floating primal its gradients as rows [q, n], or the fault found."""

    gradients: dict[str, Float | Finding]


def ask_vjp(
    vjp: Callable[..., Any],
    cts: Sequence[tuple[Array, ...]],
    primals: Sequence[Array],
    names: Sequence[str],
    attrs: Attrs,
    role: str = "vjp",
) -> Answer:
    """Call `vjp` once per cotangent, the first one twice, and check the results.

    `role` is its name in messages.

    Raises:
        Broken: the call as a whole broke its contract: it raised, returned another number of
            gradients, wrote into its arguments, or gave other bits the second time.
        Unsupported: the code lacks this feature.
    """
    called = _Called(CheckedCall(role, vjp), primals, names, attrs)
    return called.answer(cts, dict(zip(names, primals, strict=True)), "gradient", "primal")


def ask_jvp(
    jvp: Callable[..., Any],
    tangents: Sequence[tuple[Array, ...]],
    primals: Sequence[Array],
    names: Sequence[str],
    attrs: Attrs,
    outputs: Mapping[str, Array],
) -> Answer:
    """Call `jvp` once per tangent, the first one twice: tangents of `outputs`, rows [q, m] each.

    A tangent holds one array per floating primal; `jvp` gets it in the form of the primals: bare
    for a single one, else a tuple with None in the place of an index.

    Raises:
        Broken: as for `ask_vjp`.
        Unsupported: the code says that it lacks this.
    """
    floating = [is_float(primal.dtype) for primal in primals]

    def shaped(us: Any, *values: Array, **options: Any) -> Any:
        rest = iter(us if isinstance(us, tuple) else (us,))
        entries = tuple(next(rest) if moves else None for moves in floating)
        return jvp(entries if len(entries) > 1 else entries[0], *values, **options)

    called = _Called(CheckedCall("jvp", shaped), primals, names, attrs)
    return called.answer(tangents, outputs, "tangent", "output")


@dataclass(frozen=True, slots=True)
class _Called:
    """A derivative that is judged, with the arguments that follow its first one."""

    function: CheckedCall
    primals: Sequence[Array]
    names: Sequence[str]
    attrs: Attrs

    def answer(
        self, leads: Sequence[tuple[Array, ...]], like: Mapping[str, Array], gives: str, of: str
    ) -> Answer:
        """Rows [q, n] for each floating array of `like`, or the fault found in them."""
        rows = [self._once(lead, like, gives, of) for lead in leads]
        again = self._once(leads[0], like, gives, of)
        first = [returned.as_array(g) for g in rows[0]]
        if differs(first, [returned.as_array(g) for g in again]):
            raise broken(
                self.function.role,
                f"{self.function.role} is not deterministic: the same arguments gave other bits. "
                "Look for a buffer or a random generator that lives from call to call",
                label=Defect.NONDETERMINISM,
                says=f"{self.function.role} gives other bits for the same arguments",
            )
        answers: dict[str, Float | Finding] = {}
        for i, (name, pattern) in enumerate(like.items()):
            if not is_float(pattern.dtype):
                continue
            faults = [
                returned.fault(row[i], pattern, name, role=self.function.role, gives=gives)
                for row in rows
            ]
            fault = next((f for f in faults if f is not None), None)
            if fault is not None:
                answers[name] = fault
            else:
                flat = [np.asarray(row[i], dtype=np.float64).reshape(-1) for row in rows]
                answers[name] = np.concatenate(flat).reshape(len(rows), -1)
        return Answer(answers)

    def _once(
        self, lead: tuple[Array, ...], like: Mapping[str, Array], gives: str, of: str
    ) -> tuple[Any, ...]:
        out = self.function(lead, self.primals, self.names, self.attrs)
        named = partial(returned.gradients, role=self.function.role, gives=gives, of=of)
        # What it returned may be a sequence of its own making.
        parts = attempt(self.function.role, lambda: named(out, list(like)))
        for name, gradient in zip(like, parts, strict=True):
            self._refuse_vast(gradient, like[name], name, gives)
        # Copies: a gradient may be a view of an argument, or of a buffer that the next call reuses.
        return tuple(g if (a := returned.as_array(g)) is None else np.array(a) for g in parts)

    def _refuse_vast(self, gradient: Any, pattern: Array, name: str, gives: str) -> None:
        """Refuse a gradient that may be a broadcast view larger than all memory."""
        array = returned.as_array(gradient)
        if array is not None and array.size > pattern.size + MAX_EXTRA_ELEMENTS:
            fault = returned.fault(gradient, pattern, name, role=self.function.role, gives=gives)
            if fault is not None:
                raise Broken(fault)


def ask_forward(
    forward: Callable[..., Any], primals: Sequence[Array], names: Sequence[str], attrs: Attrs
) -> tuple[Array, ...]:
    """Call `forward` twice and return its outputs as a tuple of arrays.

    Raises:
        Broken: it raised, returned no arrays of floats, wrote into its arguments, or is not
            deterministic (a dropout that draws its own mask, say).
        Unsupported: the code says that it lacks this.
    """
    asked = CheckedCall("forward", forward)
    first, second = (_outputs(asked, primals, names, attrs) for _ in range(2))
    if differs(first, second):
        raise broken(
            "forward",
            "forward is not deterministic: the same arguments gave other values. "
            "Fix its seed, or pass its random mask as an argument",
        )
    return first


def _outputs(
    forward: CheckedCall, primals: Sequence[Array], names: Sequence[str], attrs: Attrs
) -> tuple[Array, ...]:
    out = forward((), primals, names, attrs)
    parts = out if isinstance(out, (tuple, list)) else (out,)
    arrays = [returned.as_array(part) for part in parts]
    for part, array in zip(parts, arrays, strict=True):
        if array is None or not is_float(array.dtype):
            kind = getattr(part, "dtype", type(part).__name__)
            raise broken(
                "forward", f"forward returned {kind}; return a float array or a tuple of them"
            )
    if not arrays:
        raise broken("forward", "forward returned an empty tuple; return a float array")
    return tuple(np.array(a) for a in arrays)


def vjp_rows_at(
    vjp: Callable[..., Any], cotangents: Cotangents, attrs: Attrs, role: str = "vjp"
) -> RowsAt:
    """Gradients of `vjp` at any primals: rows [q, n] per primal, [q, 0] for an index."""

    def rows_at(primals: tuple[Array, ...], dtype: str) -> list[Float] | None:
        names = [str(i) for i in range(len(primals))]
        cts = cotangents.typed(dtype)
        try:
            answer = ask_vjp(vjp, cts, primals, names, attrs, role)
        except Broken:
            return None
        return rows_of(answer, names, len(cts))

    return rows_at


def rows_of(answer: Answer, names: Sequence[str], count: int) -> list[Float] | None:
    """The rows of an answer in the order of `names`; None if one of them is a fault."""
    out = []
    for name in names:
        found = answer.gradients.get(name, np.zeros((count, 0)))
        if isinstance(found, Finding):
            return None
        out.append(found)
    return out
