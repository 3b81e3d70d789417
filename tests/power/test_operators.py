"""The kill matrix: what it holds, what it makes of faults, and how it falls into parts."""

from functools import partial

import numpy as np
import pytest

import gradcheck.power.operators
from gradcheck import Sample, Slack, Suite
from gradcheck.judge.impostors import IMPOSTORS
from gradcheck.power.attack import FORMS, difference
from gradcheck.power.operators import Score, Trial, score
from gradcheck.power.run_mutants import WHOLE, Part
from gradcheck.spec import Dialect

DTYPES = ("float64", "float32")
ALL = [i.name for i in (*IMPOSTORS, *FORMS)]


def trial(**parts):
    usual = {"kind": "mutant", "what": "wrong", "says": "It is wrong.", "label": "F",
             "tried": ("a/one", "a/two"), "killed": (), "killer": "one"}  # fmt: skip
    return Trial(**{**usual, **parts})


def scored(spec, mutants=(), part=WHOLE, dtypes=DTYPES):
    cases = Suite("mine", "1", [spec]).cases()
    return score(spec, cases, mutants, dtypes, part)


def of(found, what):
    (trial,) = [t for t in found.trials if t.what == what]
    return trial


@pytest.fixture
def few(monkeypatch):
    """Ten trials of an equivalent mutant, not a thousand."""
    quick = partial(difference, trials=10)
    monkeypatch.setattr(gradcheck.power.operators, "difference", quick)


# ── one trial ────────────────────────────────────────────────────────────────────────────────

PROVED = {"equivalent": "1 = 1.", "killer": ""}


@pytest.mark.parametrize(
    ("parts", "survives", "proved", "as_said"),
    [
        ({}, True, False, False),
        ({"killed": ("a/one",)}, False, False, True),
        ({"killed": ("b/one", "a/two")}, False, False, True),
        ({"killed": ("a/two",)}, False, False, False),
        ({"killed": ("a/two",), "tried": ("a/two",)}, False, False, True),  # never tried there
        ({"killed": ("a/one-more",)}, False, False, False),
        ({"killed": ("one/two",)}, False, False, False),  # a dialect is no sample
        ({"kind": "impostor", "killer": ""}, True, False, True),
        (PROVED, False, True, True),
        ({**PROVED, "doubt": "it differs"}, True, False, True),
        ({**PROVED, "killed": ("a/two",)}, False, False, True),
    ],
)
def test_a_wrong_answer_is_killed_survives_or_is_none(parts, survives, proved, as_said):
    found = trial(**parts)
    assert (found.survives, found.proved_equivalent, found.killed_as_said) == (
        survives, proved, as_said,
    )  # fmt: skip


# ── the score of one operator ────────────────────────────────────────────────────────────────


def score_of(*trials, **parts):
    return Score(op="f", family="g", sizes={"a/two": 6, "a/one": 2, "b/one": 2}, trials=trials,
                 judged=2, **parts)  # fmt: skip


KILLED = trial(killed=("a/one", "a/two"))


@pytest.mark.suite(keep=5)
@pytest.mark.parametrize(
    ("found", "sound"),
    [
        (score_of(), True),
        (score_of(KILLED), True),
        (score_of(KILLED, trial(**PROVED)), True),
        (score_of(KILLED, trial()), False),
        (score_of(KILLED, trial(killed=("a/two",))), False),
        (score_of(KILLED, trial(**{**PROVED, "doubt": "it differs"})), False),
        (score_of(trial(**PROVED, doubt="a sample rejects it", killed=("a/one",))), False),
        (score_of(KILLED, alarms=("f/a/one/float64",)), False),
        (score_of(KILLED, useless=("f/a/one",)), False),
        (score_of(KILLED, troubles=("f/a/one: no",)), False),
    ],
)
def test_a_score_is_sound_only_if_nothing_at_all_is_amiss(found, sound):
    assert found.sound is sound


