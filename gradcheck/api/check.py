"""`check` and `assert_vjp`: any function and its VJP, judged without a spec."""

from __future__ import annotations

import inspect
import math
import os
import reprlib
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import FunctionType, MappingProxyType, MethodType
from typing import Any, Final, Literal, Never, TextIO

import numpy as np

from gradcheck.api.elementwise_check import Request
from gradcheck.api.judge_function import judge_function
from gradcheck.errors import GradcheckError, UsageError, nearest
from gradcheck.implementations.user_functions import argument_names
from gradcheck.judge.compare import LOW_TOLERANCES, TOLERANCES
from gradcheck.numerics.arrays import Array, is_float
from gradcheck.numerics.time_budget import Watch
from gradcheck.results.finding import Finding
from gradcheck.results.verdict import Verdict, worst
from gradcheck.results.words import share
from gradcheck.spec.operator import Slack

NO_ATTRS: Final[Mapping[str, Any]] = MappingProxyType({})

REAL: Final[Mapping[str, str]] = {"complex128": "float64", "complex64": "float32"}
"""Complex dtypes, and the dtype of their parts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """What `check` found: a finding per gradient output. Prints as a table."""

    findings: tuple[Finding, ...]
    dtype: str
    subject: str

    @property
    def verdict(self) -> Verdict:
        """The worst verdict of the findings."""
        return worst(finding.verdict for finding in self.findings)

    @property
    def ok(self) -> bool:
        """Whether every verdict is PASS."""
        return self.verdict is Verdict.PASS

    def __bool__(self) -> bool:
        return self.ok

    def __str__(self) -> str:
        from gradcheck.report.findings import table  # door: only where a result is printed

        return table(self.subject, self.dtype, self.findings)

    def details(self) -> str:
        """Everything that is known: evidence, errors in ulp, a map of wrong elements."""
        from gradcheck.report.findings import table  # door: only where a result is printed

        return table(self.subject, self.dtype, self.findings, details=True)


@np.errstate(all="ignore")  # forward is asked beyond its domain, and near the largest number
def check(
    forward: Any,
    vjp: Any,
    *primals: Any,
    seed: int = 0,
    attrs: Mapping[str, Any] = NO_ATTRS,
    full: bool = False,
    order: int = 1,
    double_vjp: Callable[..., Any] | None = None,
    jvp: Callable[..., Any] | None = None,
    convention: Literal["torch", "jax"] | None = None,
    budget: float | None = None,
    wider: Slack | None = None,
    explain: bool = True,
    **unexpected: Never,
) -> Result:
    """Judge `vjp` against the derivative of `forward` at `primals`.

    `forward(*primals, **attrs)` returns an array or a tuple of arrays;
    `vjp(ct, *primals, **attrs)` returns one cotangent per primal (a bare array for one primal,
    None for an integer one), where `ct` is shaped as forward's output (a tuple for several).

    `check(op, *primals)` takes both from one object: its `forward` and its `vjp` or `backward`
    (where that takes the cotangent alone, forward is called right before it), or what PyTorch or
    JAX differentiates (a `torch.autograd.Function`, a module, a `jax.custom_vjp`).

    First all primals move at once along a random direction, drawn from `seed`. Where ⟨gradient,
    direction⟩ agrees with the slope of forward within the slope's own uncertainty, and an error of
    a hundredth (float32: a tenth) of any element that is not zero in the gradient given would not,
    each primal's finding is a PASS: a few primals may have to move alone for it, by several steps,
    and then a tenth must show. `Finding.smallest_visible_error` says what would have shown in the
    least element that must, `evaluations` what it took. In float32 elements below a thousandth of
    their tensor's largest need not show.

    vjp is asked with a random cotangent and with −2 times that; where forward is one number, with
    1, −2 and −8/3. A vjp that is wrong for ones alone is seen there, and with `full=True`
    everywhere.

    A vjp that rounds to TF32, float16, bfloat16 or (in float64) float32 is seen where numbers do
    not fit in those. Cotangents never do. Where most numbers of a primal do (ones, small integers,
    multiples of 1/8), what passes is judged a second time, at all primals times 0.9784. A vjp that
    is wrong there is a FAIL, unless its error grows with the distance: that is what a vjp does that
    is right for these primals alone, and it passes with a note, as does one that cannot be judged
    there.

    Everything else is judged element by element, under three cotangents (an all-ones one is among
    them), and so is every check with `full=True`, `order=2` or a `jvp`. What central differences
    do not pass is settled by `forward` itself, evaluated in 50 digits on arrays of big numbers:
    NumPy's functions, SciPy's, and those of JAX and PyTorch answer on them, and no digit is lost
    unseen. Slopes on both sides show kinks and ties; anything between them passes, and the finding
    says so. Where `forward` cannot be evaluated so, its values at all scales decide, the finest
    first. A gradient FAILs only if these exclude it; where they cannot tell, it is INCONCLUSIVE,
    and the reason says why.

    `wider=Slack(ulp=…, because="…")` widens the tolerance of each element by so many units in the
    last place of its terms, where it does not pass without; the finding and the table say so. It
    reaches no projection, and no row of `order=2` or a `jvp`.

    float16 primals, and those of bfloat16 (arrays of `ml_dtypes`), are judged element by element.
    `vjp` is asked in their dtype; the truth is the slope of `forward` at the same numbers in
    float64, so `forward` must compute in its arguments' dtype, or in float32 inside and return
    that dtype. What keeps float32 inside and rounds once passes; what rounds after every operation
    does, where its errors are no larger than such rounding explains. Where forward shows no slope
    in a wider dtype, the verdict is INCONCLUSIVE and says why.

    `order=2` judges the derivative of `vjp` too, by differences of `vjp` along random directions:
    with respect to ct it must be forward's slope, with respect to a primal forward's second
    derivative, and that must be symmetric (rows `d vjp/d ct`, `d vjp/d x`, `Hessian symmetry`).
    `double_vjp(ggs, ct, *primals, **attrs)`, the VJP of (ct, *primals) → gradients, returns
    (d_ct, *d_primals), None for an integer primal; `ggs` is shaped as what `vjp` returns, d_ct as
    ct. It is judged element by element (rows `double dct`, `double dx`).

    `jvp(us, *primals, **attrs)` returns J·u, one tangent per output, where `us` is shaped as the
    primals (bare for one, None for an integer one). It is judged element by element against
    forward (row `jvp`), and by ⟨v, J u⟩ = ⟨Jᵀv, u⟩ against `vjp` (row `dot product`).

    Complex primals and outputs are judged by their real and imaginary parts, L being the sum of
    Re ct · Re f + Im ct · Im f over the outputs. `convention="torch"`: vjp returns
    dL/dRe z + i·dL/dIm z (for a holomorphic f, ct · conj(f′)). `convention="jax"`: vjp gets the
    conjugate of that ct, and returns the conjugate of that (ct · f′). None: either, for all primals
    alike; the first finding says which one where they differ. The gradient of a real primal is
    real. Each part counts as an element; `Miss.index` is that of the complex array, `Miss.tensor`
    is "z.real" or "z.imag".

    A primal so large that each element would cost more than some seconds (from about 2,300 elements
    of a loss, 64,000 of an elementwise function) is judged along directions alone, under each of
    the three cotangents, and its wrong elements are found by bisection. It passes if a tenth of all
    but one element in a thousand would show, or (float32) a thousandth of the largest. A float32
    gradient is compared, element by element, with what vjp gives in float64, if it gives that.
    Otherwise it is INCONCLUSIVE: no float32 sum shows one element of a million. `full=True` goes
    through all of them, and tells a terminal on stderr how far it is.

    `budget` bounds the time, in seconds: what is proved wrong by then is a FAIL, what was not
    decided is INCONCLUSIVE. A call that is running is not interrupted.

    A gradient that is wrong has a diagnosis (`Finding.diagnosis`), which stands in the text: vjp is
    asked at other primals and attributes too, and compared with differences of forward there.
    `explain=False` leaves that out: the verdict alone, in a loop or where time matters.

    Cost: of a projection 8 evaluations of forward, batched where forward treats a leading axis as
    batch, and two of vjp, three where forward is one number; at short primals twice that. Element
    by element 2 to 6 evaluations per element, fewer where outputs do not mix (rows), batched too.
    In 50 digits some five evaluations per element that did not pass, until four fail, and some
    seconds at most; at all scales 88 and more. A large primal takes some 20 to 150 where it is
    right, 300 where it is wrong, and 5 more for each doubling of its elements. `order=2`: per
    primal about 160 more of forward and 80 of vjp, whatever its size; a `double_vjp` as a first
    order of its own, with vjp in the place of forward. `jvp`: about 100. A diagnosis: what forward
    does in a second.

    Raises:
        UsageError: a primal is infinite or NaN somewhere, or of a dtype other than float64,
            float32, float16, bfloat16, complex128 or complex64 (integers apart), or there is none
            of these to differentiate by, or two precisions; `order` is neither 1 nor 2, a
            `double_vjp` comes without `order=2`, `order=2` or a `jvp` in 16 bits, `convention` is
            another one, `budget` is not more than 0, or `wider` is not a `Slack`; or there is no
            vjp.
        TypeError: an unknown keyword is given; attributes belong in `attrs`.

    >>> import numpy as np
    >>> check(lambda x: x**2, lambda ct, x: 2 * x * ct, np.array([1.0, 2.0])).ok
    True
    >>> check(lambda x: x**2, lambda ct, x: x * ct, np.array([1.0, 2.0])).verdict.name
    'FAIL'
    >>> check(lambda z: z**2, lambda ct, z: ct * (2 * z).conj(), np.array([1 + 2j])).ok
    True
    >>> saved = np.array([1.0, 2.0])
    >>> check(lambda x: x**2, lambda ct, x: 2 * saved * ct, saved, order=2).verdict.name
    'FAIL'
    """
    if unexpected:
        raise _unexpected("check", unexpected)
    subject = ""
    if not callable(vjp):
        from gradcheck.api.one_object import functions_of  # door: one object

        primals = (vjp, *primals)
        forward, vjp, subject = functions_of(forward, len(primals))
    _check_request(order, double_vjp, jvp, convention, budget, wider)
    arrays = tuple(_as_primal(value, i) for i, value in enumerate(primals))
    dtype = _common_dtype(arrays)
    if dtype in LOW_TOLERANCES and (order == 2 or jvp is not None):
        raise UsageError(f"order=2 and jvp are judged in float64 and float32, not in {dtype}")
    names = _names(forward, len(arrays))
    subject = subject or getattr(vjp, "__name__", type(vjp).__name__)

    request = Request(
        forward=forward,
        vjp=vjp,
        names=names,
        attrs=attrs,
        dtype=dtype,
        seed=seed,
        subject=subject,
        full=full,
        order=order,
        double_vjp=double_vjp,
        jvp=jvp,
        watch=Watch(budget, sys.stderr if full and _rewrites(sys.stderr) else None),
        wider=wider,
        explain=explain,
    )
    try:
        holds = "c" in [a.dtype.kind for a in arrays]
        findings = () if holds else judge_function(request, arrays)
        if holds or (findings[0].name == "forward" and findings[0].verdict is Verdict.ERROR):
            # door: few functions are complex.
            from gradcheck.api.complex_convention import judge_complex
            from gradcheck.api.complex_numbers import gives_complex

            if holds or gives_complex(request, arrays):
                findings = judge_complex(request, arrays, convention)
                dtype = {real: name for name, real in REAL.items()}[dtype]
    finally:
        request.watch.clear()
    return Result(findings=findings, dtype=dtype, subject=subject)


def _rewrites(stream: TextIO | None) -> bool:
    """Whether the stream is a terminal that can rewrite a line."""
    return stream is not None and stream.isatty() and os.environ.get("TERM") != "dumb"


def assert_vjp(
    forward: Any,
    vjp: Any,
    *primals: Any,
    seed: int = 0,
    attrs: Mapping[str, Any] = NO_ATTRS,
    full: bool = False,
    order: int = 1,
    double_vjp: Callable[..., Any] | None = None,
    jvp: Callable[..., Any] | None = None,
    convention: Literal["torch", "jax"] | None = None,
    budget: float | None = None,
    wider: Slack | None = None,
    **unexpected: Never,
) -> None:
    """Raise unless `check` passes; the arguments are those of `check`, one object included.

    Raises:
        AssertionError: the check did not pass; the text is the failure.
        UsageError, TypeError: as for `check`.
    """
    __tracebackhide__ = True  # a test's traceback ends at the user's line
    if unexpected:
        raise _unexpected("assert_vjp", unexpected)
    try:
        found = check(
            forward,
            vjp,
            *primals,
            seed=seed,
            attrs=attrs,
            full=full,
            order=order,
            double_vjp=double_vjp,
            jvp=jvp,
            convention=convention,
            budget=budget,
            wider=wider,
        )
    except GradcheckError as error:  # the mistake is in the call, not below it
        raise error.with_traceback(None) from None
    if not found.ok:
        raise AssertionError(str(found))


def _unexpected(function: str, given: Mapping[str, Any]) -> TypeError:
    """The error of keywords that `check` does not have."""
    name = next(iter(given))
    parameters = inspect.signature(check).parameters.values()
    near = nearest(name, [p.name for p in parameters if p.kind is p.KEYWORD_ONLY])
    hint = f" (did you mean {near!r}?)" if near else ""
    return TypeError(
        f"{function}() got an unexpected keyword argument {name!r}{hint}; pass attributes of "
        f"forward and vjp as attrs={reprlib.repr({**given})}"
    )


def _check_request(
    order: Any, double_vjp: Any, jvp: Any, convention: Any, budget: Any, wider: Any
) -> None:
    if convention not in (None, "torch", "jax"):
        raise UsageError(
            f"convention is {convention!r}: pass 'torch' (dL/dRe + i·dL/dIm), 'jax' (its "
            "conjugate), or None for either"
        )
    if isinstance(order, bool) or order not in (1, 2):
        raise UsageError(f"order is {order!r}: 1 judges the gradients, 2 their derivatives too")
    if budget is not None and not (isinstance(budget, (int, float)) and budget > 0):
        raise UsageError(f"budget is {budget!r}: give seconds, more than 0, or None")
    if wider is not None and not isinstance(wider, Slack):
        raise UsageError(
            f"wider is a {type(wider).__name__}: pass gradcheck.Slack(ulp=…, because='…'), or None"
        )
    if double_vjp is not None and order != 2:
        raise UsageError("double_vjp is judged at order=2: pass that too")
    for name, function in (("double_vjp", double_vjp), ("jvp", jvp)):
        if function is not None and not callable(function):
            raise UsageError(f"{name} is a {type(function).__name__}: pass a function")


def _as_primal(value: Any, index: int) -> Array:
    """A copy in the machine's byte order."""
    try:
        array = np.array(value)
    except (ValueError, TypeError) as error:  # the latter of a bfloat16 tensor
        raise UsageError(f"primal {index} is not an array: {error}") from error
    if not array.dtype.isnative:
        array = array.astype(array.dtype.newbyteorder("="))
    kind = array.dtype.kind
    if kind in "iub":
        return array
    if array.dtype != np.float64 and array.dtype.name not in (*TOLERANCES, *LOW_TOLERANCES, *REAL):
        raise UsageError(
            f"primal {index} is {array.dtype}: pass float64 or float32, complex128 or complex64, "
            "float16 or the bfloat16 of ml_dtypes (integers for indices)"
        )
    # In float16 squares are too large from 256 on, and in any dtype of the largest numbers.
    if not math.isfinite(np.vdot(array, array).real):
        _refuse_infinite(array, index)
    return array


