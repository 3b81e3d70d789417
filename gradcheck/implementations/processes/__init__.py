"""Other processes: code that is not ours runs there, and whatever it does is known here."""

from __future__ import annotations

from typing import Final

TIMEOUT: Final = 30.0
"""Seconds that a call may take, if nobody says otherwise."""
