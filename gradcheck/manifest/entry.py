"""One `[[op]]` of a manifest: its functions per dtype, held against the operator of the suite."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Final

from gradcheck.errors import ManifestError
from gradcheck.manifest import expression
from gradcheck.manifest.agree import check_function, check_residuals, grads
from gradcheck.manifest.meaning import Scope, expressions, meaning, role
from gradcheck.manifest.operation import (
    CType,
    Function,
    Meaning,
    Operation,
    Prototype,
    Role,
    RoleKind,
    Special,
    Tensors,
    Value,
)
from gradcheck.manifest.prototype import parse
from gradcheck.manifest.schema import Library, Op, PerDtype, on_this_platform, suggestion
from gradcheck.spec import CORE, OpSpec, Slack
from gradcheck.suite import Case, Suite

DTYPES: Final = ("float64", "float32", "float16", "bfloat16")
COTANGENT: Final = "cotangent"
"""The name by which the expressions of a VJP may ask for the cotangent's shape, or its value."""


@dataclass(frozen=True, kw_only=True)
class Entry:
    """An `[[op]]`, and what is known around it; `where` begins messages."""

    where: str
    op: Op
    suite: Suite
    folder: Path
    c: Library

    @cached_property
    def spec(self) -> OpSpec:
        """The operator that it names.

        Raises:
            ManifestError: there is none.
        """
        name, slash, dialect = self.op.name.partition("/")
        spec = self.suite.operators.get(name)
        if spec is None:
            near = suggestion(name, [*self.suite.operators])
            near = near if "did you" in near else "; `gradcheck list` shows them all"
            raise ManifestError(f"{self.where}: the suite has no operator `{name}`{near}")
        dialects = [d.name for d in spec.dialects]
        if slash and dialect not in dialects:
            near = suggestion(dialect, dialects)
            raise ManifestError(f"{self.where}: {name} has no dialect `{dialect}`{near}")
        return spec

    @property
    def dialect(self) -> str:
        """The dialect that it names, or none."""
        return self.op.name.partition("/")[2]

    @cached_property
    def index_primals(self) -> frozenset[str]:
        """Primals that are whole numbers: they have no gradient."""
        sample = self.spec.samples[0]
        dialect = self.spec.dialects[0]
        if sample.dialects:
            dialect = self.spec.dialect(sample.dialects[0])
        case = Case(self.spec, dialect, sample, 0, self.suite.home[self.spec.name])
        pairs = zip(case.primal_names, case.primals, strict=True)
        return frozenset(name for name, primal in pairs if primal.dtype.kind == "i")

    @cached_property
    def outputs(self) -> int:
        """How many outputs forward has."""
        return len(CORE.findall(self.spec.signature.partition("->")[2]))

    @cached_property
    def names(self) -> frozenset[str]:
        """What every expression of the entry may mention."""
        return frozenset({*self.spec.primals, *self.spec.defaults})

    def library(self, own: Any) -> Path:
        """Where a function lies."""
        return self.folder / on_this_platform(self.c.library if own is None else own, self.where)


def operations(entry: Entry, dtypes: Sequence[str] | None) -> Iterator[Operation]:
    """The operator in each dtype that the entry has, of those in `dtypes` (None: all).

    Raises:
        ManifestError: the entry contradicts itself or the operator.
    """
    op, where = entry.op, entry.where
    _ = entry.spec
    if op.vjp is None and op.forward is None:
        raise ManifestError(f'{where}: write `vjp = "…"`, the prototype of the backward function')
    _check_dtypes("capabilities.dtypes", dtypes or (), where)
    vjps, forwards = _functions(entry, "vjp"), _functions(entry, "forward")
    have = [d for d in DTYPES if d in vjps or d in forwards]
    wanted = [d for d in have if dtypes is None or d in dtypes]
    if not wanted:
        raise ManifestError(
            f"{where}: its prototypes are for {', '.join(have)}, [capabilities] dtypes for "
            f"{', '.join(dtypes or ())} alone; add the dtype there, or leave the entry out"
        )
    for dtype in wanted:
        yield _operation(entry, dtype, vjps.get(dtype), forwards.get(dtype))


