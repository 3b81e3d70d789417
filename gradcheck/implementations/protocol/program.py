"""A program in any language, asked over GRADCHECK/1: `--impl FILE.toml` with [subprocess]."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gradcheck.errors import LoadError, Unsupported
from gradcheck.implementations.bound import Bound, OperatorsOnly
from gradcheck.implementations.manifest.operation import Program
from gradcheck.implementations.processes.crash_or_hang import (
    Budget,
    WorkerError,
    because,
    variant_of,
)
from gradcheck.implementations.processes.fresh_process import FreshProcess, changed
from gradcheck.implementations.protocol.message import (
    ASKS,
    Block,
    Form,
    Offer,
    Request,
    Violation,
    as_json,
    tame,
)
from gradcheck.implementations.protocol.session import Failed, Oneshot, Session
from gradcheck.implementations.returned import Broken, broken
from gradcheck.implementations.user_functions import taken
from gradcheck.numerics.arithmetic import F64
from gradcheck.numerics.arrays import Attrs, as_tuple, dtype_named, is_float
from gradcheck.results.finding import Finding
from gradcheck.results.verdict import Verdict
from gradcheck.spec.suite import Case

Array = NDArray[Any]


class Process(OperatorsOnly):
    """A program, started when it is first asked and again after it ended.

    Raises:
        LoadError: it does not start, or does not say what it offers.
    """

    def __init__(self, name: str, program: Program) -> None:
        """Start it and read what it offers; `name` is what `--impl` calls it."""
        self.name = name
        self._program = program
        self._budget = Budget()
        self._silent: dict[str, bool] = {}  # operator → whether a oneshot program lacks forward
        self.session: Session | Oneshot
        if program.level == "oneshot":
            self.session = Oneshot(program)
            self.ops: dict[str, Offer] | None = None
        else:
            self.session = Session(program)
            self.ops = self.session.hello.ops
        self._fresh_process = FreshProcess(lambda: Session(program))

    @property
    def version(self) -> str:
        """The name and version that the program gives, else those of the manifest."""
        told = f"{self._program.name} {self._program.version}"
        if isinstance(self.session, Session):
            about = self.session.hello.implementation
            told = f"{about.name} {about.version or self._program.version}"
        return told.strip()

    def bind(self, case: Case, dtype: str) -> Bound | None:
        """The program's VJP, and forward if it has one; None: it does not name the operator.

        Raises:
            Unsupported: it lacks the dtype, or has fixed an attribute at another value.
            Broken: it has crashed or hung too often in this operator.
        """
        op = case.spec.name
        why = self._budget.exhausted(variant_of(op, case.dialect.name))
        if why is not None:
            raise broken("vjp", why, Verdict.NOTRUN)
        offer = self._offer(op)
        if offer is None:
            return None
        if "vjp" not in offer.asks:
            raise Unsupported(
                f"it offers no vjp of {op}, only {tame(', '.join(offer.asks)) or 'nothing'}"
            )
        if dtype not in offer.dtypes:
            dtypes = tame(", ".join(offer.dtypes)) or "no dtype"
            raise Unsupported(f"it offers {op} in {dtypes} alone")
        attrs = taken(offer.attrs, "it", case.attrs, case.spec.defaults)

        def vjp(ct: Any, *primals: Array, **attrs: Any) -> tuple[Array | None, ...]:
            return self._vjp(case, dtype, as_tuple(ct), primals, attrs)

        def forward(*primals: Array, **attrs: Any) -> Any:
            return self._forward(case, dtype, primals, attrs)

        has_forward = "forward" in offer.asks and not self._mute(case, dtype, attrs)
        return Bound(
            vjp=vjp,
            forward=forward if has_forward else None,
            attrs=attrs,
            printed=self.session.printed,
        )

    def close(self) -> None:
        self._fresh_process.close()
        self.session.close()

    def _offer(self, op: str) -> Offer | None:
        if self.ops is not None:
            return self.ops.get(op)
        return Offer(asks=ASKS, dtypes=("float64", "float32", "float16", "bfloat16"))

    def _mute(self, case: Case, dtype: str, attrs: Attrs) -> bool:
        """Whether the program lacks this forward, which level `oneshot` says only when asked."""
        op = case.spec.name
        if self.ops is not None:
            return False
        if op not in self._silent:
            kind = dtype_named(dtype)
            primals = [p.astype(kind) if is_float(p.dtype) else p for p in case.primals]
            self._silent[op] = False
            try:
                self._forward(case, dtype, primals, attrs)
            except Unsupported:
                self._silent[op] = True
            except Broken:
                pass  # the judge will see it, too
        return self._silent[op]

    def _vjp(
        self, case: Case, dtype: str, ct: Sequence[Array], primals: Sequence[Array], attrs: Attrs
    ) -> tuple[Array | None, ...]:
        request = vjp_request(case, dtype, ct, primals, attrs)
        found = self._ask(request, case)
        return tuple(found.get(name) for name in case.primal_names)

    def _forward(
        self, case: Case, dtype: str, primals: Sequence[Array], attrs: Attrs
    ) -> Array | tuple[Array, ...]:
        request = forward_request(case, dtype, primals, attrs)
        wanted, found = request.wanted, self._ask(request, case)
        for form in wanted:
            if form.name not in found:
                raise broken("forward", f"protocol: {form} is not in the answer")
        outputs = tuple(found[form.name] for form in wanted)
        return outputs[0] if len(outputs) == 1 else outputs

    def _ask(self, request: Request, case: Case) -> dict[str, Array]:
        """The arrays of the answer, by name: views of what arrived.

        Raises:
            Unsupported: the program says that it lacks this.
            Broken: it failed, broke the protocol, ended or is late.
        """
        ask = request.ask
        self._fresh_process.runs(request.op)
        try:
            found = self.session.run(request)
        except Unsupported:
            self._confirm(request)
            raise
        except Failed as error:
            printed = f"{error.trace}\n{self.session.printed()}" if error.trace else ""
            reason = f"the program answered with an error: {error}"
            raise _broken(ask, Verdict.ERROR, reason, printed) from None
        except (Violation, LoadError) as error:
            raise broken(ask, str(error)) from None
        except WorkerError as error:
            ending = error.ending
            self._budget.spend(variant_of(request.op, case.dialect.name), ending.verdict)
            raise _broken(ask, ending.verdict, because(ending), ending.printed) from None
        return {name: array_of(block) for name, block in found.items()}

    def _confirm(self, request: Request) -> None:
        """Refuse that a request is not supported, where that may be another operator's doing.

        Raises:
            Broken: a program that has answered for no other operator supports it.
        """
        others = self._fresh_process.others(request.op)
        if not others or isinstance(self.session, Oneshot):  # whose every answer is a new process's
            return
        try:
            self._fresh_process.calls(request.op).run(request)
        except Unsupported:
            return
        except (Failed, Violation, LoadError, WorkerError):
            pass  # it fails, and does not lack it
        self.session.close()  # the next request starts it anew
        self._fresh_process.renewed()
        raise broken(request.ask, changed(request.op, others))


def vjp_request(
    case: Case, dtype: str, ct: Sequence[Array], primals: Sequence[Array], attrs: Attrs
) -> Request:
    """A request for the gradients at `primals` under the cotangents `ct`."""
    named = list(zip(case.primal_names, primals, strict=True))
    blocks = [_block("input", name, primal) for name, primal in named]
    blocks += [_block("cotangent", str(i), part) for i, part in enumerate(ct)]
    wanted = [
        Form(role="gradient", name=name, dtype=primal.dtype.name, shape=primal.shape)
        for name, primal in named
        if is_float(primal.dtype)
    ]
    return _request(case, "vjp", dtype, attrs, blocks, wanted)


def forward_request(case: Case, dtype: str, primals: Sequence[Array], attrs: Attrs) -> Request:
    """A request for the operator's outputs at `primals`."""
    named = zip(case.primal_names, primals, strict=True)
    blocks = [_block("input", name, primal) for name, primal in named]
    wanted = [
        Form(role="output", name=str(i), dtype=dtype, shape=shape)
        for i, shape in enumerate(_shapes(case, primals, attrs))
    ]
    return _request(case, "forward", dtype, attrs, blocks, wanted)


