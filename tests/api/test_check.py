import doctest
import math
import re

import numpy as np
import pytest

import gradcheck.api.check
from gradcheck import Result, Slack, Verdict, assert_vjp, check
from gradcheck.errors import UsageError
from gradcheck.implementations.returned import Broken
from gradcheck.results.finding import Finding

X = np.array([0.75, -1.5, 2.25])
Y = np.array([-0.5, 1.25, 3.0])


def words(result):
    return {finding.name: finding.verdict.value for finding in result.findings}


def times(factor, vjp):
    """A VJP whose every gradient is `factor` times too large."""

    def scaled(ct, *primals, **attrs):
        out = vjp(ct, *primals, **attrs)
        if isinstance(out, (tuple, list)):
            return type(out)(None if g is None else g * factor for g in out)
        return out * factor

    return scaled


def gather_vjp(ct, x, index):
    dx = np.zeros_like(x)
    np.add.at(dx, index, ct)
    return dx, None


# name: forward, right vjp, primals
RIGHT = {
    "square": (lambda x: x * x, lambda ct, x: 2 * x * ct, (X,)),
    "two primals": (lambda x, y: x * y, lambda ct, x, y: (ct * y, ct * x), (X, Y)),
    "two outputs": (
        lambda x, y: (x * y, x - y),
        lambda ct, x, y: (ct[0] * y + ct[1], ct[0] * x - ct[1]),
        (X, Y),
    ),
    "a list of outputs": (lambda x: [x, x * x], lambda ct, x: [ct[0] + 2 * x * ct[1]], (X,)),
    "a scalar output": (lambda x: (x**3).sum(), lambda ct, x: 3 * x * x * ct, (X,)),
    "a python number": (lambda x: math.fsum(x * x), lambda ct, x: 2 * x * float(ct), (X,)),
    "a 0-d primal": (lambda x: x**3, lambda ct, x: 3 * x * x * ct, (np.array(1.5),)),
    "a python float": (lambda x: float(x) ** 3, lambda ct, x: 3 * float(x) ** 2 * ct, (1.5,)),
    "a list": (lambda x: x * x, lambda ct, x: 2 * x * ct, ([1.0, 2.0],)),
    "an index": (lambda x, index: x[index], gather_vjp, (X, np.array([0, 2, 0]))),
    "a boolean": (
        lambda x, mask: x * mask, lambda ct, x, mask: (ct * mask, None), (X, X > 0),
    ),
    "broadcast": (
        lambda x, y: x[:, None] * y,
        lambda ct, x, y: ((ct * y).sum(axis=1), (ct * x[:, None]).sum(axis=0)),
        (X, Y),
    ),
    "no batch axis": (lambda x: np.diag(x)[1] * x, lambda ct, x: 2 * np.diag(x)[1] * ct, (X,)),
}  # fmt: skip


@pytest.mark.slow(keep=8, rest=16)
@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("name", RIGHT)
def test_a_right_vjp_passes_and_one_that_is_a_thousandth_off_fails(name, dtype):
    forward, vjp, primals = RIGHT[name]
    if dtype == "float32":
        if "python" in name or name == "a list":
            pytest.skip("Python numbers are float64")
        primals = [p.astype(dtype) if p.dtype.kind == "f" else p for p in primals]
    for full in (False, True):
        found = check(forward, vjp, *primals, full=full)
        assert set(words(found).values()) == {"pass"}, str(found)
        assert found.ok
        assert found.dtype == dtype
        assert bool(found) is True
    wrong = check(forward, times(1.001, vjp), *primals)
    assert set(words(wrong).values()) == {"fail"}, str(wrong)
    assert bool(wrong) is False
    assert wrong.verdict is Verdict.FAIL


@pytest.mark.slow(keep=1)
@pytest.mark.parametrize("wrong", [0, 1])
def test_the_gradient_that_is_wrong_is_named_after_forwards_argument(wrong):
    def forward(gate, up):
        return gate * up

    def vjp(ct, a, b):
        gradients = [ct * b, ct * a]
        gradients[wrong] = gradients[wrong] * 2
        return tuple(gradients)

    found = words(check(forward, vjp, X, Y))
    assert found == {("gate", "up")[wrong]: "fail", ("up", "gate")[wrong]: "pass"}


