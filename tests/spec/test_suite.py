"""The registry: unique names, cases that depend on names alone, suites from anywhere."""

from dataclasses import replace

import numpy as np
import pytest
from gradcheck_cases import SUITE
from gradcheck_cases.activation import relu
from gradcheck_cases.norm import rms_norm

from gradcheck.errors import SpecError, UnknownNameError
from gradcheck.spec import Dialect, OpSpec, Sample, Slack
from gradcheck.spec.spec_checks import check_held
from gradcheck.spec.suite import Suite


def forward(xp, x, w=None, *, eps=1e-5):
    return x


def vjp(xp, ct, x, w=None, *, eps=1e-5):
    return ct


def sample(name, primals=lambda draw: (draw.normal(2, 3), draw.normal(3)), **changes):
    return Sample(name=name, primals=primals, hunts="anything", **changes)


def spec(name="op", samples=None, dialects=None, **changes):
    return OpSpec(
        name=name,
        signature="(d),(d)->(d)",
        forward=forward,
        vjp=vjp,
        formula="y = x",
        source="nobody",
        samples=samples or (sample("typical"),),
        **({} if dialects is None else {"dialects": dialects}),
        **changes,
    )


def only(suite, name):
    (case,) = [c for c in suite.cases() if c.name == name]
    return case


def values(case):
    return [p.tolist() for p in case.primals]


# ── names ────────────────────────────────────────────────────────────────────────────────────


def test_two_operators_of_one_name_are_refused():
    with pytest.raises(SpecError, match=r"suite 'mine': two operators are called 'op'.*rename one"):
        Suite("mine", "1", (spec(), spec()))


def test_an_unknown_operator_suggests_the_nearest():
    with pytest.raises(UnknownNameError, match=r"unknown operator 'rmsnorm': .*'rms_norm'"):
        SUITE.select(["rmsnorm"])
    with pytest.raises(UnknownNameError, match=r"unknown operator 'zzz': known: "):
        SUITE.cases(["zzz"])


def test_globs_select_in_suite_order_without_repeats():
    names = [s.name for s in SUITE.select(["*softmax*", "rms_norm", "soft*"])]
    order = list(SUITE.operators)
    assert names == sorted(names, key=order.index)
    assert set(names) == {"rms_norm"} | {n for n in order if "softmax" in n or n[:4] == "soft"}
    assert SUITE.select() == list(SUITE)
    assert len(SUITE) == len(order)


def test_a_glob_that_matches_nothing_is_an_error_even_beside_one_that_does():
    with pytest.raises(UnknownNameError, match="unknown operator"):
        SUITE.select(["rms_norm", "RMS_NORM"])
    with pytest.raises(UnknownNameError, match=r"unknown dialect 'gema'.*'gemma'"):
        SUITE.cases(["gelu"], dialects=["gema"])
    with pytest.raises(UnknownNameError, match=r"unknown sample 'typcal'.*'typical'"):
        SUITE.cases(["gelu"], samples=["typcal"])


def test_cases_are_the_product_that_dialects_allow():
    two = (Dialect(name="a", says="one"), Dialect(name="b", says="two"))
    it = Suite("s", "1", (spec(dialects=two, samples=(sample("x"), sample("y", dialects=("b",)))),))
    assert [c.name for c in it.cases()] == ["op/a/x", "op/b/x", "op/b/y"]
    assert [c.name for c in it.cases(dialects=["a"])] == ["op/a/x"]
    assert [c.name for c in it.cases(samples=["y"])] == ["op/b/y"]
    assert it.cases(dialects=["a"], samples=["y"]) == []


# ── values ───────────────────────────────────────────────────────────────────────────────────


def test_adding_an_operator_or_a_sample_moves_nobodys_values():
    small = Suite("s", "1", (spec("b", samples=(sample("two"),)),))
    large = Suite(
        "s", "2", (spec("a"), spec("b", samples=(sample("one"), sample("two"))), spec("c"))
    )
    before, after = only(small, "b/default/two"), only(large, "b/default/two")
    assert values(before) == values(after)
    assert before.fingerprint == after.fingerprint
    assert (
        before.draw("cotangents").normal(5).tolist() == after.draw("cotangents").normal(5).tolist()
    )


def test_values_follow_seed_suite_operator_sample_and_role_but_not_the_dialect():
    two = (Dialect(name="a", says="one"), Dialect(name="b", says="two", attrs={"eps": 0.1}))
    parts = {"dialects": two, "samples": (sample("x"), sample("y"))}
    it = Suite("s", "1", (spec("p", **parts), spec("q", **parts)))
    base = only(it, "p/a/x")
    assert values(base) == values(only(it, "p/b/x"))
    others = [
        only(it, "p/a/y"),
        only(it, "q/a/x"),
        replace(base, seed=1),
        replace(base, suite="t"),
    ]
    for other in others:
        assert values(base) != values(other)
    assert base.draw("primals").normal(5).tolist() != base.draw("cotangents").normal(5).tolist()


