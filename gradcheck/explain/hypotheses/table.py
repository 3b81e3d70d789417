"""The rules in the order in which they are tried: the first that holds everywhere names it."""

from __future__ import annotations

from typing import Final

from gradcheck.explain.diagnosis_rule import Rule
from gradcheck.explain.hypotheses.argument import argument
from gradcheck.explain.hypotheses.argument_swaps import lost, packed, slots
from gradcheck.explain.hypotheses.attributes import attributes, values
from gradcheck.explain.hypotheses.conditions import alone, sizes
from gradcheck.explain.hypotheses.contributions import contributions
from gradcheck.explain.hypotheses.cotangent import cotangent, replaced
from gradcheck.explain.hypotheses.duplicates import duplicates
from gradcheck.explain.hypotheses.flushed import flushed
from gradcheck.explain.hypotheses.jacobian_sparsity import support
from gradcheck.explain.hypotheses.kinks import kinks
from gradcheck.explain.hypotheses.local import local
from gradcheck.explain.hypotheses.mask import mask
from gradcheck.explain.hypotheses.memory import memory
from gradcheck.explain.hypotheses.narrowed import narrowed, turned
from gradcheck.explain.hypotheses.nonfinite import nonfinite
from gradcheck.explain.hypotheses.orientation import (
    displaced,
    forward_mode,
    orientation,
    partly,
    relaid,
)
from gradcheck.explain.hypotheses.other_operand import elsewhere
from gradcheck.explain.hypotheses.pairs import pairs
from gradcheck.explain.hypotheses.partial import somewhere
from gradcheck.explain.hypotheses.precision import precision
from gradcheck.explain.hypotheses.residual import residual
from gradcheck.explain.hypotheses.row_means import by_row, shared
from gradcheck.explain.hypotheses.scale import reduction, scale
from gradcheck.explain.hypotheses.stale_answer import earlier
from gradcheck.explain.hypotheses.subset import subset
from gradcheck.explain.hypotheses.terms import terms
from gradcheck.explain.hypotheses.truncated import truncated
from gradcheck.explain.hypotheses.zeros import zeros

EXACT: Final = (
    Rule("kinks", "wrong only exactly on a kink or a tie", kinks),
    Rule("mask", "another random mask than forward's", mask),
    Rule("narrow", "operands, the cotangent, the result, products or sums are rounded", narrowed),
    Rule("precision", "rounded, cancelled or differenced", precision),
    Rule("flushed", "0 wherever what is due is tiny, or an argument huge", flushed),
    Rule("lost", "a gradient is zero", lost),
    Rule("earlier", "the answer of another call comes back", earlier),
    Rule("cotangent", "the cotangent is ignored, or another one is used", cotangent),
    Rule("scale", "one factor over the whole gradient: a sign, a number, an attribute", scale),
    Rule("attributes", "it is right for another value of an attribute", attributes),
    Rule("reduction", "one factor over the whole gradient: a count", reduction),
    Rule("shared", "the mean of an element's contributions where their sum belongs", shared),
    Rule("by row", "rows divided by another count than their own", by_row),
    Rule("slots", "another argument's gradient, or arguments are exchanged", slots),
    Rule("replaced", "another array stands in the cotangent's place", replaced),
    Rule("packed", "a part of a packed tensor is lost, or in another part's place", packed),
    Rule("nonfinite", "it is NaN or infinite where something special is", nonfinite),
    Rule("orientation", "the right numbers in another order", orientation),
    Rule("memory", "a piece of the cotangent's memory in place of the gradient", memory),
    Rule("forward mode", "the Jacobian in place of its transpose", forward_mode),
    Rule("pairs", "what a place contributes to some other is lost", pairs),
    Rule("terms", "the reference's own text with one thing changed", terms),
    Rule("contributions", "some of what must be added up is lost", contributions),
    Rule("displaced", "read from, or written to, a neighbour's place", displaced),
    Rule("argument", "an array is missing, or one too many, as a factor of the whole", argument),
    Rule("elsewhere", "it is right at other values than those given", elsewhere),
    Rule("layout", "operands read, and the gradient written, in another layout", relaid),
    Rule("subset", "right except in a set of places", subset),
    Rule("partly", "a part of it is that of elements in another order", partly),
    Rule("truncated", "a part of an axis never takes part", truncated),
)
"""Those that predict every number, with few exceptions."""
PREDICTING: Final = tuple(
    rule
    for rule in EXACT
    if rule.name
    in {"cotangent", "attributes", "slots", "orientation", "forward mode", "layout",
         "subset", "contributions", "pairs", "displaced", "truncated"}
)  # fmt: skip
"""Those that may be put to the points that are wrong, whatever they say of others."""
LOST: Final = tuple(rule for rule in EXACT if rule.name == "lost")
DESCRIBING: Final = (
    Rule("values", "it is right for a value that no attribute should take", values),
    Rule("sizes", "right for most sizes of an axis", sizes),
    Rule("duplicates", "wrong only where an index occurs more than once", duplicates),
    Rule("alone", "each entry of an axis alone is right", alone),
    Rule("zeros", "nothing is passed back where an argument is 0", zeros),
    Rule("lost somewhere", "a gradient is zero at some points only", somewhere(LOST)),
    Rule("turned", "rounding turned a choice: the largest, an order", turned),
    Rule("support", "other elements of the cotangent reach an element", support),
    Rule("somewhere", "wrong at some points only, and predicted there", somewhere(PREDICTING)),
    Rule("local", "element by element, the slope is another function", local),
    Rule("residual", "what is left over lies along one direction in every row", residual),
)
"""Those that say less than every number: they come after all that say more."""
RULES: Final = (*EXACT, *DESCRIBING)


def joined(*others: Rule) -> tuple[Rule, ...]:
    """All rules, with `others` that predict every number behind those that do."""
    return (*EXACT, *others, *DESCRIBING)