@pytest.mark.parametrize(
    ("forward", "names"),
    [
        (lambda x, y, eps=1e-5: x * y, ["x", "y"]),
        (lambda *xs: xs[0] * xs[1], ["primal0", "primal1"]),
        (np.multiply, ["primal0", "primal1"]),
    ],
)
def test_the_names_come_from_the_signature_where_it_has_some(forward, names):
    found = check(forward, lambda ct, x, y: (ct * y, ct * x), X, Y)
    if forward is np.multiply:  # a later NumPy may give its ufuncs a signature
        assert set(words(found).values()) == {"pass"}
    else:
        assert list(words(found)) == names


@pytest.mark.parametrize("function", [check, assert_vjp])
def test_an_unknown_keyword_is_pointed_to_attrs(function):
    with pytest.raises(TypeError) as error:
        function(np.tanh, np.tanh, X, eps=1e-5)
    assert str(error.value) == (
        f"{function.__name__}() got an unexpected keyword argument 'eps'; pass attributes of "
        "forward and vjp as attrs={'eps': 1e-05}"
    )
    with pytest.raises(TypeError, match=r"'sead' \(did you mean 'seed'\?\); "):
        function(np.tanh, np.tanh, X, sead=1)
    with pytest.raises(TypeError) as error:
        function(np.tanh, np.tanh, X, values=np.zeros(10_000))
    assert len(str(error.value)) < 300


def test_attributes_reach_both_functions():
    def forward(x, *, k):
        return x**k

    def vjp(ct, x, *, k):
        return k * x ** (k - 1) * ct

    assert check(forward, vjp, X, attrs={"k": 3}).ok
    assert words(check(forward, lambda ct, x, *, k: 2 * x * ct, X, attrs={"k": 3})) == {"x": "fail"}
    found = check(forward, vjp, X)
    assert words(found) == {"forward": "error"}
    assert "missing 1 required keyword-only argument: 'k'" in found.findings[0].reason


def test_the_cotangents_come_from_the_seed():
    def cotangents(seed, full=True):
        seen = []
        check(np.tanh, lambda ct, x: seen.append(ct.copy()) or ct * (1 - np.tanh(x) ** 2), X,
              seed=seed, full=full)  # fmt: skip
        return np.stack(seen[: 4 if full else 2])

    for full in (False, True):
        np.testing.assert_array_equal(cotangents(1, full), cotangents(1, full))
        assert not np.array_equal(cotangents(1, full)[0], cotangents(2, full)[0])
    np.testing.assert_array_equal(cotangents(1)[2], np.ones(3))


@pytest.mark.parametrize("kept", [60, 59])
def test_a_check_that_comes_again_draws_the_same_cotangents(kept, monkeypatch):
    monkeypatch.setattr("gradcheck.api.elementwise_check.KEPT", kept)
    x = np.linspace(-2.0, 2.0, 60)

    def asked(seed):
        seen = []

        def recorded(ct, x):
            seen.append(ct.tobytes())
            return 2 * x * ct

        assert check(lambda x: x**2, recorded, x, seed=seed, full=True).ok
        return seen[:4]

    first = asked(0)
    assert first == asked(0)
    assert first[:2] != asked(1)[:2]
    assert first[0] == first[3]
    assert len(set(first)) == 3


def test_a_vjp_that_writes_over_its_cotangent_does_not_spoil_the_next_check():
    x = np.linspace(-2.0, 2.0, 60)

    def overwrites(ct, x):
        ct.flags.writeable = True
        ct[:] = 7.0
        return 2 * x * ct

    assert check(lambda x: x**2, overwrites, x, full=True, explain=False).verdict is Verdict.ERROR
    assert check(lambda x: x**2, lambda ct, x: 2 * x * ct, x, full=True).ok


def test_the_primals_of_the_caller_are_left_alone():
    x = X.copy()
    check(lambda x: x * x, lambda ct, x: 2 * x * ct, x)
    np.testing.assert_array_equal(x, X)


# ── what is refused ──────────────────────────────────────────────────────────────────────────


class Tensor:
    """What NumPy has no dtype for, as a tensor of bfloat16."""

    def __array__(self, *_, **__):
        raise TypeError("unsupported BFloat16")


@pytest.mark.parametrize(
    ("primals", "message"),
    [
        ((X, X.astype(np.complex64)), "the primals mix complex64 and float64: give them one prec"),
        ((Tensor(),), "primal 0 is not an array: unsupported BFloat16"),
        ((X.astype(np.longdouble),), "pass float64 or float32"),
        ((X, X.astype(np.float16)), "the primals mix float16 and float64: give them one dtype"),
        ((X, X.astype(np.float32)), "the primals mix float32 and float64: give them one dtype"),
        ((np.array([1, 2]),), "no floating primal: there is nothing to differentiate by"),
        ((), "no floating primal"),
        ((None,), "primal 0 is object"),
        (("text",), "primal 0 is <U4"),
        (([[1.0], [1.0, 2.0]],), "primal 0 is not an array"),
    ],
)
def test_primals_that_have_no_derivative_here_are_the_users_mistake(primals, message):
    for function in (check, assert_vjp):
        with pytest.raises(UsageError, match=re.escape(message)):
            function(lambda *xs: xs[0], lambda ct, *xs: ct, *primals)


