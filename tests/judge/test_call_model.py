"""Foreign gradients, losses and stages: what breaks a contract is said in one clear line."""

import numpy as np
import pytest
from gradcheck_cases import SUITE

from gradcheck.errors import Unsupported
from gradcheck.implementations.bound import BoundModel
from gradcheck.implementations.returned import Broken
from gradcheck.judge.call_model import (
    MAX_UNKNOWN_NAMES,
    ask_gradients,
    ask_loss,
    ask_stage,
    stage_of,
)
from gradcheck.numerics.arithmetic import F32, F64
from gradcheck.results.finding import Finding, Part
from gradcheck.results.verdict import Verdict

(CASE,) = SUITE.model_cases(["gpt2"], sizes=["tiny"])
PROGRAM = CASE.program


def typed(values, dtype="float64"):
    return {n: v.astype(dtype) if v.dtype.kind == "f" else v for n, v in values.items()}


def fold(params, inputs):
    """The cotangent of every value, by the suite's own reverse pass."""
    xp = F32 if params["wte"].dtype == np.float32 else F64
    values = PROGRAM.forward(xp, {**params, **inputs})
    return PROGRAM.backward(xp, values, xp.asarray(np.array(1.0)))


def right(params, inputs):
    return {name: gradient for name, gradient in fold(params, inputs).items() if name in params}


def asked(gradients, dtype="float64"):
    return ask_gradients(gradients, CASE, typed(CASE.params, dtype), typed(CASE.inputs, dtype))


def with_(**changed):
    """Right gradients, except for those given."""

    def gradients(params, inputs):
        found = right(params, inputs)
        return {**found, **{n: change(found.get(n)) for n, change in changed.items()}}

    return gradients


def broken(call, *args):
    with pytest.raises(Broken) as caught:
        call(*args)
    return caught.value.finding


class Hostile(dict):
    def items(self):
        raise GeneratorExit("no items")


@pytest.mark.parametrize("part", ["gradients", "loss", "stage"])
def test_what_has_answered_does_not_lack_it_the_second_time(part):
    answers = iter([True])

    def lacks(found):
        if next(answers, False):
            return found
        raise Unsupported("not these numbers")

    stage = PROGRAM.stages[0]
    values = PROGRAM.forward(F64, typed(CASE.given))
    cts = tuple(np.ones_like(values[name]) for name in stage.outputs)
    bound = BoundModel(stage=lambda _: lambda s, cts, values: lacks(s.vjp(F64, cts, values)))
    ask = {
        "gradients": lambda: asked(lambda *given: lacks(right(*given))),
        "loss": lambda: ask_loss(lambda *_: lacks(1.0), {}, {}),
        "stage": lambda: ask_stage(stage_of(bound, stage), stage, cts, values),
    }[part]
    found = broken(ask)
    assert found.verdict is Verdict.ERROR
    assert "it had answered another call of this case" in found.reason


def test_a_stage_whose_binding_raises_is_an_error_of_that_stage():
    def stage(stage):
        raise KeyError(stage.name)

    found = broken(stage_of, BoundModel(stage=stage), PROGRAM.stages[0])
    assert (found.name, found.part) == (PROGRAM.stages[0].name, Part.STAGE)
    assert (found.verdict, "raised KeyError" in found.reason) == (Verdict.ERROR, True)


def test_a_mapping_of_buffers_that_raises_is_an_error():
    found = broken(asked, with_(wte=lambda _: Hostile()))
    assert (found.verdict, found.reason) == (
        Verdict.ERROR, "gradients raised GeneratorExit: no items",
    )  # fmt: skip


# ── gradients ────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_right_gradients_are_rows_in_float64(dtype):
    found = asked(right, dtype)
    want = right(typed(CASE.params, dtype), typed(CASE.inputs, dtype))
    assert list(found) == list(CASE.params)
    for name, row in found.items():
        assert (row.dtype, row.shape) == (np.float64, (1, CASE.params[name].size))
        np.testing.assert_array_equal(row[0], want[name].reshape(-1))


def test_arrays_are_of_the_working_dtype_and_indices_stay_integers():
    seen = {}

    def gradients(params, inputs):
        seen.update({name: array.dtype.name for name, array in {**params, **inputs}.items()})
        return right(params, inputs)

    asked(gradients, "float32")
    assert seen == {
        name: "int64" if name in CASE.inputs else "float32" for name in (*CASE.params, *CASE.inputs)
    }


