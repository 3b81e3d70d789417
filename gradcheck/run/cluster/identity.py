"""What must be the same wherever a run is judged: else its records were of two minds."""

from __future__ import annotations

import hashlib
import os
import sys
from collections.abc import Collection, Iterable, Mapping
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from typing import Final

Identity = Mapping[str, str]
"""What a machine has, by what a reader calls it."""
FRAMEWORKS: Final = {"torch": {"PyTorch": "torch"}, "jax": {"JAX": "jax", "jaxlib": "jaxlib"}}
"""By the `--impl` word of a framework: what is installed for it, and by which name."""


def identity(suites: Iterable[str], words: Collection[str] = ()) -> dict[str, str]:
    """What this process has; `suites` are the references of those that are judged.

    `words` are those of `--impl`; the versions of frameworks count where one of them is named.
    """
    import numpy as np

    import gradcheck

    return {
        "Python": "{}.{}".format(*sys.version_info),
        "system": "{0.sysname} {0.machine}".format(os.uname()),
        "NumPy": np.__version__,
        "gradcheck": f"{gradcheck.__version__} (its files: {_digest('gradcheck')})",
        **{
            name: _installed(package)
            for word, packages in FRAMEWORKS.items()
            if word in words
            for name, package in packages.items()
        },
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


def _installed(package: str) -> str:
    """The version of a package, which is not imported for it: that can take seconds."""
    try:
        return version(package)
    except PackageNotFoundError:
        return "missing"


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
