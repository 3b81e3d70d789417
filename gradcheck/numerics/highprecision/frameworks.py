"""Forwards that call JAX or PyTorch inside: what they return, computed in big numbers there too."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from importlib import import_module
from types import ModuleType
from typing import Any, Final

from gradcheck.numerics.highprecision.numbers import numbers
from gradcheck.numerics.highprecision.refusal import Spent

FRAMEWORKS: Final = {
    "jax": "gradcheck.numerics.highprecision.jax",
    "torch": "gradcheck.numerics.highprecision.torch",
}
"""Which of our modules has which framework compute in big numbers."""


def returned(
    forward: Callable[..., Any], arguments: Sequence[Any], attrs: Mapping[str, Any]
) -> list[Any]:
    """What forward returns, as a list; nothing is loaded that its author did not load.

    A function of JAX's that does not take NumPy's arrays of big numbers is given JAX's.

    Raises:
        NoArbiter: forward needs what big numbers do not have; the text says what.
    """
    loaded = _loaded()
    with ExitStack() as stack:
        for framework in loaded:
            stack.enter_context(framework.takes_big_numbers())
        out = _called(forward, arguments, attrs)
    parts = list(out) if isinstance(out, (tuple, list)) else [out]
    for framework in loaded:
        parts = [framework.held(part) for part in parts]
    return parts


def _loaded() -> list[ModuleType]:
    """Our modules of the frameworks that are there, in versions that are known."""
    found = []
    for name, ours in FRAMEWORKS.items():
        if name in sys.modules:
            with suppress(ImportError, AttributeError):
                found.append(import_module(ours))
    return found


def _called(forward: Callable[..., Any], arguments: Sequence[Any], attrs: Mapping[str, Any]) -> Any:
    try:
        return _unrefused(forward, arguments, attrs)
    except (Exception, SystemExit) as error:
        ours = sys.modules.get(FRAMEWORKS["jax"])
        if ours is None or isinstance(error, Spent):
            raise
        refused = numbers().refused
        with suppress(Exception, SystemExit):
            return _unrefused(forward, [ours.traced(x) for x in arguments], attrs)
        numbers().refused = refused  # the first reason is the one to tell
        raise


def _unrefused(
    forward: Callable[..., Any], arguments: Sequence[Any], attrs: Mapping[str, Any]
) -> Any:
    work = numbers()
    work.refused = None
    out = forward(*arguments, **attrs)
    if work.refused is not None:  # and forward went on without it
        raise work.refused
    return out
