"""Asking a model's backward: arrays by name in, gradients by name out."""

from __future__ import annotations

from typing import Any


def ask_gradients(gradients: Any, case: Any, params: Any, inputs: Any) -> Any:
    """What a whole backward returns."""
    return gradients(params, inputs)


def ask_loss(loss: Any, params: Any, inputs: Any) -> float:
    """The loss."""
    return float(loss(params, inputs))


def ask_stage(vjp: Any, stage: Any, cts: Any, values: Any) -> Any:
    """One stage's gradients."""
    return vjp(stage, cts, values)