@pytest.mark.parametrize(
    ("killed", "cheapest"),
    [
        (("a/two",), "a/two"),
        (("a/two", "b/one"), "b/one"),
        (("b/one", "a/one"), "a/one"),  # as small: by name, on every machine
        ((), ""),
    ],
)
def test_the_cheapest_killer_has_the_fewest_elements(killed, cheapest):
    assert score_of().cheapest(trial(killed=killed)) == cheapest


def test_every_case_has_a_certificate():
    found = score_of(KILLED, trial(tried=("a/one",)), trial(kind="impostor", killed=("a/two",)))
    assert found.certificates == {"a/two": (2, 2), "a/one": (1, 3), "b/one": (0, 0)}
    assert [t.kind for t in found.of("impostor")] == ["impostor"]


# ── attacked ─────────────────────────────────────────────────────────────────────────────────


def halves(xp, ct, x):
    return ct * x


def wrong_for_many(xp, ct, x):
    return 2 * ct * x if x.size < 4 else ct


def wrong_at_zero(xp, ct, x):
    return xp.where(x == 0, 1.0, 2 * ct * x)


@pytest.fixture
def three(make):
    """A small sample, a large one, and the origin, where the gradient is zero."""
    return make.op(
        small=lambda draw: (draw.signed(2),),
        large=lambda draw: (draw.signed(2, 3),),
        origin=lambda _: (np.zeros(2),),
    )


def test_the_matrix_says_who_was_tried_where_and_who_killed_whom(make, three):
    found = scored(three, [
        make.mutant(halves, name="halved", killer="small"),
        make.mutant(wrong_for_many, name="many", killer="large"),
        make.mutant(wrong_at_zero, name="zero", killer="origin"),
    ])  # fmt: skip
    everywhere = ("default/small", "default/large", "default/origin")
    small, large, origin = everywhere
    assert found.sizes == {small: 2, large: 6, origin: 2}
    assert (found.op, found.family, found.judged) == ("square", "conftest", 6)
    assert found.sound
    table = {t.what: (t.tried, t.killed, found.cheapest(t)) for t in found.trials}
    assert table["halved"] == (everywhere, (small, large), small)
    assert table["many"] == (everywhere, (large,), large)
    assert table["zero"] == (everywhere, (origin,), origin)
    assert table["zeros of x"] == ((small, large), (small, large), small)
    assert table["ones of x"] == (everywhere, everywhere, origin)
    assert table["elsewhere of x"] == ((small, large), (small, large), small)
    assert table["missing of x"] == (everywhere, everywhere, origin)
    names = [t.what.removesuffix(" of x") for t in found.trials if t.kind == "impostor"]
    assert sorted(names) == sorted(set(ALL) - {"transposed", "swapped"})
    kinds = [t.kind for t in found.trials]
    assert [kind for kind in kinds if kind != "narrow"][-3:] == ["mutant"] * 3
    assert kinds == sorted(kinds, key=("impostor", "mutant", "narrow").index)


def test_narrow_mutants_are_tried_until_a_case_rejects_them_and_count_apart(three):
    found = scored(three)
    table = {t.what: t for t in found.of("narrow")}
    assert table["narrow-x-bfloat16 in float64"].tried == ("default/small",)
    assert table["narrow-x-bfloat16 in float64"].killed == ("default/small",)
    assert table["narrow-sums-float32 in float64"].proved_equivalent
    assert "narrow-x-float32 in float32" not in table
    assert len(table) == 7 * 5
    rejected = sum("default/small" in t.killed for t in found.trials if t.kind != "narrow")
    assert found.certificates["default/small"][0] == rejected


def test_parts_hold_every_narrow_mutant_once(three):
    parts = [{t.what for t in scored(three, [], Part(k, 3)).of("narrow")} for k in (1, 2, 3)]
    assert sum(map(len, parts)) == len(set.union(*parts)) == 7 * 5
    assert all(parts)


