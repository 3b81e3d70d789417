"""Mixtures of experts. Axes: t tokens, d features, e experts."""

from __future__ import annotations

from gradcheck.spec import OpSpec

OPERATORS: tuple[OpSpec, ...] = ()
