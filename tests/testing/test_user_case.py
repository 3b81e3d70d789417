import numpy as np
import pytest

import gradcheck
from gradcheck import CheckFailed, normal
from gradcheck.errors import UsageError
from gradcheck.testing.failure import NotCompared
from tests.testing.given import NODE, given


def rms_norm(x, w, *, eps):
    return x / np.sqrt((x * x).mean(-1, keepdims=True) + x.dtype.type(eps)) * w


def rms_norm_backward(ct, x, w, *, eps):
    r = 1 / np.sqrt((x * x).mean(-1, keepdims=True) + x.dtype.type(eps))
    n, g = x * r, ct * w
    return r * (g - n * (g * n).mean(-1, keepdims=True)), (ct * n).sum(0)


def halved(ct, x, w, *, eps):
    dx, dw = rms_norm_backward(ct, x, w, eps=eps)
    return dx, dw / 2


def norm(**said):
    hard = normal(7, 8).rows("zero", "tiny", "large", "constant")
    return given(gradcheck.case(x=hard, w=normal(8), eps=1e-3, **said))


@pytest.mark.slow(keep=1)
@pytest.mark.parametrize("point", norm(seeds=2), ids=repr)
def test_a_right_backward_passes_at_hard_rows_in_both_dtypes(point):
    found = point.check(rms_norm, rms_norm_backward)
    assert found.ok
    assert [r.finding.verdict.name for r in point.results] == ["PASS", "PASS"]
    point.end()


def test_a_wrong_one_says_what_is_wrong_and_how_to_see_it_again():
    case = norm()[1]
    with pytest.raises(CheckFailed) as caught:
        case.check(rms_norm, halved)
    lines = str(caught.value).splitlines()
    says = "scale: dw is half of the right value: a factor 2 is missing"
    assert lines[0].startswith("FAIL test_x/test_y/typical/float32 · dw (tests/testing/test_user_c")
    assert lines[1].startswith(f"  {says.removeprefix('scale: ')} (scale; wrong at all ")
    assert caught.value.lead == f"dw: {says}"
    assert lines[-1] == f"  run: pytest '{NODE}'"
    assert [r.finding.verdict.name for r in case.results] == ["PASS", "FAIL"]
    assert {r.case.implementation for r in case.results} == {"tests/test_x.py"}
    assert case.results[0].finding.source.startswith("tests/testing/test_user_case.py:")
    assert isinstance(caught.value, AssertionError)


@pytest.mark.slow
def test_every_gradient_that_is_wrong_is_told():
    (case, _) = norm()
    with pytest.raises(CheckFailed) as caught:
        case.check(rms_norm, lambda ct, x, w, eps: (ct, None))
    assert caught.value.lead.endswith(" (and 1 more)")
    assert "FAIL test_x/test_y/typical/float64 · dx (" in str(caught.value)
    assert "MISSING test_x/test_y/typical/float64 · dw" in str(caught.value)


def test_what_forward_or_vjp_raises_is_the_failure():
    (case, _) = norm()

    def boom(*_, **__):
        raise RuntimeError("\x1b[31mboom\nof vjp")

    with pytest.raises(CheckFailed, match="vjp raised RuntimeError") as caught:
        case.check(rms_norm, boom)
    assert caught.value.lead == r"ERROR vjp raised RuntimeError: \x1b[31mboom of vjp"
    assert "\x1b" not in str(caught.value)
    with pytest.raises(CheckFailed, match="forward raised RuntimeError"):
        case.check(boom, rms_norm_backward)


def test_a_test_that_never_asks_has_compared_nothing():
    (case, _) = norm()
    with pytest.raises(NotCompared, match=r"nothing was compared: test_x.py::test_y never calls"):
        case.end()
    case.check(rms_norm, rms_norm_backward)
    case.end()
    case.begin(NODE)  # again, say by --count
    assert case.results == []
    with pytest.raises(NotCompared):
        case.end()


def test_no_elements_are_no_pass():
    (case, _) = given(gradcheck.case(x=normal(0, 3)))
    with pytest.raises(CheckFailed, match=r"INVALID .*\n  nothing was compared"):
        case.check(lambda x: 2 * x, lambda ct, x: 2 * ct)


def test_primals_in_another_order_are_refused():
    (case, _) = given(gradcheck.case(w=normal(8), x=normal(3, 8), eps=0.1))
    with pytest.raises(UsageError, match="names the primals w, x, and forward takes them as x, w"):
        case.check(rms_norm, rms_norm_backward)
    assert case.check(lambda b, a, eps: b * a, lambda ct, b, a, eps: ((ct * a).sum(0), ct * b))


def test_the_names_are_the_decorators():
    (case, _) = given(gradcheck.case(x=normal(3), y=normal(3)))
    found = case.check(lambda *both: both[0] * both[1], lambda ct, a, b: (ct * b, ct * a))
    assert [finding.name for finding in found.findings] == ["x", "y"]


def test_one_object_may_have_both():
    class Both:
        forward, vjp = staticmethod(rms_norm), staticmethod(rms_norm_backward)

    def pulled(x, w, eps):
        return rms_norm(x, w, eps=eps), lambda ct: rms_norm_backward(ct, x, w, eps=eps)

    (case, _) = norm()
    for entry in (Both, {"forward": rms_norm, "vjp": rms_norm_backward}, {"forward": pulled}):
        assert case.check(entry)
    with pytest.raises(CheckFailed, match=r"dw is half of .* \(scale; "):
        case.check({"forward": rms_norm, "vjp": halved})


@pytest.mark.parametrize(
    ("entry", "said"),
    [
        (rms_norm, r"a function has no vjp; pass case.check\(forward, vjp\)"),
        (None, "a NoneType has no vjp"),
        ({"vjp": rms_norm_backward}, "there is no forward; pass case"),
        (
            {"forward": lambda x, w: (x * w, lambda ct: (ct, ct))},
            "forward takes no 'eps'; .*: let it take that, or remove it from @case",
        ),
    ],
)
def test_what_cannot_be_judged_is_refused(entry, said):
    (case, _) = norm()
    with pytest.raises(UsageError, match=said):
        case.check(entry)


def test_the_second_derivative_and_jvp_are_asked_as_by_check():
    (case, _) = given(gradcheck.case(x=normal(4)))

    def vjp(ct, x):
        return 3 * x * x * ct

    assert case.check(lambda x: x**3, vjp, order=2, jvp=lambda u, x: 3 * x * x * u)
    with pytest.raises(CheckFailed, match="jvp"):
        case.check(lambda x: x**3, vjp, jvp=lambda u, x: 2 * x * x * u)


@pytest.mark.frameworks
def test_what_torch_differentiates():
    torch = pytest.importorskip("torch")
    (case, _) = given(gradcheck.case(x=normal(2, 4)))
    assert case.check(gradcheck.torch_op(torch.tanh))
