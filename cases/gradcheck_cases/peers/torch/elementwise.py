"""PyTorch's element-wise arithmetic."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

OPERATORS: dict[str, Callable[..., Any]] = {
    "add": torch.add,
}
