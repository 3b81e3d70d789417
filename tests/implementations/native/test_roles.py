"""Each role of docs/manifest.md on a C function that is right, and on one that is not."""

import pytest

RIGHT = {"x": ("pass", ""), "y": ("pass", "")}
F32 = "float *dx, float *dy, const float *dz, const float *x, const float *y, int n"


# ── gradients ────────────────────────────────────────────────────────────────────────────────


def test_overwritten(native, mul, entry):
    assert mul(native(entry("mul"))) == RIGHT


def test_slots_that_are_swapped_are_wrong_numbers(native, mul, entry):
    found = mul(native(entry("mul_swapped")))
    assert [verdict for verdict, _ in found.values()] == ["fail", "fail"]
    assert "outside their bound" in found["x"][1]


def test_elements_that_are_never_written(native, mul, entry):
    (found,) = mul(native(entry("mul_unwritten"))).items()
    name, (verdict, reason) = found
    assert (name, verdict) == ("y", "fail")
    assert reason.startswith("2 of 15 elements of the gradient of y are never written")


@pytest.mark.slow
def test_accumulating_is_declared(native, mul, entry):
    declared = entry("mul_adds", more='accumulates = ["dx"]')
    assert mul(native(declared)) == RIGHT


def test_accumulating_undeclared(native, mul, entry):
    ((name, (verdict, reason)),) = mul(native(entry("mul_adds"))).items()
    assert (name, verdict) == ("x", "fail")
    assert reason.startswith("mul_adds adds to `dx` instead of overwriting it")
    assert "`accumulates`" in reason


def test_accumulating_declared_of_another(native, mul, entry):
    declared = entry("mul_adds_both", more='accumulates = ["dx"]')
    ((name, (verdict, reason)),) = mul(native(declared)).items()
    assert (name, verdict) == ("y", "fail")
    assert "adds to `dy`" in reason


@pytest.mark.slow(keep=1)
@pytest.mark.parametrize(
    ("symbol", "buffer"), [("mul_keeps_sign", "dx"), ("mul_cross", "dy")]
)  # fmt: skip
def test_what_was_there_before_is_read(native, mul, entry, symbol, buffer):
    ((_, (verdict, reason)),) = mul(native(entry(symbol))).items()
    assert verdict == "fail"
    assert reason == f"{symbol} depends on what `{buffer}` held before, which it should overwrite"


def test_in_place(native, mul, entry):
    parameters = "double *d, double *dy, const double *x, const double *y, int n"
    bound = {"parameters": parameters, "d": "cotangent -> grad:x"}
    assert mul(native(entry("mul_in_place", **bound))) == RIGHT
    wrong = mul(native(entry("mul_in_place_too_soon", **bound)))
    assert wrong["x"][0] == "pass"
    assert wrong["y"][0] == "fail"


def test_two_buffers_are_one_gradient(native, mul, entry):
    parameters = (
        "double *dx, double *dx2, double *dy, const double *dz, const double *x, const double *y, "
        "int n"
    )
    assert mul(native(entry("mul_two", parameters, dx2="grad:x"))) == RIGHT
    half = mul(native(entry("mul_two", parameters, dx2="scratch[n]")))
    assert half["x"][0] == "fail"
    assert half["y"][0] == "pass"


def test_a_gradient_that_is_returned(native, judged, entry):
    parameters = "double *dx, const double *dy, const double *x, double s, int n"
    bound = {"op": "scale", "dy": "cotangent", "s": "item(s)", "returns": "double"}
    right = judged(native(entry("scale_vjp", parameters, **bound, **{"return": "grad:s"})), "scale")
    assert {name: f.verdict.value for name, f in right.items()} == {"x": "pass", "s": "pass"}
    ignored = judged(native(entry("scale_vjp", parameters, **bound)), "scale")
    assert ignored["s"].verdict.value == "missing"
    assert ignored["s"].reason.endswith("no parameter is bound to grad:s")


