"""The specs' own VJPs in the working dtype: the implementation that is judged by default."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from gradcheck.errors import Unsupported
from gradcheck.implementations.bound import Bound, BoundModel, BoundRule
from gradcheck.numerics.arithmetic import F32, FLOATS
from gradcheck.numerics.arrays import dtype_named

if TYPE_CHECKING:
    from gradcheck.spec.model import ModelCase
    from gradcheck.spec.program import Stage, StageVjp, Values
    from gradcheck.spec.rule import RuleCase, State, Tensors
    from gradcheck.spec.suite import Case


class Reference:
    """`--impl reference`."""

    name = "reference"

    def bind(self, case: Case, dtype: str) -> Bound:
        """The spec's forward and VJP in the arithmetic of `dtype`."""
        spec = case.spec
        if dtype not in FLOATS:
            return _low(case, dtype_named(dtype))
        xp = FLOATS[dtype]

        def forward(*primals: Any, **attrs: Any) -> Any:
            return spec.forward(xp, *primals, **attrs)

        def vjp(ct: Any, *primals: Any, **attrs: Any) -> Any:
            return spec.vjp(xp, ct, *primals, **attrs)

        return Bound(vjp=vjp, forward=forward, attrs=case.attrs, strided=True)

    def bind_model(self, case: ModelCase, dtype: str) -> BoundModel:
        """The fold of the stages' own VJPs in the arithmetic of `dtype`."""
        if dtype not in FLOATS:
            raise Unsupported("models are judged in float64 and float32")
        xp, program = FLOATS[dtype], case.program

        def vjp(stage: Stage, cts: tuple[Any, ...], values: Values) -> tuple[Any, ...]:
            return stage.vjp(xp, cts, values)

        def one(_: Stage) -> StageVjp:
            return vjp

        def loss(params: Values, inputs: Values) -> Any:
            return program.forward(xp, {**params, **inputs})[program.loss]

        return BoundModel(loss=loss, stage=one)

    def bind_rule(self, case: RuleCase, dtype: str) -> BoundRule:
        """The rule's own text in the arithmetic of `dtype`."""
        xp = FLOATS[dtype]

        def update(params: Tensors, grads: Tensors, state: State, t: int, **attrs: Any) -> Any:
            return case.spec.update(xp, params, grads, state, t, **attrs)

        def init(params: Tensors) -> Any:
            return case.spec.init(xp, params)

        return BoundRule(update=update, init=init, attrs=case.attrs)


def _low(case: Case, dtype: np.dtype[Any]) -> Bound:
    """The spec's own functions as a kernel of low precision: float32 inside, rounded once."""
    spec = case.spec

    def wide(value: Any) -> Any:
        if isinstance(value, tuple):
            return tuple(wide(part) for part in value)
        return value.astype(np.float32) if value.dtype == dtype else value

    def narrow(value: Any) -> Any:
        if isinstance(value, tuple):
            return tuple(narrow(part) for part in value)
        return value if value is None else np.asarray(value).astype(dtype)

    def forward(*primals: Any, **attrs: Any) -> Any:
        return narrow(spec.forward(F32, *wide(primals), **attrs))

    def vjp(ct: Any, *primals: Any, **attrs: Any) -> Any:
        return narrow(spec.vjp(F32, wide(ct), *wide(primals), **attrs))

    return Bound(vjp=vjp, forward=forward, attrs=case.attrs, strided=True)
