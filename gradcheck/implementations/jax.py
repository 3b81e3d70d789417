"""JAX functions as operators, differentiated by `jax.vjp`: `jax_op` and `--impl jax`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import wraps
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from gradcheck.errors import LoadError, Unsupported
from gradcheck.implementations.bound import Bound, Callee, OperatorsOnly
from gradcheck.implementations.returned import broken
from gradcheck.implementations.user_functions import (
    Differentiated,
    accepted,
    address_of,
    argument_names,
    entry_of,
    peers,
    public_name,
)
from gradcheck.numerics.arrays import Attrs, is_float
from gradcheck.results.verdict import Verdict
from gradcheck.results.words import plural
from gradcheck.spec.suite import Case

Array = NDArray[Any]


def jax_op(function: Callable[..., Any], *, jit: bool = False, device: str = "cpu") -> JaxOp:
    """An entry of a table from a JAX function, differentiated by `jax.vjp`.

    `function` is a `jax.custom_vjp`, whose own rule is then what is judged, or any function of
    JAX's arrays. It is called as `function(*primals, **attrs)` on `device` ("cpu", "gpu", …),
    compiled as a whole where `jit` is true, and returns an array or a tuple of them. 64-bit types
    are switched on where an array is float64, and for that call alone.

    What it returns has `forward(*primals, **attrs)` and `vjp(ct, *primals, **attrs)`, from NumPy
    arrays to NumPy arrays, as `gradcheck.check` and the tables of `--impl` take them. Under a
    model's name it is the model's loss, `function(params, inputs, **dims)`.

    Raises:
        LoadError: JAX is not installed, or `function` is not callable.

    >>> import pytest; jax = pytest.importorskip("jax")
    >>> import numpy as np, gradcheck
    >>> op = jax_op(jax.nn.sigmoid)
    >>> gradcheck.check(op.forward, op.vjp, np.linspace(-2.0, 2.0, 5)).ok
    True
    """
    try:
        imported_jax()
    except ImportError as error:
        raise LoadError("jax_op: JAX is not installed; run `pip install jax`") from error
    if not callable(function):
        raise LoadError(f"jax_op: a {type(function).__name__} is no function of JAX's arrays")
    name = str(getattr(function, "__name__", type(function).__name__))
    return JaxOp(name=name, function=function, jit=jit, device=device)


def imported_jax() -> Any:
    """JAX. It is an optional peer that takes a second to import."""
    import jax

    return jax


@dataclass(frozen=True, slots=True, kw_only=True)
class JaxOp(Differentiated):
    """A JAX function, called with arrays.

    `options` are XLA's for compiling. With `fused`, value and gradients come from one compiled
    program: half the time, but of a custom rule's own forward nothing is seen.
    """

    name: str
    function: Callable[..., Any]
    jit: bool = False
    device: str = "cpu"
    options: Mapping[str, Any] = field(default_factory=dict)
    fused: bool = False
    made: dict[Any, Any] = field(default_factory=dict, repr=False)

    @property
    def arguments(self) -> tuple[str, ...]:
        """Those of the function."""
        return argument_names(self.function)

    @property
    def code(self) -> Callable[..., Any]:
        """The backward of a `jax.custom_vjp`; else the function."""
        bwd = getattr(self.function, "bwd", None)
        return bwd if callable(bwd) else self.function

    def callee(self, attrs: Attrs, primals: int, item: tuple[str, str] | None) -> Callee | None:
        """How the function is called."""
        name = public_name(self.function)
        place = ("", name) if name else address_of(self.function) or item
        if place is None:
            return None
        return Callee(
            framework="jax", module=place[0], name=place[1], style="function", attrs=attrs,
            device="" if self.device == "cpu" else self.device, compiled=self.jit,
        )  # fmt: skip

    @property
    def signature(self) -> tuple[Callable[..., Any], int]:
        """The function."""
        return self.function, 0

    def bound(self, attrs: Attrs, fixed: Attrs) -> Bound:
        """The operator for `attrs`; `fixed` are the values that its code may have fixed.

        Raises:
            Unsupported: `attrs` want another value of what the code does not take.
        """
        return Bound(
            vjp=self.vjp,
            forward=self.forward,
            attrs=accepted(self.function, self.name, attrs, fixed),
            asked=self.asked,
        )

    def forward(self, *primals: Any, **attrs: Any) -> Any:
        """The value: an array, or a tuple of arrays.

        Raises:
            Broken: the function returned no arrays, or narrower ones than it was given.
            Unsupported: its device is not here.
        """
        with self._on_device(primals) as (jax, place):
            placed = [place(p) for p in primals]
            if self.fused:
                out = self._fused_value(jax, place, placed, attrs)
            else:
                out = self._made(("forward", attrs), lambda: self._value(attrs))(*placed)
            values = tuple(np.asarray(o) for o in self._outputs(jax, "forward", out, primals))
        return values if isinstance(out, (tuple, list)) else values[0]

    def asked(
        self, needs: tuple[bool, ...], ct: Any, *primals: Any, **attrs: Any
    ) -> tuple[Any, ...]:
        """The gradients of those primals for which `needs` has True: no others are asked for."""
        cts = ct if isinstance(ct, tuple) else (ct,)
        chosen = [i for i, p in enumerate(primals) if needs[i] and is_float(p.dtype)]
        with self._on_device(primals) as (jax, place):
            pull = self._pull(jax, chosen, attrs)
            _, found = pull([place(c) for c in cts], [place(p) for p in primals])
            gradients = dict(zip(chosen, (np.asarray(g) for g in found), strict=True))
        return tuple(gradients.get(i) for i in range(len(primals)))

    @property
    def loss(self) -> Callable[..., Any]:
        """A model's loss, from dicts of arrays to a number; its signature is the function's."""

        @wraps(self.function)
        def loss(params: Mapping[str, Any], inputs: Mapping[str, Any], **dims: Any) -> Any:
            with self._on_device([*params.values()]) as (jax, place):
                call = self._made(("loss", dims), lambda: self._value(dims))
                out = call(_placed(place, params), _placed(place, inputs))
                return np.asarray(self._outputs(jax, "loss", out, [*params.values()])[0])

        return loss

    @property
    def gradients(self) -> Callable[..., Mapping[str, Any]]:
        """The loss's gradients by the names of the parameters; integers have none."""

        @wraps(self.function)
        def gradients(params: Mapping[str, Any], inputs: Mapping[str, Any], **dims: Any) -> Any:
            floating = {n: p for n, p in params.items() if is_float(p.dtype)}
            rest = {n: p for n, p in params.items() if n not in floating}
            with self._on_device([*params.values()]) as (jax, place):

                def slopes(params: Any, rest: Any, inputs: Any) -> Any:
                    return jax.grad(lambda p: self.function({**p, **rest}, inputs, **dims))(params)

                call = self._made(("gradients", dims), lambda: slopes)
                found = call(*(_placed(place, values) for values in (floating, rest, inputs)))
                return {name: np.asarray(g) for name, g in found.items()}

        return gradients

    def _value(self, attrs: Attrs) -> Callable[..., Any]:
        return lambda *primals: self.function(*primals, **attrs)

    def _pull(self, jax: Any, chosen: Sequence[int], attrs: Attrs) -> Callable[..., Any]:
        """(cotangents, primals) → the value, and the gradients of the primals `chosen`."""

        def pulled(cts: Sequence[Any], primals: Sequence[Any]) -> Any:
            def of_chosen(*values: Any) -> Any:
                whole = list(primals)
                for i, value in zip(chosen, values, strict=True):
                    whole[i] = value
                return self.function(*whole, **attrs)

            out, pull = jax.vjp(of_chosen, *(primals[i] for i in chosen))
            outputs = self._outputs(jax, "vjp", out, primals)
            if len(outputs) != len(cts):
                raise broken(
                    "vjp", f"{self.name} returned {plural(len(outputs), 'output')}, not {len(cts)}"
                )
            return out, pull(jax.tree.unflatten(jax.tree.structure(out), cts))

        return self._made(("vjp", *chosen, attrs), lambda: pulled)

    def _fused_value(
        self, jax: Any, place: Callable[[Any], Any], primals: Sequence[Any], attrs: Attrs
    ) -> Any:
        """The value of the program that gives the gradients, for cotangents of zero."""
        chosen = [i for i, p in enumerate(primals) if is_float(p.dtype)]
        key = repr(("outputs", attrs, [(p.shape, p.dtype) for p in primals]))
        if key not in self.made:
            self.made[key] = jax.tree.leaves(jax.eval_shape(self._value(attrs), *primals))
        like = self.made[key]
        cts = [place(np.zeros(o.shape, o.dtype)) for o in like]
        return self._pull(jax, chosen, attrs)(cts, primals)[0]

    def _made(self, key: Any, make: Callable[[], Callable[..., Any]]) -> Callable[..., Any]:
        """The function that `make` gives; where `jit` is true, compiled, once for each key."""
        if not self.jit:
            return make()
        key = repr(key)
        if key not in self.made:
            options = dict(self.options) or None
            self.made[key] = imported_jax().jit(make(), compiler_options=options)
        found: Callable[..., Any] = self.made[key]
        return found

    def _outputs(self, jax: Any, role: str, out: Any, primals: Sequence[Any]) -> tuple[Any, ...]:
        outputs = tuple(out) if isinstance(out, (tuple, list)) else (out,)
        wide = any(p.dtype == np.float64 for p in primals)
        for one in outputs:
            if not isinstance(one, (jax.Array, np.ndarray)):
                what = type(one).__name__
                raise broken(role, f"{self.name} returned a {what}; return an array, or a tuple")
            if wide and one.dtype == np.float32:
                raise broken(
                    role,
                    f"{self.name} returned float32 for float64. 64-bit types are on during the "
                    "call: it casts, or holds arrays that were made while they were off; set "
                    "JAX_ENABLE_X64=1 before its module is imported, or make them in the call",
                    Verdict.FAIL,
                )
        return outputs

    @contextmanager
    def _on_device(self, primals: Sequence[Any]) -> Iterator[tuple[Any, Callable[[Any], Any]]]:
        """JAX with the device as its default, and what puts an array there.

        64-bit types are on only where an array of float64 needs them: elsewhere the function runs
        as its users run it.
        """
        jax = imported_jax()
        try:
            device = jax.devices(self.device)[0]
        except RuntimeError as error:
            reason = f"{self.name} is to run on {self.device}; JAX has no such device here"
            raise Unsupported(reason) from error

        def place(array: Any) -> Any:
            own = np.array(array, order="C")  # JAX keeps the memory, and takes no other order
            bits = own.dtype.name == "bfloat16"  # DLPack knows it, NumPy's side of DLPack does not
            borrowed = jax.numpy.asarray(own) if bits else jax.dlpack.from_dlpack(own)
            return borrowed if self.device == "cpu" else jax.device_put(borrowed, device)

        with ExitStack() as stack:
            if any(p.dtype == np.float64 for p in primals):
                stack.enter_context(_x64(jax))
            stack.enter_context(jax.default_device(device))
            yield jax, place


