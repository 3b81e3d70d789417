"""JAX functions in big numbers, by a trace of JAX's.

While it is the current trace, every primitive that a forward binds, with or without `jit`, `vmap`
and `grad`, is computed in big numbers; JAX computes primitives that do not depend on the primals.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, Final

import jax
import numpy as np
from jax._src import core, dtypes

from gradcheck.numerics.arrays import Array
from gradcheck.numerics.highprecision import jax_primitives
from gradcheck.numerics.highprecision.array import BigArray, big, by_name, raw
from gradcheck.numerics.highprecision.numbers import (
    leak,
    numbers,
    unsupported,
)
from gradcheck.numerics.highprecision.ufuncs import ELEMENTWISE

CALLS: Final = frozenset({
    "jit", "pjit", "closed_call", "core_call", "remat2", "checkpoint", "custom_jvp_call",
    "custom_vjp_call", "custom_vjp_call_jaxpr", "composite", "custom_lin",
})  # fmt: skip
"""Primitives that evaluate a jaxpr of their parameters once."""

LOSSES: Final = {
    "bitcast_convert_type": "forward reads a number's bits",
    "ffi_call": "forward leaves JAX for code of its own",
    "io_callback": "forward leaves JAX for code of its own",
    "nextafter": "forward asks for the spacing of floats",
    "pure_callback": "forward leaves JAX for code of its own",
    "reduce_precision": "forward rounds to fewer bits",
}
"""Primitives that lose digits, with the reason."""


class BigTracer(core.Tracer):  # type: ignore[misc]
    """A JAX array of big numbers, or of integers and booleans computed from them."""

    __slots__ = ("value",)

    def __init__(self, trace: BigTrace, aval: Any, value: Array) -> None:
        """Hold `value`, with the shape and dtype `aval` for JAX."""
        super().__init__(trace, aval)
        self.value = value

    @property
    def holds_big(self) -> bool:
        """Whether these are big numbers."""
        return isinstance(self.value, BigArray)

    def to_concrete_value(self) -> Any:
        """Integers and booleans are exact; Python may branch on them."""
        return None if isinstance(self.value, BigArray) else self.value

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Array:
        return self.value if dtype is None else self.value.astype(dtype)

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, **keywords: Any) -> Any:
        return getattr(ufunc, method)(*_values(inputs), **_values(keywords))

    def __array_function__(
        self, function: Callable[..., Any], types: Any, args: Any, keywords: Any
    ) -> Any:
        return function(*_values(args), **_values(keywords))

    def _lost(self, *_: Any) -> Any:
        raise leak("forward makes a float of a number")

    __float__ = __complex__ = item = tolist = tobytes = __dlpack__ = _lost


def _values(x: Any) -> Any:
    """The big numbers of every tracer in lists, tuples and dictionaries."""
    if isinstance(x, BigTracer):
        return x.value
    if isinstance(x, (list, tuple)):
        return type(x)(map(_values, x))
    if isinstance(x, dict):
        return {key: _values(value) for key, value in x.items()}
    return x


class BigTrace(core.Trace):  # type: ignore[misc]
    """Evaluates primitives in big numbers when they are bound."""

    def __init__(self) -> None:
        """Refuse rounding to dtypes narrower than forward's own."""
        super().__init__()
        self.dtype = numbers().dtype64
        self._depth = 0  # of nested jaxprs

    def lifted(self, value: BigArray) -> BigTracer:
        """NumPy's big numbers as JAX's.

        Raises:
            Leak: JAX would make float32 of them.
        """
        if dtypes.canonicalize_dtype(self.dtype) != self.dtype:
            short = dtypes.canonicalize_dtype(self.dtype).name
            raise leak(f"JAX rounds {self.dtype} to {short} without jax_enable_x64")
        kinds = set(map(type, raw(value).ravel().tolist()))
        dtype = (
            np.result_type(self.dtype, np.complex64) if numbers().complex in kinds else self.dtype
        )
        return BigTracer(self, core.ShapedArray(value.shape, dtype), value)

    def stage_value(self, val: Any) -> Any:
        return val if isinstance(val, core.Tracer) else core.eval_trace.stage_value(val)

    def process_primitive(self, primitive: Any, tracers: Any, params: Any, /) -> Any:
        name = primitive.name
        if not any(isinstance(tracer, BigTracer) for tracer in tracers):
            return self._constant(primitive, tracers, params)
        if name in jax_primitives.IDENTITIES:
            out = list(tracers)
            return out if primitive.multiple_results else out[0]
        if name in CONTROL:
            return CONTROL[name](self, tracers, params)
        if name in CALLS:
            return self.evaluated(_jaxpr_of(params), tracers)
        if name in LOSSES:
            raise leak(f"{LOSSES[name]} ({name})")
        avals, _ = primitive.abstract_eval(*map(core.typeof, tracers), **params)
        several = primitive.multiple_results
        self._refuse_narrowing(name, tracers, avals if several else [avals])
        values = [t.value if isinstance(t, BigTracer) else np.asarray(t) for t in tracers]
        results = self._results(primitive, values, params, avals)
        if not several:
            return self._held(name, results, avals)
        return [self._held(name, r, a) for r, a in zip(results, avals, strict=True)]

    def process_call(self, call_primitive: Any, f: Any, tracers: Any, params: Any, /) -> Any:
        with core.set_current_trace(self):
            return f.call_wrapped(*tracers)

    def process_custom_jvp_call(
        self, primitive: Any, fun: Any, jvp: Any, tracers: Any, /, **_: Any
    ) -> Any:
        return self.process_call(primitive, fun, tracers, {})

    def process_custom_vjp_call(
        self, primitive: Any, fun: Any, fwd: Any, bwd: Any, tracers: Any, /, **_: Any
    ) -> Any:
        return self.process_call(primitive, fun, tracers, {})

    def evaluated(self, jaxpr: Any, tracers: Sequence[Any]) -> list[Any]:
        """The results of a jaxpr."""
        consts, inner = getattr(jaxpr, "consts", ()), getattr(jaxpr, "jaxpr", jaxpr)
        self._depth += 1
        try:
            with core.set_current_trace(self):
                results = core.eval_jaxpr(inner, consts, *tracers)
        finally:
            self._depth -= 1
        return [r if isinstance(r, core.Tracer) else jax.numpy.asarray(r) for r in results]

    def _constant(self, primitive: Any, operands: Sequence[Any], params: Any) -> Any:
        """JAX's own result, of operands that do not depend on the primals.

        Indices and masks within a jaxpr are computed by NumPy, which is faster than compiling them.
        """
        name = primitive.name
        if self._depth and name in CALLS and _exact(_jaxpr_of(params)):
            return self.evaluated(_jaxpr_of(params), operands)
        if self._depth and name in jax_primitives.EXACT:
            values = [np.asarray(operand) for operand in operands]
            if all(value.dtype.kind in "biuf" for value in values):
                avals, _ = primitive.abstract_eval(*map(core.typeof, operands), **params)
                return _plain(primitive, values, params, avals)
        return core.eval_trace.process_primitive(primitive, operands, params)

    def _refuse_narrowing(self, name: str, tracers: Sequence[Any], avals: Sequence[Any]) -> None:
        floats = [t.aval.dtype for t in tracers if isinstance(t, BigTracer) and _floating(t.aval)]
        widest = max(map(_mantissa, floats), default=0)
        for aval in avals:
            if _floating(aval) and _mantissa(aval.dtype) < min(widest, _mantissa(self.dtype)):
                raise leak(f"forward rounds to {aval.dtype} ({name})")

    def _results(self, primitive: Any, values: list[Array], params: Any, avals: Any) -> Any:
        """The primitive's results in big numbers; JAX's own if all values are plain."""
        name = primitive.name
        if not any(isinstance(value, BigArray) for value in values):
            if name in jax_primitives.EXACT:
                return _plain(primitive, values, params, avals)
            return core.eval_trace.process_primitive(primitive, values, params)
        values = [value if value.dtype.kind in "biu" else big(value) for value in values]
        try:
            return _rule(name)(*values, **_relevant(params))
        except NotImplementedError as why:
            raise unsupported(f"JAX's {name} {why} is not known in big numbers") from None

    def _held(self, name: str, result: Any, aval: Any) -> BigTracer:
        """A result as an array for JAX."""
        value = big(result) if _floating(aval) else np.asarray(result).astype(aval.dtype)
        if value.shape != aval.shape:
            raise unsupported(f"JAX's {name} has another shape in big numbers")
        return BigTracer(self, aval, value)


