"""JAX: the formulas in jax.numpy as a custom_vjp, jitted."""

from __future__ import annotations

from typing import Any

import numpy as np

from benchmarks.formulas import Formulas
from benchmarks.peers import Check
from benchmarks.planted import Planted
from benchmarks.workloads import Workload


class Jax:
    """`jax.test_util.check_grads`, reverse mode, first order, in float64."""

    def __init__(self, _variant: str) -> None:
        """One formula is compiled once per workload, with an error and without."""
        import jax
        import jax.numpy as jnp
        from jax.test_util import check_grads

        jax.config.update("jax_enable_x64", True)
        jax.config.update("jax_platforms", "cpu")
        self.jax, self.jnp, self.check_grads = jax, jnp, check_grads
        self.formulas = Formulas(jnp)
        self.made: dict[tuple[str, bool], Any] = {}

    def prepare(self, workload: Workload, seed: int, planted: Planted | None) -> Check:
        """Arrays are on the device before the clock starts."""
        primals = [self.jnp.asarray(p) for p in workload.primals(seed)]
        function = self._function(workload, planted is not None)
        if planted is not None:
            function = self._with(function, planted, len(primals))

        def check() -> bool:
            try:
                self.check_grads(function, primals, order=1, modes=["rev"])
            except AssertionError:
                return False
            return True

        return check

    def _with(self, function: Any, planted: Planted, count: int) -> Any:
        """The place of the error is data, so that another place needs no compilation."""
        where, factors = np.zeros(count, np.int64), np.ones(count)
        where[planted.output], factors[planted.output] = planted.index, planted.factor
        place, factor = self.jnp.asarray(where), self.jnp.asarray(factors)
        return lambda *primals: function(place, factor, *primals)

    def _function(self, workload: Workload, planted: bool) -> Any:
        key = workload.name, planted
        if key not in self.made:
            self.made[key] = self._spoilt(workload) if planted else self._right(workload)
        return self.made[key]

    def _named(self, workload: Workload) -> tuple[Any, Any]:
        f = getattr(self.formulas, workload.operator)
        vjp = getattr(self.formulas, f"{workload.operator}_vjp")

        def backward(primals: Any, ct: Any) -> tuple[Any, ...]:
            found = vjp(ct, *primals, **workload.attrs)
            return found if isinstance(found, tuple) else (found,)

        return lambda *primals: f(*primals, **workload.attrs), backward

    def _right(self, workload: Workload) -> Any:
        forward, backward = self._named(workload)
        function = self.jax.custom_vjp(forward)
        function.defvjp(lambda *primals: (forward(*primals), primals), backward)
        return self.jax.jit(function)

    def _spoilt(self, workload: Workload) -> Any:
        forward, backward = self._named(workload)

        def called(_place: Any, _factor: Any, *primals: Any) -> Any:
            return forward(*primals)

        def kept(place: Any, factor: Any, *primals: Any) -> Any:
            return forward(*primals), (place, factor, primals)

        def wrong(saved: Any, ct: Any) -> Any:
            place, factor, primals = saved
            found = [
                g.reshape(-1).at[place[i]].multiply(factor[i]).reshape(g.shape)
                for i, g in enumerate(backward(primals, ct))
            ]
            no_integer = np.zeros(place.shape, self.jax.dtypes.float0)
            return no_integer, self.jnp.zeros_like(factor), *found

        function = self.jax.custom_vjp(called)
        function.defvjp(kept, wrong)
        return self.jax.jit(function)


ADAPTER = Jax
