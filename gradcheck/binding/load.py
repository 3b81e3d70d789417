"""From the words of `--impl` to bindings."""

from __future__ import annotations

from gradcheck.binding import Implementation
from gradcheck.errors import GradcheckError, LoadError, UnknownNameError
from gradcheck.suite import Suite

WORDS = ("reference", "torch")


def load(word: str, suite: Suite) -> Implementation:
    """The binding that `--impl word` names.

    Raises:
        UnknownNameError: `word` is neither a known name nor of the form pkg.module:NAME.
        LoadError: the implementation cannot be loaded.
    """
    try:
        return _binding(word, suite)
    except GradcheckError:
        raise
    except (Exception, SystemExit) as error:  # what importing runs may raise anything
        raise LoadError(f"--impl {word}: loading raised {type(error).__name__}: {error}") from error


def _binding(word: str, suite: Suite) -> Implementation:
    if word == "reference":
        from gradcheck.binding.reference import Reference

        return Reference()
    if word == "torch":
        from gradcheck.binding.torch import Torch

        return Torch(suite.peers.get("torch", ()))
    if ":" not in word:
        raise UnknownNameError("implementation (or write your own as pkg.module:NAME)", word, WORDS)
    from gradcheck.binding.model import refuse_misspelt
    from gradcheck.binding.python import Python

    binding = Python(word, suite.operators, suite.models)
    _refuse_misspelt(word, [str(key) for key in binding.table], suite)
    for key, entry in binding.table.items():
        spec = suite.models.get(str(key).partition("/")[0])
        if spec is not None:
            refuse_misspelt(f"{word}[{key!r}]", entry, spec)
    return binding


def _refuse_misspelt(word: str, keys: list[str], suite: Suite) -> None:
    """A key beside the name of a spec that is not bound would silently check nothing.

    Raises:
        LoadError: there is such a key. (Others may belong to another suite.)
    """
    import difflib  # deferred: only a user's table needs it

    operators, models, rules = [*suite.operators], [*suite.models], [*suite.rules]
    operators += [f"{op.name}/{dialect.name}" for op in suite for dialect in op.dialects]
    models += [f"{m.name}/{d.name}" for m in suite.models.values() for d in m.dialects]
    rules += [f"{r.name}/{d.name}" for r in suite.rules.values() for d in r.dialects]
    known = [*operators, *models, *rules]
    for key in keys:
        near = [] if key in known else difflib.get_close_matches(key, known, n=1, cutoff=0.75)
        if near and near[0] not in keys:
            kinds = {"operator": operators, "model": models, "update rule": rules}
            what = next(kind for kind, names in kinds.items() if near[0] in names)
            raise LoadError(
                f"{word}[{key!r}]: the suite has no such {what}; did you mean {near[0]!r}?"
            )
