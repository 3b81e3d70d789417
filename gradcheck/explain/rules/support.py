"""Support: which elements of the cotangent reach which of the gradient, and which should."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np

from gradcheck.contract.returned import Broken
from gradcheck.explain.probe import RAISES, Float, Mask, Probe
from gradcheck.explain.rules.contributions import jacobian
from gradcheck.explain.suspicion import Scene, Suspicion

MOST: Final = 40
"""Elements of the cotangent up to which code is asked for each alone."""
PROBES: Final = 2
"""Failing probes that must agree."""
TELLING: Final = 3
"""Pairs that must differ over all of them."""
SAME: Final = 1e-9
"""Distance, relative to the largest, within which two derivatives are one number."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Support:
    """Two Jacobians, by elements of the cotangent and of the gradient: the code's and the right."""

    code: Float
    right: Float

    @property
    def lost(self) -> Mask:
        """Pairs that the code leaves out."""
        return np.asarray((self.right != 0) & (self.code == 0))

    @property
    def extra(self) -> Mask:
        """Pairs that should not be there."""
        return np.asarray((self.right == 0) & (self.code != 0))

    @property
    def copies(self) -> bool:
        """Whether both only copy elements and add them up."""
        return all(bool(np.isin(j, (0.0, 1.0)).all()) for j in (self.code, self.right))

    @property
    def rearranges(self) -> bool:
        """Whether both put each element in one place, and one in each place."""
        return all(
            bool((np.count_nonzero(j, axis=k) == 1).all())
            for j in (self.code, self.right)
            for k in (0, 1)
        )


def support(scene: Scene) -> Iterator[Suspicion]:
    """The same derivatives for other pairs of elements."""
    name = scene.output
    asked = [(p, found) for p in scene.failing if (found := _support(p, name)) is not None]
    if len(asked) < PROBES:
        return
    every = [found for _, found in asked]
    if sum(int((s.lost | s.extra).sum()) for s in every) < TELLING:
        return
    by_value = any(_by_value(probe, name) for probe, _ in asked)
    first = every[0]
    for label, says, holds in BY_VALUE if by_value else BY_PLACE:
        if all(holds(s) for s in every):
            yield Suspicion(
                label=label,
                says=f"{scene.gradient} {says}",
                fits=lambda probe: True,  # every probe that can tell was asked above
                evidence=(
                    f"of {int((first.right != 0).sum())} pairs of elements of the cotangent and "
                    f"the gradient {int(first.lost.sum())} are lost, and "
                    f"{int(first.extra.sum())} should not be there, at {asked[0][0].where}",
                ),
            )


def _by_value(probe: Probe, name: str) -> bool:
    """Whether which elements belong together depends on values, not on places alone."""
    others = {
        other: -np.flip(value).reshape(value.shape)
        for other, value in zip(probe.names, probe.primals, strict=True)
        if value.dtype.kind == "f"
    }
    found = probe.vjp(primals=others)
    return found is None or name not in found or not np.allclose(found[name], probe.right[name])


def _moved(s: Support) -> bool:
    """Each element of the cotangent counts as often as it should, but elsewhere."""
    return s.copies and bool(
        np.array_equal(np.count_nonzero(s.code, axis=1), np.count_nonzero(s.right, axis=1))
    )


def _permuted(s: Support) -> bool:
    """The derivatives of each element of the cotangent are the right ones, in other places."""
    return any(
        bool(np.allclose(np.sort(s.code, axis=k), np.sort(s.right, axis=k), rtol=SAME))
        for k in (0, 1)
    )


Reading = tuple[str, str, Callable[[Support], bool]]

ELSEWHERE: Final = "puts elements of the cotangent in other places than they belong to"
BY_PLACE: Final[tuple[Reading, ...]] = (
    ("L", "puts the cotangent's elements in another order than they came from",
     lambda s: s.copies and s.rearranges),
    ("I", "lets elements of the cotangent pass where they should be held back",
     lambda s: s.copies and not s.lost.any()),
    ("I", "loses elements of the cotangent that should pass",
     lambda s: s.copies and not s.extra.any() and not _shared(s)),
    ("I", ELSEWHERE, lambda s: s.copies and bool(s.extra.any())),
    ("I", "gives each contribution to another element than it belongs to", _permuted),
)  # fmt: skip
"""Class, words and test where places alone decide which elements belong together."""
BY_VALUE: Final[tuple[Reading, ...]] = (("I", ELSEWHERE, _moved),)
"""The same where values do: which of them are chosen is not a matter of places."""


def _shared(s: Support) -> bool:
    """Whether an element that lost a contribution kept another."""
    lost = s.lost.any(axis=0)
    return bool((np.count_nonzero(s.code, axis=0)[lost] > 0).any())


def _support(probe: Probe, name: str) -> Support | None:
    """The two Jacobians; None where they cannot be had, or the code's is not linear."""
    key = ("support", name)
    if key not in probe.memo:
        probe.memo[key] = _asked(probe, name)
    found: Support | None = probe.memo[key]
    return found


def _asked(probe: Probe, name: str) -> Support | None:
    if len(probe.ct) != 1 or not 1 < probe.ct[0].size <= MOST or name not in probe.got:
        return None
    right = jacobian(probe, name)
    if right is None:
        return None
    rows = []
    for e in range(probe.ct[0].size):
        one = np.zeros(probe.ct[0].size)
        one[e] = 1.0
        try:
            rows.append(probe.ask((one.reshape(probe.ct[0].shape),))[name].ravel())
        except (Broken, *RAISES):
            return None
    code = np.stack(rows)
    linear = probe.ct[0].ravel() @ code
    bound = SAME * max(float(np.max(np.abs(linear), initial=0.0)), 1e-300)
    if not np.all(np.abs(linear - probe.got[name].ravel()) <= bound):
        return None
    return Support(code=code, right=right.reshape(code.shape))
