"""A program that speaks well passes every check; one that does not is told where."""

import pytest
from gradcheck_cases import SUITE

from gradcheck.cli.conformance import probe, probe_oneshot
from gradcheck.errors import LoadError, UnknownNameError


@pytest.fixture
def probed(program):
    """The checks of a liar, by name; only one operator is asked for, which is enough."""

    def call(level="frames", lie="", ops=("tanh",), timeout=60.0):
        module = probe_oneshot if level == "oneshot" else probe
        checks = list(module.probe(program(level, lie, timeout=timeout), SUITE, ops))
        found = {check.name: check for check in checks}
        assert len(found) == len(checks)
        return found

    return call


def failing(found):
    return {name for name, check in found.items() if check.outcome == "FAIL"}


@pytest.mark.slow(keep=1)
def test_a_program_that_speaks_well_passes(probed, level):
    found = probed(level, ops=["tanh", "leaky_relu", "rms_norm"])
    assert {check.outcome.value for check in found.values()} == {"ok"}
    assert {"tanh in float64", "rms_norm in float32", "two requests at once"} <= set(found)
    assert len(found) >= 30


@pytest.mark.slow
def test_a_oneshot_program_that_answers_well_passes(probed):
    found = probed("oneshot", ops=["tanh", "silu"])
    assert {check.outcome.value for check in found.values()} == {"ok"}
    assert found["operators that it lacks"].says == "exit status 3 for 2 of 4"
    assert {"tanh in float32", "an input that was cut short"} <= set(found)


@pytest.mark.slow
def test_what_it_lacks_is_no_fault(probed):
    found = probed(ops=["clamp"])
    assert failing(found) == set()
    assert found["clamp in float64"].outcome == "note"
    assert "it lacks this: clamps nothing" in found["clamp in float64"].says


@pytest.mark.slow
def test_wrong_numbers_are_noted_and_no_fault(probed):
    found = probed(lie="negated")
    assert failing(found) == set()
    assert found["tanh in float64"].says == "its form is right, its numbers are not: forward, x"


RUNS = {"tanh in float64", "tanh in float32", "empty arrays", "arrays of no dimension"}


@pytest.mark.slow(keep=3)
@pytest.mark.parametrize(
    ("lie", "names"),
    [
        ("other_seq", RUNS),
        ("other_shape", RUNS),
        ("twice", RUNS),
        ("killed", RUNS),
        ("one_more", RUNS),
        ("prints", {"nothing on standard output but answers"}),
        ("seq_as_text", RUNS),
        ("rounds_seq", {"`ping`, with any `seq`"}),
        ("leaves_with_1", {"`bye`"}),
        ("dies_of_attributes", {"an attribute that it does not know"}),
        ("misspelt", {"operators, dtypes and attributes are the suite's"}),
        (
            "never_lacks",
            {"an operator that it does not know", "a block of 16 MB"},
        ),
    ],
)
def test_a_lie_is_told_where_it_is(probed, level, lie, names):
    found = failing(probed(level, lie))
    assert names <= found
    assert len(found) <= len(names) + 4


def test_a_misspelt_operator_is_told_with_the_nearest(probed):
    found = probed(lie="misspelt")
    says = found["operators, dtypes and attributes are the suite's"].says
    assert says == "the suite has no operator \"tahn\"; did you mean 'tanh'?"


@pytest.mark.slow
def test_dying_of_what_it_does_not_know_is_told(probed, level):
    found = probed(level, "dies_of_what_it_does_not_know")
    assert "a kind that it does not know" in failing(found)
    assert "SIGABRT" in found["a kind that it does not know"].says


@pytest.mark.slow
def test_forgiving_broken_frames_is_told(probed):
    found = failing(probed(lie="forgives"))
    assert {"a header that is no JSON", "the end of the input within a payload"} <= found


@pytest.mark.slow
def test_dying_of_broken_frames_is_told(probed):
    found = probed(lie="aborts_on_garbage")
    assert "a frame with another beginning" in failing(found)
    assert "SIGABRT" in found["a frame with another beginning"].says


@pytest.mark.slow
def test_hanging_is_told(program):
    """The deadline is short, and meant to pass; so whether others pass with it is not asked."""
    liar = program("frames", "ignores_bye", timeout=1.0)
    found = {check.name: check for check in probe.probe(liar, SUITE, ["tanh"])}
    assert "did not end within 1 s" in found["`bye`"].says


@pytest.mark.slow
def test_of_many_misspelt_operators_a_few_are_looked_at(probed, monkeypatch):
    looked = []
    monkeypatch.setattr(probe, "_nearest", lambda name, known: looked.append(name) or "")
    found = probed("jsonl", "offers_much")
    assert found["operators, dtypes and attributes are the suite's"].outcome == "FAIL"
    assert len(looked) == 8
    assert found["`hello`"].says.endswith(", tahn_999, and 3000 more")


def test_a_hello_of_another_form_is_the_only_thing_told(probed):
    found = probed(lie="hello_without_ops")
    assert [*found] == ["`hello`"]
    assert "field `ops`" in found["`hello`"].says
    assert failing(found) == {"`hello`"}


@pytest.mark.slow
def test_a_program_that_offers_nothing_is_noted(probed):
    found = probed(lie="offers_nothing")
    assert failing(found) == set()
    assert found["empty arrays"].says == "none of its operators takes them"


def test_a_program_that_does_not_start_cannot_be_probed(program, probed):
    for lie in ("exits_at_once", "version_2"):
        with pytest.raises(LoadError):
            probed(lie=lie)
    with pytest.raises(UnknownNameError):
        probed(ops=["no_such_operator"])
    lost = program("oneshot")
    object.__setattr__(lost, "command", ("./nothing-here",))
    with pytest.raises(LoadError):
        list(probe_oneshot.probe(lost, SUITE, ["tanh"]))


@pytest.mark.slow(keep=1)
@pytest.mark.parametrize(
    ("lie", "name"),
    [("short", "tanh in float64"), ("exits_4", "tanh in float64"), ("aborts", "tanh in float64")],
)
def test_a_oneshot_lie_is_told_where_it_is(probed, lie, name):
    assert name in failing(probed("oneshot", lie))


@pytest.mark.slow
def test_folders_that_are_none_must_be_refused(probed):
    broken = {"a folder without `meta.txt`", "an input that was cut short", "no folder at all"}
    for lie, said in {"forgives": "status 0", "aborts_on_garbage": "SIGABRT"}.items():
        found = probed("oneshot", lie)
        assert broken <= failing(found)
        assert all(said in found[name].says for name in broken)
        assert "tanh in float64" not in failing(found)
