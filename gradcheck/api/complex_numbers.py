"""A complex check in terms of real and imaginary parts, and its findings in complex terms.

Each primal becomes a real one with one more axis: the real and the imaginary part of a complex
number, a real number alone. So a leading axis of copies lines up as before. A complex output has
the two parts, too; a real one stays. With ⟨a, b⟩ = Re Σ āb, which is the inner product of the
parts, the gradient of a primal z for the cotangent c is dL/dRe z + i·dL/dIm z, where L = ⟨c, f⟩.
That is PyTorch's convention. JAX takes c̄ for c, and returns the conjugate of that. In both, the
gradient of a real primal is real.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property, partial
from typing import Any, Final

import numpy as np

from gradcheck.api.elementwise_check import Request
from gradcheck.api.judge_function import judge_function, judge_quickly
from gradcheck.numerics.arrays import Array
from gradcheck.numerics.draw import Draw
from gradcheck.numerics.evaluate import REFUSALS
from gradcheck.numerics.highprecision.array import BigArray
from gradcheck.results.finding import Diagnosis, Finding, Heat, Miss
from gradcheck.results.verdict import Verdict

Form = tuple[tuple[int, ...], np.dtype[Any]]
Findings = tuple[Finding, ...]

OTHER: Final = {"torch": "jax", "jax": "torch"}
"""The other one of the two conventions."""
DTYPES: Final = (np.dtype(np.complex128), np.dtype(np.complex64))
PARTS: Final = ("real", "imag")
APART: Final = {"float64": 2.0**-26, "float32": 2.0**-12}
"""The part of a gradient's norm above which two conventions differ at a point."""
PLACELESS: Final = frozenset({"call", "earlier", "lost", "narrow", "scale", "attributes"})
"""Rules whose diagnoses name no place: places would be those of the parts."""
PLACES: Final = re.compile(r"\b(axis|axes|rows?|columns?|shape)\b")


def gives_complex(request: Request, primals: Sequence[Array]) -> bool:
    """Whether forward returns a complex array at real primals; False where it raises."""
    try:
        out = request.forward(*(p.copy() for p in primals), **request.attrs)
    except REFUSALS:  # the check has named that
        return False
    return any(a is not None and a.dtype in DTYPES for a in map(_array, _several(out)))


