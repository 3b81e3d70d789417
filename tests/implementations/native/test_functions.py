"""Each role and layout of docs/manifest.md, on a right C function and on a wrong one."""

import ast
import json
import re

import pytest

from gradcheck.cli.main import main
from gradcheck.numerics.draw import Draw
from gradcheck.spec import Dialect, OpSpec, Sample
from gradcheck.spec.suite import Suite
from gradcheck.system import expression
from tests.implementations.native.kernels import entry

RIGHT = {"x": "pass", "y": "pass"}
PASSES = {"forward": "pass", **RIGHT}
FAILS = {"x": "fail", "y": "fail"}
ADDS = "mul_adds adds to `dx` instead of overwriting it; clear it first, or declare that it `accu…"
BEFORE = "{} depends on what `{}` held before, which it should overwrite"
PAST = "SIGSEGV in {}: it …"
REFERENCE = 'residuals = "reference"\nsaved = {{ keep = "{}" }}'
INDEX = {"is": "saved:at[n]", "at": "0", "size": "n + 1"}
SHIFTED = {"is": "saved:keep[n]", "at": "2", "size": "n + 2"}
PLAN = 'handle = {{ create = "plan *{}(int n)", bind = {{ n = "size(x)" }}, '
PLAN += 'destroy = "void plan_free(plan *made)" }}'

VALUES = {
    "a": "-8", "b": "200", "c": "-300", "d": "60000", "e": "-70000", "f": "3 * 10 ** 9",
    "g": "-5 * 10 ** 9", "h": "size(x)", "i": "1 / 2", "j": "0.1", "k": "ndim(x) > 0",
    "word": "'naïve'", "numbers": "[3 / 2, -2]",
}  # fmt: skip


def scalars(**other):
    return entry("every_scalar", **{**VALUES, **other})


def packed(symbol="packed", gap=1, *, swapped=False):
    """Two tensors side by side, in rows with a gap."""

    def both(first, second):
        part = {"shape": ["rows", "n"], "strides": ["ld", "1"]}
        parts = [{"is": first, **part}, {"is": second, **part, "at": "n"}]
        return {"size": "rows * ld", "parts": parts}

    grads = ("grad:y", "grad:x") if swapped else ("grad:x", "grad:y")
    return entry(
        symbol,
        d=both(*grads),
        xy=both("in:x", "in:y"),
        rows="rows(x)",
        n="dim(x, -1)",
        ld=f"2 * n + {gap}",
    )


def transposed(axes):
    layouts = {
        name: {"is": f"{kind}:x", "axes": axes} for name, kind in (("dx", "grad"), ("x", "in"))
    }
    return entry("transposed", ne="dims(x)", ndim="ndim(x)", **layouts)


