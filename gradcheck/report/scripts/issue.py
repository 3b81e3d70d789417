"""A wrong gradient as an issue for a framework's tracker: a few lines in its own API."""

from __future__ import annotations

import platform
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

import gradcheck
from gradcheck.errors import UsageError
from gradcheck.explain.shrink import Shrunk
from gradcheck.implementations.bound import Callee
from gradcheck.implementations.load import WORDS
from gradcheck.implementations.processes.crash_or_hang import in_words
from gradcheck.numerics.arrays import is_float
from gradcheck.report.scripts.inlined import Inlined, inlined
from gradcheck.report.scripts.pieces import comment, number, value
from gradcheck.report.scripts.point import Accepted, cotangent_of, primal_of, primals_of
from gradcheck.report.scripts.python import Table
from gradcheck.results.verdict import Verdict
from gradcheck.results.words import escaped
from gradcheck.spec.dtype_selection import LOW

Array = NDArray[Any]
Float = NDArray[np.float64]

MOST: Final = 256
"""Numbers of an input that an issue may hold."""
DIGITS: Final = {"float64": 17, "float32": 9}
STRANGE: Final = re.compile(r"\bnp\.(nan|inf)\b")
"""Numbers that Python has no literals for, as NumPy has them."""
PACKAGES: Final = {"torch": ("torch",), "jax": ("jax", "jaxlib")}
WRONG: Final = "WRONG"
"""What a table says of an element that differs."""
TITLES: Final = {
    Verdict.FAIL: "Wrong gradient of {} with respect to {} in {}",
    Verdict.MISSING: "No gradient of {} with respect to {} in {}",
    Verdict.CRASH: "The backward of {} with respect to {} in {} crashes",
    Verdict.TIMEOUT: "The backward of {} with respect to {} in {} does not end",
    Verdict.PASS: "The gradient of {} with respect to {} in {} is right",
}
OTHER: Final = "The backward of {} with respect to {} in {} raises"


@dataclass(frozen=True, slots=True, kw_only=True)
class Issue:
    """What an issue is about: a gradient at a point, and how the function is called.

    `word` is that of --impl, and `again` the command that judges the case again. With `ours`, the
    function's table imports gradcheck.
    """

    shrunk: Shrunk
    accepted: Accepted
    callee: Callee
    word: str
    verdict: Verdict
    says: Sequence[str]
    again: str
    ours: bool = False

    @property
    def name(self) -> str:
        """The function as its users call it; a suite's counterpart by its operator."""
        return self.shrunk.case.spec.name if self.word in WORDS else self.callee.name

    @property
    def title(self) -> str:
        """The first line of an issue."""
        words = TITLES.get(self.verdict, OTHER)
        return words.format(self.name, primal_of(self.shrunk), self.shrunk.dtype)

    def compiled(self) -> Issue:
        """The same, with a function that JAX compiles."""
        return replace(self, callee=replace(self.callee, compiled=True))


def versions(callee: Callee) -> dict[str, str]:
    """Versions of what the function rests on, by name."""
    found = {}
    for package in PACKAGES[callee.framework]:
        try:
            found[package] = version(package)
        except PackageNotFoundError:  # it lies on the path alone
            found[package] = "of an unknown version"
    return {**found, "Python": platform.python_version(), platform.system(): platform.machine()}


def script(issue: Issue) -> str:
    """The lines that print what comes and what is expected; they exit with 1 while that differs.

    Raises:
        UsageError: the input is too large, or holds what no script can.
    """
    shrunk = issue.shrunk
    if not shrunk.want.size:
        raise UsageError(f"--issue: d{primal_of(shrunk)} has no elements here; name another sample")
    if sum(p.size for p in shrunk.case.primals) > MOST:
        raise UsageError(
            f"--issue: the input has more than {MOST} elements; remove --no-shrink, or name a "
            "sample with fewer"
        )
    says = f"{issue.title}: {issue.says[0].partition(': ')[2]}"
    told = ", ".join(f"{name} {which}" for name, which in versions(issue.callee).items())
    lines = [f"# {comment(says)}", f"# {comment(told)}. {comment(issue.again)}"]
    lines += (_torch if issue.callee.framework == "torch" else _jax)(issue)
    return "\n".join([*lines, ""])


