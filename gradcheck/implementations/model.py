"""A user's whole-model backward pass: an entry of a table that is named like a model.

An entry has `gradients(params, inputs, **dims)`, or `stages`, or both; or it is a class, or another
callable, that makes a PyTorch module.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from fnmatch import fnmatchcase
from typing import Any

from gradcheck.errors import LoadError, UnknownNameError, Unsupported
from gradcheck.implementations import returned
from gradcheck.implementations.bound import Bound, BoundModel
from gradcheck.implementations.user_functions import dimensions, member, method, takes
from gradcheck.numerics.arithmetic import FLOATS
from gradcheck.numerics.arrays import Attrs
from gradcheck.spec.model import ModelCase, ModelSpec
from gradcheck.spec.program import Stage, StageVjp, Values

Operator = Callable[[Any, Attrs, Attrs], Bound]
"""`(entry, attrs, fixed)` → an operator-like entry, bound for these attributes."""


def is_module(entry: Any) -> bool:
    """Whether an entry is a PyTorch module or a class of them; PyTorch is not imported for it."""
    return callable(getattr(entry, "named_parameters", None))


def says_how(entry: Any) -> bool:
    """Whether an entry gives a model's gradients or stages itself."""
    return method(entry, "gradients") is not None or member(entry, "stages") is not None


def fault(entry: Any) -> str:
    """What is wrong with the form of a model's entry; empty if nothing is."""
    if is_module(entry) and not isinstance(entry, type):
        return (
            "is a module of one size; give its class, or a function that makes one from "
            "the model's dimensions"
        )
    if not says_how(entry):
        if "params" in ((takes(entry) if callable(entry) else None) or ()):
            return "is a function of `params`; bind it as {'gradients': function}"
        if callable(entry):
            return ""
        return (
            "has neither `gradients` nor `stages`; give it gradients(params, inputs, **dims) "
            "that returns a dict, stages={glob: entry}, or a torch.nn.Module class"
        )
    stages = member(entry, "stages")
    if stages is not None and not isinstance(stages, Mapping):
        return f"has stages that are a {type(stages).__name__}; make them a dict from globs"
    for glob, stage in (stages or {}).items():
        if not any(method(stage, name) for name in ("vjp", "backward", "forward")):
            return (
                f"has stages[{glob!r}], a {type(stage).__name__} without a callable `vjp`; give it "
                "vjp(ct, *primals, **attrs), or backward(ct, values, stage)"
            )
    return _buffers_fault(member(entry, "buffers"))


def _buffers_fault(buffers: Any) -> str:
    if buffers is not None and not isinstance(buffers, Mapping):
        return f"has buffers that are a {type(buffers).__name__}; make them a dict of tuples"
    for name, theirs in (buffers or {}).items():
        names = _tuple(theirs)
        if not names or not all(isinstance(their, str) for their in names):
            return f"has buffers[{name!r}] = {theirs!r}; make it a tuple of the dict's own names"
    return ""


def refuse_misspelt(where: str, entry: Any, spec: ModelSpec) -> None:
    """A glob or a name that matches nothing at any size would silently bind nothing.

    Raises:
        LoadError: there is one in the entry's `stages` or `buffers`.
    """
    globs, buffers = (member(entry, name) or {} for name in ("stages", "buffers"))
    if is_module(entry) or not (globs or buffers):
        return
    stages: dict[str, None] = {}
    values: dict[str, None] = {}
    for dialect in spec.dialects:
        for size in spec.sizes:
            program = spec.build(**{**spec.defaults, **dialect.attrs, **size.attrs})
            stages.update(dict.fromkeys(s.name for s in program.stages))
            written = (name for s in program.stages for name in s.outputs)
            values.update(dict.fromkeys((*program.params, *program.inputs, *written)))
    for kind, names, known in (("stage", globs, stages), ("parameter", buffers, values)):
        for name in names:
            if not any(fnmatchcase(other, str(name)) for other in known):
                raise LoadError(f"{where}: {UnknownNameError(kind, str(name), known)}")


def bound_model(
    entry: Any, case: ModelCase, dtype: str, fixed: Attrs, operator: Operator
) -> BoundModel:
    """What an entry makes of a model; `fixed` are the dimensions that its code may have fixed.

    Raises:
        Unsupported: the case wants another value of a dimension, or another dtype.
    """
    if dtype not in FLOATS:
        raise Unsupported("models are judged in float64 and float32")
    if is_module(entry) or not says_how(entry):
        from gradcheck.implementations.torch import bound_module  # the entry has imported PyTorch

        return bound_module(entry, case, dtype, fixed)
    return BoundModel(
        gradients=_gradients(entry, case, fixed),
        loss=_loss(entry, case, fixed),
        stage=lambda stage: _stage(member(entry, "stages") or {}, stage, operator),
    )


def _gradients(
    entry: Any, case: ModelCase, fixed: Attrs
) -> Callable[[Values, Values], Mapping[str, Any]] | None:
    function = method(entry, "gradients")
    if function is None:
        return None
    dims = dimensions(function, "gradients", case, fixed)
    buffers = {name: _tuple(theirs) for name, theirs in (member(entry, "buffers") or {}).items()}

    def gradients(params: Values, inputs: Values) -> Any:
        found = function(params, inputs, **dims)
        return _by_our_names(found, buffers) if isinstance(found, Mapping) else found

    return gradients


def _by_our_names(
    found: Mapping[str, Any], buffers: Mapping[str, tuple[str, ...]]
) -> dict[str, Any]:
    """Gradients by the model's names: for each name in `buffers`, its buffers by their own."""
    used = {their for theirs in buffers.values() for their in theirs}
    ours = {name: gradient for name, gradient in found.items() if name not in used}
    for name, theirs in buffers.items():
        ours[name] = {their: found.get(their) for their in theirs}
    return ours


def _loss(entry: Any, case: ModelCase, fixed: Attrs) -> Callable[[Values, Values], Any] | None:
    function = method(entry, "loss")
    if function is None:
        return None
    dims = dimensions(function, "loss", case, fixed)
    return lambda params, inputs: function(params, inputs, **dims)


def _stage(stages: Mapping[str, Any], stage: Stage, operator: Operator) -> StageVjp | None:
    """The first entry whose glob matches the stage's name, as a VJP of the stage."""
    entry = next((e for glob, e in stages.items() if fnmatchcase(stage.name, str(glob))), None)
    if entry is None:
        return None
    backward = method(entry, "backward")

    def vjp(stage: Stage, cts: tuple[Any, ...], values: Values) -> tuple[Any, ...]:
        ct = cts[0] if len(cts) == 1 else cts
        if backward is not None:
            found = backward(ct, values, stage)
            return returned.gradients(found, stage.reads, role="backward")
        bound = operator(entry, stage.all_attrs, stage.op.defaults)
        found = bound.vjp(ct, *(values[name] for name in stage.reads), **bound.attrs)
        return returned.gradients(found, stage.reads)

    return vjp


def _tuple(names: Any) -> tuple[Any, ...]:
    if isinstance(names, str):
        return (names,)
    return tuple(names) if isinstance(names, Iterable) else (names,)
