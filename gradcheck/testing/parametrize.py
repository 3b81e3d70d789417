"""`@gradcheck.case` and `@gradcheck.cases_of`: a user's tests over points, dtypes and seeds.

A decorator declares the cases of a test; the pytest plugin passes them as the argument `case`.
Nothing here imports pytest.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, TypeVar

import numpy as np

from gradcheck.cli.run import convention_of
from gradcheck.errors import UnknownNameError, UsageError
from gradcheck.judge.contract_check import contract_cases
from gradcheck.run.plan import Plan
from gradcheck.spec.dtype_selection import ALL, DTYPES, LOW
from gradcheck.spec.loading import load_suite
from gradcheck.spec.spec_checks import NAME
from gradcheck.testing.cases import SuiteCase, UserCase
from gradcheck.testing.inputs import is_primal

ARGUMENT: Final = "case"
"""The argument of a test."""
TYPICAL: Final = "typical"
"""The sample that the decorator's own keywords describe."""
_ATTRIBUTE: Final = "_gradcheck_declared"
Test = TypeVar("Test", bound=Callable[..., Any])


def case(
    *,
    dtypes: str | Sequence[str] = DTYPES,
    seeds: int = 1,
    samples: Mapping[str, Mapping[str, Any]] | None = None,
    attrs: Mapping[str, Any] | None = None,
    **values: Any,
) -> Callable[[Test], Test]:
    """Give a test points of your own operator, one after the other, as its argument `case`.

    Specifications of arrays (`gradcheck.normal(8, 64)`) and NumPy arrays are primals, in their
    order; all other keywords are attributes. The test calls `case.check(forward, vjp)`.

    Args:
        dtypes: float64, float32, or both.
        seeds: how often each sample is drawn anew.
        samples: further points by name, each as what differs from the first, "typical".
        attrs: attributes whose names are taken by the arguments here.
        values: primals and attributes by name.

    Raises:
        UsageError: there is no primal, a sample names something unknown, or a dtype is none of
            the two.

    Examples:
        >>> import gradcheck
        >>> @gradcheck.case(x=gradcheck.normal(3, 5), factor=2.0, seeds=2)
        ... def test_scaled(case):
        ...     case.check(lambda x, factor: factor * x, lambda ct, x, factor: factor * ct)
    """
    merged = {**values, **(attrs or {})}
    twice = {*values} & {*(attrs or {})}
    if twice:
        raise UsageError(f"{', '.join(sorted(twice))} stands in `attrs` and beside it")
    declared = _OfUser(
        points={TYPICAL: merged, **_overridden(merged, samples or {})},
        dtypes=_dtypes(dtypes, DTYPES),
        seeds=_count(seeds),
    )
    return partial(_declare, declared)


def cases_of(
    operator: str,
    *,
    dialects: str | Sequence[str] = (),
    samples: str | Sequence[str] = (),
    dtypes: str | Sequence[str] = DTYPES,
    seed: int = 0,
    suite: str | Sequence[str] = (),
    contract: bool = True,
    convention: str = "",
) -> Callable[[Test], Test]:
    """Give a test every case that the suite has of an operator, as its argument `case`.

    The test calls `case.check(forward, vjp)`, or `case.check(entry)` with whatever may stand in a
    table for `--impl`. The contract is checked too, once per dialect, unless `contract` is False.

    Args:
        operator: its name, or "operator/dialect".
        dialects: globs; none: all.
        samples: globs; none: all.
        dtypes: of float64, float32, float16, bfloat16; or "all".
        seed: of all inputs.
        suite: suites of your own, "module:NAME"; none: all that are installed.
        contract: ask for the contract.
        convention: on kinks accept only what this system returns.
    """
    name, _, dialect = operator.partition("/")
    declared = _OfSuite(
        operator=name,
        dialects=(dialect,) if dialect else _several(dialects),
        samples=_several(samples),
        dtypes=_dtypes(dtypes, (*DTYPES, *LOW)),
        seed=seed,
        suites=_several(suite),
        contract=contract,
        convention=convention,
        key=operator,
    )
    return partial(_declare, declared)


def declared_of(*holders: object) -> _OfUser | _OfSuite | None:
    """The declaration of a test function, or of its class."""
    for holder in holders:
        found = getattr(holder, _ATTRIBUTE, None)
        if isinstance(found, _OfUser | _OfSuite):
            return found
    return None