TABLE = {
    # ── gradients ──
    "overwritten": (entry("mul"), RIGHT),
    "slots swapped": (entry("mul_swapped"), {"x": ("fail", "… outside the…"), "y": "fail"}),
    "elements never written": (
        entry("mul_unwritten"),
        {"y": ("fail", "2 of 15 elements of the gradient of y are never written…", "A",
               "elements of the gradient of y keep what their buffer held before")},
    ),
    "accumulating, declared": (entry("mul_adds", more='accumulates = ["dx"]'), RIGHT),
    "accumulating, undeclared": (
        entry("mul_adds"),
        {"x": ("fail", ADDS, "A",
               "the gradient of x is added to what its buffer held: clear it first, or declare "
               "`accumulates`")},
    ),
    "accumulating, another declared": (
        entry("mul_adds_both", more='accumulates = ["dx"]'),
        {"y": ("fail", "mul_adds_both adds to `dy`…")},
    ),
    "a sign read from before": (
        entry("mul_keeps_sign"),
        {"x": ("fail", BEFORE.format("mul_keeps_sign", "dx"), "A",
               "the gradient of x depends on what its buffer held before")},
    ),
    "a zero times what was before": (
        entry("mul_cross"), {"y": ("fail", BEFORE.format("mul_cross", "dy"))},
    ),
    "in place": (entry("mul_in_place", d="cotangent -> grad:x"), RIGHT),
    "in place, too soon": (
        entry("mul_in_place_too_soon", d="cotangent -> grad:x"), {"x": "pass", "y": "fail"},
    ),
    "two buffers": (entry("mul_two", dx2="grad:x"), RIGHT),
    "one of two buffers": (entry("mul_two", dx2="scratch[n]"), {"x": "fail", "y": "pass"}),
    "returned": (entry("scale_vjp", **{"return": "grad:s"}), {"x": "pass", "s": "pass"}),
    "returned, ignored": (
        entry("scale_vjp"),
        {"x": "pass", "s": ("missing", "… no parameter is bound to grad:s")},
    ),
    "lacking, declared": (
        entry("mul_only_x", more='missing = { y = "y is frozen" }'),
        {"x": "pass", "y": ("missing", "no gradient for y: y is frozen")},
    ),
    "lacking, undeclared": (
        entry("mul_only_x"),
        {"x": "pass", "y": ("missing", "no gradient for y: no parameter is bound to grad:y")},
    ),
    "scaled": (entry("mul_scaled", more='loss_scale = "2 ** 3"'), RIGHT),
    "scaled by 8, not 7": (entry("mul_scaled", more='loss_scale = "7"'), FAILS),
    "scaled, undeclared": (entry("mul_scaled"), FAILS),
    "a scale of zero": (
        entry("mul_scaled", more='loss_scale = "0 * n"'),
        {"vjp": ("error", "… nothing can be divided by it")},
    ),
    # ── workspace ──
    "scratch": (entry("mul_scratch", tmp="scratch[n]"), RIGHT),
    "scratch, too small": (
        entry("mul_scratch", tmp="scratch[n - 1]"), {"vjp": ("crash", "… past the end of tmp…")},
    ),
    "zeros": (entry("mul_zeros", tmp="zeros[n]"), RIGHT),
    "zeros, declared as scratch": (
        entry("mul_zeros", tmp="scratch[n]"),
        {"vjp": ("fail", "mul_zeros depends on what was in scratch `tmp` before…")},
    ),
    "safe while zero": (
        entry("mul_index", map="scratch[n]"),
        {"vjp": ("crash", "… where all memory is zero before: something is read unset")},
    ),
    "bytes": (entry("mul_bytes", workspace="scratch[bytes]", bytes="3 * size(x) + 1"), RIGHT),
    "bytes, too few": (
        entry("mul_bytes", workspace="scratch[bytes - 1]", bytes="3 * size(x) + 1"),
        {"vjp": "crash"},
    ),
    "an unused pointer": (entry("mul_stream", stream="unused"), RIGHT),
    "a null pointer": (entry("mul_stream", stream="null"), RIGHT),
    "an unused pointer, followed": (
        entry("mul_follows", stream="unused"), {"vjp": ("crash", PAST.format("mul_follows"))},
    ),
    "a null pointer, followed": (
        entry("mul_follows", stream="null"), {"vjp": ("crash", "SIGSEGV in mul_follows…")},
    ),
    # ── what forward leaves ──
    "a forward": (entry("mul", forward="mul_forward"), PASSES),
    "a wrong forward": (entry("mul", forward="add_forward"), {"forward": "fail", **RIGHT}),
    "a forward in part": (
        entry("mul", forward="part_forward"),
        {"forward": ("fail", "1 of 15 elements of output 0 is never written")},
    ),
    "a forward alone": (
        entry("", forward="mul_forward"),
        {"forward": "pass", "vjp": ("unsupported", "kernels has only a forward of mul")},
    ),
    "a residual": (entry("from_saved", forward="saving_forward"), PASSES),
    "a residual left unwritten": (
        entry("from_saved", forward="half_saving_forward"),
        {"forward": "pass",
         "vjp": ("fail", "forward leaves elements of the residual keep (`keep`) unwritten…")},
    ),
    "a residual written to": (
        entry("spoils_saved", forward="saving_forward"),
        {"forward": "pass",
         "vjp": ("error", "spoils_saved writes into its argument `keep`; copy first")},
    ),
    "a residual laid out otherwise": (
        entry("from_saved", forward="saving_forward", forward_bind={"keep": SHIFTED}),
        {"forward": "fail"},
    ),
    "whole numbers": (entry("indexed", forward="indexing_forward"), PASSES),
    "whole numbers, in another place": (
        entry("indexed", forward="indexing_forward", at=INDEX), PASSES,
    ),
    "whole numbers, wrong": (
        entry("indexed", forward="misindexing_forward"),
        {"forward": "pass", "x": "pass", "y": "fail"},
    ),
    "an expression beside a forward": (
        entry("from_saved", forward="half_saving_forward", more=REFERENCE.format("x + 0")), PASSES,
    ),
    "an expression": (entry("from_saved", more=REFERENCE.format("x + 0")), RIGHT),
    "a wrong expression": (
        entry("from_saved", more=REFERENCE.format("y + 0")), {"x": "pass", "y": "fail"},
    ),
    "an expression of another size": (
        entry("from_saved", more=REFERENCE.format("sum(x)")),
        {"vjp": ("error", "… has 15 elements, but keep has 1 element…")},
    ),
    "an output without a forward": (entry("from_output"), {"x": "pass"}),
    "an output that is an input": (entry("from_output", y="in:x"), {"x": "fail"}),
    "a value": (entry("with_value", z="value"), PASSES),
    "a wrong value": (entry("with_wrong_value", z="value"), {"forward": "fail", **RIGHT}),
    "a value and a forward": (entry("with_value", z="value", forward="mul_forward"), PASSES),
    "a value and a wrong forward": (
        entry("with_value", z="value", forward="add_forward"), {"forward": "fail", **RIGHT},
    ),
    "a wrong value and a forward": (
        entry("with_wrong_value", z="value", forward="mul_forward"), {"forward": "fail", **RIGHT},
    ),
    "a handle": (entry("planned", made="handle", more=PLAN.format("plan_new")), RIGHT),
    "a null handle": (
        entry("planned", made="handle", more=PLAN.format("plan_none")),
        {"vjp": ("error", "plan_none returned a null pointer")},
    ),
    # ── arguments ──
    "scalars, a string, an array": (scalars(), RIGHT),
    "another int8": (scalars(a="-7"), {"x": "fail"}),
    "another uint16": (scalars(d="1"), {"x": "fail"}),
    "another long": (scalars(g="5"), {"x": "fail"}),
    "another float": (scalars(i="0.25"), {"x": "fail"}),
    "another bool": (scalars(k="1 > 2"), {"x": "fail"}),
    "another string": (scalars(word="'naive'"), {"x": "fail"}),
    "another array": (scalars(numbers="[-2, 3 / 2]"), {"x": "fail"}),
    "no int8": (scalars(a="200"), {"vjp": ("error", "… 200, which is no int8")}),
    "no uint8": (scalars(b="-1"), {"vjp": ("error", "… -1, which is no uint8")}),
    "no size": (scalars(h="size(x) / 2"), {"vjp": ("error", "… 7.5, which is no whole number")}),
    "no number": (
        scalars(numbers="[1.5, 'a']"), {"vjp": ("error", "… 'a'; a number is needed")},
    ),
    "uint16 indices": (entry("rows_u16", more='accumulates = ["dtable"]'), {"x": "pass"}),
    "int64 indices": (entry("rows_i64", more='accumulates = ["dtable"]'), {"x": "pass"}),
    "indices behind a void pointer": (
        entry("rows_i64", {"int64_t": "void"}, more='accumulates = ["dtable"]'), {"x": "pass"},
    ),
    # ── layouts ──
    "side by side": (packed(gap=0), RIGHT),
    "side by side, with a gap": (packed(gap=1), RIGHT),
    "side by side, with a wide gap": (packed(gap=5), RIGHT),
    "side by side, swapped": (packed(swapped=True), FAILS),
    "a write into the gap": (
        packed("packed_into_gap"),
        {"vjp": ("fail", "packed_into_gap writes outside of its part of `d`", "I",
                 "an index into `d` leaves its part")},
    ),
    "a read from the gap": (
        packed("packed_from_gap"),
        {"vjp": ("fail", "packed_from_gap reads outside of its part of `xy`", "I",
                 "an index into `xy` leaves its part")},
    ),
    "axes in another order": (transposed([1, 0]), RIGHT),
    "axes in C order": (transposed([0, 1]), {"x": "fail", "y": "fail"}),
    # ── losses ──
    "a cotangent is needed": (
        entry("loss", op="mul/same-shape"),
        {"vjp": ("unsupported", "loss takes no cotangent of the output, of shape (3, 5)…")},
    ),
}  # fmt: skip
WITHOUT_DIAGNOSIS = ("slots swapped", "overwritten", "side by side, with a gap")


