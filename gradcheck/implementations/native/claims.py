"""Which cases an operation of a manifest claims to do."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from typing import Final

from gradcheck.errors import Unsupported
from gradcheck.implementations.manifest.expression import COTANGENT, Context, names_in
from gradcheck.implementations.manifest.operation import (
    NativeLibrary,
    Operation,
    RoleKind,
    expressions,
    functions,
    roles,
)
from gradcheck.implementations.native.plan import Setting
from gradcheck.spec.suite import Case

MENTION: Final = re.compile(rf"\b{COTANGENT}\b")
OF_SHAPE: Final = re.compile(rf"\b(dim|dims|ndim|size|rows)\(\s*{COTANGENT}\b")


def operation_for(library: NativeLibrary, case: Case, dtype: str) -> Operation | None:
    """The operation for `op/dialect`, else for `op`; None if the library has neither.

    Raises:
        Unsupported: it has it in other dtypes alone.
    """
    exact = f"{case.spec.name}/{case.dialect.name}"
    for key in (exact, case.spec.name):
        has = [kind for name, kind in library.operations if name == key]
        if dtype in has:
            return library.operations[key, dtype]
        if has:
            # Without the operator's name: reports say the same reason once, for all of them.
            raise Unsupported(f"{library.name} has it in {' and '.join(has)}, not in {dtype}")
    return None


def refuse_unfit(operation: Operation, setting: Setting, case: Case, most: int | None) -> None:
    """Refuse a case that the code does not claim to do; `most` elements is its largest tensor.

    Raises:
        Unsupported: another value of an attribute than the code's, a size that it does not take,
            a primal that it does not know, an output without a cotangent.
        ManifestError: a condition cannot be evaluated.
    """
    _refuse_attributes(operation, setting)
    _refuse_primals(operation, setting, case)
    _refuse_cotangents(operation, setting)
    shapes = [*(primal.shape for primal in setting.primals.values()), *setting.outputs]
    largest = max(map(math.prod, shapes), default=0)
    if most is not None and largest > most:
        raise Unsupported(f"a tensor has {largest} elements; the code takes {most} at most")
    _refuse_conditions(operation, setting)


def by_value(operation: Operation) -> bool:
    """Whether an expression reads the cotangent's value, not only its shape: a loss's."""
    return any(MENTION.search(OF_SHAPE.sub("", text)) for text in _expressions(operation))


def _refuse_attributes(operation: Operation, setting: Setting) -> None:
    for name, value in setting.attrs.items():
        if name in operation.attrs and value != operation.attrs[name]:
            fixed = operation.attrs[name]
            raise Unsupported(f"its code has {name}={fixed!r}; this case wants {value!r}")


def _refuse_primals(operation: Operation, setting: Setting, case: Case) -> None:
    known = {role.name for function in functions(operation) for role in roles(function)}
    known |= {*operation.missing}
    for text in _expressions(operation):
        known |= names_in(text).tensors | names_in(text).others
    for name in setting.primals:
        if name not in known:
            raise Unsupported(
                f"no parameter is the primal {name}, which dialect {case.dialect.name} has; bind "
                f"`in:{name}` or `grad:{name}`"
            )


def _refuse_cotangents(operation: Operation, setting: Setting) -> None:
    if operation.vjp is None:
        return
    bound = {r.index for r in roles(operation.vjp) if r.kind is RoleKind.COTANGENT}
    bound |= {0} if by_value(operation) else set()
    scalar = [math.prod(shape) for shape in setting.outputs] == [1]
    lacking = [i for i in range(len(setting.outputs)) if i not in bound]
    if lacking and not (scalar and not bound):
        symbol = operation.vjp.prototype.symbol
        which = f"output {lacking[0]}" if len(setting.outputs) > 1 else "the output"
        shape = setting.outputs[lacking[0]]
        raise Unsupported(
            f"{symbol} takes no cotangent of {which}, of shape {shape}; only the cotangent of a "
            "single number can be left out"
        )


def _refuse_conditions(operation: Operation, setting: Setting) -> None:
    """Conditions without parameters come first: parameters may make no sense unless they hold."""
    function = functions(operation)[0]
    scalars = {p.name for p in function.prototype.parameters}
    plain = Context(setting.tensors, setting.attrs, {}, operation.where)

    def needs(text: str) -> bool:
        mentioned = names_in(text)
        return bool(mentioned.others & scalars - {*setting.primals, *setting.attrs})

    for text in sorted(operation.requires, key=needs):
        context = setting.context(function) if needs(text) else plain
        if not context.truth(text, of="`requires`"):
            raise Unsupported(f"its code requires {text}")


def _expressions(operation: Operation) -> Iterator[str]:
    yield from operation.requires
    yield from operation.saved.values()
    yield operation.loss_scale
    for function in functions(operation):
        for meaning in function.meanings.values():
            yield from expressions(meaning)