def test_an_operator_without_mutants_is_attacked_by_impostors(make):
    found = scored(make.op())
    assert found.sound
    assert {t.kind for t in found.trials} == {"impostor", "narrow"}
    assert all(t.killed for t in found.of("impostor"))
    assert of(found, "negated of x").says == "In place of dx: the other sign."


def test_a_mutant_that_nothing_kills_survives(make):
    found = scored(make.op(), [make.mutant(lambda xp, ct, x: ct * x + x * ct, name="right")])
    assert of(found, "right").survives
    assert not found.sound


def test_a_killer_that_does_not_kill_is_no_sound_score(make, three):
    found = scored(three, [make.mutant(wrong_for_many, name="many", killer="small")])
    many = of(found, "many")
    assert (many.survives, many.killed_as_said, found.sound) == (False, False, False)


def test_one_dtype_is_enough_to_kill(make):
    def overflows(xp, ct, x):
        return 2 * ct * x * 1e30 * 1e30 / 1e30 / 1e30

    mutant = make.mutant(overflows)
    assert scored(make.op(), [mutant]).sound
    assert scored(make.op(), [mutant], dtypes=["float32"]).sound
    assert of(scored(make.op(), [mutant], dtypes=["float64"]), "wrong").survives


def test_a_mutant_of_one_dtype_is_nobody_in_another(make):
    mutant = make.mutant(halves, dtype="float32")
    for dtypes, names in ((DTYPES, ["wrong"]), (["float32"], ["wrong"]), (["float64"], [])):
        found = scored(make.op(), [mutant], dtypes=dtypes)
        assert [t.what for t in found.of("mutant")] == names
        assert found.sound


def scaled(xp, x, *, by=1.0):
    return by * x


def scaled_vjp(xp, ct, x, *, by=1.0):
    return by * ct


def test_a_mutant_of_one_dialect_is_tried_in_that_alone(make):
    dialects = (Dialect(name="plain", says="1"), Dialect(name="twice", says="2", attrs={"by": 2.0}))
    spec = make.op("scale", scaled, scaled_vjp, options={"dialects": dialects})
    plain = partial(make.mutant, lambda xp, ct, x, *, by=1.0: ct, op="scale")
    found = scored(spec, [plain(name="a"), plain(name="b", dialects=("twice",))])
    assert of(found, "a").tried == ("plain/typical", "twice/typical")
    assert of(found, "b").tried == ("twice/typical",)
    assert of(found, "a").killed == of(found, "b").killed == ("twice/typical",)


def test_without_elements_only_forms_are_wrong(make):
    found = scored(make.op(typical=lambda _: (np.zeros((0, 3)),)), [make.mutant(halves)])
    assert {t.what.removesuffix(" of x") for t in found.of("impostor")} == {f.name for f in FORMS}
    assert of(found, "wrong").survives
    assert found.useless == ()


def indexed(xp, x, i):
    return x[i], xp.sum(x)


def indexed_vjp(xp, ct, x, i):
    g = xp.zeros_like(x) + ct[1]
    np.add.at(g, i, ct[0])
    return g, None


def test_an_index_is_no_gradient_to_attack(make):
    spec = make.op(
        "pick", indexed, indexed_vjp, "(n),(m)->(m),()",
        typical=lambda draw: (draw.signed(3), np.array([0, 2, 2])),
    )  # fmt: skip
    found = scored(spec)
    assert {t.what.partition(" of ")[2] for t in found.of("impostor")} == {"x"}
    assert not any(t.what.startswith("narrow-i-") for t in found.of("narrow"))
    assert found.sound


# ── faults ───────────────────────────────────────────────────────────────────────────────────


def test_a_right_vjp_that_does_not_pass_is_an_alarm_and_no_kill(make):
    wrong = make.op(vjp=lambda xp, ct, x: 3 * ct * x)
    found = scored(wrong, [make.mutant(halves)])
    assert found.alarms == ("square/default/typical/float64", "square/default/typical/float32")
    assert found.judged == 2
    assert not found.sound
    (mutant,) = found.trials
    assert (mutant.tried, mutant.killed, mutant.survives) == ((), (), True)
    assert found.useless == found.troubles == ()


