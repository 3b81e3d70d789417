"""What a reference "package.module:NAME" names; and the suites that are installed or so named."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any, Final

from gradcheck.errors import LoadError, UsageError, nearest
from gradcheck.spec.suite import Suite
from gradcheck.system import entry_points
from gradcheck.system.user_modules import SUFFIX, look_here, look_in, refuse_hidden

ENTRY_POINTS: Final = "gradcheck.suites"


def resolve(reference: str, *, own: bool = False) -> Any:
    """The object that "package.module:NAME" refers to.

    `own`: it may be a module of the user's, and lie in his folders; "folder/module.py:NAME" names
    its file.

    Raises:
        LoadError: it has another form, the module raises on import, or it lacks the name; another
            module hides it.
    """
    module_name, colon, attribute = reference.partition(":")
    if not (module_name and colon and attribute):
        raise LoadError(f"{reference!r} is not of the form package.module:NAME")
    file = Path(module_name) if own and module_name.endswith(SUFFIX) else None
    if own:
        look_here()
        if file is not None:
            look_in(file.parent)
            module_name = file.stem
        refuse_hidden(module_name)
    try:
        module = import_module(module_name)
    except BaseException as error:
        if isinstance(error, KeyboardInterrupt):
            raise
        raise LoadError(
            f"{reference}: importing {module_name} raised {type(error).__name__}: {error}"
        ) from error
    if file is not None:
        _refuse_other(reference, module, file)
    target: Any = module
    for part in attribute.split("."):
        if not hasattr(target, part):
            near = nearest(
                part, (n for n in getattr(target, "__dict__", ()) if not n.startswith("_"))
            )
            hint = f"; did you mean {near!r}?" if near else ""
            raise LoadError(f"{reference}: {module_name} has no {attribute!r}{hint}")
        target = getattr(target, part)
    return target


def _refuse_other(reference: str, module: ModuleType, file: Path) -> None:
    """Refuse a module that was imported from another file.

    Raises:
        LoadError: it was.
    """
    origin = getattr(module, "__file__", None) or "Python itself"
    if Path(origin).resolve() != file.resolve():
        raise LoadError(f"{reference}: a module of that name comes from {origin}; rename yours")


def load_suite(references: Sequence[str] = ()) -> Suite:
    """The suites at "module:NAME", or all installed ones, as one; the built-in one first.

    Raises:
        UsageError: no suite is installed.
        LoadError: a suite cannot be imported.
    """
    suites = []
    for reference in references or installed_suites():
        suite = resolve(reference, own=bool(references))
        if not isinstance(suite, Suite):
            raise LoadError(f"{reference} is a {type(suite).__name__}, not a gradcheck Suite")
        suites.append(suite)
    return suites[0] if len(suites) == 1 else Suite.joined(suites)


def installed_suites() -> list[str]:
    """The suites that packages offer, as "module:NAME"; the built-in one first.

    Raises:
        UsageError: there is none.
    """
    found = entry_points.entry_points(ENTRY_POINTS)
    if not found:
        raise UsageError("no suite installed: run `pip install -e .` or pass --suite MODULE:NAME")
    return [found[name] for name in sorted(found, key=lambda name: (name != "builtin", name))]
