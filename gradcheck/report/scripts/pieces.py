"""The functions that Python scripts are put together from; words in capitals are filled in.

What is filled in is never searched for such words again.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from gradcheck.errors import UsageError
from gradcheck.numerics.arrays import is_float
from gradcheck.results.words import escaped

HOLE: Final = re.compile(r"\b(?:CALL|STEP|NEAREST|TOGETHER)\b")


def filled(piece: str, **words: str) -> str:
    """A piece, with what its words in capitals stand for.

    Raises:
        KeyError: one is not given.
    """
    return HOLE.sub(lambda word: words[word[0].lower()], piece)


_AS_DICT: Final = '''
    found = found if isinstance(found, (tuple, list)) else (found,)
    if len(found) != len(primals):
        sys.exit(f"WRONG: {len(found)} gradients for {len(primals)} primals")
    return dict(zip(primals, found))


def locked(array):
    """A copy that may only be read."""
    copy = array.copy()
    copy.flags.writeable = False
    return copy
'''
_GIVEN: Final = '''
def gradients():
    """What the code gives, by the names of the primals; it may not write into its arguments."""
    values = [locked(primal) for primal in primals.values()]
    ct = tuple(locked(ct) for ct in cotangents)
    ct = ct[0] if len(ct) == 1 else ct
'''
VJP: Final = f"""{_GIVEN}    found = CALL(ct, *values, **attrs){_AS_DICT}"""
PULLBACK: Final = f"""{_GIVEN}    _, pullback = CALL(*values, **attrs)
    found = pullback(ct){_AS_DICT}"""
INTO: Final = '''
def gradients():
    """What the code leaves in arrays of zeros, by the names of the primals."""
    outs = {n: np.zeros_like(p) for n, p in primals.items() if p.dtype.kind not in "iu"}
    ct = tuple(ct.copy() for ct in cotangents)
    CALL(outs, ct[0] if len(ct) == 1 else ct, *(p.copy() for p in primals.values()), **attrs)
    return outs
'''
TORCH: Final = '''
def gradients():
    """What autograd gives, by the names of the primals."""
    values = [torch.from_numpy(primal.copy()) for primal in primals.values()]
    leaves = {n: t.requires_grad_() for n, t in zip(primals, values) if t.is_floating_point()}
    outputs = CALL
    outputs = outputs if isinstance(outputs, (tuple, list)) else (outputs,)
    pairs = [(y, torch.from_numpy(ct)) for y, ct in zip(outputs, cotangents) if y.requires_grad]
    if not pairs:
        sys.exit("WRONG: no output requires a gradient")
    found = torch.autograd.grad(
        [y for y, _ in pairs], [*leaves.values()], [ct for _, ct in pairs], allow_unused=True
    )
    return {name: None if g is None else g.numpy() for name, g in zip(leaves, found)}
'''
JAX: Final = '''
def gradients():
    """What jax.vjp gives, by the names of the primals."""
    floats = {name: p for name, p in primals.items() if p.dtype.kind == "f"}

    def of_floats(*parts):
        values = {**primals, **dict(zip(floats, parts))}.values()
        return CALL

    outputs, pull = jax.vjp(of_floats, *(jax.numpy.asarray(p) for p in floats.values()))
    cts = [jax.numpy.asarray(ct) for ct in cotangents]
    found = pull(jax.tree.unflatten(jax.tree.structure(outputs), cts))
    return {name: np.asarray(gradient) for name, gradient in zip(floats, found)}
'''
_OUTPUTS: Final = "found if isinstance(found, (tuple, list)) else (found,)"
NUMPY_FORWARD: Final = f'''
def forward(values):
    """The code's own forward, as a tuple of outputs."""
    found = CALL
    if isinstance(found, tuple) and len(found) == 2 and callable(found[1]):
        found = found[0]  # the other is the pullback
    return {_OUTPUTS}
'''
JAX_FORWARD: Final = f'''
def forward(values):
    """The code's own forward, as a tuple of outputs."""
    found = CALL
    return {_OUTPUTS}
'''
TORCH_FORWARD: Final = f'''
def forward(values):
    """The code's own forward, as a tuple of outputs."""
    values = [torch.from_numpy(value) for value in values]
    found = CALL
    return [y.detach().numpy() for y in ({_OUTPUTS})]
'''

DIFFERENCE: Final = '''
def difference(index, step=STEP):
    """A central difference of the code's own forward at one element: no number of ours in it."""
    ends = []
    for sign in (1, -1):
        wide = {n: p.dtype if p.dtype.kind in "iu" else float for n, p in primals.items()}
        moved = {name: p.astype(wide[name]) for name, p in primals.items()}
        moved[output][index] += sign * step
        pairs = zip(cotangents, forward([*moved.values()]))
        ends.append(sum(float(np.sum(ct.astype(float) * np.asarray(y))) for ct, y in pairs))
    return f"{(ends[0] - ends[1]) / (2 * step):.6g}, with a step of {step:g}"


def differenced(index):
    """The same in words; whatever forward does, the verdict does not depend on it."""
    try:
        return difference(index)
    except Exception as error:
        return f"not to be had: {type(error).__name__}"
