"""A user's table for models: whole backwards, buffers of tied weights, stages by glob."""

from itertools import pairwise
from types import SimpleNamespace

import numpy as np
import pytest
from gradcheck_cases import SUITE, elementwise

from examples import models as example
from gradcheck.errors import LoadError, Unsupported
from gradcheck.implementations.load import load
from gradcheck.implementations.python import Python
from gradcheck.judge.model import judge_model
from gradcheck.judge.model_truth import ModelTruth
from gradcheck.judge.rule import judge_rule
from gradcheck.judge.rule_truth import RuleTruth
from gradcheck.numerics.arithmetic import F32, F64
from gradcheck.results.finding import Part
from gradcheck.results.verdict import Verdict
from gradcheck.spec import Dialect
from gradcheck.spec.model import ModelSpec, Size
from gradcheck.spec.program import Program, Stage
from gradcheck.spec.suite import Suite
from tests.implementations.tables import imported


@pytest.fixture
def table():
    """Load a table."""
    return lambda entries, suite=SUITE: imported(
        entries, lambda word: load(word, suite), "trainers"
    )


def case_of(size="tiny", model="gpt2", suite=SUITE):
    (case,) = suite.model_cases([model], sizes=[size])
    return case


TINY = case_of()
TRUTH = ModelTruth(TINY)


def judged(binding, truth=TRUTH, dtype="float64"):
    return judge_model(truth, binding, dtype)


def bad(judgement, part=Part.GRADIENT):
    return {n: f for n, f in judgement.of(part).items() if f.verdict is not Verdict.PASS}


# ── trainers ─────────────────────────────────────────────────────────────────────────────────


def arithmetic(values):
    return F32 if values["wte"].dtype == np.float32 else F64


def fold(params, inputs, program=TINY.program, start=None):
    xp = arithmetic(params)
    values = program.forward(xp, {**params, **inputs})
    return program.backward(xp, values, xp.asarray(np.array(1.0)), start=start)


def right(params, inputs):
    found = fold(params, inputs)
    return {name: found[name] for name in params}


class Right:
    gradients = staticmethod(right)


def shares(params, inputs):
    """Right gradients, with the two shares of the tied weight as buffers of their own."""
    found = right(params, inputs)
    from_below = fold(params, inputs, start={"encoded": fold(params, inputs)["encoded"]})["wte"]
    return {**found, "dwte": from_below, "dlm_head": found.pop("wte") - from_below}


WRONG = example.Attention.vjp