def test_an_alarm_in_one_dtype_leaves_the_other_to_be_attacked(make):
    def vjp(xp, ct, x):
        return 2 * ct * x * 1e30 * 1e30 / 1e30 / 1e30

    found = scored(make.op(vjp=vjp), [make.mutant(halves)])
    assert found.alarms == ("square/default/typical/float32",)
    assert of(found, "wrong").killed == ("default/typical",)
    assert not found.sound


@pytest.mark.slow(keep=1)
@pytest.mark.parametrize(
    ("primals", "said"),
    [
        (lambda draw: 1 / 0, "square/default/bad: ZeroDivisionError: division by zero"),
        (lambda draw: (np.array([1e39]),), "float32 does not hold the values of 'x'"),
        (lambda draw: (), "the sample draws 0 primals"),
        (lambda draw: (np.array([np.nan]),), "forward gives NaN"),
    ],
)
def test_a_case_that_cannot_be_drawn_is_a_trouble_and_the_others_are_attacked(make, primals, said):
    spec = make.op(good=lambda draw: (draw.signed(3),), bad=primals)
    found = scored(spec, [make.mutant(halves, killer="good")])
    (trouble,) = found.troubles
    assert trouble.startswith("square/default/bad: ")
    assert said in trouble
    assert "\n" not in trouble
    assert of(found, "wrong").killed == ("default/good",)
    assert (found.judged, found.sound) == (2, False)


def leaves(xp, ct, x):
    raise SystemExit("good\nbye")


def breaks():
    raise KeyError("no\nmake")


@pytest.mark.slow(keep=1)
@pytest.mark.parametrize(
    ("parts", "said"),
    [
        ({"vjp": lambda xp, ct, x: ct.nothing}, "mutant square/broken raises AttributeError: "),
        ({"make": breaks}, "square/broken: KeyError: 'no\\nmake'"),
        ({"make": partial(leaves, 0, 0, 0)}, "square/broken: SystemExit: good bye"),
        ({"make": lambda: 3}, "square/broken raises TypeError: 'int' object is not callable"),
    ],
)
def test_a_mutant_that_breaks_down_is_one_trouble_and_the_others_are_tried(make, parts, said):
    first, last = make.mutant(halves, name="first"), make.mutant(halves, name="last")
    found = scored(make.op(), [first, make.mutant(name="broken", **parts), last])
    (trouble,) = found.troubles
    assert trouble.startswith("square/default/typical, square/broken: ")
    assert said in trouble
    assert [t.killed for t in (of(found, "first"), of(found, "last"))] == [("default/typical",)] * 2
    assert of(found, "broken").tried == ()
    assert not found.sound


def test_an_interruption_ends_the_scoring(make):
    def stops(xp, ct, x):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        scored(make.op(), [make.mutant(stops)])


# ── samples without power ────────────────────────────────────────────────────────────────────

NOTHING = {"slack": Slack(ulp=1e30, because="somebody wanted it green")}


def test_a_sample_that_rejects_no_wrong_number_is_useless_though_it_rejects_wrong_forms(make):
    found = scored(make.op(options=NOTHING), [make.mutant(halves)])
    assert of(found, "missing of x").killed == of(found, "nan of x").killed == ("default/typical",)
    assert of(found, "wrong").survives
    assert found.useless == ("square/default/typical",)
    assert not found.sound


def test_whether_a_sample_is_useless_does_not_depend_on_the_part(make, three):
    """One mutant alone, which most samples cannot see, says nothing about them."""
    mutants = [make.mutant(wrong_for_many, name="many", killer="large")]
    parts = [Part(k, 60) for k in (57, 1, 2, 3)]
    assert [p.holds("square", "many") for p in parts] == [True, False, False, False]
    good = [scored(three, mutants, part) for part in parts]
    assert [t.killed for t in good[0].of("mutant")] == [("default/large",)]
    assert {found.useless for found in good} == {()}
    bad = [scored(make.op(options=NOTHING), mutants, part) for part in parts]
    assert {found.useless for found in bad} == {("square/default/typical",)}


