import numpy as np
import pytest
from gradcheck_cases import SUITE

import gradcheck
from gradcheck.errors import LoadError, Unsupported
from gradcheck.implementations.jax import Jax, jax_op
from gradcheck.implementations.python import Python
from gradcheck.judge.model import judge_model
from gradcheck.judge.model_truth import ModelTruth
from gradcheck.judge.operator import CaseTruth, judge_case
from gradcheck.numerics.arrays import dtype_named
from tests.implementations.tables import case_of, imported
from tests.implementations.tables import judged as findings

jax = pytest.importorskip("jax")
pytestmark = pytest.mark.frameworks
jnp = jax.numpy

DTYPES = ["float64", "float32"]


def table_of(entries):
    return imported(entries, lambda word: Python(word, SUITE.operators, SUITE.models))


def judged(entries, op, dialect, dtype="float64", sample="typical"):
    return findings(table_of(entries), case_of(op, dialect, sample), dtype)


def verdicts(found):
    return {name: finding.verdict.value for name, finding in found.items()}


def rms_norm(change=lambda dx, dw: (dx, dw)):
    """A custom VJP whose rule returns `change` of the right gradients."""

    @jax.custom_vjp
    def rms_norm(x, w):
        return forward(x, w)[0]

    def forward(x, w):
        r = jax.lax.rsqrt(jnp.mean(x * x, axis=-1, keepdims=True) + 1e-5)
        return x * r * w, (x, w, r)

    def backward(saved, g):
        x, w, r = saved
        n = x * r
        dx = r * (g * w - n * jnp.mean(g * w * n, axis=-1, keepdims=True))
        return change(dx, jnp.sum((g * n).reshape(-1, len(w)), axis=0))

    rms_norm.defvjp(forward, backward)
    return rms_norm


PASS = {"forward": "pass", "x": "pass", "w": "pass"}


@pytest.mark.frameworks
@pytest.mark.parametrize("dtype", DTYPES)
def test_a_custom_vjp_is_judged_by_its_own_rule(dtype):
    right = {"rms_norm/weight": rms_norm()}
    wrong = {"rms_norm/weight": rms_norm(lambda dx, dw: (dx, dw / 2))}
    assert verdicts(judged(right, "rms_norm", "weight", dtype)) == PASS
    assert verdicts(judged(wrong, "rms_norm", "weight", dtype)) == {**PASS, "w": "fail"}


@pytest.mark.frameworks
@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda dx, dw: (dx,), "must produce a tuple"),
        (lambda dx, dw: (dx, dw[None]), "shape"),
    ],
)
def test_a_rule_of_another_form_is_refused_in_jaxs_words(change, words):
    found = judged({"rms_norm/weight": rms_norm(change)}, "rms_norm", "weight")
    assert found["forward"].verdict == "pass"
    assert found["vjp"].verdict == "error"
    assert words in found["vjp"].reason


@pytest.mark.frameworks
def test_a_rule_that_narrows_is_told_by_its_dtype():
    entries = {"rms_norm": rms_norm(lambda dx, dw: (dx, dw.astype("float32")))}
    found = judged(entries, "rms_norm", "weight")
    assert verdicts(found) == {**PASS, "w": "fail"}
    assert "the gradient of w is float32, w is float64" in found["w"].reason


@pytest.mark.frameworks
def test_none_in_a_rule_is_zero_as_jax_has_it():
    found = judged({"rms_norm": rms_norm(lambda dx, dw: (dx, None))}, "rms_norm", "weight")
    assert verdicts(found) == {**PASS, "w": "fail"}
    assert found["w"].got == 0


@pytest.mark.frameworks
def test_jaxs_own_functions_and_jitted_ones_need_no_wrapper():
    for entry in (jnp.tanh, jax.nn.tanh, jax.jit(lambda x: 1 * jnp.tanh(x)), jax.lax.tanh):
        assert verdicts(judged({"tanh": entry}, "tanh", "default")) == {
            "forward": "pass", "x": "pass"
        }  # fmt: skip
    # A bare function is a VJP; this one takes no cotangent.
    found = verdicts(judged({"tanh": lambda x: 1 * jnp.tanh(x)}, "tanh", "default"))
    assert "pass" not in found.values()


