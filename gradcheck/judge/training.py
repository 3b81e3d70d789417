"""Training a model: does its loss fall at every step as the gradients predict?

Along a step Δ the loss changes by ∫⟨g(p + sΔ), Δ⟩ds for any right gradient, whatever rule made the
step. The error bar of the integral is the difference between Boole's rule and Simpson's, panel by
panel, times 4: that also covers a jump of the slope at a kink, wherever in its panel. The integral
is refined before the gradients are blamed.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

import numpy as np

from gradcheck.errors import Unsupported
from gradcheck.implementations.bound import BoundModel, ModelBinding
from gradcheck.implementations.checked_call import attempt, bound_by, steady
from gradcheck.implementations.returned import Broken
from gradcheck.judge.call_model import GRADIENTS, read_gradients
from gradcheck.judge.compare import ERROR_BAR_FACTOR, TOLERANCES, Tolerance
from gradcheck.numerics.arithmetic import F64, FLOATS
from gradcheck.numerics.arrays import Array, Float
from gradcheck.numerics.draw import key_of
from gradcheck.results.finding import Finding, Miss, Part
from gradcheck.results.verdict import Verdict
from gradcheck.results.words import plural
from gradcheck.spec.model import ModelCase
from gradcheck.spec.program import Stage, Values
from gradcheck.spec.rule import RuleSpec, State

DEFAULT_STEPS: Final = 30
MAX_PANELS: Final = 64
"""Panels of a path at most: 257 gradients; halved where the slope changes most."""
CLEARLY_WRONG_BARS: Final = 100.0
"""Error bars after which a wrong path needs no more panels."""
NOISE_FACTOR: Final = 8.0
"""Factor on the noise observed in a few values of the loss."""
NOISE_SAMPLES: Final = 6
"""Values of the loss that show its noise."""
MAX_LOSS_GROWTH: Final = 1e6
"""Growth of the loss, over the first one, after which training ends."""
ARMIJO: Final = 1e-4
MAX_HALVINGS: Final = 20
Tensors = dict[str, Array]
MAX_BOUND_SHARE, MAX_BOUND_SHARE_KINKED = 5e-3, 5e-2
"""A bound wider than this part of Σ|g·Δ| along a path could hide a wrong gradient."""
MIN_SIZE_SHARE: Final = 1e-4
"""A path that moves the loss by less than this part of the largest step's Σ|g·Δ| need not be
resolved."""
HIDDEN_JUMPS: Final = 4.0
"""Pairs of jumps that may hide between neighbouring nodes."""
BOOLE: Final = np.array([7.0, 32.0, 12.0, 32.0, 7.0]) / 90
SIMPSON: Final = np.array([1.0, 0.0, 4.0, 0.0, 1.0]) / 6
QUADRATURE_FACTOR: Final = 4.0
"""Factor on the difference of both rules: a jump of the slope costs Boole's rule less than twice
that."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingRun:
    """The result of training: every step's loss (first the one before it), paths, parameters."""

    losses: tuple[float, ...]
    paths: tuple[PathCheck, ...]
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
    steps: int = DEFAULT_STEPS
    largest: float = 0.0

    def run(self) -> TrainingRun:
        """Take all steps, or those up to the first that is not as predicted, or too far.

        Parameters are numbers of the dtype all along; the loss is the model's own, in float64.
        On the first and on the last step every tensor also moves alone, by the rule's step for the
        true gradients: one without a gradient would move nowhere by itself.

        Raises:
            Broken: the implementation gives no gradient that can be used.
        """
        xp = FLOATS[self.dtype]
        params = {n: p.astype(xp.dtype) for n, p in self.case.params.items() if _moves(p)}
        state: State = self.rule.init(xp, params)
        losses, paths = [self.loss(params)], []
        for step in range(1, self.steps + 1):
            gradients = self.gradients(params)
            if step in (1, self.steps):
                true = self.true_gradients(params)
                alone = self._updated(params, true, state, step)[0]
                paths += [self._path(params, {n: new}, step, n) for n, new in alone.items()]
            new, state = self._updated(params, gradients, state, step)
            new = self._shortened(params, new, gradients) if self.rule.searched else new
            paths.append(self._path(params, new, step))
            self.largest = max(self.largest, paths[-1].size)
            params = new
            losses.append(self.loss(params))
            far = not abs(losses[-1]) <= MAX_LOSS_GROWTH * (1 + abs(losses[0]))
            if far or not all(path.right for path in paths):
                break
        return TrainingRun(losses=tuple(losses), paths=tuple(paths), params=params)

    def loss(self, params: Values) -> float:
        """The model's loss in float64."""
        with np.errstate(all="ignore"):
            values = self.case.program.forward(F64, self._given(params, "float64"))
        return float(values[self.case.program.loss])

    def gradients(self, params: Values) -> Tensors:
        """The implementation's gradients, by parameter, in the working dtype.

        Raises:
            Broken: a gradient is missing, or has another form.
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
        """The step, halved until the loss falls by a part of the slope (Armijo)."""
        start = self.loss(params)
        slope = _product(gradients, _difference(new, params))
        length = 1.0
        for _ in range(MAX_HALVINGS):
            ok = self.loss(new) <= start + ARMIJO * length * slope
            if ok:
                break
            new = {n: ((a + params[n]) / 2).astype(a.dtype) for n, a in new.items()}
            length /= 2
        return new

    def _path(self, params: Tensors, moved: Tensors, step: int, tensor: str = "") -> PathCheck:
        """The path from `params` to the tensors of `moved`; the other tensors stay."""
        end = {**params, **moved}
        change = _difference(end, params)
        observed = self.loss(end) - self.loss(params)
        noise = self._noise(params) + self._noise(end)
        kinked = any(stage.op.kinks for stage in self.case.program.stages)
        integral = PathIntegral(lambda s: self.gradients(_between(params, end, s)), change, kinked)
        tolerance = TOLERANCES[self.dtype]
        # Near a minimum gradients cancel inside: what they were made of was as large as before.
        noise += NOISE_FACTOR * tolerance.u * self.largest
        while True:
            path = integral.check(observed, noise, tolerance, step, tensor)
            hidden = path.size * MAX_BOUND_SHARE <= noise  # by rounding: no quadrature tells more
            done = (
                path.resolved(0.0) or hidden
                if path.right
                else path.error >= CLEARLY_WRONG_BARS * path.bar
            )
            count = len(integral.cuts) - 1
            if (done and count > 1) or count >= MAX_PANELS:
                return path
            integral.split()

    def _noise(self, params: Values) -> float:
        """The noise of the loss in float64: its reaction to the last place of all parameters.

        Bounds propagated through a whole model are a million times too wide.
        """
        rng = np.random.Generator(np.random.Philox(key=key_of("noise", self.case.name)))
        values = [self.loss(params)]
        for _ in range(NOISE_SAMPLES):
            moved = {
                n: np.nextafter(p.astype(np.float64), _random_infinities(rng, p))
                for n, p in params.items()
            }
            values.append(self.loss(moved))
        spread = max(values) - min(values)
        return NOISE_FACTOR * (spread + 4 * 2.0**-53 * abs(values[0]))

    def _given(self, params: Values, dtype: str) -> Tensors:
        """Parameters and inputs in a working dtype, rounded to the dtype judged."""
        given = {**self.case.given, **params}
        return {n: v.astype(self.dtype).astype(dtype) if _moves(v) else v for n, v in given.items()}


def judge_training(
    case: ModelCase, binding: ModelBinding, dtype: str, rule: RuleSpec, steps: int = DEFAULT_STEPS
) -> list[Finding]:
    """Train the model with the gradients of `binding`: one finding, named "training"."""
    try:
        if dtype not in TOLERANCES:
            raise Unsupported("models are trained in float64 and float32")
        bound = bound_by(lambda: binding.bind_model(case, dtype))
        if bound is None:
            reason = f"not implemented by {binding.name}"
            return [_finding(Verdict.UNBOUND, reason)]
        if bound.gradients is not None:
            bound = replace(bound, gradients=steady(GRADIENTS, bound.gradients))
        trained = Trainer(case, bound, dtype, rule, steps).run()
    except Unsupported as reason:
        return [_finding(Verdict.UNSUPPORTED, str(reason))]
    except Broken as error:
        return [_finding(error.finding.verdict, error.finding.reason)]
    return [training_finding(trained, rule.name)]


def training_finding(trained: TrainingRun, rule: str) -> Finding:
    """The verdict on all paths together, and on whether the loss fell."""
    paths = trained.paths
    wrong = [path for path in paths if not path.right]
    whole = [path for path in paths if not path.tensor]
    largest = max((path.size for path in paths), default=0.0)
    uncertain = [path for path in paths if path.right and not path.resolved(largest)]
    start, end = trained.losses[0], trained.losses[-1]
    summary = (
        f"loss {start:.6g} → {end:.6g} in {plural(len(whole), 'step')} of {rule}: fell by "
        f"{-sum(path.observed for path in whole):.6g}, "
        f"{-sum(path.predicted for path in whole):.6g} predicted"
    )
    fell = end < start
    if wrong:
        found, reason = Verdict.FAIL, f"{_broken_prediction(wrong[0])}; {summary}"
    elif _mostly_uncertain(paths, uncertain):
        found = Verdict.INCONCLUSIVE
        reason = f"{len(uncertain)} of {len(paths)} predictions are too uncertain; {summary}"
    elif not fell:
        found, reason = (
            Verdict.INCONCLUSIVE,
            f"every step changes the loss as predicted, but the loss does not fall; {summary}",
        )
    else:
        found, reason = Verdict.PASS, summary
    shown = wrong or [max(paths, key=lambda path: path.error / path.bound if path.bound else 0.0)]
    return Finding(
        name="training", verdict=found, reason=reason, part=Part.TRAINING,
        compared=len(paths), failed=len(wrong), unresolved=len(uncertain),
        worst=tuple(_miss(path) for path in shown[:20]),
    )  # fmt: skip


def _mostly_uncertain(paths: Sequence[PathCheck], uncertain: Sequence[PathCheck]) -> bool:
    """Whether most steps, or all paths of some tensor alone, are too uncertain."""
    seen = [path for path in paths if path not in uncertain]
    steps = [path for path in paths if not path.tensor]
    lost = {path.tensor for path in paths} - {path.tensor for path in seen}
    return bool(lost) or 2 * len([path for path in seen if not path.tensor]) < len(steps)


def _broken_prediction(path: PathCheck) -> str:
    mover = f"moving {path.tensor} alone" if path.tensor else "the step"
    return (
        f"step {path.step}: {mover} changes the loss by {path.observed:.6g}, "
        f"the gradients say {path.predicted:.6g} ± {path.bar:.2g}"
    )


def _miss(path: PathCheck) -> Miss:
    return Miss(
        index=(path.step,), got=path.predicted, want=path.observed, error=path.error,
        bound=path.bound, error_bar=path.bar, ulp=None, cotangent=f"step {path.step}",
        tensor=path.tensor,
    )  # fmt: skip


def _finding(found: Verdict, reason: str) -> Finding:
    return Finding(name="training", verdict=found, reason=reason, part=Part.TRAINING)


def _random_infinities(rng: np.random.Generator, p: Array) -> Float:
    """±∞, as directions for `nextafter`."""
    return np.asarray(rng.choice((-np.inf, np.inf), size=p.shape))


def _shaped(row: Float | Finding, pattern: Array) -> Array:
    """One gradient in the form of its parameter.

    Raises:
        Broken: the gradient has a fault.
    """
    if isinstance(row, Finding):
        raise Broken(row)
    return row.reshape(pattern.shape).astype(pattern.dtype)


def _moves(values: Array) -> bool:
    return bool(values.dtype.kind == "f")


def _difference(new: Values, old: Values) -> dict[str, Float]:
    """New − old in float64, without the tensors that stay."""
    found = {n: _to_float64(new[n]) - _to_float64(old[n]) for n in new}
    return {n: d for n, d in found.items() if d.any()}


def _product(gradients: Values, change: Mapping[str, Float]) -> float:
    return float(sum(np.sum(_to_float64(gradients[n]) * d) for n, d in change.items()))


def _between(start: Tensors, end: Tensors, s: float) -> Tensors:
    """The point at the part `s` of the path, as numbers of the dtype."""
    if s in (0.0, 1.0):
        return end if s else start
    mixed = {n: (1 - s) * _to_float64(a) + s * end[n] for n, a in start.items()}
    return {n: a.astype(start[n].dtype) for n, a in mixed.items()}


@dataclass(frozen=True, slots=True, kw_only=True)
class PathCheck:
    """A straight path of the parameters: the loss's change, and the one predicted.

    `tensor` is the parameter that moved alone; "" where all of them did. `size` is Σ|g·Δ|, to which
    `bound` is compared; `bar` is the error bar of the prediction. `kinked`: the model has operators
    with kinks. Units: the loss's.
    """

    step: int
    tensor: str
    observed: float
    predicted: float
    bar: float
    bound: float
    size: float
    kinked: bool = False

    @property
    def error(self) -> float:
        """|predicted − observed|."""
        return abs(self.predicted - self.observed)

    @property
    def right(self) -> bool:
        """Whether the prediction holds; NaN does not."""
        return self.error <= self.bound

    def resolved(self, whole: float) -> bool:
        """Whether the bound is narrow enough, or the tensor moves next to nothing."""
        sharp = MAX_BOUND_SHARE_KINKED if self.kinked else MAX_BOUND_SHARE
        return self.bound <= max(sharp * self.size, MIN_SIZE_SHARE * whole)


@dataclass(slots=True)
class PathIntegral:
    """Slopes along a straight path, each computed once; `cuts` are the ends of its panels."""

    gradients: Callable[[float], Tensors]
    change: dict[str, Float]
    kinked: bool
    cuts: list[float] = field(default_factory=lambda: [0.0, 1.0])
    known: dict[float, tuple[float, float]] = field(default_factory=dict)

    def check(
        self, observed: float, noise: float, tolerance: Tolerance, step: int, tensor: str
    ) -> PathCheck:
        """The check of this path, with its slopes integrated over the panels."""
        predicted, size, bars = self._panels
        bar = float(np.sum(bars))
        bound = tolerance.rtol * float(np.sum(size)) + noise + ERROR_BAR_FACTOR * bar
        return PathCheck(
            step=step, tensor=tensor, observed=observed, predicted=float(np.sum(predicted)),
            bar=bar, bound=bound, size=float(np.sum(size)), kinked=self.kinked,
        )  # fmt: skip

    def split(self) -> None:
        """Halve the panels that are most uncertain."""
        _, _, bars = self._panels
        worst = float(np.max(bars, initial=0.0))
        pairs = list(itertools.pairwise(self.cuts))
        least = 0.0 if self.kinked else worst / 2  # what hides may hide anywhere
        halves = [(a + b) / 2 for (a, b), bar in zip(pairs, bars, strict=True) if bar >= least]
        self.cuts = sorted([*self.cuts, *(halves or [(a + b) / 2 for a, b in pairs])])

    @property
    def _panels(self) -> tuple[Float, Float, Float]:
        """Per panel: ∫⟨g, Δ⟩, ∫Σ|g·Δ|, and the error bar of the first one."""
        ends = np.array(self.cuts)
        lengths = np.diff(ends)[:, None]
        places = ends[:-1, None] + lengths * np.arange(5) / 4
        found = np.array([[self._slope(float(s)) for s in nodes] for nodes in places])
        slopes, sizes = found[..., 0], found[..., 1]
        boole, simpson = ((lengths * slopes) @ weights for weights in (BOOLE, SIMPSON))
        bars = QUADRATURE_FACTOR * np.abs(boole - simpson)
        if self.kinked:  # two jumps between the same nodes are not seen: as large as those seen
            gap = float(np.max(lengths)) / 4
            bars[0] += HIDDEN_JUMPS * gap * float(np.max(np.abs(np.diff(slopes, axis=1))))
        return boole, (lengths * sizes) @ BOOLE, bars

    def _slope(self, s: float) -> tuple[float, float]:
        """⟨g, Δ⟩ and Σ|g·Δ| at one point."""
        if s not in self.known:
            gradients = self.gradients(s)
            parts = [_to_float64(gradients[n]) * d for n, d in self.change.items()]
            signed = float(sum(p.sum() for p in parts))
            self.known[s] = signed, float(sum(np.abs(p).sum() for p in parts))
        return self.known[s]


def _to_float64(values: Array) -> Float:
    return values.astype(np.float64)
