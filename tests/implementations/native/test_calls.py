"""What a C function does with memory tells the class of its defect, beside the verdict."""

import ast
import json
import shutil
import subprocess

import pytest

from gradcheck.cli.main import main
from gradcheck.numerics.draw import Draw
from gradcheck.spec import Dialect, OpSpec, Sample
from gradcheck.spec.suite import Suite
from gradcheck.system import expression


@pytest.mark.slow(keep=1)
@pytest.mark.parametrize(
    ("symbol", "name", "label", "says"),
    [
        ("mul_unwritten", "y", "A", "elements of the gradient of y keep what their buffer held"),
        ("mul_adds", "x", "A", "the gradient of x is added to what its buffer held"),
        ("mul_keeps_sign", "x", "A", "depends on what its buffer held before"),
        ("mul_swapped", "x", None, ""),
        ("mul", "x", None, ""),
    ],
)
def test_what_a_buffer_held_is_an_accumulation(native, judged, entry, symbol, name, label, says):
    found = judged(native(entry(symbol)), "mul", "same-shape")[name].diagnosis
    assert (found.label if found else None) == label
    assert says in (found.says if found else "")


PACKED = "double *d, const double *dz, const double *xy, int rows, int n, int ld"


def pair(first, second):
    part = {"shape": ["rows", "n"], "strides": ["ld", "1"]}
    return {
        "size": "rows * ld",
        "parts": [{"is": first, **part}, {"is": second, **part, "at": "n"}],
    }


@pytest.mark.slow(keep=1)
@pytest.mark.parametrize(
    ("symbol", "label", "says"),
    [
        ("packed_into_gap", "I", "an index into `d` leaves its part"),
        ("packed_from_gap", "I", "an index into `xy` leaves its part"),
        ("packed", None, ""),
    ],
)
def test_what_leaves_its_part_is_an_index(native, judged, entry, symbol, label, says):
    bound = {"d": pair("grad:x", "grad:y"), "xy": pair("in:x", "in:y"),
             "rows": "rows(x)", "n": "dim(x, -1)", "ld": "2 * n + 1"}  # fmt: skip
    found = judged(native(entry(symbol, PACKED, **bound)), "mul", "same-shape")
    told = next((f.diagnosis for f in found.values() if f.diagnosis), None)
    assert (told.label if told else None) == label
    assert (told.says if told else "") == says


SOURCE = """
#include <stdint.h>
#include <string.h>
static float tf32(float x) {
    uint32_t bits;
    memcpy(&bits, &x, 4);
    bits = (bits + 0x0fffu + ((bits >> 13) & 1u)) & ~0x1fffu;
    memcpy(&x, &bits, 4);
    return x;
}
static float same(float x) { return x; }
#define MUL(NAME, OPERAND, COTANGENT) \\
void NAME(float *dx, float *dy, const float *dz, const float *x, const float *y, int n) { \\
    for (int i = 0; i < n; i++) { \\
        dx[i] = COTANGENT(dz[i]) * OPERAND(y[i]); \\
        dy[i] = COTANGENT(dz[i]) * OPERAND(x[i]); \\
    } \\
}
MUL(right, same, same)
MUL(operands, tf32, same)
MUL(cotangent, same, tf32)
"""
PARAMETERS = "float *dx, float *dy, const float *dz, const float *x, const float *y, int n"


@pytest.fixture(scope="module")
def library(tmp_path_factory):
    if shutil.which("gcc") is None:
        pytest.skip("needs gcc")
    folder = tmp_path_factory.mktemp("narrow")
    (folder / "mul.c").write_text(SOURCE)
    words = ["gcc", "-O2", "-fPIC", "-shared", "mul.c", "-o", "libmul.so"]
    subprocess.run(words, check=True, cwd=folder)
    return folder / "libmul.so"


