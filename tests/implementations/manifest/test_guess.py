import pytest
from gradcheck_cases import SUITE

from gradcheck.implementations.manifest.guess import (
    Candidate,
    Guess,
    dtype_of,
    lacking,
    operator_of,
    parameters_of,
    required,
)
from gradcheck.implementations.manifest.prototype import parse
from gradcheck.spec.suite import index_primals


@pytest.mark.parametrize(
    ("symbol", "operator", "backward"),
    [
        ("rmsnorm_backward", "rms_norm", True),
        ("rms_norm_bwd", "rms_norm", True),
        ("RmsNormBackward", "rms_norm", True),
        ("RMSNorm_backward", "rms_norm", True),
        ("rmsnormbackward", "rms_norm", True),
        ("k_rmsnorm_backward_f32", "rms_norm", True),
        ("softmax_grad", "softmax", True),
        ("grad_softmax", "softmax", True),
        ("softmax_vjp", "softmax", True),
        ("softmax", "softmax", False),
        ("softmax_forward", "softmax", False),
        ("softmax_cross_entropy_backward", "softmax_cross_entropy", True),
        ("crossentropy_softmax_backward", "softmax_cross_entropy", True),
        ("layernormForward", "layer_norm", False),
        ("silu_back", "silu", True),
        ("swish_backward", "silu", True),
        ("residual_backward", "add", True),
        ("conv2d_backward_naive", "conv_2d", True),
        ("leakyReluBackward", "leaky_relu", True),
        ("max_pool2d_backward", "max_pool_2d", True),
        ("groupnrom_backward", "group_norm", True),
    ],
)
def test_the_operator_that_a_name_suggests(symbol, operator, backward):
    named = operator_of(symbol, SUITE.operators)
    assert (named.operator, named.backward) == (operator, backward)


@pytest.mark.parametrize("symbol", ["main", "free_all", "zzz_backward", "backward", "", "_", "a"])
def test_a_name_that_suggests_nothing(symbol):
    assert operator_of(symbol, SUITE.operators) is None


def test_what_else_a_name_says_may_be_a_dialect():
    assert "plain" in operator_of("rmsnorm_plain_backward", SUITE.operators).rest
    assert operator_of("rmsnorm_backward_f32", SUITE.operators).rest == ()


def asked(op, text, backward=True, **more):
    spec = SUITE.operators[op]
    indices = index_primals(spec, SUITE)
    prototype = parse(text, "here")
    return Candidate(spec=spec, indices=indices, prototype=prototype, backward=backward, **more)


def texts(op, text, **more):
    """What is guessed, by parameter; None where nothing is."""
    found = parameters_of(asked(op, text, **more))
    return {name: guess and guess.text for name, guess in found.items()}


