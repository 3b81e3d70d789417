"""Asking foreign code for a model's gradients, its loss or one stage's VJP, contracts included."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from gradcheck.arithmetic import is_float
from gradcheck.contract import determinism, purity, returned
from gradcheck.contract.returned import Broken, broken
from gradcheck.errors import UnknownNameError
from gradcheck.finding import Finding, Part
from gradcheck.judge.probe import attempt, guarded_call
from gradcheck.model import Program, Stage, StageVjp, Values
from gradcheck.spec import Array
from gradcheck.verdict import Verdict

Float = NDArray[np.float64]
Asked = Float | Finding
"""A gradient as one row per cotangent, or what is wrong with its form."""

GRADIENTS: Final = "gradients"
STRANGERS: Final = 5
"""Unknown names that get a line each; what is more is counted."""


def ask_gradients(
    gradients: Callable[[Values, Values], Mapping[str, Any]], program: Program, values: Values
) -> dict[str, Asked]:
    """Call `gradients` twice and look at what came back, by name: a row [1, n], or what is wrong.

    `values` are all of the program's in the working dtype; parameters and inputs are passed as
    read-only copies. There is an entry for every floating parameter (MISSING, if it was not
    returned), for every other value whose cotangent was returned, and for unknown names.

    Raises:
        Broken: the call as a whole broke its contract: it raised, returned no mapping, wrote into
            its arguments, or gave other bits the second time.
        Unsupported: the code says that it lacks this.
    """
    try:
        first, again = (_returned(gradients, program, values) for _ in range(2))
        if _differ(first, again):
            raise broken(GRADIENTS, _unsteady(GRADIENTS))
    except Broken as error:
        raise _relabelled(error, GRADIENTS, Part.GRADIENT) from error
    found: dict[str, Asked] = {}
    for name in program.params:
        if is_float(values[name].dtype):
            found[name] = _summed(name, first.get(name), values[name])
    strangers = []
    for name, entry in first.items():
        if name in found or entry.get("", 0) is None:
            continue
        if name not in values:
            strangers.append(name)
        elif is_float(values[name].dtype):
            found[name] = _summed(name, entry, values[name])
        else:
            reason = f"gradients returned {name!r}, which is an index: it has no gradient"
            found[name] = Finding(name=name, verdict=Verdict.ERROR, reason=reason)
    found.update(_strange(strangers, found, program))
    return found


def ask_loss(
    loss: Callable[[Values, Values], Any], program: Program, values: Values
) -> Float | Finding:
    """Call `loss` twice: its value as a row [1, 1], or a finding that it is no finite number.

    Raises:
        Broken: it raised, returned no number, wrote into its arguments, or is not deterministic.
        Unsupported: the code says that it lacks this.
    """
    try:
        first, again = (_called("loss", loss, program, values) for _ in range(2))
        found, repeated = returned.as_array(first), returned.as_array(again)
        if found is None or found.size != 1:
            what = type(first).__name__ if found is None else f"array of shape {found.shape}"
            raise broken("loss", f"loss returned a {what}; return one number")
        if determinism.differs([found], [repeated]):
            raise broken("loss", _unsteady("loss"))
    except Broken as error:
        raise _relabelled(error, "loss", Part.VALUE) from error
    row = np.asarray(found, dtype=np.float64).reshape(1, 1)
    if not np.isfinite(row).all():
        reason = f"the loss is {row[0, 0]}; the model's is finite here, look at the forward pass"
        return Finding(name="loss", verdict=Verdict.FAIL, reason=reason, part=Part.VALUE)
    return row


def ask_stage(
    vjp: StageVjp, stage: Stage, cts: Sequence[tuple[Array, ...]], values: Values
) -> tuple[Asked | None, ...]:
    """Call one stage's VJP once per cotangent, the first one twice.

    The answer has an entry per value that the stage reads: rows [q, n], what is wrong, or None for
    an index. `values` are all of the program's, in the working dtype.

    Raises:
        Broken: the call as a whole broke its contract; the finding bears the stage's name.
        Unsupported: the code says that it lacks this.
    """
    role = f"the VJP of {stage.name}"
    try:
        rows = [_answered(role, vjp, stage, ct, values) for ct in cts]
        again = _answered(role, vjp, stage, cts[0], values)
        bits = [[returned.as_array(g) for g in row] for row in (rows[0], again)]
        if determinism.differs(*bits):
            raise broken(role, _unsteady(role))
    except Broken as error:
        raise _relabelled(error, stage.name, Part.STAGE) from error
    answers: list[Asked | None] = []
    for name, *column in zip(stage.reads, *rows, strict=True):
        if not is_float(values[name].dtype):
            answers.append(None)
            continue
        faults = (returned.fault(g, values[name], name, role=role) for g in column)
        fault = next((f for f in faults if f is not None), None)
        if fault is not None:
            answers.append(replace(fault, name=stage.name, part=Part.STAGE))
        else:
            answers.append(np.stack([np.asarray(g, np.float64).reshape(-1) for g in column]))
    return tuple(answers)


def _answered(
    role: str, vjp: StageVjp, stage: Stage, ct: tuple[Array, ...], values: Values
) -> tuple[Any, ...]:
    saved, cotangents = _Saved(values), purity.guarded(ct)
    out = attempt(role, lambda: vjp(stage, cotangents, saved))
    if purity.mutated(ct, cotangents, stage.outputs) is not None:
        raise broken(role, f"{role} writes into its cotangent; copy first")
    changed = saved.mutated()
    if changed is not None:
        raise broken(role, f"{role} writes into the saved value {changed}; copy first")
    return tuple(_copied(g) for g in returned.gradients(out, stage.reads, role=role))


class _Saved(Mapping[str, Array]):
    """Saved values as read-only copies, each made when it is first asked for."""

    def __init__(self, values: Values) -> None:
        self._values = values
        self._copies: dict[str, Array] = {}

    def __getitem__(self, name: str) -> Array:
        if name not in self._values:
            raise KeyError(str(UnknownNameError("value", str(name), self._values)))
        if name not in self._copies:
            (self._copies[name],) = purity.guarded([self._values[name]])
        return self._copies[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def mutated(self) -> str | None:
        """The first value that was written into."""
        names = list(self._copies)
        return purity.mutated([self._values[n] for n in names], [*self._copies.values()], names)


def _called(
    role: str, function: Callable[[Values, Values], Any], program: Program, values: Values
) -> Any:
    """One call with dicts of read-only copies."""
    names = [*program.params, *program.inputs]

    def shaped(*arrays: Array) -> Any:
        given = dict(zip(names, arrays, strict=True))
        out = function({n: given[n] for n in program.params}, {n: given[n] for n in program.inputs})
        return dict(out) if isinstance(out, Mapping) else out

    return guarded_call(role, shaped, (), [values[name] for name in names], names, {})


def _returned(
    gradients: Callable[[Values, Values], Any], program: Program, values: Values
) -> dict[Any, dict[str, Any]]:
    """Per name returned, its buffers by their own names; a bare array is called ''."""
    out = _called(GRADIENTS, gradients, program, values)
    if not isinstance(out, dict):
        what = "None" if out is None else f"a {type(out).__name__}"
        raise broken(
            GRADIENTS, f"gradients returned {what}; return a dict from parameter names to arrays"
        )
    return {name: _buffers(entry) for name, entry in out.items()}


def _buffers(entry: Any) -> dict[str, Any]:
    if isinstance(entry, Mapping):
        return {f"{name!r}": _copied(part) for name, part in entry.items()}
    if isinstance(entry, (tuple, list)):
        return {f"{i} of {len(entry)}": _copied(part) for i, part in enumerate(entry, 1)}
    return {"": _copied(entry)}


def _copied(gradient: Any) -> Any:
    """A copy: it may be a view of an argument, or of a buffer that the next call reuses."""
    array = returned.as_array(gradient)
    return gradient if array is None else np.array(array)


def _differ(first: Mapping[Any, Mapping[str, Any]], again: Mapping[Any, Mapping[str, Any]]) -> bool:
    """Whether two calls gave other names, buffers or bits; the order of a dict is free."""
    if {n: [*first[n]] for n in first} != {n: [*again[n]] for n in again}:
        return True
    pairs = [(part, again[n][own]) for n, parts in first.items() for own, part in parts.items()]
    bits = [[returned.as_array(part) for part in parts] for parts in zip(*pairs, strict=True)]
    return determinism.differs(*bits) if bits else False


def _summed(name: str, buffers: Mapping[str, Any] | None, pattern: Array) -> Asked:
    """The sum of a gradient's buffers as a row [1, n], or what is wrong with the first bad one."""
    if not buffers:
        reason = f"no gradient for {name}: gradients did not return it"
        return Finding(name=name, verdict=Verdict.MISSING, reason=reason)
    total = np.zeros((1, pattern.size))
    for own, part in buffers.items():
        fault = returned.fault(part, pattern, name, role=GRADIENTS)
        if fault is not None:
            of = f" (buffer {own})" if own and own != repr(name) else ""
            return replace(fault, reason=fault.reason + of)
        total += np.asarray(part, dtype=np.float64).reshape(1, -1)
    return total


