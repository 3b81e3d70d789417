"""A gradient that is wrong as a file that shows it without us: which form, and what is refused."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from gradcheck.errors import UnknownNameError, UsageError
from gradcheck.explain.shrink import Shrunk
from gradcheck.implementations.bound import Bound, Implementation
from gradcheck.implementations.load import MANIFEST, WORDS
from gradcheck.report.scripts import python
from gradcheck.report.scripts.point import Accepted, primal_of
from gradcheck.spec.dtype_selection import CERTIFIED, DTYPES, LOW
from gradcheck.spec.operator import OpSpec
from gradcheck.spec.suite import Case, Suite

PYTHON, C = ".py", ".c"
FORMS: Final = (PYTHON, C)
ISSUES: Final = (".md", PYTHON)
AGAIN: Final = "Again: "
"""What a line begins with that says how to judge the case again: every export has one."""
HEAD: Final = 1 << 14
"""Bytes in which it stands."""


def check_form(path: Path, words: Sequence[str]) -> None:
    """Refuse before the run what cannot be an export.

    Raises:
        UsageError: the file has another ending, or no code of a user's is named.
    """
    if path.suffix not in FORMS:
        raise UsageError(
            f"--export {path}: end its name in {PYTHON} for code in Python, in {C} for a C library"
        )
    _check_single("--export", path, words)
    for word in words:
        if word in WORDS:
            whose = "the reference" if word == "reference" else f"{word}'s own operators"
            how = "" if word == "reference" else ", or write --issue FILE.md"
            raise UsageError(f"--export: {whose} cannot be exported; name your code by --impl{how}")


def check_issue(path: Path, words: Sequence[str]) -> None:
    """Refuse before the run what cannot be an issue.

    Raises:
        UsageError: the file has another ending, or the reference is named.
    """
    if path.suffix not in ISSUES:
        raise UsageError(f"--issue {path}: end its name in .md for Markdown, in .py for its script")
    _check_single("--issue", path, words)
    if "reference" in words:
        raise UsageError(
            "--issue is for PyTorch and JAX: name --impl torch, jax or pkg.module:NAME"
        )


def _check_single(flag: str, path: Path, words: Sequence[str]) -> None:
    if len(words) > 1:
        raise UsageError(f"{flag} shows one implementation: name one --impl")
    if path.is_file() and AGAIN.encode() not in _contents(path):
        raise UsageError(f"{flag} {path}: it exists, and is not an export; give another name")


def _contents(path: Path) -> bytes:
    with path.open("rb") as file:
        return file.read(HEAD)


def written(
    shrunk: Shrunk,
    accepted: Accepted,
    binding: Implementation,
    bound: Bound,
    path: Path,
    said: Sequence[str],
) -> str:
    """The text of the file at `path`, whose first lines are `said`.

    Raises:
        UsageError: this code cannot be called from such a file.
        ManifestError: a manifest that yields nonsense at this point.
    """
    word = binding.name
    if not shrunk.want.size:
        raise UsageError(
            f"--export: d{primal_of(shrunk)} has no elements here: there is nothing to show"
        )
    if bound.recipe is not None:
        if path.suffix != PYTHON:
            raise UsageError(f"--export {path}: {word} is Python; end the name in {PYTHON}")
        return python.script(shrunk, accepted, bound.recipe, _table(word), said)
    from gradcheck.implementations.native.library import Native  # door: POSIX systems alone
    from gradcheck.report.scripts import c

    if not isinstance(binding, Native):
        raise UsageError(
            f"--export: {word} answers through a protocol or on file, and a short script cannot "
            "ask it; export a table of Python objects, or a C library"
        )
    if path.suffix != C:
        raise UsageError(f"--export {path}: {word} is a C library; end the name in {C}")
    return c.program(shrunk, accepted, binding, path, said)


def _table(word: str) -> python.Table:
    """Where the table that a word of `--impl` names can be imported from."""
    if not word.endswith(MANIFEST):
        return python.Table.at(word)
    from gradcheck.implementations.manifest import schema

    file = schema.parse(Path(word))
    assert file.top.python is not None
    return python.Table.at(file.top.python.entry, str(file.folder.absolute()))


FORM: Final = re.compile(r"(?P<path>[^#:]*)(?:#(?P<hash>[^:]*))?(?::(?P<output>.*))?", re.DOTALL)
EXAMPLE: Final = "softmax/default/typical/float64"
WHOLE: Final = ("forward", "vjp")
"""What a result may be about, beside gradients."""


@dataclass(frozen=True, slots=True)
class Named:
    """A case of an operator, in one dtype; `output` is a primal, "forward", or empty: all."""

    case: Case
    dtype: str
    output: str


def named(text: str, suite: Suite, seed: int) -> Named:
    """What `op/dialect/sample/dtype#hash:output` means; the hash and the output may be left out.

    Raises:
        UnknownNameError: a part of it names nothing.
        UsageError: it has another form, is no operator's, or its hash is another than the case's.
    """
    found = FORM.fullmatch(text)
    parts = [] if found is None else found["path"].split("/")
    if found is None or len(parts) != 4 or not all(parts):
        raise UsageError(
            f"{text!r} is no name of a case: write operator/dialect/sample/dtype as reports do, "
            f"such as {EXAMPLE}"
        )
    name, dialect, point, dtype = parts
    _refuse_others(suite, name, dialect, point, dtype)
    if name not in suite.operators:
        raise UnknownNameError("operator", name, suite.operators)
    if dtype not in (*DTYPES, *LOW):
        raise UnknownNameError("dtype", dtype, (*DTYPES, *LOW))
    case = _case(suite, suite.operators[name], dialect, point, seed)
    if found["hash"] is not None and found["hash"] != case.fingerprint:
        seeded = f" with seed {seed}" if seed else ""
        raise UsageError(
            f"{case.name}#{found['hash']}: the case has changed its meaning since; it is "
            f"#{case.fingerprint} now{seeded}: leave the hash out, or take the suite or the --seed "
            "that the report names"
        )
    return Named(case, dtype, _output(case, found["output"]))


def _refuse_others(suite: Suite, name: str, dialect: str, point: str, dtype: str) -> None:
    """Models and update rules have commands of their own."""
    for kind, flag, specs in (
        ("a model", "--model", suite.models),
        ("an update rule", "--rule", suite.rules),
    ):
        if name in specs:
            raise UsageError(
                f"{name} is {kind}: `gradcheck run {flag} {name} --dialect {dialect} "
                f"--sample {point} --dtype {dtype}` judges it again; add the --impl of the report"
            )
    if dtype == CERTIFIED:
        raise UsageError(f"{CERTIFIED} is for models; operators have {', '.join((*DTYPES, *LOW))}")


def _case(suite: Suite, spec: OpSpec, dialect: str, point: str, seed: int) -> Case:
    has = spec.dialect(dialect)
    samples = {s.name: s for s in spec.samples if not s.dialects or dialect in s.dialects}
    if point not in samples:
        raise UnknownNameError(f"sample of {spec.name}/{dialect}", point, samples)
    return Case(spec, has, samples[point], seed, suite.home[spec.name])


def _output(case: Case, said: str | None) -> str:
    """The primal that is meant, by its own name or by its gradient's."""
    if said is None:
        return ""
    known = (*case.primal_names, *WHOLE)
    for name in (said, said.removeprefix("d")):
        if name in known:
            return name
    raise UnknownNameError(f"gradient of {case.spec.name}/{case.dialect.name}", said, known)
