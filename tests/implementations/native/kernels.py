"""Entries of a manifest for the functions of kernels.c."""

import re
from pathlib import Path

from gradcheck.implementations.manifest.prototype import declarations

SOURCE = Path(__file__).with_name("kernels.c")
PROTOTYPES = {
    re.search(r"(\w+)\(", text)[1]: text for text in declarations(SOURCE.read_text("utf-8"))
}
"""The functions of kernels.c, as it declares them."""
ROLES = {
    "dx": "grad:x", "dy": "grad:y", "dz": "cotangent", "x": "in:x", "y": "in:y", "n": "size(x)",
    "z": "out", "keep": "saved:keep[n]", "at": "saved:at[n]",
}  # fmt: skip
"""The meaning of a parameter by its name, unless the operator or a test has another."""
OPERATORS = {
    "tanh": {"dy": "cotangent", "y": "out"},
    "softmax": {"dy": "cotangent", "y": "out", "rows": "rows(x)", "cols": "dim(x, -1)"},
    "scale": {"dy": "cotangent", "s": "item(s)"},
    "get_rows": {
        "dtable": "grad:x", "dy": "cotangent", "tokens": "in:rows", "n": "size(rows)",
        "width": "dim(x, -1)",
    },
    "square_error/sum": {"dl": "item(cotangent)"},
    "weighted": {"dw": "grad:w?", "dy": "cotangent", "w": "in:w?"},
    "pair": {"d0": "cotangent", "d1": "cotangent:1", "twice": "out", "square": "out:1"},
}  # fmt: skip
NAMES = {
    "from": "tanh",
    "from_saved": "mul/same-shape",
    "rows": "get_rows",
    "loss": "square_error/sum",
}
"""Operators of functions whose names begin otherwise."""


def entry(symbol, change=None, *, key="vjp", op="", forward="", forward_bind=None, more="", **bind):
    """An [[op]] that binds a function of kernels.c as the VJP of its operator, mul unless said.

    `change` replaces texts in its prototype, which stands under `key`. `bind` and `forward_bind`
    say what parameters mean where their names do not; `forward` is another function of the file,
    and `more` are further lines.
    """
    named = NAMES.get(symbol.split("_")[0], symbol.split("_")[0])
    op = op or NAMES.get(symbol) or (named if named in OPERATORS else "mul/same-shape")
    said = {**ROLES, **OPERATORS.get(op, {})}
    lines = ["[[op]]", f'name = "{op}"']
    if symbol:
        lines += _function(key, "bind", symbol, change, {**said, **bind})
    if forward:
        said |= {"return": "out", **(forward_bind or {})}
        lines += _function("forward", "forward_bind", forward, None, said)
    return "\n".join([*lines, more, ""])


def _function(key, bind, symbol, change, said):
    text = PROTOTYPES[symbol]
    for old, new in (change or {}).items():
        assert old in text
        text = text.replace(old, new)
    returned = [] if text.startswith("void ") else ["return"]
    names = [*re.findall(r"(\w+)(?=,|\)$)", text), *returned]
    lines = ", ".join(f"{name} = {toml(said[name])}" for name in names if name in said)
    return [f'{key} = "{text}"', f"{bind} = {{ {lines} }}"]


def toml(value):
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{k} = {toml(v)}" for k, v in value.items()) + " }"
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(map(toml, value)) + "]"
    return str(value) if isinstance(value, int) else f'"{value}"'
