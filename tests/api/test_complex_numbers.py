"""`check` of complex functions: both conventions, what is wrong in them, and how it is told."""

import re

import numpy as np
import pytest

from gradcheck import assert_vjp, check
from gradcheck.api.complex_numbers import Parts
from gradcheck.api.elementwise_check import Request
from gradcheck.errors import UsageError
from gradcheck.numerics.arrays import as_tuple
from gradcheck.numerics.evaluate import flatten
from gradcheck.numerics.highprecision.forward import BigForward
from gradcheck.results.verdict import Verdict
from tests.complex_pairs import PAIRS, WRONG, c, like, narrow

Z = c(np.random.default_rng(1), 2, 3)
SETTINGS = [
    (system, wide, full)
    for system in ("torch", "jax")
    for wide in (True, False)
    for full in (False, True)
]


def square(z):
    return z * z


def torch_vjp(ct, z):
    return ct * np.conj(2 * z)


def jax_vjp(ct, z):
    return ct * 2 * z


def primals_of(name, wide=True):
    drawn = PAIRS[name].primals(np.random.default_rng(0))
    return tuple(map(np.asarray, drawn if wide else narrow(drawn)))


def vjp_of(name, system, change=None):
    """The right VJP by a convention, or a wrong one, in its primals' dtypes."""
    right = PAIRS[name].vjp if system == "torch" else PAIRS[name].jax
    made = right if change is None else change(right)
    return lambda ct, *primals: like(made(ct, *primals), primals)


# ── right and wrong ──────────────────────────────────────────────────────────────────────────


@pytest.mark.slow(keep=13, rest=20)
@pytest.mark.parametrize("name", PAIRS)
def test_a_right_gradient_passes_by_its_convention_and_by_none(name):
    at = [*PAIRS].index(name)
    for k in range(4):  # half of them, in turn
        system, wide, full = SETTINGS[(3 * k + at) % len(SETTINGS)]
        asked = None if k % 2 == 0 else system
        found = check(
            PAIRS[name].forward, vjp_of(name, system), *primals_of(name, wide),
            full=full, convention=asked,
        )  # fmt: skip
        assert found.ok, f"{system}, {asked}, {wide=}, {full=}: {found}"
        holds = any(p.dtype.kind == "c" for p in primals_of(name)) or name in ("rfft", "chirp")
        assert not holds or found.dtype == ("complex128" if wide else "complex64")


NAMED = [
    "product", "exp", "abs", "angle", "sign", "fft", "matmul", "sum abs2", "conj", "real", "imag",
    "square", "sqrt", "solve", "softmax abs", "scaled",
]  # fmt: skip
KINDS = ["conjugate", "real part", "imaginary part", "twice", "Wirtinger", "one element"]
OWN = {"real": ["conjugate", "real part"], "imag": ["imaginary part"]}
"""Changes that leave a gradient as it is: the gradient of the real part is real."""


@pytest.mark.slow(keep=4, rest=6)
@pytest.mark.parametrize("name", NAMED)
def test_what_goes_wrong_with_complex_numbers_is_rejected_by_either_convention(name):
    at = NAMED.index(name)
    kinds = [kind for kind in KINDS if kind not in OWN.get(name, [])]
    for k, kind in enumerate(kinds[at % 2 :: 2]):  # half of them, in turn: a failure takes 60 ms
        system, wide, full = SETTINGS[(3 * k + at) % len(SETTINGS)]
        wide |= kind == "one element"  # 1% is more than float32 must show along a direction
        found = check(
            PAIRS[name].forward, vjp_of(name, system, WRONG[kind]), *primals_of(name, wide),
            full=full, convention=system,
        )  # fmt: skip
        assert found.verdict is Verdict.FAIL, f"{kind}, {system}, {wide=}, {full=}: {found}"