def _refuse_infinite(array: Array, index: int) -> None:
    strange = array.size - int(np.count_nonzero(np.isfinite(array)))
    if strange:
        raise UsageError(
            f"primal {index}: {share(strange, array.size, 'element')} infinite or NaN: no "
            "derivative is defined there; pass finite ones, and a constant (a mask, a limit) in "
            "attrs"
        )


def _common_dtype(arrays: Sequence[Array]) -> str:
    """The dtype of the real primals, or of the parts of the complex ones."""
    given = {a.dtype for a in arrays if a.dtype.kind == "c" or is_float(a.dtype)}
    if len(given) == 1 and np.dtype(np.float64) in given:
        return "float64"
    names = sorted(dtype.name for dtype in given)
    found = {REAL.get(name, name) for name in names}
    if not found:
        raise UsageError("no floating primal: there is nothing to differentiate by")
    if len(found) > 1:
        what = "precision" if REAL.keys() & set(names) else "dtype"
        raise UsageError(f"the primals mix {' and '.join(names)}: give them one {what}")
    return found.pop()


def _names(forward: Callable[..., Any], count: int) -> tuple[str, ...]:
    """Names of the primals, from forward's signature where it has one."""
    own: Any = forward.__func__ if isinstance(forward, MethodType) else forward
    names: tuple[str, ...] = ()
    if isinstance(own, FunctionType) and not own.__dict__:
        names = own.__code__.co_varnames[own is not forward : own.__code__.co_argcount]
    if len(names) < count:  # this costs 15 µs
        names = argument_names(forward)
    return names[:count] if len(names) >= count else tuple([f"primal{i}" for i in range(count)])