def test_only_a_part_is_written(native, judged, entry):
    parameters = "double *dtable, const double *dy, const uint16_t *tokens, size_t n, size_t width"
    bound = {
        "op": "get_rows", "dtable": "grad:x", "dy": "cotangent", "tokens": "in:rows",
        "n": "size(rows)", "width": "dim(x, -1)",
    }  # fmt: skip
    declared = native(entry("rows_u16", parameters, more='zeroed = ["dtable"]', **bound))
    assert judged(declared, "get_rows", sample="all-same")["x"].verdict.value == "pass"
    silent = judged(native(entry("rows_u16", parameters, **bound)), "get_rows", sample="all-same")
    assert silent["x"].verdict.value == "fail"


def test_a_gradient_that_the_code_lacks(native, mul, entry):
    parameters = "double *dx, const double *dz, const double *x, const double *y, int n"
    declared = entry("mul_only_x", parameters, more='missing = { y = "y is frozen" }')
    assert mul(native(declared)) == {
        "x": ("pass", ""),
        "y": ("missing", "no gradient for y: y is frozen"),
    }
    silent = mul(native(entry("mul_only_x", parameters)))
    assert silent["y"] == ("missing", "no gradient for y: no parameter is bound to grad:y")


def test_scaled_gradients(native, mul, entry):
    assert mul(native(entry("mul_scaled", more='loss_scale = "2 ** 3"'))) == RIGHT
    for scale in ("1", "7"):
        found = mul(native(entry("mul_scaled", more=f'loss_scale = "{scale}"')))
        assert {verdict for verdict, _ in found.values()} == {"fail"}


def test_a_loss_scale_of_zero(native, mul, entry):
    found = mul(native(entry("mul_scaled", more='loss_scale = "0 * n"')))
    assert found["vjp"][0] == "error"
    assert "nothing can be divided by it" in found["vjp"][1]


# ── workspace ────────────────────────────────────────────────────────────────────────────────


def test_scratch_may_hold_anything(native, mul, entry):
    parameters = (
        "double *dx, double *dy, const double *dz, const double *x, const double *y, double *tmp, "
        "int n"
    )
    assert mul(native(entry("mul_scratch", parameters, tmp="scratch[n]"))) == RIGHT
    assert mul(native(entry("mul_zeros", parameters, tmp="zeros[n]"))) == RIGHT
    ((name, (verdict, reason)),) = mul(
        native(entry("mul_zeros", parameters, tmp="scratch[n]"))
    ).items()
    assert (name, verdict) == ("vjp", "fail")
    assert reason.startswith("mul_zeros depends on what was in scratch `tmp` before")


@pytest.mark.slow
def test_scratch_that_is_too_small(native, mul, entry):
    parameters = (
        "double *dx, double *dy, const double *dz, const double *x, const double *y, double *tmp, "
        "int n"
    )
    ((_, (verdict, reason)),) = mul(
        native(entry("mul_scratch", parameters, tmp="scratch[n - 1]"))
    ).items()
    assert verdict == "crash"
    assert "past the end of tmp" in reason


def test_scratch_that_is_only_safe_while_it_is_zero(native, mul, entry):
    parameters = (
        "double *dx, double *dy, const double *dz, const double *x, const double *y, int *map, "
        "int n"
    )
    ((_, (verdict, reason)),) = mul(
        native(entry("mul_index", parameters, map="scratch[n]"))
    ).items()
    assert verdict == "crash"
    assert reason.endswith("where all memory is zero before: something is read unset")


def test_workspace_without_a_type_is_counted_in_bytes(native, mul, entry):
    parameters = (
        "double *dx, double *dy, const double *dz, const double *x, const double *y, "
        "void *workspace, size_t bytes, int n"
    )
    bound = {"workspace": "scratch[bytes]", "bytes": "3 * size(x) + 1"}
    assert mul(native(entry("mul_bytes", parameters, **bound))) == RIGHT
    bound["workspace"] = "scratch[bytes - 1]"
    ((_, (verdict, _)),) = mul(native(entry("mul_bytes", parameters, **bound))).items()
    assert verdict == "crash"