@pytest.mark.slow(keep=1)
@pytest.mark.parametrize(
    ("symbol", "verdict"), [("right", "pass"), ("operands", "fail"), ("cotangent", "fail")]
)
def test_tf32_shows_in_the_gradients_of_a_manifest(library, entry, tmp_path, symbol, verdict):
    path, report = tmp_path / "gradcheck.toml", tmp_path / "run.json"
    head = f'schema = 1\n[impl]\nname = "mul"\n[c]\nlibrary = "{library}"\n'
    path.write_text(head + entry(symbol, PARAMETERS))
    words = ["--op", "mul", "--dialect", "same-shape", "--sample", "typical", "--dtype", "float32"]
    code = main(["run", "--impl", str(path), "--no-contract", "-o", str(report), *words])
    assert code == (verdict == "fail")
    results = json.loads(report.read_text())["results"]
    assert {r["output"]: r["verdict"] for r in results} == {"x": verdict, "y": verdict}


def _draw(draw: Draw):
    return (draw.normal(3, 4),)


def _pair(draw: Draw):
    return (*_draw(draw), draw.normal(3, 4))


TYPICAL = "a slot that is swapped"
OPERATORS = Suite(
    "made",
    "1",
    [
        OpSpec(
            name="weighted",
            signature="(),()->()",
            forward=lambda xp, x, w=None: x if w is None else x * w,
            vjp=lambda xp, ct, x, w=None: (ct, None) if w is None else (ct * w, ct * x),
            samples=(Sample(name="typical", primals=_pair, hunts=TYPICAL),),
            dialects=(
                Dialect(name="weight", says="with a weight"),
                Dialect(name="plain", says="without", without=("w",)),
            ),
            formula="xw",
            source="made for this test",
        ),
        OpSpec(
            name="pair",
            signature="()->(),()",
            forward=lambda xp, x: (x + x, x * x),
            vjp=lambda xp, ct, x: ct[0] + ct[0] + (x + x) * ct[1],
            samples=(Sample(name="typical", primals=_draw, hunts=TYPICAL),),
            formula="(2x, x^2)",
            source="made for this test",
        ),
    ],
)


RIGHT = {"x": ("pass", ""), "y": ("pass", "")}
SCALARS = (
    "double *dx, double *dy, const double *dz, const double *x, const double *y, int8_t a, "
    "uint8_t b, short c, unsigned short d, int e, unsigned f, long g, size_t h, float i, "
    "double j, bool k, const char *word, const float *numbers"
)
VALUES = {
    "a": "-8", "b": "200", "c": "-300", "d": "60000", "e": "-70000", "f": "3 * 10 ** 9",
    "g": "-5 * 10 ** 9", "h": "size(x)", "i": "1 / 2", "j": "0.1", "k": "ndim(x) > 0",
    "word": "'naïve'", "numbers": "[3 / 2, -2]",
}  # fmt: skip


def test_every_scalar_a_string_and_an_array(native, mul, entry):
    assert mul(native(entry("every_scalar", SCALARS, **VALUES))) == RIGHT


@pytest.mark.slow(keep=1)
@pytest.mark.parametrize(
    "wrong",
    [{"a": "-7"}, {"d": "1"}, {"g": "5"}, {"i": "0.25"}, {"k": "1 > 2"}, {"word": "'naive'"},
     {"numbers": "[-2, 3 / 2]"}],
)  # fmt: skip
def test_another_value_is_another_answer(native, mul, entry, wrong):
    found = mul(native(entry("every_scalar", SCALARS, **{**VALUES, **wrong})))
    assert next(iter(found.values()))[0] == "fail"


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({"a": "200"}, "200, which is no int8"),
        ({"b": "-1"}, "-1, which is no uint8"),
        ({"h": "size(x) / 2"}, "7.5, which is no whole number"),
        ({"numbers": "[1.5, 'a']"}, "'a'; a number is needed"),
    ],
)
def test_what_a_type_does_not_hold(native, mul, entry, wrong, says):
    broken = native(entry("every_scalar", SCALARS, **{**VALUES, **wrong}))
    assert mul(broken)["vjp"][0] == "error"
    assert says in mul(broken)["vjp"][1]


