"""Entry points of installed packages, read from their files without importing anything.

`importlib.metadata` finds the same, and takes a tenth of a short run to import. It is used where
packages are found in another way than in a folder of `sys.path`.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

FILE: Final = "entry_points.txt"
ENDINGS: Final = (".dist-info", ".egg-info")
RUNS: Final = re.compile("[-_.]+")
"""Characters that count as equal in names of packages."""


def entry_points(group: str) -> dict[str, str]:
    """The objects ("module:NAME") of a group, by name.

    Of two installations of a package, the one that would be imported counts. Source: the
    specification "Entry points" of the Python Packaging Authority.
    """
    try:
        texts = [*_texts()]
    except NotImplementedError:
        from importlib import metadata  # deferred: slow, and seldom needed

        return {point.name: point.value for point in metadata.entry_points(group=group)}
    return {name: value for text in texts for name, value in _lines(text, group)}


def _texts() -> Iterator[str]:
    """The files of all packages.

    Raises:
        NotImplementedError: packages may lie elsewhere than in folders.
    """
    if any(map(_finds, sys.meta_path)):
        raise NotImplementedError
    seen = set()
    for folder in map(Path, sys.path):
        if folder.is_file():  # an archive
            raise NotImplementedError
        try:
            found = [path for path in folder.iterdir() if path.suffix.lower() in ENDINGS]
        except OSError:
            continue
        for path in found:
            package = RUNS.sub("_", path.stem.lower().partition("-")[0])
            if package not in seen:
                seen.add(package)
                with suppress(OSError):  # most packages offer nothing
                    yield (path / FILE).read_text("utf-8")


def _finds(finder: object) -> bool:
    """Whether a finder knows packages, and is not the one that looks into `sys.path`."""
    usual = getattr(finder, "__module__", "") == "_frozen_importlib_external"
    return hasattr(finder, "find_distributions") and not usual


def _lines(text: str, group: str) -> Iterator[tuple[str, str]]:
    """Names and values of one section."""
    section = ""
    for line in map(str.strip, text.splitlines()):
        if line.startswith("["):
            section = line.strip("[]")
        elif section == group and line and not line.startswith("#"):
            name, _, value = line.partition("=")
            yield name.strip(), value.strip()
