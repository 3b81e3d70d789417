import numpy as np
import pytest
from gradcheck_cases import SUITE

import gradcheck
from gradcheck.errors import LoadError, Unsupported
from gradcheck.implementations.load import load
from gradcheck.implementations.python import Python
from tests.implementations.tables import case_of, imported
from tests.implementations.tables import judged as findings

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.frameworks
F = torch.nn.functional

DTYPES = ["float64", "float32"]


def judged(table, op, dialect, dtype="float64", sample="typical"):
    binding = imported(table, lambda word: Python(word, SUITE.operators))
    return findings(binding, case_of(op, dialect, sample), dtype)


class RmsNorm(torch.autograd.Function):
    """Right; its `change` may break what backward returns."""

    @staticmethod
    def forward(ctx, x, w, eps=1e-5):
        r = torch.rsqrt(x.square().mean(-1, keepdim=True) + eps)
        ctx.save_for_backward(x, w, r)
        return x * r * w

    @staticmethod
    def backward(ctx, g):
        x, w, r = ctx.saved_tensors
        n = x * r
        dx = r * (g * w - n * (g * w * n).mean(-1, keepdim=True))
        return dx, (g * n).flatten(0, -2).sum(0), None


def broken(change):
    """A variant of RmsNorm: `change(g, saved, dx, dw)` is what its backward returns."""

    def backward(ctx, g):
        dx, dw, _ = RmsNorm.backward(ctx, g)
        return change(g, ctx.saved_tensors, dx, dw)

    return type("Variant", (RmsNorm,), {"backward": staticmethod(backward)})


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_right_function_passes_at_every_sample(dtype):
    for case in SUITE.cases(["rms_norm"], ["weight"]):
        found = judged({"rms_norm/weight": RmsNorm}, "rms_norm", "weight", dtype, case.sample.name)
        assert {(f.name, f.verdict.value) for f in found.values()} == {
            ("forward", "pass"), ("x", "pass"), ("w", "pass")
        }  # fmt: skip


def write(tensor, add):
    tensor.mul_(2)
    return add


BROKEN = {
    "a gradient too few": (
        lambda g, saved, dx, dw: (dx,),
        {"vjp": ("error", "returned an incorrect number of gradients (expected 3, got 1)")},
    ),
    "None for the weight": (
        lambda g, saved, dx, dw: (dx, None, None),
        {"x": ("pass", ""), "w": ("missing", "the backward of Variant returned None for it")},
    ),
    "one that autograd sums": (
        lambda g, saved, dx, dw: (dx, dw.expand(4, -1) / 4, None),
        {"x": ("pass", ""), "w": ("fail", "the gradient of w has shape (4, 7), w has (7,)")},
    ),
    "one that autograd squeezes": (
        lambda g, saved, dx, dw: (dx, dw[None], None),
        {"x": ("pass", ""), "w": ("fail", "has shape (1, 7), w has (7,)")},
    ),
    "one that autograd refuses": (
        lambda g, saved, dx, dw: (dx, dw.sum(), None),
        {"vjp": ("error", "invalid gradient at index 1 - got []")},
    ),
    "one that autograd widens": (
        lambda g, saved, dx, dw: (dx.float(), dw, None),
        {"x": ("fail", "the gradient of x is float32, x is float64"), "w": ("pass", "")},
    ),
    "an array": (
        lambda g, saved, dx, dw: (dx.numpy(), dw, None),
        {"vjp": ("error", "got numpy.ndarray")},
    ),
    "a cotangent written into": (
        lambda g, saved, dx, dw: (write(g, dx), dw, None),
        {"vjp": ("error", "Variant.backward writes into grad_output")},
    ),
    "a saved input written into": (
        lambda g, saved, dx, dw: (write(saved[0].data, dx), dw, None),
        {"vjp": ("error", "Variant writes into its argument x; clone it first")},
    ),
    "half of it": (lambda g, saved, dx, dw: (dx / 2, dw, None), {"x": ("fail", "outside")}),
}


@pytest.mark.parametrize("name", BROKEN)
def test_what_autograd_passes_over_in_silence_is_said_in_words(name):
    change, wanted = BROKEN[name]
    found = judged({"rms_norm/weight": broken(change)}, "rms_norm", "weight")
    assert found.pop("forward").verdict == "pass"
    for output, (verdict, words) in wanted.items():
        assert (found[output].verdict.value, words in found[output].reason) == (verdict, True)