@pytest.mark.frameworks
@pytest.mark.parametrize("jit", [False, True])
@pytest.mark.parametrize("dtype", DTYPES)
def test_a_wrapped_function_compiled_or_not(jit, dtype):
    def gelu(x, form):
        return jax.nn.gelu(x, approximate=form == "tanh")

    for dialect in ("tanh", "erf"):
        found = judged({"gelu": gradcheck.jax_op(gelu, jit=jit)}, "gelu", dialect, dtype)
        assert verdicts(found) == {"forward": "pass", "x": "pass"}
    (only,) = judged({"gelu": gradcheck.jax_op(gelu, jit=jit)}, "gelu", "gemma").values()
    assert only.verdict == "unsupported"
    assert "gelu takes no 'root'" in only.reason


@pytest.mark.frameworks
def test_a_narrower_answer_says_what_to_do():
    held = jnp.ones(3)  # made while 64-bit types are off
    for function in (lambda x: jnp.tanh(x.astype("float32")), lambda x: held):
        found = judged({"tanh": gradcheck.jax_op(function)}, "tanh", "default")
        assert verdicts(found) == {"forward": "fail"}
        assert "returned float32 for float64" in found["forward"].reason
        assert "JAX_ENABLE_X64=1" in found["forward"].reason


@pytest.mark.frameworks
def test_64_bits_are_on_for_the_call_alone_and_only_where_they_are_needed():
    seen = []

    def tanh(x):
        seen.append((str(x.dtype), str(jnp.arange(2.0).dtype)))
        return jnp.tanh(x)

    op = gradcheck.jax_op(tanh)
    for dtype in DTYPES:
        x = np.ones(2, dtype)
        assert op.forward(x).dtype == dtype
        assert op.vjp(x, x).dtype == dtype
    assert seen == [("float64", "float64")] * 2 + [("float32", "float32")] * 2
    assert not jax.config.jax_enable_x64


@pytest.mark.frameworks
@pytest.mark.parametrize("dtype", [*DTYPES, "float16", "bfloat16"])
def test_arrays_of_any_layout_and_size_arrive_as_they_are(dtype):
    x = np.arange(12.0).reshape(3, 4).astype(dtype_named(dtype))
    op = gradcheck.jax_op(lambda x: x * 1)
    broadcast = np.broadcast_to(x[0], (3, 4))
    for given in (x, x.T, x[::2, ::2], x[::-1], broadcast, x[:0], np.array(x[0, 0])):
        sealed = given.view()
        sealed.flags.writeable = False
        out, gradient = op.forward(sealed), op.vjp(sealed, sealed)
        for array in (out, gradient):
            assert (array.dtype, array.shape) == (given.dtype, given.shape)
            assert array.tobytes() == given.tobytes()


@pytest.mark.frameworks
def test_several_outputs_have_several_cotangents_and_indices_none():
    def both(x, i):
        return x[i] * 2, x * x

    op = gradcheck.jax_op(both)
    x, i = np.array([3.0, -1.0]), np.array([0, 0])
    y, z = op.forward(x, i)
    assert (y.tolist(), z.tolist()) == ([6, 6], [9, 1])
    dx, di = op.vjp((np.array([1.0, 10.0]), np.array([100.0, 1000.0])), x, i)
    assert dx.tolist() == [22 + 600, -2000]
    assert di is None


@pytest.mark.frameworks
def test_only_what_is_asked_for_is_differentiated():
    seen = []

    @jax.custom_jvp
    def product(x, w):
        return x * w

    @product.defjvp
    def _(primals, tangents):
        seen.append(tuple(type(t).__name__ for t in tangents))
        (x, w), (dx, dw) = primals, tangents
        return x * w, dx * w + x * dw

    op = gradcheck.jax_op(product)
    x, w, ct = np.arange(3.0), np.arange(1.0, 4.0), np.ones(3)
    dx, dw = op.asked((True, True), ct, x, w)
    assert op.asked((True, False), ct, x, w)[1] is None
    np.testing.assert_array_equal(op.asked((True, False), ct, x, w)[0], dx)
    np.testing.assert_array_equal(op.asked((False, True), ct, x, w)[1], dw)
    assert op.asked((False, False), ct, x, w) == (None, None)


@pytest.mark.frameworks
@pytest.mark.parametrize(
    ("function", "words"),
    [
        (lambda x: None, "returned a NoneType; return an array, or a tuple"),
        (lambda x: float(x.sum()), "returned a float"),
        (lambda x: {"y": x}, "returned a dict"),
    ],
)
def test_something_else_than_arrays_is_named(function, words):
    found = judged({"tanh": gradcheck.jax_op(function)}, "tanh", "default")
    assert found["forward"].verdict == "error"
    assert words in found["forward"].reason