def test_nothing_to_compare_is_no_pass():
    found = check(lambda x: x * 2, lambda ct, x: ct * 2, np.zeros((0, 3)))
    assert words(found) == {"x": "invalid"}
    assert not found


# ── functions that misbehave ─────────────────────────────────────────────────────────────────


def test_a_forward_that_draws_is_named():
    rng = np.random.default_rng(0)
    found = check(lambda x: x * rng.normal(size=3), lambda ct, x: ct, X)
    assert words(found) == {"forward": "error"}
    assert "forward is not deterministic" in found.findings[0].reason
    assert "random mask" in found.findings[0].reason


@pytest.mark.parametrize(
    "function", [lambda x: x / 0, lambda x: np.log(x - x), lambda x: x * np.nan]
)
def test_a_forward_that_is_not_finite_has_no_derivative_to_judge_by(function):
    found = check(function, lambda ct, x: ct, X)
    assert words(found) == {"forward": "inconclusive"}
    assert "3 of forward's values are not finite here" in found.findings[0].reason


def raising(error):
    def function(*args):
        raise error

    return function


@pytest.mark.parametrize("error", [ValueError("bad shape"), SystemExit(2), AssertionError()])
def test_a_function_that_raises_is_an_error_of_that_function(error):
    assert words(check(raising(error), lambda ct, x: ct, X)) == {"forward": "error"}
    assert words(check(np.tanh, raising(error), X)) == {"vjp": "error"}


@pytest.mark.slow(keep=1)
@pytest.mark.parametrize("error", [RuntimeError("negative"), KeyError(-1), SystemExit(1)])
def test_a_forward_may_refuse_points_beside_the_primals_in_any_way(error):
    def forward(x):
        if not np.all(x > 0):  # NaN too
            raise error
        return np.sqrt(x)

    x = np.array([0.5, 2.0])
    assert words(check(forward, lambda ct, x: ct / (2 * np.sqrt(x)), x)) == {"x": "pass"}
    assert words(check(forward, lambda ct, x: ct / np.sqrt(x), x)) == {"x": "fail"}


@pytest.mark.slow(keep=1)
@pytest.mark.parametrize(
    ("vjp", "expected"),
    [
        (lambda ct, x, y: (None, ct * x), {"x": "missing", "y": "pass"}),
        (lambda ct, x, y: (ct * y, np.float32(1)), {"x": "pass", "y": "fail"}),
        (lambda ct, x, y: (ct * y, np.full(3, np.nan)), {"x": "pass", "y": "fail"}),
        (lambda ct, x, y: ct * y, {"vjp": "error"}),
        (lambda ct, x, y: (ct, x, y), {"vjp": "error"}),
    ],
)
def test_a_broken_contract_has_its_verdict(vjp, expected):
    assert words(check(lambda x, y: x * y, vjp, X, Y)) == expected


# ── float32 ──────────────────────────────────────────────────────────────────────────────────


def insists(x):
    assert x.dtype == np.float32
    return np.tanh(x)


def leaves(x):
    if x.dtype != np.float32:
        raise SystemExit
    return np.tanh(x)


@pytest.mark.slow(keep=2)
@pytest.mark.parametrize(
    "forward", [np.tanh, lambda x: np.tanh(x.astype(np.float32)), insists, leaves]
)
@pytest.mark.parametrize("seed", range(3))
def test_float32_is_judged_whether_or_not_forward_can_be_promoted(forward, seed):
    x = np.random.default_rng(seed).normal(size=7).astype(np.float32)

    def vjp(ct, x):
        return ct * (1 - np.tanh(x) ** 2)

    assert words(check(forward, vjp, x)) in ({"x": "pass"}, {"primal0": "pass"})
    found = check(forward, times(np.float32(1.05), vjp), x)
    assert found.verdict is Verdict.FAIL
    assert found.dtype == "float32"


