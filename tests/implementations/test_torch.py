"""PyTorch modules as models: parameters copied in by name, gradients read off `.grad`."""

import sys
from types import ModuleType

import numpy as np
import pytest
from gradcheck_cases import SUITE, indexing, linear, loss

from gradcheck.errors import LoadError, Unsupported
from gradcheck.implementations.load import load
from gradcheck.implementations.torch import Torch, bound_module
from gradcheck.judge.call import ask_vjp
from gradcheck.judge.model import judge_model
from gradcheck.judge.model_truth import ModelTruth
from gradcheck.judge.operator import CaseTruth, judge_case
from gradcheck.results.finding import Part
from gradcheck.results.verdict import Verdict
from gradcheck.spec.model import ModelSpec, Size
from gradcheck.spec.program import Program, Stage
from gradcheck.spec.suite import Suite
from tests.implementations.tables import case_of, imported, judged

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.frameworks

DTYPES = ["float64", "float32"]
PEERS = SUITE.peers["torch"]


@pytest.fixture
def peers():
    """Bind a table of functions of tensors."""
    return lambda table: imported(table, lambda word: Torch([word]))


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


nn = torch.nn


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


def judged_model(module, truth=TRUTH, dtype="float64"):
    class Binding:
        name = "module"

        @staticmethod
        def bind_model(case, dtype):
            return bound_module(module, case, dtype, case.spec.defaults)

    return judge_model(truth, Binding, dtype)


def bad(judgement):
    return {f.name: f for f in judgement.findings if f.verdict is not Verdict.PASS}


@pytest.mark.frameworks
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("case", [TINY, WIDE], ids=["tiny", "wide"])
@pytest.mark.parametrize("module", [Tied, Untied, lambda *, vocab, c: Tied(vocab=vocab, c=c)])
def test_a_module_passes_whether_the_weight_is_one_tensor_or_two(module, case, dtype):
    judgement = judged_model(module, ModelTruth(case), dtype)
    assert list(judgement.of(Part.VALUE)) == ["loss"]
    assert list(judgement.of(Part.GRADIENT)) == ["table", "w", "b"]
    assert bad(judgement) == {}


@pytest.mark.frameworks
def test_a_tied_weight_bound_once_is_one_clear_line():
    module = changed(names={**NAMES, "table": ("rows.weight",)})
    judgement = judged_model(module)
    reasons = {f.reason for f in bad(judgement).values()}
    assert reasons == {
        "Changed has a parameter 'head.weight' that stands for none of the model's; add it to its "
        "`names`, or take it out"
    }


@pytest.mark.frameworks
def test_one_tensor_may_have_more_names_than_it_is_bound_under():
    assert bad(judged_model(changed(Tied, names={**NAMES, "table": "rows.weight"}))) == {}


@pytest.mark.frameworks
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

    assert bad(judged_model(Plain)) == {}


@pytest.mark.frameworks
def test_a_parameter_without_grad_is_missing_not_zero():
    class Frozen(Tied):
        def forward(self, ids, targets):
            y = self.rows(ids) @ self.layer.weight.T + self.layer.bias.detach()
            return ((self.head(y) - targets) ** 2).sum()

    judgement = judged_model(Frozen)
    assert judgement.of(Part.VALUE)["loss"].verdict is Verdict.PASS
    (found,) = bad(judgement).values()
    assert (found.name, found.verdict) == ("b", Verdict.MISSING)
    assert found.reason.endswith("(buffer 'layer.bias')")


@pytest.mark.frameworks
def test_one_of_two_tensors_without_grad_is_missing_too():
    class Half(Untied):
        def forward(self, ids, targets):
            y = self.layer(self.rows(ids)) @ self.head.weight.detach().T
            return ((y - targets) ** 2).sum()

    found = bad(judged_model(Half))
    assert {n: f.verdict.value for n, f in found.items()} == {"table": "missing"}
    assert found["table"].reason.endswith("(buffer 'head.weight')")