# ── indices ──────────────────────────────────────────────────────────────────────────────────

ROWS = "double *dtable, const double *dy, const {} *tokens, size_t n, size_t width"
LOOKUP = {
    "op": "get_rows", "dtable": "grad:x", "dy": "cotangent", "tokens": "in:rows",
    "n": "size(rows)", "width": "dim(x, -1)", "more": 'accumulates = ["dtable"]',
}  # fmt: skip


@pytest.mark.slow(keep=1)
@pytest.mark.parametrize(
    ("symbol", "ctype"), [("rows_u16", "uint16_t"), ("rows_i64", "int64_t"), ("rows_i64", "void")]
)
def test_indices_of_any_width(native, judged, entry, symbol, ctype):
    found = judged(native(entry(symbol, ROWS.format(ctype), **LOOKUP)), "get_rows")
    assert {name: f.verdict.value for name, f in found.items()} == {"x": "pass"}


def test_indices_of_the_wrong_width(native, judged, entry):
    wrong = native(entry("rows_u16", ROWS.format("int64_t"), **LOOKUP))
    verdict = next(iter(judged(wrong, "get_rows").values())).verdict.value
    assert verdict in ("fail", "crash")


# ── layouts ──────────────────────────────────────────────────────────────────────────────────


def pair_of(first, second, gap=1):
    part = {"shape": ["rows", "n"], "strides": ["ld", "1"]}
    parts = [{"is": first, **part}, {"is": second, **part, "at": "n"}]
    return {"size": "rows * ld" if gap else "rows * n * 2", "parts": parts}


def packed(entry, symbol, gap=1):
    return entry(
        symbol,
        PACKED,
        d=pair_of("grad:x", "grad:y", gap),
        xy=pair_of("in:x", "in:y", gap),
        rows="rows(x)",
        n="dim(x, -1)",
        ld=f"2 * n + {gap}",
    )


@pytest.mark.slow(keep=1)
@pytest.mark.parametrize("gap", [0, 1, 5])
def test_two_tensors_side_by_side(native, mul, entry, gap):
    assert mul(native(packed(entry, "packed", gap))) == RIGHT


def test_the_gap_between_rows_is_not_written(native, mul, entry):
    assert mul(native(packed(entry, "packed_into_gap")))["vjp"] == (
        "fail",
        "packed_into_gap writes outside of its part of `d`",
    )


def test_the_gap_between_rows_is_not_read(native, mul, entry):
    assert mul(native(packed(entry, "packed_from_gap")))["vjp"] == (
        "fail",
        "packed_from_gap reads outside of its part of `xy`",
    )


def test_halves_that_are_swapped(native, mul, entry):
    swapped = entry(
        "packed",
        PACKED,
        d=pair_of("grad:y", "grad:x"),
        xy=pair_of("in:x", "in:y"),
        rows="rows(x)",
        n="dim(x, -1)",
        ld="2 * n + 1",
    )
    assert {verdict for verdict, _ in mul(native(swapped)).values()} == {"fail"}


TRANSPOSED = (
    "double *dx, double *dy, const double *dz, const double *x, const double *y, "
    "const int64_t *ne, int ndim"
)


@pytest.mark.slow(keep=1)
@pytest.mark.parametrize(("axes", "verdict"), [([1, 0], "pass"), ([0, 1], "fail")])
def test_axes_in_another_order(native, mul, entry, axes, verdict):
    op = entry(
        "transposed",
        TRANSPOSED,
        dx={"is": "grad:x", "axes": axes},
        x={"is": "in:x", "axes": axes},
        ne="dims(x)",
        ndim="ndim(x)",
    )
    assert mul(native(op))["x"][0] == verdict


# ── null pointers ────────────────────────────────────────────────────────────────────────────

