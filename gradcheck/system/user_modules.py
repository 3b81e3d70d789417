"""Where a user's modules are found: in his folders, behind all that is installed.

His folders come last on the path, and only once code of his is named: a `random.py` of his is
never imported in the place of Python's, and at a command that runs nobody's code not at all.
"""

from __future__ import annotations

import sys
from importlib.machinery import ModuleSpec, PathFinder
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from gradcheck.errors import LoadError, UsageError
from gradcheck.system.config_file import file_of

_FOLDERS: Final[set[str]] = set()


def here() -> Path:
    """The working directory.

    Raises:
        UsageError: there is none any more.
    """
    try:
        return Path.cwd()
    except FileNotFoundError:
        raise UsageError("the working directory was removed; change into another one") from None


def look_here() -> None:
    """Let modules be imported from the working directory, and from the project's folder.

    The project's is the one whose pyproject.toml has a table of ours.
    """
    try:
        mine = here()
    except UsageError:  # there is nothing in it
        return
    file = file_of(mine)
    for folder in (mine, mine if file is None else file.parent):
        _put(len(sys.path), str(folder))


def look_in(folder: Path) -> None:
    """Let modules be imported from a folder, before all others of the user's."""
    mine = (place for place, known in enumerate(sys.path) if known in _FOLDERS)
    _put(next(mine, len(sys.path)), str(folder.absolute()))


def path_without() -> list[str]:
    """The path without the user's folders: another process looks there for itself."""
    return [place for place in sys.path if isinstance(place, str) and place not in _FOLDERS]


def refuse_hidden(module: str) -> None:
    """Refuse a module of the user's that another one of its name hides.

    Raises:
        LoadError: there is one.
    """
    top = module.partition(".")[0]
    mine = PathFinder.find_spec(top, [place for place in sys.path if place in _FOLDERS])
    try:
        found = find_spec(top)
    except (ImportError, ValueError):  # this program itself, say
        return
    if mine is None or mine.origin is None or found is None or _same(found, mine):
        return
    other = "Python has" if top in sys.stdlib_module_names else f"{found.origin} is"
    raise LoadError(
        f"{mine.origin}: {other} a module of that name, too, which comes first; rename yours, or "
        "put its folder into PYTHONPATH"
    )


def _put(place: int, folder: str) -> None:
    if folder not in sys.path:
        sys.path.insert(place, folder)
        _FOLDERS.add(folder)


def _same(one: ModuleSpec, other: ModuleSpec) -> bool:
    return one.origin == other.origin or (
        one.has_location
        and other.has_location
        and Path(str(one.origin)).resolve() == Path(str(other.origin)).resolve()
    )