@pytest.mark.slow(keep=3)
@pytest.mark.parametrize("kind", ["real part of ct", "first primal", "turned", "negated"])
@pytest.mark.parametrize("name", ["product", "fft"])
def test_without_a_convention_neither_passes_what_is_wrong_in_both(name, kind):
    found = check(
        PAIRS[name].forward, vjp_of(name, "jax", WRONG[kind]), *primals_of(name), full=True
    )
    assert found.verdict is Verdict.FAIL, str(found)


@pytest.mark.slow(keep=2)
@pytest.mark.parametrize("name", ["product", "abs", "to complex", "parts", "solve"])
@pytest.mark.parametrize("system", ["torch", "jax"])
def test_the_other_convention_is_named_where_one_is_asked_for(name, system):
    other = {"torch": "jax", "jax": "torch"}[system]
    args = (PAIRS[name].forward, vjp_of(name, other), *primals_of(name))
    found = check(*args, convention=system)
    assert found.verdict is Verdict.FAIL
    says = found.findings[0].diagnosis.says
    title = {"torch": "PyTorch's", "jax": "JAX's"}[other]
    fix = {"abs": "return its conjugate", "to complex": "conjugate ct"}.get(
        name, "conjugate ct and what vjp returns"
    )
    kind = "" if name == "to complex" else "the conjugate, "
    assert says.endswith(f" is {kind}by {title} convention: pass convention='{other}', or {fix}")
    assert says in str(found)
    passed = check(*args)
    assert passed.ok
    assert f"by {title} convention" in str(passed).splitlines()[1]


def test_a_convention_is_told_only_where_there_are_two():
    named = [name for name in PAIRS if check(
        PAIRS[name].forward, vjp_of(name, "torch"), *primals_of(name)
    ).findings[0].reason]  # fmt: skip
    # Sums of z and of z̄ with real factors, and the real part, have one gradient in both.
    assert set(PAIRS) - set(named) == {"real", "conj", "sum", "cumsum", "transpose", "take"}


def test_two_conventions_in_one_vjp_are_a_failure():
    def mixed(ct, z, v):
        return ct * np.conj(v), (ct * z).sum(0)

    found = check(PAIRS["product"].forward, mixed, *primals_of("product"))
    assert [f.verdict for f in found.findings] == [Verdict.PASS, Verdict.FAIL]
    says = found.findings[1].diagnosis.says
    assert says == "dv is by JAX's convention, others are by PyTorch's: decide for one"


@pytest.mark.slow(keep=1)
@pytest.mark.parametrize(
    ("kind", "says"),
    [
        ("conjugate", "dz is the conjugate of the right value"),
        ("real part", "dz has no imaginary part"),
        ("imaginary part", "dz has no real part"),
        ("twice", "dz is twice the right value"),
        ("Wirtinger", "dz is half of the right value: a factor 2 is missing"),
        ("negated", "dz has the wrong sign: the right value negated"),
    ],
)
def test_what_is_wrong_is_said_of_the_complex_gradient(kind, says):
    found = check(square, lambda ct, z: np.asarray(WRONG[kind](torch_vjp)(ct, z)), Z)
    assert found.findings[0].diagnosis.says == says


# ── places ───────────────────────────────────────────────────────────────────────────────────


def test_an_element_has_the_index_of_the_complex_array_and_a_part():
    def off(ct, z):
        g = torch_vjp(ct, z)
        g[1, 2] += 0.25j * abs(g[1, 2])
        return g

    found = check(square, off, Z)
    (finding,) = found.findings
    assert finding.name == "z"
    assert {(m.index, m.tensor) for m in finding.worst} == {((1, 2), "z.imag")}
    assert (finding.heat.shape, finding.heat.cells[:5]) == ((2, 3), ".....")
    assert "\n  dz.imag[1, 2] got " in str(found)
    assert "worst: dz.imag[1, 2] got" in found.details()
    assert "where: dz.imag[1, 2]" in found.details()


