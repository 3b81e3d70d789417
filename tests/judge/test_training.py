import gradcheck_cases
import numpy as np
import pytest
from gradcheck_cases import activation, linear, loss, reduction

from gradcheck.errors import Unsupported
from gradcheck.implementations.bound import BoundModel
from gradcheck.implementations.reference import Reference
from gradcheck.judge.compare import TOLERANCES
from gradcheck.judge.training import (
    PathCheck,
    PathIntegral,
    Trainer,
    TrainingRun,
    judge_training,
    training_finding,
)
from gradcheck.numerics.arithmetic import F64
from gradcheck.results.finding import Part
from gradcheck.results.verdict import Verdict
from gradcheck.spec.model import ModelCase, ModelSpec, Size
from gradcheck.spec.program import Program, Stage

SUITE = gradcheck_cases.SUITE
ADAM, LBFGS = SUITE.rules["adam"], SUITE.rules["lbfgs"]
DTYPES = ("float64", "float32")


def build(*, n=5, d=3, h=4, kinked=False):
    act = activation.relu if kinked else activation.tanh
    return Program(
        params={
            "w1": lambda draw: draw.normal(h, d),
            "b1": lambda draw: draw.normal(h),
            "w2": lambda draw: draw.normal(1, h),
        },
        inputs={"x": lambda draw: draw.normal(n, d), "y": lambda draw: draw.normal(n, 1)},
        stages=(
            Stage(name="hidden", op=linear.matmul, reads=("x", "w1", "b1"), writes="h"),
            Stage(name="act", op=act, reads=("h",), writes="a"),
            Stage(name="out", op=linear.matmul, reads=("a", "w2"), writes="p"),
            Stage(name="loss", op=loss.square_error, reads=("p", "y"), writes="losses"),
            Stage(name="sum", op=reduction.sum_all, reads=("losses",), writes="loss"),
        ),
        loss="loss",
    )


def case_of(**attrs):
    size = Size(name="tiny", hunts="a gradient that is too long", attrs=attrs)
    spec = ModelSpec("toy", build, (size,), "two layers", "here")
    return ModelCase(spec, spec.dialects[0], size, 0, "test")


TOY = case_of()


class Wrong:
    """The reference's gradients by name, changed."""

    name = "wrong"

    def __init__(self, change):
        self.change = change

    def bind_model(self, case, dtype):
        right = Trainer(case, Reference().bind_model(case, dtype), dtype, ADAM)
        return BoundModel(gradients=lambda params, inputs: self.change(right.gradients(params)))


def trained(change, case=TOY, dtype="float64", rule=ADAM, steps=8):
    [finding] = judge_training(case, Wrong(change), dtype, rule, steps)
    assert finding.name == "training"
    assert finding.part is Part.TRAINING
    return finding


def each(change):
    return lambda gradients: {name: change(g) for name, g in gradients.items()}


def only(name, change):
    return lambda gradients: {**gradients, name: change(gradients[name])}


# ── wrong gradients ──────────────────────────────────────────────────────────────────────────


@pytest.mark.suite(keep=5)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(
    "change",
    [
        lambda g: g * 2,
        lambda g: -g,
        lambda g: g * 0,
        lambda g: g * g.dtype.type(1.01),
        lambda g: np.roll(g, 1).reshape(g.shape),
        lambda g: np.full_like(g, np.nan),
    ],
    ids=["double", "negated", "zero", "one-percent", "rolled", "nan"],
)
def test_gradients_that_are_wrong_everywhere_fail(change, dtype):
    finding = trained(each(change), dtype=dtype)
    assert finding.verdict is Verdict.FAIL
    assert "step 1: " in finding.reason
    assert "the gradients say" in finding.reason


@pytest.mark.slow(keep=2)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", TOY.program.params)
@pytest.mark.parametrize("change", [lambda g: g * 0, lambda g: -g], ids=["zero", "negated"])
def test_one_tensor_that_is_wrong_fails_and_is_named(name, change, dtype):
    finding = trained(only(name, change), dtype=dtype)
    assert finding.verdict is Verdict.FAIL
    assert finding.top.tensor == name
    assert f"moving {name} alone" in finding.reason


def test_one_element_that_is_wrong_fails():
    def change(g):
        g = g.copy()
        g.flat[0] *= -1
        return g

    assert trained(only("w1", change)).verdict is Verdict.FAIL


