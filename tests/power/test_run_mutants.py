"""All operators attacked, one after another: what is kept when something ends the run."""

import numpy as np
import pytest

import gradcheck
from gradcheck.errors import LoadError, SpecError, UsageError
from gradcheck.power.operators import Power, Score, Trial
from gradcheck.power.run_mutants import WHOLE, MutationPlan, Part, run

DTYPES = ("float64", "float32")


def plan(*ops, **changes):
    usual = {"kind": "operators", "suites": ("user:SUITE",), "dtypes": ("float64",)}
    return MutationPlan(**{**usual, "names": ops, **changes})


def halves(xp, ct, x):
    return ct * x


def right(xp, ct, x):
    return ct * x + x * ct


def stops(xp, ct, x):
    raise KeyboardInterrupt


@pytest.fixture
def several(make, suite_of):
    """Three operators; `b` has a mutant that survives, `c` none."""
    return suite_of(
        [make.op(name) for name in "abc"],
        [make.mutant(halves, op="a"), make.mutant(right, op="b")],
    )


# ── what it holds ────────────────────────────────────────────────────────────────────────────


def test_operators_are_attacked_in_the_order_given_and_the_plan_is_noted(several):
    power = run(plan("c", "b", "a", dtypes=DTYPES, seed=3))
    assert [found.op for found in power.scores] == ["c", "b", "a"]
    assert (power.version, power.suite, power.suite_version) == (gradcheck.__version__, "mine", "1")
    assert (power.dtypes, power.seed, power.part) == (DTYPES, 3, WHOLE)
    assert (power.complete, power.troubles) == (True, ())
    assert [(found.op, trial.what) for found, trial in power.survivors] == [("b", "wrong")]
    assert [t.what for t in power.trials("mutant")] == ["wrong", "wrong"]
    assert not power.sound
    assert run(plan("c", "a")).sound


def test_a_seed_moves_the_inputs(make, suite_of):
    seen = []

    def noted(draw):
        seen.append(draw.signed(3).tolist())
        return (np.array(seen[-1]),)

    suite_of([make.op(typical=noted)])
    for seed in (0, 0, 1):
        run(plan("square", seed=seed, part=Part(1, 10**9)))
    # Of two seeds in a run the second is for what an impostor computes elsewhere.
    drawn = [tuple(values) for values in seen]
    assert len(set(drawn)) == 2
    assert drawn[0] == drawn[1] != drawn[-1]


def test_progress_names_each_operator_before_it_is_attacked(several):
    seen = []
    run(plan("c", "a"), lambda *state: seen.append(state))
    assert seen == [(0, 2, "c"), (1, 2, "a")]


@pytest.mark.slow
def test_the_same_plan_gives_the_same_power(several):
    assert run(plan(*"abc")) == run(plan(*"abc"))


def trial(**parts):
    usual = {"kind": "mutant", "what": "wrong", "says": "It is.", "label": "F", "tried": ("a/b",)}
    return Trial(**{**usual, "killed": ("a/b",), **parts})


def power_of(*trials, **parts):
    score = Score(op="f", family="g", sizes={"a/b": 1}, trials=trials, judged=1)
    return Power(version="1", suite="s", suite_version="1", dtypes=DTYPES, seed=0, part=WHOLE,
                 scores=(score,), **parts)  # fmt: skip


SURVIVOR, MISNAMED = trial(killed=()), trial(killer="c", tried=("a/b", "a/c"))
PROVED = {"equivalent": "1 = 1."}
REFUTED = trial(**PROVED, doubt="a sample rejects it")


@pytest.mark.parametrize(
    ("trials", "listed"),
    [
        ([trial()], ([], [], [])),
        ([SURVIVOR, trial()], ([SURVIVOR], [], [])),
        ([MISNAMED, trial()], ([], [MISNAMED], [])),
        ([REFUTED, trial()], ([], [], [REFUTED])),
        ([trial(**PROVED, killed=())], ([], [], [])),
        ([trial(kind="impostor", killed=())], ([trial(kind="impostor", killed=())], [], [])),
    ],
)
def test_what_is_amiss_is_listed_and_nothing_else(trials, listed):
    power = power_of(*trials)
    found = (power.survivors, power.misnamed, power.refuted)
    assert tuple([t for _, t in pairs] for pairs in found) == listed
    assert power.sound is not any(listed)


