"""Convolutions, pooling and resampling. Axes: c channels, then space."""

from __future__ import annotations

from gradcheck.spec import OpSpec

OPERATORS: tuple[OpSpec, ...] = ()
