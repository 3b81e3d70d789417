"""Checks of a program of level `frames` or `jsonl`: valid, invalid and broken messages.

The form of its answers is checked. Wrong numbers are noted, and do not count as faults.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from itertools import islice
from typing import Any, Final

import numpy as np

from gradcheck.cli.conformance.broken import Last, Target, lasts, wrong_with
from gradcheck.cli.conformance.check import Check, Fault, Outcome, Remark, judge_first, tried
from gradcheck.errors import LoadError, SpecError, Unsupported
from gradcheck.implementations.manifest.operation import Program
from gradcheck.implementations.protocol.levels import encoded
from gradcheck.implementations.protocol.message import (
    ASKS,
    ITEMSIZE,
    Failure,
    Hello,
    Lacking,
    Pong,
    Raw,
    Request,
    Result,
    Violation,
    check_seq,
    parse,
    shown,
)
from gradcheck.implementations.protocol.program import Process, vjp_request
from gradcheck.implementations.protocol.session import Failed, Session
from gradcheck.implementations.returned import Broken
from gradcheck.judge.operator import CaseTruth
from gradcheck.numerics.arrays import dtype_named, is_float
from gradcheck.spec.dtype_selection import DTYPES, LOW
from gradcheck.spec.operator import Sample
from gradcheck.spec.suite import Case, Suite

BLOCK_BYTES: Final = 1 << 24
"""Bytes of one block: more than any pipe holds."""
MAX_LISTED_OPS: Final = 1000
"""Operators of a `hello` that are listed."""
MAX_MISTAKES: Final = 8
"""Mistakes of a `hello` that are listed."""
SEQS: Final = (7, -1, 2**53, 0.5, 'a "b" \\ é 漢', "", None, True, [1, [2, {"k": []}]], {"k": "v"})
"""Values of `seq` that must come back as they were."""


def checks(program: Program, suite: Suite, globs: Sequence[str] = ()) -> Iterator[Check]:
    """Try a program of level `frames` or `jsonl`, one check after the other.

    `globs` select operators; none: all that it offers.

    Raises:
        UnknownNameError: a glob matches nothing.
        LoadError: it does not start, or speaks another version.
    """
    names = {spec.name for spec in suite.select(globs)}
    try:
        process = Process(program.name, program)
    except LoadError as error:
        if not isinstance(error.__cause__, (Violation, Failed)):
            raise
        yield Check(name="`hello`", outcome=Outcome.FAIL, says=str(error.__cause__))
        return
    assert isinstance(process.session, Session)
    try:
        yield from _Probe(process, process.session, suite, names).checks()
    finally:
        process.close()


class _Probe:
    """The checks of one program, after its `hello`."""

    def __init__(
        self, process: Process, session: Session, suite: Suite, names: Collection[str]
    ) -> None:
        self.process, self.session, self.suite = process, session, suite
        self.level = session.program.level
        self.hello: Hello = session.hello
        self.known = [op for op in self.hello.ops if op in names]

    def checks(self) -> Iterator[Check]:
        about = self.hello.implementation
        ops = ", ".join(shown(op, bare=True) for op in islice(self.hello.ops, MAX_LISTED_OPS))
        ops += f", and {more} more" if (more := len(self.hello.ops) - MAX_LISTED_OPS) > 0 else ""
        says = " ".join(filter(None, (about.name, about.version, about.language)))
        yield Check(
            name="`hello`", outcome=Outcome.OK, says=f"{shown(says, bare=True)}; {ops or 'nothing'}"
        )
        yield tried("operators, dtypes and attributes are the suite's", self._offers)
        yield tried("`ping`, with any `seq`", self._pings)
        yield tried("`reset`", self.session.reset)
        for op in self.known:
            for dtype in self.hello.ops[op].dtypes:
                if dtype in (*DTYPES, *LOW):
                    yield tried(f"{op} in {dtype}", partial(self._judge, op, dtype))
        yield tried("empty arrays", partial(self._special, _empty))
        yield tried("arrays of no dimension", partial(self._special, _scalar))
        for name, header, answers in self._odd():
            yield tried(name, partial(self._answered, header, answers))
        yield tried("an attribute that it does not know", self._attribute)
        yield tried(f"a block of {BLOCK_BYTES >> 20} MB", self._big)
        yield tried("two requests at once", self._pipelined)
        for last in lasts(self.level, self._target()):
            yield tried(last.name, partial(self._last, last))
        yield tried("nothing on standard output but answers", self._quiet)

    # ── its operators ───────────────────────────────────────────────────────────────────────

    def _offers(self) -> None:
        wrong = (line for op in self.hello.ops for line in self._misspelt(op))
        mistakes = [*islice(wrong, MAX_MISTAKES)]  # to find a nearest name takes long
        if mistakes:
            raise Fault("; ".join(mistakes))
        if not self.hello.ops:
            raise Remark("it offers no operator")

    def _misspelt(self, op: str) -> Iterator[str]:
        spec, offer = self.suite.operators.get(op), self.hello.ops[op]
        if spec is None:
            yield f"the suite has no operator {shown(op)}{_nearest(op, self.suite.operators)}"
            return
        kinds: Mapping[str, tuple[Sequence[str], Sequence[str]]] = {
            "ask": (offer.asks, ASKS),
            "dtype": (offer.dtypes, (*DTYPES, *LOW)),
            "attribute": (offer.attrs or (), tuple(spec.defaults)),
        }
        for kind, (names, known) in kinds.items():
            for name in names:
                if name not in known:
                    yield f"{op} has no {kind} {shown(name)}{_nearest(name, known)}"
        if "vjp" not in offer.asks:
            yield f"{op} has no vjp: there is nothing to judge"

    def _target(self) -> Target:
        for op in self.known:
            dtypes = [d for d in self.hello.ops[op].dtypes if d in ITEMSIZE]
            if dtypes:
                primal = self.suite.operators[op].primals[0]
                asks = self.hello.ops[op].asks
                ask = "forward" if "forward" in asks else "vjp"
                return Target(op=op, primal=primal, dtype=dtypes[0], ask=ask)
        return Target()

    # ── operators ────────────────────────────────────────────────────────────────────────────

    def _judge(self, op: str, dtype: str) -> None:
        judge_first(self.process, self.suite.cases([op]), dtype)

    def _special(self, make: Callable[[Case], Case | None]) -> None:
        """Ask for a special case of each operator that has one."""
        remarks, asked = [], 0
        for op in self.known:
            dtype = next((d for d in self.hello.ops[op].dtypes if d in DTYPES), "")
            cases = [c for case in self.suite.cases([op]) if (c := make(case)) is not None]
            if not (dtype and cases):
                continue
            asked += 1
            try:
                judge_first(self.process, cases, dtype)
            except Remark as remark:
                remarks.append(f"{op}: {remark}")
            except Fault as fault:
                raise Fault(f"{op}: {fault}") from None
        if not asked:
            raise Remark("none of its operators takes them")
        if remarks:
            raise Remark("; ".join(remarks))

    # ── messages ─────────────────────────────────────────────────────────────────────────────

    def _pings(self) -> None:
        for seq in SEQS:
            header, _ = self.session.exchange({"kind": "ping", "seq": seq}, (), 0)
            check_seq(parse(header, Pong).seq, seq)

    def _odd(self) -> Iterator[tuple[str, dict[str, Any], tuple[type[Any], ...]]]:
        """Well-formed requests for unknown things, and the answers allowed."""
        run = {**self._target().run(), "blocks": [], "seq": "odd"}
        refused = (Lacking, Failure)
        yield "a key that it does not know", {"kind": "ping", "seq": "odd", "mood": "good"}, (Pong,)
        yield "a kind that it does not know", {"kind": "gradcheck", "seq": "odd"}, (Failure,)
        yield "an operator that it does not know", {**run, "op": "gradcheck"}, refused
        yield "an ask that it does not know", {**run, "ask": "gradcheck"}, refused
        yield "a dtype that it does not know", {**run, "dtype": "float8"}, refused
        yield "a request without its arrays", run, refused

    def _answered(
        self, header: dict[str, Any], answers: tuple[type[Any], ...], blocks: Sequence[Raw] = ()
    ) -> None:
        """Send a request; expect one of `answers`, and that the program goes on."""
        size = sum(memoryview(block).nbytes for block in blocks)
        received, _ = self.session.exchange(header, blocks, size)
        answer: Any = parse(received, *answers)
        check_seq(answer.seq, header["seq"])
        self.session.ping()

    def _attribute(self) -> None:
        """Send a request with an unknown attribute."""
        request = next(self._requests(), None)
        if request is None:
            raise Remark("none of its operators is known")
        header = request.header("odd")
        header["attrs"]["gradcheck"] = 1
        blocks = [block.data for block in request.blocks]
        self._answered(header, (Result, Lacking, Failure), blocks)

    def _requests(self) -> Iterator[Request]:
        """A request of a run per operator."""
        for op in self.known:
            for case in self.suite.cases([op])[:1]:
                dtype = next((d for d in self.hello.ops[op].dtypes if d in DTYPES), DTYPES[0])
                with suppress(Unsupported, SpecError, Broken):
                    bound, truth = self.process.bind(case, dtype), CaseTruth(case)
                    assert bound is not None
                    (ct, *_), kind = truth.cotangents.typed(dtype), dtype_named(dtype)
                    primals = [p.astype(kind) if is_float(p.dtype) else p for p in case.primals]
                    yield vjp_request(case, dtype, ct, primals, bound.attrs)

    def _big(self) -> None:
        form = {"role": "input", "name": "x", "dtype": "float64", "shape": [BLOCK_BYTES // 8]}
        header = {**self._target().run(), "op": "gradcheck", "blocks": [form]}
        self._answered(header, (Lacking, Failure), [bytes(BLOCK_BYTES)])

    def _pipelined(self) -> None:
        seqs = ("first", "second", "third")
        data = [encoded(self.level, {"kind": "ping", "seq": seq}) for seq in seqs]
        for seq, (header, _) in zip(seqs, self.session.several(b"".join(data), 3), strict=True):
            check_seq(parse(header, Pong).seq, seq)

    def _last(self, last: Last) -> None:
        code, said = self.session.last(last.data, close=last.close)
        wrong = wrong_with(last, self.level, code, said)
        if wrong:
            raise Fault(wrong)

    def _quiet(self) -> None:
        if self.session.strayed:
            raise Fault(f"it printed: {shown(self.session.strayed)}; print on standard error")


def _empty(case: Case) -> Case | None:
    return case if any(p.size == 0 for p in case.primals) else None


def _scalar(case: Case) -> Case | None:
    """The case at one element of each primal, if the operator is elementwise."""
    if any(case.spec.core_ranks) or any(p.size == 0 for p in case.primals):
        return case if any(p.ndim == 0 for p in case.primals) else None
    points = tuple(np.array(p.reshape(-1)[0]) for p in case.primals)
    whole = iter(points)
    names = set(case.primal_names)
    # A sample draws every primal, also those that the dialect lacks.
    drawn = tuple(next(whole) if n in names else np.zeros(()) for n in case.spec.primals)
    sample = Sample(name="no-dimension", primals=lambda _: drawn, hunts="a rank of zero")
    attrs = {**case.sample.attrs}
    return Case(case.spec, case.dialect, sample, case.seed, case.suite) if not attrs else None


def _nearest(name: str, known: Iterable[str]) -> str:
    near = difflib.get_close_matches(name[:100], list(known), n=1, cutoff=0.5)
    return f"; did you mean {near[0]!r}?" if near else ""
