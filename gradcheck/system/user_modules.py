"""Where a user's modules and the project's defaults are: in the user's folders.

The folders come last on the path, and only once code of the user's is named: a `random.py` there
never replaces Python's. The project's folder is that of the nearest pyproject.toml with a table
`[tool.gradcheck]`.
"""

from __future__ import annotations

import re
import sys
from importlib.machinery import ModuleSpec, PathFinder
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

from gradcheck.errors import LoadError, UsageError
from gradcheck.system.reading import Unsuitable, contents

SUFFIX: Final = ".py"
"""What the name of a module's file ends with."""
FILE: Final = "pyproject.toml"
TABLE: Final = "gradcheck"
MAX_BYTES: Final = 1 << 24
"""Bytes of a pyproject.toml."""
HINT: Final = re.compile(r"""tool["']?\s*(?:\.\s*["']?gradcheck|[]=])|\\[uU]""")
"""Text that a file with the table contains: its name, that of all tools' table, or an escape.

Parsing TOML takes a twentieth of a short run, and a project that uses gradcheck mentions it anyway.
"""
HEADER: Final = re.compile(r"^\[tool\.([\w-]+)\]", re.MULTILINE)
"""The line that begins a tool's table."""
NEAR: Final = 0.8
"""Similarity from which on a name is taken for a misspelt one."""
_FOLDERS: Final[set[str]] = set()


def here() -> Path:
    """The working directory.

    Raises:
        UsageError: it was removed.
    """
    try:
        return Path.cwd()
    except FileNotFoundError:
        raise UsageError("the working directory was removed; change into another one") from None


def look_here() -> None:
    """Let modules be imported from the working directory and from the project's folder."""
    try:
        mine = here()
    except UsageError:  # it was removed
        return
    file = project_file(mine)
    for folder in (mine, mine if file is None else file.parent):
        _put(len(sys.path), str(folder))


def look_in(folder: Path) -> None:
    """Let modules be imported from a folder, before the user's other folders."""
    mine = (place for place, known in enumerate(sys.path) if known in _FOLDERS)
    _put(next(mine, len(sys.path)), str(folder.absolute()))


def path_without() -> list[str]:
    """`sys.path` without the user's folders, which another process adds for itself."""
    return [place for place in sys.path if isinstance(place, str) and place not in _FOLDERS]


def refuse_hidden(module: str) -> None:
    """Refuse a module of the user's that another module of its name hides.

    Raises:
        LoadError: another module hides it.
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


def project_file(folder: Path) -> Path | None:
    """The nearest pyproject.toml with the table, in `folder` or above it, if any.

    An unreadable file, or one that is not TOML, counts if it mentions the table.
    """
    for place in (folder, *folder.parents):
        path = place / FILE
        try:
            content = contents(path, MAX_BYTES)
        except Unsuitable:
            return path  # its reader reports why
        except OSError:
            continue
        if TABLE.encode() in content and project_table(content) is not None:
            return path
    return None


def misspelt_table(folder: Path) -> str:
    """The name of a tool's table in the folder's pyproject.toml that is nearly `gradcheck`."""
    try:
        text = contents(folder / FILE, MAX_BYTES).decode("utf-8", "replace")
    except OSError:
        return ""
    names = [name for name in HEADER.findall(text) if name[0] in "gG" and name != TABLE]
    if not names:
        return ""
    import difflib  # deferred: few files have a name like that

    return next(iter(difflib.get_close_matches(TABLE, names, n=1, cutoff=NEAR)), "")


def project_table(content: bytes) -> Any:
    """The value of `tool.gradcheck`; None without one; a ValueError where the file is not TOML."""
    try:
        text = content.decode("utf-8")
        if not HINT.search(text):
            return None
        import tomllib  # deferred: few folders have a file with the table

        tool = tomllib.loads(text).get("tool")
    except (ValueError, RecursionError) as error:  # neither UTF-8 nor TOML
        return ValueError(str(error))
    return tool.get(TABLE) if isinstance(tool, dict) else None


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