def test_real_primals_beside_complex_ones_keep_their_indices_too():
    def off(ct, x, z):
        dx, dz = PAIRS["scaled"].vjp(ct, x, z)
        return dx * np.array([1, 1, 1.5]), dz

    found = check(PAIRS["scaled"].forward, off, *primals_of("scaled"))
    first, second = found.findings
    assert {(m.index, m.tensor) for m in first.worst} == {((2,), "")}
    assert first.heat.shape == (3,)
    assert second.verdict is Verdict.PASS
    assert "\n  dx[2] got " in str(found)


def test_a_scalar_has_no_index():
    found = check(square, lambda ct, z: 2 * torch_vjp(ct, z), np.complex128(1.3 - 0.4j))
    assert {m.index for m in found.findings[0].worst} == {()}
    assert re.search(r"\n  dz\.(real|imag) got ", str(found))


def test_a_kink_is_named_where_it_is():
    z = np.array([[1j, 2.0], [0.0, 1.0]])

    def vjp(ct, z):
        return np.where(z == 0, 0, ct * z / np.where(z == 0, 1, np.abs(z)))

    def magnitude(z):
        return np.abs(z)

    reason = check(magnitude, vjp, z, convention="torch").findings[0].reason
    assert "kink at z.real[1, 0] = 0 and at 1 more" in reason


# ── what a gradient owes besides numbers ─────────────────────────────────────────────────────


@pytest.mark.slow(keep=2)
@pytest.mark.parametrize(
    ("vjp", "says"),
    [
        (lambda ct, z: torch_vjp(ct, z).real, "is float64, z is complex128; keep its dtype"),
        (lambda ct, z: torch_vjp(ct, z).astype("c8"), "is complex64, z is complex128; keep"),
        (lambda ct, z: np.stack([ct.real, ct.imag], -1), "has shape (2, 3, 2), z has (2, 3)"),
        (lambda ct, z: torch_vjp(ct, z)[:, :2], "has shape (2, 2), z has (2, 3); give it"),
        (lambda ct, z: "text", "the gradient of z is a str, not an array of numbers"),
        (lambda ct, z: None, "no gradient for z: vjp returned None"),
        (lambda ct, z: (ct, ct), "vjp returned 2 gradients for 1 primals (z)"),
        (lambda ct, z: np.multiply(ct, 2, out=ct), "vjp writes into its arguments"),
        (lambda ct, z: np.multiply(z, ct, out=z), "vjp writes into its arguments"),
    ],
)
def test_a_broken_contract_is_told_of_the_complex_array(vjp, says):
    for convention in ("torch", "jax", None):
        found = check(square, vjp, Z, convention=convention)
        assert not found
        assert says in found.findings[0].reason
        assert not found.findings[0].compared


@pytest.mark.parametrize("system", ["torch", "jax"])
def test_a_cotangent_that_is_written_over_is_an_error_whatever_flag_is_set(system):
    def overwrites(ct, z):
        ct.flags.writeable = True
        ct *= 0
        return vjp_of("square", system)(ct, z)

    for convention in (system, None):
        assert (
            check(square, overwrites, Z, convention=convention, explain=False).verdict
            is Verdict.ERROR
        )


def test_a_complex_gradient_of_a_real_primal_is_no_gradient():
    def vjp(ct, x, z):
        return (ct * np.conj(z)).sum(0), ct * x

    found = check(PAIRS["scaled"].forward, vjp, *primals_of("scaled"))
    assert [f.verdict for f in found.findings] == [Verdict.FAIL, Verdict.PASS]
    assert "dx" not in found.findings[0].reason
    assert "is complex128, x is float64; return its real part" in found.findings[0].reason
    alone = check(lambda x: x * 1j, lambda ct, x: ct * -1j, np.array([0.3, 0.7]))
    assert "is complex128, x is float64; return its real part" in alone.findings[0].reason


def test_values_that_are_not_finite_have_no_derivative():
    found = check(lambda z: z / 0, torch_vjp, Z)
    assert found.findings[0].verdict is Verdict.INCONCLUSIVE