def test_primals_are_private_read_only_and_exact():
    shared = np.ones((2, 3))
    it = Suite(
        "s", "1", (spec(samples=(sample("x", lambda draw: (shared, np.array([1, 2, 3]))),)),)
    )
    x, index = only(it, "op/default/x").primals
    assert x.dtype == np.float64
    assert index.dtype == np.int64
    assert not np.shares_memory(x, shared)
    with pytest.raises(ValueError, match="read-only"):
        x[0, 0] = 2


@pytest.mark.parametrize("value", [0.1, 1 + 2.0**-30])
def test_values_that_float32_rounds_are_kept_whole(value):
    it = Suite(
        "s", "1", (spec(samples=(sample("x", lambda d: (d.normal(2), np.full(3, value))),)),)
    )
    assert np.array_equal(only(it, "op/default/x").primals[1], np.full(3, value))


@pytest.mark.parametrize("value", [1e-60, -1e-60, 1e300, np.nextafter(2.0**128, 0)])
def test_values_that_float32_does_not_hold_are_refused(value):
    it = Suite(
        "s", "1", (spec(samples=(sample("x", lambda d: (d.normal(2), np.full(3, value))),)),)
    )
    with pytest.raises(SpecError, match=r"x: float32 does not hold the values of 'w'"):
        _ = only(it, "op/default/x").primals


def test_values_are_those_that_float32_does_not_lose():
    check_held("relu/default/tiny", "x", np.array([0.5, -np.inf, 2.0**100]))
    check_held("relu/default/tiny", "x", np.array([1 / 3, 1 + 2.0**-30, 0.0, -0.0, 2.0**-149]))
    for values, nan in (([1e39], True), ([-1e39], True), ([2.0**-150], True), ([np.nan], False)):
        with pytest.raises(SpecError, match=r"^relu/default/tiny: float32 does not hold .* 'x'"):
            check_held("relu/default/tiny", "x", np.array(values), nan=nan)
    check_held("relu/default/tiny", "x", np.array([np.nan, 1.0]), nan=True)


def test_a_wrong_number_of_primals_is_refused():
    it = Suite("s", "1", (spec(samples=(sample("x", lambda draw: (draw.normal(3),)),)),))
    with pytest.raises(SpecError, match=r"draws 1 primal, forward takes \['x', 'w'\]"):
        _ = only(it, "op/default/x").primals


def test_a_dialect_drops_its_primals_and_the_sample_overrules_its_attributes():
    bare = Dialect(name="bare", says="no w", attrs={"eps": 0.5}, without=("w",))
    it = Suite("s", "1", (spec(dialects=(bare,), samples=(sample("x", attrs={"eps": 0.25}),)),))
    case = only(it, "op/bare/x")
    assert case.primal_names == ("x",)
    assert len(case.primals) == len(case.core_ranks) == 1
    assert case.attrs == {"eps": 0.25}


def test_every_builtin_case_can_be_drawn(suite):
    names = [case.name for case in suite.cases()]
    assert len(set(names)) == len(names) > 300
    for case in suite.cases(seed=7):
        assert len(case.primals) == len(case.core_ranks) == len(case.primal_names)
        assert all(p.ndim >= r for p, r in zip(case.primals, case.core_ranks, strict=True))


# ── fingerprints ─────────────────────────────────────────────────────────────────────────────


def test_the_fingerprint_follows_the_meaning():
    (case,) = SUITE.cases(["rms_norm"], dialects=["weight"], samples=["typical"])
    assert len(case.fingerprint) == 4
    assert case.fingerprint == replace(case).fingerprint
    slack = replace(case.spec, slack=Slack(ulp=1, because="a test"))
    changed = [
        replace(case, seed=1),
        replace(case, dialect=case.spec.dialect("unit-offset")),
        replace(case, sample=replace(case.sample, attrs={"eps": 0.1})),
        replace(case, spec=slack),
    ]
    prints = [c.fingerprint for c in changed]
    assert case.fingerprint not in prints
    assert len(set(prints)) == len(prints)


def test_the_fingerprint_sees_shapes_and_not_only_bytes():
    flat = sample("x", lambda draw: (np.ones((2, 3)), np.ones(3)))
    tall = sample("x", lambda draw: (np.ones((3, 2)), np.ones(3)))
    made = [Suite("s", "1", (spec(samples=(s,)),)).cases()[0].fingerprint for s in (flat, tall)]
    assert made[0] != made[1]


# ── several suites ───────────────────────────────────────────────────────────────────────────


def test_joined_suites_keep_their_values():
    mine = Suite("mine", "7", (spec("own"),), peers={"torch": "mine.peers:T"})
    whole = Suite.joined([SUITE, mine])
    assert whole.name == "builtin+mine"
    assert whole.version == f"{SUITE.version}+7"
    assert len(whole) == len(SUITE) + 1
    for name, origin in (("own/default/typical", mine), ("relu/default/typical", SUITE)):
        assert values(only(whole, name)) == values(only(origin, name))
    assert whole.peers["torch"] == (*SUITE.peers["torch"], "mine.peers:T")


def test_joined_suites_may_not_share_an_operator():
    with pytest.raises(SpecError, match="two operators are called 'relu'"):
        Suite.joined([Suite("a", "1", (relu, rms_norm)), Suite("b", "1", (relu,))])
