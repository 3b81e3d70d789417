"""HIPS autograd: the NumPy functions as a primitive with a VJP, or on its own graph."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from benchmarks.formulas import Formulas
from benchmarks.peers import Check
from benchmarks.planted import Planted
from benchmarks.workloads import Workload, gradients


class Hips:
    """`autograd.test_util.check_grads`, reverse mode, first order."""

    def __init__(self, variant: str) -> None:
        """The formulas in its own NumPy are what it differentiates by itself."""
        import autograd.numpy
        from autograd.extend import defvjp_argnums, primitive
        from autograd.test_util import check_grads

        self.primitive, self.define, self.check_grads = primitive, defvjp_argnums, check_grads
        self.formulas = Formulas(autograd.numpy) if variant == "own" else None

    def prepare(self, workload: Workload, seed: int, planted: Planted | None) -> Check:
        """One VJP for all arguments, called once: `defvjp` would call it per argument."""
        primals = workload.primals(seed)

        def maker(argnums: Any, _answer: Any, args: Any, _kwargs: Any) -> Any:
            def vjp(ct: Any) -> Any:
                found: Any = gradients(workload, ct, args)
                if planted is not None:
                    found = planted.into(found)
                return [found[i] for i in argnums]

            return vjp

        if self.formulas is None:
            function = self.primitive(workload.forward)
            self.define(function, maker)
        else:
            function = partial(getattr(self.formulas, workload.operator), **workload.attrs)
        np.random.seed(seed)  # noqa: NPY002 - what check_grads draws from

        argnum = tuple(range(len(primals)))  # the default is the first alone

        def check() -> bool:
            try:
                self.check_grads(function, argnum, modes=["rev"], order=1)(*primals)
            except AssertionError:
                return False
            return True

        return check


ADAPTER = Hips