def _functions(entry: Entry, key: str) -> dict[str, Function]:
    """The function under "vjp" or "forward", by dtype."""
    op, where = entry.op, entry.where
    texts: PerDtype | None = getattr(op, key)
    if texts is None:
        if key == "forward" and op.forward_bind:
            raise ManifestError(f"{where}: `forward_bind` explains no function; write `forward`")
        return {}
    bind = op.bind if key == "vjp" else {**_inheritable(op, texts), **op.forward_bind}
    library = entry.library(
        op.forward_library if key == "forward" and op.forward_library is not None else op.library
    )
    if isinstance(texts, str):
        function = _function(entry, key, texts, bind, library)
        return {_dtype(entry, key, function): function}
    _check_dtypes(key, [*texts], where)
    functions = {d: _function(entry, key, t, bind, library) for d, t in texts.items()}
    for dtype, function in functions.items():
        for name, base, primal in _elements(entry, function):
            _check_element(f"{where}: {key}.{dtype}: `{name}`", base, primal, dtype)
    return functions


def _inheritable(op: Op, texts: PerDtype) -> Mapping[str, Any]:
    """What `bind` says of parameters that forward has too, and `forward_bind` does not name."""
    if op.vjp is None:
        return op.bind
    words = {w for text in ([texts] if isinstance(texts, str) else texts.values())
             for w in re.findall(r"\w+", text)}  # fmt: skip
    return {name: said for name, said in op.bind.items() if name in words and name != "return"}


def _function(
    entry: Entry, key: str, text: str, bind: Mapping[str, Any], library: Path
) -> Function:
    where = f"{entry.where}: {key}"
    prototype = parse(text, where)
    return bound(entry, key, prototype, bind, library)


def bound(
    entry: Entry, key: str, prototype: Prototype, bind: Mapping[str, Any], library: Path
) -> Function:
    """A prototype, and what `bind` says of each of its parameters, checked against the operator."""
    where, bind_key = entry.where, "bind" if key != "forward" else "forward_bind"
    names = [p.name for p in prototype.parameters]
    for name in bind:
        if name not in (*names, "return"):
            near = suggestion(name, [n for n in names if n not in bind])
            raise ManifestError(f"{where}: {bind_key} explains `{name}`, but `{prototype.symbol}` "
                                f"has no such parameter{near}")  # fmt: skip
    for name in names:
        if name not in bind:
            raise ManifestError(f"{where}: `{prototype.symbol}` has a parameter `{name}` that "
                                f"{bind_key} does not explain; add `{name} = …`")  # fmt: skip
    scalars = {p.name for p in prototype.parameters if not p.ctype.pointer}
    known = entry.names | scalars | ({COTANGENT} if key == "vjp" else set())
    scope = Scope(frozenset(known), frozenset(entry.spec.primals))
    meanings = {
        p.name: meaning(bind[p.name], p.ctype, f"{where}: {bind_key}.{p.name}", scope)
        for p in prototype.parameters
    }
    values = {n: m.expression for n, m in meanings.items() if isinstance(m, Value) and n in scalars}
    expression.order(values, entry.spec.primals, where)
    function = Function(
        prototype=prototype,
        library=library,
        meanings=meanings,
        returned=_returned(bind.get("return"), prototype.returns, f"{where}: {bind_key}.return"),
    )
    check_function(
        function, key, f"{where}: {bind_key}", entry.spec, entry.outputs, entry.index_primals
    )
    return function


def _returned(said: Any, returns: CType, where: str) -> Role | None:
    if said is None:
        return None
    if returns.base == "void" and not returns.pointer:
        raise ManifestError(f"{where}: the function returns nothing (void); leave it out")
    if returns.pointer:
        raise ManifestError(f"{where}: the function returns a pointer, which nobody owns")
    if said == RoleKind.STATUS:
        if returns.base in ("float32", "float64"):
            raise ManifestError(f"{where}: a status is a whole number, and this is {returns.base}")
        return Role(kind=RoleKind.STATUS)
    found = role(str(said), where, Scope())
    if found.kind not in (RoleKind.OUT, RoleKind.VALUE, RoleKind.GRAD) or found.optional:
        raise ManifestError(f"{where}: `{said}`; a result is `out`, `value`, `grad:x` or `status`")
    if returns.base not in ("float32", "float64"):
        raise ManifestError(f"{where}: `{said}` is a real number, and this is {returns.base}")
    return found


# ── dtypes ───────────────────────────────────────────────────────────────────────────────────


def _elements(entry: Entry, function: Function) -> Iterator[tuple[str, str, str]]:
    """Parameters that hold floating tensors of the dtype: name, C type, role."""
    for parameter in function.prototype.parameters:
        meant = function.meanings[parameter.name]
        if isinstance(meant, Tensors):
            for view in meant.views:
                for held in (view.role, view.becomes):
                    if held is None or held.kind is RoleKind.SAVED:
                        continue
                    if held.name not in entry.index_primals:
                        yield parameter.name, parameter.ctype.base, f"{held.kind}:{held.name}"


