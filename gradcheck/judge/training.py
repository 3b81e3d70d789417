"""Training a model: does its loss fall at every step as the gradients say?

A step moves the parameters by Δ; what the gradients judged say of the loss along it, an integral of
slopes, is held against the loss itself. It is refined before anything is blamed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np

from gradcheck.errors import Unsupported
from gradcheck.implementations.bound import BoundModel, ModelBinding
from gradcheck.implementations.checked_call import attempt, bound_by, steady
from gradcheck.implementations.returned import Broken
from gradcheck.judge.ask_model import GRADIENTS, read_gradients
from gradcheck.judge.compare import RULES
from gradcheck.judge.line_integral import SHARP, Float, PathCheck, PathIntegral, Tensors, wide
from gradcheck.numerics.arithmetic import F64, FLOATS
from gradcheck.numerics.draw import key_of
from gradcheck.results.finding import Finding, Miss, Part
from gradcheck.results.verdict import Verdict
from gradcheck.spec.model import ModelCase
from gradcheck.spec.operator import Array
from gradcheck.spec.program import Stage, Values
from gradcheck.spec.rule import RuleSpec, State

STEPS: Final = 30
PANELS: Final = 64
"""Of a leg, at most: 257 gradients; halved where the slope changes most."""
SURE: Final = 100.0
"""Error bars at which a wrong leg needs no more panels."""
SAFETY: Final = 8.0
"""So many times the noise that was seen in a few values of the loss."""
NEARBY: Final = 6
"""Values of the loss that show its noise."""
FAR: Final = 1e6
"""Times the first loss: a loss without a lower bound goes there, and training ends."""
ARMIJO: Final = 1e-4
HALVINGS: Final = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Trained:
    """What training left behind: every step's loss (the first one before it), legs, parameters."""

    losses: tuple[float, ...]
    legs: tuple[PathCheck, ...]
    params: Mapping[str, Array]


