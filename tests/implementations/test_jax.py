import sys
from types import ModuleType

import numpy as np
import pytest
from gradcheck_cases import SUITE

import gradcheck
from gradcheck.errors import LoadError
from gradcheck.implementations.jax import Jax
from gradcheck.implementations.jax_op import jax_op
from gradcheck.judge.operator import CaseTruth, judge_case

jax = pytest.importorskip("jax")
pytestmark = pytest.mark.frameworks
jnp = jax.numpy

DTYPES = ["float64", "float32"]
PEERS = SUITE.peers["jax"]
BOUND = Jax(PEERS)


def case_of(op, dialect, sample="typical"):
    (case,) = SUITE.cases([op], [dialect], [sample])
    return case


def judged(binding, case, dtype):
    return {f.name: f for f in judge_case(CaseTruth(case), binding, dtype)}


@pytest.fixture
def peers(monkeypatch):
    """Bind a table of functions of JAX's arrays."""

    def bound(table):
        module = ModuleType("my_jax_peers")
        module.OPERATORS = table
        monkeypatch.setitem(sys.modules, "my_jax_peers", module)
        return Jax(["my_jax_peers:OPERATORS"])

    return bound


@pytest.mark.parametrize("op", list(SUITE.operators))
def test_jax_is_right_on_the_first_case_of_every_operator(op):
    case = SUITE.cases([op])[0]
    truth = CaseTruth(case)
    for dtype in DTYPES:
        found = judge_case(truth, BOUND, dtype)
        assert [f.name for f in found] == [
            "forward",
            *(n for n, p in zip(case.primal_names, case.primals, strict=True)
              if p.dtype.kind == "f"),
        ]  # fmt: skip
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
        name: [f.verdict.value for f in judged(peers({"tanh": function}), case, dtype).values()]
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
    assert {f.verdict.value for f in judged(peers({"tanh": tanh}), case, "float64").values()} == {
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
    found = judged(binding, case_of("tanh", "default"), "float32")
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
    found = judged(peers({op: function}), case, dtype)
    assert found.pop("forward").verdict == "pass"
    assert "fail" in {f.verdict.value for f in found.values()}
    own = judged(BOUND, case, dtype)
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
    q, k, v = (draw.normal(size=(3, 4)) for _ in range(3))
    result = gradcheck.check(wanted, jax_op(attention).vjp, q, k, v)
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