def _dtype(entry: Entry, key: str, function: Function) -> str:
    """The dtype that a prototype's element types say."""
    held = list(_elements(entry, function))
    bases = {base for _, base, _ in held} & {"float32", "float64"}
    if not bases:
        returned = function.prototype.returns.base
        bases = {returned} & {"float32", "float64"} if not held else set()
    if len(bases) != 1:
        shown = "; ".join(
            f"{base}: {', '.join(f'`{name}`' for name, one, _ in held if one == base)}"
            for base in sorted(bases)
        )
        raise ManifestError(
            f"{entry.where}: {key}: "
            + (
                f"its tensors are of several types ({shown}), where those of an operator are of one"
                if shown
                else "no tensor in its prototype has a float type; say the dtype: "
                f'{key} = {{ float16 = "…" }}'
            )
        )
    (dtype,) = bases
    for name, base, primal in held:
        _check_element(f"{entry.where}: {key}: `{name}`", base, primal, dtype)
    return dtype


ELEMENTS: Final = {
    "float64": ("float64",),
    "float32": ("float32",),
    "float16": ("uint16", "int16"),
    "bfloat16": ("uint16", "int16"),
}


def _check_element(what: str, base: str, held: str, dtype: str) -> None:
    if base not in (*ELEMENTS[dtype], "void", "opaque"):
        raise ManifestError(
            f"{what} leads to {base} and is `{held.rstrip(':')}`, which is {dtype} here; correct "
            "the prototype, the role, or the dtype"
        )


def _check_dtypes(key: str, dtypes: Collection[str], where: str) -> None:
    for dtype in dtypes:
        if dtype not in DTYPES:
            raise ManifestError(
                f"{where}: {key} names the dtype `{dtype}`{suggestion(dtype, [*DTYPES])}"
            )


# ── the whole ────────────────────────────────────────────────────────────────────────────────


def _operation(
    entry: Entry, dtype: str, vjp: Function | None, forward: Function | None
) -> Operation:
    op, where = entry.op, entry.where
    vjp, forward = check_residuals(vjp, forward, op, where)
    create, destroy = _handle(entry)
    uses_handle = any(
        Special.HANDLE in f.meanings.values() for f in (vjp, forward) if f is not None
    )
    if uses_handle and create is None:
        raise ManifestError(f"{where}: bind names a `handle`, and nothing makes one; add `handle`")
    main = vjp or forward
    assert main is not None
    names = entry.names | _scalars(main)
    for text in (*op.requires, *op.saved.values(), str(op.loss_scale)):
        expression.check(text, names, where)
    slack = op.slack.get(dtype)
    _check_dtypes("slack", [*op.slack], where)
    return Operation(
        op=entry.spec.name,
        dialect=entry.dialect,
        dtype=dtype,
        where=where,
        vjp=vjp,
        forward=forward,
        attrs=_fixed(entry, [f for f in (vjp, forward, create) if f is not None]),
        requires=tuple(op.requires),
        accumulates=_primals(entry, vjp, "accumulates", op.accumulates),
        zeroed=_primals(entry, vjp, "zeroed", op.zeroed),
        aliases=tuple(_alias(entry, vjp, *pair) for pair in op.aliases),
        saved=op.saved,
        residuals=op.residuals,
        loss_scale=str(op.loss_scale),
        missing=_missing(entry, vjp),
        create=create,
        destroy=destroy,
        slack=_slack(slack.ulp, slack.because, where) if slack else None,
        source=op.source,
    )


def _slack(ulp: float, because: str, where: str) -> Slack:
    if not because.strip():
        raise ManifestError(f"{where}: a wider bound needs a sentence: fill `slack … because`")
    if not ulp > 0:
        raise ManifestError(f"{where}: slack: ulp = {ulp}; write how many, more than 0")
    return Slack(ulp=ulp, because=because)


def _handle(entry: Entry) -> tuple[Function | None, Function | None]:
    said = entry.op.handle
    if said is None:
        return None, None
    where = f"{entry.where}: handle"
    library = entry.library(said.library if said.library is not None else entry.op.library)
    create = parse(said.create, f"{where}.create")
    if not create.returns.pointer:
        raise ManifestError(f"{where}.create: `{create.symbol}` returns no pointer")
    destroy = parse(said.destroy, f"{where}.destroy", unnamed="handle")
    if len(destroy.parameters) != 1 or not destroy.parameters[0].ctype.pointer:
        raise ManifestError(f"{where}.destroy: `{destroy.symbol}` must take the handle alone")
    freed: dict[str, Meaning] = {destroy.parameters[0].name: Special.HANDLE}
    made = bound(entry, "handle", create, said.bind, library)
    return made, Function(prototype=destroy, library=library, meanings=freed)