def mended(ct, qkv, *, heads):
    """The example's attention, with the factor that it lacks."""
    found = WRONG(ct, qkv, heads=heads).copy()
    c = found.shape[-1] // 3
    found[..., c : 2 * c] /= (c // heads) ** 0.5
    return found


class Mended:
    vjp = staticmethod(mended)


# ── what a table may hold ────────────────────────────────────────────────────────────────────


class Module:
    """What gradcheck takes for a torch.nn.Module."""

    def named_parameters(self):
        raise NotImplementedError


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        (object(), "has neither `gradients` nor `stages`; give it gradients(params, inputs"),
        (SimpleNamespace(gradients=3), "has neither `gradients` nor `stages`"),
        (SimpleNamespace(vjp=np.sin), "has neither `gradients` nor `stages`"),
        ({"stages": ["*"]}, "has stages that are a list; make them a dict from globs"),
        ({"stages": {"*": 3}}, "has stages['*'], a int without a callable `vjp`; give it vjp(ct,"),
        ({"stages": {"*": np.sin}}, "or backward(ct, values, stage)"),
        ({"gradients": right, "buffers": ["wte"]}, "has buffers that are a list; make them a dict"),
        ({"gradients": right, "buffers": {"wte": ()}}, "has buffers['wte'] = (); make it a tuple"),
        ({"gradients": right, "buffers": {"wte": (1,)}}, "has buffers['wte'] = (1,); make it"),
        ({"gradients": right, "buffers": {"wte": 1}}, "has buffers['wte'] = 1; make it"),
        (right, "is a function of `params`; bind it as {'gradients': function}"),
        (Module(), "is a module of one size; give its class, or a function that makes one"),
    ],
)
@pytest.mark.parametrize("key", ["gpt2", "gpt2/default"])
def test_an_entry_of_wrong_form_is_refused_and_named(table, key, entry, message):
    with pytest.raises(LoadError) as caught:
        table({key: entry})
    assert str(caught.value).startswith(f"trainers:IMPL[{key!r}] ")
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("key", "message"),
    [
        ("gtp2", "the suite has no such model; did you mean 'gpt2'?"),
        ("gpt2/defualt", "the suite has no such model; did you mean 'gpt2/default'?"),
        ("rms_nrom", "the suite has no such operator; did you mean 'rms_norm'?"),
    ],
)
def test_a_key_beside_a_models_name_is_refused(table, key, message):
    entry = SimpleNamespace(gradients=right, vjp=np.sin)
    with pytest.raises(LoadError) as caught:
        table({key: entry})
    assert str(caught.value) == f"trainers:IMPL[{key!r}]: {message}"


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        ({"stages": {"h.*.atn": Mended}}, "unknown stage 'h.*.atn': did you mean 'h.2.attn'?"),
        ({"stages": {"h.3.attn": Mended, "*": Mended}}, "unknown stage 'h.3.attn': did you mean"),
        ({"gradients": right, "buffers": {"wtee": ("a",)}}, "parameter 'wtee': did you mean 'wte'"),
    ],
)
def test_a_glob_or_name_that_matches_nothing_is_refused_with_the_nearest(table, entry, message):
    with pytest.raises(LoadError) as caught:
        table({"gpt2": entry})
    assert str(caught.value).startswith("trainers:IMPL['gpt2']: unknown ")
    assert message in str(caught.value)


def test_a_glob_may_match_at_some_sizes_only(table):
    binding = table({"gpt2": {"stages": {"h.1.attn": Mended}}})
    bound = binding.bind_model(case_of("uneven"), "float64")  # it has one layer
    assert not [s.name for s in case_of("uneven").program.stages if bound.stage(s) is not None]


def test_entries_of_operators_and_models_stand_in_one_table(table):
    binding = table({"gpt2": {"gradients": right}, "silu": SimpleNamespace(vjp=lambda ct, x: ct)})
    assert binding.bind_model(TINY, "float64") is not None
    assert binding.bind(SUITE.cases(["silu"])[0], "float64") is not None
    assert binding.bind_model(case_of(model="llama"), "float64") is None
    assert judged(binding, ModelTruth(case_of(model="llama"))).findings[0].verdict == "unbound"


@pytest.mark.parametrize("entry", [{"gradients": right}, {"stages": {}}, Module])
def test_what_is_a_models_is_refused_under_an_operators_name(table, entry):
    with pytest.raises(LoadError, match=r"\['silu'\] is a \w+ without a callable `vjp`"):
        table({"silu": entry})


def test_an_entry_of_another_suites_model_is_left_alone(table):
    assert table({"my_transformer": {"gradients": right}}).bind_model(TINY, "float64") is None


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "mp50"])
def test_models_are_judged_in_two_dtypes(table, dtype):
    with pytest.raises(Unsupported, match="models are judged in float64 and float32"):
        table({"gpt2": {"gradients": right}}).bind_model(TINY, dtype)


# ── gradients ────────────────────────────────────────────────────────────────────────────────


@pytest.mark.slow(keep=1, rest=3)
@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize(
    "entry",
    [SimpleNamespace(gradients=right), {"gradients": right}, Right],
    ids=["object", "dict", "class"],
)
def test_right_gradients_pass(table, entry, dtype):
    judgement = judged(table({"gpt2": entry}), dtype=dtype)
    assert list(judgement.of(Part.GRADIENT)) == list(TINY.params)
    assert bad(judgement) == {}


