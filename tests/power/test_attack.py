"""One wrong answer in one case: it passes the judgement that everybody's code does, or not."""

from dataclasses import replace

import numpy as np
import pytest
from gradcheck_cases import SUITE

from gradcheck import Finding, Kink, Sample, Unsupported, Verdict
from gradcheck.errors import SpecError
from gradcheck.judge.impostors import IMPOSTORS
from gradcheck.power.attack import FORMS

DTYPES = ["float64", "float32"]
BY_NAME = {impostor.name: impostor for impostor in (*IMPOSTORS, *FORMS)}
OPS = {spec.name: spec for spec in SUITE if spec.family == "elementwise"}


def gate(xp, x, w):
    return x * w


def gate_vjp(xp, ct, x, w):
    return ct * w, ct * x


def pick(xp, x, i):
    return x[i], xp.sum(x)


def pick_vjp(xp, ct, x, i):
    g = xp.zeros_like(x) + ct[1]
    np.add.at(g, i, ct[0])
    return g, None


@pytest.fixture
def gated(make):
    """Two primals of one shape, square: every impostor but `elsewhere` can be made of both."""

    def build(primals=lambda draw: (draw.signed(3, 3), draw.signed(3, 3)), dtype="float64"):
        spec = make.op("gate", gate, gate_vjp, "(),()->()", typical=primals)
        return make.target(spec, dtype)

    return build


@pytest.fixture
def picked(make):
    """An index among the primals, a cotangent of two parts."""

    def build(primals=lambda draw: (draw.signed(3), np.array([0, 2, 2])), dtype="float64"):
        spec = make.op("pick", pick, pick_vjp, "(n),(m)->(m),()", typical=primals)
        return make.target(spec, dtype)

    return build


# ── what counts as rejected, and what as accepted ────────────────────────────────────────────


@pytest.mark.parametrize("verdict", Verdict)
def test_a_wrong_answer_is_rejected_only_by_a_verdict_on_itself(make, monkeypatch, verdict):
    target = make.target(make.op())
    found = [Finding(name=name, verdict=v) for name, v in (("x", Verdict.PASS), ("y", verdict))]
    monkeypatch.setattr("gradcheck.power.attack.judge_case", lambda *_, details: found)
    rejected = verdict in (Verdict.FAIL, Verdict.ERROR, Verdict.MISSING)
    assert target.rejects(lambda *_: None) is rejected
    assert target.accepts_the_right_one() is (verdict is Verdict.PASS)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(
    ("vjp", "rejected"),
    [
        (lambda ct, x: 2 * ct * x, False),
        (lambda ct, x: ct * x + x * ct, False),
        (lambda ct, x: 2 * ct * x * x.dtype.type(1.001), True),
        (lambda ct, x: ct, True),
        (lambda ct, x: None, True),
        (lambda ct, x: (ct, ct), True),
        (lambda ct, x: 1 / 0, True),
    ],
)
def test_the_judgement_is_the_usual_one(make, dtype, vjp, rejected):
    assert make.target(make.op(), dtype).rejects(vjp) is rejected


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_right_vjp_is_accepted_and_a_wrong_spec_raises_the_alarm(make, dtype):
    assert make.target(make.op(), dtype).accepts_the_right_one()
    for vjp in (lambda xp, ct, x: 3 * ct * x, lambda xp, ct, x: xp.nothing(x)):
        spec = make.op(vjp=vjp)
        assert not make.target(spec, dtype).accepts_the_right_one()


# ── mutants ──────────────────────────────────────────────────────────────────────────────────


def writes(xp, ct, x):
    ct *= 2 * x
    return ct


def raises(error):
    def vjp(xp, ct, x):
        raise error

    return vjp


@pytest.mark.slow(keep=3)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(
    "vjp",
    [
        lambda xp, ct, x: ct * x,
        lambda xp, ct, x: None,
        lambda xp, ct, x: ct * x * np.nan,
        writes,
        raises(IndexError("out of bounds")),
        raises(ValueError("shapes do not match")),
        raises(ZeroDivisionError()),
        raises(RuntimeError("no kernel")),
        raises(SystemExit(1)),
    ],
)
def test_a_mutant_is_rejected_for_what_it_returns_raises_or_writes(make, dtype, vjp):
    target = make.target(make.op(), dtype)
    assert target.mutant(make.mutant(vjp)) is True
    assert target.accepts_the_right_one()  # what it wrote into was a copy


@pytest.mark.parametrize(
    "vjp", [lambda xp, ct, x: ct * x + x * ct, raises(Unsupported("not for squares"))]
)
def test_one_that_is_right_or_declines_survives(make, vjp):
    assert make.target(make.op()).mutant(make.mutant(vjp)) is False