def _strange(
    names: Sequence[Any], found: Mapping[str, Asked], program: Program
) -> Iterator[tuple[str, Finding]]:
    """A line for each name that the model does not have."""
    known = sorted({*program.readers, program.loss})
    lacking = [name for name in known if name not in found or _missing(found[name])]
    for name in names[:STRANGERS]:
        near = difflib.get_close_matches(str(name), lacking, n=1)
        if near:
            hint = f"did you mean {near[0]!r}?"
        elif program.tied:
            tied = ", ".join(sorted(program.tied))
            hint = f"is it a buffer of a tied weight ({tied})? Bind all of its buffers"
        else:
            hint = "leave it out"
        reason = f"gradients returned {name!r}, and the model has no such value; {hint}"
        yield str(name), Finding(name=str(name), verdict=Verdict.ERROR, reason=reason)
    if len(names) > STRANGERS:
        reason = f"gradients returned {len(names) - STRANGERS} more names that the model has not"
        yield "…", Finding(name="…", verdict=Verdict.ERROR, reason=reason)


def _missing(asked: Asked) -> bool:
    return isinstance(asked, Finding) and asked.verdict is Verdict.MISSING


def _unsteady(role: str) -> str:
    return (
        f"{role} is not deterministic: the same arguments gave other bits. Look for a gradient "
        "that is added to from call to call and never zeroed, or a random generator"
    )


def _relabelled(error: Broken, name: str, part: Part) -> Broken:
    return Broken(replace(error.finding, name=name, part=part))