@dataclass(slots=True)
class Trainer:
    """One model, one implementation of its gradients, one rule, in one dtype.

    `largest` is the largest Σ|g·Δ| of a step so far.
    """

    case: ModelCase
    bound: BoundModel
    dtype: str
    rule: RuleSpec
    steps: int = STEPS
    largest: float = 0.0

    def run(self) -> Trained:
        """Take all steps, or those up to the first that goes otherwise than predicted, or too far.

        Parameters are numbers of the dtype all along; the loss is the model's own, in float64.
        On the first and on the last step every tensor is moved alone as well, by what the rule
        makes of the true gradients: one that gets no gradient would move nowhere by itself.

        Raises:
            Broken: the implementation gives no gradient that can be used.
        """
        xp = FLOATS[self.dtype]
        params = {n: p.astype(xp.dtype) for n, p in self.case.params.items() if _moves(p)}
        state: State = self.rule.init(xp, params)
        losses, legs = [self.loss(params)], []
        for step in range(1, self.steps + 1):
            gradients = self.gradients(params)
            if step in (1, self.steps):
                true = self.true_gradients(params)
                alone = self._updated(params, true, state, step)[0]
                legs += [self._leg(params, {n: new}, step, n) for n, new in alone.items()]
            new, state = self._updated(params, gradients, state, step)
            new = self._shortened(params, new, gradients) if self.rule.searched else new
            legs.append(self._leg(params, new, step))
            self.largest = max(self.largest, legs[-1].size)
            params = new
            losses.append(self.loss(params))
            far = not abs(losses[-1]) <= FAR * (1 + abs(losses[0]))
            if far or not all(leg.right for leg in legs):
                break
        return Trained(losses=tuple(losses), legs=tuple(legs), params=params)

    def loss(self, params: Values) -> float:
        """The model's loss in float64."""
        with np.errstate(all="ignore"):
            values = self.case.program.forward(F64, self._given(params, "float64"))
        return float(values[self.case.program.loss])

    def gradients(self, params: Values) -> Tensors:
        """What the implementation gives, by parameter, in the working dtype.

        Raises:
            Broken: it gives none for a parameter, or something of another form.
        """
        bound, given = self.bound, self._given(params, self.dtype)
        if bound.gradients is None:
            folded: Tensors = attempt("gradients", lambda: self._folded(params, self.dtype, bound))
            return folded
        program = self.case.program
        made = read_gradients(
            bound.gradients,
            {name: given[name] for name in program.params},
            {name: given[name] for name in program.inputs},
        )
        return {name: _shaped(made[name], p) for name, p in params.items()}

    def true_gradients(self, params: Values) -> Tensors:
        """The fold of the operators' own VJPs, in the working dtype."""
        return self._folded(params, self.dtype, None)

    def _folded(self, params: Values, dtype: str, bound: BoundModel | None) -> Tensors:
        """The reverse fold; a stage that is bound gives its own VJP."""
        xp, program = FLOATS[dtype], self.case.program

        def vjp(stage: Stage, cts: tuple[Array, ...], values: Values) -> tuple[Any, ...]:
            own = None if bound is None else bound.stage(stage)
            return stage.vjp(xp, cts, values) if own is None else own(stage, cts, values)

        with np.errstate(all="ignore"):
            values = program.forward(xp, self._given(params, dtype))
            cts = program.backward(xp, values, xp.asarray(1.0), vjp)
        return {n: np.asarray(cts.get(n, np.zeros_like(p)), p.dtype) for n, p in params.items()}

    def _updated(
        self, params: Tensors, gradients: Tensors, state: State, step: int
    ) -> tuple[Tensors, State]:
        xp = FLOATS[self.dtype]
        attrs = {**self.rule.defaults, **(self.rule.training or {})}
        with np.errstate(all="ignore"):
            new, kept = self.rule.update(xp, params, gradients, state, step, **attrs)
        return {n: np.asarray(p, dtype=xp.dtype) for n, p in new.items()}, kept

    def _shortened(self, params: Tensors, new: Tensors, gradients: Tensors) -> Tensors:
        """The step, halved until the loss falls by a part of what its slope promises (Armijo)."""
        start = self.loss(params)
        slope = _product(gradients, _difference(new, params))
        length = 1.0
        for _ in range(HALVINGS):
            ok = self.loss(new) <= start + ARMIJO * length * slope
            if ok:
                break
            new = {n: ((a + params[n]) / 2).astype(a.dtype) for n, a in new.items()}
            length /= 2
        return new

    def _leg(self, params: Tensors, moved: Tensors, step: int, tensor: str = "") -> PathCheck:
        """From `params` to where the tensors of `moved` are; the others stay."""
        end = {**params, **moved}
        change = _difference(end, params)
        observed = self.loss(end) - self.loss(params)
        noise = self._noise(params) + self._noise(end)
        kinked = any(stage.op.kinks for stage in self.case.program.stages)
        way = PathIntegral(lambda s: self.gradients(_between(params, end, s)), change, kinked)
        rules = RULES[self.dtype]
        # Near a minimum gradients cancel inside: what they were made of was as large as before.
        noise += SAFETY * rules.u * self.largest
        while True:
            leg = way.leg(observed, noise, rules, step, tensor)
            hidden = leg.size * SHARP <= noise  # by rounding: no quadrature tells more
            done = leg.resolved(0.0) or hidden if leg.right else leg.error >= SURE * leg.bar
            count = len(way.cuts) - 1
            if (done and count > 1) or count >= PANELS:
                return leg
            way.split()

    def _noise(self, params: Values) -> float:
        """What rounding may cost the loss in float64: how it reacts to the last place of all.

        Bounds that are carried through a whole model come out a million times too wide.
        """
        rng = np.random.Generator(np.random.Philox(key=key_of("noise", self.case.name)))
        values = [self.loss(params)]
        for _ in range(NEARBY):
            moved = {
                n: np.nextafter(p.astype(np.float64), _sides(rng, p)) for n, p in params.items()
            }
            values.append(self.loss(moved))
        spread = max(values) - min(values)
        return SAFETY * (spread + 4 * 2.0**-53 * abs(values[0]))

    def _given(self, params: Values, dtype: str) -> Tensors:
        """Everything that is given, in a working dtype: numbers that the judged one holds."""
        given = {**self.case.given, **params}
        return {n: v.astype(self.dtype).astype(dtype) if _moves(v) else v for n, v in given.items()}


def judge_training(
    case: ModelCase, binding: ModelBinding, dtype: str, rule: RuleSpec, steps: int = STEPS
) -> list[Finding]:
    """Train the model with the gradients of `binding`: one finding, named "training"."""
    try:
        if dtype not in RULES:
            raise Unsupported("models are trained in float64 and float32")
        bound = bound_by(lambda: binding.bind_model(case, dtype))
        if bound is None:
            reason = f"{binding.name} says nothing about {case.spec.name}"
            return [_finding(Verdict.UNBOUND, reason)]
        if bound.gradients is not None:
            bound = replace(bound, gradients=steady(GRADIENTS, bound.gradients))
        trained = Trainer(case, bound, dtype, rule, steps).run()
    except Unsupported as reason:
        return [_finding(Verdict.UNSUPPORTED, str(reason))]
    except Broken as error:
        return [_finding(error.finding.verdict, error.finding.reason)]
    return [verdict(trained, rule.name)]


