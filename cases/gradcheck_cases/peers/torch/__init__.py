"""Operators, models and update rules in PyTorch: its own, or composed of its own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from gradcheck_cases.peers import counterparts
from gradcheck_cases.peers.torch.models import MODULES
from gradcheck_cases.peers.torch.optimizer import RULES

COUNTERPARTS: dict[str, Callable[..., Any]] = {**counterparts("torch"), **MODULES, **RULES}
