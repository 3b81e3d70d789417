"""gradcheck itself: by projection, element by element, and as a model."""

from __future__ import annotations

from typing import Any

import gradcheck
from benchmarks.peers import Check
from benchmarks.planted import Planted
from benchmarks.workloads import Workload, gradients


class Ours:
    """`check`, `check(full=True)` and `check_model`."""

    def __init__(self, variant: str) -> None:
        """What a check imports on its first call is part of the first call."""
        self.variant = variant

    def prepare(self, workload: Workload, seed: int, planted: Planted | None) -> Check:
        """A trial asks for the verdict: the diagnosis of a failure is no part of it."""
        primals = workload.primals(seed)
        if self.variant == "model":
            return self._model(workload, primals, planted)

        def vjp(ct: Any, *primals: Any) -> Any:
            found = workload.vjp(ct, *primals)
            return found if planted is None else planted.into(found)

        full = self.variant == "full"
        explain = planted is None
        return lambda: (
            gradcheck.check(workload.forward, vjp, *primals, full=full, explain=explain).ok
        )

    def _model(self, workload: Workload, primals: Any, planted: Planted | None) -> Check:
        names = [f"p{i}" for i in range(len(primals))]
        params = dict(zip(names, primals, strict=True))

        def check() -> bool:
            found: Any = gradients(workload, 1.0, primals)
            if planted is not None:
                found = planted.into(found)
            given = dict(zip(names, found, strict=True))
            return gradcheck.check_model(
                lambda: workload.forward(*primals), params, given, locate=planted is None
            ).ok

        return check


ADAPTER = Ours
