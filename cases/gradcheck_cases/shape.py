"""Views, copies and rearrangements: what moves numbers about. Axes: as each operator says."""

from __future__ import annotations

from gradcheck.spec import OpSpec

OPERATORS: tuple[OpSpec, ...] = ()