def test_a_wrong_gradient_fails_alone_and_a_missing_one_is_missing(table):
    def gradients(params, inputs):
        found = right(params, inputs)
        return {**found, "ln_f.b": 2 * found["ln_f.b"], "wpe": None}

    found = bad(judged(table({"gpt2": {"gradients": gradients}})))
    assert {n: f.verdict.value for n, f in found.items()} == {"wpe": "missing", "ln_f.b": "fail"}


def test_nan_in_a_gradient_fails(table):
    def gradients(params, inputs):
        return {**right(params, inputs), "ln_f.b": np.full(6, np.nan)}

    (found,) = bad(judged(table({"gpt2": {"gradients": gradients}}))).values()
    assert (found.name, found.verdict) == ("ln_f.b", Verdict.FAIL)


def test_a_nan_loss_is_one_line_and_the_rest_is_judged(table):
    entry = {"gradients": right, "loss": lambda params, inputs: float("nan")}
    judgement = judged(table({"gpt2": entry}))
    assert judgement.of(Part.VALUE)["loss"].verdict is Verdict.FAIL
    assert "the loss is nan" in judgement.of(Part.VALUE)["loss"].reason
    assert bad(judgement) == {}


def test_an_unknown_name_is_one_line_and_the_rest_is_judged(table):
    def gradients(params, inputs):
        found = right(params, inputs)
        found["wtee"] = found.pop("wte")
        return found

    found = bad(judged(table({"gpt2": {"gradients": gradients}})))
    assert {n: f.verdict.value for n, f in found.items()} == {"wte": "missing", "wtee": "error"}
    assert "did you mean 'wte'?" in found["wtee"].reason


def test_a_wrong_cotangent_of_another_value_fails(table):
    def gradients(params, inputs):
        found = fold(params, inputs)
        return {**found, "h.1.qkv": 1.01 * found["h.1.qkv"]}

    judgement = judged(table({"gpt2": {"gradients": gradients}}))
    assert list(bad(judgement)) == ["h.1.qkv"]
    assert judgement.of(Part.GRADIENT)["h.1.fch"].verdict is Verdict.PASS


# ── buffers ──────────────────────────────────────────────────────────────────────────────────


def test_the_buffers_of_a_tied_weight_are_summed_by_their_own_names(table):
    entry = {"gradients": shares, "buffers": {"wte": ("dwte", "dlm_head")}}
    assert bad(judged(table({"gpt2": entry}))) == {}


def test_a_tied_weight_that_is_bound_once_fails_and_the_other_buffer_is_named(table):
    for theirs in ("dwte", ("dwte",)):
        found = bad(judged(table({"gpt2": {"gradients": shares, "buffers": {"wte": theirs}}})))
        assert {n: f.verdict.value for n, f in found.items()} == {
            "wte": "fail",
            "dlm_head": "error",
        }
        assert found["dlm_head"].reason.endswith(
            "is it a buffer of a tied weight (wte)? Bind all of its buffers"
        )


def test_a_buffer_that_is_not_there_is_missing(table):
    entry = {"gradients": shares, "buffers": {"wte": ("dwte", "dlm_heda")}}
    found = bad(judged(table({"gpt2": entry})))
    assert found["wte"].verdict is Verdict.MISSING
    assert found["wte"].reason.endswith("(buffer 'dlm_heda')")
    assert found["dlm_head"].verdict is Verdict.ERROR


def test_what_is_no_dict_is_judged_as_such_with_buffers_too(table):
    entry = {"gradients": lambda params, inputs: [1.0], "buffers": {"wte": ("dwte",)}}
    (found,) = bad(judged(table({"gpt2": entry}))).values()
    assert "gradients returned a list; return a dict" in found.reason


# ── dimensions ───────────────────────────────────────────────────────────────────────────────


