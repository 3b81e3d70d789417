"""Fixtures that every room of the tests may use."""

from __future__ import annotations

import pytest
from gradcheck_cases import SUITE


@pytest.fixture(scope="session")
def suite():
    """The built-in suite."""
    return SUITE