# ── second order and forward mode ────────────────────────────────────────────────────────────


def double_torch(gg, ct, z):
    return gg * 2 * z, 2 * ct * np.conj(gg)


@pytest.mark.slow(keep=1)
@pytest.mark.parametrize("system", ["torch", "jax"])
def test_second_order_and_forward_mode_of_a_complex_function(system):
    vjp = {"torch": torch_vjp, "jax": jax_vjp}[system]
    double = {"torch": double_torch, "jax": lambda gg, ct, z: (gg * 2 * z, gg * 2 * ct)}[system]
    z = Z[0]
    right = check(
        square, vjp, z, order=2, double_vjp=double, jvp=lambda u, z: 2 * z * u, convention=system
    )
    assert right.ok, str(right)
    assert len(right.findings) == 8

    def conjugated(gg, ct, z):
        d_ct, d_z = double(gg, ct, z)
        return d_ct, np.conj(d_z)

    wrong = check(
        square, vjp, z, order=2, double_vjp=conjugated, jvp=lambda u, z: 2 * z * np.conj(u),
        convention=system,
    )  # fmt: skip
    failed = {f.name for f in wrong.findings if f.verdict is Verdict.FAIL}
    assert failed == {"double dz", "jvp", "dot product"}
    assert "jvp.imag[" in str(wrong) or "jvp.real[" in str(wrong)
    saved = z.copy()
    stale = check(square, lambda ct, z: vjp(ct, saved), z, order=2, convention=system)
    assert stale.verdict is Verdict.FAIL


def test_a_real_tangent_of_a_complex_output_is_no_tangent():
    found = check(square, torch_vjp, Z, jvp=lambda u, z: (2 * z * u).real)
    reason = next(f.reason for f in found.findings if f.name == "jvp")
    assert reason == "the tangent of jvp is float64, jvp is complex128; keep its dtype"


# ── what is given ────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("primals", "options", "message"),
    [
        (
            (Z, Z.real.astype("f4")),
            {},
            "the primals mix complex128 and float32: give them one prec",
        ),
        ((Z.astype("c8"), Z), {}, "the primals mix complex128 and complex64: give them one prec"),
        ((Z.astype(np.clongdouble),), {}, "pass float64 or float32, complex128 or complex64"),
        ((Z,), {"convention": "pytorch"}, "convention is 'pytorch': pass 'torch'"),
        ((np.array([1.0, np.inf]),), {}, "primal 0: 1 of 2 elements is infinite or NaN"),
        ((Z, np.full((2, 2), -np.inf)), {}, "primal 1: 4 of 4 elements are infinite"),
        ((np.array([[1.0, np.nan]], "f4"),), {}, "primal 0: 1 of 2 elements is inf"),
        ((np.array([1, complex(0, np.nan)]),), {}, "primal 0: 1 of 2 elements is inf"),
        ((np.float64("inf"),), {}, "pass finite ones, and a constant (a mask, a limit) in attrs"),
    ],
)
def test_what_has_no_derivative_is_refused_in_one_line(primals, options, message):
    for function in (check, assert_vjp):
        for full in (False, True):
            with pytest.raises(UsageError, match=re.escape(message)) as caught:
                function(lambda *xs: xs[0], lambda ct, *xs: ct, *primals, full=full, **options)
            assert "\n" not in str(caught.value)


@pytest.mark.slow(keep=1)
@pytest.mark.parametrize("kind", [">f8", ">f4", ">c16", ">c8"])
@pytest.mark.parametrize("full", [False, True])
def test_primals_in_the_other_byte_order_are_judged_in_this_machines(kind, full):
    z = Z.astype(kind) if "c" in kind else Z.real.astype(kind)
    index = np.array([1, 0, 1], ">i4")
    right = lambda ct, z, i: (torch_vjp(ct, z).astype(z.dtype), None)  # noqa: E731
    wrong = lambda ct, z, i: (1.5 * right(ct, z, i)[0].astype(z.dtype), None)  # noqa: E731
    assert check(lambda z, i: z * z, right, z, index, full=full, convention="torch").ok
    found = check(lambda z, i: z * z, wrong, z, index, full=full, convention="torch")
    assert found.verdict is Verdict.FAIL
    assert found.findings[0].failed


