"""PyTorch modules as models: parameters copied in by name, gradients read off `.grad`."""

import sys
from types import ModuleType

import numpy as np
import pytest
from gradcheck_cases import SUITE, indexing, linear, loss

from gradcheck.errors import Unsupported
from gradcheck.implementations.load import load
from gradcheck.implementations.torch import Torch, bound_module
from gradcheck.judge.model import judge_model
from gradcheck.judge.model_truth import ModelTruth
from gradcheck.results.finding import Part
from gradcheck.results.verdict import Verdict
from gradcheck.spec.model import ModelSpec, Size
from gradcheck.spec.program import Program, Stage
from gradcheck.spec.suite import Suite

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.frameworks
nn = torch.nn

DTYPES = ["float64", "float32"]


def build(*, vocab=5, c=3):
    """An embedding whose table classifies too, a layer between them, a square error."""
    return Program(
        params={
            "table": lambda draw: draw.normal(vocab, c),
            "w": lambda draw: draw.normal(c, c),
            "b": lambda draw: draw.normal(c),
        },
        inputs={
            "ids": lambda draw: draw.integers(0, vocab, 4),
            "targets": lambda draw: draw.normal(4, vocab),
        },
        stages=(
            Stage(name="rows", op=indexing.get_rows, reads=("table", "ids"), writes="x"),
            Stage(name="layer", op=linear.matmul, reads=("x", "w", "b"), writes="y"),
            Stage(name="classify", op=linear.matmul, reads=("y", "table"), writes="z"),
            Stage(name="loss", op=loss.square_error, reads=("z", "targets"), writes="losses"),
            Stage(name="total", op=SUITE.operators["sum"], reads=("losses",), writes="loss"),
        ),
        loss="loss",
    )


TIED = ModelSpec(
    name="tied",
    build=build,
    sizes=(Size(name="tiny", hunts="it"), Size(name="wide", hunts="it", attrs={"vocab": 7})),
    says="a tied embedding",
    source="here",
)
SUITE_OF_ONE = Suite("t", "0", (), models=[TIED])
TINY, WIDE = SUITE_OF_ONE.model_cases()
TRUTH = ModelTruth(TINY)


NAMES = {"table": ("rows.weight", "head.weight"), "w": ("layer.weight",), "b": "layer.bias"}


class Tied(nn.Module):
    """One tensor under two names."""

    names = NAMES
    tie = True

    def __init__(self, *, vocab, c):
        super().__init__()
        self.rows = nn.Embedding(vocab, c)
        self.layer = nn.Linear(c, c)
        self.head = nn.Linear(c, vocab, bias=False)
        if self.tie:
            self.head.weight = self.rows.weight

    def forward(self, ids, targets):
        return ((self.head(self.layer(self.rows(ids))) - targets) ** 2).sum()


class Untied(Tied):
    """Two tensors: each has its share of the gradient."""

    tie = False


def changed(base=Untied, **members):
    return type("Changed", (base,), members)


def judged(module, truth=TRUTH, dtype="float64"):
    class Binding:
        name = "module"

        @staticmethod
        def bind_model(case, dtype):
            return bound_module(module, case, dtype, case.spec.defaults)

    return judge_model(truth, Binding, dtype)


def bad(judgement):
    return {f.name: f for f in judgement.findings if f.verdict is not Verdict.PASS}


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("case", [TINY, WIDE], ids=["tiny", "wide"])
@pytest.mark.parametrize("module", [Tied, Untied, lambda *, vocab, c: Tied(vocab=vocab, c=c)])
def test_a_module_passes_whether_the_weight_is_one_tensor_or_two(module, case, dtype):
    judgement = judged(module, ModelTruth(case), dtype)
    assert list(judgement.of(Part.VALUE)) == ["loss"]
    assert list(judgement.of(Part.GRADIENT)) == ["table", "w", "b"]
    assert bad(judgement) == {}


def test_a_tied_weight_bound_once_is_one_clear_line():
    module = changed(names={**NAMES, "table": ("rows.weight",)})
    judgement = judged(module)
    reasons = {f.reason for f in bad(judgement).values()}
    assert reasons == {
        "Changed has a parameter 'head.weight' that stands for none of the model's; add it to its "
        "`names`, or take it out"
    }