@pytest.mark.parametrize(
    ("vjp", "said"),
    [
        (lambda xp, ct, x: ct.nothing, "raises AttributeError: "),
        (lambda xp, ct, x: xp.absolute(x), "raises AttributeError: `xp.absolute` is not in the"),
        (lambda xp, ct, x: abs(x, x), "raises TypeError: abs() takes exactly one argument"),
        (lambda xp, ct, x: naught * ct, "raises NameError: name 'naught' is not defined"),  # noqa: F821
        (raises(ImportError("no module\nof that name")), "ImportError: no module of that name;"),
    ],
)
def test_one_that_was_written_down_wrongly_is_no_wrong_answer(make, vjp, said):
    with pytest.raises(SpecError) as caught:
        make.target(make.op()).mutant(make.mutant(vjp))
    assert str(caught.value).startswith("mutant square/wrong raises ")
    assert said in str(caught.value)
    assert str(caught.value).endswith("; repair it: a mutant gives a wrong answer")


def test_a_slip_that_it_catches_itself_is_its_own_affair(make):
    def vjp(xp, ct, x):
        try:
            return ct.nothing * x
        except AttributeError:
            return ct * x

    assert make.target(make.op()).mutant(make.mutant(vjp)) is True


def test_an_interruption_inside_one_is_heard(make):
    with pytest.raises(KeyboardInterrupt):
        make.target(make.op()).mutant(make.mutant(raises(KeyboardInterrupt())))


def test_the_memory_of_one_lasts_for_one_attack(make):
    made = []

    def growing():
        made.append([])
        buffer = made[-1]

        def vjp(xp, ct, x):
            buffer.append(2 * ct * x)
            return sum(buffer[1:], buffer[0])

        return vjp

    target, mutant = make.target(make.op()), make.mutant(make=growing)
    assert [target.mutant(mutant), target.mutant(mutant)] == [True, True]
    assert len(made) == 2
    assert len(made[0]) == len(made[1]) > 1


def test_one_whose_first_answer_is_right_is_rejected_for_the_next(make):
    def once():
        calls = []

        def vjp(xp, ct, x):
            calls.append(0)
            return 2 * ct * x if len(calls) == 1 else ct

        return vjp

    assert make.target(make.op()).mutant(make.mutant(make=once)) is True


def test_one_that_overflows_in_float32_is_killed_only_there(make):
    def vjp(xp, ct, x):
        return 2 * ct * x * 1e30 * 1e30 / 1e30 / 1e30

    assert [make.target(make.op(), d).mutant(make.mutant(vjp)) for d in DTYPES] == [False, True]


def test_one_is_called_in_the_dtypes_own_arithmetic(make):
    def vjp(xp, ct, x):
        assert xp.asarray([0.1]).dtype == ct.dtype == x.dtype
        return 2 * ct * x

    assert [make.target(make.op(), d).mutant(make.mutant(vjp)) for d in DTYPES] == [False, False]


# ── impostors ────────────────────────────────────────────────────────────────────────────────


@pytest.mark.slow(keep=10)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("index", [0, 1])
@pytest.mark.parametrize("name", BY_NAME)
def test_an_ordinary_sample_rejects_every_impostor_of_either_gradient(gated, dtype, index, name):
    assert gated(dtype=dtype).impostor(BY_NAME[name], index) is True


@pytest.mark.slow(keep=4)
@pytest.mark.parametrize("name", BY_NAME)
def test_only_the_gradient_meant_is_replaced(gated, monkeypatch, name):
    target = gated()
    seen = []
    monkeypatch.setattr(
        "gradcheck.power.attack.judge_case",
        lambda truth, binding, dtype, details: seen.append(binding) or [],
    )
    target.impostor(BY_NAME[name], 1)
    (x, w), ct = target.truth.primals, np.full((3, 3), 0.75)
    dx, dw = seen[0].vjp(ct, x, w)
    assert np.array_equal(dx, ct * w)
    assert dw is None or dw.shape != ct.shape or dw.dtype != ct.dtype or not np.all(dw == ct * x)


def nothing(draw):
    return np.zeros(4), np.zeros(4)