WEIGHTED = "double *dx, double *dw, const double *dy, const double *x, const double *w, int n"


def weighted(entry, native, **bound):
    bound = {"op": "weighted", "dw": "grad:w?", "dy": "cotangent", "w": "in:w?"} | bound
    return native(entry("weighted", WEIGHTED, **bound), suite=OPERATORS)


@pytest.mark.slow(keep=1)
@pytest.mark.parametrize(("dialect", "names"), [("weight", ["x", "w"]), ("plain", ["x"])])
def test_a_primal_that_the_dialect_lacks_is_null(native, judged, entry, dialect, names):
    found = judged(weighted(entry, native), "weighted", dialect, suite=OPERATORS)
    assert [*found] == names
    assert {f.verdict.value for f in found.values()} == {"pass"}


@pytest.mark.parametrize("role", [{"w": "in:w"}, {"dw": "grad:w"}])
def test_a_primal_that_the_code_needs(native, judged, entry, role):
    found = judged(weighted(entry, native, **role), "weighted", "plain", suite=OPERATORS)
    assert found["vjp"].verdict.value == "unsupported"
    assert "there is no w here; end its role with `?`" in found["vjp"].reason


def test_a_primal_that_the_code_does_not_know(native, judged, entry):
    parameters = "double *dx, const double *dz, const double *x, const double *y, int n"
    op = entry("mul_only_x", parameters, op="weighted", y="in:x")
    found = judged(native(op, suite=OPERATORS), "weighted", "weight", suite=OPERATORS)
    assert found["vjp"].verdict.value == "unsupported"
    assert "no parameter is the primal w, which dialect weight has" in found["vjp"].reason


# ── 16 bits ──────────────────────────────────────────────────────────────────────────────────

HALF = "uint16_t *dx, uint16_t *dy, const uint16_t *dz, const uint16_t *x, const uint16_t *y, int n"


def halves(entry, symbol):
    text = entry(symbol, HALF)
    return text.replace('vjp = "', 'vjp.bfloat16 = "')


def test_bits_of_bfloat16(native, mul, entry):
    assert mul(native(halves(entry, "mul_bf16")), "bfloat16") == RIGHT


def test_elements_of_a_type_that_only_the_code_knows(native, mul, entry):
    text = halves(entry, "mul_bf16").replace("uint16_t", "floatX")
    assert mul(native(text), "bfloat16") == RIGHT


def test_bits_of_bfloat16_that_are_wrong(native, mul, entry):
    found = mul(native(halves(entry, "mul_bf16_wrong")), "bfloat16")
    assert found["x"][0] == "fail"
    assert found["y"][0] == "pass"


# ── losses ───────────────────────────────────────────────────────────────────────────────────

LOSS = "double *dx, double *dy, const double *x, const double *y, int n"
BY_VALUE = "double *dx, double *dy, const double *x, const double *y, double dl, int n"


def loss(judged, native, op, sample="square"):
    found = judged(native(op), "square_error", "sum", sample)
    return {name: (f.verdict.value, f.reason) for name, f in found.items()}


@pytest.fixture
def scalar_sample(suite):
    """A sample of square_error whose output is a single number."""
    for case in suite.cases(["square_error"], ["sum"]):
        if len(case.primals[0].shape) == 1 and case.attrs["reduction"] == "sum":
            return case.sample.name
    raise AssertionError("there is none")


def test_a_loss_without_a_cotangent(native, judged, entry, scalar_sample):
    op = entry("loss", LOSS, op="square_error/sum")
    assert loss(judged, native, op, scalar_sample) == RIGHT


def test_a_loss_without_a_cotangent_of_another_scale(native, judged, entry, scalar_sample):
    op = entry("loss", LOSS, op="square_error/sum", more='loss_scale = "2"')
    assert {v for v, _ in loss(judged, native, op, scalar_sample).values()} == {"fail"}


