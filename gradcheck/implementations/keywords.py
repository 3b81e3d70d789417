"""The entry of a table for a case, and the keywords that it takes; all others it has fixed."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from gradcheck.errors import LoadError, Unsupported
from gradcheck.numerics.arrays import Attrs
from gradcheck.spec.loading import resolve
from gradcheck.spec.model import ModelCase
from gradcheck.spec.program import Program
from gradcheck.spec.rule import RuleCase
from gradcheck.spec.suite import Case


def entry_of(table: Mapping[str, Any], case: Case | ModelCase | RuleCase) -> tuple[Any, Attrs]:
    """The entry for `name/dialect`, else for `name`, else None.

    With it come the values that its code may have fixed: the spec's defaults, and the dialect's
    values if the entry names the dialect.
    """
    name, defaults = case.spec.name, case.spec.defaults
    exact = table.get(f"{name}/{case.dialect.name}")
    if exact is None:
        return table.get(name), defaults
    return exact, {**defaults, **case.dialect.attrs}


def peers(word: str, framework: str, references: Sequence[str]) -> dict[str, Any]:
    """The tables at "module:NAME" that a suite has for `--impl word`, as one.

    Raises:
        LoadError: there are none, or one cannot be imported.
    """
    if not references:
        raise LoadError(f"--impl {word}: the suite has no {framework} counterparts")
    table: dict[str, Any] = {}
    for reference in references:
        table.update(resolve(reference))
    return table


def method(entry: Any, name: str) -> Callable[..., Any] | None:
    """What an entry of a table, an object or a mapping, has to call by this name."""
    found = member(entry, name)
    return found if callable(found) else None


def member(entry: Any, name: str) -> Any:
    """What an entry of a table has by this name, or None."""
    return entry.get(name) if isinstance(entry, Mapping) else getattr(entry, name, None)


def takes(function: Callable[..., Any]) -> frozenset[str] | None:
    """Names of the keywords that a function takes; None if it takes any, or does not say."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return None
    if any(p.kind is p.VAR_KEYWORD for p in parameters):
        return None
    return frozenset(
        p.name for p in parameters if p.kind in (p.KEYWORD_ONLY, p.POSITIONAL_OR_KEYWORD)
    )


def accepted(function: Callable[..., Any], role: str, attrs: Attrs, fixed: Attrs) -> Attrs:
    """Those of `attrs` that `function` takes; messages call it `role`.

    One that it does not take is fixed in its code: the case applies only where its value is the
    one in `fixed`.

    Raises:
        Unsupported: the case wants another value.
    """
    known = takes(function)
    if known is None:
        return attrs
    for name, value in attrs.items():
        if name not in known and value != fixed[name]:
            raise Unsupported(f"{role} takes no {name!r}; this case wants {name}={value!r}")
    return {name: value for name, value in attrs.items() if name in known}


def dimensions(function: Callable[..., Any], role: str, case: ModelCase, fixed: Attrs) -> Attrs:
    """The dimensions of a model that `function` takes; messages call it `role`.

    One that it does not take it may read off the shapes of its arguments, as long as the stages
    are the same for the value in `fixed`: what changes a stage is fixed in its code.

    Raises:
        Unsupported: the case wants another value of such a dimension.
    """
    known = takes(function)
    if known is None:
        return case.attrs
    seen = {n: v for n, v in case.attrs.items() if n not in known and _in_shapes(case, n, fixed[n])}
    return accepted(function, role, case.attrs, {**fixed, **seen})


def _in_shapes(case: ModelCase, name: str, value: Any) -> bool:
    """Whether another value of a dimension changes nothing but shapes: no stage, no attribute."""
    try:
        other = case.spec.build(**{**case.attrs, name: value})
    except Exception:  # noqa: BLE001  the other dimensions may not go with this value
        return False
    return _lines(other) == _lines(case.program)


def _lines(program: Program) -> list[str]:
    return [
        f"{s.name} {s.op.name} {s.reads} {s.outputs} {sorted(s.all_attrs.items())!r}"
        for s in program.stages
    ]
