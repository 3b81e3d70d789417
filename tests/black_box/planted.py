"""Wrong VJPs made from a right one, except errors that forward's values cannot show."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from .pair import Pair

Change = Callable[[list[Any]], list[Any]]
PLACES = 20
"""Elements that are 1% off, one at a time."""
SHOWN = {"float64": 1e-7, "float32": 1e-3}
"""Errors that `check` guarantees to find, relative to an element and to the largest one."""
ROUNDINGS = 64.0
"""Errors below this many times the effect of the last bit of the inputs are rounding."""


@dataclass(frozen=True)
class Planted:
    """A wrong VJP, and what is wrong with it."""

    name: str
    vjp: Callable[..., Any]


def planted(pair: Pair, primals: tuple[Any, ...], dtype: str, places: int) -> Iterator[Planted]:
    """The errors that show at these primals."""
    rng = np.random.default_rng(0)
    cts = drawn_cotangents(pair, primals, rng)
    right = answers(pair.vjp, pair, cts, primals)
    noise = _noise(pair, cts, primals, right, rng)
    for name, vjp in _wrong(pair, right, places):
        try:
            got = answers(vjp, pair, cts, primals)
        except Exception:  # noqa: BLE001 - a shape that does not allow this error
            continue
        if _shows(pair, right, got, noise, dtype) and not _is_a_convention(pair, cts, primals, got):
            yield Planted(name, vjp)


def _is_a_convention(pair: Pair, cts: Any, primals: tuple[Any, ...], got: list[Any]) -> bool:
    """Whether a complex gradient is right as the other of the two conventions has it."""
    if not any(np.iscomplexobj(g) for g in got):
        return False
    turned = tuple(map(np.conj, cts)) if isinstance(cts, tuple) else np.conj(cts)
    other = answers(pair.vjp, pair, turned, primals)
    pairs = [(g, np.conj(o)) for g, o in zip(got, other, strict=True) if g is not None]
    return all(np.allclose(g, o, rtol=1e-6, atol=0) for g, o in pairs)


def drawn_cotangents(pair: Pair, primals: tuple[Any, ...], rng: Any) -> Any:
    """Random cotangents, shaped as forward's output."""
    found = pair.forward(*primals, **pair.attrs)

    def one(o: Any) -> Any:
        o = np.asarray(o)
        ct = rng.normal(size=o.shape)
        ct = ct + 1j * rng.normal(size=o.shape) if o.dtype.kind == "c" else ct
        return np.asarray(ct).astype(o.dtype)

    return tuple(map(one, found)) if isinstance(found, (tuple, list)) else one(found)


def answers(vjp: Callable[..., Any], pair: Pair, cts: Any, primals: tuple[Any, ...]) -> list[Any]:
    """The gradients as a list."""
    got = vjp(cts, *primals, **pair.attrs)
    return [*got] if isinstance(got, (tuple, list)) else [got]


def _changed(pair: Pair, change: Change) -> Callable[..., Any]:
    """The right VJP with its answer changed, but for elements on a kink."""

    def wrong(ct: Any, *primals: Any, **attrs: Any) -> Any:
        got = pair.vjp(ct, *primals, **attrs)
        many = isinstance(got, (tuple, list))
        old = [g if g is None else np.asarray(g) for g in (got if many else (got,))]
        new = change([g if g is None else g.copy() for g in old])
        for i, mask in enumerate(pair.free):
            new[i] = np.where(mask, old[i], new[i])
        new = [
            n if o is None else np.asarray(n).astype(o.dtype) for n, o in zip(new, old, strict=True)
        ]
        return tuple(new) if many else new[0]

    return wrong


def _scaled(factor: float) -> Change:
    return lambda gs: [g if g is None else g * factor for g in gs]


