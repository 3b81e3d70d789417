"""A function that a framework differentiates with respect to whichever primals are asked for."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

from gradcheck.numerics.dtypes import is_float


class Differentiated(ABC):
    """A table entry's VJP, from `asked`."""

    __slots__ = ()

    @property
    @abstractmethod
    def code(self) -> Callable[..., Any]:
        """The user's function that is judged: his backward, where he wrote one."""

    @abstractmethod
    def asked(
        self, needs: tuple[bool, ...], ct: Any, *primals: Any, **attrs: Any
    ) -> tuple[Any, ...]:
        """The gradients of those primals for which `needs` has True; None for the others."""

    def vjp(self, ct: Any, *primals: Any, **attrs: Any) -> Any:
        """The gradients for the cotangent `ct`, a tuple where the function returns one.

        Raises:
            Broken: what comes back is no gradient, or something was written into.
            Unsupported: its device is not here.
        """
        needs = tuple(is_float(p.dtype) for p in primals)
        found = self.asked(needs, ct, *primals, **attrs)
        return found if len(found) > 1 else found[0]
