"""The rules in the order in which they are tried: the first that holds everywhere names it."""

from __future__ import annotations

from typing import Final

from gradcheck.explain.rules.attributes import attributes, values
from gradcheck.explain.rules.cotangent import cotangent
from gradcheck.explain.rules.elsewhere import elsewhere
from gradcheck.explain.rules.scale import scale, shared
from gradcheck.explain.rules.slots import slots
from gradcheck.explain.suspicion import Rule

RULES: Final = (
    Rule("cotangent", "the cotangent is ignored, or another one is used", cotangent),
    Rule("scale", "one factor over the whole gradient, named by what varies with it", scale),
    Rule("shared", "the mean of an element's contributions where their sum belongs", shared),
    Rule("slots", "a gradient is lost, or stands in another argument's place", slots),
    Rule("attributes", "it is right for another value of an attribute", attributes),
    Rule("elsewhere", "it is right at other values than those given", elsewhere),
    Rule("values", "it is right for a value that no attribute should take", values),
)