def test_one_tensor_may_have_more_names_than_it_is_bound_under():
    assert bad(judged(changed(Tied, names={**NAMES, "table": "rows.weight"}))) == {}


def test_names_that_are_the_same_need_no_map():
    class Plain(nn.Module):
        def __init__(self, *, vocab, c):
            super().__init__()
            self.table = nn.Parameter(torch.empty(vocab, c))
            self.w = nn.Parameter(torch.empty(c, c))
            self.b = nn.Parameter(torch.empty(c))

        def forward(self, ids, targets):
            x = self.table[ids] @ self.w.T + self.b
            return ((x @ self.table.T - targets) ** 2).sum()

    assert bad(judged(Plain)) == {}


def test_a_parameter_without_grad_is_missing_not_zero():
    class Frozen(Tied):
        def forward(self, ids, targets):
            y = self.rows(ids) @ self.layer.weight.T + self.layer.bias.detach()
            return ((self.head(y) - targets) ** 2).sum()

    judgement = judged(Frozen)
    assert judgement.of(Part.VALUE)["loss"].verdict is Verdict.PASS
    (found,) = bad(judgement).values()
    assert (found.name, found.verdict) == ("b", Verdict.MISSING)
    assert found.reason.endswith("(buffer 'layer.bias')")


def test_one_of_two_tensors_without_grad_is_missing_too():
    class Half(Untied):
        def forward(self, ids, targets):
            y = self.layer(self.rows(ids)) @ self.head.weight.detach().T
            return ((y - targets) ** 2).sum()

    found = bad(judged(Half))
    assert {n: f.verdict.value for n, f in found.items()} == {"table": "missing"}
    assert found["table"].reason.endswith("(buffer 'head.weight')")


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_wrong_backward_fails_and_a_wrong_function_fails_at_the_loss_too(dtype):
    class Halved(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x.clone()

        @staticmethod
        def backward(ctx, ct):
            return ct / 2

    class Wrong(Tied):
        def forward(self, ids, targets):
            y = self.layer(Halved.apply(self.rows(ids)))
            return ((self.head(y) - targets) ** 2).sum()

    assert bad(judged(Wrong, dtype=dtype)).keys() == {"table"}

    class Mean(Tied):
        def forward(self, ids, targets):
            return super().forward(ids, targets) / 2

    found = bad(judged(Mean, dtype=dtype))
    assert found.keys() == {"loss", "table", "w", "b"}
    assert "it computes something else than tied" in found["loss"].reason


@pytest.mark.parametrize(
    ("members", "reason"),
    [
        (
            {"names": {**NAMES, "wte": ("rows.weight",)}},
            "Changed has `names` for 'wte', which the model has not",
        ),
        (
            {"names": {**NAMES, "tabel": ("rows.weight",)}},
            "Changed has `names` for 'tabel', which the model has not; did you mean 'table'?",
        ),
        (
            {"names": {**NAMES, "w": ("layers.weight",)}},
            "Changed has no parameter 'layers.weight' for 'w'; did you mean 'layer.weight'?",
        ),
        (
            {"names": {"table": ("rows.weight", "head.weight")}},
            "Changed has no parameter 'w' for 'w'",
        ),
        (
            {"names": {**NAMES, "b": "layer.weight"}},
            "Changed gives 'layer.weight' shape (3, 3), b has (3,)",
        ),
    ],
)
def test_names_without_a_counterpart_are_one_clear_line(members, reason):
    found = bad(judged(changed(**members)))
    assert {f.reason for f in found.values()} == {reason}
    assert {f.verdict for f in found.values()} == {Verdict.ERROR}


@pytest.mark.parametrize(
    ("forward", "reason"),
    [
        (lambda self, ids, targets: self.rows(ids), "returned a Tensor of shape (4, 3); return"),
        (lambda self, ids, targets: 3.0, "returned a float; return the loss, a scalar"),
        (lambda self, ids: self.rows(ids).sum(), "raised TypeError"),
        (lambda self, ids, targets: targets.sum(), "raised RuntimeError: element 0 of tensors"),
    ],
)
def test_a_module_that_gives_no_loss_is_one_clear_line(forward, reason):
    found = bad(judged(changed(forward=forward)))
    assert reason in found["gradients"].reason
    assert "\n" not in found["gradients"].reason


def test_a_nan_loss_is_said_so():
    found = bad(judged(changed(forward=lambda s, ids, targets: s.rows(ids).sum() * torch.nan)))
    assert "the loss is nan" in found["loss"].reason


def test_what_makes_no_module_or_raises_says_so():
    def makes_none(*, vocab, c):
        return vocab + c

    assert bad(judged(makes_none))["gradients"].reason == (
        "makes_none made a int; make a torch.nn.Module"
    )

    def raises(*, vocab, c):
        raise RuntimeError("no memory")

    assert "raised RuntimeError: no memory" in bad(judged(raises))["gradients"].reason


def test_pytorch_missing_is_one_clear_line(monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", None)
    found = bad(judged(Tied))
    assert "gradients raised ModuleNotFoundError: import of torch" in found["gradients"].reason


def test_dropout_that_draws_its_own_mask_is_not_deterministic():
    class Dropped(Tied):
        def forward(self, ids, targets):
            return super().forward(ids, targets) * torch.rand(())

    assert "not deterministic" in bad(judged(Dropped))["gradients"].reason


def test_a_dimension_that_changes_a_stage_must_be_taken():
    (case,) = SUITE.model_cases(["gpt2"], sizes=["uneven"])

    def two_heads(*, vocab, c, layers, positions):
        raise AssertionError("never made")

    with pytest.raises(Unsupported, match="two_heads takes no 'heads'; this case wants heads="):
        bound_module(two_heads, case, "float64", case.spec.defaults)
    with pytest.raises(Unsupported, match="models are judged in float64 and float32"):
        bound_module(Tied, TINY, "mp50", TINY.spec.defaults)


def test_values_are_copied_in_and_nothing_is_left_behind():
    bound = bound_module(Untied, TINY, "float64", TINY.spec.defaults)
    once = bound.gradients(TINY.params, TINY.inputs)
    zeros = {name: np.zeros_like(value) for name, value in TINY.params.items()}
    nothing = bound.gradients(zeros, TINY.inputs)
    assert not nothing["w"]["layer.weight"].any()
    again = bound.gradients(TINY.params, TINY.inputs)
    for name, parts in once.items():
        for own, gradient in parts.items():
            np.testing.assert_array_equal(gradient, again[name][own])
            assert gradient.dtype == np.float64


@pytest.mark.parametrize("entry", [Tied, lambda *, vocab, c: Untied(vocab=vocab, c=c)])
def test_a_users_table_may_hold_a_class_or_a_function_that_makes_a_module(monkeypatch, entry):
    module = ModuleType("trainers")
    module.IMPL = {"tied": entry}
    monkeypatch.setitem(sys.modules, "trainers", module)
    binding = load("trainers:IMPL", SUITE_OF_ONE)
    assert bad(judge_model(TRUTH, binding, "float32")) == {}


def test_a_table_of_peers_may_hold_modules_beside_operators(monkeypatch):
    module = ModuleType("my_peers")
    module.BOTH = {"tanh": torch.tanh, "tied": changed(), "tied/default": Tied}
    monkeypatch.setitem(sys.modules, "my_peers", module)
    binding = Torch(["my_peers:BOTH"])
    assert bad(judge_model(TRUTH, binding, "float64")) == {}
    assert binding.bind(SUITE.cases(["tanh"])[0], "float64") is not None
    (other,) = SUITE.model_cases(["gpt2"], sizes=["tiny"])
    assert binding.bind_model(other, "float64") is None


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("model", list(SUITE.models))
def test_pytorch_is_right_on_the_first_case_of_every_model(model, dtype):
    truth = ModelTruth(SUITE.model_cases([model])[0])
    judgement = judge_model(truth, Torch(SUITE.peers["torch"]), dtype)
    assert list(judgement.of(Part.GRADIENT)) == truth.floating
    assert bad(judgement) == {}
