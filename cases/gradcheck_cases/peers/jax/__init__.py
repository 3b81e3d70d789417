"""Operators in JAX: its own, or composed of its own."""

from __future__ import annotations

from gradcheck_cases.peers import counterparts

OPERATORS = counterparts("jax")