def _scalars(function: Function) -> set[str]:
    return {p.name for p in function.prototype.parameters if not p.ctype.pointer}


def _fixed(entry: Entry, functions: Sequence[Function]) -> dict[str, Any]:
    """Attributes that the code has fixed: as said, or at their default where nothing asks."""
    op, spec = entry.op, entry.spec
    for name in op.attrs:
        if name not in spec.defaults:
            near = suggestion(name, [*spec.defaults]) or f"; {spec.name} has none"
            raise ManifestError(f"{entry.where}: attrs: no attribute `{name}`{near}")
    mentioned: set[str] = set()
    for text in (*op.requires, *op.saved.values(), str(op.loss_scale)):
        mentioned |= expression.names(text).others
    for function in functions:
        scalars = _scalars(function)
        for name, meant in function.meanings.items():
            for text in expressions(meant):
                mentioned |= expression.names(text).others - (scalars - {name})
    values = dict(spec.defaults)
    if entry.dialect:
        values |= spec.dialect(entry.dialect).attrs
    kept = {name: value for name, value in values.items() if name not in mentioned}
    return {**kept, **{name: _frozen(value) for name, value in op.attrs.items()}}


def _frozen(value: Any) -> Any:
    return tuple(_frozen(element) for element in value) if isinstance(value, list) else value


def _primals(entry: Entry, vjp: Function | None, key: str, said: Sequence[str]) -> frozenset[str]:
    """The primals whose gradients parameters (or primals) of these names are."""
    have = grads(vjp)
    found: set[str] = set()
    for name in said:
        if name in have:
            found |= have[name]
        elif any(name in primals for primals in have.values()):
            found.add(name)
        else:
            near = suggestion(name, [*have])
            raise ManifestError(f"{entry.where}: {key}: `{name}` is no gradient{near}")
    return frozenset(found)


def _alias(entry: Entry, vjp: Function | None, first: str, second: str) -> tuple[str, str]:
    """A pair (primal, "ct" or primal) from two parameters that may be the same memory."""
    where = f"{entry.where}: aliases: `{first}`, `{second}`"
    have = grads(vjp)
    read = _read(vjp)
    if first not in have:
        first, second = second, first
    if first not in have:
        raise ManifestError(f"{where}: neither is a gradient{suggestion(first, [*have])}")
    if second not in read:
        raise ManifestError(
            f"{where}: `{second}` is neither a cotangent nor a primal{suggestion(second, [*read])}"
        )
    if len(have[first]) != 1:
        raise ManifestError(f"{where}: `{first}` holds several gradients; alias one alone")
    (primal,) = have[first]
    return primal, read[second]


def _read(vjp: Function | None) -> dict[str, str]:
    """Parameters that hold one cotangent or primal alone: "ct" or the primal."""
    found = {}
    for name, meant in ({} if vjp is None else vjp.meanings).items():
        if isinstance(meant, Tensors) and len(meant.views) == 1:
            held = meant.views[0].role
            if held.kind is RoleKind.COTANGENT:
                found[name] = "ct"
            elif held.kind is RoleKind.IN:
                found[name] = held.name
    return found


def _missing(entry: Entry, vjp: Function | None) -> dict[str, str]:
    """Gradients that the code lacks, and why; those that nothing mentions too."""
    op, where = entry.op, entry.where
    have = {primal for primals in grads(vjp).values() for primal in primals}
    for name in op.missing:
        if name not in entry.spec.primals:
            near = suggestion(name, [*entry.spec.primals])
            raise ManifestError(f"{where}: missing: {entry.spec.name} has no primal `{name}`{near}")
        if name in have:
            raise ManifestError(
                f"{where}: missing: `{name}` has a gradient: a parameter is grad:{name}"
            )
        if name in entry.index_primals:
            raise ManifestError(f"{where}: missing: `{name}` holds indices, which have no gradient")
    silent = {} if vjp is None else {
        name: f"no parameter is bound to grad:{name}"
        for name in entry.spec.primals
        if name not in have | entry.index_primals
    }  # fmt: skip
    return {**silent, **op.missing}