# ── declarations ────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True, kw_only=True)
class _OfUser:
    """Points of a user's own operator."""

    points: Mapping[str, Mapping[str, Any]]
    dtypes: Sequence[str]
    seeds: int

    def cases(self, test: str) -> list[UserCase]:
        """Every point in every dtype under every seed, for the test of that name."""
        return [
            UserCase(test, name, values, dtype, seed)
            for name, values in self.points.items()
            for dtype in self.dtypes
            for seed in range(self.seeds)
        ]


@dataclass(frozen=True, slots=True, kw_only=True)
class _OfSuite:
    """Cases of a suite's operator."""

    operator: str
    dialects: Sequence[str]
    samples: Sequence[str]
    dtypes: Sequence[str]
    seed: int
    suites: Sequence[str]
    contract: bool
    convention: str
    key: str

    def cases(self, test: str) -> list[SuiteCase]:
        """Every case in every dtype.

        Raises:
            UnknownNameError: no operator, dialect or sample has that name.
            LoadError, UsageError: a suite cannot be loaded, or a system has no conventions.
        """
        suite = load_suite(self.suites)
        if self.operator not in suite.operators:
            raise UnknownNameError("operator", self.operator, suite.operators)
        found = suite.cases([self.operator], self.dialects, self.samples, self.seed)

        def plan(dtype: str) -> Plan:
            return Plan(
                suite=suite,
                cases=found,
                implementations=(test,),
                dtypes=(dtype,),
                seed=self.seed,
                suites=self.suites,
                convention=convention_of(self.convention, suite),
                contract=self.contract,
                contract_at=contract_cases(found),
            )

        plans = {dtype: plan(dtype) for dtype in self.dtypes}
        return [SuiteCase(test, case, d, self.key, plans[d]) for case in found for d in self.dtypes]


def _declare(declared: _OfUser | _OfSuite, test: Test) -> Test:
    """Attach a declaration to a test function or class."""
    if _ATTRIBUTE in vars(test):
        name = getattr(test, "__name__", test)
        raise UsageError(
            f"{name} has two decorators of gradcheck: give further points of the one as `samples`"
        )
    setattr(test, _ATTRIBUTE, declared)
    return test


def _overridden(
    base: Mapping[str, Any], samples: Mapping[str, Mapping[str, Any]]
) -> dict[str, Mapping[str, Any]]:
    """Each sample with all its values.

    Raises:
        UsageError: there is no primal, or a sample is invalid.
    """
    _check_values(TYPICAL, base)
    if not any(map(is_primal, base.values())):
        raise UsageError(
            "@gradcheck.case names no primal: give one as x=gradcheck.normal(8, 64), or as a "
            "NumPy array"
        )
    found: dict[str, Mapping[str, Any]] = {}
    for name, values in samples.items():
        if name == TYPICAL or not NAME.fullmatch(name):
            raise UsageError(
                f"sample {name!r}: use lower-case letters, digits, '_', '-' and '.' for a name, "
                f"other than {TYPICAL!r}, which is the decorator's own"
            )
        if not isinstance(values, Mapping):
            raise UsageError(f"sample {name!r}: write what differs in it as a dict")
        _check_values(name, values)
        for key, value in values.items():
            if key not in base:
                raise UsageError(f"sample {name!r}: {UnknownNameError('name', key, base)}")
            if is_primal(value) != is_primal(base[key]):
                kind = "a primal" if is_primal(base[key]) else "an attribute"
                raise UsageError(f"sample {name!r}: {key} is {kind}, and stays one")
        found[name] = {**base, **values}
    return found


def _check_values(sample: str, values: Mapping[str, Any]) -> None:
    for key, value in values.items():
        tensor = hasattr(value, "__dlpack__") and not isinstance(value, np.ndarray)
        if isinstance(value, list) or tensor:
            raise UsageError(
                f"sample {sample!r}: {key} is a {type(value).__name__}: a primal is drawn "
                "(gradcheck.normal(8, 64)) or a NumPy array, an attribute may be a tuple"
            )


def _dtypes(words: str | Sequence[str], known: Sequence[str]) -> tuple[str, ...]:
    asked = _several(words)
    for word in asked:
        if word != ALL and word not in known:
            raise UnknownNameError("dtype", word, known)
    found = tuple(known) if ALL in asked else tuple(d for d in known if d in asked)
    if not found:
        raise UsageError(f"no dtype is named: write some of {', '.join(known)}")
    return found


def _several(words: str | Sequence[str]) -> tuple[str, ...]:
    return (words,) if isinstance(words, str) else tuple(words)


def _count(seeds: Any) -> int:
    if isinstance(seeds, bool) or not isinstance(seeds, int) or seeds < 1:
        raise UsageError(f"seeds is {seeds!r}: write how often each sample is drawn, 1 or more")
    return seeds
