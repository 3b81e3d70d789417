"""Right VJPs that round on the way to a narrower type, and what `gradcheck.check` says of each.

`narrow_rows()` gives a row per subject, mode, place of the rounding, type, dtype and kind of
primals. A row that passes has a reason: the rounding changes no bit there, or by how much less than
the dtype's tolerance.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from benchmarks.formulas import Formulas
from gradcheck import check
from gradcheck.judge.compare import TOLERANCES
from gradcheck.numerics.arrays import as_tuple
from gradcheck.numerics.narrow import Narrow, NarrowArithmetic, narrower

Array = NDArray[Any]
Float = NDArray[np.float64]

WHERE: Final = ("operands", "cotangent", "result", "products", "sums")
"""What is rounded: every primal, the cotangent, what is returned; every a·b, every sum's end."""
NOTHING: Final = "changes no bit of any gradient"
MODES: Final = ("projection", "full")
PRIMALS: Final = ("random", "short")
"""Numbers that fill the mantissa, and multiples of 1/8."""
DTYPES: Final = ("float64", "float32")


@dataclass(frozen=True, slots=True)
class Subject:
    """A forward, its VJP, and the shapes of its primals."""

    name: str
    forward: Callable[..., Any]
    vjp: Callable[..., Any]
    shapes: tuple[tuple[int, ...], ...]

    def primals(self, seed: int, dtype: str, kind: str) -> tuple[Array, ...]:
        """Normal numbers in `dtype`; of the kind "short" they are multiples of 1/8."""
        rng = np.random.default_rng(seed)
        drawn = [rng.standard_normal(shape) for shape in self.shapes]
        if kind == "short":
            drawn = [np.rint(8.0 * x) / 8.0 for x in drawn]
        return tuple(x.astype(dtype) for x in drawn)


@dataclass(frozen=True, slots=True)
class Planted:
    """The VJP of `subject` in float64, rounded to `kept` at `where`, returned in `dtype`."""

    subject: Subject
    where: str
    kept: Narrow
    dtype: str

    def __call__(self, ct: Array, *primals: Array) -> Any:
        given = [p.astype(np.float64) for p in (ct, *primals)]
        if self.where == "operands":
            given[1:] = map(self.kept.rounded, given[1:])
        elif self.where == "cotangent":
            given[0] = self.kept.rounded(given[0])
        elif self.where in ("products", "sums"):
            arithmetic = NarrowArithmetic(**{self.where: self.kept})
            given = [arithmetic.asarray(g) for g in given]
        out = [np.array(np.asarray(g)) for g in as_tuple(self.subject.vjp(*given))]
        if self.where == "result":
            out = [self.kept.rounded(g) for g in out]
        typed = [g.astype(self.dtype) for g in out]
        return tuple(typed) if len(typed) > 1 else typed[0]


@dataclass(frozen=True, slots=True)
class Row:
    """What one check said; `reason` is empty unless the rounding passed."""

    subject: str
    mode: str
    what: str
    type: str
    dtype: str
    primals: str
    verdict: str
    reason: str


def subjects() -> tuple[Subject, ...]:
    """Operators with one output, and losses."""
    f = Formulas(np)
    heads = (2, 4, 3)
    return (
        Subject("matmul", f.matmul, f.matmul_vjp, ((5, 7), (7, 6))),
        Subject("mul", lambda a, b: a * b, lambda ct, a, b: (ct * b, ct * a), ((6, 7), (6, 7))),
        Subject("add", lambda x, b: x + b, lambda ct, x, b: (1.0 * ct, ct.sum(0)), ((6, 7), (7,))),
        Subject("silu", _silu, _silu_vjp, ((40,),)),
        Subject("softmax", f.softmax, f.softmax_vjp, ((5, 9),)),
        Subject("layer_norm", f.layer_norm, f.layer_norm_vjp, ((6, 16), (16,), (16,))),
        Subject("rms_norm", f.rms_norm, f.rms_norm_vjp, ((6, 16), (16,))),
        Subject("gelu", f.gelu, f.gelu_vjp, ((40,),)),
        Subject("attention", _attention, _attention_vjp, (heads, heads, heads)),
        Subject("cross_entropy", _cross_entropy, _cross_entropy_vjp, ((4, 6),)),
        Subject("norm", _norm, _norm_vjp, ((30,),)),
        Subject("half_square", _half_square, lambda ct, x: ct * x, ((30,),)),
    )


def narrow_rows(
    names: Sequence[str] = (),
    *,
    modes: Sequence[str] = MODES,
    dtypes: Sequence[str] = DTYPES,
    kinds: Sequence[str] = PRIMALS,
    seed: int = 0,
) -> Iterator[Row]:
    """A row for each rounding in each of the subjects `names` (empty: all)."""
    for subject in subjects():
        if names and subject.name not in names:
            continue
        for dtype in dtypes:
            for kind in kinds:
                for where in WHERE:
                    for kept in narrower(dtype):
                        for mode in modes:
                            yield _row(Planted(subject, where, kept, dtype), mode, kind, seed)


