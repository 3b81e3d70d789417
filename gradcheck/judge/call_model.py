"""Calls of a model's gradients, its loss or one stage's VJP, with checks of what they return."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, Final

import numpy as np

from gradcheck.errors import UnknownNameError, Unsupported
from gradcheck.implementations import checked_call, returned
from gradcheck.implementations.bound import BoundModel
from gradcheck.implementations.checked_call import (
    CheckedCall,
    attempt,
    differs,
    guarded,
    mutated,
    steady,
)
from gradcheck.implementations.returned import Broken, broken
from gradcheck.numerics.arithmetic import F64
from gradcheck.numerics.arrays import Array, Float, is_float
from gradcheck.results.finding import Finding, Part
from gradcheck.results.verdict import Verdict
from gradcheck.results.words import plural
from gradcheck.spec.model import ModelCase
from gradcheck.spec.program import Program, Stage, StageVjp, Values

GivenGradient = Float | Finding
"""A gradient as a row [1, n], or the fault found in its form."""
GRADIENTS: Final = "gradients"
MAX_UNKNOWN_NAMES: Final = 5
"""Unknown names with a line each; the others are counted."""


def ask_gradients(
    gradients: Callable[[Values, Values], Mapping[str, Any]],
    case: ModelCase,
    params: Values,
    inputs: Values,
) -> dict[str, GivenGradient]:
    """Call `gradients` twice and look at what came back, by name: a row [1, n], or what is wrong.

    `params` and `inputs` are in the working dtype; they are passed as read-only copies. There is
    an entry for every floating parameter (MISSING, if it was not returned), for every other value
    whose cotangent was returned, and for unknown names.

    Raises:
        Broken: the call as a whole broke its contract: it raised, returned no mapping, wrote into
            its arguments, or gave other bits the second time; or it says that it lacks this.
    """
    asked = steady(GRADIENTS, gradients)
    with _findings_named(GRADIENTS, Part.GRADIENT):
        first, again = (_returned(asked, params, inputs) for _ in range(2))
        if _differ(first, again):
            raise broken(GRADIENTS, _not_deterministic(GRADIENTS))
    found = _of_params(first, params)
    others = {
        name: entry
        for name, entry in first.items()
        if name not in found and entry.get("", 0) is not None
    }
    if others:
        patterns = _patterns(case, [*params.values(), *inputs.values()])
        known = {name: entry for name, entry in others.items() if name in patterns}
        for name, entry in known.items():
            like = patterns[name]
            found[name] = _index(name) if like is None else _summed(name, entry, like)
        strangers = [name for name in others if name not in known]
        found.update(_unknown_names(strangers, found, case.program))
    return found


def read_gradients(
    gradients: Callable[[Values, Values], Mapping[str, Any]], params: Values, inputs: Values
) -> dict[str, GivenGradient]:
    """Call `gradients` once: for every floating parameter a row [1, n], or what is wrong with it.

    Raises:
        Broken: as for `ask_gradients`, but for what only a second call shows.
    """
    with _findings_named(GRADIENTS, Part.GRADIENT):
        return _of_params(_returned(gradients, params, inputs), params)


def ask_loss(loss: Callable[[Values, Values], Any], params: Values, inputs: Values) -> float:
    """Call `loss` twice: its value.

    Raises:
        Broken: it raised, returned no finite number, wrote into its arguments, or is not
            deterministic; or it says that it lacks this.
    """
    asked = steady("loss", loss)
    with _findings_named("loss", Part.VALUE):
        first, again = (_called("loss", asked, params, inputs) for _ in range(2))
        found, repeated = returned.as_array(first), returned.as_array(again)
        if found is None or found.size != 1:
            what = type(first).__name__ if found is None else f"array of shape {found.shape}"
            raise broken("loss", f"loss returned {what}; return one number")
        if checked_call.differs([found], [repeated]):
            raise broken("loss", _not_deterministic("loss"))
        value = float(found.reshape(()))
        if not np.isfinite(value):
            reason = f"the loss is {value}, and the model's is finite here; look at the forward"
            raise broken("loss", reason, Verdict.FAIL)
    return value


def ask_stage(
    vjp: StageVjp, stage: Stage, cts: tuple[Array, ...], values: Values
) -> tuple[Any, ...]:
    """Call one stage's VJP twice for one cotangent.

    The answer has an entry per value that the stage reads: an array in the form of the value, a
    finding of what is wrong with it, or None for an index. `values` are all of the program's.

    Raises:
        Broken: the call as a whole broke its contract, or it says that it lacks this; the finding
            bears the stage's name.
    """
    role = role_of(stage)
    with _findings_named(stage.name, Part.STAGE):
        first, again = (_answered(role, vjp, stage, cts, values) for _ in range(2))
        bits = ([returned.as_array(g) for g in row] for row in (first, again))
        if checked_call.differs(*bits):
            raise broken(role, _not_deterministic(role))
    shares: list[Any] = []
    for name, gradient in zip(stage.reads, first, strict=True):
        floats = is_float(values[name].dtype)
        fault = returned.fault(gradient, values[name], name, role=role) if floats else None
        shares.append((gradient if fault is None else fault) if floats else None)
    return tuple(shares)


def stage_of(bound: BoundModel, stage: Stage) -> StageVjp | None:
    """The implementation of one stage's VJP, if there is one.

    Raises:
        Broken: finding it raised, or it says that it lacks this; the finding bears the stage's
            name.
    """
    role = role_of(stage)
    with _findings_named(stage.name, Part.STAGE):
        vjp = attempt(role, lambda: bound.stage(stage))
    return None if vjp is None else steady(role, vjp)


def role_of(stage: Stage) -> str:
    """The name of a stage's VJP in messages."""
    return f"the VJP of {stage.name}"


