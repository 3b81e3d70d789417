"""Answers on file: an exported folder stands for the code that wrote into it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from gradcheck.errors import Unsupported
from gradcheck.implementations import npz
from gradcheck.implementations.bound import Bound, BoundModel, BoundRule
from gradcheck.implementations.process import array_of, vjp_request
from gradcheck.implementations.protocol import folder, index
from gradcheck.implementations.protocol.message import GIVES, Request
from gradcheck.implementations.returned import broken
from gradcheck.numerics.arrays import as_tuple
from gradcheck.spec.model import ModelCase
from gradcheck.spec.rule import RuleCase
from gradcheck.spec.suite import Case

Array = NDArray[Any]
ANSWER = ".answer.npz"
"""How the name of an answer ends, where that of the request ends in ".npz"."""


class Answers:
    """What lies in an exported folder; a call is looked up by the bits of its arguments.

    Raises:
        UsageError: the folder holds no export.
    """

    def __init__(self, name: str, place: Path) -> None:
        """Read the index; `name` is what `--impl` calls it."""
        self.name = name
        self.place = place
        self.index = index.read(place)
        self._calls = {(case.case, case.dtype): case.calls for case in self.index.cases}

    def bind(self, case: Case, dtype: str) -> Bound | None:
        """The answers to a case; None where there is none to any of its requests."""
        calls = self._calls.get((case.name, dtype), ())
        if not any(self._answered(call) for call in calls):
            return None

        def vjp(ct: Any, *primals: Array, **attrs: Any) -> tuple[Array | None, ...]:
            request = vjp_request(case, dtype, as_tuple(ct), primals, attrs)
            found = self._answer(request)
            return tuple(found.get(name) for name in case.primal_names)

        return Bound(vjp=vjp, forward=None, attrs=case.attrs)

    def bind_model(self, case: ModelCase, dtype: str) -> BoundModel | None:
        """Models are not exported."""
        return None

    def bind_rule(self, case: RuleCase, dtype: str) -> BoundRule | None:
        """Update rules are not exported."""
        return None

    def _answered(self, call: str) -> bool:
        name = self.index.places.get(call)
        if name is None:
            return False
        if self.index.layout == "npz":
            return _exists(self._file(name))
        start = f"{GIVES['vjp']}."
        try:
            return any(path.name.startswith(start) for path in (self.place / name).iterdir())
        except OSError:
            return False

    def _answer(self, request: Request) -> dict[str, Array]:
        """The arrays that answer a request, by name.

        Raises:
            Unsupported: nobody was asked this.
            Broken: what lies there cannot be read.
        """
        name = self.index.places.get(index.digest(request))
        if name is None:
            raise Unsupported("answers on file answer nothing but what was exported")
        try:
            if self.index.layout == "npz":
                path = self._file(name)
                return npz.read(path, request) if _exists(path) else {}
            blocks = folder.read(self.place / name, request)
        except (folder.BadFolder, OSError) as error:
            raise broken("vjp", f"{name}: {error}") from None
        return {block.form.name: array_of(block) for block in blocks}

    def _file(self, name: str) -> Path:
        return self.place / f"{name.removesuffix('.npz')}{ANSWER}"


def _exists(path: Path) -> bool:
    """Whether anything lies there, a link that leads nowhere too."""
    return path.is_symlink() or path.exists()
