"""What the judgement says of one gradient output."""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from gradcheck.results.verdict import Verdict
from gradcheck.spec.defect import LABELS

GLYPHS: Final = frozenset(".0123456789!?")
"""What a cell of a heat map may be."""


class Part(StrEnum):
    """What a finding is about."""

    GRADIENT = "gradient"
    """The gradient of a primal or of a parameter; of an operator, also forward's value."""
    VALUE = "value"
    """A model's loss."""
    STAGE = "stage"
    """One stage's VJP at the reference's cotangent."""
    UPDATE = "update"
    """What an update rule leaves behind: a parameter, or its own state."""
    TRAINING = "training"
    """How a model's loss falls."""
    CONTRACT = "contract"
    """A property that a backward owes beyond its numbers; the finding's name says which."""


COMPUTED_IN: Final = "computed in "
"""What the cause of a diagnosis begins with where a narrow type is to blame."""
COMPARING_PROPERTIES: Final = (
    *("linear", "zero", "scaling", "sizes", "attributes", "layouts", "subsets"),
)
"""Properties of the contract that compare several gradients: a wrong gradient may break them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Miss:
    """One element that was compared; numbers are in units of the gradient, `ulp` in its ulp.

    `error` is |got − want|, `bound` what was allowed, `error_bar` how uncertain `want` is;
    `ulp` is the error in units of the last place of `want` (None where want is 0).
    `cotangent` names the cotangent under which it was seen; `tensor` the gradient that the element
    belongs to, where the finding's name does not say it (a stage has several).
    """

    index: tuple[int, ...]
    got: float
    want: float
    error: float
    bound: float
    error_bar: float
    ulp: float | None
    cotangent: str
    tensor: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Certificate:
    """Which impostors the check of one gradient rejects, and to which it is blind.

    `tolerated` are roundings to a narrower type whose error lies within what the dtype is allowed,
    each with the number of bits at which it would show. An impostor that equals the truth at the
    sample is in none of them.
    """

    rejected: tuple[str, ...]
    blind: tuple[str, ...]
    tolerated: tuple[str, ...] = ()

    @property
    def proves(self) -> bool:
        """Whether any wrong number is rejected: NaN always is, and proves nothing."""
        return any(name != "nan" for name in self.rejected)

    @property
    def tried(self) -> int:
        """How many differ from the truth at the sample."""
        return len(self.rejected) + len(self.blind)


@dataclass(frozen=True, slots=True, kw_only=True)
class Taylor:
    """The remainder of a gradient g along one direction d: what is left of forward's change.

    r(h) = φ(h) − φ(−h) − 2h⟨g, d⟩ at each of `steps` h (in units of d, each half of the last);
    `remainders` are r(h)/2h = intercept + a·h² + b·h⁴ + …, which `noise`/h (one standard deviation)
    blurs. `intercept` ± `error_bar`, fitted, is what is missing from ⟨g, d⟩ (`product`), in the
    same units; the bar is infinite where no steps agree. `slopes` are log₂(|r(h)|/|r(h/2)|) between
    neighbours: 3 where the gradient is right, 1 where it is wrong, about 0 where all is noise; nan
    where a remainder is zero. `linear` says that all remainders are noise: φ has no third order
    that could be seen. Source: Taylor's theorem.
    """

    steps: tuple[float, ...]
    remainders: tuple[float, ...]
    slopes: tuple[float, ...]
    intercept: float
    error_bar: float
    linear: bool
    product: float
    noise: float

    def __post_init__(self) -> None:
        """Raise ValueError where it is no curve: a report that is read back may hold anything."""
        if not len(self.steps) == len(self.remainders) == len(self.slopes) + 1:
            raise ValueError("a Taylor curve has a remainder per step, and a slope between two")

    @property
    def share(self) -> float:
        """What is missing from ⟨g, d⟩, as a part of it; infinite where that means nothing."""
        share = abs(self.intercept / self.product) if self.product else math.inf
        return share if math.isfinite(share) and math.isfinite(self.error_bar) else math.inf


@dataclass(frozen=True, slots=True, kw_only=True)
class VCurve:
    """The central difference at one element, step by step: why there is a best step.

    For the element `index` of the gradient of `tensor` under `cotangent`, forward in float64: at
    each of `steps` (in units of the primal, longest first) the difference is `errors` away from
    the true derivative `want`, which is known to within `error_bar`; nan where forward refuses the
    step, or x ± h is x. Rounding explains up to `bars` of it: three deviations of forward's noise
    over h, and what rounds the derivative as a whole. `off` is how far the gradient judged is away
    (nan: it is no number), `bound` how far it may be. All but `steps` are in units of the gradient.
    Truncation falls with h², rounding grows with 1/h: on logarithmic axes a V.
    """

    index: tuple[int, ...]
    tensor: str
    cotangent: str
    steps: tuple[float, ...]
    errors: tuple[float, ...]
    bars: tuple[float, ...]
    off: float
    want: float
    bound: float
    error_bar: float

    def __post_init__(self) -> None:
        """Raise ValueError where it is no curve: a report that is read back may hold anything."""
        if not len(self.steps) == len(self.errors) == len(self.bars):
            raise ValueError("a curve has as many errors and bars as steps")

    @property
    def best(self) -> int | None:
        """Where in `steps` the difference is surest; None where no two neighbours have a value.

        What a step is sure of is the error seen or expected, or the bar of `want`, whichever is
        most; and no less than at its surer neighbour: one step alone may be lucky.
        """
        sure = self._sure()
        return min(sure)[-1] if sure else None

    @property
    def floor(self) -> float:
        """The error to expect at the best step: differences tell no less; nan without one."""
        sure = self._sure()
        return min(sure)[0] if sure else math.nan

    def _sure(self) -> list[tuple[float, float, int]]:
        """Of every step but lonely ones: how sure it is, and by itself, and where it stands."""
        alone = [
            max(e, b, self.error_bar) if math.isfinite(e + b) else math.inf
            for e, b in zip(self.errors, self.bars, strict=True)
        ]
        near = [math.inf, *alone, math.inf]
        both = [(max(one, min(near[k], near[k + 2])), one, k) for k, one in enumerate(alone)]
        return [sure for sure in both if math.isfinite(sure[0])]


@dataclass(frozen=True, slots=True, kw_only=True)
class Heat:
    """Where in a gradient the error is: a character per cell of a picture of `rows` × `columns`.

    A gradient of `shape` under `cotangent` is laid out with its last axis across and all others
    down; where it is larger than the picture, a cell stands for the worst of a `block`. `cells`,
    row by row: "." within the bound, "0" to "9" for ⌊log₁₀(error/bound)⌋ cut at 9, "!" for what is
    no number, "?" for what the check could not resolve.
    """

    shape: tuple[int, ...]
    rows: int
    columns: int
    cells: str
    cotangent: str

    def __post_init__(self) -> None:
        """Raise ValueError where it is no map: a report that is read back may hold anything."""
        high, wide = self.size
        fits = 0 < self.rows <= high and 0 < self.columns <= wide
        if not fits or len(self.cells) != self.rows * self.columns:
            raise ValueError("a heat map has a cell per block of a gradient that is not empty")
        if not set(self.cells) <= GLYPHS:
            raise ValueError("a cell of a heat map is one of .0123456789!?")

    @property
    def size(self) -> tuple[int, int]:
        """Rows and columns of the whole gradient."""
        *down, across = self.shape or (1,)
        return math.prod(down), across

    @property
    def block(self) -> tuple[int, int]:
        """Rows and columns of the gradient that a cell stands for (the last ones for fewer)."""
        high, wide = self.size
        return -(-high // self.rows), -(-wide // self.columns)


@dataclass(frozen=True, slots=True, kw_only=True)
class Blame:
    """Which stages of a model may be at fault.

    `exact`: each of `stages` gave a wrong gradient for the reference's cotangent. Otherwise they
    are the suspects, in the program's order: one of them, if `assumption` holds. `bounds` names the
    gradient up to which everything behind was right, and the first wrong one. `of` counts the
    program's stages, `round` how many named stages were replaced by the reference before. `names`
    says, where it is known, what exactly is wrong.
    """

    exact: bool
    stages: tuple[str, ...]
    of: int
    assumption: str
    bounds: tuple[str, str] = ("", "")
    round: int = 1
    names: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Diagnosis:
    """Why a gradient is wrong, as far as can be told from outside.

    `label` is the code of a class of defects (see `spec.defect`), empty where no known pattern
    fits; `says` is one sentence in the user's terms, `evidence` what it rests on, one sentence
    each; `rule` names the rule that found it. `cause` is a phrase without names ("computed in
    float32") that holds for gradients of other operators with the same defect; often empty.
    """

    label: str
    says: str
    rule: str = ""
    evidence: tuple[str, ...] = ()
    cause: str = ""

    @property
    def word(self) -> str:
        """The word of its class of defects; empty where no known pattern fits.

        >>> Diagnosis(label="F", says="dw is 1/3 of the right value").word
        'scale'
        """
        return LABELS[self.label].word if self.label in LABELS else ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """The judgement of one gradient output, or of forward's value.

    `name` is the primal's name ("forward" for the value, "vjp" for the call as a whole).
    `compared` counts numbers, over all cotangents; `failed`, `unresolved` and `kinked` are
    parts of it: outside the bound, invisible to the check, judged by the slopes of a kink.
    `worst` lists the worst elements, worst first: up to 20 of a failure, one of a pass.
    `smallest_visible_error` is relative, in the blindest resolved element. `oracle` says whether
    50-digit arithmetic settled an element. `conventions` says, per declared kink with elements on
    it, whose convention the gradient follows there; `certificate` what the same comparison would
    have rejected. `evaluations` counts forward's, where there was a choice; `taylor` and `blames`
    are there for those that ask for them, and for models that fail. `printed` is an excerpt of what
    the code printed while it was judged, hostile as it may be. `slack` says why a wider bound than
    anybody else's was needed; `diagnosis` why a gradient is wrong; `source` is the file and line of
    the code judged ("src/rms.c:120"), where it is known. `curve` and `heat` are the evidence for
    the worst element and the worst cotangent, of failures and of those that ask for them.
    """

    name: str
    verdict: Verdict
    reason: str = ""
    compared: int = 0
    failed: int = 0
    unresolved: int = 0
    kinked: int = 0
    smallest_visible_error: float | None = None
    oracle: bool = False
    conventions: tuple[str, ...] = ()
    certificate: Certificate | None = None
    worst: tuple[Miss, ...] = ()
    part: Part = Part.GRADIENT
    evaluations: int = 0
    taylor: Taylor | None = None
    blames: tuple[Blame, ...] = ()
    printed: str = ""
    slack: str = ""
    diagnosis: Diagnosis | None = None
    source: str = ""
    curve: VCurve | None = None
    heat: Heat | None = None

    @property
    def guilty(self) -> bool:
        """Whether the code judged is wrong, in a way of which there can be a diagnosis."""
        return self.verdict.wrong and self.part in (Part.GRADIENT, Part.CONTRACT)

    @property
    def top(self) -> Miss | None:
        """The worst element."""
        return self.worst[0] if self.worst else None

    @property
    def times_bound(self) -> float:
        """Error of the worst element in multiples of its bound; infinite where it is no number.

        Negative where no element was compared.
        """
        if self.top is None:
            return -1.0
        if not self.top.bound > 0:  # a NaN is an error too
            return math.inf if self.top.error else 0.0
        ratio = self.top.error / self.top.bound
        return math.inf if math.isnan(ratio) else ratio

    @property
    def defect(self) -> str:
        """The word of its diagnosis's class of defects; empty where that is not known."""
        return "" if self.diagnosis is None else self.diagnosis.word

    @property
    def error(self) -> float | None:
        """|got − want| at the worst element, in units of the gradient."""
        return self.top.error if self.top else None

    @property
    def bound(self) -> float | None:
        """What was allowed there."""
        return self.top.bound if self.top else None

    @property
    def error_bar(self) -> float | None:
        """How uncertain `want` is there."""
        return self.top.error_bar if self.top else None

    @property
    def worst_index(self) -> tuple[int, ...] | None:
        """Where the worst element is."""
        return self.top.index if self.top else None

    @property
    def got(self) -> float | None:
        """The worst element of the gradient judged."""
        return self.top.got if self.top else None

    @property
    def want(self) -> float | None:
        """The true derivative there."""
        return self.top.want if self.top else None
