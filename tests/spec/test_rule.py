from functools import partial

import numpy as np
import pytest

from gradcheck import Dialect, Suite
from gradcheck.errors import SpecError, UnknownNameError
from gradcheck.spec.rule import RuleCase, RuleSpec, Steps


def init(xp, params):
    return {}


def descend(xp, params, grads, state, t, *, lr=0.5):
    return {name: p - lr * grads[name] for name, p in params.items()}, {}


def drawn(draw, *_):
    return {"w": draw.signed(2, 3), "s": draw.signed()}


sequence = partial(Steps, hunts="a sign", params=drawn, gradients=drawn)
descent = partial(
    RuleSpec, "descent", init, descend, (sequence(name="typical"),), formula="p", source="s"
)


def case(**parts):
    spec = descent(**parts)
    return RuleCase(spec, spec.dialects[0], spec.samples[0], 0, "test")


def no_default(xp, params, grads, state, t, *, lr):
    return params, state


def other_arguments(xp, params, grads, *, lr=1.0):
    return params


@pytest.mark.parametrize(
    ("parts", "said"),
    [
        ({"source": " "}, "`source` is empty"),
        ({"samples": ()}, "no samples"),
        ({"samples": (sequence(name="a"), sequence(name="a"))}, "two samples are called 'a'"),
        ({"samples": (sequence(name="a", attrs={"rate": 1}),)}, "'rate' is not a keyword"),
        ({"samples": (sequence(name="a", dialects=("x",)),)}, "no dialect 'x'"),
        ({"training": {"rate": 1}}, "'training': attribute 'rate' is not a keyword"),
        ({"dialects": (Dialect(name="a", says="b", attrs={"c": 1}),)}, "'c' is not a keyword"),
        ({"update": no_default}, "'lr' of update needs a default"),
        ({"update": other_arguments}, "make it (xp, params, grads, state, t, *)"),
        ({"name": "Adam"}, "use lower-case letters"),
    ],
)
def test_a_rule_that_contradicts_itself_is_refused(parts, said):
    parts = {"name": "descent", "init": init, "update": descend, **parts}
    samples = parts.pop("samples", (sequence(name="typical"),))
    with pytest.raises(SpecError) as error:
        RuleSpec(samples=samples, **{"formula": "p", "source": "s", **parts})
    assert said in str(error.value)


@pytest.mark.parametrize(
    ("parts", "said"),
    [
        ({"hunts": ""}, "say in `hunts`"),
        ({"name": "A b"}, "use lower-case letters"),
        ({"first": 0}, "counted from 1"),
        ({"count": 0}, "there must be one"),
    ],
)
def test_a_sample_that_says_too_little_is_refused(parts, said):
    with pytest.raises(SpecError, match=said):
        sequence(**{"name": "typical", **parts})


@pytest.mark.parametrize("value", [1e-50, 1e39, np.nan])
def test_numbers_that_float32_does_not_hold_are_refused(value):
    lost = sequence(name="typical", params=lambda draw: {"w": np.full(3, value)})
    with pytest.raises(SpecError, match="float32 does not hold the values of 'w'"):
        _ = RuleCase(descent(), descent().dialects[0], lost, 0, "test").params


def test_gradients_must_fit_the_parameters():
    bent = sequence(name="bent", gradients=lambda draw, t: {"w": draw.signed(2, 3)})
    with pytest.raises(SpecError, match="gradients of step 1"):
        _ = RuleCase(descent(), descent().dialects[0], bent, 0, "test").gradients


def test_a_case_is_read_only_the_same_every_time_and_has_a_fingerprint():
    one, two = case(), case()
    assert one.name == "descent/default/typical"
    assert one.fingerprint == two.fingerprint
    assert len(one.gradients) == len(one.times) == 20
    for a, b in zip(one.gradients, two.gradients, strict=True):
        assert all(np.array_equal(a[n], b[n]) for n in a)
    assert not np.array_equal(one.gradients[0]["w"], one.gradients[1]["w"])
    with pytest.raises(ValueError, match="read-only"):
        one.params["w"][0, 0] = 1.0


def test_a_fingerprint_changes_with_numbers_and_attributes():
    seen = {
        case().fingerprint,
        case(dialects=(Dialect(name="fast", says="1", attrs={"lr": 1.0}),)).fingerprint,
        RuleCase(descent(), descent().dialects[0], descent().samples[0], 1, "test").fingerprint,
    }
    assert len(seen) == 3


def test_attributes_are_the_rules_then_the_dialects_then_the_samples():
    fast = Dialect(name="fast", says="1", attrs={"lr": 1.0})
    assert case().attrs == {"lr": 0.5}
    assert case(dialects=(fast,)).attrs == {"lr": 1.0}
    spec = descent(dialects=(fast,))
    slow = RuleCase(spec, fast, sequence(name="slow", attrs={"lr": 0.25}), 0, "test")
    assert slow.attrs == {"lr": 0.25}
    with pytest.raises(UnknownNameError):
        spec.dialect("slow")


# ── in a suite ───────────────────────────────────────────────────────────────────────────────


def suite(*rules):
    return Suite("s", "0", (), rules=rules)


def test_rules_have_unique_names():
    with pytest.raises(SpecError, match="two specs are called 'descent'"):
        suite(descent(), descent())


def test_cases_are_chosen_by_globs():
    found = suite(descent()).rule_cases(["desc*"], [], ["typ*"])
    assert [c.name for c in found] == ["descent/default/typical"]
    for globs in (["asc*"], [], []), ([], ["x"], []), ([], [], ["x"]):
        with pytest.raises(UnknownNameError):
            suite(descent()).rule_cases(*globs)


def test_joined_suites_keep_their_rules_and_their_numbers():
    alone = suite(descent())
    other = Suite("other", "0", (), rule_mutants="m:X")
    whole = Suite.joined([other, alone])
    assert whole.rule_mutants == ("m:X",)
    [a], [b] = alone.rule_cases(), whole.rule_cases()
    assert a.fingerprint == b.fingerprint