@pytest.mark.parametrize(
    ("power", "sound"),
    [
        (power_of(trial()), True),
        (power_of(trial(), complete=False), False),
        (power_of(), False),  # nothing was attacked
        (power_of(SURVIVOR), False),
    ],
)
def test_power_is_sound_only_if_something_was_attacked_to_the_end(power, sound):
    assert power.sound is sound


# ── what ends it ─────────────────────────────────────────────────────────────────────────────


def test_an_interruption_keeps_the_operators_that_are_done(make, suite_of):
    suite_of([make.op(n) for n in "abc"], [make.mutant(halves, op="a"), make.mutant(stops, op="b")])
    power = run(plan("a", "b", "c"))
    assert [found.op for found in power.scores] == ["a"]
    assert power.scores[0].sound
    assert (power.complete, power.sound, power.troubles) == (False, False, ())


def test_an_interruption_before_the_first_operator_leaves_nothing(several):
    def stop(*_):
        raise KeyboardInterrupt

    power = run(plan("a"), stop)
    assert (power.scores, power.complete, power.sound) == ((), False, False)


@pytest.mark.parametrize(
    ("mutants", "error", "said"),
    [
        ([("a", "typcial")], SpecError, "its killer 'typcial' is no sample of a"),
        ([("d", "typical")], SpecError, "the suite has no operator 'd'"),
        (3, LoadError, "make it a tuple of gradcheck.Mutant"),
    ],
)
def test_a_mistake_in_a_table_ends_it_before_anything_is_attacked(
    make, suite_of, monkeypatch, mutants, error, said
):
    monkeypatch.setattr("gradcheck.power.operators.CaseTruth", lambda *_: pytest.fail("it began"))
    if isinstance(mutants, list):
        mutants = [make.mutant(halves, op=op, killer=killer) for op, killer in mutants]
    suite_of([make.op("a"), make.op("b")], mutants)
    for jobs in (1, 2):  # the mutant of an operator that is not asked for, too
        with pytest.raises(error, match=said):
            run(plan("b", jobs=jobs))


def test_without_a_suite_it_says_how_to_get_one(monkeypatch):
    monkeypatch.setattr("gradcheck.system.entry_points.entry_points", lambda group: {})
    with pytest.raises(UsageError, match="no suite installed"):
        run(plan("a", suites=()))


# ── several processes ────────────────────────────────────────────────────────────────────────

NINE = [f"op-{i}" for i in range(9)]  # more than two processes get at a time
FILE = """
import os
from gradcheck import Mutant, OpSpec, Sample, Suite

def op(name):
    return OpSpec(
        name=name, signature="()->()", forward=lambda xp, x: x * x,
        vjp=lambda xp, ct, x: 2 * ct * x, formula="x^2", source="none",
        samples=(Sample(name="only", primals=lambda draw: (draw.signed(3),), hunts="2"),),
    )

def mutants(vjp):
    return [Mutant(op="op-8", name="m", says="It is wrong.", label="C", killer="only", vjp=vjp)]

OPS = [op(f"op-{i}") for i in range(9)]
HALVES, DIES = mutants(lambda xp, ct, x: ct * x), mutants(lambda xp, ct, x: os._exit(3))
SUITE = Suite("nine", "1", OPS, mutants="nine:HALVES")
DEADLY = Suite("nine", "1", OPS, mutants="nine:DIES")
"""


@pytest.fixture
def nine(tmp_path, monkeypatch):
    """A module that other processes find too."""
    (tmp_path / "nine.py").write_text(FILE)
    monkeypatch.syspath_prepend(str(tmp_path))


def test_a_power_does_not_depend_on_the_number_of_processes(nine):
    here, there = (
        run(plan(*NINE, suites=("nine:SUITE",), part=Part(1, 3), jobs=jobs)) for jobs in (1, 2)
    )
    assert here == there
    assert here.complete
    assert len(here.scores) == len(NINE)


@pytest.mark.slow
def test_a_mutant_that_kills_its_process_leaves_a_partial_power(nine):
    power = run(plan(*NINE, suites=("nine:DEADLY",), jobs=2))
    assert (power.complete, power.sound) == (False, False)
    assert power.troubles == (
        "op-8: a worker process died of it, twice (exit status 3); run again with -j 1 to see "
        "where",
    )
    assert [found.op for found in power.scores] == NINE[:-1]
    assert all(found.sound for found in power.scores)
