"""A model's judgement: what is right passes, what is wrong fails where it is wrong."""

from dataclasses import replace
from types import SimpleNamespace

import gradcheck_cases
import numpy as np
import pytest

from gradcheck.errors import SpecError, Unsupported
from gradcheck.implementations.bound import BoundModel
from gradcheck.implementations.reference import Reference
from gradcheck.judge.model import _fair, gradients_of, judge_model
from gradcheck.judge.model_truth import ModelTruth
from gradcheck.numerics.arithmetic import F64, FLOATS
from gradcheck.results.finding import Finding, Part
from gradcheck.results.verdict import Verdict
from gradcheck.spec.model import ModelCase, ModelSpec

CASES = {c.name: c for c in gradcheck_cases.SUITE.model_cases()}
GPT2 = CASES["gpt2/default/tiny"]


@pytest.fixture(scope="module")
def truth():
    return ModelTruth(GPT2)


class Foreign:
    """A binding of one model."""

    name = "foreign"

    def __init__(self, **parts):
        self.parts = parts

    def bind_model(self, case, dtype):
        return BoundModel(**self.parts)


def right(dtype):
    """Gradients by name, from the suite's own fold, as a foreign whole backward returns them."""

    def gradients(params, inputs):
        xp = FLOATS[dtype]
        program = GPT2.program
        values = program.forward(xp, {**params, **inputs})
        found = program.backward(xp, values, xp.asarray(1.0))
        return {name: np.asarray(found[name]) for name in params}

    return gradients


def staged(name, change, dtype="float64"):
    """The reference's stages, one of them with its gradients changed."""
    xp = FLOATS[dtype]

    def vjp(stage, cts, values):
        found = stage.vjp(xp, cts, values)
        return tuple(change(list(found))) if stage.name == name else found

    return Foreign(stage=lambda stage: vjp)


def verdicts(judgement, part):
    return {name: f.verdict for name, f in judgement.of(part).items()}


@pytest.mark.suite(keep=1, by="gradcheck run --model '*'")
@pytest.mark.parametrize("dtype", ["mp50", "float64", "float32"])
@pytest.mark.parametrize("name", [n for n in CASES if n.endswith("/tiny")])
def test_every_model_passes(name, dtype):
    found = judge_model(ModelTruth(CASES[name]), Reference(), dtype)
    wrong = [f"{f.name}: {f.reason}" for f in found.findings if f.verdict is not Verdict.PASS]
    assert wrong == []
    program = CASES[name].program
    assert list(found.of(Part.STAGE)) == [stage.name for stage in program.stages]
    assert list(found.of(Part.GRADIENT)) == list(program.params)


@pytest.mark.slow
def test_every_number_has_an_error_bar(truth):
    for finding in judge_model(truth, Reference(), "float32").findings:
        assert finding.error_bar is not None
        assert finding.bound > 0


@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_a_whole_backward_that_is_right_passes(truth, dtype):
    found = judge_model(truth, Foreign(gradients=right(dtype)), dtype)
    assert set(verdicts(found, Part.GRADIENT).values()) == {Verdict.PASS}
    assert found.of(Part.STAGE) == {}


