"""PyTorch's counterparts of `gradcheck_cases.convolution`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

OPERATORS: dict[str, Callable[..., Any]] = {}