@pytest.mark.slow(keep=1)
@pytest.mark.parametrize("empty", [np.zeros((0, 3)), np.zeros((2, 0), complex)])
@pytest.mark.parametrize("full", [False, True])
def test_an_empty_primal_spoils_no_verdict_where_others_are_compared(empty, full):
    def vjp(ct, z, e):
        return torch_vjp(ct, z), e

    found = check(lambda z, e: z * z, vjp, Z, empty, full=full)
    assert found.ok, str(found)
    assert (
        found.findings[1].reason == "it has no elements: only its shape and its dtype were checked"
    )
    wrong = check(lambda z, e: z * z, lambda ct, z, e: (2 * ct, e), Z, empty, full=full)
    assert [f.verdict for f in wrong.findings] == [Verdict.FAIL, Verdict.PASS]
    shaped = check(lambda z, e: z * z, lambda ct, z, e: (torch_vjp(ct, z), ct), Z, empty, full=full)
    assert [f.verdict for f in shaped.findings] == [Verdict.PASS, Verdict.FAIL]
    alone = check(lambda e: e * 2, lambda ct, e: ct * 2, empty)
    assert alone.verdict is Verdict.INVALID


# ── the systems themselves ───────────────────────────────────────────────────────────────────


@pytest.mark.frameworks
def test_pytorchs_own_gradients_are_in_its_convention():
    torch = pytest.importorskip("torch")

    def mixed(z, x):
        return torch.exp(z) * z.conj() * x

    def forward(z, x):
        return mixed(torch.tensor(z), torch.tensor(x)).numpy()

    def vjp(ct, *primals):
        leaves = [torch.tensor(p, requires_grad=True) for p in primals]
        found = torch.autograd.grad(mixed(*leaves), leaves, torch.tensor(ct))
        return tuple(g.resolve_conj().resolve_neg().numpy() for g in found)

    assert check(forward, vjp, Z, Z.imag + 0.1, convention="torch").ok
    assert not check(forward, vjp, Z, Z.imag + 0.1, convention="jax", explain=False).ok


@pytest.mark.frameworks
def test_jaxs_own_gradients_are_in_its_convention():
    jax = pytest.importorskip("jax")

    def mixed(z, x):
        return jax.numpy.exp(z) * jax.numpy.conj(z) * x

    def forward(z, x):
        return np.asarray(mixed(z, x))

    def vjp(ct, *primals):
        return tuple(map(np.asarray, jax.vjp(mixed, *primals)[1](ct)))

    with jax.enable_x64(True) if hasattr(jax, "enable_x64") else jax.experimental.enable_x64():
        assert check(forward, vjp, Z, Z.imag + 0.1, convention="jax").ok
        assert not check(forward, vjp, Z, Z.imag + 0.1, convention="torch", explain=False).ok


# ── in 50 digits ─────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("name", ["product", "abs", "fft", "solve", "to complex", "parts"])
def test_the_parts_of_a_complex_forward_are_evaluated_in_big_numbers(name):
    primals = primals_of(name)
    names = tuple(f"x{k}" for k in range(len(primals)))
    asked = Request(
        forward=PAIRS[name].forward, vjp=PAIRS[name].vjp, names=names, attrs={}, dtype="float64",
        seed=0, subject="f", full=False, order=1, double_vjp=None, jvp=None,
    )  # fmt: skip
    parts = Parts(asked, primals, "torch")
    want = flatten(as_tuple(parts._forward(*parts._real)))
    big = BigForward(parts._forward, parts._real, {}, 10**6)
    np.testing.assert_allclose(flatten(big.outputs()), want, rtol=1e-12, atol=1e-14)
