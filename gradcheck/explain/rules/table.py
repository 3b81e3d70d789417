"""The rules in the order in which they are tried: the first that holds everywhere names it."""

from __future__ import annotations

from typing import Final

from gradcheck.explain.rules.slots import slots
from gradcheck.explain.suspicion import Rule

RULES: Final = (Rule("slots", "a gradient is lost, or stands in another argument's place", slots),)