def _x64(jax: Any) -> Any:
    if hasattr(jax, "enable_x64"):
        return jax.enable_x64(True)
    from jax.experimental import enable_x64  # where older versions have it

    return enable_x64(True)


def _placed(place: Callable[[Any], Any], arrays: Mapping[str, Any]) -> dict[str, Any]:
    return {name: place(np.asarray(array)) for name, array in arrays.items()}


QUICKLY: Final = {
    "xla_cpu_use_fusion_emitters": False,
    "xla_cpu_parallel_codegen_split_count": 1,
    "xla_backend_optimization_level": 0,
    "xla_llvm_disable_expensive_passes": True,
}
"""Each case has shapes of its own, and is compiled to run a few times on a few numbers. With these
options compiling takes a fifth of its time (22 ms a case, not 119); operation by operation, without
compiling the whole, a case takes 750 ms."""


class Jax(OperatorsOnly):
    """`--impl jax`: tables of functions of JAX's arrays, differentiated by `jax.vjp`.

    Raises:
        LoadError: JAX is not installed, or no suite has a table for it.
    """

    name = "jax"

    def __init__(self, references: Sequence[str]) -> None:
        """Import JAX and the tables at "module:NAME"."""
        try:
            self.options = _quickly(imported_jax())
        except ImportError as error:
            raise LoadError("--impl jax: JAX is not installed; run `pip install jax`") from error
        self.table = peers("jax", "JAX", references)

    def bind(self, case: Case, dtype: str) -> Bound | None:
        """The counterpart of `op/dialect`, else of `op`."""
        function, _ = entry_of(self.table, case)
        if function is None:
            return None
        op = JaxOp(name="jax", function=function, jit=True, options=self.options, fused=True)
        callee = op.callee(case.attrs, len(case.primal_names), None)
        return Bound(
            vjp=op.vjp, forward=op.forward, attrs=case.attrs, asked=op.asked, callee=callee
        )


def _quickly(jax: Any) -> dict[str, Any]:
    """`QUICKLY`, if this version of JAX knows all of it; else nothing."""
    try:
        jax.jit(lambda x: x, compiler_options=QUICKLY)(0)
    except Exception:  # noqa: BLE001  how an unknown option is refused differs between versions
        return {}
    return QUICKLY