class Parts:
    """One complex check as the real one of its parts, by the convention of one system."""

    def __init__(
        self,
        request: Request,
        primals: tuple[Array, ...],
        system: str,
        conjugated: frozenset[str] = frozenset(),
    ) -> None:
        """Evaluate nothing yet; the gradients of primals `conjugated` count as their conjugates."""
        self.request, self.primals, self.system = request, primals, system
        self._conjugated = conjugated
        self._real = tuple(_parts(p) if p.dtype.kind == "c" else p[..., None] for p in primals)
        self._outputs: list[Form] = []
        self._came: dict[str, tuple[Form, Form]] = {}

    @cached_property
    def _real_request(self) -> Request:
        request = self.request
        return replace(
            request,
            forward=self._forward,
            vjp=self._vjp,
            jvp=None if request.jvp is None else self._jvp,
            double_vjp=None if request.double_vjp is None else self._double_vjp,
            rules=PLACELESS,
        )

    # ── judging ──────────────────────────────────────────────────────────────────────────────

    def judge_quickly(self) -> Findings | None:
        """PASS along one direction, or None."""
        return judge_quickly(self._real_request, self._real)

    def judged(self, passed: Findings | None = None) -> Findings:
        """The findings in complex terms; `passed` are those of a quick check made already."""
        found = judge_function(self._real_request, self._real, passed)
        return tuple(map(self._in_complex_terms, found))

    def differs(self) -> bool:
        """Whether the right gradient by the other convention is another one here."""
        here, there = self.asked(), Parts(self.request, self.primals, OTHER[self.system]).asked()
        if here is None or there is None:
            return False
        a, b = (np.concatenate([g.reshape(-1) for g in f.values()]) for f in (here, there))
        if a.shape != b.shape:
            return False
        # Not ≤: what is not finite differs.
        return not np.linalg.norm(a - b) <= APART[self.request.dtype] * np.linalg.norm(a)

    def asked(self) -> dict[str, Array] | None:
        """The gradients of vjp for one random cotangent, in parts; None where the call fails."""
        try:
            self._forward(*self._real, **self.request.attrs)  # it may save what vjp reads
            draw = Draw(self.request.seed, "convention", self.request.subject)
            cts = tuple(
                draw.away(0.0, *(shape if dtype.kind == "f" else (*shape, 2))).astype(
                    self.request.dtype
                )
                for shape, dtype in self._outputs
            )
            lead = cts[0] if len(cts) == 1 else cts
            found = _several(self._vjp(lead, *self._real, **self.request.attrs))
            named = zip(self.request.names, self._real, found, strict=True)
            return {n: np.array(g, dtype=np.float64) for n, p, g in named if p.dtype.kind == "f"}
        except REFUSALS:  # the judgement has named it
            return None

    # ── the functions of the parts ───────────────────────────────────────────────────────────

    @property
    def _turns(self) -> bool:
        """Whether the convention conjugates cotangents and gradients."""
        return self.system == "jax"

    def _given(self, arrays: Sequence[Array]) -> list[Array]:
        """Primals and tangents in the form of the user's functions."""
        return [
            _joined(a) if p.dtype.kind == "c" else a.reshape(a.shape[:-1])
            for a, p in zip(arrays, self.primals, strict=True)
        ]

    def _forward(self, *arrays: Array, **attrs: Any) -> Any:
        out = self.request.forward(*self._given(arrays), **attrs)
        values = _several(out)
        if any(isinstance(a, BigArray) for a in arrays):
            kinds = [dtype.kind for _, dtype in self._outputs]
            if len(values) != len(kinds):
                return out
            pairs = zip(values, kinds, strict=True)
            return _like(out, [_big(value) if kind == "c" else value for value, kind in pairs])
        found = [_array(value) for value in values]
        if not self._outputs and all(a is not None for a in found):
            self._outputs = [(a.shape, a.dtype) for a in found if a is not None]
        return _like(out, [_either(a, value) for a, value in zip(found, values, strict=True)])

    def _cotangent(self, ct: Any, turned: bool) -> Any:
        parts = _several(ct)
        kinds = [dtype.kind for _, dtype in self._outputs]
        joined = [
            _joined(c, turned) if kind == "c" else c for c, kind in zip(parts, kinds, strict=True)
        ]
        return _like(ct, joined)

    def _vjp(self, ct: Any, *arrays: Array, **attrs: Any) -> Any:
        out = self.request.vjp(self._cotangent(ct, self._turns), *self._given(arrays), **attrs)
        return self._gradients(out, self.request.names)

    def _double_vjp(self, ggs: Any, ct: Any, *arrays: Array, **attrs: Any) -> Any:
        assert self.request.double_vjp is not None
        # The derivative of a conjugated result by a conjugated ct: neither shows; primals do.
        ct = self._cotangent(ct, self._turns)
        lead = _like(ggs, self._tangents(_several(ggs)))
        out = self.request.double_vjp(lead, ct, *self._given(arrays), **attrs)
        if not isinstance(out, (tuple, list)) or len(out) != 1 + len(self.primals):
            return out
        kinds = [f"double d{name}" for name in self._cotangents]
        first = [
            self._part(value, form, name, turned=False)
            for value, form, name in zip(_several(out[0]), self._outputs, kinds, strict=False)
        ]
        rest = self._gradients(tuple(out[1:]), [f"double d{n}" for n in self.request.names])
        return (first[0] if len(self._outputs) == 1 else tuple(first), *rest)

    def _jvp(self, us: Any, *arrays: Array, **attrs: Any) -> Any:
        assert self.request.jvp is not None
        lead = _like(us, self._tangents(_several(us)))
        out = self.request.jvp(lead, *self._given(arrays), **attrs)
        found = _several(out)
        if len(found) != len(self._outputs):
            return out
        rows = ["jvp"] if len(found) == 1 else [f"jvp output {k}" for k in range(len(found))]
        forms = zip(found, self._outputs, rows, strict=True)
        return _like(out, [self._part(v, form, row, turned=False) for v, form, row in forms])

    @property
    def _cotangents(self) -> list[str]:
        """Names of the parts of ct in rows of the second order."""
        lead = "ct" if "ct" not in self.request.names else "cotangent"
        count = len(self._outputs)
        return [lead] if count == 1 else [f"{lead}{k}" for k in range(count)]

    def _tangents(self, parts: Sequence[Any]) -> list[Any]:
        """One per primal, None for an index."""
        pairs = zip(parts, self.primals, strict=True)
        return [
            None if u is None else _joined(u) if p.dtype.kind == "c" else u.reshape(u.shape[:-1])
            for u, p in pairs
        ]

    def _gradients(self, out: Any, names: Sequence[str]) -> Any:
        """The gradients of vjp in parts; a wrong number of them is passed on."""
        found = _several(out)
        if len(found) != len(self.primals):
            return out
        rows = zip(found, self.primals, names, strict=True)
        return _like(
            out,
            [
                self._part(g, (p.shape, p.dtype), name, self._turns != (name in self._conjugated))
                for g, p, name in rows
            ],
        )

    def _part(self, value: Any, form: Form, name: str, turned: bool) -> Any:
        """One gradient or tangent in parts; a value of another type or dtype stays wrong.

        A real array in place of a complex one gets one more axis, of length 1, which no part has.
        """
        dtype = form[1]
        array = _array(value) if dtype.kind in "fc" else None
        if array is None:
            return value
        self._came[name] = (array.shape, array.dtype), form
        if array.dtype.kind == "c":
            return _parts(array.conj() if turned else array)
        return array if dtype.kind == "f" and name not in self._widths else array[..., None]

    @property
    def _widths(self) -> dict[str, int]:
        """Lengths of the last axis, by the names of findings; no entry: there is none to drop."""
        widths = {}
        for name, primal in zip(self.request.names, self.primals, strict=True):
            widths[name] = widths[f"double d{name}"] = 2 if primal.dtype.kind == "c" else 1
        if len(self._outputs) == 1:
            rows = ["jvp", f"double d{self._cotangents[0]}"]
        else:
            rows = [f"double d{name}" for name in self._cotangents]
        forms = self._outputs * (2 if len(self._outputs) == 1 else 1)
        widths |= {r: 2 for r, (_, dtype) in zip(rows, forms, strict=True) if dtype.kind == "c"}
        return widths

    # ── findings in complex terms ─────────────────────────────────────────────────────

    def _in_complex_terms(self, finding: Finding) -> Finding:
        """A finding about parts as one about the complex array."""
        name, found = finding.name, finding.diagnosis
        if found is not None and (found.rule not in PLACELESS or _speaks_of_places(found)):
            finding = replace(finding, diagnosis=None)
        if not finding.compared:
            fault = self._fault(name) if finding.verdict is Verdict.FAIL else ""
            return replace(finding, reason=fault) if fault else finding
        width = self._widths.get(name)
        return replace(
            finding,
            reason=self._text(finding.reason),
            worst=tuple(self._miss(miss, name) for miss in finding.worst),
            heat=_heat(finding, width) if width is not None else finding.heat,
        )

    def _miss(self, miss: Miss, name: str) -> Miss:
        """An element, with its part in the name of its tensor."""
        width = self._widths.get(name)
        if width is None or not miss.index:
            return miss
        *index, part = miss.index
        tensor = f"{name}.{PARTS[part]}" if width > 1 else miss.tensor
        return replace(miss, index=tuple(index), tensor=tensor)

    def _text(self, text: str) -> str:
        """A sentence with places in terms of complex arrays."""
        for name, primal in zip(self.request.names, self.primals, strict=True):
            pair = primal.dtype.kind == "c"
            place = rf"(?<![\w.]){re.escape(name)}\[((?:\d+, )*)(\d+)\]"
            text = re.sub(place, partial(_place, name, pair), text)
        return text

    def _fault(self, name: str) -> str:
        """The fault in the form of a gradient or tangent; empty without one."""
        if name not in self._came:
            return ""
        (shape, dtype), (due, kind) = self._came[name]
        if shape != due:
            said = f"has shape {shape}, {name} has {due}; give it the shape of {name}"
        elif dtype != kind:
            takes = dtype.kind == "c" and kind.kind == "f"
            todo = "return its real part" if takes else "keep its dtype"
            said = f"is {dtype}, {name} is {kind}; {todo}"
        else:
            return ""
        return f"the {'tangent' if name.startswith('jvp') else 'gradient'} of {name} {said}"

    def is_complex(self, name: str) -> bool:
        """Whether a primal is complex."""
        return self.primals[self.request.names.index(name)].dtype.kind == "c"

    @property
    def gives_complex(self) -> bool:
        """Whether an output was complex."""
        return any(dtype.kind == "c" for _, dtype in self._outputs)