@pytest.mark.slow(keep=2)
@pytest.mark.parametrize(
    ("change", "verdict", "reason"),
    [
        (lambda g: None, "missing", "no gradient for wpe: gradients returned None"),
        (lambda g: [], "missing", "no gradient for wpe: gradients returned no buffer of it"),
        (lambda g: g.T, "fail", "the gradient of wpe has shape (6, 4), wpe has (4, 6)"),
        (lambda g: g[None], "fail", "the gradient of wpe has shape (1, 4, 6), wpe has (4, 6)"),
        (lambda g: g.astype("f4"), "fail", "the gradient of wpe is float32, wpe is float64"),
        (lambda g: "zero", "fail", "the gradient of wpe is a str, not an array of numbers"),
        (lambda g: 0.0, "fail", "the gradient of wpe has shape (), wpe has (4, 6)"),
        (lambda g: [g, None], "missing", "return zeros where it is zero (buffer 2 of 2)"),
        (lambda g: [g, g[:2]], "fail", "give it the shape of wpe (buffer 2 of 2)"),
        (lambda g: {"dwpe": None}, "missing", "return zeros where it is zero (buffer 'dwpe')"),
    ],
)  # fmt: skip
def test_one_gradient_of_wrong_form_spoils_no_other(change, verdict, reason):
    found = asked(with_(wpe=change))
    bad = found.pop("wpe")
    assert (bad.name, bad.verdict.value) == ("wpe", verdict)
    assert reason in bad.reason
    assert "\n" not in bad.reason
    assert not [name for name, row in found.items() if isinstance(row, Finding)]


def test_float64_gradients_of_float32_parameters_are_refused():
    found = asked(lambda p, i: {n: g.astype("f8") for n, g in right(p, i).items()}, "float32")
    assert {f.verdict for f in found.values()} == {Verdict.FAIL}
    assert found["wte"].reason == "the gradient of wte is float64, wte is float32; keep its dtype"


def test_a_gradient_that_is_not_returned_is_missing_not_zero():
    def gradients(params, inputs):
        found = right(params, inputs)
        del found["h.1.ln_2.w"]
        return found

    bad = asked(gradients)["h.1.ln_2.w"]
    assert bad.verdict is Verdict.MISSING
    assert bad.reason == "no gradient for h.1.ln_2.w: gradients did not return it"


@pytest.mark.parametrize(
    "split", [lambda g: [g / 4, g * 0.75], lambda g: (g, 0 * g), lambda g: {"a": g / 2, "b": g / 2}]
)
def test_the_buffers_of_a_tied_weight_are_summed(split):
    np.testing.assert_allclose(asked(with_(wte=split))["wte"], asked(right)["wte"], rtol=1e-15)


def test_cotangents_of_other_values_are_taken_and_held_to_their_form():
    found = asked(fold)
    assert found["h.0.qkv"].shape == (1, 2 * 4 * 18)
    assert found["loss"].tolist() == [[1.0]]
    bad = asked(with_(logits=lambda _: np.zeros((8, 7))))["logits"]
    assert bad.reason.startswith("the gradient of logits has shape (8, 7), logits has (2, 4, 7)")
    assert "logits" not in asked(with_(logits=lambda _: None))


def test_an_unknown_name_is_a_line_with_the_nearest_one_not_returned():
    def gradients(params, inputs):
        found = right(params, inputs)
        found["wtee"] = found.pop("wte")
        return found

    found = asked(gradients)
    assert found["wtee"].verdict is Verdict.ERROR
    assert found["wtee"].reason == (
        "gradients returned 'wtee', and the model has no such value; did you mean 'wte'?"
    )
    assert found["wte"].verdict is Verdict.MISSING


def test_a_buffer_of_a_tied_weight_that_is_bound_to_nothing_says_so():
    found = asked(with_(classifier=lambda _: np.zeros((7, 6))))
    assert found["classifier"].reason.endswith(
        "is it a buffer of a tied weight (wte)? Bind all of its buffers"
    )


def test_many_unknown_names_do_not_flood_the_report():
    found = asked(with_(**{f"zz{i}": lambda _: 0.0 for i in range(MAX_UNKNOWN_NAMES + 4)}))
    strange = [f for n, f in found.items() if n not in CASE.params]
    assert len(strange) == MAX_UNKNOWN_NAMES + 1
    assert strange[-1].reason == "gradients returned 4 more names that the model does not have"


def test_an_index_has_no_gradient():
    assert asked(with_(tokens=lambda _: np.zeros((2, 4))))["tokens"].reason == (
        "gradients returned 'tokens', which is an index: it has no gradient"
    )
    assert "tokens" not in asked(with_(tokens=lambda _: None))