def test_a_promoted_forward_shows_more_than_float32_can():
    x = np.random.default_rng(0).normal(size=7).astype(np.float32)
    wide, narrow = (
        check(forward, lambda ct, x: ct * (1 - np.tanh(x) ** 2), x).findings[0]
        for forward in (np.tanh, insists)
    )
    assert wide.unresolved < narrow.unresolved
    assert wide.error_bar < narrow.error_bar
    assert wide.smallest_visible_error < 5e-4


# ── a wider bound ────────────────────────────────────────────────────────────────────────────

TABLE = Slack(ulp=4e9, because="tanh is looked up in a table of float32")


def rounded_inside(ct, x):
    return ct * (1 - np.tanh(x) ** 2) * (1 + 3e-7)


@pytest.mark.parametrize("wider", [64, {"ulp": 4}, "a table", True])
def test_a_wider_bound_that_gives_no_reason_is_refused(wider):
    for function in (check, assert_vjp):
        with pytest.raises(UsageError, match=r"^wider is a \w+: pass gradcheck\.Slack\(ulp=…, bec"):
            function(np.tanh, rounded_inside, X, wider=wider)


@pytest.mark.slow(keep=1)
@pytest.mark.parametrize("full", [False, True])
def test_a_wider_bound_is_used_where_it_is_needed_and_said(full):
    assert words(check(np.tanh, rounded_inside, X, full=full)) == {"x": "fail"}
    found = check(np.tanh, rounded_inside, X, full=full, wider=TABLE)
    text = "by a tolerance 4e+09 ulp wider: tanh is looked up in a table of float32"
    assert (words(found), found.findings[0].slack) == ({"x": "pass"}, text)
    head, table = str(found).split("\n\n")
    assert head.startswith(f"PASS rounded_inside · dx, float64\n  {text}\n  dx[")
    assert " > " not in head
    lines = table.splitlines()
    assert lines[0].endswith("  allowed by")
    assert lines[2].endswith("  a tolerance 4e+09 ulp wider")
    assert assert_vjp(np.tanh, rounded_inside, X, full=full, wider=TABLE) is None


def test_a_wider_bound_hides_no_more_than_it_says():
    small = Slack(ulp=10, because=TABLE.because)
    found = check(np.tanh, rounded_inside, X, wider=small)
    assert words(found) == {"x": "fail"}
    assert "a tolerance 10 ulp wider: tanh is looked up" in str(found)
    huge = check(np.tanh, rounded_inside, X, wider=Slack(ulp=1e16, because=TABLE.because))
    assert words(huge) == {"x": "inconclusive"}
    assert "their tolerances are a tenth of the gradient, or more" in huge.findings[0].reason


def test_a_wider_bound_that_nothing_needs_leaves_no_trace():
    def right(ct, x):
        return ct * (1 - np.tanh(x) ** 2)

    assert str(check(np.tanh, right, X, wider=TABLE)) == str(check(np.tanh, right, X))


# ── the text ─────────────────────────────────────────────────────────────────────────────────


def test_a_result_prints_as_a_table_with_the_answer_first():
    def my_vjp(ct, x, y):
        return ct * y, 2 * ct * x

    found = check(lambda x, y: x * y, my_vjp, X, Y)
    assert isinstance(found, Result)
    text = str(found)
    first, what, value, *_ = text.splitlines()
    assert first == "FAIL my_vjp · dy, float64"
    assert what == "  dy is twice the right value (scale; wrong at all 4 inputs tried)"
    assert re.fullmatch(
        r"  dy\[\d] got \S+, expected \S+: rel. err 0.5 > tol \S+; 9 of 9 elements fail", value
    )
    first, *lines = found.details().splitlines()
    assert first == "FAIL my_vjp, float64: dy: scale: dy is twice the right value"
    assert "  reason: 9 of 9 elements are outside the tolerance" in lines
    assert re.search(r"dx +PASS", text)
    assert re.search(r"dy +FAIL", text)


def test_a_pass_shows_no_error_beyond_what_was_allowed():
    def noisy(x):  # 50 digits leak, and the noise is known to a tenth of the bound
        return np.frombuffer((np.tanh(x) + 1e4 - 1e4).tobytes())

    x = np.random.default_rng(0).normal(size=6)
    found = check(noisy, lambda ct, x: ct * (1 - np.tanh(x) ** 2) * (1 + 1.15e-8), x, full=True)
    worst = found.findings[0].worst[0]
    assert found.ok
    assert worst.error > worst.bound
    assert re.search(r"PASS +1\.\de-08 ≤ 2\.\de-08", str(found))


