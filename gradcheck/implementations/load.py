"""`load`: from the word of `--impl` to an implementation.

Imports in functions are doors: only what the word names is loaded.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from gradcheck.errors import GradcheckError, LoadError, UnknownNameError, UsageError
from gradcheck.implementations.bound import Implementation
from gradcheck.spec.suite import Suite
from gradcheck.system.user_modules import look_in

if TYPE_CHECKING:
    from gradcheck.implementations.isolated import Isolation

WORDS = ("reference", "torch", "jax")
MANIFEST: Final = ".toml"
INDEX: Final = "index.json"
"""What an exported folder holds (`gradcheck.implementations.protocol.answers`)."""


def load(
    word: str, suite: Suite, *, build: bool = True, isolation: Isolation | None = None
) -> Implementation:
    """The binding that `--impl word` names; without `build` no command of a manifest is run.

    With `isolation`, Python that is not the suite's own runs in another process.

    Raises:
        UnknownNameError: `word` is neither a known name, nor a manifest, nor of the form
            pkg.module:NAME.
        UsageError: `word` is a library, which says nothing of itself.
        ManifestError: a manifest that cannot be right.
        LoadError: the implementation cannot be loaded.
    """
    try:
        return _binding(word, suite, build, isolation)
    except GradcheckError:
        raise
    except (Exception, SystemExit) as error:  # what importing runs may raise anything
        raise LoadError(f"--impl {word}: loading raised {type(error).__name__}: {error}") from error


def _binding(word: str, suite: Suite, build: bool, isolation: Isolation | None) -> Implementation:
    if word == "reference":
        from gradcheck.implementations.reference import Reference

        return Reference()
    if word == "torch" and isolation is None:
        from gradcheck.implementations.torch import Torch

        return Torch(suite.peers.get("torch", ()))
    if word == "jax" and isolation is None:
        from gradcheck.implementations.jax import Jax

        return Jax(suite.peers.get("jax", ()))
    if word not in WORDS and _is_export(word):
        from gradcheck.implementations.protocol.answers import Answers

        return Answers(word, Path(word))
    if word.endswith(MANIFEST):
        return _manifest(word, suite, build, isolation)
    if word.endswith((".so", ".dylib", ".dll")):
        raise UsageError(
            f"--impl {word}: a library needs a manifest that says what its functions are: "
            f"`gradcheck init --lib {word}` writes one, then --impl gradcheck.toml"
        )
    if ":" not in word and word not in WORDS:
        what = "implementation (or write your own as pkg.module:NAME, or a FILE.toml)"
        raise UnknownNameError(what, word, WORDS)
    return _python(word, word, suite) if isolation is None else _isolated(word, isolation)


def _is_export(word: str) -> bool:
    try:
        return (Path(word) / INDEX).is_file()
    except OSError:  # a name that is too long for a path
        return False


def _manifest(word: str, suite: Suite, build: bool, isolation: Isolation | None) -> Implementation:
    """What a gradcheck.toml offers; it is checked before anything of it is run."""
    from gradcheck.implementations.manifest import read, schema
    from gradcheck.implementations.manifest.library_file import prepare
    from gradcheck.implementations.manifest.operation import NativeLibrary, Program

    file = schema.parse(Path(word))
    manifest = read.resolve(file, suite)
    version = prepare(file) if build else ""
    if isinstance(manifest, NativeLibrary):
        from gradcheck.implementations.manifest.library_file import check_symbols, with_runtime
        from gradcheck.implementations.native.library import Native

        read.check_libraries(manifest)
        manifest = with_runtime(manifest)
        check_symbols(manifest)
        return Native(replace(manifest, version=version or manifest.version), name=word)
    if isinstance(manifest, Program):
        from gradcheck.implementations.protocol.program import Process

        process = Process(word, replace(manifest, version=version or manifest.version))
        try:
            _refuse_misspelt(word, [op for op in process.ops or () if len(op) < 100], suite)
        except LoadError:
            process.close()
            raise
        return process
    if isolation is not None:
        return _isolated(word, isolation)
    look_in(file.folder)
    return _python(word, manifest.entry, suite)


def _isolated(word: str, isolation: Isolation) -> Implementation:
    from gradcheck.implementations.isolated import Isolated

    return Isolated(word, isolation)


def _python(word: str, entry: str, suite: Suite) -> Implementation:
    from gradcheck.implementations.model import refuse_misspelt
    from gradcheck.implementations.python import Python, refuse_other_function, refuse_unknown

    binding = Python(entry, suite.operators, suite.models)
    binding.name = word
    _refuse_misspelt(entry, [str(key) for key in binding.table], suite)
    for key, value in binding.table.items():
        name = str(key).partition("/")[0]
        if name in suite.models:
            refuse_misspelt(f"{entry}[{key!r}]", value, suite.models[name])
        elif name in suite.operators:
            refuse_unknown(f"{entry}[{key!r}]", value, suite.operators[name])
            if binding.is_bare(key):
                function = binding.table[key]["vjp"]
                refuse_other_function(f"{entry}[{key!r}]", function, suite.operators[name])
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
