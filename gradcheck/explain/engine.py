"""Decides the class of a wrong gradient: that of the first hypothesis that holds at every probe."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from gradcheck.explain.hypotheses.cotangent_or_attribute import (
    attributes,
    cotangent,
    replaced,
    values,
)
from gradcheck.explain.hypotheses.factor import argument, reduction, scale
from gradcheck.explain.hypotheses.lost_contribution import contributions, residual
from gradcheck.explain.hypotheses.narrow import narrowed, turned
from gradcheck.explain.hypotheses.order import displaced, forward_mode, orientation, relaid
from gradcheck.explain.hypotheses.other_function import local, zeros
from gradcheck.explain.hypotheses.precision import flushed, precision
from gradcheck.explain.hypotheses.shape_or_state import earlier
from gradcheck.explain.hypotheses.size import alone, sizes
from gradcheck.explain.hypotheses.sparsity import pairs, support
from gradcheck.explain.hypotheses.special_points import duplicates, kinks, mask, nonfinite
from gradcheck.explain.hypotheses.wrong_argument import elsewhere, lost, packed, slots
from gradcheck.explain.hypotheses.wrong_region import subset
from gradcheck.explain.hypothesis import Hypothesis, Observations, Rule, where_wrong
from gradcheck.explain.probe import RAISES, Array, Float, Gradients, Probe, agree
from gradcheck.numerics.draw import Draw
from gradcheck.results.finding import Diagnosis
from gradcheck.results.words import plural, share

MIN_PROBES: Final = 2
MIN_PREDICTED_ELEMENTS: Final = 8
"""Wrong elements, over all of them, that must be predicted."""


def somewhere(rules: Sequence[Rule]) -> Callable[[Observations], Iterable[Hypothesis]]:
    """A rule that puts rules to failing probes alone: code may take its own way at some points.

    They must be rules that predict every number: one that merely describes has too little to go by.
    """

    def propose(obs: Observations) -> Iterator[Hypothesis]:
        wrong = sum(int(probe.wrong(obs.output).sum()) for probe in obs.failing)
        if not obs.passing or len(obs.failing) < MIN_PROBES or wrong < MIN_PREDICTED_ELEMENTS:
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


def terms(obs: Observations) -> Iterator[Hypothesis]:
    """Every change of the spec's text that gives the wrong gradient; none without a spec."""
    if obs.first.truth.spec is not None:
        # door: only operators with a spec have a text
        from gradcheck.explain.hypotheses.terms import terms as changes

        yield from changes(obs)


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


MIN_WRONG_ELEMENTS: Final = 3
"""Wrong elements, over all probes, below which a coincidence is too likely to name anything."""


@dataclass(frozen=True, slots=True)
class Explanation:
    """What the engine makes of one gradient.

    `found` is the first hypothesis that holds at all probes and the rule that proposed it; None
    where none holds.
    """

    obs: Observations
    found: tuple[Rule, Hypothesis] | None

    @property
    def hypothesis(self) -> Hypothesis | None:
        """The hypothesis, to be put to further probes."""
        return None if self.found is None else self.found[1]

    @property
    def diagnosis(self) -> Diagnosis:
        """The explanation in words; without a hypothesis, the residual and an empty label."""
        obs = self.obs
        if self.found is None:
            return Diagnosis(
                label="",
                says=f"{obs.gradient}: no known pattern",
                evidence=(*describe_residual(obs), where_wrong(obs)),
            )
        rule, hypothesis = self.found
        return Diagnosis(
            label=hypothesis.label,
            says=hypothesis.says,
            rule=rule.name,
            evidence=(*hypothesis.evidence, where_wrong(obs)),
            cause=hypothesis.cause,
        )


def diagnose(
    output: str, probes: Sequence[Probe], rules: Sequence[Rule] = RULES
) -> Diagnosis | None:
    """What is wrong with the gradient of the primal `output`; None where no probe shows it."""
    found = explain(output, probes, rules)
    return None if found is None else found.diagnosis


def explain(
    output: str,
    probes: Sequence[Probe],
    rules: Sequence[Rule] = RULES,
    usual: Explanation | None = None,
    likely: Explanation | None = None,
) -> Explanation | None:
    """The first hypothesis about a gradient that holds; None where no probe shows it wrong.

    Args:
        output: Name of the primal whose gradient is to be explained.
        probes: Points at which the code was asked, the most telling first. Hypotheses are formed
            at the first that fails, and must hold at all of them.
        rules: Rules in the order in which their hypotheses are tried.
        usual: The explanation at some of the probes, which is only confirmed or refuted.
        likely: An explanation of the same code elsewhere, which is tried first.
    """
    obs = Observations.of(output, probes)
    if not obs.failing:
        return None
    if likely is not None and likely.hypothesis is not None and _holds(likely.hypothesis, obs):
        return Explanation(obs, likely.found)
    if usual is None or (usual.hypothesis is not None and not _holds(usual.hypothesis, obs)):
        return Explanation(obs, _first(obs, rules))
    return Explanation(obs, usual.found)


