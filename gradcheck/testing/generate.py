"""Tests that a decorator of ours stands over: each case is a parameter of theirs."""

from __future__ import annotations

import pytest

from gradcheck.errors import GradcheckError
from gradcheck.results.words import clean
from gradcheck.testing import MARKER
from gradcheck.testing.parametrize import ARGUMENT, declared_of


def generate(metafunc: pytest.Metafunc) -> None:
    """Parametrize a test by the cases that were declared for it."""
    declared = declared_of(metafunc.function, metafunc.cls)
    if declared is None:
        return
    test = f"{metafunc.definition.path.name}::{metafunc.function.__qualname__}"
    if ARGUMENT not in metafunc.fixturenames:
        if declared_of(metafunc.function) is None:
            return  # another test of the class
        pytest.fail(
            f"{test} is given no case: write `{ARGUMENT}` among its arguments", pytrace=False
        )
    try:
        cases = declared.cases(test)
    except GradcheckError as error:
        pytest.fail(f"{test}: {clean(str(error))}", pytrace=False)
    marked = [pytest.param(case, id=case.id, marks=getattr(pytest.mark, MARKER)) for case in cases]
    metafunc.parametrize(ARGUMENT, marked)