def check(found, wanted):
    """Findings against verdicts, by name, and the reasons, labels and sentences that go with them.

    "…" in a reason stands for any text; a pass gives no reason, and "fail" alone any.
    """
    assert {name: f.verdict.value for name, f in found.items()} == {
        name: want if isinstance(want, str) else want[0] for name, want in wanted.items()
    }
    for name, want in wanted.items():
        _, reason, *diagnosis = (
            (want, "…" if want != "pass" else "") if isinstance(want, str) else want
        )
        pattern = re.escape(reason).replace("…", ".*")
        assert re.fullmatch(pattern, found[name].reason, flags=re.DOTALL), found[name].reason
        if diagnosis:
            told = found[name].diagnosis
            assert [told.label, told.says] == diagnosis


@pytest.mark.slow(keep=14, rest=30)
@pytest.mark.parametrize("name", TABLE)
def test_a_function_of_one_case(native, judged, name):
    text, wanted = TABLE[name]
    op = re.search('name = "(.*)"', text)[1].split("/")
    found = judged(native(text), op[0], *op[1:] or [""])
    check(found, wanted)
    if name in WITHOUT_DIAGNOSIS:
        assert {f.diagnosis for f in found.values()} == {None}


# ── other dialects, samples and dtypes ───────────────────────────────────────────────────────


