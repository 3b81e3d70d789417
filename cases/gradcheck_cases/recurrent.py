"""Cells and scans over time. Axes: t steps, d features, n states."""

from __future__ import annotations

from gradcheck.spec import OpSpec

OPERATORS: tuple[OpSpec, ...] = ()
