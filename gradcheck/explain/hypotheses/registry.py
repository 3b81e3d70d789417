"""All rules, in the order in which they are tried."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Final

from gradcheck.explain.hypotheses.attribute import attributes, values
from gradcheck.explain.hypotheses.contribution import contributions
from gradcheck.explain.hypotheses.cotangent import cotangent, replaced
from gradcheck.explain.hypotheses.factor import argument, reduction, scale
from gradcheck.explain.hypotheses.narrow import narrowed, turned
from gradcheck.explain.hypotheses.nonfinite import nonfinite
from gradcheck.explain.hypotheses.operand import elsewhere, lost, packed, slots
from gradcheck.explain.hypotheses.order import displaced, forward_mode, orientation, relaid
from gradcheck.explain.hypotheses.place import subset
from gradcheck.explain.hypotheses.precision import flushed, precision
from gradcheck.explain.hypotheses.residual import residual
from gradcheck.explain.hypotheses.size import alone, sizes
from gradcheck.explain.hypotheses.slope import local, zeros
from gradcheck.explain.hypotheses.sparsity import pairs, support
from gradcheck.explain.hypotheses.special_points import duplicates, kinks, mask
from gradcheck.explain.hypotheses.state import earlier
from gradcheck.explain.hypotheses.terms import terms
from gradcheck.explain.hypothesis import Hypothesis, Observations, Rule
from gradcheck.explain.probe import RAISES, Probe

MIN_PROBES: Final = 2
MIN_WRONG_ELEMENTS: Final = 8
"""Wrong elements, over all of them, that must be predicted."""


def somewhere(rules: Sequence[Rule]) -> Callable[[Observations], Iterable[Hypothesis]]:
    """A rule that puts rules to failing probes alone: code may take its own way at some points.

    They must be rules that predict every number: one that merely describes has too little to go by.
    """

    def propose(obs: Observations) -> Iterator[Hypothesis]:
        wrong = sum(int(probe.wrong(obs.output).sum()) for probe in obs.failing)
        if not obs.passing or len(obs.failing) < MIN_PROBES or wrong < MIN_WRONG_ELEMENTS:
            return
        there = Observations(obs.output, obs.failing, ())
        samples = ", ".join(dict.fromkeys(probe.where for probe in obs.passing))
        for rule in rules:
            with suppress(*RAISES):
                for hypothesis in rule.propose(there):
                    yield replace(
                        hypothesis,
                        fits=_where_wrong(hypothesis, obs.output),
                        evidence=(*hypothesis.evidence, f"the code takes another way at {samples}"),
                    )

    return propose


def _where_wrong(hypothesis: Hypothesis, name: str) -> Callable[[Probe], bool]:
    return lambda probe: not probe.fails(name) or hypothesis.fits(probe)


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
    Rule("slots", "another argument's gradient, or arguments are exchanged", slots),
    Rule("replaced", "another array stands in the cotangent's place", replaced),
    Rule("packed", "a part of a packed tensor is lost, or in another part's place", packed),
    Rule("nonfinite", "it is NaN or infinite where something special is", nonfinite),
    Rule("orientation", "the right numbers in another order", orientation),
    Rule("forward mode", "the Jacobian in place of its transpose", forward_mode),
    Rule("pairs", "what a place contributes to some other is lost", pairs),
    Rule("terms", "the reference's own text with one thing changed", terms),
    Rule("contributions", "some of what must be added up is lost", contributions),
    Rule("displaced", "read from, or written to, a neighbour's place", displaced),
    Rule("argument", "an array is missing, or one too many, as a factor of the whole", argument),
    Rule("elsewhere", "it is right at other values than those given", elsewhere),
    Rule("layout", "operands read, and the gradient written, in another layout", relaid),
    Rule("subset", "right except in a set of places", subset),
)
"""Those that predict every number, with few exceptions."""
PREDICTING: Final = tuple(
    rule
    for rule in EXACT
    if rule.name
    in {"cotangent", "attributes", "slots", "orientation", "forward mode", "layout",
         "subset", "contributions", "pairs", "displaced"}
)  # fmt: skip
"""Those that may be put to the points that are wrong, whatever they say of others."""
DESCRIBING: Final = (
    Rule("values", "it is right for a value that no attribute should take", values),
    Rule("sizes", "right for most sizes of an axis", sizes),
    Rule("duplicates", "wrong only where an index occurs more than once", duplicates),
    Rule("alone", "each entry of an axis alone is right", alone),
    Rule("zeros", "nothing is passed back where an argument is 0", zeros),
    Rule("turned", "rounding turned a choice: the largest, an order", turned),
    Rule("support", "other elements of the cotangent reach an element", support),
    Rule("somewhere", "wrong at some points only, and predicted there", somewhere(PREDICTING)),
    Rule("local", "element by element, the slope is another function", local),
    Rule("residual", "what is left over lies along one direction in every row", residual),
)
"""Those that say less than every number: they come after all that say more."""
RULES: Final = (*EXACT, *DESCRIBING)


def with_operator_rules(*others: Rule) -> tuple[Rule, ...]:
    """All rules, with `others` that predict every number behind those that do."""
    return (*EXACT, *others, *DESCRIBING)