def _rule(name: str) -> Callable[..., Any]:
    """The function of a primitive.

    Raises:
        Unsupported: it is not implemented.
    """
    if name in ELEMENTWISE["jax"]:
        return by_name(name)
    if name.startswith("scatter"):
        return partial(jax_primitives.scattered, name)
    rule = jax_primitives.RULES.get(name)
    if rule is None:
        raise unsupported(f"JAX's {name} is not known in big numbers")
    return rule


def _relevant(params: Any) -> dict[str, Any]:
    """The parameters that the values depend on."""
    return {key: params[key] for key in params if key not in jax_primitives.IGNORED_PARAMETERS}


def _plain(primitive: Any, values: Sequence[Array], params: Any, avals: Any) -> Any:
    """The exact results of a primitive of plain arrays, by NumPy, without compilation."""
    with np.errstate(all="ignore"):  # integers wrap around
        results = _rule(primitive.name)(*values, **_relevant(params))
    if not primitive.multiple_results:
        return np.asarray(results).astype(avals.dtype)
    return [np.asarray(r).astype(a.dtype) for r, a in zip(results, avals, strict=True)]


def _exact(jaxpr: Any) -> bool:
    equations = getattr(jaxpr, "jaxpr", jaxpr).eqns
    return all(equation.primitive.name in jax_primitives.EXACT for equation in equations)