def _first(obs: Observations, rules: Sequence[Rule]) -> tuple[Rule, Hypothesis] | None:
    wrong = sum(int(probe.wrong(obs.output).sum()) for probe in obs.failing)
    if wrong < MIN_WRONG_ELEMENTS and not obs.passing:
        return None
    hypotheses = ((rule, hypothesis) for rule in rules for hypothesis in _proposed(rule, obs))
    with _quiet():
        return next((pair for pair in hypotheses if _holds(pair[1], obs)), None)


def _proposed(rule: Rule, obs: Observations) -> Generator[Hypothesis]:
    with suppress(*RAISES):  # values that the rule was not made for end its hypotheses
        yield from rule.propose(obs)


@contextmanager
def _quiet() -> Iterator[None]:
    """Silence warnings of numbers that only a hypothesis divides by."""
    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        yield


def _holds(hypothesis: Hypothesis, obs: Observations) -> bool:
    with suppress(*RAISES), _quiet():
        return all(hypothesis.fits(probe) for probe in (*obs.failing, *obs.passing))
    return False


NUDGE_SIZE: Final = 2.0**-5
"""How far an argument is moved, relative to itself, to see whether the residual follows."""
MAX_STILL_CHANGE: Final = 1e-6
"""Share of the residual by which it may move and still count as the same."""


def describe_residual(obs: Observations) -> Iterator[str]:
    """Describe the residual in sentences: its size and place, and what it depends on."""
    probe, name = obs.first, obs.output
    if name not in probe.got:
        yield "no gradient of the right shape came back"
        return
    got, right = probe.got[name], probe.right[name]
    strange = int((~np.isfinite(got)).sum())
    if strange:
        yield f"{share(strange, got.size, 'element')} not finite at {probe.where}"
        return
    yield _left(obs, got - right, right)
    with np.errstate(all="ignore"):
        yield from _causes(probe, name)


def _left(obs: Observations, rest: Float, right: Float) -> str:
    wrong = obs.first.wrong(obs.output)
    size = float(np.linalg.norm(right[np.isfinite(right)]))
    norm = float(np.linalg.norm(rest[np.isfinite(rest)]))
    part = f"{norm / size:.3g} of the gradient's norm" if size > 0 else f"{norm:.3g}"
    worst = np.unravel_index(np.argmax(np.abs(np.nan_to_num(rest))), rest.shape)
    place = f"[{', '.join(str(int(k)) for k in worst)}]" if rest.ndim else ""
    return (
        f"the residual got − want is {part}, in {int(wrong.sum()):,} of "
        f"{plural(wrong.size, 'element')}, at "
        f"{obs.first.where}; the largest is at {obs.gradient}{place}"
    )


def _causes(probe: Probe, name: str) -> Iterator[str]:
    """Whether the residual is linear in the cotangent, and which arguments change it."""
    rest = _rest(probe, name)
    twice = _rest_of(probe, probe.ask(tuple(2 * ct for ct in probe.ct)), name, 2.0)
    if rest is None or twice is None:
        return
    linear = agree(twice, 2 * rest, MAX_STILL_CHANGE)
    yield f"the residual {'doubles' if linear else 'does not double'} with the cotangent"
    moving: list[str] = []
    still: list[str] = []
    for k, value in enumerate(probe.primals):
        if value.dtype.kind == "f":
            found = _nudged(probe, k)
            moved = None if found is None else _rest(found, name)
            if moved is not None and moved.shape == rest.shape:
                (still if agree(moved, rest, MAX_STILL_CHANGE) else moving).append(probe.names[k])
    if moving:
        yield f"it changes with {_listed(moving)}" + (
            f", not with {_listed(still)}" if still else ""
        )
    elif still:
        yield f"it does not change with {_listed(still)}"


def _rest(probe: Probe, name: str) -> Float | None:
    return probe.got[name] - probe.right[name] if name in probe.got else None


def _rest_of(probe: Probe, got: Gradients, name: str, times: float) -> Float | None:
    found = got.get(name)
    return None if found is None else np.asarray(found - times * probe.right[name])


def _nudged(probe: Probe, k: int) -> Probe | None:
    def near(x: Array) -> Array:
        return np.asarray(x * (1 + NUDGE_SIZE * Draw("nudge", k).uniform(-1.0, 1.0, *x.shape)))

    return probe.at([near(p) if i == k else p for i, p in enumerate(probe.primals)], probe.ct)


def _listed(names: list[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"