@pytest.mark.parametrize(
    ("returned", "what"),
    [(None, "None"), ([1.0], "a list"), (np.zeros(3), "a ndarray"), ("wte", "a str")],
)
def test_what_is_no_mapping_is_one_clear_line(returned, what):
    finding = broken(asked, lambda p, i: returned)
    assert (finding.name, finding.verdict) == ("gradients", Verdict.ERROR)
    assert finding.reason == (
        f"gradients returned {what}; return a dict from parameter names to arrays"
    )


@pytest.mark.parametrize("error", [ValueError("h.0:\n no  kernel"), SystemExit(3), MemoryError()])
def test_whatever_it_raises_is_one_clear_line(error):
    def gradients(params, inputs):
        raise error

    text = " ".join(str(error).split()) or "no message"
    finding = broken(asked, gradients)
    assert finding.reason == f"gradients raised {type(error).__name__}: {text}"
    assert finding.verdict is Verdict.ERROR


def test_ctrl_c_goes_through():
    def gradients(params, inputs):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        asked(gradients)


def test_what_it_declares_to_lack_is_unsupported():
    def gradients(params, inputs):
        raise Unsupported("no tied weights")

    finding = broken(asked, gradients)
    assert (finding.verdict, finding.reason) == (Verdict.UNSUPPORTED, "no tied weights")


def test_writing_into_arguments_is_found_with_and_without_the_flag():
    def writes(params, inputs):
        params["wpe"][0] = 0
        return right(params, inputs)

    assert "writes into its arguments" in broken(asked, writes).reason

    def forces(params, inputs):
        params["wpe"].flags.writeable = True
        params["wpe"][0] += 1
        return right(params, inputs)

    before = {n: v.copy() for n, v in CASE.given.items()}
    assert broken(asked, forces).reason == "gradients writes into its argument wpe; copy first"
    for name, value in before.items():
        np.testing.assert_array_equal(CASE.given[name], value)


def test_its_dicts_are_its_own():
    def empties(params, inputs):
        found = right(params, inputs)
        params.clear()
        inputs.clear()
        return found

    assert not [row for row in asked(empties).values() if isinstance(row, Finding)]


def test_a_gradient_that_lives_from_call_to_call_is_not_deterministic():
    buffer = np.zeros((4, 6))

    def accumulates(params, inputs):
        found = right(params, inputs)
        buffer[...] += found["wpe"]
        return {**found, "wpe": buffer}

    assert "gradients is not deterministic" in broken(asked, accumulates).reason


@pytest.mark.parametrize("extra", [{"wtf": 1.0}, {"wpe": None}, {"wpe": [1.0, 2.0]}])
def test_other_names_or_buffers_the_second_time_are_not_deterministic(extra):
    calls = []

    def gradients(params, inputs):
        calls.append(1)
        return right(params, inputs) | (extra if len(calls) == 2 else {})

    assert "gradients is not deterministic" in broken(asked, gradients).reason


def test_the_order_of_names_is_free():
    calls = []

    def gradients(params, inputs):
        calls.append(1)
        return dict(sorted(right(params, inputs).items(), reverse=len(calls) == 2))

    assert list(asked(gradients)) == list(CASE.params)


# ── loss ─────────────────────────────────────────────────────────────────────────────────────


def loss_of(value):
    return ask_loss(lambda params, inputs: value, typed(CASE.params), typed(CASE.inputs))


@pytest.mark.parametrize("value", [2.5, np.float32(2.5), np.array(2.5), np.array([[2.5]])])
def test_the_loss_is_a_number(value):
    assert loss_of(value) == 2.5


@pytest.mark.parametrize(
    ("value", "verdict", "reason"),
    [
        (float("nan"), "fail", "the loss is nan, and the model's is finite here"),
        (np.float32("inf"), "fail", "the loss is inf, and the model's is finite here"),
        (None, "error", "loss returned NoneType; return one number"),
        (np.zeros(3), "error", "loss returned array of shape (3,); return one number"),
        ("2.5", "error", "loss returned str; return one number"),
        ({"loss": 2.5}, "error", "loss returned dict; return one number"),
    ],
)
def test_what_is_no_loss_is_one_clear_line(value, verdict, reason):
    finding = broken(loss_of, value)
    assert (finding.name, finding.part, finding.verdict.value) == ("loss", Part.VALUE, verdict)
    assert reason in finding.reason