def _draw(draw: Draw):
    return (draw.normal(3, 4),)


def _pair(draw: Draw):
    return (*_draw(draw), draw.normal(3, 4))


TYPICAL = "a slot that is swapped"
MADE = {"source": "made for this test"}
SUITE = Suite(
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
            **MADE,
        ),
        OpSpec(
            name="pair",
            signature="()->(),()",
            forward=lambda xp, x: (x + x, x * x),
            vjp=lambda xp, ct, x: ct[0] + ct[0] + (x + x) * ct[1],
            samples=(Sample(name="typical", primals=_draw, hunts=TYPICAL),),
            formula="(2x, x^2)",
            **MADE,
        ),
    ],
)
LACKING = ("unsupported", "… there is no w here; end its role with `?`…")
HALF = {"key": "vjp.bfloat16"}
MADE_UP = {
    "a weight": (entry("weighted"), "weighted", "weight", {"x": "pass", "w": "pass"}),
    "no weight": (entry("weighted"), "weighted", "plain", {"x": "pass"}),
    "a weight that is needed": (
        entry("weighted", w="in:w"), "weighted", "plain", {"vjp": LACKING},
    ),
    "a gradient that is needed": (
        entry("weighted", dw="grad:w"), "weighted", "plain", {"vjp": LACKING},
    ),
    "a weight that the code does not know": (
        entry("mul_only_x", op="weighted", y="in:x", dz="cotangent"), "weighted", "weight",
        {"vjp": ("unsupported", "no parameter is the primal w, which dialect weight has…")},
    ),
    "two outputs": (
        entry("pair", forward="pair_forward"), "pair", "", {"forward": "pass", "x": "pass"},
    ),
    "two cotangents swapped": (
        entry("pair", d0="cotangent:1", d1="cotangent"), "pair", "", {"x": "fail"},
    ),
    "two outputs swapped": (
        entry("pair", forward="pair_forward", forward_bind={"twice": "out:1", "square": "out"}),
        "pair", "", {"forward": "fail", "x": "pass"},
    ),
    "one of two cotangents": (
        entry("pair_first"), "pair", "",
        {"vjp": ("unsupported", "pair_first takes no cotangent of output 1…")},
    ),
}  # fmt: skip