@pytest.mark.parametrize(
    ("op", "text", "wanted"),
    [
        ("silu", "void f(float* dx, const float* dy, const float* x, int n)",
         ["grad:x", "cotangent", "in:x", "size(x)"]),
        ("silu", "void f(float* grad_x, float* grad_out, float* x, size_t numel)",
         ["grad:x", "cotangent", "in:x", "size(x)"]),
        ("silu", "void f(const float* gradOutput, const float* input, float* gradInput, long size)",
         ["cotangent", "in:x", "grad:x", "size(x)"]),
        ("silu", "void f(float* d_x, const float* upstream, const float* p_x, int count)",
         ["grad:x", "cotangent", "in:x", "size(x)"]),
        ("silu", "void f(float* x_grad, const float* y_grad, const float* x_data, int n)",
         ["grad:x", "cotangent", "in:x", "size(x)"]),
        ("silu", "void f(float* d, const float* x, size_t n)",
         ["cotangent -> grad:x", "in:x", "size(x)"]),
        ("silu", "void f(float* result, const float* first, const float* x, int n)",
         ["grad:x", "cotangent", "in:x", "size(x)"]),
        ("softcap", "void f(float* dx, const float* y, const float* dy, float cap, int n)",
         ["grad:x", "out", "cotangent", "cap", "size(x)"]),
        ("leaky_relu", "void f(float* dx, const float* dy, const float* x, float slope, int n)",
         ["grad:x", "cotangent", "in:x", "negative_slope", "size(x)"]),
        ("mul", "void f(float* dx, float* dy, const float* dz, const float* x, const float* y, "
         "int n)",
         ["grad:x", "grad:y", "cotangent", "in:x", "in:y", "size(x)"]),
        ("rms_norm", "void f(float* dx, float* dweight, const float* dout, const float* inp, "
         "const float* weight, int N, int D)",
         ["grad:x", "grad:w", "cotangent", "in:x", "in:w", "rows(x)", "dim(x, -1)"]),
        ("rms_norm", "void f(float* dx, const float* g, const float* x, int64_t cols, "
         "int64_t rows, float epsilon)",
         ["grad:x", "cotangent", "in:x", "dim(x, -1)", "rows(x)", "eps"]),
        ("softmax_cross_entropy", "void f(float* dlogits, const float* dlosses, const float* acts, "
         "const int* labels, int T, int V)",
         ["grad:logits", "cotangent", "in:logits", "in:targets", "dim(logits, -2)",
          "dim(logits, -1)"]),
        ("matmul", "void f(float* dinp, float* dweight, float* dbias, const float* dout, "
         "const float* inp, const float* weight, int rows, int C, int OC)",
         ["grad:x", "grad:w", "grad:b", "cotangent", "in:x", "in:w", "rows(x)", "dim(x, -1)",
          "dim(w, -2)"]),
        ("get_rows", "void f(float* dx, const float* dy, const int* ids, int n, int C)",
         ["grad:x", "cotangent", "in:rows", "size(rows)", "dim(x, -1)"]),
        ("get_rows", "void f(double* dtable, const double* dy, const uint16_t* tokens, int n)",
         ["grad:x", "cotangent", "in:rows", "size(rows)"]),
        ("silu", "void f(uint16_t* dx, const uint16_t* dy, const uint16_t* x, int n)",
         ["grad:x", "cotangent", "in:x", "size(x)"]),
        ("gelu", "int f(const char* form, float* dx, const float* dy, const float* x, int n, "
         "void* stream)",
         ["form", "grad:x", "cotangent", "in:x", "size(x)", "unused"]),
        ("sum_rows", "void f(float* dx, const float* dy, const int64_t* ne)",
         ["grad:x", "cotangent", "reversed(dims(x))"]),
        ("scale", "void f(float* dx, const float* dy, float s, int n)",
         ["grad:x", "cotangent", "item(s)", "size(x)"]),
        ("mul", "void f(float* dx, float* dy, float* dz, float* x, float* y, int n)",
         ["grad:x", "grad:y", "cotangent", "in:x", "in:y", "size(x)"]),
        ("silu", "void f(float* dx, const float* dy, const float* x, size_t n, int threads)",
         ["grad:x", "cotangent", "in:x", "size(x)", None]),
        ("mul", "void f(float* da, float* dy, float* x, int n)",
         ["grad:x", "cotangent", "in:x", "size(x)"]),
        ("add", "void f(float* dinp1, float* dinp2, float* dout, int N)",
         ["grad:x", "grad:y", "cotangent", "size(x)"]),
        ("matmul", "void f(float* dx, const float* dy, const float* other, int B, int T, int C)",
         ["grad:x", "cotangent", None, "size(x) // max(dim(x, -2) * dim(x, -1), 1)",
          "dim(x, -2)", "dim(x, -1)"]),
        ("mul", "void f(float* dx, const float* dz, const float* x, const float* second, int n)",
         ["grad:x", "cotangent", "in:x", "in:y", "size(x)"]),
        ("get_rows", "void f(float* dx, const float* dy, const int* t, int B, int T)",
         ["grad:x", "cotangent", "in:rows", "rows(rows)", "dim(rows, -1)"]),
        ("cont", "void f(float* dx, const float* dy, const int* dims)",
         ["grad:x", "cotangent", "dims(x)"]),
        ("silu", "void f(float* dx, const float* dy, const int* what)",
         ["grad:x", "cotangent", None]),
        ("gelu", "void f(float* dx, const float* dy, const char* kind, bool fast)",
         ["grad:x", "cotangent", None, None]),
        ("map_unary", "void f(float* dx, const float* dy, const char* kind)",
         ["grad:x", "cotangent", "function"]),
        ("square_error", "void f(float* dx, float* dy, const float* x, const float* y, int n)",
         ["grad:x", "grad:y", "in:x", "in:y", "dim(x, -1)"]),
    ],
)  # fmt: skip
def test_the_parameters_of_a_backward(op, text, wanted):
    assert [*texts(op, text).values()] == wanted


