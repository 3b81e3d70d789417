"""The specs' own VJPs in the working dtype: the implementation that is judged by default."""

from __future__ import annotations

from typing import Any

from gradcheck.arithmetic import FLOATS
from gradcheck.binding import Bound
from gradcheck.suite import Case


class Reference:
    """`--impl reference`."""

    name = "reference"

    def bind(self, case: Case, dtype: str) -> Bound:
        """The spec's forward and VJP in the arithmetic of `dtype`."""
        xp, spec = FLOATS[dtype], case.spec

        def forward(*primals: Any, **attrs: Any) -> Any:
            return spec.forward(xp, *primals, **attrs)

        def vjp(ct: Any, *primals: Any, **attrs: Any) -> Any:
            return spec.vjp(xp, ct, *primals, **attrs)

        return Bound(vjp=vjp, forward=forward, attrs=case.attrs)
