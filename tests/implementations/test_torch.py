import sys
from types import ModuleType

import numpy as np
import pytest
from gradcheck_cases import SUITE

from gradcheck.errors import LoadError
from gradcheck.implementations.torch import Torch
from gradcheck.judge.operator import CaseTruth, judge_case
from gradcheck.judge.probe import ask_vjp

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.frameworks

DTYPES = ["float64", "float32"]
PEERS = SUITE.peers["torch"]


def case_of(op, dialect, sample="typical"):
    (case,) = SUITE.cases([op], [dialect], [sample])
    return case


def judged(binding, case, dtype):
    return {f.name: f for f in judge_case(CaseTruth(case), binding, dtype)}


@pytest.fixture
def peers(monkeypatch):
    """Bind a table of functions of tensors."""

    def bound(table):
        module = ModuleType("my_peers")
        module.OPERATORS = table
        monkeypatch.setitem(sys.modules, "my_peers", module)
        return Torch(["my_peers:OPERATORS"])

    return bound


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("op", list(SUITE.operators))
def test_pytorch_is_right_on_the_first_case_of_every_operator(op, dtype):
    case = SUITE.cases([op])[0]
    found = judged(Torch(PEERS), case, dtype)
    assert list(found) == [
        "forward",
        *(n for n, p in zip(case.primal_names, case.primals, strict=True) if p.dtype.kind == "f"),
    ]
    assert {(f.verdict.value, f.reason) for f in found.values()} == {("pass", "")}


@pytest.mark.parametrize("dtype", DTYPES)
def test_autograd_through_a_wrong_function_is_told_apart_from_a_wrong_backward(peers, dtype):
    class Halved(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return torch.tanh(x)

        @staticmethod
        def backward(ctx, ct):
            (x,) = ctx.saved_tensors
            return ct * (1 - torch.tanh(x) ** 2) / 2

    case = case_of("tanh", "default")
    verdicts = {
        name: [judged(peers({"tanh": function}), case, dtype)[output].verdict.value
               for output in ("forward", "x")]
        for name, function in {
            "right": torch.tanh, "another function": torch.sin, "wrong backward": Halved.apply,
        }.items()
    }  # fmt: skip
    assert verdicts == {
        "right": ["pass", "pass"],
        "another function": ["fail", "fail"],
        "wrong backward": ["pass", "fail"],
    }


def test_a_dialect_of_its_own_comes_before_the_operator_and_others_are_unbound(peers):
    binding = peers({"gelu": torch.relu, "gelu/erf": lambda x, form, root: torch.erf(x)})
    case = case_of("gelu", "erf")
    out = binding.bind(case, "float64").forward(*case.primals, **case.attrs)
    np.testing.assert_array_equal(out, torch.erf(torch.tensor(case.primals[0])).numpy())
    assert binding.bind(case_of("tanh", "default"), "float64") is None


def test_a_leaf_that_is_not_used_has_a_gradient_of_zeros(peers):
    binding = peers({"add": lambda x, y: x * 1.0})
    case = case_of("add", "residual")
    vjp = binding.bind(case, "float32").vjp
    primals = [p.astype("float32") for p in case.primals]
    ct = np.arange(1, 16, dtype="float32").reshape(3, 5)
    found = ask_vjp(vjp, [(ct,)], primals, ("x", "y"), {}).gradients
    np.testing.assert_array_equal(found["x"], ct.reshape(1, 15))
    np.testing.assert_array_equal(found["y"], np.zeros((1, 15)))


def test_indices_get_none_and_stay_integers(peers):
    def rows(tokens_table, index):
        assert index.dtype == torch.int64
        assert not index.requires_grad
        return tokens_table[index]

    case = case_of("tanh", "default")
    vjp = peers({"tanh": rows}).bind(case, "float64").vjp
    dx, dindex = vjp(np.ones((2, 3)), np.ones((4, 3)), np.array([1, 1]))
    assert dindex is None
    assert dx.tolist() == [[0.0] * 3, [2.0] * 3, [0.0] * 3, [0.0] * 3]


def test_several_outputs_have_several_cotangents(peers):
    vjp = peers({"tanh": lambda x: (x * 2, x * x)}).bind(case_of("tanh", "default"), "float64").vjp
    x = np.array([3.0, -1.0])
    dx = vjp((np.array([1.0, 10.0]), np.array([100.0, 1000.0])), x)
    assert dx.tolist() == [2 + 600, 20 - 2000]


def test_a_function_that_breaks_or_writes_is_an_error_and_writing_touches_a_copy_only(peers):
    def breaks(x):
        raise RuntimeError("no kernel")

    found = judged(peers({"tanh": breaks}), case_of("tanh", "default"), "float64")
    assert found["forward"].verdict == "error"
    assert found["forward"].reason == "forward raised RuntimeError: no kernel"

    def in_place(x):
        with torch.no_grad():
            x.mul_(2)
        return torch.tanh(x)

    case = case_of("tanh", "default")
    before = case.primals[0].copy()
    written = judged(peers({"tanh": in_place}), case, "float64")["forward"]
    assert written.verdict == "error"
    assert "writes into its argument x" in written.reason
    np.testing.assert_array_equal(case.primals[0], before)


def test_without_a_table_there_is_nothing_to_bind():
    with pytest.raises(LoadError, match="the suite has no PyTorch counterparts"):
        Torch(())
    with pytest.raises(LoadError, match="importing no_such_peers raised"):
        Torch(["no_such_peers:OPERATORS"])


def test_later_tables_add_to_earlier_ones(monkeypatch):
    for name, table in (("first", {"a": abs, "b": abs}), ("second", {"b": max})):
        module = ModuleType(name)
        module.T = table
        monkeypatch.setitem(sys.modules, name, module)
    assert Torch(["first:T", "second:T"]).table == {"a": abs, "b": max}


ON_KINKS = [
    case
    for case in SUITE.cases()
    if case.sample.at_kink
    and any("PyTorch" in c.systems for kink in case.spec.kinks for c in kink.conventions)
]


@pytest.mark.parametrize("case", ON_KINKS, ids=lambda case: case.name)
def test_on_kinks_pytorch_does_what_the_suite_says_it_does(case):
    found = judge_case(CaseTruth(case, "PyTorch"), Torch(PEERS), "float64")
    assert {(f.verdict.value, f.reason) for f in found} == {("pass", "")}