def test_a_gradient_that_goes_wrong_later_fails_at_its_step():
    def late(steps):
        calls = []

        def change(gradients):
            calls.append(0)
            return gradients if len(calls) < steps else each(lambda g: g * 2)(gradients)

        return change

    finding = trained(late(60), steps=12)
    assert finding.verdict is Verdict.FAIL
    assert finding.top.index[0] > 1


@pytest.mark.parametrize("rule", ["sgd", "lbfgs"])
def test_wrong_gradients_fail_with_every_rule(rule):
    found = trained(each(lambda g: g * 2), rule=SUITE.rules[rule])
    assert found.verdict is Verdict.FAIL


def test_a_stage_that_is_wrong_fails():
    class Halved:
        name = "halved"

        def bind_model(self, case, dtype):
            def half(stage, cts, values):
                return tuple(g if g is None else g / 2 for g in stage.vjp(F64, cts, values))

            return BoundModel(stage=lambda stage: half if stage.name == "act" else None)

    [finding] = judge_training(TOY, Halved(), "float64", ADAM, 4)
    assert finding.verdict is Verdict.FAIL
    assert {miss.tensor for miss in finding.worst} == {"w1", "b1", ""}


# ── what is wrong with the form ──────────────────────────────────────────────────────────────


def raising(gradients):
    raise ZeroDivisionError("no gradient")


@pytest.mark.parametrize(
    ("change", "found", "said"),
    [
        (raising, Verdict.ERROR, "gradients raised ZeroDivisionError: no gradient"),
        (lambda g: None, Verdict.ERROR, "gradients returned None; return a dict"),
        (lambda g: {**g, "b1": None}, Verdict.MISSING, "no gradient for b1"),
        (lambda g: {**g, "b1": []}, Verdict.MISSING, "no gradient for b1"),
        (only("w1", lambda g: g.T), Verdict.FAIL, "has shape (3, 4)"),
        (only("w1", lambda g: g.astype(np.float32)), Verdict.FAIL, "is float32"),
    ],
)
def test_what_gives_no_gradient_is_one_line(change, found, said):
    finding = trained(change)
    assert finding.verdict is found
    assert said in finding.reason


def test_a_gradient_in_several_buffers_trains_as_their_sum():
    split = only("w1", lambda g: {"": g / 2, "head": g / 2})
    assert trained(split).verdict is Verdict.PASS
    longer = only("w1", lambda g: {"": g, "head": g / 20})
    assert trained(longer).verdict is Verdict.FAIL


def test_what_is_not_bound_or_not_there_is_no_pass():
    class Silent:
        name = "silent"

        def bind_model(self, case, dtype):
            return None

    class Lacking(Silent):
        def bind_model(self, case, dtype):
            raise Unsupported("no models")

    assert judge_training(TOY, Silent(), "float64", ADAM)[0].verdict is Verdict.UNBOUND
    assert judge_training(TOY, Lacking(), "float64", ADAM)[0].verdict is Verdict.UNSUPPORTED
    assert judge_training(TOY, Reference(), "mp50", ADAM)[0].verdict is Verdict.UNSUPPORTED


# ── right gradients ──────────────────────────────────────────────────────────────────────────


@pytest.mark.suite(keep=4, rest=11)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("kinked", [False, True])
@pytest.mark.parametrize("rule", ["sgd", "adam", "adamw", "lbfgs"])
def test_right_gradients_pass_and_the_loss_falls_as_predicted(rule, kinked, dtype):
    case = case_of(kinked=kinked)
    [finding] = judge_training(case, Reference(), dtype, SUITE.rules[rule])
    assert finding.verdict is Verdict.PASS, finding.reason
    assert finding.reason.startswith("loss ")
    assert finding.failed == finding.unresolved == 0
    assert f" in 30 steps of {rule}: " in finding.reason


def test_buffers_of_a_tied_weight_are_summed():
    halves = only("w1", lambda g: [g / 2, g / 2])
    assert trained(halves).verdict is Verdict.PASS


def test_the_same_training_gives_the_same_bits():
    first, second = (
        Trainer(TOY, Reference().bind_model(TOY, "float32"), "float32", ADAM, 5).run()
        for _ in range(2)
    )
    assert first.losses == second.losses
    assert first.paths == second.paths