@pytest.mark.frameworks
def test_leaving_jax_is_an_error_in_jaxs_words():
    entries = {"tanh": gradcheck.jax_op(lambda x: jnp.asarray(np.tanh(np.asarray(x))))}
    found = judged(entries, "tanh", "default")
    assert verdicts(found) == {"forward": "pass", "vjp": "error"}
    assert "TracerArrayConversionError" in found["vjp"].reason


@pytest.mark.frameworks
def test_a_write_into_the_cotangent_cannot_happen_for_arrays_are_copies():
    op = gradcheck.jax_op(jnp.tanh)
    x, ct = np.ones(3), np.ones(3)
    before = (x.tobytes(), ct.tobytes())
    op.vjp(ct, x)
    assert (x.tobytes(), ct.tobytes()) == before


@pytest.mark.frameworks
def test_check_takes_what_jax_op_gives():
    x = np.linspace(-2, 2, 9)
    right, wrong = gradcheck.jax_op(jnp.tanh), gradcheck.jax_op(jnp.sin)
    assert gradcheck.check(right.forward, right.vjp, x).ok
    assert gradcheck.check(right.forward, wrong.vjp, x).verdict == "fail"


@pytest.mark.frameworks
def test_what_is_no_function_or_not_here_is_refused():
    with pytest.raises(LoadError, match="a int is no function of JAX's arrays"):
        gradcheck.jax_op(3)
    op = gradcheck.jax_op(jnp.tanh, device="tpu")
    with pytest.raises(Unsupported, match="tanh is to run on tpu; JAX has no such device here"):
        op.vjp(np.ones(3), np.ones(3))


@pytest.mark.frameworks
@pytest.mark.parametrize("jit", [False, True])
def test_a_function_is_a_models_loss_through_jax_grad(jit):
    def loss(params, inputs):
        predicted = inputs["x"] @ params["w"].T + params["b"]
        return jnp.mean(jnp.square(predicted - inputs["y"]))

    (case,) = SUITE.model_cases(["linear_regression"], sizes=["tiny"])
    truth = ModelTruth(case)
    for factor, verdict in ((1, "pass"), (2, "fail")):

        def scaled(params, inputs, factor=factor):
            return loss(params, inputs) * factor

        binding = table_of({"linear_regression": gradcheck.jax_op(scaled, jit=jit)})
        for dtype in DTYPES:
            found = verdicts({f.name: f for f in judge_model(truth, binding, dtype).findings})
            assert {found[name] for name in ("w", "b")} == {verdict}


PEERS = SUITE.peers["jax"]
BOUND = Jax(PEERS)


@pytest.fixture
def peers():
    """Bind a table of functions of JAX's arrays."""
    return lambda table: imported(table, lambda word: Jax([word]))


@pytest.mark.frameworks(rest=40)  # `gradcheck run --impl jax` judges all in float64
@pytest.mark.parametrize("op", list(SUITE.operators))
def test_jax_is_right_on_the_first_case_of_every_operator(op):
    case = SUITE.cases([op])[0]
    found = judge_case(CaseTruth(case), BOUND, "float32")
    assert [f.name for f in found] == [
        "forward",
        *(n for n, p in zip(case.primal_names, case.primals, strict=True) if p.dtype.kind == "f"),
    ]
    assert {(f.verdict.value, f.reason) for f in found} == {("pass", "")}


def test_every_operator_has_a_counterpart():
    missing = {c.spec.name for c in SUITE.cases() if BOUND.bind(c, "float64") is None}
    assert missing == set()


@pytest.mark.parametrize("dtype", DTYPES)
def test_another_function_and_a_wrong_rule_are_told_apart(peers, dtype):
    @jax.custom_vjp
    def halved(x):
        return jnp.tanh(x)

    halved.defvjp(lambda x: (jnp.tanh(x), x), lambda x, ct: (ct * (1 - jnp.tanh(x) ** 2) / 2,))
    case = case_of("tanh", "default")
    verdicts = {
        name: [f.verdict.value for f in findings(peers({"tanh": function}), case, dtype).values()]
        for name, function in {
            "right": jnp.tanh, "another function": jnp.sin, "wrong rule": halved,
        }.items()
    }  # fmt: skip
    assert verdicts == {
        "right": ["pass", "pass"],
        "another function": ["fail", "fail"],
        "wrong rule": ["pass", "fail"],
    }