def test_a_wider_gradient_is_narrowed_as_autograd_does():
    table = {"rms_norm/weight": broken(lambda g, s, dx, dw: (dx.double(), dw.double(), None))}
    found = judged(table, "rms_norm", "weight", "float32")
    assert {f.verdict.value for f in found.values()} == {"pass"}


MISSING = {
    "all detached": (
        lambda x, w, eps: F.rms_norm(x, x.shape[-1:], w, eps).detach(),
        {"x": "no output of <lambda> requires grad", "w": "no output of <lambda> requires grad"},
    ),
    "the weight detached": (
        lambda x, w, eps: F.rms_norm(x, x.shape[-1:], w.detach(), eps),
        {"w": "autograd finds no path to it from an output of <lambda>"},
    ),
}


@pytest.mark.parametrize("name", MISSING)
def test_a_gradient_that_autograd_lacks_is_missing_and_not_zero(name):
    function, wanted = MISSING[name]
    found = judged({"rms_norm": gradcheck.torch_op(function)}, "rms_norm", "weight")
    for output in ("x", "w"):
        finding = found[output]
        assert finding.verdict.value == ("missing" if output in wanted else "pass")
        assert wanted.get(output, "") in finding.reason


def test_what_is_marked_as_not_differentiable_is_missing():
    class Marked(RmsNorm):
        @staticmethod
        def forward(ctx, x, w, eps=1e-5):
            y = RmsNorm.forward(ctx, x, w, eps)
            ctx.mark_non_differentiable(y)
            return y

    found = judged({"rms_norm/weight": Marked}, "rms_norm", "weight")
    assert found["x"].verdict == "missing"
    assert "marked as not differentiable" in found["x"].reason


def test_nothing_is_missing_where_there_is_nothing():
    op = gradcheck.torch_op(lambda x, w: x.new_zeros(0) if not x.numel() else x * w)
    dx, dw = op.vjp(np.zeros(0), np.zeros(0), np.ones(3))
    assert (dx.shape, dw.tolist()) == ((0,), [0.0, 0.0, 0.0])


def test_needs_reach_the_function_and_the_others_are_not_asked():
    seen = []

    class Watched(RmsNorm):
        @staticmethod
        def backward(ctx, g):
            seen.append(ctx.needs_input_grad[:2])
            return RmsNorm.backward(ctx, g)

    op = gradcheck.torch_op(Watched)
    x, w, ct = np.linspace(-1, 1, 6).reshape(2, 3), np.arange(1.0, 4.0), np.ones((2, 3))
    both = op.asked((True, True), ct, x, w)
    assert op.asked((False, False), ct, x, w) == (None, None)
    for needs in ((True, False), (False, True)):
        for whole, part, need in zip(both, op.asked(needs, ct, x, w), needs, strict=True):
            if need:
                np.testing.assert_array_equal(part, whole)
            else:
                assert part is None
    assert seen == [(True, True), (True, False), (False, True)]


def test_attributes_go_behind_the_primals_by_their_names():
    class Fixed(RmsNorm):
        @staticmethod
        def forward(ctx, x, w):
            return RmsNorm.forward(ctx, x, w)

        @staticmethod
        def backward(ctx, g):
            return RmsNorm.backward(ctx, g)[:2]

    assert judged({"rms_norm": Fixed}, "rms_norm", "weight")["w"].verdict == "pass"
    (only,) = judged({"rms_norm": Fixed}, "rms_norm", "unit-offset").values()
    assert only.verdict == "unsupported"
    assert "takes no 'eps'; this case wants eps=1e-06" in only.reason

    class NoDefault(RmsNorm):
        @staticmethod
        def forward(ctx, x, w, gain, eps):
            return RmsNorm.forward(ctx, x, w, eps)

    found = judged({"rms_norm": NoDefault}, "rms_norm", "weight")["forward"]
    assert found.verdict == "error"
    assert "wants 'gain' behind 2 primals" in found.reason


def test_setup_context_and_a_vjp_by_another_name_are_watched_too():
    class Halved(torch.autograd.Function):
        @staticmethod
        def forward(x):
            return torch.tanh(x)

        @staticmethod
        def setup_context(ctx, inputs, output):
            ctx.save_for_backward(output)

        @staticmethod
        def vjp(ctx, g):
            (y,) = ctx.saved_tensors
            return write(g, g * (1 - y * y))

    found = judged({"tanh": Halved}, "tanh", "default")
    assert "Halved.vjp writes into grad_output" in found["vjp"].reason


