"""A program in any language is judged as any other implementation is."""

from pathlib import Path

import numpy as np
import pytest
from gradcheck_cases import SUITE

from gradcheck.errors import LoadError, Unsupported
from gradcheck.implementations.manifest.operation import Program
from gradcheck.implementations.protocol.program import Process
from gradcheck.implementations.reference import Reference
from gradcheck.implementations.returned import Broken
from gradcheck.judge.operator import CaseTruth, judge_case
from gradcheck.numerics.arrays import dtype_named
from gradcheck.results.verdict import Verdict

HERE = Path(__file__).parent


@pytest.fixture
def process(program):
    """A bound program; it is closed at the end."""
    started = []

    def make(level="frames", lie="", timeout=60.0):
        started.append(Process("speaker.toml", program(level, lie, timeout)))
        return started[-1]

    yield make
    for one in started:
        one.close()


def case(op, sample="typical", dialect=()):
    return SUITE.cases([op], dialect, [sample])[0]


def judged(binding, which, dtype="float64"):
    return {f.name: f for f in judge_case(CaseTruth(which), binding, dtype)}


def verdicts(binding, which, dtype="float64"):
    return {name: f.verdict.value for name, f in judged(binding, which, dtype).items()}


@pytest.mark.slow(keep=5, rest=18)
@pytest.mark.parametrize("level", ["frames", "jsonl"])
@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize(
    "which",
    [
        ("mul", "typical"),
        ("tanh", "cube"),
        ("leaky_relu", "typical"),
        ("get_rows", "repeated"),  # an input of integers
        ("get_rows", "empty"),
        ("qk_norm", "typical"),  # two outputs
        ("qk_norm", "empty"),
    ],
)
def test_a_right_program_gets_the_verdicts_of_the_reference(process, level, dtype, which):
    found = verdicts(process(level), case(*which), dtype)
    assert found == verdicts(Reference(), case(*which), dtype)
    assert set(found.values()) == {"pass"}


@pytest.mark.slow(keep=1)
@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_a_oneshot_program_does_too(process, dtype):
    found = verdicts(process("oneshot"), case("tanh"), dtype)
    assert found == {"forward": "pass", "x": "pass"}
    assert verdicts(process("oneshot"), case("mul"), dtype) == {"vjp": "unsupported"}
    if dtype == "float64":
        binding = process("oneshot", "no_forward")
        assert binding.bind(case("tanh"), dtype).forward is None
        assert verdicts(binding, case("tanh")) == {"x": "pass"}


@pytest.mark.slow(keep=2)
@pytest.mark.parametrize("sample", ["empty", "single"])
@pytest.mark.parametrize("level", ["frames", "jsonl", "oneshot"])
def test_empty_and_single_arrays_travel(process, level, sample):
    assert set(verdicts(process(level), case("tanh", sample)).values()) == {"pass"}


def test_a_wrong_program_fails(process):
    found = judged(process(lie="negated"), case("tanh"))
    assert found["forward"].verdict is Verdict.FAIL
    assert found["x"].verdict is Verdict.FAIL
    assert found["x"].failed > 0


@pytest.mark.slow(keep=1)
@pytest.mark.parametrize("dtype", ["float64", "float32", "float16", "bfloat16"])
@pytest.mark.parametrize("level", ["frames", "jsonl"])
def test_arrays_are_views_of_what_arrived_and_keep_their_bits(process, level, dtype):
    bound = process(level).bind(case("clamp"), dtype)
    ct = np.array([0.0, -0.0, np.inf, -np.nan, 1e-40, 1.0]).astype(dtype_named(dtype))
    (dx,) = bound.vjp(ct, np.ones_like(ct), min=-np.inf, max=np.inf)
    assert dx.dtype == ct.dtype
    assert dx.tobytes() == ct.tobytes()
    assert dx.base is not None


def test_arrays_of_any_layout_travel_in_c_order(process):
    bound = process().bind(case("clamp"), "float64")
    ct = np.arange(24.0).reshape(4, 6)
    for view in (ct.T, ct[::-1, ::2], np.asfortranarray(ct), np.broadcast_to(ct[0], (3, 6))):
        (dx,) = bound.vjp(view, np.zeros(view.shape), min=-np.inf, max=np.inf)
        assert np.array_equal(dx, view)


