"""From the words of `--impl` to bindings."""

from __future__ import annotations

from gradcheck.binding import Binding
from gradcheck.errors import UnknownNameError
from gradcheck.suite import Suite

WORDS = ("reference", "torch")


def load(word: str, suite: Suite) -> Binding:
    """The binding that `--impl word` names.

    Raises:
        UnknownNameError: `word` is neither a known name nor of the form pkg.module:NAME.
        LoadError: the implementation cannot be loaded.
    """
    if word == "reference":
        from gradcheck.binding.reference import Reference

        return Reference()
    if word == "torch":
        from gradcheck.binding.torch import Torch

        return Torch(suite.peers.get("torch", ()))
    if ":" not in word:
        raise UnknownNameError("implementation (or write your own as pkg.module:NAME)", word, WORDS)
    from gradcheck.binding.python import Python

    return Python(word)