def test_pytorchs_own_functions_and_modules_need_no_wrapper():
    for entry in (torch.tanh, torch.nn.Tanh()):
        found = judged({"tanh": entry}, "tanh", "default")
        assert {f.verdict.value for f in found.values()} == {"pass"}
    assert judged({"gelu/erf": F.gelu}, "gelu", "erf")["forward"].verdict == "error"  # form, root


def test_a_module_follows_the_dtype_and_keeps_its_own():
    class Scaled(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.gain = torch.nn.Parameter(torch.tensor(1.0))

        def forward(self, x):
            return torch.tanh(self.gain * x)

    module = Scaled()
    for dtype in DTYPES:
        found = judged({"tanh": module}, "tanh", "default", dtype)
        assert {f.verdict.value for f in found.values()} == {"pass"}
    assert module.gain.dtype is torch.float32
    assert module.gain.grad is None


def test_a_module_whose_parameters_are_primals_is_called_functionally():
    def norm(x, w, b, eps):
        module = torch.nn.LayerNorm(x.shape[-1:], eps=eps)
        weights = {"weight": w, "bias": b}
        return torch.func.functional_call(module, weights, (x,))

    found = judged({"layer_norm/affine": gradcheck.torch_op(norm)}, "layer_norm", "affine")
    assert {n: f.verdict.value for n, f in found.items()} == dict.fromkeys(
        ("forward", "x", "w", "b"), "pass"
    )


def test_what_is_no_function_of_tensors_is_refused_at_once():
    for entry, words in (
        (torch.nn.Tanh, "Tanh is a class of modules; give it an instance"),
        (lambda x: x, r"<lambda>\(x\); a function alone .* gradcheck.torch_op\(function\)"),
    ):
        with pytest.raises(LoadError, match=words):
            imported({"tanh": entry}, lambda word: load(word, SUITE))
    with pytest.raises(LoadError, match="a int is no function of tensors"):
        gradcheck.torch_op(3)


def test_something_else_than_tensors_is_named():
    for out, words in ((lambda x: x.numpy(), "returned a ndarray"), (lambda x: None, "NoneType")):
        found = judged({"tanh": gradcheck.torch_op(out)}, "tanh", "default")["forward"]
        assert found.verdict == "error"
        assert words in found.reason


def test_a_write_into_an_argument_is_named():
    def writes(x, gain):
        gain.data.mul_(2)
        return torch.tanh(x) * gain

    op = gradcheck.torch_op(writes)
    x, gain = np.ones(3), np.ones(3)
    wanted = "writes writes into its argument gain; clone it first"
    result = gradcheck.check(lambda x, gain: np.tanh(x) * gain, op.vjp, x, gain)
    assert result.findings[0].reason == wanted
    result = gradcheck.check(op.forward, lambda ct, x, gain: (ct, ct), x, gain)
    assert result.findings[0].reason == wanted
    np.testing.assert_array_equal(gain, 1)


def test_check_takes_what_torch_op_gives():
    right, wrong = gradcheck.torch_op(torch.tanh), gradcheck.torch_op(torch.sin)
    x = np.linspace(-2, 2, 9)
    assert gradcheck.check(right.forward, right.vjp, x).ok
    assert gradcheck.check(right.forward, wrong.vjp, x).verdict == "fail"
    softmax = gradcheck.torch_op(F.softmax)
    assert gradcheck.check(softmax.forward, softmax.vjp, x.reshape(3, 3), attrs={"dim": 0}).ok


def test_a_device_that_is_not_here_is_unsupported_and_never_the_cpu():
    if torch.cuda.is_available():
        pytest.skip("it is here")
    op = gradcheck.torch_op(torch.tanh, device="cuda")
    with pytest.raises(Unsupported, match="tanh is to run on cuda; there is no such device"):
        op.vjp(np.ones(3), np.ones(3))
    (only,) = judged({"tanh": op}, "tanh", "default").values()
    assert only.verdict == "unsupported"


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("dtype", [*DTYPES, "float16", "bfloat16"])
def test_tensors_go_to_the_gpu_and_gradients_come_back(dtype):
    seen = []

    def tanh(x):
        seen.append(x.device.type)
        return torch.tanh(x)

    found = judged({"tanh": gradcheck.torch_op(tanh, device="cuda")}, "tanh", "default", dtype)
    assert set(seen) == {"cuda"}
    assert found["forward"].verdict == "pass"
