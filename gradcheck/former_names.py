"""Former names of modules, for suites on file: they import the present ones, and warn."""

# Nothing is imported here, not even `__future__`: `python -m gradcheck` comes here while the
# working directory is first on the path.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from importlib.machinery import ModuleSpec
    from types import ModuleType
    from typing import Final

FORMER: "Final" = {
    "gradcheck.arithmetic": "gradcheck.numerics.arithmetic",
    "gradcheck.draw": "gradcheck.numerics.draw",
    "gradcheck.families": "gradcheck.spec.lazy_specs",
    "gradcheck.finding": "gradcheck.results.finding",
    "gradcheck.label": "gradcheck.spec.defect",
    "gradcheck.model": "gradcheck.spec.model",
    "gradcheck.power.fault": "gradcheck.spec.fault",
    "gradcheck.power.mutant": "gradcheck.spec.mutant",
    "gradcheck.program": "gradcheck.spec.program",
    "gradcheck.rule": "gradcheck.spec.rule",
    "gradcheck.suite": "gradcheck.spec.suite",
    "gradcheck.verdict": "gradcheck.results.verdict",
}


class FormerNames:
    """Finds and loads modules under their former names."""

    def find_spec(
        self, name: str, path: "Sequence[str] | None", target: "ModuleType | None" = None
    ) -> "ModuleSpec | None":
        """A spec for a former name; None for any other, which the next finder looks for."""
        if name not in FORMER:
            return None
        from importlib.machinery import ModuleSpec

        # No subclass of importlib.abc.Loader: importing that would cost every start.
        return ModuleSpec(name, self)  # type: ignore[arg-type]

    def create_module(self, spec: "ModuleSpec") -> None:
        """Leave the creation of the module to the import system."""

    def exec_module(self, module: "ModuleType") -> None:
        """Give the module the public names of the present one, and warn whoever imports it."""
        import warnings
        from importlib import import_module

        former = module.__name__
        present = import_module(FORMER[former])
        public = {name: value for name, value in vars(present).items() if name[0] != "_"}
        vars(module).update(public)
        warnings.warn(
            f"{former} is {FORMER[former]} now: import it from there",
            DeprecationWarning,
            stacklevel=2,
        )