@pytest.mark.slow(keep=1)
@pytest.mark.parametrize("meaning", ["unused", "null"])
def test_a_pointer_that_is_not_followed(native, mul, entry, meaning):
    parameters = (
        "double *dx, double *dy, const double *dz, const double *x, const double *y, int n, "
        "void *stream"
    )
    assert mul(native(entry("mul_stream", parameters, stream=meaning))) == RIGHT
    ((_, (verdict, reason)),) = mul(
        native(entry("mul_follows", parameters, stream=meaning))
    ).items()
    assert verdict == "crash"
    assert "SIGSEGV in mul_follows" in reason


# ── what forward leaves ──────────────────────────────────────────────────────────────────────

FORWARD = (
    'forward = "void {}(double *z, const double *x, const double *y, int n)"\n'
    'forward_bind = {{ z = "out", x = "in:x", y = "in:y", n = "size(x)" }}'
)
SAVING = (
    'forward = "void {}(double *z, double *keep, const double *x, const double *y, int n)"\n'
    'forward_bind = {{ z = "out", keep = "saved:keep[n]", x = "in:x", y = "in:y", n = "size(x)" }}'
)
FROM_SAVED = "double *dx, double *dy, const double *dz, {}double *keep, const double *y, int n"
PASSES = {"forward": ("pass", ""), **RIGHT}


def test_forward_is_judged(native, mul, entry):
    assert mul(native(entry("mul", more=FORWARD.format("mul_forward")))) == PASSES
    wrong = mul(native(entry("mul", more=FORWARD.format("add_forward"))))
    assert wrong["forward"][0] == "fail"
    assert wrong["x"] == wrong["y"] == ("pass", "")
    ((name, (verdict, reason)),) = mul(
        native(entry("mul", more=FORWARD.format("part_forward")))
    ).items()
    assert (name, verdict) == ("forward", "fail")
    assert reason == "1 of 15 elements of output 0 are never written"


def test_a_forward_alone(native, mul):
    op = '[[op]]\nname = "mul/same-shape"\n' + FORWARD.format("mul_forward")
    found = mul(native(op))
    assert found["forward"] == ("pass", "")
    assert found["vjp"] == ("unsupported", "kernels has only a forward of mul")


def test_a_residual_from_the_own_forward(native, mul, entry):
    more = SAVING.format("saving_forward")
    parameters = FROM_SAVED.format("const ")
    assert mul(native(entry("from_saved", parameters, keep="saved:keep[n]", more=more))) == PASSES


def test_a_residual_that_forward_leaves_unwritten(native, mul, entry):
    more = SAVING.format("half_saving_forward")
    found = mul(
        native(entry("from_saved", FROM_SAVED.format("const "), keep="saved:keep[n]", more=more))
    )
    assert found["forward"] == ("pass", "")
    verdict, reason = found["vjp"]
    assert verdict == "fail"
    assert reason.startswith("forward leaves elements of the residual keep (`keep`) unwritten")


def test_a_residual_is_only_read(native, mul, entry):
    more = SAVING.format("saving_forward")
    found = mul(
        native(entry("spoils_saved", FROM_SAVED.format(""), keep="saved:keep[n]", more=more))
    )
    assert found["vjp"] == ("error", "spoils_saved writes into its argument `keep`; copy first")


INDEXED = (
    'forward = "void {}(double *z, int *at, const double *x, const double *y, int n)"\n'
    'forward_bind = {{ z = "out", at = "saved:at[n]", x = "in:x", y = "in:y", n = "size(x)" }}'
)
FROM_INDEXED = (
    "double *dx, double *dy, const double *dz, const int *at, const double *x, const double *y, "
    "int n"
)


@pytest.mark.slow(keep=1)
@pytest.mark.parametrize(
    "at", ["saved:at[n]", {"is": "saved:at[n]", "at": "0", "size": "n + 1"}], ids=["same", "other"]
)
def test_a_residual_of_whole_numbers(native, mul, entry, at):
    op = entry("indexed", FROM_INDEXED, at=at, more=INDEXED.format("indexing_forward"))
    assert mul(native(op)) == PASSES


def test_a_residual_of_whole_numbers_that_is_wrong(native, mul, entry):
    more = INDEXED.format("misindexing_forward")
    found = mul(native(entry("indexed", FROM_INDEXED, at="saved:at[n]", more=more)))
    assert found["forward"] == ("pass", "")
    assert found["y"][0] == "fail"


