"""A Python script that shows one wrong gradient, and needs NumPy and the code judged alone."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

from gradcheck.errors import UsageError
from gradcheck.explain.shrink import Shrunk
from gradcheck.implementations.bound import Recipe
from gradcheck.report.scripts import pieces
from gradcheck.report.scripts.pieces import array, comment, mapping, number, value
from gradcheck.report.scripts.point import (
    Accepted,
    cotangent_of,
    primal_of,
    primals_of,
    step_of,
    worst_of,
)
from gradcheck.spec.dtype_selection import LOW
from gradcheck.system.user_modules import SUFFIX, look_here

Float = NDArray[np.float64]

TORCH: Final = ("apply", "module", "torch")
NEEDS: Final = {**dict.fromkeys(TORCH, "PyTorch"), "jax": "JAX"}
"""What a script needs beside NumPy, by the style of the entry."""
ASKING: Final = {
    "vjp": (pieces.VJP, "vjp"),
    "bare": (pieces.VJP, ""),
    "pullback": (pieces.PULLBACK, "forward"),
    "into": (pieces.INTO, "vjp_into"),
}
"""How gradients are asked for by functions of arrays, and what the function is called."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """Where a user's table is: `name` in `module`, which lies in `folder` (empty: installed)."""

    module: str
    name: str
    folder: str

    @classmethod
    def at(cls, reference: str, folder: str = "") -> Table:
        """The table "package.module:NAME" or "FILE.py:NAME"; no `folder`: where Python looks."""
        module, _, name = reference.partition(":")
        if module.endswith(SUFFIX):
            file = Path(module)
            return cls(module=file.stem, name=name, folder=str(file.parent.absolute()))
        return cls(module=module, name=name, folder=folder or _folder_of(module))


def _folder_of(module: str) -> str:
    """The folder to be put on the path so that a module is found; it is not imported for that."""
    look_here()
    inner = Path(*module.split("."))
    for place in sys.path:
        root = Path(place or ".").absolute()
        if (root / inner).is_dir() or any((root / inner.parent).glob(f"{inner.name}.*")):
            return str(root)
    top = find_spec(module.partition(".")[0])
    if top is None or top.origin is None:
        return ""
    origin = Path(top.origin)
    return str(origin.parents[1] if origin.stem == "__init__" else origin.parent)


def script(
    shrunk: Shrunk, accepted: Accepted, recipe: Recipe, table: Table, said: Sequence[str]
) -> str:
    """The whole script; the lines `said` tell what is wrong, and stand at its top.

    Raises:
        UsageError: it cannot be written.
    """
    if shrunk.dtype in LOW and recipe.style in NEEDS:
        raise UsageError(
            f"--export: {shrunk.dtype} reaches {NEEDS[recipe.style]} by ways that are too long for "
            "a script; export the case in float32"
        )
    return "\n".join(
        [
            *_head(recipe, table, said),
            *_imports(shrunk.dtype, recipe, table),
            *_data(shrunk, accepted, recipe),
            "",
            _gradients(recipe),
            _differenced(shrunk, recipe),
            _main(accepted),
        ]
    )


def _head(recipe: Recipe, table: Table, said: Sequence[str]) -> Iterator[str]:
    yield "#!/usr/bin/env python3"
    yield from (f"# {comment(line)}" for line in said)
    yield f"# The code: {comment(f'{table.module}:{table.name}[{recipe.key!r}]')}"
    needed = "NumPy" + (f" and {NEEDS[recipe.style]}" if recipe.style in NEEDS else "")
    yield f"# Beside that code and {needed} this needs nothing."
    yield "# Exit code: 1 as long as the gradient is wrong, 0 once it is right."
    if recipe.ours:
        yield "# The code itself imports gradcheck."
    yield ""


def _imports(dtype: str, recipe: Recipe, table: Table) -> Iterator[str]:
    yield "import sys"
    yield "from importlib import import_module"
    yield ""
    if recipe.style == "jax":
        yield "import jax"
    if dtype == "bfloat16":
        yield "import ml_dtypes"
    yield "import numpy as np"
    if recipe.style in TORCH:
        yield "import torch"
    yield ""
    if recipe.style == "jax" and dtype == "float64":
        yield 'jax.config.update("jax_enable_x64", True)'
    if table.folder:
        yield f"sys.path.insert(0, {table.folder!r})  # where the module lies"
    yield f"table = import_module({table.module!r})"
    yield from (f"table = getattr(table, {part!r})" for part in table.name.split("."))
    yield f"entry = table[{recipe.key!r}]"