'''

TOGETHER: Final = """\
    slopes, blur = along @ got.reshape(-1), abs(along) @ limit.reshape(-1)
    if not ((slopes >= least - blur) & (slopes <= most + blur)).all():
        print("\\nWRONG: the elements on a kink do not go together")
        return 1
"""
MAIN: Final = """
def main():
    got, again = (gradients().get(output) for _ in range(2))
    if got is None:
        print(f"WRONG: there is no gradient of {output}")
        return 1
    got, again = np.array(got), np.array(again)
    primal = primals[output]
    if got.shape != primal.shape or got.dtype != primal.dtype:
        form = f"{got.dtype} of shape {got.shape}, not {primal.dtype} of shape {primal.shape}"
        print(f"WRONG: the gradient of {output} is {form}")
        return 1
    if got.tobytes() != again.tobytes():
        print(f"WRONG: called twice, the code gives two gradients of {output}")
        return 1
    got = got.astype(float)
    with np.errstate(all="ignore"):
        right_one = NEAREST
        error = np.where(got == right_one, 0.0, abs(got - right_one))
        limit = room + rtol * np.maximum(abs(got), abs(np.where(np.isfinite(want), want, 0.0)))
        wrong = ~(error <= limit)
        ranked = np.argsort(np.nan_to_num(-error / limit, nan=-np.inf), axis=None)[:20]
    print(f"{'index':>16}  {'got':>20}  {'want':>20}  {'bar':>8}  {'error':>8}  {'allowed':>8}")
    for i in (np.unravel_index(int(k), want.shape) for k in ranked):
        name = ", ".join(str(int(n)) for n in i) or "()"
        numbers = f"{got[i]:>20.12g}  {right_one[i]:>20.12g}  {bar[i]:>8.2g}"
        mark = "  WRONG" if wrong[i] else ""
        print(f"{name:>16}  {numbers}  {error[i]:>8.2g}  {limit[i]:>8.2g}{mark}")
    worst = np.unravel_index(int(ranked[0]), want.shape)
    told = differenced(worst)
    if told:
        print("\\nThe code's own forward, differenced at the first of them:", told)
TOGETHER    if wrong.any():
        print(f"\\nWRONG: {int(wrong.sum())} of {wrong.size} elements of d{output}")
        return 1
    print(f"\\nRIGHT: all {wrong.size} elements of d{output} agree")
    return 0


if __name__ == "__main__":
    try:
        status = main()
    except SystemExit as end:  # of the code, with whatever status
        status = end.code or "WRONG: the code asked to exit"
    sys.exit(status)
"""


Array = NDArray[Any]

WIDTH: Final = 96
"""Columns of a script."""
STRANGE: Final = {"nan": "np.nan", "inf": "np.inf", "-inf": "-np.inf"}


def number(value: Any) -> str:
    """One number in the fewest digits that give it again, in its own dtype."""
    scalar = np.asarray(value)
    if not is_float(scalar.dtype):
        return str(scalar.item())
    wide = float(scalar)
    if not math.isfinite(wide):
        return STRANGE[str(wide)]
    short = repr(float(str(scalar[()])))
    same = np.asarray(float(short)).astype(scalar.dtype).tobytes() == scalar.tobytes()
    return short if same else repr(wide)


def array(values: Array, dtype: str, indent: int = 0, before: int = 0) -> str:
    """An array as `np.array(…, dtype)`; its first line begins after `before` columns.

    Lines after it are indented by `indent`, and more inside.
    """
    values = np.asarray(values)
    if not values.size:
        return f"np.zeros({values.shape!r}, {dtype})"
    text = _nested(values, indent, before + len("np.array("), len(dtype) + 4)
    return f"np.array({text}, {dtype})"


def _nested(values: Array, indent: int, before: int, after: int) -> str:
    """Numbers in brackets: on one line where they fit between what stands before and after."""
    flat = str(_listed(values)).replace("'", "")
    if values.ndim == 0 or before + len(flat) + after <= WIDTH:
        return flat
    pad = " " * (indent + 4)
    if values.ndim == 1:
        lines = wrapped([number(v) for v in values], pad, WIDTH)
    else:
        lines = "\n".join(f"{pad}{_nested(part, indent + 4, indent + 4, 1)}," for part in values)
    return f"[\n{lines}\n{' ' * indent}]"


def _listed(values: Array) -> Any:
    return number(values) if values.ndim == 0 else [_listed(np.asarray(part)) for part in values]


def wrapped(words: Sequence[str], pad: str, width: int) -> str:
    """Words, each with a comma, in lines of at most `width` columns, each after `pad`."""
    lines, line = [], pad
    for word in words:
        if len(line) > len(pad) and len(line) + len(word) + 2 > width:
            lines.append(line.rstrip())
            line = pad
        line += f"{word}, "
    return "\n".join([*lines, line.rstrip()])


def value(found: Any, what: str) -> str:
    """An attribute's value; messages call it `what`.

    Raises:
        UsageError: it is no number, text or collection of these.
    """
    if isinstance(found, np.generic):
        found = found.item()
    if isinstance(found, float):
        return number(found)
    if found is None or isinstance(found, (bool, int, str)):
        return repr(found)
    if isinstance(found, np.ndarray) and (is_float(found.dtype) or found.dtype.kind in "iub"):
        return array(found, f"np.{found.dtype.name}")
    if isinstance(found, tuple):
        parts = [value(part, what) for part in found]
        return f"({', '.join(parts)}{',' * (len(parts) == 1)})"
    if isinstance(found, list):
        return f"[{', '.join(value(part, what) for part in found)}]"
    if isinstance(found, Mapping):
        return mapping(found, what)
    raise UsageError(f"{what} is a {type(found).__name__}, which no script can hold")


def mapping(found: Mapping[Any, Any], what: str = "") -> str:
    """A dict of such values."""
    parts = (f"{name!r}: {value(part, what or str(name))}" for name, part in found.items())
    return f"{{{', '.join(parts)}}}"


def comment(text: str) -> str:
    """Foreign text as one line that can end no comment: neither `#` nor `//`.

    What would reorder or hide text is escaped; a C compiler joins the next line to one that ends
    in a backslash, or in what C once took for one.
    """
    line = escaped(" ".join(text.split()))
    return f"{line} ." if line.endswith(("\\", "??/")) else line
