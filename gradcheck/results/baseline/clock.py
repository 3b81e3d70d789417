"""The one place that knows which day it is."""

from __future__ import annotations

from datetime import UTC, date, datetime


def today() -> date:
    """The day in UTC: a gate gives the same answer wherever it runs."""
    return datetime.now(UTC).date()