def _several(values: Any) -> Sequence[Any]:
    return values if isinstance(values, (tuple, list)) else (values,)


def _like(values: Any, parts: list[Any]) -> Any:
    """`parts` in the form of `values`: bare, or a tuple."""
    return tuple(parts) if isinstance(values, (tuple, list)) else parts[0]


def _array(value: Any) -> Array | None:
    """`value` as a real or complex array in a dtype that can be judged; else None."""
    try:
        array = np.asarray(value)
    except KeyboardInterrupt:
        raise
    except BaseException:  # noqa: BLE001  whatever a foreign __array__ does, it is no array
        return None
    return array if array.dtype in DTYPES or array.dtype.kind in "iubf" else None


def _either(array: Array | None, value: Any) -> Any:
    """An output: its parts if it is complex, else as it came."""
    return _parts(array) if array is not None and array.dtype.kind == "c" else value


def _parts(array: Array) -> Array:
    """A complex array as a real one with an axis (real, imaginary) at its end."""
    native = array.astype(array.dtype.newbyteorder("="), order="C", copy=False)
    return native[..., None].view(native.real.dtype)


def _big(value: Any) -> Any:
    """The parts of complex big numbers (`numerics.highprecision`); anything else as it came."""
    if not isinstance(value, BigArray):
        return value
    return np.stack([value.real, value.imag], axis=-1)


