"""One worker's part of a residual network: its layers, its rows of them, forward and backward.

Layer: h = gain · x / rms(x); y = tanh(h·upᵀ + up_bias)·down + down_bias; x ← x + mask · y. `up` and
`down` are cut into rows (the hidden width), so that every rank has a part of y and of h's
cotangent, and both are summed over the ranks. Activations go from stage to stage, cotangents back.
Weights, data and masks come from a counter-based generator: nobody sends them to anybody.

A `bug` is one of those that only a sharded run has, or shows (`planted.BUGS`).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from benchmarks.sharded.layout import REPLICATED, Layout
from gradcheck.numerics.draw import direction, key_of

Array = NDArray[Any]

KINDS = ("gain", "up", "up_bias", "down", "down_bias")
EPS = 1e-5
KEPT = 0.9
"""The part of y that masks keep."""


class Peers(Protocol):
    """The other workers, as a model sees them. Shapes: x is [batch, width]."""

    def sum(self, x: Array) -> Array:
        """The sum over the ranks of this stage, the same bits on all."""

    def before(self, like: Array) -> Array:
        """What comes from the stage before."""

    def after(self, like: Array) -> Array:
        """What comes from the stage behind."""

    def to_before(self, x: Array) -> None:
        """Give it to the stage before."""

    def to_after(self, x: Array) -> None:
        """Give it to the stage behind."""


class Alone:
    """Nobody else: one stage of one rank."""

    def sum(self, x: Array) -> Array:
        """It is the sum already."""
        return x

    def before(self, like: Array) -> Array:
        """Nobody is there."""
        raise RuntimeError("there is one stage alone")

    def to_before(self, x: Array) -> None:
        """Nobody is there."""
        raise RuntimeError("there is one stage alone")

    after, to_after = before, to_before


@dataclass(slots=True)
class Shard:
    """The part of the model that worker `worker` holds.

    `params` and `gradients` have the rows that this worker has, under the whole model's names.
    """

    layout: Layout
    worker: int
    peers: Peers
    dtype: str = "float64"
    seed: int = 0
    bug: str = ""
    params: dict[str, Array] = field(default_factory=dict)
    gradients: dict[str, Array] = field(default_factory=dict)
    forwards: int = 0
    _kept: list[tuple[Array, ...]] = field(default_factory=list)
    _fixed: dict[str, Array] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Draw what this worker holds."""
        width, hidden = self.layout.width, self.layout.hidden
        scales = {"gain": 0.5, "up": width**-0.5, "down": hidden**-0.5}
        for name, shape in self.layout.shapes.items():
            kind = name.partition(".")[2]
            for part in self.layout.parts(name):
                if part.worker == self.worker:
                    drawn = self._drawn(name, part.start, part.stop) * scales.get(kind, 0.25)
                    drawn = np.abs(drawn) + 0.5 if kind == "gain" else drawn
                    self.params[name] = drawn.reshape(-1, *shape[1:]).astype(self.dtype)

    @property
    def stage(self) -> int:
        """The stage of this worker."""
        return self.worker // self.layout.ranks

    @property
    def rank(self) -> int:
        """Its rank within the stage."""
        return self.worker % self.layout.ranks

    @property
    def last(self) -> bool:
        """Whether it has the loss."""
        return self.stage == self.layout.stages - 1

    def loss(self) -> float:
        """A forward of the whole model; the loss at the last stage, NaN elsewhere."""
        x = self._forward(keep=False)
        return self._value(x) if self.last else float("nan")

    def backward(self) -> None:
        """Forward, and the gradients of all that this worker holds."""
        x = self._forward(keep=True)
        if self.last:
            ct = ((x - self._data("target")) / x.size).astype(self.dtype)
        else:
            ct = self.peers.after(x)
        for layer in reversed(self.layout.layers_of(self.stage)):
            ct = self._layer_back(layer, ct)
        if self.stage:
            self.peers.to_before(np.ascontiguousarray(ct))
        self._kept.clear()

    def _forward(self, *, keep: bool) -> Array:
        self.forwards += 1
        x = self._data("input")
        if self.stage:
            x = self.peers.before(x)
        for layer in self.layout.layers_of(self.stage):
            x = self._layer(layer, x, keep=keep)
        if not self.last:
            self.peers.to_after(x)
        return x

    def _layer(self, layer: int, x: Array, *, keep: bool) -> Array:
        p = {kind: self.params[f"{layer}.{kind}"] for kind in KINDS}
        r = 1 / np.sqrt(np.mean(x * x, axis=1, keepdims=True) + x.dtype.type(EPS))
        h = x * r * p["gain"]
        v = np.tanh(h @ p["up"].T + p["up_bias"])
        y = self.peers.sum(v @ p["down"]) + p["down_bias"]
        if keep:
            self._kept.append((x, r, h, v))
        return x + self._mask(layer) * y

    def _layer_back(self, layer: int, ct: Array) -> Array:
        p = {kind: self.params[f"{layer}.{kind}"] for kind in KINDS}
        x, r, h, v = self._kept.pop()
        dy = self._mask(layer) * ct
        du = (dy @ p["down"].T) * (1 - v * v)
        part = du @ p["up"]
        dgain = (part * (x * r)).sum(axis=0)
        dh = part if self.bug == "cotangent-not-summed" else self.peers.sum(part)
        dn = dh * p["gain"]
        n = x * r
        grads = {
            "gain": self._summed(dgain),
            "up": du.T @ h,
            "up_bias": du.sum(axis=0),
            "down": v.T @ dy,
            "down_bias": dy.sum(axis=0),
        }
        if self.bug == "bias-summed-twice":
            grads["down_bias"] = self.peers.sum(grads["down_bias"])
        for kind, gradient in grads.items():
            self.gradients[f"{layer}.{kind}"] = np.ascontiguousarray(gradient)
        return np.asarray(ct + r * (dn - n * np.mean(n * dn, axis=1, keepdims=True)))

    def _summed(self, part: Array) -> Array:
        """The gradient of a replicated tensor: the sum of the ranks' parts."""
        if self.bug == "replica-not-summed":
            return part
        if self.bug == "rank-counted-twice" and self.rank == 1:
            part = 2 * part
        total: Array = self.peers.sum(part)
        return total / self.layout.ranks if self.bug == "mean-for-sum" else total

    def _value(self, x: Array) -> float:
        """Half the mean square error, summed in float64."""
        apart = x.astype(np.float64) - self._data("target")
        return float(np.mean(apart * apart)) / 2

    def _data(self, what: str) -> Array:
        if what not in self._fixed:
            drawn = self._drawn(what, 0, self.layout.batch * self.layout.width)
            self._fixed[what] = drawn.reshape(self.layout.batch, -1).astype(self.dtype)
        return self._fixed[what]

    def _mask(self, layer: int) -> Array:
        """What a fixed dropout keeps, the same on all ranks."""
        drawn = np.abs(self._data(f"mask of {layer}"))
        return (drawn < KEPT + 0.5).astype(self.dtype) / np.asarray(KEPT, self.dtype)

    def _drawn(self, name: str, start: int, stop: int) -> Array:
        """Numbers start … stop of those called `name`, whoever draws them."""
        own = ("mask" in name and self.bug == "mask-of-its-own") or (
            REPLICATED[0] in name and self.bug == "replica-of-its-own"
        )
        key = key_of("sharded", self.seed, name, *[self.rank] * own)
        kind = np.dtype(np.float64)
        return np.concatenate([d.copy() for d in direction(key, start, stop, kind)])