def test_a_loss_without_a_lower_bound_ends_training_and_is_no_failure():
    [case] = SUITE.model_cases(["quadratic"], [], ["tiny"])
    [finding] = judge_training(case, Reference(), "float32", LBFGS)
    assert finding.verdict is Verdict.PASS
    assert finding.compared < 30


# ── the verdict ──────────────────────────────────────────────────────────────────────────────


def leg(step, observed, predicted, bound=1e-6, size=1.0, tensor=""):
    return PathCheck(
        step=step, tensor=tensor, observed=observed, predicted=predicted, bar=bound / 2,
        bound=bound, size=size,
    )  # fmt: skip


def judged(losses, *legs):
    return training_finding(TrainingRun(losses=losses, paths=legs, params={}), "adam")


def test_a_loss_that_does_not_fall_is_not_a_pass():
    assert judged((1.0, 2.0), leg(1, 1.0, 1.0)).verdict is Verdict.INCONCLUSIVE


def test_a_bound_that_hides_everything_is_not_a_pass():
    found = judged((1.0, 0.5), leg(1, -0.5, -0.5, bound=0.4))
    assert found.verdict is Verdict.INCONCLUSIVE
    assert found.unresolved == 1


def test_a_few_uncertain_steps_are_counted_and_a_tensor_that_is_never_seen_is_no_pass():
    sure = [leg(t, -0.25, -0.25) for t in (1, 2, 3)]
    vague = leg(4, -0.25, -0.25, bound=0.4)
    found = judged((1.0, 0.0), *sure, vague)
    assert (found.verdict, found.unresolved) == (Verdict.PASS, 1)
    unseen = leg(1, -0.25, -0.25, bound=0.4, tensor="b1")
    assert judged((1.0, 0.0), *sure, unseen).verdict is Verdict.INCONCLUSIVE
    assert judged((1.0, 0.0), sure[0], vague, vague).verdict is Verdict.INCONCLUSIVE


def test_what_moves_next_to_nothing_need_not_be_resolved():
    small = leg(1, -1e-9, 0.0, bound=2e-9, size=0.0, tensor="b1")
    assert judged((1.0, 0.5), leg(1, -0.5, -0.5), small).verdict is Verdict.PASS


@pytest.mark.parametrize("number", [np.nan, np.inf, -np.inf])
def test_numbers_that_are_none_fail(number):
    assert judged((1.0, 0.5), leg(1, -0.5, number)).verdict is Verdict.FAIL
    assert judged((1.0, 0.5), leg(1, number, -0.5)).verdict is Verdict.FAIL


# ── the sine wave ────────────────────────────────────────────────────────────────────────────


def followed(case, params):
    """How many of the next tokens the largest logit names."""
    values = case.program.forward(F64, {**case.given, **params})
    return np.mean(np.argmax(values["logits"], -1) == np.argmax(case.inputs["targets"], -1))


@pytest.mark.slow(rest=1)
@pytest.mark.parametrize(("rule", "steps", "least"), [(ADAM, 40, 0.6), (LBFGS, 30, 0.6)])
def test_a_trained_baby_llama_follows_the_sine_wave(rule, steps, least):
    [case] = SUITE.model_cases(["baby_llama"], ["square_error"], ["uneven"])
    before = followed(case, {})
    bound = Reference().bind_model(case, "float64")
    found = Trainer(case, bound, "float64", rule, steps).run()
    assert all(one.right for one in found.paths)
    assert before <= 1 / 11  # chance
    assert followed(case, found.params) >= least


@pytest.mark.parametrize("answer", [ZeroDivisionError("by\nzero"), ()])
def test_a_bound_stage_that_raises_or_returns_too_few_is_one_line(answer):
    class Bound:
        name = "bound"

        def bind_model(self, case, dtype):
            def vjp(stage, cts, values):
                if isinstance(answer, Exception):
                    raise answer
                return answer

            return BoundModel(stage=lambda stage: vjp if stage.name == "act" else None)

    [finding] = judge_training(TOY, Bound(), "float64", ADAM, 3)
    assert finding.verdict is Verdict.ERROR
    assert finding.reason.startswith("gradients raised ")
    assert "\n" not in finding.reason