def _row(planted: Planted, mode: str, kind: str, seed: int) -> Row:
    subject, dtype = planted.subject, planted.dtype
    primals = subject.primals(seed, dtype, kind)
    full = mode == "full"
    found = check(subject.forward, planted, *primals, seed=seed, full=full, explain=False)
    verdict = found.verdict.name
    reason = _reason(planted, primals, seed) if verdict == "PASS" else ""
    kept = planted.kept.name
    return Row(subject.name, mode, planted.where, kept, dtype, kind, verdict, reason)


def _reason(planted: Planted, primals: Sequence[Array], seed: int) -> str:
    """Why a rounding may pass: how far it takes the gradient, at most, as a part of its bound."""
    subject, rng = planted.subject, np.random.default_rng([seed, 1])
    moved = [p.astype(np.float64) * (1.0 + rng.uniform(0.0, 0.01, p.shape)) for p in primals]
    outputs = subject.forward(*moved)
    ct = rng.standard_normal(np.shape(outputs))
    right = as_tuple(subject.vjp(ct, *moved))
    got = as_tuple(Planted(subject, planted.where, planted.kept, "float64")(ct, *moved))
    if all(np.array_equal(a, b) for a, b in zip(got, right, strict=True)):
        return NOTHING
    rtol = TOLERANCES[planted.dtype].rtol
    worst = max(
        float(np.max(np.abs(a - b)[b != 0.0] / np.abs(b[b != 0.0]), initial=0.0)) / rtol
        for a, b in zip(got, right, strict=True)
    )
    return f"at most {worst:.2g} times the tolerance of {rtol:g}"


def _silu(x: Any) -> Any:
    return x / (1.0 + np.exp(-x))


def _silu_vjp(ct: Any, x: Any) -> Any:
    s = 1.0 / (1.0 + np.exp(-x))
    return ct * (s * (1.0 + x * (1.0 - s)))


def _softmax(x: Any) -> Any:
    e = np.exp(x - np.max(x, -1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def _attention(q: Any, k: Any, v: Any) -> Any:
    return _softmax(q @ k.swapaxes(-1, -2) / np.sqrt(q.shape[-1])) @ v


def _attention_vjp(ct: Any, q: Any, k: Any, v: Any) -> Any:
    p, dp = _softmax(q @ k.swapaxes(-1, -2) / np.sqrt(q.shape[-1])), ct @ v.swapaxes(-1, -2)
    ds = p * (dp - (dp * p).sum(-1, keepdims=True)) / np.sqrt(q.shape[-1])
    return ds @ k, ds.swapaxes(-1, -2) @ q, p.swapaxes(-1, -2) @ ct


def _cross_entropy(x: Any) -> Any:
    top = np.max(x, -1, keepdims=True)
    return (np.log(np.exp(x - top).sum(-1)) + top[..., 0] - x[..., 1]).mean(-1)


def _cross_entropy_vjp(ct: Any, x: Any) -> Any:
    return ct * (_softmax(x) - (np.arange(x.shape[-1]) == 1)) / len(x)


def _norm(x: Any) -> Any:
    return np.sqrt((x * x).sum(-1))


def _norm_vjp(ct: Any, x: Any) -> Any:
    return ct * (x / _norm(x))


def _half_square(x: Any) -> Any:
    return 0.5 * (x * x).sum(-1)


def text(rows: Sequence[Row]) -> str:
    """The rows as Markdown: what is rejected, how often; and of what passes, why it may."""
    counts: dict[tuple[str, ...], list[int]] = {}
    reasons: dict[str, list[str]] = {}
    for row in rows:
        kind = 0 if row.verdict != "PASS" else 1 if row.reason == NOTHING else 2
        counts.setdefault((row.subject, row.mode, row.dtype, row.primals), [0, 0, 0])[kind] += 1
        if kind == 2:
            place = f"{row.subject}, {row.what} rounded to {row.type} in {row.dtype}"
            reasons.setdefault(row.reason, []).append(f"{place}, {row.primals} primals, {row.mode}")
    lines = [
        "# Narrow kernels that `gradcheck.check` judges",
        "",
        "Written by `python -m benchmarks.narrow -o reports/narrow-check.md`. Every VJP rounds",
        "what it gets, keeps or gives to TF32, bfloat16, float16 or float32; primals are random,",
        "or short (multiples of 1/8).",
        "",
        "| function | mode | dtype | primals | rejected | changes no bit | passes |",
        "|---|---|---|---|---:|---:|---:|",
        *(f"| {' | '.join([*key, *map(str, count)])} |" for key, count in counts.items()),
        "",
        "What passes though the rounding changes a bit:",
        "",
        *(f"- {reason}: {'; '.join(places)}" for reason, places in reasons.items()),
    ]
    return "\n".join([*lines, *([] if reasons else ["Nothing."]), ""])


def main(words: Sequence[str] | None = None) -> int:
    """Print the table, or write it; the exit code is 0."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.narrow", description=__doc__)
    parser.add_argument("-o", "--output", type=Path, metavar="FILE", help="write it there")
    given = parser.parse_args(words)
    found = text(list(narrow_rows()))
    if given.output:
        given.output.write_text(found, encoding="utf-8")
    else:
        print(found)
    return 0


if __name__ == "__main__":
    sys.exit(main())