@pytest.mark.slow(keep=1)
@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("name", ["wte", "h.0.ln_1.b", "h.1.attn.qkv.w", "ln_f.w"])
def test_one_element_a_hundredth_off_fails_its_own_tensor_alone(truth, dtype, name):
    def gradients(params, inputs):
        found = right(dtype)(params, inputs)
        flat = found[name].reshape(-1)
        flat[np.argsort(np.abs(flat))[flat.size * 3 // 4]] *= flat.dtype.type(1.01)
        return found

    found = judge_model(truth, Foreign(gradients=gradients), dtype)
    failed = [n for n, v in verdicts(found, Part.GRADIENT).items() if v is Verdict.FAIL]
    assert failed == [name]
    assert found.of(Part.GRADIENT)[name].failed == 1


def test_a_gradient_that_is_nan_fails(truth):
    def gradients(params, inputs):
        found = right("float64")(params, inputs)
        found["wpe"][0, 0] = np.nan
        return found

    found = judge_model(truth, Foreign(gradients=gradients), "float64")
    assert verdicts(found, Part.GRADIENT)["wpe"] is Verdict.FAIL


def test_a_wrong_stage_fails_alone_and_what_lies_behind_it_fails_with_it(truth):
    binding = staged("h.1.mlp.gelu", lambda found: [found[0] * 1.001])
    found = judge_model(truth, binding, "float64")
    stages = verdicts(found, Part.STAGE)
    assert [n for n, v in stages.items() if v is Verdict.FAIL] == ["h.1.mlp.gelu"]
    parameters = verdicts(found, Part.GRADIENT)
    assert parameters["h.1.mlp.fc.w"] is Verdict.FAIL
    assert parameters["h.1.mlp.proj.w"] is Verdict.PASS
    assert parameters["ln_f.w"] is Verdict.PASS


def test_a_stage_that_is_replaced_by_the_reference_spoils_nothing(truth):
    bound = staged("h.1.mlp.gelu", lambda found: [found[0] * 2]).bind_model(GPT2, "float64")
    spoilt = gradients_of(truth, bound, "float64")
    mended = gradients_of(truth, bound, "float64", frozenset({"h.1.mlp.gelu"}))
    want = truth.gradient("wpe").value
    np.testing.assert_allclose(mended["wpe"][0], want, rtol=1e-10, atol=1e-14)
    assert np.abs(spoilt["wpe"][0] - want).max() > 1e-3


def test_a_stage_that_gives_no_weight_gradient_is_missing_not_wrong(truth):
    binding = staged("ln_f", lambda found: [found[0], None, *found[2:]])
    found = judge_model(truth, binding, "float64")
    assert verdicts(found, Part.GRADIENT)["ln_f.w"] is Verdict.MISSING
    assert verdicts(found, Part.STAGE)["ln_f"] is Verdict.MISSING
    others = [v for n, v in verdicts(found, Part.GRADIENT).items() if n != "ln_f.w"]
    assert set(others) == {Verdict.PASS}


def test_a_stage_that_raises_is_one_line_and_the_rest_is_judged(truth):
    def raising(found):
        raise ZeroDivisionError("division\nby zero")

    found = judge_model(truth, staged("h.0.attn", raising), "float64")
    broken = found.of(Part.STAGE)["h.0.attn"]
    assert broken.verdict is Verdict.ERROR
    assert "ZeroDivisionError: division by zero" in broken.reason
    rest = [v for n, v in verdicts(found, Part.STAGE).items() if n != "h.0.attn"]
    assert set(rest) == {Verdict.PASS}
    assert set(verdicts(found, Part.GRADIENT).values()) == {Verdict.PASS}


@pytest.mark.parametrize(
    ("loss", "verdict", "says"),
    [
        (lambda params, inputs: float("nan"), Verdict.FAIL, "finite"),
        (lambda params, inputs: 1.0, Verdict.FAIL, "it computes something else than gpt2"),
        (lambda params, inputs: "high", Verdict.ERROR, "loss"),
        (lambda params, inputs: 1 / 0, Verdict.ERROR, "ZeroDivisionError"),
    ],
)
def test_a_wrong_loss_is_one_clear_line_and_the_gradients_are_judged(truth, loss, verdict, says):
    found = judge_model(truth, Foreign(gradients=right("float64"), loss=loss), "float64")
    finding = found.of(Part.VALUE)["loss"]
    assert finding.verdict is verdict
    assert says in finding.reason
    assert set(verdicts(found, Part.GRADIENT).values()) == {Verdict.PASS}


def test_who_says_nothing_is_unbound_and_who_lacks_it_unsupported(truth):
    class Silent:
        name = "silent"

        def bind_model(self, case, dtype):
            if dtype == "float32":
                raise Unsupported("float64 only")

    for dtype, verdict in (("float64", Verdict.UNBOUND), ("float32", Verdict.UNSUPPORTED)):
        (finding,) = judge_model(truth, Silent(), dtype).findings
        assert finding.verdict is verdict


# ── when we are at fault ─────────────────────────────────────────────────────────────────────


def spoilt(change):
    """GPT-2 with one stage's operator replaced."""

    def build(**attrs):
        program = GPT2.spec.build(**attrs)
        return replace(program, stages=tuple(change(stage) for stage in program.stages))

    def tiny(*, placeholder=0):
        return build(**GPT2.attrs)

    spec = ModelSpec("spoilt", tiny, (replace(GPT2.size, attrs={}),), "says", "source")
    return ModelCase(spec, spec.dialects[0], spec.sizes[0], 0, "spoilt")


def wrong_gelu(stage, factor="1.0000001"):
    if stage.name != "h.0.mlp.gelu":
        return stage
    op = stage.op

    def vjp(xp, ct, x, *, form="tanh", root=""):
        return op.vjp(xp, ct, x, form=form, root=root) * xp.const(factor)

    return replace(stage, op=replace(op, vjp=vjp))


@pytest.mark.suite
def test_a_spec_that_is_wrong_is_found_at_fifty_digits_and_nobody_else_is_blamed():
    truth = ModelTruth(spoilt(wrong_gelu))
    found = judge_model(truth, Reference(), "mp50")
    stages = verdicts(found, Part.STAGE)
    assert [n for n, v in stages.items() if v is Verdict.FAIL] == ["h.0.mlp.gelu"]
    assert verdicts(found, Part.GRADIENT)["wpe"] is Verdict.FAIL
    assert verdicts(found, Part.GRADIENT)["ln_f.w"] is Verdict.PASS
    others = judge_model(truth, Foreign(gradients=right("float64")), "float64")
    assert set(verdicts(others, Part.GRADIENT).values()) == {Verdict.INVALID}


def test_a_loss_that_is_no_number_is_refused():
    case = spoilt(lambda stage: stage)
    given = case.given
    given["wte"] = np.full_like(given["wte"], np.inf)
    with pytest.raises(SpecError, match="the loss is nan"):
        ModelTruth(case)


def test_a_loss_that_is_no_scalar_is_refused():
    program = GPT2.program
    cut = replace(program, stages=program.stages[:-1], loss=program.stages[-2].outputs[0])
    unused = set(cut.inputs) - {n for s in cut.stages for n in s.reads}
    cut = replace(cut, inputs={n: d for n, d in cut.inputs.items() if n not in unused})
    spec = ModelSpec("cut", lambda: cut, (replace(GPT2.size, attrs={}),), "says", "source")
    with pytest.raises(SpecError, match="the loss has shape"):
        ModelTruth(ModelCase(spec, spec.dialects[0], spec.sizes[0], 0, "cut"))


def test_the_truth_of_a_large_model_has_the_rounding_of_float64_as_its_bar():
    truth = ModelTruth(CASES["gpt2/default/large"])
    assert not truth.exact
    known = truth.gradient("h.0.attn.qkv.w")
    assert np.all(known.bar > 0)
    assert np.median(known.bar) <= 1e-9 * np.sqrt(np.mean(known.value**2))
    values = truth.program.forward(F64, truth.case.given)
    assert np.isfinite(values[truth.program.loss])


# ── by slopes of the loss ────────────────────────────────────────────────────────────────────


@pytest.mark.slow(keep=1)
@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_projected_gradients_pass_and_say_what_they_would_have_seen(truth, dtype):
    found = judge_model(truth, Reference(), dtype, project=True).of(Part.GRADIENT)
    assert {f.verdict for f in found.values()} == {Verdict.PASS}
    assert all(f.evaluations > 0 for f in found.values())
    visible = [f.smallest_visible_error for f in found.values()]
    assert max(visible) <= (1e-6 if dtype == "float64" else 0.1)


def test_a_projection_finds_the_one_element_that_is_wrong(truth):
    def gradients(params, inputs):
        found = right("float64")(params, inputs)
        found["h.1.mlp.fc.w"][7, 3] *= 1.1
        return found

    judged = judge_model(truth, Foreign(gradients=gradients), "float64", project=True)
    wrong = {n: f for n, f in judged.of(Part.GRADIENT).items() if f.verdict is not Verdict.PASS}
    assert list(wrong) == ["h.1.mlp.fc.w"]
    assert [miss.index for miss in wrong["h.1.mlp.fc.w"].worst] == [(7, 3)]


def test_a_projection_tells_of_names_that_the_model_has_not(truth):
    def gradients(params, inputs):
        found = right("float64")(params, inputs)
        return {**found, "wtee": found["wte"], "h.0.ln_1": np.zeros((2, 4, 6))}

    judged = judge_model(truth, Foreign(gradients=gradients), "float64", project=True)
    assert "the model has no such value" in judged.of(Part.GRADIENT)["wtee"].reason
    assert judged.of(Part.GRADIENT)["wte"].verdict is Verdict.PASS


@pytest.mark.slow(rest=0)
def test_a_large_fold_that_is_wrong_fails_itself_and_blames_nobody():
    case = CASES["gpt2/default/large"]

    def build_large():
        program = GPT2.spec.build(**case.attrs)
        return replace(
            program, stages=tuple(wrong_gelu(stage, "1.001") for stage in program.stages)
        )

    spec = ModelSpec("spoilt", build_large, (replace(case.size, attrs={}),), "says", "source")
    truth = ModelTruth(ModelCase(spec, spec.dialects[0], spec.sizes[0], 0, "spoilt"))
    assert not truth.exact
    own = verdicts(judge_model(truth, Reference(), "float64"), Part.GRADIENT)
    assert own["wpe"] is Verdict.FAIL
    assert own["ln_f.w"] is Verdict.PASS

    def gradients(params, inputs):
        xp = FLOATS["float64"]
        values = truth.program.forward(xp, {**params, **inputs})
        cts = truth.program.backward(xp, values, xp.asarray(1.0))
        return {name: np.asarray(cts[name]) for name in params}

    others = judge_model(truth, Foreign(gradients=gradients), "float64")
    assert set(verdicts(others, Part.GRADIENT).values()) == {Verdict.INVALID}


# ── the point of each dtype ──────────────────────────────────────────────────────────────────


def test_code_is_handed_the_point_of_its_truth(truth):
    for dtype in ("float64", "float32"):
        asked = {}

        def gradients(params, inputs, dtype=dtype, asked=asked):
            asked.update(params)
            return right(dtype)(params, inputs)

        judge_model(truth, Foreign(gradients=gradients), dtype)
        for name, value in truth.at(dtype).params.items():
            assert np.array_equal(asked[name], value)
    assert not np.array_equal(truth.params["wte"], truth.at("float32").params["wte"])


def test_the_truth_of_float32_is_that_of_its_own_parameters(truth):
    single = truth.at("float32")
    exact = ModelTruth(truth.case, single.given)
    for name in truth.floating:
        known, want, beside = (t.gradient(name) for t in (single, exact, truth))
        assert np.all(np.abs(known.value - want.value) <= known.bar)
        assert np.any(np.abs(known.value - beside.value) > 1e-9 * np.abs(want.value).max())
    assert abs(single.loss.value - exact.loss.value) <= single.loss.bar


def test_a_fold_that_is_wrong_in_float64_alone_vouches_for_nothing(truth):
    """The gradients of float32 are then folded in 50 digits at its own parameters."""
    beside = ModelTruth(truth.case)
    beside.__dict__["fold"] = {name: 2 * ct for name, ct in truth.fold.items()}
    known, want = (t.at("float32").gradient("ln_f.w") for t in (beside, truth))
    np.testing.assert_allclose(known.value, want.value, rtol=1e-12)
    assert np.all(known.bar < 1e-15)


@pytest.mark.parametrize("exact", [True, False])
@pytest.mark.parametrize(
    ("verdict", "compared", "fair"),
    [
        (Verdict.FAIL, 1, False),
        (Verdict.PASS, 1, False),
        (Verdict.PASS, 0, True),
        (Verdict.FAIL, 0, True),  # of its form
        (Verdict.INCONCLUSIVE, 3, True),
        (Verdict.ERROR, 3, True),
    ],
)
def test_where_our_own_gradients_are_not_certified_nobody_passes_or_fails(
    verdict, compared, fair, exact
):
    finding = Finding(name="w", verdict=verdict, compared=compared)
    assert _fair(SimpleNamespace(certified=True, exact=exact), finding) is finding
    found = _fair(SimpleNamespace(certified=False, exact=exact), finding)
    assert found.verdict is (verdict if fair else Verdict.INVALID)
    if not fair:
        assert f"--impl reference --dtype {'mp50' if exact else 'float64'} shows it" in found.reason
