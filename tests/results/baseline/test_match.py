import pytest

from gradcheck.results.baseline.file import parsed
from gradcheck.results.baseline.match import is_empty, matched, meant, part_of
from gradcheck.results.finding import Part

CONTRACT = {"part": Part.CONTRACT}
STAGE = {"part": Part.STAGE}


def entry(make, **changes):
    (one,) = parsed(make.toml(changes), "known.toml").entries
    return one


@pytest.mark.parametrize(
    ("output", "names"),
    [
        ("dx", ["x"]), ("x", ["x"]), ("d*", ["x", "w"]), ("forward", ["forward"]),
        ("contract: linear", ["linear"]), ("contract: *", ["linear", "zero"]), ("linear", []),
        ("side condition linear", ["linear"]), ("side condition *", ["linear", "zero"]),
        ("stage x", ["x of a stage"]), ("dy", []), ("d", []),
    ],
)  # fmt: skip
def test_an_output_by_the_name_that_reports_show_or_by_its_own(make, output, names):
    results = [
        make.result(output="x"), make.result(output="w"), make.result(output="forward"),
        make.result(output="linear", **CONTRACT), make.result(output="zero", **CONTRACT),
        make.result(output="x", **STAGE),
    ]  # fmt: skip
    found = meant(entry(make, output=output), results)
    own = {id(results[5]): "x of a stage"}
    assert [own.get(id(r), r.finding.name) for r in found] == names


def test_a_call_that_failed_as_a_whole_is_about_each_gradient(make):
    call = make.result(output="vjp", verdict="crash")
    assert meant(entry(make, output="dx"), [call]) == [call]
    for name in ("contract: linear", "side condition linear"):
        assert meant(entry(make, output=name), [call]) == []
    beside = make.result(output="x")
    assert meant(entry(make, output="dx"), [call, beside]) == [beside]


def test_an_entry_about_the_call_is_about_the_gradients_that_it_gives_now(make):
    found = [make.result(output="x"), make.result(output="w")]
    owed = make.result(output="linear", **CONTRACT)
    assert meant(entry(make, output="vjp", verdict="crash"), [*found, owed]) == found
    call = make.result(output="vjp", verdict="error")
    assert meant(entry(make, output="vjp", verdict="crash"), [*found, call]) == [call]


@pytest.mark.parametrize(
    ("glob", "samples"),
    [
        ("rms_norm/weight/*/float32", ["typical", "square"]),
        ("rms_norm/*/t*/float32", ["typical"]),
        ("*/*/*/*", ["typical", "square"]),
        ("rms_norm/weight/[ts]*/float32", ["typical", "square"]),
        ("*/weight/typical/float64", []),
        ("RMS_NORM/weight/*/float32", []),
        ("norm/weight/typical/float32", []),
    ],
)
def test_globs_match_whole_names(make, glob, samples):
    run = make.run(make.result("typical"), make.result("square"))
    (found,) = matched(run, parsed(make.toml({"match": glob}), "known.toml"))
    assert [r.case.sample for r in found.results] == samples


def test_a_condition_puts_results_to_sleep_and_what_was_left_out_is_counted(make):
    run = make.run(
        make.result(implementation="a"), make.result(implementation="b"),
        make.result("square", verdict="skip", output="vjp", implementation="a"),
        versions={"a": "a 1.2", "b": "b 2.0"},
    )  # fmt: skip
    for when, sleeping in (("implementation == 'b'", 1), ("version < '1.1'", 2), ("", 0)):
        changes = {"when": when} if when else {}
        (found,) = matched(run, parsed(make.toml(changes), "known.toml"))
        assert (len(found.results), found.asleep, found.unasked) == (2 - sleeping, sleeping, 1)


def test_a_pass_of_nothing_is_left_out_beside_others_alone(make):
    nothing = make.result("empty", compared=0)
    for others, left in (((), ["empty"]), ((make.result("typical"),), ["typical"])):
        (found,) = matched(make.run(nothing, *others), parsed(make.toml({}), "known.toml"))
        assert [r.case.sample for r in found.results] == left
    kept = make.result("typical", output="linear", compared=0, part=Part.CONTRACT)
    assert not is_empty(kept)
    assert not is_empty(make.result(verdict="crash", compared=0))


def test_what_an_output_is_about(make):
    for output, part in (("contract: linear", Part.CONTRACT), ("stage ln", Part.STAGE),
                         ("side condition linear", Part.CONTRACT),
                         ("training by sgd", Part.TRAINING), ("dx", Part.GRADIENT)):  # fmt: skip
        assert part_of(entry(make, output=output)) is part


def test_an_output_with_the_characters_of_a_glob_means_itself(make):
    results = [make.result(output=name, **STAGE) for name in ("a[0]", "a0")]
    assert meant(entry(make, output="stage a[0]"), results[:1]) == results[:1]
    assert results[0] in meant(entry(make, output="stage a[0]"), results)
    assert meant(entry(make, output="stage a0"), results) == results[1:]