def _request(
    case: Case,
    ask: str,
    dtype: str,
    attrs: Attrs,
    blocks: Sequence[Block],
    wanted: Sequence[Form],
) -> Request:
    return Request(
        op=case.spec.name,
        ask=ask,
        dtype=dtype,
        attrs={name: as_json(value) for name, value in attrs.items()},
        blocks=tuple(blocks),
        wanted=tuple(wanted),
    )


def _shapes(case: Case, primals: Sequence[Array], attrs: Attrs) -> list[tuple[int, ...]]:
    wide = [p.astype(np.float64) if is_float(p.dtype) else p for p in primals]
    with np.errstate(all="ignore"):
        outputs = case.spec.forward(F64, *wide, **{**case.attrs, **attrs})
    return [np.shape(output) for output in as_tuple(outputs)]


def _block(role: str, name: str, array: Array) -> Block:
    """An array as bytes; no copy where it is contiguous."""
    flat = np.ascontiguousarray(array).reshape(-1)
    form = Form(role=role, name=name, dtype=array.dtype.name, shape=array.shape)
    return Block(form, flat.view(np.uint8).data if flat.size else b"")


def array_of(block: Block) -> Array:
    """Bytes as an array; no copy."""
    kind = dtype_named(block.form.dtype)
    if not memoryview(block.data).nbytes:
        return np.empty(block.form.shape, kind)
    return np.frombuffer(block.data, dtype=kind).reshape(block.form.shape)


def _broken(name: str, verdict: Verdict, reason: str, printed: str) -> Broken:
    return Broken(Finding(name=name, verdict=verdict, reason=reason, printed=printed))
