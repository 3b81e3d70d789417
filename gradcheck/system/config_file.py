"""Which file says a project's defaults: the nearest pyproject.toml with a table of ours."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, Final

from gradcheck.system.reading import Unsuitable, contents

FILE: Final = "pyproject.toml"
NAME: Final = "gradcheck"
LARGEST: Final = 1 << 24
"""Bytes of such a file."""
HINT: Final = re.compile(r"""tool["']?\s*(?:\.\s*["']?gradcheck|[]=])|\\[uU]""")
"""What a file with the table has somewhere: its name, the name of all tools', or a letter escaped.

Reading TOML takes a twentieth of a short run, and a project that uses us names us anyway.
"""


def file_of(folder: Path) -> Path | None:
    """The nearest pyproject.toml with the table, in `folder` or above it; None: there is none.

    One that cannot be read, or is no TOML, counts as one that has the table, if it names it.
    """
    for place in (folder, *folder.parents):
        path = place / FILE
        try:
            content = contents(path, LARGEST)
        except Unsuitable:
            return path  # whoever reads it says why it cannot be
        except OSError:
            continue
        if NAME.encode() in content and table_of(content) is not None:
            return path
    return None


def table_of(content: bytes) -> Any:
    """What stands under `tool.gradcheck`; None: nothing; the error, where the file is no TOML."""
    try:
        text = content.decode("utf-8")
        if not HINT.search(text):
            return None
        import tomllib  # deferred: few folders have a file with the table

        tool = tomllib.loads(text).get("tool")
    except (ValueError, RecursionError) as error:  # neither UTF-8 nor TOML
        return ValueError(str(error))
    return tool.get(NAME) if isinstance(tool, dict) else None