def _torch(issue: Issue) -> Iterator[str]:
    yield "import torch"
    before, call = _called(issue)
    yield from before
    cotangents = [_tensor(issue, part) for part in cotangent_of(issue.shrunk)]
    for name, primal in primals_of(issue.shrunk).items():
        yield f"{name} = {_tensor(issue, primal, leaf=is_float(primal.dtype))}"
    output = primal_of(issue.shrunk)
    out = _free("out", primals_of(issue.shrunk))
    yield f"{out} = {call}"
    if len(cotangents) == 1:
        yield f"{out}.backward({cotangents[0]})"
    else:
        yield f"torch.autograd.backward({out}, ({', '.join(cotangents)}))"
    got = f"{output}.grad.flatten().tolist()"
    if issue.verdict is Verdict.MISSING:
        nothing = f'[float("nan")] * {issue.shrunk.want.size}'
        got = f"{nothing} if {output}.grad is None else {got}"
    yield from _compared(issue, got)


def _tensor(issue: Issue, array: Array, *, leaf: bool = False) -> str:
    dtype = f", dtype=torch.{issue.shrunk.dtype if is_float(array.dtype) else array.dtype.name}"
    device = f", device={issue.callee.device!r}" if issue.callee.device else ""
    return f"torch.{_made('tensor', array)}{dtype}{device}{', requires_grad=True' if leaf else ''})"


def _jax(issue: Issue) -> Iterator[str]:
    yield "import jax"
    if issue.shrunk.dtype == "float64":
        yield 'jax.config.update("jax_enable_x64", True)'
    if issue.callee.device:
        device = f"jax.devices({issue.callee.device!r})[0]"
        yield f'jax.config.update("jax_default_device", {device})'
    before, call = _called(issue)
    yield from before
    primals = primals_of(issue.shrunk)
    for name, primal in primals.items():
        yield f"{name} = {_array(issue, primal)}"
    floats = [name for name, primal in primals.items() if is_float(primal.dtype)]
    function = f"lambda {', '.join(floats)}: {call}"
    if call == f"{call.partition('(')[0]}({', '.join(floats)})":
        function = call.partition("(")[0]
    function = f"jax.jit({function})" if issue.callee.compiled else function
    out, vjp = (_free(word, primals) for word in ("out", "vjp"))
    yield f"{out}, {vjp} = jax.vjp({function}, {', '.join(floats)})"
    cotangents = [_array(issue, part) for part in cotangent_of(issue.shrunk)]
    ct = cotangents[0] if len(cotangents) == 1 else f"({', '.join(cotangents)})"
    place = floats.index(primal_of(issue.shrunk))
    yield from _compared(issue, f"{vjp}({ct})[{place}].flatten().tolist()")


def _array(issue: Issue, array: Array) -> str:
    dtype = f", dtype={issue.shrunk.dtype!r}" if is_float(array.dtype) else ""
    return f"jax.numpy.{_made('array', array)}{dtype})"


def _made(maker: str, array: Array) -> str:
    """The begin of the call that makes an array."""
    return f"{maker}({_literal(array)}" if array.size else f"zeros({array.shape!r}"


def _called(issue: Issue) -> tuple[list[str], str]:
    """Lines that import or define the function, and the expression of its outputs."""
    callee, primals = issue.callee, [*primals_of(issue.shrunk)]
    if callee.module and issue.word in WORDS:
        found = _inlined(callee, primals)
        return [*found.before], found.call
    words = [*primals, *(_put(v) for v in callee.behind)]
    words += [f"{name}={_put(v)}" for name, v in callee.attrs.items()]
    called = {"apply": ".apply", "module": f".to(torch.{issue.shrunk.dtype})"}.get(callee.style, "")
    root = callee.name.partition(".")[0].partition("[")[0]
    note = "  # its table imports gradcheck" if issue.ours else ""
    imports = [f"from {callee.module} import {root}{note}"] if callee.module else []
    return imports, f"{callee.name}{called}({', '.join(words)})"


def _inlined(callee: Callee, primals: Sequence[str]) -> Inlined:
    folder, *inner = Table.at(callee.module).folder, *callee.module.split(".")
    file = Path(folder, *inner).with_suffix(".py")
    return inlined(file, callee.name, primals, {n: _put(v) for n, v in callee.attrs.items()})


def _put(found: Any) -> str:
    return _plain(value(found, "an argument"))