@pytest.mark.slow(keep=1)
@pytest.mark.parametrize(
    ("primals", "equal"),
    [
        (nothing, {"zeros", "negated", "double", "half", "one-percent", "mean", "one-element",
                   "one-zero", "rolled", "transposed", "swapped", "ignored", "stale",
                   "elsewhere"}),
        (lambda draw: (draw.signed(4), np.full(4, 1.0)), {"cotangent", "transposed", "elsewhere"}),
        (lambda draw: (draw.signed(1), draw.signed(1)), {"mean", "rolled", "transposed"}),
        (lambda draw: (draw.signed(), draw.signed()), {"mean", "rolled", "transposed"}),
        (lambda draw: (draw.signed(2, 3), draw.signed(2, 3)), {"transposed"}),
        (lambda draw: (np.full((2, 2), 0.5), np.full((2, 2), 0.5)), {"swapped", "elsewhere"}),
    ],
)  # fmt: skip
def test_one_that_equals_the_truth_there_or_cannot_be_made_is_none(gated, primals, equal):
    target = gated(primals)
    found = {name for name in BY_NAME if target.impostor(BY_NAME[name], 0) is None}
    assert found == equal


def test_a_gradient_of_other_primals_needs_other_primals_of_the_same_shapes(make):
    def drawn(size):
        return lambda draw: (draw.signed(size(draw)),)

    fixed = make.target(make.op(typical=drawn(lambda draw: 3)))
    assert fixed.impostor(BY_NAME["elsewhere"], 0) is True
    sizes = iter(range(1, 9))
    moving = make.target(make.op(typical=drawn(lambda draw: next(sizes))))
    assert moving.impostor(BY_NAME["elsewhere"], 0) is None


def test_half_a_digit_of_rounding_makes_no_impostor(make):
    """A gradient that is constant, but computed in another order elsewhere, is the truth."""

    def vjp(xp, ct, x):
        return 3 * ct / x * x

    many = make.op(forward=lambda xp, x: 3 * x, vjp=vjp, typical=lambda draw: (draw.signed(40),))
    target = make.target(many)
    rows = [vjp(np, np.ones(40), p[0]) for p in (target.truth.primals, target.beside.primals)]
    assert not np.array_equal(*rows)
    assert target.impostor(BY_NAME["elsewhere"], 0) is None


def test_twice_an_infinity_is_the_same_infinity(make):
    everywhere = Sample(name="origin", primals=lambda _: (np.zeros(3),), hunts="0", at_kink=True)
    target = make.target(replace(OPS["sqrt"], samples=(everywhere,)))
    assert target.accepts_the_right_one()
    found = {name: target.impostor(BY_NAME[name], 0) for name in ("double", "half", "negated")}
    assert found == {"double": None, "half": None, "negated": True}


@pytest.mark.parametrize("dtype", DTYPES)
def test_an_index_has_no_gradient_and_parts_of_a_cotangent_stay_apart(picked, dtype):
    target = picked(dtype=dtype)
    assert target.accepts_the_right_one()
    assert target.truth.floating == [0]
    found = {name: target.impostor(impostor, 0) for name, impostor in BY_NAME.items()}
    assert {name for name, rejected in found.items() if rejected is None} == {
        "transposed", "swapped", "elsewhere",
    }  # fmt: skip
    assert False not in found.values()


@pytest.mark.parametrize("dtype", DTYPES)
def test_without_elements_a_wrong_form_is_rejected_all_the_same(picked, dtype):
    target = picked(lambda draw: (np.zeros(0), np.zeros(0, dtype=int)), dtype)
    assert target.accepts_the_right_one()
    assert [target.impostor(form, 0) for form in FORMS] == [True] * len(FORMS)


@pytest.mark.parametrize("form", FORMS, ids=lambda form: form.name)
@pytest.mark.parametrize("shape", [(), (1,), (0, 3), (2, 2)])
@pytest.mark.parametrize("dtype", DTYPES)
def test_a_wrong_form_is_rejected_whatever_its_shape(make, form, shape, dtype):
    target = make.target(make.op(typical=lambda draw: (draw.signed(*shape),)), dtype)
    assert target.impostor(form, 0) is True


@pytest.mark.parametrize(("name", "killed"), [("double", True), ("negated", True), ("half", False)])
def test_on_a_kink_an_impostor_may_be_right(make, name, killed):
    """At 0, any slope from -3/4 to 1 is right for |x|; the spec's own choice is 1."""
    kink = Kink(name="0", gap=lambda xp, x: xp.abs(x), accept=(-0.75, 1.0), source="here")
    origin = Sample(name="origin", primals=lambda _: (np.zeros(3),), hunts="0", at_kink=True)
    spec = make.op(
        "abs", lambda xp, x: xp.abs(x), lambda xp, ct, x: ct * (1.0 - 2.0 * (x < 0)),
        options={"kinks": (kink,)}, origin=origin,
    )  # fmt: skip
    target = make.target(spec)
    assert target.accepts_the_right_one()
    assert target.impostor(BY_NAME[name], 0) is killed


def test_every_impostor_says_what_it_is():
    assert len(BY_NAME) == len(IMPOSTORS) + len(FORMS)
    assert all(impostor.says for impostor in BY_NAME.values())