def _wrong(pair: Pair, right: list[Any], places: int) -> Iterator[tuple[str, Callable[..., Any]]]:
    factors = {"zeros": 0.0, "negated": -1.0, "halved": 0.5, "×1.1": 1.1, "×1.001": 1.001}
    for name, factor in factors.items():
        yield name, _changed(pair, _scaled(factor))
    every = [(i, k) for i, g in enumerate(right) if g is not None for k in range(np.size(g))]
    rng = np.random.default_rng(len(every))
    for j in rng.permutation(len(every))[:places]:
        i, k = every[j]
        yield f"1% off at {i}[{k}]", _changed(pair, _only(i, _one(k)))
    rows = [i for i, g in enumerate(right) if g is not None and np.ndim(g) > 1 and len(g)]
    for i in rows:
        yield f"row of {i} zeroed", _changed(pair, _only(i, _row))
    if sum(g is not None for g in right) > 1:
        for i, g in enumerate(right):
            if g is not None:
                yield f"term {i} dropped", _changed(pair, _only(i, lambda g: g * 0))
    for i, g in enumerate(right):
        if g is not None and np.ndim(g) == 2 and g.shape[0] == g.shape[1]:
            yield f"{i} transposed", _changed(pair, _only(i, np.transpose))
    if any(np.iscomplexobj(g) for g in right):
        yield "conjugate", _changed(pair, lambda gs: [g if g is None else g.conj() for g in gs])
    yield "right for ones alone", _for_ones(pair)


def _only(i: int, change: Callable[[Any], Any]) -> Change:
    """A change of gradient i alone."""
    return lambda gs: [change(g) if j == i else g for j, g in enumerate(gs)]


def _one(k: int) -> Callable[[Any], Any]:
    def change(g: Any) -> Any:
        g.reshape(-1)[k] *= 1.01
        return g

    return change


def _row(g: Any) -> Any:
    g[len(g) // 2] = 0
    return g


def _for_ones(pair: Pair) -> Callable[..., Any]:
    """What forgets the cotangent."""

    def vjp(ct: Any, *primals: Any, **attrs: Any) -> Any:
        ones = tuple(map(np.ones_like, ct)) if isinstance(ct, tuple) else np.ones_like(ct)
        return pair.vjp(ones, *primals, **attrs)

    return vjp


def _noise(pair: Pair, cts: Any, primals: tuple[Any, ...], right: list[Any], rng: Any) -> list[Any]:
    """Per primal and element, what the last bit of primals and cotangents does to the gradient."""
    seen = [None if g is None else np.zeros(np.shape(g)) for g in right]

    def nudged(a: Any) -> Any:
        a = np.asarray(a)
        if a.dtype.kind not in "fc":
            return a
        u = np.finfo(a.dtype).eps
        return (a * (1 + u * rng.choice([-1, 1], size=a.shape))).astype(a.dtype)

    for _ in range(4):
        moved = tuple(map(nudged, cts)) if isinstance(cts, tuple) else nudged(cts)
        got = answers(pair.vjp, pair, moved, tuple(map(nudged, primals)))
        for s, g, r in zip(seen, got, right, strict=True):
            if s is not None:
                np.maximum(s, np.nan_to_num(np.abs(g - r), nan=np.inf), out=s)
    return seen


def _shows(pair: Pair, right: list[Any], got: list[Any], noise: list[Any], dtype: str) -> bool:
    """Whether any element's error is more than rounding, and more than the dtype hides."""
    least = np.finfo(dtype).smallest_normal * 256
    for r, g, n in zip(right, got, noise, strict=True):
        if r is None or not np.size(r):
            continue
        size, far = np.abs(np.asarray(r)).astype(float), np.abs(np.asarray(g) - r).astype(float)
        if pair.sees and not np.any(np.abs(g)):
            continue  # between two stairs that is the truth
        part = max(2 * SHOWN[dtype], pair.sees, 4 * pair.loses if pair.loses > 1e-8 else 0)
        seen = (far > part * np.maximum(size, size.max())) if pair.sees else (far > part * size)
        if dtype == "float32":
            seen &= size > 4 * SHOWN[dtype] * size.max()
        seen &= (far > SHOWN[dtype] * size.max()) & (far > ROUNDINGS * n) & (far > least)
        if seen.any():
            return True
    return False
