"""The verdicts of `check` on all pairs and on planted errors, each within a time limit."""

from __future__ import annotations

import json
import signal
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np

from gradcheck import check
from gradcheck.errors import UsageError

from .corpus import corpus
from .pair import Pair
from .planted import planted


@dataclass(frozen=True, kw_only=True)
class Asked:
    """The selection to judge; `modes` are the values of `full`."""

    kinds: tuple[str, ...] = ()
    names: tuple[str, ...] = ()
    dtypes: tuple[str, ...] = ("float64", "float32")
    seeds: int = 1
    modes: tuple[bool, ...] = (False, True)
    right: bool = True
    wrong: bool = True
    places: int = 20
    limit: float = 20.0

    def wants(self, pair: Pair) -> bool:
        """Whether a pair is among them."""
        named = not self.names or any(part in pair.name for part in self.names)
        return named and (not self.kinds or pair.kind in self.kinds)


@dataclass(frozen=True, kw_only=True)
class Judged:
    """The verdict on one VJP; `error` names the planted error, empty for the right one."""

    kind: str
    name: str
    dtype: str
    full: bool
    seed: int
    error: str
    verdict: str
    reason: str
    seconds: float


class Late(BaseException):
    """A check took longer than its limit."""


@contextmanager
def limited(seconds: float) -> Iterator[None]:
    """Raise `Late` in what takes longer, again and again until it ends."""

    def late(*_: object) -> None:
        raise Late

    before = signal.signal(signal.SIGALRM, late)
    signal.setitimer(signal.ITIMER_REAL, seconds, 0.5)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def said(
    forward: Callable[..., Any],
    vjp: Callable[..., Any],
    primals: tuple[Any, ...],
    limit: float,
    **known: Any,
) -> tuple[str, str, float]:
    """Verdict, reason and seconds of one check."""
    start, reason = time.perf_counter(), ""
    try:
        with limited(limit), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            found = check(forward, vjp, *primals, explain=False, **known)
        verdict = found.verdict.name
        which = next((f for f in found.findings if f.verdict is found.verdict), None)
        reason = "" if which is None or found.ok else f"{which.name}: {which.reason}"
        if which is not None and which.worst and not found.ok:
            w = which.worst[0]
            reason += (
                f"; {list(w.index)} got {w.got:.6g} want {w.want:.6g}"
                f" ± {w.error_bar:.1g} (bound {w.bound:.1g}, {w.cotangent})"
            )
    except Late:
        verdict = "TIMEOUT"
    except UsageError as error:
        verdict, reason = "REFUSED", str(error)
    except Exception as error:  # noqa: BLE001 - a fault of gradcheck's own, and counted as one
        verdict, reason = "RAISED", f"{type(error).__name__}: {error}"
    seconds = time.perf_counter() - start
    if seconds > limit:  # `check` may have taken `Late` for an exception of the code judged
        verdict, reason = "TIMEOUT", f"more than {limit:g} s"
    return verdict, " ".join(reason.split()), seconds


def judge(pair: Pair, asked: Asked) -> list[Judged]:
    """All that is asked of one pair."""
    found = []
    for dtype in asked.dtypes:
        if dtype not in pair.dtypes:
            continue
        primals = pair.cast(dtype)
        with np.errstate(all="ignore"):
            vjps = [("", pair.vjp)] if asked.right else []
            if asked.wrong:
                vjps += [(p.name, p.vjp) for p in planted(pair, primals, dtype, asked.places)]
        for error, vjp in vjps:
            # A wrong one that a projection does not pass is judged in full: once is enough.
            for full in asked.modes[:1] if error else asked.modes:
                for seed in range(asked.seeds if not error else 1):
                    verdict, reason, seconds = said(
                        pair.forward,
                        vjp,
                        primals,
                        asked.limit,
                        seed=seed,
                        attrs=pair.attrs,
                        full=full,
                    )
                    found.append(Judged(
                        kind=pair.kind, name=pair.name, dtype=dtype, full=full, seed=seed,
                        error=error, verdict=verdict, reason=reason, seconds=seconds,
                    ))  # fmt: skip
                    if verdict == "REFUSED":
                        break
    return found


def _by_name(name: str, asked: Asked) -> list[Judged]:
    return judge(corpus()[name], asked)


def judge_all(asked: Asked, jobs: int = 1, log: Path | None = None) -> list[Judged]:
    """Every pair that is wanted; progress on stderr. Pairs that a `log` holds are not judged again.

    It must be one of the same code and the same question.
    """
    names = [name for name, pair in corpus().items() if asked.wants(pair)]
    lines = log.read_text().splitlines() if log and log.exists() else []
    found = [Judged(**json.loads(line)) for line in lines]
    known = {f"{j.kind}/{j.name}" for j in found}
    names = [name for name in names if name not in known]

    def told(name: str, some: list[Judged]) -> None:
        found.extend(some)
        if log:
            with log.open("a") as file:
                file.writelines(json.dumps(asdict(j)) + "\n" for j in some)
        wrong = [j for j in some if not j.error and j.verdict != "PASS"]
        missed = [j for j in some if j.error and j.verdict == "PASS"]
        for j in (*wrong, *missed):
            mode = "full" if j.full else "projection"
            sys.stderr.write(
                f"{j.verdict} {name} {j.dtype} {mode} {j.seed} {j.error or 'right'}: {j.reason}\n"
            )

    if jobs == 1:
        for name in names:
            told(name, _by_name(name, asked))
        return found
    with ProcessPoolExecutor(jobs, mp_context=get_context("spawn")) as pool:
        for name, some in zip(names, pool.map(_by_name, names, [asked] * len(names)), strict=True):
            told(name, some)
    return found