@contextmanager
def _findings_named(name: str, part: Part) -> Iterator[None]:
    """Give a name and a part of the model to findings about a call as a whole."""
    try:
        yield
    except Unsupported as error:
        finding = Finding(name=name, verdict=Verdict.UNSUPPORTED, reason=str(error), part=part)
        raise Broken(finding) from error
    except Broken as error:
        raise Broken(replace(error.finding, name=name, part=part)) from error


def _answered(
    role: str, vjp: StageVjp, stage: Stage, cts: tuple[Array, ...], values: Values
) -> tuple[Any, ...]:
    saved, cotangents = _Saved(values), guarded(cts)
    out = attempt(role, lambda: vjp(stage, cotangents, saved))
    if mutated(cts, cotangents, stage.outputs) is not None:
        raise broken(role, f"{role} writes into its cotangent; copy first")
    changed = saved.mutated()
    if changed is not None:
        raise broken(role, f"{role} writes into the saved value {changed}; copy first")
    parts = attempt(role, lambda: returned.gradients(out, stage.reads, role=role))
    return tuple(_copied(g) for g in parts)


class _Saved(Mapping[str, Array]):
    """Saved values as read-only copies, each made on first use."""

    def __init__(self, values: Values) -> None:
        self._values = values
        self._copies: dict[str, Array] = {}

    def __getitem__(self, name: str) -> Array:
        if name not in self._values:
            raise KeyError(str(UnknownNameError("value", str(name), self._values)))
        if name not in self._copies:
            (self._copies[name],) = guarded([self._values[name]])
        return self._copies[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def mutated(self) -> str | None:
        """The first value that was written into."""
        names = list(self._copies)
        return mutated([self._values[n] for n in names], [*self._copies.values()], names)


def _called(
    role: str, function: Callable[[Values, Values], Any], params: Values, inputs: Values
) -> Any:
    """One call with dicts of read-only copies; a mapping returned becomes a dict."""
    names, arrays = [*params, *inputs], [*params.values(), *inputs.values()]

    def shaped(*copies: Array) -> Any:
        out = function(
            dict(zip(params, copies[: len(params)], strict=True)),
            dict(zip(inputs, copies[len(params) :], strict=True)),
        )
        return dict(out) if isinstance(out, Mapping) else out

    return CheckedCall(role, shaped)((), arrays, names, {})


def _returned(
    gradients: Callable[[Values, Values], Any], params: Values, inputs: Values
) -> dict[Any, dict[str, Any]]:
    """Per returned name its buffers, by their own names; a bare array is named ''."""
    out = _called(GRADIENTS, gradients, params, inputs)
    if not isinstance(out, dict):
        what = "None" if out is None else f"a {type(out).__name__}"
        raise broken(
            GRADIENTS, f"gradients returned {what}; return a dict from parameter names to arrays"
        )
    found: dict[Any, dict[str, Any]] = attempt(  # what holds buffers may be of its own making
        GRADIENTS, lambda: {name: _buffers(entry) for name, entry in out.items()}
    )
    return found


def _of_params(made: Mapping[Any, Mapping[str, Any]], params: Values) -> dict[str, GivenGradient]:
    floating = {name: value for name, value in params.items() if is_float(value.dtype)}
    return {name: _summed(name, made.get(name), like) for name, like in floating.items()}


def _patterns(case: ModelCase, like: Sequence[Array]) -> dict[Any, Array | None]:
    """The form of every value of the program, in the working dtype of `like`; None: an index."""
    dtype = next((a.dtype for a in like if is_float(a.dtype)), np.dtype(np.float64))
    with np.errstate(all="ignore"):
        values = case.program.forward(F64, case.given)
    return {
        name: np.broadcast_to(np.zeros((), dtype), value.shape) if is_float(value.dtype) else None
        for name, value in values.items()
    }


def _index(name: str) -> Finding:
    reason = f"gradients returned {name!r}, which is an index: it has no gradient"
    return Finding(name=name, verdict=Verdict.ERROR, reason=reason)


def _buffers(entry: Any) -> dict[str, Any]:
    if isinstance(entry, Mapping):
        return {f"{name!r}": _copied(part) for name, part in entry.items()}
    if isinstance(entry, (tuple, list)):
        return {f"{i} of {len(entry)}": _copied(part) for i, part in enumerate(entry, 1)}
    return {"": _copied(entry)}


def _copied(gradient: Any) -> Any:
    array = returned.as_array(gradient)
    return gradient if array is None else np.array(array)


def _differ(first: Mapping[Any, Mapping[str, Any]], again: Mapping[Any, Mapping[str, Any]]) -> bool:
    """Whether two calls gave other names, buffers or bits; the order of a dict is free."""
    if {n: [*first[n]] for n in first} != {n: [*again[n]] for n in again}:
        return True
    pairs = [(part, again[n][own]) for n, parts in first.items() for own, part in parts.items()]
    bits = [[returned.as_array(part) for part in parts] for parts in zip(*pairs, strict=True)]
    return differs(*bits) if bits else False


def _summed(name: str, buffers: Mapping[str, Any] | None, pattern: Array) -> GivenGradient:
    """The sum of a gradient's buffers as a row [1, n], or the fault of the first bad one."""
    if not buffers:
        what = "did not return it" if buffers is None else "returned no buffer of it"
        reason = f"no gradient for {name}: gradients {what}"
        return Finding(name=name, verdict=Verdict.MISSING, reason=reason)
    total = np.zeros((1, pattern.size))
    for own, part in buffers.items():
        fault = returned.fault(part, pattern, name, role=GRADIENTS)
        if fault is not None:
            of = f" (buffer {own})" if own and own != repr(name) else ""
            return replace(fault, reason=fault.reason + of)
        total += np.asarray(part, dtype=np.float64).reshape(1, -1)
    return total


def _unknown_names(
    names: Sequence[Any], found: Mapping[str, GivenGradient], program: Program
) -> Iterator[tuple[str, Finding]]:
    known = sorted({*program.readers, program.loss})
    lacking = [name for name in known if name not in found or _missing(found[name])]
    for name in names[:MAX_UNKNOWN_NAMES]:
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
    if len(names) > MAX_UNKNOWN_NAMES:
        reason = (
            f"gradients returned {plural(len(names) - MAX_UNKNOWN_NAMES, 'more name')} that the "
            "model does not have"
        )
        yield "…", Finding(name="…", verdict=Verdict.ERROR, reason=reason)


def _missing(asked: GivenGradient) -> bool:
    return isinstance(asked, Finding) and asked.verdict is Verdict.MISSING


def _not_deterministic(role: str) -> str:
    return (
        f"{role} is not deterministic: the same arguments gave other bits. Look for a gradient "
        "that is added to from call to call and never zeroed, or a random generator"
    )