def _jaxpr_of(params: Any) -> Any:
    return next(params[key] for key in ("jaxpr", "call_jaxpr", "fun_jaxpr") if key in params)


def _floating(aval: Any) -> bool:
    return bool(jax.numpy.issubdtype(aval.dtype, np.inexact))


def _mantissa(dtype: Any) -> int:
    return int(jax.numpy.finfo(dtype).nmant)


def _while(trace: BigTrace, tracers: Sequence[Any], params: Any) -> list[Any]:
    first, second = params["cond_nconsts"], params["body_nconsts"]
    condition, body = tracers[:first], tracers[first : first + second]
    state = list(tracers[first + second :])
    while bool(np.asarray(trace.evaluated(params["cond_jaxpr"], [*condition, *state])[0])):
        state = trace.evaluated(params["body_jaxpr"], [*body, *state])
    return state


def _cond(trace: BigTrace, tracers: Sequence[Any], params: Any) -> list[Any]:
    index, *operands = tracers
    branches = params["branches"]
    chosen = min(max(int(np.asarray(index)), 0), len(branches) - 1)
    return trace.evaluated(branches[chosen], operands)


def _scan(trace: BigTrace, tracers: Sequence[Any], params: Any) -> list[Any]:
    consts, carried, length = params["num_consts"], params["num_carry"], params["length"]
    fixed, state = tracers[:consts], list(tracers[consts : consts + carried])
    rows = tracers[consts + carried :]
    steps = reversed(range(length)) if params["reverse"] else range(length)
    stacked: dict[int, list[Any]] = {}
    with core.set_current_trace(trace):
        for i in steps:
            at = [row[i] for row in rows]
            out = trace.evaluated(params["jaxpr"], [*fixed, *state, *at])
            state, stacked[i] = out[:carried], out[carried:]
        columns = zip(*(stacked[i] for i in range(length)), strict=True)
        return [*state, *(jax.numpy.stack(column) for column in columns)]


def _linear_solve(trace: BigTrace, tracers: Sequence[Any], params: Any) -> list[Any]:
    lengths = params["const_lengths"]
    start = lengths.matvec + lengths.vecmat
    consts, b = tracers[start : start + lengths.solve], tracers[sum(lengths) :]
    return trace.evaluated(params["jaxprs"].solve, [*consts, *b])


def _nothing(trace: BigTrace, tracers: Sequence[Any], params: Any) -> list[Any]:
    return []


CONTROL: Final = {
    "cond": _cond,
    "custom_linear_solve": _linear_solve,
    "debug_callback": _nothing,
    "debug_print": _nothing,
    "scan": _scan,
    "while": _while,
}
"""Primitives that evaluate jaxprs of their parameters in their own way."""

_current: list[BigTrace] = []


def _lifted(value: BigArray) -> Any:
    """A `BigArray` as a JAX value."""
    if not _current:
        raise TypeError("big numbers are not JAX values outside an evaluation")
    return _current[-1].lifted(value)


def traced(x: Any) -> Any:
    """A `BigArray` as JAX's array of big numbers; anything else unchanged."""
    return _lifted(x) if isinstance(x, BigArray) else x


def held(x: Any) -> Any:
    """The values of any JAX array as big numbers; anything else unchanged."""
    if isinstance(x, BigTracer):
        return x.value if isinstance(x.value, BigArray) else big(x.value)
    return big(np.asarray(x)) if isinstance(x, jax.Array) else x


@contextmanager
def takes_big_numbers() -> Iterator[None]:
    """Within the context JAX accepts `BigArray`s and computes in big numbers.

    Within a session of `numbers()`, whose dtype is forward's own.
    """
    _registered()
    trace = BigTrace()
    _current.append(trace)
    try:
        with core.set_current_trace(trace):
            yield
    finally:
        _current.pop()


_known: list[bool] = []


def _registered() -> None:
    """Register `BigArray` with JAX, once."""
    if not _known:
        core.pytype_aval_mappings[BigArray] = lambda x: _lifted(x).aval
        dtypes.register_canonicalize_value_handler(BigArray, _lifted)
        BigArray.__jax_array__ = _lifted  # type: ignore[attr-defined]
        _known.append(True)