def _joined(parts: Array, conjugated: bool = False) -> Array:
    """The complex array, or its conjugate, of its parts; read-only as they are."""
    if isinstance(parts, BigArray):  # no view of it is another array
        return np.asanyarray(parts[..., 0] + 1j * parts[..., 1])
    dtype = np.complex128 if parts.dtype == np.float64 else np.complex64
    flat = np.asarray(parts, order="C")
    joined: Array = flat.view(dtype).reshape(parts.shape[:-1])
    if not conjugated:
        return joined
    turned = np.array(joined.conj())
    turned.flags.writeable = joined.flags.writeable
    return turned[...]  # of a view the flag cannot be taken back


def _place(name: str, pair: bool, found: re.Match[str]) -> str:
    """A place in parts as one in a complex array: `z[0, 1, 0]` is `z.real[0, 1]`."""
    index = found[1].removesuffix(", ")
    part = f".{PARTS[int(found[2]) % 2]}" if pair else ""
    return name + part + (f"[{index}]" if index else "")


def _speaks_of_places(found: Diagnosis) -> bool:
    return any(PLACES.search(text) for text in (found.says, *found.evidence))


def _heat(finding: Finding, width: int) -> Heat | None:
    """The map of the worst part; None where one cell holds several elements."""
    heat, top = finding.heat, finding.top
    if heat is None or top is None or heat.block != (1, 1):
        return None
    part = top.index[-1]
    *down, across = heat.shape[:-1] or (1,)
    return replace(
        heat,
        shape=heat.shape[:-1],
        rows=math.prod(down),
        columns=across,
        cells=heat.cells[part::width],
    )
