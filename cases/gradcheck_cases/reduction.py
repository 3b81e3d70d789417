"""Sums, products, extremes, running sums and order along an axis. Axes: t rows, d features."""

from __future__ import annotations

from gradcheck.spec import OpSpec

OPERATORS: tuple[OpSpec, ...] = ()