@pytest.mark.frameworks
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

    assert bad(judged_model(Wrong, dtype=dtype)).keys() == {"table"}

    class Mean(Tied):
        def forward(self, ids, targets):
            return super().forward(ids, targets) / 2

    found = bad(judged_model(Mean, dtype=dtype))
    assert found.keys() == {"loss", "table", "w", "b"}
    assert "it computes something else than tied" in found["loss"].reason


@pytest.mark.frameworks
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
    found = bad(judged_model(changed(**members)))
    assert {f.reason for f in found.values()} == {reason}
    assert {f.verdict for f in found.values()} == {Verdict.ERROR}


@pytest.mark.frameworks
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
    found = bad(judged_model(changed(forward=forward)))
    assert reason in found["gradients"].reason
    assert "\n" not in found["gradients"].reason


@pytest.mark.frameworks
def test_a_nan_loss_is_said_so():
    found = bad(
        judged_model(changed(forward=lambda s, ids, targets: s.rows(ids).sum() * torch.nan))
    )
    assert "the loss is nan" in found["loss"].reason


@pytest.mark.frameworks
def test_what_makes_no_module_or_raises_says_so():
    def makes_none(*, vocab, c):
        return vocab + c

    assert bad(judged_model(makes_none))["gradients"].reason == (
        "makes_none made a int; make a torch.nn.Module"
    )

    def raises(*, vocab, c):
        raise RuntimeError("no memory")

    assert "raised RuntimeError: no memory" in bad(judged_model(raises))["gradients"].reason


@pytest.mark.frameworks
def test_pytorch_missing_is_one_clear_line(monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", None)
    found = bad(judged_model(Tied))
    assert "gradients raised ModuleNotFoundError: import of torch" in found["gradients"].reason


@pytest.mark.frameworks
def test_dropout_that_draws_its_own_mask_is_not_deterministic():
    class Dropped(Tied):
        def forward(self, ids, targets):
            return super().forward(ids, targets) * torch.rand(())

    assert "not deterministic" in bad(judged_model(Dropped))["gradients"].reason


@pytest.mark.frameworks
def test_a_dimension_that_changes_a_stage_must_be_taken():
    (case,) = SUITE.model_cases(["gpt2"], sizes=["uneven"])

    def two_heads(*, vocab, c, layers, positions):
        raise AssertionError("never made")

    with pytest.raises(Unsupported, match="two_heads takes no 'heads'; this case wants heads="):
        bound_module(two_heads, case, "float64", case.spec.defaults)
    with pytest.raises(Unsupported, match="models are judged in float64 and float32"):
        bound_module(Tied, TINY, "mp50", TINY.spec.defaults)


@pytest.mark.frameworks
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


@pytest.mark.frameworks
@pytest.mark.parametrize("entry", [Tied, lambda *, vocab, c: Untied(vocab=vocab, c=c)])
def test_a_users_table_may_hold_a_class_or_a_function_that_makes_a_module(entry):
    binding = imported({"tied": entry}, lambda word: load(word, SUITE_OF_ONE))
    assert bad(judge_model(TRUTH, binding, "float32")) == {}


@pytest.mark.frameworks
def test_a_table_of_peers_may_hold_modules_beside_operators(peers):
    binding = peers({"tanh": torch.tanh, "tied": changed(), "tied/default": Tied})
    assert bad(judge_model(TRUTH, binding, "float64")) == {}
    assert binding.bind(SUITE.cases(["tanh"])[0], "float64") is not None
    (other,) = SUITE.model_cases(["gpt2"], sizes=["tiny"])
    assert binding.bind_model(other, "float64") is None


@pytest.mark.frameworks(rest=17)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("model", list(SUITE.models))
def test_pytorch_is_right_on_the_first_case_of_every_model(model, dtype):
    truth = ModelTruth(SUITE.model_cases([model])[0])
    judgement = judge_model(truth, Torch(SUITE.peers["torch"]), dtype)
    assert list(judgement.of(Part.GRADIENT)) == truth.floating
    assert bad(judgement) == {}