def test_a_forward_and_what_it_saves():
    forward = (
        "void f(float* out, float* mean, float* rstd, const float* inp, const float* weight, "
        "const float* bias, int B, int T, int C)"
    )
    assert texts("layer_norm", forward, backward=False) == {
        "out": "out", "mean": "saved:mean[rows(x)]", "rstd": "saved:rstd[rows(x)]",
        "inp": "in:x", "weight": "in:w", "bias": "in:b",
        "B": "1", "T": "rows(x)", "C": "dim(x, -1)",
    }  # fmt: skip
    backward = "void f(float* dinp, const float* dout, const float* inp, const float* rstd, int n)"
    assert texts("layer_norm", backward)["rstd"] == "saved:rstd[rows(x)]"
    other = backward.replace("rstd", "kept")
    assert texts("layer_norm", other)["kept"] is None
    saved = frozenset({"kept"})
    assert texts("layer_norm", other, saved=saved)["kept"] == "saved:kept[rows(x)]"


def test_what_nothing_suggests_is_not_guessed():
    found = texts("attention", "void f(float* dqkv, const float* dout, const float* qkv, ctx* c)")
    assert found == {"dqkv": None, "dout": "cotangent", "qkv": None, "c": None}
    assert texts("silu", "void f(float* dx, float k, int a, int b)") == {
        "dx": "cotangent -> grad:x", "k": None, "a": None, "b": None,
    }  # fmt: skip


def test_a_primal_that_the_dialect_lacks_is_not_meant():
    text = "void f(float* dx, const float* dy, const float* x, const float* weight, int N, int D)"
    assert texts("rms_norm", text, dialect="plain")["weight"] is None


def test_only_what_is_usual_needs_no_confirming():
    exact = parameters_of(
        asked("silu", "void f(float* dx, const float* dy, const float* x, int n)")
    )
    assert all(guess.sure for guess in exact.values())
    other = parameters_of(
        asked("silu", "void f(float* da, const float* dy, const float* a, int k)")
    )
    assert [name for name, guess in other.items() if not guess.sure] == ["da", "a", "k"]


def test_attributes_that_no_parameter_is():
    spec = SUITE.operators["rms_norm"]
    assert [*lacking(spec, {"e": Guess("eps"), "n": None})] == ["unit_offset"]


@pytest.mark.parametrize(
    ("text", "dtype"),
    [
        ("void f(int n, const int* t, const double* x, float* y)", "float64"),
        ("void f(float x, void* p)", ""),
    ],
)
def test_the_dtype_is_that_of_the_first_tensor(text, dtype):
    assert dtype_of(parse(text, "here")) == dtype


@pytest.mark.parametrize(
    ("op", "text", "condition"),
    [
        ("rms_norm", "void f(float* dx, const float* dy, int size)", "size(x) == dim(x, -1)"),
        ("rms_norm", "void f(float* dx, const float* dy, int N, int D)", ""),
        ("rms_norm", "void f(float* dx, const float* dy)", ""),
        ("silu", "void f(float* dx, const float* dy, int n)", ""),
        ("rope", "void f(float* dx, int h, int d)", "size(x) == dim(x, -2) * dim(x, -1)"),
        ("matmul", "void f(float* dx, int OC)", ""),
    ],
)
def test_a_function_that_is_told_no_number_of_rows_does_one(op, text, condition):
    found = parameters_of(asked(op, text))
    assert required(SUITE.operators[op], found) == condition