def test_a_loss_that_changes_or_writes_is_found():
    values = iter([1.0, 2.0])
    params = typed(CASE.params)
    finding = broken(ask_loss, lambda p, i: next(values), params, {})
    assert "loss is not deterministic" in finding.reason

    def writes(params, inputs):
        params["wte"] *= 2

    assert "loss writes into its arguments" in broken(ask_loss, writes, params, {}).reason


# ── stages ───────────────────────────────────────────────────────────────────────────────────

QKV = PROGRAM.stage("h.0.attn.qkv")
ENCODER = PROGRAM.stage("encoder")
VALUES = PROGRAM.forward(F64, CASE.given)


def stage_asked(vjp, stage=QKV, values=VALUES):
    ct = tuple(np.cos(np.arange(values[n].size)).reshape(values[n].shape) for n in stage.outputs)
    return ask_stage(vjp, stage, ct, values)


def own(stage, cts, values):
    return stage.vjp(F64, cts, values)


def test_a_stage_answers_in_the_form_of_what_it_reads():
    found = stage_asked(own)
    assert [g.shape for g in found] == [VALUES[n].shape for n in QKV.reads]


def test_an_index_gets_none_whatever_is_returned_for_it():
    wte, wpe, tokens = stage_asked(own, ENCODER)
    assert (wte.shape, wpe.shape, tokens) == ((7, 6), (4, 6), None)
    assert stage_asked(lambda s, c, v: (*own(s, c, v)[:2], c[0]), ENCODER)[2] is None


def test_a_share_of_wrong_form_spoils_no_other():
    dx, dw, db = stage_asked(lambda s, c, v: (own(s, c, v)[0], None, own(s, c, v)[2][None]))
    assert dx.shape == VALUES["h.0.ln1"].shape
    assert (dw.verdict, db.verdict) == (Verdict.MISSING, Verdict.FAIL)
    assert dw.reason == (
        "no gradient for h.0.attn.qkv.w: the VJP of h.0.attn.qkv returned None; "
        "return zeros where it is zero"
    )
    assert "has shape (1, 18), h.0.attn.qkv.b has (18,)" in db.reason


@pytest.mark.parametrize(
    ("vjp", "reason"),
    [
        (lambda s, c, v: own(s, c, v)[:2], "returned 2 gradients for 3 primals"),
        (lambda s, c, v: None, "returned None for 3 primals"),
        (lambda s, c, v: 1 / 0, "raised ZeroDivisionError: division by zero"),
        (lambda s, c, v: v["h.0.ln_1"], "unknown value 'h.0.ln_1': did you mean 'h.0.ln1'?"),
        (lambda s, c, v: c[0].fill(0), "writes into its arguments"),
        (lambda s, c, v: v["h.1.qkv"].fill(0), "writes into its arguments"),
    ],
)
def test_a_stage_that_breaks_its_contract_bears_its_name(vjp, reason):
    finding = broken(stage_asked, vjp)
    assert (finding.name, finding.part) == ("h.0.attn.qkv", Part.STAGE)
    assert finding.verdict is Verdict.ERROR
    assert finding.reason.startswith("the VJP of h.0.attn.qkv ")
    assert reason in finding.reason


def test_writing_past_the_flag_is_found_in_cotangents_and_in_any_saved_value():
    def over(pick):
        def vjp(stage, cts, values):
            array = pick(cts, values)
            array.flags.writeable = True
            array += 1
            return own(stage, cts, values)

        return broken(stage_asked, vjp).reason

    assert over(lambda c, v: c[0]).endswith("writes into its cotangent; copy first")
    assert over(lambda c, v: v["logits"]).endswith("writes into the saved value logits; copy first")


def test_a_stage_that_is_not_deterministic_or_lacks_something_says_so():
    scale = iter([1.0, 2.0])
    finding = broken(stage_asked, lambda s, c, v: [next(scale) * own(s, c, v)[0], None, None])
    assert "the VJP of h.0.attn.qkv is not deterministic" in finding.reason

    def lacks(stage, cts, values):
        raise Unsupported("no bias")

    finding = broken(stage_asked, lacks)
    assert (finding.name, finding.verdict, finding.reason) == (
        "h.0.attn.qkv", Verdict.UNSUPPORTED, "no bias",
    )  # fmt: skip


def test_every_saved_value_can_be_looked_at():
    seen = {}

    def vjp(stage, cts, values):
        seen.update(values)
        return own(stage, cts, values)

    stage_asked(vjp)
    assert seen.keys() == VALUES.keys()
    assert not any(array.flags.writeable for array in seen.values())