def _compared(issue: Issue, got: str) -> Iterator[str]:
    """The table of `got`, a list of floats, and what is expected; and the exit code."""
    accepted, primals = issue.accepted, primals_of(issue.shrunk)
    names = ("got", "checked", "expected", "tolerance")
    given, checked, expected, tolerance = (_free(word, primals) for word in names)
    yield f"{given} = {got}"
    low, high = (a.reshape(-1) for a in (accepted.low, accepted.high))
    size = np.where(np.isfinite(low) & np.isfinite(high), np.maximum(abs(low), abs(high)), 0.0)
    room = 1.01 * (accepted.room.reshape(-1) + accepted.rtol * size)
    if len(accepted.along):
        rows = str([_flat(row) for row in accepted.along]).replace("'", "")
        sums = f"sum(a * b for a, b in zip(row, {given}))"
        yield f"{given} += [{sums} for row in {rows}]  # several on a kink go together"
        low, high = (np.concatenate(p) for p in ((low, accepted.least), (high, accepted.most)))
        room = np.concatenate([room, abs(accepted.along) @ room])
    digits = DIGITS.get(issue.shrunk.dtype, 6)
    rooms = [float(f"{r:.3g}") for r in room]
    same = len({*rooms}) == 1 and len(rooms) > 1
    written = f"[{rooms[0]!r}] * {len(rooms)}" if same else repr(rooms)
    if np.array_equal(low, high):
        yield f"{expected}, {tolerance} = {_flat(low)}, {written}"
        each, right, shown = "g, e, t", "e - t <= g <= e + t", f"{{e:24.{digits}g}}"
        kept = "g, e"
    else:  # a range on a kink
        pairs = ", ".join(f"({a}, {b})" for a, b in zip(*map(_texts, (low, high)), strict=True))
        yield f"{expected}, {tolerance} = [{pairs}], {written}  # on kinks, a range"
        each, right = "g, (a, b), t", "a - t <= g <= b + t"
        shown, kept = f"{{a:24.{digits}g}} to {{b:.{digits}g}}", "g, a, b"
    rows = f"zip({given}, {expected}, {tolerance})"
    yield f"{checked} = [({kept}, {right}) for {each} in {rows}]"
    row = f"{{g:24.{digits}g}} {shown}  {{'ok' if ok else {WRONG!r}}}"
    head = f"{'got':>24} {'expected':>24}"
    yield f'print("{head}", *(f"{row}" for {kept}, ok in {checked}), sep="\\n")'
    yield f"raise SystemExit(not all(ok for *_, ok in {checked}))"


def _free(word: str, taken: Any) -> str:
    return f"{word}_" if word in taken else word


def _texts(values: Array) -> list[str]:
    exact = values.dtype.name in LOW  # read as float64 and rounded twice, a short one may differ
    found = (repr(float(v)) if exact and np.isfinite(float(v)) else number(v) for v in values)
    return [_plain(text) for text in found]


def _plain(text: str) -> str:
    return STRANGE.sub(r'float("\1")', text)


def _flat(values: Array) -> str:
    return f"[{', '.join(_texts(values.reshape(-1)))}]"


def _literal(values: Array) -> str:
    """Nested brackets."""
    if values.ndim == 0:
        return _texts(values.reshape(1))[0]
    if values.ndim == 1:
        return _flat(values)
    return f"[{', '.join(_literal(part) for part in values)}]"


def markdown(issue: Issue, text: str, printed: str, code: int | None) -> str:
    """An issue in Markdown, around the script `text`, with what it printed and its exit code."""
    ended = "It does not end" if code is None else f"It ends with {in_words(code)}"
    rows = {**versions(issue.callee), "found with": f"gradcheck {gradcheck.__version__}"}
    table = [f"| {name} | {which} |" for name, which in rows.items()]
    return "\n".join(
        [
            f"# {comment(issue.title)}",
            "",
            _fenced(text, "python"),
            "",
            f"{ended}, and prints:" if printed else f"{ended}.",
            "",
            *([_fenced(printed, "text"), ""] if printed else []),
            "`expected` is the true derivative, computed in 50 digits. The script exits with 0 "
            "once the gradient agrees with it.",
            "",
            *["| | |", "| --- | --- |", *table],
            "",
            "gradcheck says:",
            "",
            _fenced("\n".join([*issue.says, issue.again]), "text"),
            "",
        ]
    )


def _fenced(text: str, language: str) -> str:
    """A code block that nothing in it ends, without what a terminal would obey."""
    text, fence = "\n".join(map(escaped, text.splitlines())), "```"
    while fence in text:
        fence += "`"
    return f"{fence}{language}\n{text}\n{fence}"
