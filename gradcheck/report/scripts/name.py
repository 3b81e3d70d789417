"""From the name of a case, as reports print it, to the case."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from gradcheck.errors import UnknownNameError, UsageError
from gradcheck.spec.operator import OpSpec
from gradcheck.spec.selection import CERTIFIED, DTYPES, LOW
from gradcheck.spec.suite import Case, Suite

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