def test_an_assertion_carries_the_failure_and_a_pass_returns_nothing():
    assert assert_vjp(np.tanh, lambda ct, x: ct * (1 - np.tanh(x) ** 2), X) is None

    def doubled(ct, x):
        return 2 * ct * (1 - np.tanh(x) ** 2)

    with pytest.raises(AssertionError) as caught:
        assert_vjp(np.tanh, doubled, X)
    text = str(caught.value)
    assert text == str(check(np.tanh, doubled, X))
    assert "FAIL doubled" in text
    assert "; 9 of 9 elements fail\n" in text


def test_what_is_not_a_pass_fails_the_assertion():
    with pytest.raises(AssertionError, match="INCONCLUSIVE"):
        assert_vjp(lambda x: x / 0, lambda ct, x: ct, X)
    with pytest.raises(AssertionError, match="INVALID"):
        assert_vjp(lambda x: x, lambda ct, x: ct, np.zeros(0))


def test_the_examples_in_the_documentation_run():
    assert doctest.testmod(gradcheck.api.check).failed == 0
    assert doctest.testmod(gradcheck.api.check).attempted >= 3


def test_a_wrong_gradient_beyond_the_range_of_float32_fails_without_a_warning():
    x = np.array([1.0, -2.0, 3.0]) * 1e150
    assert check(lambda x: 3 * x, lambda ct, x: 3 * ct, x).ok
    assert check(lambda x: 3 * x, lambda ct, x: 4 * ct, x, explain=False).verdict is Verdict.FAIL


def test_a_forward_with_noise_of_its_own_does_not_pass():
    noise = np.random.default_rng(0)
    x = np.array([0.5, -1.0, 2.0])
    found = check(
        lambda x: np.sin(x) + 1e-12 * noise.normal(size=x.shape), lambda ct, x: ct * np.cos(x), x
    )
    assert found.verdict is Verdict.ERROR
    assert "not deterministic" in str(found)


@pytest.mark.parametrize("verdict", Verdict)
@pytest.mark.parametrize("raises", ["forward", "vjp"])
def test_a_verdict_that_the_code_gives_itself_is_an_error(verdict, raises):
    def says(*_):
        raise Broken(Finding(name="x", verdict=verdict))

    functions = {"forward": lambda x: x**2, "vjp": lambda ct, x: 2 * x * ct, raises: says}
    found = check(functions["forward"], functions["vjp"], np.array([0.3, 1.7]))
    assert [(f.name, f.verdict) for f in found.findings] == [(raises, Verdict.ERROR)]


def test_the_verdict_may_be_asked_for_alone():
    x, asked = np.array([0.3, -1.2, 2.1]), []

    def wrong(ct, x):
        asked.append(x)
        return 2 * ct * np.cos(x)

    told = check(np.sin, wrong, x)
    times = len(asked)
    alone = check(np.sin, wrong, x, explain=False)
    assert told.findings[0].diagnosis is not None
    assert (alone.verdict, alone.findings[0].diagnosis) == (told.verdict, None)
    assert alone.findings[0].failed == told.findings[0].failed
    assert len(asked) - times < times


def test_an_attribute_may_be_called_as_an_argument_of_the_engine_is():
    def forward(x, function, lead):
        return function * x**lead

    def vjp(ct, x, function, lead):
        return ct * function * lead * x ** (lead - 1)

    attrs = {"function": 3.0, "lead": 2}
    assert check(forward, vjp, np.array([0.5, -1.25, 2.0]), attrs=attrs)


@pytest.mark.parametrize("columns", [8, 64, 512])
def test_a_gradient_of_another_shape_fails_at_any_size(columns):
    rng = np.random.default_rng
    x, w = rng(0).normal(size=(6, columns)), rng(1).normal(size=columns)
    found = check(lambda x, w: x * w, lambda ct, x, w: (ct * w, ct * x), x, w)
    assert not found.ok
    assert f"dw has shape (6, {columns})" in found.details()
    assert check(lambda x, w: x * w, lambda ct, x, w: (ct * w, (ct * x).sum(0)), x, w).ok


@pytest.mark.parametrize("full", [False, True])
def test_a_row_of_zeros_is_seen_where_all_primals_are_equal(full):
    x = np.ones((64, 16))
    for row in (8, 11, 30, 55):

        def lost(ct, x, row=row):
            g = np.repeat(ct[:, None], 16, 1) / 16
            g[row] = 0
            return g

        found = check(lambda x: x.mean(-1), lost, x, full=full, explain=False)
        assert found.findings[0].verdict is Verdict.FAIL, row
    right = check(lambda x: x.mean(-1), lambda ct, x: np.repeat(ct[:, None], 16, 1) / 16, x)
    assert right.ok