@pytest.mark.slow(keep=6)
@pytest.mark.parametrize("name", MADE_UP)
def test_a_function_of_an_operator_made_for_it(native, judged, name):
    text, op, dialect, wanted = MADE_UP[name]
    check(judged(native(text, suite=SUITE), op, dialect, suite=SUITE), wanted)


def test_indices(native, judged):
    narrow = entry("rows_u16", {"uint16_t": "int64_t"}, more='accumulates = ["dtable"]')
    (found,) = judged(native(narrow), "get_rows", "").values()
    assert found.verdict.value in ("fail", "crash")
    for more, verdict in {'zeroed = ["dtable"]': "pass", "": "fail"}.items():
        found = judged(native(entry("rows_u16", more=more)), "get_rows", "", "all-same")
        assert found["x"].verdict.value == verdict


def test_bits_of_bfloat16(native, judged):
    table = {
        entry("mul_bf16", **HALF): RIGHT,
        entry("mul_bf16", {"uint16_t": "floatX"}, **HALF): RIGHT,  # a type that only it knows
        entry("mul_bf16_wrong", **HALF): {"x": "fail", "y": "pass"},
    }
    for text, wanted in table.items():
        check(judged(native(text), dtype="bfloat16"), wanted)


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        (entry("loss"), RIGHT),
        (entry("loss", more='loss_scale = "2"'), FAILS),
        (entry("loss", n="size(x) * size(cotangent)"), RIGHT),  # of its shape, not of its value
        (entry("loss_by_value"), RIGHT),
        (entry("loss_by_value", dl="2 * item(cotangent)"), FAILS),
        (entry("loss", forward="loss_forward"), PASSES),
        (
            entry("loss", forward="loss_forward", forward_bind={"n": "size(x) - 1"}),
            {"forward": "fail", **RIGHT},
        ),
    ],
)
def test_a_loss(native, judged, suite, text, wanted):
    scalar = next(
        case.sample.name
        for case in suite.cases(["square_error"], ["sum"])
        if len(case.primals[0].shape) == 1 and case.attrs["reduction"] == "sum"
    )
    check(judged(native(text), "square_error", "sum", scalar), wanted)


@pytest.mark.slow(keep=1)
@pytest.mark.parametrize(
    ("symbol", "verdict"),
    [("mul_f32", "pass"), ("mul_tf32", "fail"), ("mul_tf32_cotangent", "fail")],
)
def test_tf32_shows_in_the_gradients_of_a_manifest(manifest, tmp_path, symbol, verdict):
    path, report = manifest(entry(symbol)), tmp_path / "run.json"
    words = ["--op", "mul", "--dialect", "same-shape", "--sample", "typical", "--dtype", "float32"]
    code = main(["run", "--impl", str(path), "--no-contract", "-o", str(report), *words])
    assert code == (verdict == "fail")
    results = json.loads(report.read_text())["results"]
    assert {r["output"]: r["verdict"] for r in results} == {"x": verdict, "y": verdict}


def test_an_expression_is_compiled_once_however_many_calls_it_serves(native, judged, monkeypatch):
    trees, compile_tree = [], expression.compiled

    def counted(tree, *rest):
        trees.append(ast.unparse(tree))
        return compile_tree(tree, *rest)

    monkeypatch.setattr(expression, "compiled", counted)
    for _ in range(2):
        check(judged(native(entry("mul", n="size(x) + 3 - 3"))), RIGHT)
    assert [tree.endswith("+ 3 - 3") for tree in trees].count(True) == 1
