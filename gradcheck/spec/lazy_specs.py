"""The specs of a suite by name, each imported with its module when it is first asked for."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Mapping
from importlib import import_module
from pathlib import PurePath
from typing import Any, Generic, TypeVar

from gradcheck.errors import SpecError

Spec = TypeVar("Spec")


class Families(Mapping[str, Spec], Generic[Spec]):
    """The specs of several modules of a package, under names that are known without an import.

    `names` gives, for each module, the names of its specs in suite order, separated by blanks;
    `table` is the module's sequence of them. `Families.written_in` reads the names from the
    modules' text instead, and needs no table.
    """

    def __init__(self, package: str, table: str, names: Mapping[str, str]) -> None:
        """Import nothing yet.

        Raises:
            SpecError: two modules have specs of one name.
        """
        self._package, self._table, self._kind = package, table, ""
        self._names = {module: words.split() for module, words in names.items()}
        self.homes: dict[str, str] = {}
        for module, own in self._names.items():
            for name in own:
                if name in self.homes:
                    both = f"{self.homes[name]} and {module}"
                    raise SpecError(f"{package}: {name!r} stands in {both}; rename one")
                self.homes[name] = module
        self._made: dict[str, Spec] = {}

    @classmethod
    def written_in(cls, package: str, modules: Iterable[str], kind: str) -> Families[Spec]:
        """The specs that `modules` define as `variable = OpSpec(name="…", …)` at their top level.

        `kind` is the name of the class ("OpSpec"). The order is that of the modules, and within
        each that of its text.

        Raises:
            SpecError: two modules have specs of one name.
        """
        found = cls(package, "", {m: " ".join(_written(package, m, kind)) for m in modules})
        found._kind = kind
        return found

    def __getitem__(self, name: str) -> Spec:
        """The spec of a name.

        Raises:
            KeyError: there is none.
            SpecError: its module has other specs than its text, or `names`, says.
        """
        if name not in self._made:
            self._made.update(self._of(self.homes[name]))
        return self._made[name]

    def __contains__(self, name: object) -> bool:
        """Whether there is one; nothing is imported."""
        return name in self.homes

    def __iter__(self) -> Iterator[str]:
        """The names in order."""
        return iter(self.homes)

    def __len__(self) -> int:
        """Number of specs."""
        return len(self.homes)

    def _of(self, module: str) -> dict[str, Spec]:
        imported = import_module(f"{self._package}.{module}")
        specs: tuple[Any, ...] = (
            self._defined(module, vars(imported).values())
            if self._kind
            else getattr(imported, self._table)
        )
        found, said = [spec.name for spec in specs], self._names[module]
        if found != said:
            where = f"{self._package}.{module}" + (f".{self._table}" if self._table else "")
            raise SpecError(
                f"{where} holds {' '.join(found)}, and the suite says {' '.join(said)}; "
                + (
                    f'define each spec once, at the top level, as `variable = {self._kind}(name="…"'
                    if self._kind
                    else "write the same names in the same order"
                )
            )
        return dict(zip(found, specs, strict=True))

    def _defined(self, module: str, values: Iterable[object]) -> tuple[Any, ...]:
        """The specs among a module's values that are not imported from another one."""
        specs: list[Any] = [value for value in values if type(value).__name__ == self._kind]
        return tuple(spec for spec in specs if self.homes.get(spec.name, module) == module)


def _written(package: str, module: str, kind: str) -> Iterator[str]:
    """The names of the specs in a module's text, which is not run."""
    home: Any = sys.modules[package]
    file = PurePath(home.__file__).parent.joinpath(*module.split(".")).with_suffix(".py")
    text: bytes = home.__loader__.get_data(str(file))
    for part in text.split(f" = {kind}(".encode())[1:]:
        name = part.lstrip().removeprefix(b"name=")
        if name.startswith(b'"'):
            yield name[1:].partition(b'"')[0].decode()