def test_value_and_gradients_come_from_one_compilation(peers):
    traced = []

    def tanh(x):
        traced.append(x.shape)
        return jnp.tanh(x)

    case = case_of("tanh", "default")
    assert {f.verdict.value for f in findings(peers({"tanh": tanh}), case, "float64").values()} == {
        "pass"
    }
    assert len(traced) == 2  # for the shapes of its outputs, and for the program


def test_a_dialect_of_its_own_comes_before_the_operator_and_others_are_unbound(peers):
    binding = peers({"gelu": jnp.tanh, "gelu/erf": lambda x, form, root: jax.lax.erf(x)})
    case = case_of("gelu", "erf")
    out = binding.bind(case, "float64").forward(*case.primals, **case.attrs)
    with jax.enable_x64(True):
        np.testing.assert_array_equal(out, jax.lax.erf(jnp.asarray(case.primals[0])))
    assert binding.bind(case_of("tanh", "default"), "float64") is None
    (model,) = SUITE.model_cases(["quadratic"], sizes=["tiny"])
    assert binding.bind_model(model, "float64") is None


def test_without_a_table_there_is_nothing_to_bind():
    with pytest.raises(LoadError, match="the suite has no JAX counterparts"):
        Jax(())
    with pytest.raises(LoadError, match="importing no_such_peers raised"):
        Jax(["no_such_peers:OPERATORS"])


def test_an_unknown_option_of_the_compiler_is_done_without(monkeypatch, peers):
    monkeypatch.setattr("gradcheck.implementations.jax.QUICKLY", {"xla_no_such_option": 1})
    binding = peers({"tanh": jnp.tanh})
    assert binding.options == {}
    found = findings(binding, case_of("tanh", "default"), "float32")
    assert {f.verdict.value for f in found.values()} == {"pass"}


# What JAX's own functions get wrong, and the table of counterparts goes around.
FINDINGS = {
    "elu: expm1 + 1 for exp": ("elu", "default", "saturated", "float32", jax.nn.elu),
    "x / y: y squared": ("div", "same-shape", "huge", "float32", jnp.divide),
    "power of 0.0: 0 * inf": (
        "pow", "integer", "exponent-0", "float64", lambda x, **to: jnp.power(x, to["exponent"]),
    ),
    "norm: NaN at 0": (
        "l2_norm", "default", "zero-vector", "float64", lambda x: jnp.linalg.norm(x, axis=-1),
    ),
}  # fmt: skip


@pytest.mark.skipif(not jax.__version__.startswith("0.10."), reason="found in JAX 0.10")
@pytest.mark.parametrize("name", FINDINGS)
def test_what_jax_itself_gets_wrong_is_seen(peers, name):
    op, dialect, sample, dtype, function = FINDINGS[name]
    case = case_of(op, dialect, sample)
    found = findings(peers({op: function}), case, dtype)
    assert found.pop("forward").verdict == "pass"
    assert "fail" in {f.verdict.value for f in found.values()}
    own = findings(BOUND, case, dtype)
    assert {f.verdict.value for f in own.values()} == {"pass"}


@pytest.mark.skipif(not jax.__version__.startswith("0.10."), reason="found in JAX 0.10")
def test_jaxs_attention_is_float32_for_float64():
    def attention(q, k, v):
        q, k, v = (x[None, :, None, :] for x in (q, k, v))
        return jax.nn.dot_product_attention(q, k, v)[0, :, 0, :]

    def wanted(q, k, v):
        scores = q @ k.T / 2
        e = np.exp(scores - scores.max(-1, keepdims=True))
        return e / e.sum(-1, keepdims=True) @ v

    draw = np.random.default_rng(0)
    q, k, v = (draw.normal(size=(2, 4)) for _ in range(3))
    result = gradcheck.check(wanted, jax_op(attention, jit=True).vjp, q, k, v, explain=False)
    assert result.verdict == "fail"


ON_KINKS = [
    case
    for case in SUITE.cases()
    if case.sample.at_kink
    and any("JAX" in c.systems for kink in case.spec.kinks for c in kink.conventions)
]


@pytest.mark.parametrize("case", ON_KINKS, ids=lambda case: case.name)
def test_on_kinks_jax_does_what_the_suite_says_it_does(case):
    found = judge_case(CaseTruth(case, "JAX"), BOUND, "float64")
    assert {(f.verdict.value, f.reason) for f in found} == {("pass", "")}
