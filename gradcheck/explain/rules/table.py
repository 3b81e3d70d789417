"""The rules in the order in which they are tried: the first that holds everywhere names it."""

from __future__ import annotations

from typing import Final

from gradcheck.explain.rules.attributes import attributes, values
from gradcheck.explain.rules.contributions import contributions
from gradcheck.explain.rules.cotangent import cotangent, replaced
from gradcheck.explain.rules.elsewhere import elsewhere
from gradcheck.explain.rules.local import local
from gradcheck.explain.rules.nonfinite import nonfinite
from gradcheck.explain.rules.orientation import displaced, orientation
from gradcheck.explain.rules.scale import scale, shared
from gradcheck.explain.rules.slots import lost, packed, slots
from gradcheck.explain.rules.subset import subset
from gradcheck.explain.rules.terms import terms
from gradcheck.explain.suspicion import Rule

RULES: Final = (
    Rule("lost", "a gradient is zero", lost),
    Rule("cotangent", "the cotangent is ignored, or another one is used", cotangent),
    Rule("scale", "one factor over the whole gradient, named by what varies with it", scale),
    Rule("shared", "the mean of an element's contributions where their sum belongs", shared),
    Rule("slots", "another argument's gradient, or arguments are exchanged", slots),
    Rule("replaced", "another array stands in the cotangent's place", replaced),
    Rule("packed", "a part of a packed tensor is lost, or in another part's place", packed),
    Rule("attributes", "it is right for another value of an attribute", attributes),
    Rule("nonfinite", "it is NaN or infinite where something special is", nonfinite),
    Rule("terms", "the reference's own text with one thing changed", terms),
    Rule("elsewhere", "it is right at other values than those given", elsewhere),
    Rule("orientation", "the right numbers in another order", orientation),
    Rule("subset", "right except in a set of places", subset),
    Rule("contributions", "some of what must be added up is lost", contributions),
    Rule("displaced", "read from, or written to, a neighbour's place", displaced),
    Rule("values", "it is right for a value that no attribute should take", values),
    Rule("local", "element by element, the slope is another function", local),
)
