"""Forwards that call JAX or PyTorch inside: what they return, computed in big numbers there too."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from importlib import import_module
from typing import Any, Final

from gradcheck.highprecision.numbers import numbers

FRAMEWORKS: Final = {"jax": "gradcheck.highprecision.jax", "torch": "gradcheck.highprecision.torch"}
"""Which of our modules has which framework compute in big numbers."""


def returned(
    forward: Callable[..., Any], arguments: Sequence[Any], attrs: Mapping[str, Any]
) -> Any:
    """What forward returns; nothing is loaded that forward's author did not load.

    A function of JAX's that refuses NumPy's arrays of big numbers is given JAX's.
    """
    loaded = [import_module(ours) for name, ours in FRAMEWORKS.items() if name in sys.modules]
    with ExitStack() as stack:
        for framework in loaded:
            stack.enter_context(framework.takes_big_numbers())
        try:
            out = forward(*arguments, **attrs)
        except Exception:
            if "jax" not in sys.modules:
                raise
            refused, work = numbers().refused, numbers()
            from gradcheck.highprecision.jax import traced

            try:
                work.refused = None
                out = forward(*map(traced, arguments), **attrs)
            except Exception:
                work.refused = refused
                out = None
            if out is None:
                raise
        parts = out if isinstance(out, (tuple, list)) else [out]
        for framework in loaded:
            parts = [framework.held(part) for part in parts]
    return parts