# ── equivalent mutants ───────────────────────────────────────────────────────────────────────


def anywhere(draw):
    return (draw.signed(int(draw.integers(1, 5))),), {}


def claim(make, vjp, **parts):
    return make.mutant(vjp, equivalent="Addition commutes.", inputs=anywhere, **parts)


def test_a_right_one_with_a_proof_is_equivalent_and_no_survivor(make, few):
    found = scored(make.op(), [claim(make, lambda xp, ct, x: ct * x + x * ct)])
    assert of(found, "wrong").proved_equivalent
    assert found.sound


def test_a_proof_of_what_a_sample_rejects_is_refuted(make, few):
    found = scored(make.op(), [claim(make, halves)])
    wrong = of(found, "wrong")
    assert (wrong.doubt, wrong.killed) == ("a sample rejects it", ("default/typical",))
    assert not wrong.proved_equivalent
    assert not found.sound


@pytest.mark.slow(keep=1)
@pytest.mark.parametrize(
    ("vjp", "doubt"),
    [
        (lambda xp, ct, x: 2 * ct * x * (1 + xp.const("1e-20")), "it differs from the right VJP"),
        (lambda xp, ct, x: 2 * ct * x if x.size == 3 else 1 / 0, "raises ZeroDivisionError"),
    ],
)
def test_a_proof_that_fifty_digits_contradict_leaves_a_survivor(make, few, vjp, doubt):
    found = scored(make.op(), [claim(make, vjp)])
    wrong = of(found, "wrong")
    assert (wrong.killed, wrong.survives, found.sound) == ((), True, False)
    assert doubt in wrong.doubt


def test_a_proof_needs_no_sample(make, few):
    """Its dialect has none: it is tried on its own inputs alone."""
    dialects = (Dialect(name="here", says="1"), Dialect(name="there", says="2"))
    sample = Sample(name="s", primals=lambda draw: (draw.signed(3),), hunts="2", dialects=("here",))
    spec = make.op(options={"dialects": dialects}, s=sample)
    commuted = claim(make, lambda xp, ct, x: x * ct * 2, dialects=("there",))
    found = scored(spec, [commuted])
    assert (of(found, "wrong").tried, of(found, "wrong").proved_equivalent) == ((), True)
    assert found.sound


# ── parts ────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.slow(keep=1)
@pytest.mark.parametrize("of", [1, 2, 3, 7, 40, 200])
def test_every_wrong_answer_belongs_to_exactly_one_part(of):
    names = [("op", f"wrong-{i}") for i in range(200)]
    counts = [sum(Part(k, of).holds(*name) for k in range(1, of + 1)) for name in names]
    assert counts == [1] * 200


def test_parts_are_about_equally_large():
    counts = [sum(Part(k, 5).holds("op", f"wrong-{i}") for i in range(1000)) for k in range(1, 6)]
    assert min(counts) > 150


def test_a_part_is_the_same_on_every_machine_for_ever():
    names = ["negated of x", "halved", "last-wins", "zeros of w", "a", "b"]
    found = [next(k for k in range(1, 41) if Part(k, 40).holds("relu", n)) for n in names]
    assert found == [4, 13, 10, 9, 19, 37]


@pytest.mark.slow
def test_the_parts_of_an_operator_are_the_whole(make, three):
    mutants = [make.mutant(halves, name=f"halved-{i}", killer="small") for i in range(9)]
    whole = scored(three, mutants)
    parts = [scored(three, mutants, Part(k, 4)) for k in range(1, 5)]
    joined = {t.what: t for found in parts for t in found.trials}
    assert sum(len(found.trials) for found in parts) == len(joined)
    assert joined == {t.what: t for t in whole.trials}
    assert all(0 < len(found.trials) < len(whole.trials) for found in parts)
    assert all(found.sound for found in parts)
