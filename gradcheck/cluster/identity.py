"""What must be the same wherever a run is judged: else its records were of two minds."""

from __future__ import annotations

import hashlib
import os
import sys
from collections.abc import Iterable, Mapping
from importlib.util import find_spec
from pathlib import Path

Identity = Mapping[str, str]
"""What a machine has, by what a reader calls it."""


def identity(suites: Iterable[str]) -> dict[str, str]:
    """What this process has; `suites` are the references of those that are judged."""
    import numpy as np

    import gradcheck

    return {
        "Python": "{}.{}".format(*sys.version_info),
        "system": "{0.sysname} {0.machine}".format(os.uname()),
        "NumPy": np.__version__,
        "gradcheck": f"{gradcheck.__version__} (its files: {_digest('gradcheck')})",
        **{f"suite {ref}": f"of files {_digest(ref.partition(':')[0])}" for ref in suites},
    }


def difference(here: Identity, there: Identity) -> str:
    """What another machine has instead; empty: both are the same.

    >>> difference({"NumPy": "2.0"}, {"NumPy": "2.1"})
    'NumPy 2.1, not 2.0 as here'
    """
    found = [
        f"{name} {there.get(name, 'missing')}, not {said} as here"
        for name, said in here.items()
        if there.get(name) != said
    ]
    return "; ".join(found)


def _digest(module: str) -> str:
    """Eight characters that change with the code of the package that a module belongs to."""
    try:
        spec = find_spec(module.partition(".")[0])
    except (ImportError, ValueError):
        spec = None
    if spec is None:
        return "missing"
    found = hashlib.blake2b(digest_size=4)
    folders = [Path(folder) for folder in spec.submodule_search_locations or ()]
    if folders:
        files = [(folder, path) for folder in folders for path in folder.rglob("*.py")]
    else:
        files = [(path.parent, path) for path in [Path(spec.origin or "")] if path.is_file()]
    for name, path in sorted((str(path.relative_to(root)), path) for root, path in files):
        found.update(f"{name}\0".encode() + path.read_bytes() + b"\0")
    return found.hexdigest()