def test_what_the_shapes_say_need_not_be_taken(table):
    def two_heads(params, inputs, *, layers):
        return right(params, inputs)

    def any_heads(params, inputs, *, heads, layers):
        assert (heads, layers) == (uneven.attrs["heads"], uneven.attrs["layers"])
        return {}

    uneven = case_of("uneven")
    assert uneven.attrs["heads"] != uneven.spec.defaults["heads"]
    assert bad(judged(table({"gpt2": {"gradients": two_heads}}))) == {}
    with pytest.raises(Unsupported, match="gradients takes no 'heads'; this case wants heads="):
        table({"gpt2": {"gradients": two_heads}}).bind_model(uneven, "float64")
    entry = {"gradients": any_heads, "loss": two_heads}
    with pytest.raises(Unsupported, match="loss takes no 'heads'"):
        table({"gpt2": entry}).bind_model(uneven, "float64")
    bound = table({"gpt2": {"gradients": any_heads}}).bind_model(uneven, "float64")
    assert bound.gradients(uneven.params, uneven.inputs) == {}


def test_every_dimension_is_passed_to_what_takes_any(table):
    seen = {}

    def gradients(params, inputs, **dims):
        seen.update(dims)
        return right(params, inputs)

    judged(table({"gpt2": {"gradients": gradients}}))
    assert seen == dict(TINY.attrs)


