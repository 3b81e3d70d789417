"""One right rms_norm backward, and copies whose formula is right and whose behaviour is not.

Each differs from `Right` in one habit of real code: what it keeps, where it writes, its assumptions
about memory, sizes, attributes. `source` is the class of the defect in the catalogue of mutations.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import as_strided

from gradcheck.power.contract import ContractMutant

OP, DIALECT = "rms_norm", "weight"
BLOCK = 8
"""Elements of a vector register, in the mutants that work in blocks."""
GRID_ROWS = 64
"""Rows of a grid, in the mutant that has a fixed one."""


def rstd_of(x: Any, eps: float) -> Any:
    return 1 / np.sqrt(np.mean(x * x, axis=-1, keepdims=True) + x.dtype.type(eps))


def dx_of(ct: Any, x: Any, w: Any, r: Any) -> Any:
    n, g = x * r, ct * w
    return r * (g - n * np.mean(g * n, axis=-1, keepdims=True))


def dw_of(ct: Any, x: Any, r: Any) -> Any:
    return np.sum(ct * x * r, axis=tuple(range(x.ndim - 1)))


class Right:
    """dx is overwritten, and may take the memory of dy; dw is added to what its buffer holds."""

    accumulates: tuple[str, ...] = ("w",)
    aliases: tuple[tuple[str, str], ...] = (("x", "ct"),)

    def both(self, ct: Any, x: Any, w: Any, eps: float) -> tuple[Any, Any]:
        r = rstd_of(x, eps)
        return dx_of(ct, x, w, r), dw_of(ct, x, r)

    def vjp(self, ct: Any, x: Any, w: Any, *, eps: float = 1e-5, needs: Any = (True, True)) -> Any:
        dx, dw = self.both(ct, x, w, eps)
        return dx if needs[0] else None, dw if needs[1] else None

    def vjp_into(self, outs: Any, ct: Any, x: Any, w: Any, *, eps: float = 1e-5) -> None:
        dx, dw = self.both(ct, x, w, eps)
        outs["x"][...] = dx
        outs["w"] += dw


# ── not linear in the cotangent ──────────────────────────────────────────────────────────────


class _ClipsRelative(Right):
    def both(self, ct, x, w, eps):
        limit = 4.25 * np.sqrt(np.mean(ct * ct)) if ct.size else 0.0
        return super().both(np.clip(ct, -limit, limit), x, w, eps)


class _ClipsAbsolute(Right):
    def both(self, ct, x, w, eps):
        return super().both(np.clip(ct, -1e4, 1e4), x, w, eps)


class _FlushesSmall(Right):
    def both(self, ct, x, w, eps):
        return super().both(np.where(np.abs(ct) < 1e-6, ct.dtype.type(0), ct), x, w, eps)


class _Normalises(Right):
    def both(self, ct, x, w, eps):
        largest = np.max(np.abs(ct), initial=0)
        scale = np.ldexp(ct.dtype.type(1), np.frexp(largest)[1]) if largest else largest
        dx, dw = super().both(ct / scale, x, w, eps)
        return dx * scale, dw * scale


# ── what lives from call to call ─────────────────────────────────────────────────────────────


class _Race(Right):
    """The rows are summed in another order now and then, as by threads."""

    def __init__(self):
        self.calls = 0

    def both(self, ct, x, w, eps):
        self.calls += 1
        dx, dw = super().both(ct, x, w, eps)
        if self.calls % 10 == 8:
            r = rstd_of(x, eps)
            rows = (ct * x * r).reshape(math.prod(x.shape[:-1]), x.shape[-1])
            dw = np.zeros_like(w)
            for row in rows[::-1]:
                dw = dw + row
        return dx, dw


class _CachedByShape(Right):
    def __init__(self):
        self.cache = {}

    def both(self, ct, x, w, eps):
        r = self.cache.setdefault((x.shape, x.dtype, eps), rstd_of(x, eps))
        return dx_of(ct, x, w, r), dw_of(ct, x, r)


class _FirstWeights(Right):
    def __init__(self):
        self.packed = {}

    def both(self, ct, x, w, eps):
        return super().both(ct, x, self.packed.setdefault((w.shape, w.dtype), w.copy()), eps)


class _GrowingWorkspace(Right):
    """A workspace for the rows of dw that grows and is never cleared: longer calls leave rows."""

    def __init__(self):
        self.rows = np.zeros((0, 0))

    def both(self, ct, x, w, eps):
        dx, _ = super().both(ct, x, w, eps)
        rows = (ct * x * rstd_of(x, eps)).reshape(-1, x.shape[-1])
        if self.rows.shape[1:] != rows.shape[1:] or self.rows.dtype != rows.dtype:
            self.rows = np.zeros((0, rows.shape[1]), dtype=rows.dtype)
        if len(rows) > len(self.rows):
            self.rows = np.zeros_like(rows)
        self.rows[: len(rows)] = rows
        return dx, self.rows.sum(axis=0)


class _NeverZeroed(Right):
    def __init__(self):
        self.dw = {}

    def both(self, ct, x, w, eps):
        dx, dw = super().both(ct, x, w, eps)
        kept = self.dw.setdefault((w.shape, w.dtype), np.zeros_like(w))
        kept += dw
        return dx, kept.copy()


class _ReusedBuffer(Right):
    def __init__(self):
        self.buffers = {}

    def both(self, ct, x, w, eps):
        dx, dw = super().both(ct, x, w, eps)
        out = self.buffers.setdefault((x.shape, x.dtype), np.empty_like(dx))
        out[...] = dx
        return out, dw


class _FirstEps(Right):
    def __init__(self):
        self.eps = None

    def both(self, ct, x, w, eps):
        self.eps = eps if self.eps is None else self.eps
        return super().both(ct, x, w, self.eps)


# ── arguments ────────────────────────────────────────────────────────────────────────────────


class _ScalesCotangent(Right):
    def vjp(self, ct, x, w, *, eps=1e-5, needs=(True, True)):
        dw = dw_of(ct, x, rstd_of(x, eps)) if needs[1] else None
        if not ct.flags.writeable:
            ct = ct.copy()
        ct *= w
        dx = dx_of(ct, x, np.ones_like(w), rstd_of(x, eps)) if needs[0] else None
        return dx, dw


class _NormalisesInput(Right):
    def vjp(self, ct, x, w, *, eps=1e-5, needs=(True, True)):
        r = rstd_of(x, eps)
        if not x.flags.writeable:
            x = x.copy()
        x *= r
        g = ct * w
        dx = r * (g - x * np.mean(g * x, axis=-1, keepdims=True))
        return dx if needs[0] else None, np.sum(ct * x, axis=tuple(range(x.ndim - 1))) if needs[
            1
        ] else None


class _AlwaysInPlace(Right):
    def vjp(self, ct, x, w, *, eps=1e-5, needs=(True, True)):
        ct *= 1
        return super().vjp(ct, x, w, eps=eps, needs=needs)


class _IgnoresEps(Right):
    def both(self, ct, x, w, eps):
        return super().both(ct, x, w, 1e-5)


class _SmallEps(Right):
    def both(self, ct, x, w, eps):
        return super().both(ct, x, w, min(eps, 1e-5))


# ── memory ───────────────────────────────────────────────────────────────────────────────────


def flat(array: Any) -> Any:
    """An array read as if it were contiguous."""
    strides = np.empty(array.shape, dtype=array.dtype).strides
    return as_strided(array, array.shape, strides, writeable=False)


class _FlatCotangent(Right):
    def both(self, ct, x, w, eps):
        return super().both(flat(ct), x, w, eps)


class _FlatInput(Right):
    def both(self, ct, x, w, eps):
        return super().both(ct, flat(x), w, eps)


class _FlatWeight(Right):
    def both(self, ct, x, w, eps):
        return super().both(ct, x, flat(w), eps)


class _StridesOfInput(Right):
    def both(self, ct, x, w, eps):
        return super().both(as_strided(ct, x.shape, x.strides, writeable=False), x, w, eps)


class _Overwrites(Right):
    def vjp_into(self, outs, ct, x, w, *, eps=1e-5):
        outs["x"][...], outs["w"][...] = self.both(ct, x, w, eps)


class _Adds(Right):
    def vjp_into(self, outs, ct, x, w, *, eps=1e-5):
        dx, dw = self.both(ct, x, w, eps)
        outs["x"] += dx
        outs["w"] += dw


class _SkipsZeroRows(Right):
    """Rows without a cotangent return early, and leave their dx as it was."""

    def vjp_into(self, outs, ct, x, w, *, eps=1e-5):
        dx, dw = self.both(ct, x, w, eps)
        some = np.any(ct != 0, axis=-1)
        outs["x"][some] = dx[some]
        outs["w"] += dw


class _WritesWholeBlocks(Right):
    """dx is written in whole blocks, the last one past its end."""

    def vjp_into(self, outs, ct, x, w, *, eps=1e-5):
        dx, dw = self.both(ct, x, w, eps)
        size = -(-dx.size // BLOCK) * BLOCK
        blocks = as_strided(outs["x"], (size,), (dx.itemsize,))
        blocks[: dx.size] = dx.reshape(-1)
        blocks[dx.size :] = 0
        outs["w"] += dw


class _OnePastTheEnd(Right):
    def vjp_into(self, outs, ct, x, w, *, eps=1e-5):
        dx, dw = self.both(ct, x, w, eps)
        outs["x"][...] = dx
        as_strided(outs["w"], (w.size + 1,), (w.itemsize,))[w.size] = 0
        outs["w"] += dw


class _TwoSteps(Right):
    """The first term of dx goes into its memory, then dy is read again for the second."""

    def vjp_into(self, outs, ct, x, w, *, eps=1e-5):
        r = rstd_of(x, eps)
        outs["w"] += dw_of(ct, x, r)
        outs["x"][...] = ct * w * r
        n = x * r
        outs["x"] -= r * n * np.mean(ct * w * n, axis=-1, keepdims=True)


class _WeightsLast(Right):
    """dw is summed after dx has been written."""

    def vjp_into(self, outs, ct, x, w, *, eps=1e-5):
        r = rstd_of(x, eps)
        outs["x"][...] = dx_of(ct, x, w, r)
        outs["w"] += dw_of(ct, x, r)


# ── which gradients are asked for ────────────────────────────────────────────────────────────


class _ProjectionWithWeights(Right):
    """The sums over rows are computed where dw is, and taken for zero where it is not."""

    def vjp(self, ct, x, w, *, eps=1e-5, needs=(True, True)):
        if needs[1]:
            return super().vjp(ct, x, w, eps=eps, needs=needs)
        return ct * w * rstd_of(x, eps), None


class _WeightsWithInput(Right):
    def vjp(self, ct, x, w, *, eps=1e-5, needs=(True, True)):
        dx, dw = super().vjp(ct, x, w, eps=eps, needs=needs)
        return dx, dw if needs[0] else np.zeros_like(w)


class _NothingOfOne(Right):
    def vjp(self, ct, x, w, *, eps=1e-5, needs=(True, True)):
        return super().vjp(ct, x, w, eps=eps, needs=needs) if all(needs) else (None, None)


# ── form and size ────────────────────────────────────────────────────────────────────────────


class _DoubleZeros(Right):
    def both(self, ct, x, w, eps):
        if not ct.any():
            return np.zeros(x.shape), np.zeros(w.shape)
        return super().both(ct, x, w, eps)


class _DoubleOfOneRow(Right):
    def both(self, ct, x, w, eps):
        dx, dw = super().both(ct, x, w, eps)
        return dx, dw.astype(np.float64) if x.size == w.size else dw


class _AlwaysDouble(Right):
    def both(self, ct, x, w, eps):
        dx, dw = super().both(ct, x, w, eps)
        return dx, dw.astype(np.float64 if dw.dtype == np.float32 else np.float32)


class _Unreduced(Right):
    def vjp(self, ct, x, w, *, eps=1e-5, needs=(True, True)):
        r = rstd_of(x, eps)
        return dx_of(ct, x, w, r), ct * x * r


class _NoTail(Right):
    """The remainder behind the last whole block is dropped."""

    def both(self, ct, x, w, eps):
        dx, dw = super().both(ct, x, w, eps)
        size = x.shape[-1]
        if size > BLOCK:
            dw[size - size % BLOCK :] = 0
        return dx, dw


class _LoneColumn(Right):
    def both(self, ct, x, w, eps):
        dx, dw = super().both(ct, x, w, eps)
        return (np.zeros_like(dx) if x.shape[-1] == 1 else dx), dw


class _NoRows(Right):
    def both(self, ct, x, w, eps):
        dx, dw = super().both(ct, x, w, eps)
        rows = x.size // w.size if w.size else 1
        return dx, dw / rows * rows


class _FewRows(Right):
    def both(self, ct, x, w, eps):
        dx, _ = super().both(ct, x, w, eps)
        return dx, dw_of(ct[:GRID_ROWS], x[:GRID_ROWS], rstd_of(x[:GRID_ROWS], eps))


def _mutant(make: Any, name: str, source: str, says: str) -> ContractMutant:
    return ContractMutant(op=OP, dialect=DIALECT, name=name, source=source, says=says, make=make)


MUTANTS = (
    ContractMutant(
        op=OP, dialect=DIALECT, name="right", says="The right one.", make=Right, right=True
    ),
    _mutant(_ClipsRelative, "clips-relative", "B13", "It clips dy at 4.25 times its own rms."),
    _mutant(_ClipsAbsolute, "clips-absolute", "B13", "It clips dy at 10,000."),
    _mutant(_FlushesSmall, "flushes-small", "P7", "It takes a dy below 1e-6 for zero."),
    _mutant(_Normalises, "normalises-dy", "N", "It divides dy by its largest, which may be zero."),
    _mutant(_Race, "race", "H1", "Now and then its sum over rows runs in another order."),
    _mutant(_CachedByShape, "cached-by-shape", "B7", "It keeps 1/rms by shape, not by value."),
    _mutant(_FirstWeights, "first-weights", "B8", "It packs w on the first call, and keeps that."),
    _mutant(
        _GrowingWorkspace, "growing-workspace", "B3", "Its workspace keeps rows of longer calls."
    ),
    _mutant(_NeverZeroed, "never-zeroed", "B4", "Its scratch for dw is zeroed once, not per call."),
    _mutant(_ReusedBuffer, "reused-buffer", "B15", "dx is a view of a buffer that it uses again."),
    _mutant(_FirstEps, "first-eps", "B8", "It keeps the eps of its first call."),
    _mutant(_ScalesCotangent, "scales-dy", "B6", "It multiplies dy by w in place where it may."),
    _mutant(_NormalisesInput, "normalises-x", "B6", "It normalises x in place where it may."),
    _mutant(_AlwaysInPlace, "in-place", "B6", "It writes into dy, come what may."),
    _mutant(_IgnoresEps, "ignores-eps", "A2", "Its eps is always the default."),
    _mutant(_SmallEps, "small-eps", "A1", "Its eps is the default, or less."),
    _mutant(_FlatCotangent, "flat-dy", "B14", "It reads dy as if it were contiguous."),
    _mutant(_FlatInput, "flat-x", "B14", "It reads x as if it were contiguous."),
    _mutant(_FlatWeight, "flat-w", "B14", "It reads w as if it were contiguous."),
    _mutant(_StridesOfInput, "strides-of-x", "B14", "It reads dy with the strides of x."),
    _mutant(_Overwrites, "overwrites", "B1", "It assigns dw, which it is to add."),
    _mutant(_Adds, "adds", "B2", "It adds dx, which it is to assign."),
    _mutant(_SkipsZeroRows, "skips-zero-rows", "B16", "It leaves rows unwritten whose dy is zero."),
    _mutant(_WritesWholeBlocks, "whole-blocks", "B17", "It writes dx in whole blocks of 8."),
    _mutant(_OnePastTheEnd, "one-past-the-end", "B17", "It clears one element after dw."),
    _mutant(_TwoSteps, "two-steps", "B5", "It writes dx in two steps, and reads dy in between."),
    _mutant(_WeightsLast, "weights-last", "B5", "It sums dw after dx may have replaced dy."),
    _mutant(
        _ProjectionWithWeights, "projection-with-dw", "B11", "Without dw, dx has no projection."
    ),
    _mutant(_WeightsWithInput, "dw-with-dx", "B11", "Without dx, dw is zero."),
    _mutant(_NothingOfOne, "all-or-nothing", "B9", "Asked for one gradient, it gives none."),
    _mutant(_DoubleZeros, "double-zeros", "B18", "A dy of zeros returns early, in float64."),
    _mutant(_DoubleOfOneRow, "double-of-one-row", "B18", "dw of a single row is float64."),
    _mutant(_AlwaysDouble, "wrong-dtype", "B18", "dw has the wrong dtype."),
    _mutant(_Unreduced, "unreduced", "B19", "dw is not summed over rows."),
    _mutant(
        _NoTail, "no-tail", "I1", "It drops what the last whole block of 8 columns leaves over."
    ),
    _mutant(_LoneColumn, "lone-column", "H6", "Rows of one element have a dx of zero."),
    _mutant(_NoRows, "no-rows", "H6", "Without rows, it divides by their number."),
    _mutant(_FewRows, "few-rows", "I8", "It sums 64 rows at most."),
)