def _data(shrunk: Shrunk, accepted: Accepted, recipe: Recipe) -> Iterator[str]:
    kind = "ml_dtypes.bfloat16" if shrunk.dtype == "bfloat16" else f"np.{shrunk.dtype}"
    yield ""
    yield "# The input."
    yield "primals = {"
    for name, primal in primals_of(shrunk).items():
        dtype = f"np.{primal.dtype.name}" if primal.dtype.kind in "iu" else kind
        lead = f"    {name!r}: "
        yield f"{lead}{array(primal, dtype, 4, len(lead))},"
    yield "}"
    yield "cotangents = ("
    yield from (f"    {array(part, kind, 4, 4)}," for part in cotangent_of(shrunk))
    yield ")"
    yield f"attrs = {mapping(recipe.attrs)}"
    yield ""
    yield "# The true gradient of this primal, and how uncertain it is."
    yield f"output = {primal_of(shrunk)!r}"
    yield _named("want", accepted.nearest(shrunk.want))
    yield _named("bar", _rounded(shrunk.bar))
    if accepted.kinked:
        yield "# On a kink, anything between the two is right."
        yield from (_named("low", accepted.low), _named("high", accepted.high))
    if len(accepted.along):
        yield "# And several together: along each of these directions, a slope between two."
        yield from (_named("along", accepted.along), _named("least", accepted.least))
        yield _named("most", accepted.most)
    yield f"# A right one in {shrunk.dtype} is no further off than room + rtol * its size."
    yield _named("room", _rounded(1.01 * accepted.room))
    yield f"rtol = {number(accepted.rtol)}"


def _named(name: str, values: Float) -> str:
    return f"{name} = {array(values, 'np.float64', 0, len(name) + 3)}"


def _rounded(values: Float) -> Float:
    """To three digits: nobody reads more of a bound."""
    flat = [float(f"{v:.3g}") for v in values.reshape(-1)]
    return np.array(flat, dtype=np.float64).reshape(values.shape)


def _gradients(recipe: Recipe) -> str:
    if recipe.style in ASKING:
        piece, name = ASKING[recipe.style]
        return pieces.filled(piece, call=_member(recipe, name))
    piece = pieces.JAX if recipe.style == "jax" else pieces.TORCH
    return pieces.filled(piece, call=_expression(recipe))


def _expression(recipe: Recipe) -> str:
    """What gives a framework's outputs for `values`."""
    if recipe.style == "apply":
        behind = "".join(f", {value(v, 'an argument')}" for v in recipe.behind)
        return f"entry.apply(*values{behind})"
    if recipe.style == "module":
        floating = "next(t.dtype for t in values if t.is_floating_point())"
        return f"entry.to({floating})(*values, **attrs)"
    return "entry(*values, **attrs)"


def _member(recipe: Recipe, name: str) -> str:
    if recipe.style == "bare":
        return "entry"
    return f"entry[{name!r}]" if recipe.mapping else f"entry.{name}"


def _differenced(shrunk: Shrunk, recipe: Recipe) -> str:
    """The functions that difference the code's own forward, where it has one."""
    if recipe.forward is None:
        return "\ndef differenced(index):\n    return None  # the code has no forward\n"
    if recipe.style in TORCH:
        forward = pieces.filled(pieces.TORCH_FORWARD, call=_expression(recipe))
    elif recipe.style == "jax":
        forward = pieces.filled(pieces.JAX_FORWARD, call=_expression(recipe))
    else:
        call = f"{_member(recipe, 'forward')}(*values, **{mapping(recipe.forward)})"
        forward = pieces.filled(pieces.NUMPY_FORWARD, call=call)
    computes = "float32" if recipe.style == "jax" and shrunk.dtype != "float64" else "float64"
    step = number(step_of(shrunk, worst_of(shrunk), computes))
    return "\n".join([forward, pieces.filled(pieces.DIFFERENCE, step=step)])


def _main(accepted: Accepted) -> str:
    nearest = "np.clip(got, low, high)" if accepted.kinked else "want"
    together = pieces.TOGETHER if len(accepted.along) else ""
    return pieces.filled(pieces.MAIN, nearest=nearest, together=together)