def test_a_cotangent_by_value(native, judged, entry, scalar_sample):
    op = entry("loss_by_value", BY_VALUE, op="square_error/sum", dl="item(cotangent)")
    assert loss(judged, native, op, scalar_sample) == RIGHT
    op = entry("loss_by_value", BY_VALUE, op="square_error/sum", dl="2 * item(cotangent)")
    assert {v for v, _ in loss(judged, native, op, scalar_sample).values()} == {"fail"}


def test_the_shape_of_a_cotangent_is_not_its_value(native, judged, entry, scalar_sample):
    shape = "size(x) * size(cotangent)"
    op = entry("loss", LOSS, op="square_error/sum", n=shape)
    assert loss(judged, native, op, scalar_sample) == RIGHT


def test_only_a_single_number_needs_no_cotangent(native, mul, entry):
    op = entry("loss", LOSS)
    verdict, reason = mul(native(op))["vjp"]
    assert verdict == "unsupported"
    assert reason.startswith("loss takes no cotangent of the output, of shape (3, 5)")


def test_a_forward_that_returns_the_value(native, judged, entry, scalar_sample):
    forward = (
        'forward = "double loss_forward(const double *x, const double *y, int n)"\n'
        'forward_bind = { x = "in:x", y = "in:y", n = "size(x)", return = "out" }'
    )
    op = entry("loss", LOSS, op="square_error/sum", more=forward)
    assert loss(judged, native, op, scalar_sample) == {"forward": ("pass", ""), **RIGHT}
    wrong = op.replace('n = "size(x)", return', 'n = "size(x) - 1", return')
    assert loss(judged, native, wrong, scalar_sample)["forward"][0] == "fail"


# ── two outputs ──────────────────────────────────────────────────────────────────────────────

FORWARD = (
    'forward = "void pair_forward(double *twice, double *square, const double *x, int n)"\n'
    'forward_bind = { twice = "out", square = "out:1", x = "in:x", n = "size(x)" }'
)


def both(judged, native, op):
    found = judged(native(op, suite=OPERATORS), "pair", suite=OPERATORS)
    return {name: (f.verdict.value, f.reason) for name, f in found.items()}


def test_two_outputs(native, judged, entry):
    parameters = "double *dx, const double *d0, const double *d1, const double *x, int n"
    bound = {"op": "pair", "d0": "cotangent", "d1": "cotangent:1", "more": FORWARD}
    right = both(judged, native, entry("pair", parameters, **bound))
    assert right == {"forward": ("pass", ""), "x": ("pass", "")}
    bound |= {"d0": "cotangent:1", "d1": "cotangent"}
    assert both(judged, native, entry("pair", parameters, **bound))["x"][0] == "fail"
    bound["more"] = FORWARD.replace('twice = "out"', 'twice = "out:1"').replace(
        'square = "out:1"', 'square = "out"'
    )
    assert both(judged, native, entry("pair", parameters, **bound))["forward"][0] == "fail"


def test_one_of_two_cotangents(native, judged, entry):
    parameters = "double *dx, const double *d0, const double *x, int n"
    op = entry("pair_first", parameters, op="pair", d0="cotangent")
    verdict, reason = both(judged, native, op)["vjp"]
    assert verdict == "unsupported"
    assert reason.startswith("pair_first takes no cotangent of output 1")


def test_an_expression_is_compiled_once_however_many_calls_it_serves(
    native, entry, mul, monkeypatch
):
    trees, compile_tree = [], expression.compiled

    def counted(tree, *rest):
        trees.append(ast.unparse(tree))
        return compile_tree(tree, *rest)

    monkeypatch.setattr(expression, "compiled", counted)
    for _ in range(2):
        found = mul(native(entry("mul", n="size(x) + 3 - 3")))
        assert {verdict for verdict, _ in found.values()} == {"pass"}
    assert [tree.endswith("+ 3 - 3") for tree in trees].count(True) == 1