def test_residuals_of_the_reference_beside_an_own_forward(native, mul, entry):
    saved = 'residuals = "reference"\nsaved = { keep = "x + 0" }\n'
    more = saved + SAVING.format("half_saving_forward")
    op = entry("from_saved", FROM_SAVED.format("const "), keep="saved:keep[n]", more=more)
    assert mul(native(op)) == PASSES


def test_a_residual_as_an_expression(native, mul, entry):
    saved = 'residuals = "reference"\nsaved = {{ keep = "{}" }}'
    bound = {"parameters": FROM_SAVED.format("const "), "keep": "saved:keep[n]"}
    assert mul(native(entry("from_saved", more=saved.format("x + 0"), **bound))) == RIGHT
    wrong = mul(native(entry("from_saved", more=saved.format("y + 0"), **bound)))
    assert wrong["x"] == ("pass", "")
    assert wrong["y"][0] == "fail"


def test_a_residual_of_the_wrong_size(native, mul, entry):
    saved = 'residuals = "reference"\nsaved = { keep = "sum(x)" }'
    bound = {"parameters": FROM_SAVED.format("const "), "keep": "saved:keep[n]"}
    verdict, reason = mul(native(entry("from_saved", more=saved, **bound)))["vjp"]
    assert verdict == "error"
    assert "1 element" in reason
    assert "15 elements" in reason


def test_a_residual_in_another_layout_than_forward_writes_it(native, mul, entry):
    more = SAVING.format("saving_forward").replace(
        '"saved:keep[n]"', '{ is = "saved:keep[n]", at = "2", size = "n + 2" }'
    )
    found = mul(
        native(entry("from_saved", FROM_SAVED.format("const "), keep="saved:keep[n]", more=more))
    )
    assert found["forward"][0] == "fail"  # it writes to where it is not told to
    assert found.get("x", ("fail",))[0] == "fail"


def test_the_output_is_given_where_the_library_has_no_forward(native, judged, entry):
    parameters = "double *dx, const double *dy, const double *y, int n"
    op = entry("from_output", parameters, op="tanh", dy="cotangent", y="out")
    found = judged(native(op), "tanh")
    assert found["x"].verdict.value == "pass"
    wrong = entry("from_output", parameters, op="tanh", dy="cotangent", y="in:x")
    assert judged(native(wrong), "tanh")["x"].verdict.value == "fail"


def test_a_backward_that_computes_the_value_too(native, mul, entry):
    parameters = (
        "double *dx, double *dy, double *z, const double *dz, const double *x, const double *y, "
        "int n"
    )
    assert mul(native(entry("with_value", parameters, z="value"))) == PASSES
    wrong = mul(native(entry("with_wrong_value", parameters, z="value")))
    assert wrong["forward"][0] == "fail"
    assert wrong["x"] == ("pass", "")


def test_of_two_values_the_worse_one_is_judged(native, mul, entry):
    parameters = (
        "double *dx, double *dy, double *z, const double *dz, const double *x, const double *y, "
        "int n"
    )
    both = [("with_value", "add_forward"), ("with_wrong_value", "mul_forward")]
    for vjp, forward in both:
        found = mul(native(entry(vjp, parameters, z="value", more=FORWARD.format(forward))))
        assert found["forward"][0] == "fail"
    right = entry("with_value", parameters, z="value", more=FORWARD.format("mul_forward"))
    assert mul(native(right)) == PASSES


# ── handles ──────────────────────────────────────────────────────────────────────────────────

PLANNED = (
    "const plan *made, double *dx, double *dy, const double *dz, const double *x, const double *y"
)
HANDLE = (
    'handle = {{ create = "plan *{}(int n)", bind = {{ n = "size(x)" }}, '
    'destroy = "void plan_free(plan *made)" }}'
)


def test_an_opaque_handle(native, mul, entry):
    op = entry("planned", PLANNED, made="handle", more=HANDLE.format("plan_new"))
    assert mul(native(op)) == RIGHT


def test_a_handle_that_is_null(native, mul, entry):
    op = entry("planned", PLANNED, made="handle", more=HANDLE.format("plan_none"))
    assert mul(native(op))["vjp"] == ("error", "plan_none returned a null pointer")
