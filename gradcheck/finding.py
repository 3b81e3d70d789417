"""What the judgement says of one gradient output."""

from __future__ import annotations

from dataclasses import dataclass

from gradcheck.verdict import Verdict


@dataclass(frozen=True, slots=True, kw_only=True)
class Miss:
    """One element that was compared; numbers are in units of the gradient, `ulp` in its ulp.

    `error` is |got − want|, `bound` what was allowed, `error_bar` how uncertain `want` is;
    `ulp` is the error in units of the last place of `want` (None where want is 0).
    `cotangent` names the cotangent under which it was seen.
    """

    index: tuple[int, ...]
    got: float
    want: float
    error: float
    bound: float
    error_bar: float
    ulp: float | None
    cotangent: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Certificate:
    """Which impostors the check of one gradient rejects, and to which it is blind.

    One that equals the truth at the sample is in neither.
    """

    rejected: tuple[str, ...]
    blind: tuple[str, ...]

    @property
    def proves(self) -> bool:
        """Whether any wrong number is rejected: NaN always is, and proves nothing."""
        return any(name != "nan" for name in self.rejected)

    @property
    def tried(self) -> int:
        """How many differ from the truth at the sample."""
        return len(self.rejected) + len(self.blind)


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
    have rejected.
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

    @property
    def top(self) -> Miss | None:
        """The worst element."""
        return self.worst[0] if self.worst else None

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