def verdict(trained: Trained, rule: str) -> Finding:
    """What the legs say together, and whether the loss fell."""
    legs = trained.legs
    wrong = [leg for leg in legs if not leg.right]
    whole = [leg for leg in legs if not leg.tensor]
    largest = max((leg.size for leg in legs), default=0.0)
    blind = [leg for leg in legs if leg.right and not leg.resolved(largest)]
    start, end = trained.losses[0], trained.losses[-1]
    told = (
        f"loss {start:.6g} → {end:.6g} in {len(whole)} steps of {rule}: fell by "
        f"{-sum(leg.observed for leg in whole):.6g}, "
        f"{-sum(leg.predicted for leg in whole):.6g} predicted"
    )
    fell = end < start
    if wrong:
        found, reason = Verdict.FAIL, f"{_said(wrong[0])}; {told}"
    elif _too_blind(legs, blind):
        found = Verdict.INCONCLUSIVE
        reason = f"{len(blind)} of {len(legs)} predictions are too uncertain; {told}"
    elif not fell:
        found, reason = Verdict.INCONCLUSIVE, f"every step goes as predicted, but not down; {told}"
    else:
        found, reason = Verdict.PASS, told
    shown = wrong or [max(legs, key=lambda leg: leg.error / leg.bound if leg.bound else 0.0)]
    return Finding(
        name="training", verdict=found, reason=reason, part=Part.TRAINING,
        compared=len(legs), failed=len(wrong), unresolved=len(blind),
        worst=tuple(_miss(leg) for leg in shown[:20]),
    )  # fmt: skip


def _too_blind(legs: Sequence[PathCheck], blind: Sequence[PathCheck]) -> bool:
    """Whether most steps, or some tensor every time that it moved alone, are too uncertain."""
    seen = [leg for leg in legs if leg not in blind]
    steps = [leg for leg in legs if not leg.tensor]
    lost = {leg.tensor for leg in legs} - {leg.tensor for leg in seen}
    return bool(lost) or 2 * len([leg for leg in seen if not leg.tensor]) < len(steps)


def _said(leg: PathCheck) -> str:
    """A prediction that did not come true, in words."""
    mover = f"moving {leg.tensor} alone" if leg.tensor else "the step"
    return (
        f"step {leg.step}: {mover} changes the loss by {leg.observed:.6g}, "
        f"the gradients say {leg.predicted:.6g} ± {leg.bar:.2g}"
    )


def _miss(leg: PathCheck) -> Miss:
    return Miss(
        index=(leg.step,), got=leg.predicted, want=leg.observed, error=leg.error,
        bound=leg.bound, error_bar=leg.bar, ulp=None, cotangent=f"step {leg.step}",
        tensor=leg.tensor,
    )  # fmt: skip


def _finding(found: Verdict, reason: str) -> Finding:
    return Finding(name="training", verdict=found, reason=reason, part=Part.TRAINING)


def _sides(rng: np.random.Generator, p: Array) -> Float:
    """±∞: where `nextafter` is to go."""
    return np.asarray(rng.choice((-np.inf, np.inf), size=p.shape))


def _shaped(row: Float | Finding, pattern: Array) -> Array:
    """One gradient in the form of its parameter.

    Raises:
        Broken: something is wrong with it.
    """
    if isinstance(row, Finding):
        raise Broken(row)
    return row.reshape(pattern.shape).astype(pattern.dtype)


def _moves(values: Array) -> bool:
    return bool(values.dtype.kind == "f")


def _difference(new: Values, old: Values) -> dict[str, Float]:
    """New − old in float64, without the tensors that stay."""
    found = {n: wide(new[n]) - wide(old[n]) for n in new}
    return {n: d for n, d in found.items() if d.any()}


def _product(gradients: Values, change: Mapping[str, Float]) -> float:
    return float(sum(np.sum(wide(gradients[n]) * d) for n, d in change.items()))


def _between(start: Tensors, end: Tensors, s: float) -> Tensors:
    """The place `s` of the way, as numbers of the dtype."""
    if s in (0.0, 1.0):
        return end if s else start
    mixed = {n: (1 - s) * wide(a) + s * end[n] for n, a in start.items()}
    return {n: a.astype(start[n].dtype) for n, a in mixed.items()}
