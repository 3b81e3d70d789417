"""The specs of a suite by name, each imported with its family when it is first asked for."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from importlib import import_module
from typing import Any, Generic, TypeVar

from gradcheck.errors import SpecError

Spec = TypeVar("Spec")


class Families(Mapping[str, Spec], Generic[Spec]):
    """What `module.TABLE` of several modules holds, under names that are known beforehand.

    `names` gives, for each module of `package`, the names of the specs in its `table` in order,
    with blanks between them: they are the order of the suite, and known without an import.
    """

    def __init__(self, package: str, table: str, names: Mapping[str, str]) -> None:
        """Import nothing yet.

        Raises:
            SpecError: two modules have specs of one name.
        """
        self._package, self._table = package, table
        self._names = {module: words.split() for module, words in names.items()}
        self._home: dict[str, str] = {}
        for module, own in self._names.items():
            for name in own:
                if name in self._home:
                    both = f"{self._home[name]} and {module}"
                    raise SpecError(f"{package}: {name!r} stands in {both}; rename one")
                self._home[name] = module
        self._made: dict[str, Spec] = {}

    def __getitem__(self, name: str) -> Spec:
        """The spec of a name.

        Raises:
            KeyError: there is none.
            SpecError: its module has other specs than were said.
        """
        if name not in self._made:
            self._made.update(self._of(self._home[name]))
        return self._made[name]

    def __contains__(self, name: object) -> bool:
        """Whether there is one; nothing is imported."""
        return name in self._home

    def __iter__(self) -> Iterator[str]:
        """The names in order."""
        return iter(self._home)

    def __len__(self) -> int:
        """Number of specs."""
        return len(self._home)

    def _of(self, module: str) -> dict[str, Spec]:
        specs: tuple[Any, ...] = getattr(import_module(f"{self._package}.{module}"), self._table)
        found, said = [spec.name for spec in specs], self._names[module]
        if found != said:
            raise SpecError(
                f"{self._package}.{module}.{self._table} holds {' '.join(found)}, and the suite "
                f"says {' '.join(said)}; write the same names in the same order"
            )
        return dict(zip(found, specs, strict=True))
