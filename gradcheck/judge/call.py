"""Calls of the code judged: read-only arguments, and checks of what it returns."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, TypeVar

import numpy as np
from numpy.typing import NDArray

from gradcheck.errors import Unsupported, text_of
from gradcheck.implementations import returned
from gradcheck.implementations.returned import Broken, broken, is_ours, overwrites
from gradcheck.judge.contract import determinism, purity
from gradcheck.judge.cotangents import Cotangents
from gradcheck.numerics.arrays import Attrs
from gradcheck.numerics.dtypes import is_float
from gradcheck.results.finding import Finding

Array = NDArray[Any]
Float = NDArray[np.float64]
T = TypeVar("T")
MAX_EXTRA_ELEMENTS: Final = 1 << 20
"""A gradient of a wrong shape is refused before it is copied, if it is so much larger."""
LEADING_ARGUMENT: Final = {"jvp": "us", "double_vjp": "ggs"}
"""The name of the first argument of a role in messages, if it is not the cotangent `ct`."""
RowsAt = Callable[[tuple[Array, ...], str], list[Float] | None]
"""Gradients at given primals in a dtype: rows [q, n] per primal; None where the code refuses."""


@dataclass(frozen=True, slots=True)
class Answer:
    """The result of a VJP: per floating primal its gradients as rows [q, n], or the fault found."""

    gradients: dict[str, NDArray[np.float64] | Finding]


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
    called = _Called(steady(role, vjp), role, primals, names, attrs)
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

    called = _Called(steady("jvp", shaped), "jvp", primals, names, attrs)
    return called.answer(tangents, outputs, "tangent", "output")


@dataclass(frozen=True, slots=True)
class _Called:
    """A derivative that is judged, with the arguments that follow its first one."""

    function: Callable[..., Any]
    role: str
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
        if determinism.differs(first, [returned.as_array(g) for g in again]):
            raise broken(
                self.role,
                f"{self.role} is not deterministic: the same arguments gave other bits. "
                "Look for a buffer or a random generator that lives from call to call",
                label="C",
                says=f"{self.role} gives other bits for the same arguments",
            )
        answers: dict[str, NDArray[np.float64] | Finding] = {}
        for i, (name, pattern) in enumerate(like.items()):
            if not is_float(pattern.dtype):
                continue
            faults = [
                returned.fault(row[i], pattern, name, role=self.role, gives=gives) for row in rows
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
        out = guarded_call(self.role, self.function, lead, self.primals, self.names, self.attrs)
        named = partial(returned.gradients, role=self.role, gives=gives, of=of)
        parts = attempt(self.role, lambda: named(out, list(like)))  # a tuple of its own making
        for name, gradient in zip(like, parts, strict=True):
            self._refuse_vast(gradient, like[name], name, gives)
        # Copies: a gradient may be a view of an argument, or of a buffer that the next call reuses.
        return tuple(g if (a := returned.as_array(g)) is None else np.array(a) for g in parts)

    def _refuse_vast(self, gradient: Any, pattern: Array, name: str, gives: str) -> None:
        """Refuse a gradient that may be a broadcast view larger than all memory."""
        array = returned.as_array(gradient)
        if array is not None and array.size > pattern.size + MAX_EXTRA_ELEMENTS:
            fault = returned.fault(gradient, pattern, name, role=self.role, gives=gives)
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
    asked = steady("forward", forward)
    first, second = (_outputs(asked, primals, names, attrs) for _ in range(2))
    if determinism.differs(first, second):
        raise broken(
            "forward",
            "forward is not deterministic: the same arguments gave other values. "
            "Freeze its seed, or pass its random mask as an argument",
        )
    return first


def _outputs(
    forward: Callable[..., Any], primals: Sequence[Array], names: Sequence[str], attrs: Attrs
) -> tuple[Array, ...]:
    out = guarded_call("forward", forward, (), primals, names, attrs)
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


def guarded_call(
    role: str,
    function: Callable[..., Any],
    ct: tuple[Array, ...],
    primals: Sequence[Array],
    names: Sequence[str],
    attrs: Attrs,
) -> Any:
    """Call a function on read-only copies; any exception becomes a broken contract."""
    copies, cotangents = purity.guarded(primals), purity.guarded(ct)
    leading = () if not ct else (cotangents[0] if len(ct) == 1 else cotangents,)
    out = attempt(role, lambda: function(*leading, *copies, **attrs))
    lead = LEADING_ARGUMENT.get(role, "ct")
    changed = purity.mutated((*ct, *primals), (*cotangents, *copies), (*(lead,) * len(ct), *names))
    if changed is not None:
        raise overwrites(role, f"{role} writes into its argument {changed}; copy first")
    return out


def steady(role: str, function: Callable[..., Any]) -> Callable[..., Any]:
    """The same function, for the calls of one case: after an answer, Unsupported is an error.

    A function may lack shapes, dtypes and attributes, not numbers: a gradient that is wrong
    somewhere could otherwise escape as not supported there.
    """
    answered = False

    def steadily(*args: Any, **options: Any) -> Any:
        nonlocal answered
        try:
            found = function(*args, **options)
        except Unsupported as error:
            if not answered:
                raise
            raise broken(
                role,
                f"{role} raised {_one_line(error)}; it had answered another call of this case: "
                "decide by shapes, dtype and attributes, at the first call",
            ) from error
        answered = True
        return found

    return steadily


def bound_by(bind: Callable[[], T], name: str = "vjp") -> T:
    """Run the binding code of an implementation, which may raise anything.

    `name` is the name of the finding if it fails.

    Raises:
        Broken, Unsupported: as `attempt` does.
    """
    found: T = attempt("binding it", bind, name)
    return found


def attempt(role: str, call: Callable[[], Any], name: str = "") -> Any:
    """Make one call of foreign code; messages call it `role`, the finding `name` or `role`.

    Raises:
        Broken: it raised anything, a `Broken` of its own included.
        Unsupported: the code lacks this feature.
    """
    try:
        with np.errstate(all="ignore"):
            return call()
    except (Unsupported, KeyboardInterrupt):
        raise
    except BaseException as error:  # SystemExit too: foreign code must not end the run
        if isinstance(error, Broken) and is_ours(error):
            raise
        if purity.is_write(error):
            why = f"{role} writes into its arguments ({text_of(error)}); copy first"
            raise overwrites(role, why) from error
        raise broken(name or role, f"{role} raised {_one_line(error)}") from error


def _one_line(error: BaseException) -> str:
    return f"{type(error).__name__}: {text_of(error) or 'no message'}"


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