def test_what_is_to_be_resolved_is_measured_by_the_largest_step():
    rule = SUITE.rules["sgd"]
    trainer = Trainer(TOY, Reference().bind_model(TOY, "float64"), "float64", rule, 3)
    assert trainer.largest == 0.0
    legs = [leg for leg in trainer.run().paths if not leg.tensor]
    assert trainer.largest == max(leg.size for leg in legs) < 1


@pytest.mark.slow(keep=1)
@pytest.mark.parametrize("offset", [0.0, -1.0, -1e3])
def test_training_goes_on_below_a_loss_of_zero(offset, monkeypatch):
    """It ends where the loss is far from where it began, whatever its sign is."""
    loss = Trainer.loss
    monkeypatch.setattr(Trainer, "loss", lambda self, params: loss(self, params) + offset)
    bound = Reference().bind_model(TOY, "float64")
    assert len(Trainer(TOY, bound, "float64", ADAM, 4).run().losses) == 5


STEP = np.array([1.0, -2.0])


def way(slope, kinked=False):
    """Along Δ = (1, −2), with a gradient of which only the first element is not zero."""
    asked = []

    def gradients(s):
        asked.append(s)
        return {"w": np.array([slope(s), 0.0])}

    return PathIntegral(gradients, {"w": STEP}, kinked), asked


def along(slope, observed, *, splits=0, kinked=False):
    found, _ = way(slope, kinked)
    for _ in range(splits):
        found.split()
    return found.check(observed, 0.0, TOLERANCES["float64"], 1, "")


@pytest.mark.parametrize("power", range(6))
def test_polynomials_up_to_the_fifth_degree_are_integrated_exactly(power):
    leg = along(lambda s: s**power, 1 / (power + 1))
    assert leg.error <= 1e-15
    assert leg.right


def test_a_slope_that_is_wrong_by_a_part_in_ten_thousand_is_seen():
    assert along(np.exp, np.e - 1, splits=3).right
    assert not along(lambda s: (1 + 1e-4) * np.exp(s), np.e - 1, splits=3).right


@pytest.mark.parametrize("at", [0.01, 0.125, 0.3, 0.4999, 0.5, 0.77])
def test_the_bar_covers_a_jump_of_the_slope_wherever_it_is(at):
    leg = along(lambda s: 1.0 if s < at else 3.0, at + 3 * (1 - at), kinked=True)
    assert leg.error <= leg.bar
    assert leg.right


@pytest.mark.parametrize(("splits", "bar"), [(0, 1 / 4), (1, 1 / 16), (2, 1 / 64)])
def test_beside_kinks_four_pairs_of_jumps_as_large_as_those_seen_may_hide(splits, bar):
    """From node to node a slope of s rises by their distance: that is how far, and how long."""
    leg = along(lambda s: s, 0.5, splits=splits, kinked=True)
    assert leg.bar == pytest.approx(bar)
    assert along(lambda s: s, 0.5, splits=splits).bar < 1e-15


def test_with_a_kink_all_panels_are_halved_wherever_a_jump_is_seen():
    found, _ = way(lambda s: 1e3 * (s > 0.3), kinked=True)
    for count in (2, 4, 8):
        found.split()
        assert found.cuts == [k / count for k in range(count + 1)]


def test_without_a_kink_panels_are_halved_where_they_are_uncertain():
    found, asked = way(lambda s: 1 / (0.01 + s))
    for _ in range(5):
        found.split()
    assert found.cuts[1] == 2.0**-5
    assert len(found.cuts) < 2**5
    assert len(asked) == len(set(asked))  # each slope is taken once


def test_a_slope_that_is_no_number_is_not_right():
    assert not along(lambda s: np.nan, 1.0).right


def test_a_bound_that_could_hide_a_wrong_gradient_resolves_nothing():
    plain = {"step": 1, "tensor": "w", "observed": 1.0, "predicted": 1.0, "bar": 0.0, "size": 1.0}
    assert PathCheck(**plain, bound=1e-3).resolved(0.0)
    assert not PathCheck(**plain, bound=0.04).resolved(0.0)
    assert PathCheck(**plain, bound=0.04, kinked=True).resolved(0.0)
    assert PathCheck(**plain, bound=0.04).resolved(1e3)  # next to nothing of the whole step