def powers(*, n=3, power=2, even=False):
    if even and n % 2:
        raise ValueError("n is odd")
    names = ("x", "y", "z")[: power // 2 + 1]
    squared = [
        Stage(name=f"square-{x}", op=elementwise.sqr, reads=(x,), writes=y)
        for x, y in pairwise(names)
    ]
    total = Stage(name="sum", op=SUITE.operators["sum"], reads=names[-1:], writes="loss")
    draws = {"x": lambda draw: draw.normal(n)}
    return Program(params=draws, inputs={}, stages=(*squared, total), loss="loss")


POWERS = Suite(
    "powers",
    "0",
    (),
    models=[
        ModelSpec(
            name="powers",
            build=powers,
            sizes=(
                Size(name="tiny", hunts="it"),
                Size(name="wide", hunts="it", attrs={"n": 4}),
                Size(name="even", hunts="it", attrs={"n": 4, "even": True}),
            ),
            says="a sum of powers",
            source="here",
            dialects=(
                Dialect(name="square", says="x²"),
                Dialect(name="fourth", says="x⁴", attrs={"power": 4}),
            ),
        )
    ],
)


def power_case(dialect, size):
    (case,) = POWERS.model_cases(dialects=[dialect], sizes=[size])
    return case


def squares(params, inputs):
    return {"x": 2 * params["x"]}


def fourths(params, inputs):
    return {"x": 4 * params["x"] ** 3}


def test_an_entry_of_a_dialect_has_the_dialects_values_fixed(table):
    binding = table(
        {"powers": {"gradients": squares}, "powers/fourth": {"gradients": fourths}}, POWERS
    )
    for dialect in ("square", "fourth"):
        for size in ("tiny", "wide"):
            assert bad(judged(binding, ModelTruth(power_case(dialect, size)))) == {}
    alone = table({"powers": {"gradients": squares}}, POWERS)
    with pytest.raises(Unsupported, match="gradients takes no 'power'; this case wants power=4"):
        alone.bind_model(power_case("fourth", "tiny"), "float64")


def test_where_the_fixed_value_does_not_go_with_the_others_the_dimension_counts(table):
    binding = table({"powers": {"gradients": squares}}, POWERS)
    with pytest.raises(Unsupported, match="gradients takes no 'n'; this case wants n=4"):
        binding.bind_model(power_case("square", "even"), "float64")


# ── stages ───────────────────────────────────────────────────────────────────────────────────

RIGHT_KERNELS = {**example.KERNELS["gpt2"]["stages"], "*.attn": Mended}


@pytest.mark.slow(keep=1)
@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_kernels_bound_by_stage_pass(table, dtype):
    judgement = judged(table({"gpt2": {"stages": RIGHT_KERNELS}}), dtype=dtype)
    assert bad(judgement) == {}
    assert bad(judgement, Part.STAGE) == {}
    bound = [s.name for s in TINY.program.stages if s.name not in judgement.of(Part.STAGE)]
    assert bound == ["encoder", "cross_entropy", "mean"]  # the others are bound to nothing


@pytest.mark.slow(keep=1)
@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_the_examples_kernel_is_wrong_where_it_stands(table, dtype):
    judgement = judged(load("examples.models:KERNELS", SUITE), dtype=dtype)
    assert list(bad(judgement, Part.STAGE)) == ["h.0.attn", "h.1.attn"]
    whole = judged(load("examples.models:TRAINER", SUITE), dtype=dtype)
    assert whole.of(Part.VALUE)["loss"].verdict is Verdict.PASS
    assert bad(whole).keys() == bad(judgement).keys()


@pytest.mark.slow(keep=1)
@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("size", ["tiny", "uneven"])
def test_the_examples_trainer_is_right_but_for_that_kernel(monkeypatch, size, dtype):
    monkeypatch.setattr(example.Attention, "vjp", staticmethod(mended))
    truth = TRUTH if size == "tiny" else ModelTruth(case_of(size))
    judgement = judged(load("examples.models:TRAINER", SUITE), truth, dtype)
    assert bad(judgement) == {}
    assert judgement.of(Part.VALUE)["loss"].verdict is Verdict.PASS


def test_backward_sees_every_saved_value_and_may_read_the_wrong_one(table):
    def backward(ct, values, stage):
        wrong = {**values, "h.1.residual2": values["h.0.residual3"]}
        return stage.vjp(arithmetic(values), (ct,), wrong)

    entry = {"stages": {"h.1.ln_2": SimpleNamespace(backward=backward), "*": Honest}}
    judgement = judged(table({"gpt2": entry}))
    assert list(bad(judgement, Part.STAGE)) == ["h.1.ln_2"]


class Honest:
    """The suite's own VJP of any stage."""

    @staticmethod
    def backward(ct, values, stage):
        cts = ct if isinstance(ct, tuple) else (ct,)
        return stage.vjp(arithmetic(values), cts, values)


def test_the_first_glob_that_matches_counts(table):
    entry = {"stages": {"h.1.*": Honest, "*.attn": example.Attention, "*": Honest}}
    assert list(bad(judged(table({"gpt2": entry})), Part.STAGE)) == ["h.0.attn"]


def test_a_forward_that_returns_its_pullback_serves_a_stage(table):
    def forward(x):
        t = np.tanh(example.Gelu.ROOT * (x + 0.044715 * x**3))
        return x * (1 + t) / 2, lambda ct: example.Gelu.vjp(ct, x)

    judgement = judged(table({"gpt2": {"stages": {"*.gelu": {"forward": forward}}}}))
    assert list(judgement.of(Part.STAGE)) == ["h.0.mlp.gelu", "h.1.mlp.gelu"]
    assert bad(judgement, Part.STAGE) == {}


@pytest.mark.slow
def test_an_attribute_that_a_kernel_has_fixed_is_unsupported_at_that_stage_alone(table):
    class TwoHeads:
        @staticmethod
        def vjp(ct, qkv):
            return mended(ct, qkv, heads=2)

    binding = table({"gpt2": {"stages": {"*.attn": TwoHeads, "*.gelu": example.Gelu}}})
    assert bad(judged(binding), Part.STAGE) == {}
    found = judged(binding, ModelTruth(case_of("uneven"))).of(Part.STAGE)
    assert {n: f.verdict.value for n, f in found.items()} == {
        "h.0.attn": "unsupported",
        "h.0.mlp.gelu": "pass",
    }
    assert found["h.0.attn"].reason.startswith("vjp takes no 'heads'; this case wants heads=")


@pytest.mark.slow(keep=1)
@pytest.mark.parametrize(
    ("vjp", "verdict", "reason"),
    [
        (lambda ct, x: 1 / 0, "error", "raised ZeroDivisionError: division by zero"),
        (lambda ct, x: None, "missing", "no gradient for h.0.fch: the VJP of h.0.mlp.gelu"),
        (lambda ct, x: (ct, ct), "error", "returned 2 gradients for 1 primals (h.0.fch)"),
        (lambda ct, x: ct[0], "fail", "has shape (4, 24), h.0.fch has (2, 4, 24)"),
        (lambda ct, x: ct * np.nan, "fail", "384 of 384 elements are not finite"),
    ],
)
def test_what_goes_wrong_at_one_stage_stays_there(table, vjp, verdict, reason):
    entry = {"stages": {"h.0.mlp.gelu": SimpleNamespace(vjp=vjp), **RIGHT_KERNELS}}
    judgement = judged(table({"gpt2": entry}))
    (found,) = bad(judgement, Part.STAGE).values()
    assert (found.name, found.verdict.value) == ("h.0.mlp.gelu", verdict)
    assert reason in found.reason
    assert found.reason.count("the gradient of") <= 1
    assert "\n" not in found.reason


def test_stages_and_a_whole_backward_may_stand_together(table):
    entry = {"gradients": right, "stages": {"*.attn": example.Attention}}
    judgement = judged(table({"gpt2": entry}))
    assert bad(judgement) == {}
    assert list(bad(judgement, Part.STAGE)) == ["h.0.attn", "h.1.attn"]


def test_python_alone_knows_no_models_but_their_entries():
    assert Python("examples.models:TRAINER").bind_model(TINY, "float64").gradients is not None


def clip(params, grads, state, t, *, max_norm):
    """A trainer's own: no eps, and in place."""
    norm = np.sqrt(sum(np.sum(g.astype(np.float64) ** 2) for g in grads.values()))
    if norm > max_norm:
        for name in grads:
            grads[name] *= grads[name].dtype.type(max_norm / norm)


def always(params, grads, state, t, *, max_norm):
    norm = np.sqrt(sum(np.sum(g**2) for g in grads.values()))
    with np.errstate(invalid="ignore"):
        return {n: np.asarray(g * (max_norm / norm), g.dtype) for n, g in grads.items()}, {}


def rule_case(sample="typical", dialect="default"):
    [case] = SUITE.rule_cases(["clip_norm"], [dialect], [sample])
    return case


def verdicts(binding, case, dtype="float64"):
    return {f.verdict for f in judge_rule(RuleTruth(case), binding, dtype)}


@pytest.mark.slow(keep=1)
@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("sample", ["typical", "below", "at-the-norm", "zeros"])
def test_a_function_that_works_in_place_is_judged(table, sample, dtype):
    entry = {"clip_norm/default": {"update": clip}}
    assert verdicts(table(entry), rule_case(sample), dtype) == {Verdict.PASS}


def test_a_wrong_one_fails(table):
    entry = {"clip_norm": SimpleNamespace(update=always)}
    assert Verdict.FAIL in verdicts(table(entry), rule_case("below"))


def test_what_the_table_does_not_name_is_unbound(table):
    assert verdicts(table({"clip_norm/in-divisor": {"update": clip}}), rule_case()) == {
        Verdict.UNBOUND
    }
    assert verdicts(table({"softmax": {"vjp": clip}}), rule_case()) == {Verdict.UNBOUND}


def test_a_hyper_parameter_that_is_fixed_in_the_code_is_unsupported_elsewhere(table):
    entry = {"clip_norm": {"update": clip}}  # takes no eps
    assert verdicts(table(entry), rule_case(dialect="in-divisor")) == {Verdict.UNSUPPORTED}


def test_a_misspelt_rule_is_refused_with_a_hint(table):
    with pytest.raises(LoadError, match=r"no such update rule; did you mean 'clip_norm'\?"):
        table({"clip_nrom": {"update": clip}})


def test_the_reference_is_bound_to_everything():
    reference = load("reference", SUITE)
    assert verdicts(reference, rule_case(), "float32") == {Verdict.PASS}