def test_attributes_travel_infinities_too(process):
    binding = process()
    assert judged(binding, case("leaky_relu", "slope-0.3"))["x"].verdict is Verdict.PASS
    assert judged(binding, case("clamp"))["vjp"].reason == "clamps nothing"


def test_an_attribute_that_it_does_not_take_is_fixed_at_the_default(process):
    binding = process(lie="no_attributes")
    assert binding.bind(case("leaky_relu"), "float64").attrs == {}
    with pytest.raises(Unsupported, match=r"takes no 'negative_slope'.*negative_slope=0\.3"):
        binding.bind(case("leaky_relu", "slope-0.3"), "float64")


def test_its_version_is_what_it_says(process):
    assert process().version == "speaker 1"
    assert process("oneshot").version == "speaker"


def test_what_it_does_not_offer_is_not_asked(process):
    assert process().bind(case("silu"), "float64") is None
    with pytest.raises(Unsupported, match="offers tanh in float32 alone"):
        process(lie="single_alone").bind(case("tanh"), "float64")
    with pytest.raises(Unsupported, match="no vjp of tanh, only forward"):
        process(lie="forward_alone").bind(case("tanh"), "float64")
    assert process().bind_model(SUITE.model_cases()[0], "float64") is None
    assert process().bind_rule(SUITE.rule_cases()[0], "float64") is None


def test_what_the_answer_lacks(process):
    found = judged(process(lie="last_missing_in_vjp"), case("mul"))
    assert found["x"].verdict is Verdict.PASS
    assert found["y"].verdict is Verdict.MISSING
    found = judged(process(lie="one_less"), case("tanh"))
    assert found["forward"].verdict is Verdict.ERROR
    assert found["forward"].reason == 'protocol: the output "0" is not in the answer'


@pytest.mark.slow(keep=1)
@pytest.mark.parametrize(
    ("lie", "verdict", "said"),
    [
        ("other_shape", Verdict.ERROR, "protocol: the output"),
        ("other_seq", Verdict.ERROR, "protocol: the answer has another seq"),
        ("unasked_error", Verdict.ERROR, "the program answered with an error"),
        ("unsupported", Verdict.UNSUPPORTED, "not here"),
        ("exits_3", Verdict.CRASH, "exited with status 3"),
        ("killed", Verdict.CRASH, "SIGKILL"),
    ],
)
def test_whatever_it_does_becomes_a_verdict(process, lie, verdict, said):
    (finding,) = judge_case(CaseTruth(case("tanh")), process(lie=lie), "float64")
    assert finding.verdict is verdict
    assert said in finding.reason


def test_what_it_printed_can_be_asked_for(process):
    (finding,) = judge_case(CaseTruth(case("tanh")), process(lie="exits_3"), "float64")
    assert "out of luck" in finding.printed
    bound = process(lie="prints").bind(case("tanh"), "float64")
    bound.vjp(*[np.ones(2)] * 2)
    assert "epoch 1" in bound.printed()


def test_after_three_hangs_the_rest_of_an_operator_is_not_run(process):
    binding = process(lie="hangs", timeout=0.2)
    for _ in range(3):
        assert [*verdicts(binding, case("tanh")).values()] == ["timeout"]
    (finding,) = judge_case(CaseTruth(case("tanh")), binding, "float64")
    assert finding.verdict is Verdict.NOTRUN
    assert "3 hangs of tanh" in finding.reason
    assert [*verdicts(binding, case("mul")).values()] == ["timeout"]


def test_a_crash_does_not_spoil_the_next_call(process):
    binding = process(lie="dies_every_other_time")
    bound = binding.bind(case("mul"), "float64")
    x = np.array([1.0, -2.0])
    for _ in range(3):
        dx, dy = bound.vjp(x, x, 2 * x)
        assert np.array_equal(dx, 2 * x * x)
        assert np.array_equal(dy, x * x)
        with pytest.raises(Broken, match="SIGABRT"):
            bound.vjp(x, x, 2 * x)


def test_a_program_that_does_not_start_cannot_be_loaded():
    program = Program(name="none", path=HERE / "x.toml", command=("./nothing-here",))
    with pytest.raises(LoadError, match="does not start"):
        Process("none.toml", program)
