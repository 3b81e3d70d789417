import math

import pytest

from gradcheck.errors import UsageError
from gradcheck.results.baseline import change
from gradcheck.results.baseline.change import added, changed, fresh, removed
from gradcheck.results.baseline.entry import Baseline, Entry
from gradcheck.results.baseline.file import parsed
from gradcheck.results.baseline.match import Scope

NAME = "known.toml"
ALL = ("typical", "square", "tiny")
WHOLE = {"dtypes": ("float32",)}
TOP = 'dtypes = ["float32"]\n'


def failing(make, *samples, **changes):
    changes = {"label": "F", **changes}
    return make.run(*(make.result(s, "fail", **changes) for s in samples or ALL), **WHOLE)


def made(how, run, text, suite):
    baseline = parsed(text, NAME)
    return how(run, text, baseline, Scope.of(suite, baseline, run))


def update(make, run, text, suite=None):
    return made(change.updated, run, text, suite or make.suite())


def prune(make, run, text, suite=None):
    return made(change.pruned, run, text, suite or make.suite())


def write(make, run, suite=None):
    suite = suite or make.suite()
    return change.new(run, NAME, Scope.of(suite, parsed("", NAME), run))


def entries(found):
    return parsed(found.text, NAME).entries


def test_a_new_file_holds_what_fails_and_the_gate_opens(make):
    run = failing(make, error=0.0267)
    found = write(make, run)
    (entry,) = entries(found)
    assert (entry.output, entry.verdict, entry.label) == ("dx", "fail", "scale")
    assert (entry.max_error, entry.reason, entry.when) == (0.041, "dx is half of it", "")
    assert not run.passed
    assert make.held(run, found.text).passed


def test_one_pattern_stands_for_all_samples_only_if_all_were_run_and_fail_alike(make):
    full = Scope(make.suite(), {"float32"}, [f"rms_norm/weight/{s}/float32" for s in ALL])
    (entry,) = change.listed(failing(make), failing(make).results, full)
    assert entry.match == "rms_norm/weight/*/float32"
    names = [f"rms_norm/weight/{s}/float32" for s in ALL]
    part = failing(make, "typical", "square")
    narrow = Scope(make.suite(), {"float32"}, names[:2])
    assert [e.match for e in change.listed(part, part.results, narrow)] == names[:2]
    mixed = make.run(*(make.result(s, "fail", label="FFD"[i]) for i, s in enumerate(ALL)))
    assert [e.match for e in change.listed(mixed, mixed.results, full)] == names
    passing = make.run(*(make.result(s, "fail" if s != "tiny" else "pass") for s in ALL))
    found = change.listed(passing, passing.results[:2], full)
    assert [e.match for e in found] == names[:2]


def test_a_sample_without_elements_hinders_no_pattern_and_is_no_unexpected_pass(make):
    results = [make.result(s, "fail", label="F") for s in ALL[:2]]
    for output, count in (("x", 1), ("w", 2)):
        run = make.run(*results, make.result("tiny", compared=0, output=output), **WHOLE)
        scope = Scope(make.suite(), {"float32"}, [r.case.name for r in run.results])
        found = [*change.listed(run, results, scope)]
        assert len(found) == count
    run = make.run(*results, make.result("tiny", compared=0), **WHOLE)
    assert make.held(run, make.toml({}, top=TOP)).passed
    alone = make.toml({"match": "rms_norm/weight/tiny/float32"}, top=TOP)
    held = make.held(make.run(make.result("tiny", compared=0), **WHOLE), alone)
    assert [p.breach.value for p in held.gate.problems] == ["xpass"]


def test_a_name_with_a_globs_characters_is_matched_as_it_is(make):
    suite = make.suite(["rms_norm/weight/a[0]*", "rms_norm/weight/a0b"])
    run = make.run(make.result("a[0]*", "fail"), make.result("a0b"))
    found = write(make, run, suite)
    assert [e.match for e in entries(found)] == ["rms_norm/weight/a[[]0][*]/float32"]
    assert make.held(run, found.text, suite).passed


def test_several_implementations_are_told_apart(make):
    run = make.run(
        make.result(verdict="fail", implementation="it's"), make.result(implementation="b"),
        implementations=("it's", "b"),
    )  # fmt: skip
    found = write(make, run)
    (entry,) = entries(found)
    assert entry.when == 'implementation == "it\'s"'
    assert make.held(run, found.text).passed


def test_what_has_no_number_has_no_ratchet_and_what_is_nobodys_is_not_listed(make):
    run = make.run(
        make.result("typical", "fail", error=math.nan), make.result("square", "crash", "vjp"),
        make.result("tiny", "invalid", "vjp"),
    )  # fmt: skip
    found = write(make, run)
    assert [(e.verdict, e.max_error) for e in entries(found)] == [("fail", None), ("crash", None)]
    assert all(e.reason for e in entries(found))
    assert not make.held(run, found.text).passed


def test_a_hostile_reason_is_harmless_in_the_file(make):
    reason = '"""\n[[known]]\x1b[31m\ud800 \x7f' + "x" * 500
    run = make.run(make.result(verdict="error", reason=reason))
    found = write(make, run)
    (entry,) = entries(found)
    assert entry.reason.isprintable()
    assert len(entry.reason) <= change.LONGEST


def test_nothing_to_list_is_an_empty_file(make):
    found = write(make, make.run(make.result()))
    assert entries(found) == ()
    assert found.done == ()


@pytest.mark.parametrize(("old", "error"), [(0.04, 0.1), (0.4, 0.1), (None, 0.1)])
def test_update_sets_what_was_measured_with_room_and_says_so(make, old, error):
    text = make.toml({"max_error": old}, top=TOP) + "# a comment\n"
    found = update(make, failing(make, error=error), text)
    (entry,) = entries(found)
    assert entry.max_error == 0.15
    assert found.done == (f"{NAME}:3: max_error: {'none' if old is None else old} → 0.15",)
    assert found.text.endswith("# a comment\n")
    assert entry.match == "rms_norm/weight/*/float32"


def test_update_takes_the_largest_error_and_leaves_what_is_right(make):
    errors = (0.01, 0.1, 0.02)
    results = [make.result(s, "fail", error=e) for s, e in zip(ALL, errors, strict=True)]
    run = make.run(*results, **WHOLE)
    text = make.toml({"max_error": 0.15}, top=TOP)
    assert update(make, run, text) == change.Change(text=text)


def test_update_follows_class_and_verdict_where_all_agree(make):
    text = make.toml({"class": "term"}, top=TOP)
    found = update(make, failing(make, error=0.1), text)
    assert [(e.label, e.max_error) for e in entries(found)] == [("scale", 0.15)]
    crashed = make.run(*(make.result(s, "crash") for s in ALL), **WHOLE)
    (entry,) = entries(update(make, crashed, make.toml({}, top=TOP)))
    assert entry.verdict == "crash"
    mixed = make.run(*(make.result(s, v) for s, v in zip(ALL, ("crash", "error", "fail"),
                                                          strict=True)), **WHOLE)  # fmt: skip
    assert update(make, mixed, make.toml({}, top=TOP)).done == ()
    # An error that is allowed for is one of a failure: what crashes has none.
    limited = make.toml({"max_error": 0.15}, top=TOP)
    assert update(make, crashed, limited) == change.Change(text=limited)


def test_update_keeps_what_is_flaky_so(make):
    found = update(make, failing(make, error=0.1), make.toml({"verdict": "flaky"}, top=TOP))
    (entry,) = entries(found)
    assert (entry.verdict, entry.max_error) == ("flaky", 0.15)


def test_update_lists_what_is_new_behind_all_others(make):
    run = make.run(make.result("typical", "fail"), make.result("square", "fail", output="w"),
                   make.result("tiny"), **WHOLE)  # fmt: skip
    text = make.toml({"match": "rms_norm/weight/typical/float32", "max_error": 0.38}, top=TOP)
    found = update(make, run, text)
    assert found.text.startswith(text)
    assert [(e.match, e.output) for e in entries(found)][1:] == [
        ("rms_norm/weight/square/float32", "dw")
    ]
    assert found.done == ("+ rms_norm/weight/square/float32 · dw: fail, max_error 0.38",)
    assert make.held(run, found.text).passed


@pytest.mark.parametrize("how", [update, prune])
def test_what_was_not_run_stays_as_it_is(make, how):
    text = make.toml({"max_error": 0.9}, {"match": "rms_norm/weight/tiny/float32"},
                     {"match": "rms_norm/*/*/bfloat16"}, top=TOP)  # fmt: skip
    if how is update:
        run = failing(make, "typical", "square", error=0.1)
    else:
        run = make.run(make.result("typical"), make.result("square"), **WHOLE)
    found = how(make, run, text)
    assert found.text == text
    assert found.done == ()
    assert found.refused == (
        f"{NAME}:3: 1 case of it not run (as rms_norm/weight/tiny/float32): the entry stays as it "
        "is",
    )


def test_prune_goes_on_before_an_entry_that_has_to_stay(make):
    run = make.run(make.result("typical"), make.result("square"), **WHOLE)
    text = make.toml({"match": "gone/*/*/float32"}, {"max_error": 0.9},
                     {"match": "gone/*/b/float32"}, top=TOP)  # fmt: skip
    found = prune(make, run, text)
    assert len(found.refused) == 1
    assert [line.partition(" · ")[0] for line in found.done] == [
        f"- {NAME}:3: gone/*/*/float32", f"- {NAME}:16: gone/*/b/float32",
    ]  # fmt: skip


def test_update_refuses_a_part_of_the_usual_dtypes(make):
    text = make.toml({"match": "rms_norm/weight/*/*", "max_error": 0.9})
    found = update(make, failing(make, error=0.1), text)
    assert found.done == ()
    assert "3 cases of it not run (as rms_norm/weight/square/float64)" in found.refused[0]


def test_prune_removes_what_excuses_nothing_and_nothing_else(make):
    run = make.run(
        make.result("typical", "fail"), make.result("square"), make.result("tiny", "fail"),
        make.result("typical", output="w"), **WHOLE,
    )  # fmt: skip
    text = make.toml(
        {"match": "gone/*/*/float32"},
        {"match": "rms_norm/weight/t*/float32"},
        {"match": "rms_norm/weight/square/float32"},
        {"match": "rms_norm/weight/square/float32", "verdict": "flaky"},
        {"match": "rms_norm/weight/typical/float32", "output": "dw", "when": "dtype == 'float16'"},
        {"match": "rms_norm/weight/typical/float32", "output": "dz"},
        top=TOP,
    )
    found = prune(make, run, text)
    assert found.done == (
        f"- {NAME}:3: gone/*/*/float32 · dx: no case matches gone/*/*/float32",
        f"- {NAME}:15: rms_norm/weight/square/float32 · dx: passes now (1 result)",
        f"- {NAME}:34: rms_norm/weight/typical/float32 · dz: rms_norm/weight/typical/float32 has "
        "no dz (it has dx, dw)",
    )
    left = [(e.match, e.verdict, e.output) for e in entries(found)]
    assert left == [
        ("rms_norm/weight/t*/float32", "fail", "dx"),
        ("rms_norm/weight/square/float32", "flaky", "dx"),
        ("rms_norm/weight/typical/float32", "fail", "dw"),
    ]
    assert make.held(run, found.text).passed


def test_prune_keeps_an_entry_of_which_a_part_still_fails(make):
    run = make.run(make.result("typical", "fail"), make.result("square"), make.result("tiny"),
                   **WHOLE)  # fmt: skip
    text = make.toml({}, top=TOP)
    assert prune(make, run, text) == change.Change(text=text)


def test_prune_removes_an_entry_about_a_call_that_works_now(make):
    run = make.run(*map(make.result, ALL), **WHOLE)
    found = prune(make, run, make.toml({"output": "vjp", "verdict": "crash"}, top=TOP))
    assert entries(found) == ()


def test_what_would_be_no_baseline_is_never_written(make):
    text = make.toml({"max_error": 0.1}, top=TOP)
    baseline = parsed(text, NAME)
    run = failing(make, error=0.2)
    with pytest.raises(UsageError):  # the file was changed by another between reading and now
        change.updated(run, text + "x = 1\n", baseline, Scope.of(make.suite(), baseline, run))


FILE = """\
# The head of the file.
suite = "2026.11"   # a version

# About the first,
# in two lines.
[[known]]  # one
  match = "a/*/*/float32"
output   = 'dx'
verdict = "fail"
class = 'scale' # of the mean
"max_error" = 4e-2# measured
reason = '''
[[known]]
max_error = 7
'''

# A part of the file.

# About the second.
[[known]]
match = "b/*/*/float32"
output = "dw"
verdict = "crash"
reason = "it # crashes" # really

[[known]]
match = "c/*/*/float32"
output = "dw"
verdict = "fail"
reason = "last"
# behind the last
"""


def test_a_value_is_changed_and_nothing_else():
    text = changed(FILE, NAME, 0, "max_error", 0.06)
    assert text == FILE.replace("4e-2#", "0.06#")
    assert changed(FILE, NAME, 0, "class", "term") == FILE.replace("'scale' #", '"term" #')
    assert changed(FILE, NAME, 1, "verdict", "fail") == FILE.replace('"crash"', '"fail"')


def test_a_value_that_was_not_there_stands_behind_the_verdict():
    text = changed(FILE, NAME, 2, "max_error", 1e-05)
    assert text == FILE.replace(
        'verdict = "fail"\nreason = "last"', 'verdict = "fail"\nmax_error = 1e-05\nreason = "last"'
    )
    assert parsed(text, NAME).entries[2].max_error == 1e-05


def test_an_entry_goes_with_the_comment_right_above_it_alone():
    first = removed(FILE, NAME, 0)
    assert first.startswith('# The head of the file.\nsuite = "2026.11"   # a version\n\n# A part')
    assert removed(FILE, NAME, 1) == FILE[: FILE.index("# About the second")] + FILE[
        FILE.index('[[known]]\nmatch = "c/') :
    ]  # fmt: skip
    last = removed(FILE, NAME, 2)
    assert last.endswith("# really\n\n# behind the last\n")
    assert [e.match[0] for e in parsed(last, NAME).entries] == ["a", "b"]


def test_all_entries_can_go():
    text = FILE
    for number in (2, 1, 0):
        text = removed(text, NAME, number)
    assert parsed(text, NAME).entries == ()
    assert text.startswith("# The head of the file.")
    assert "# A part of the file." in text


def test_windows_lines_stay_what_they_are():
    text = FILE.replace("\n", "\r\n")
    assert changed(text, NAME, 0, "max_error", 0.06) == text.replace("4e-2#", "0.06#")
    assert changed(text, NAME, 2, "max_error", 0.5).count("\r\n") == text.count("\r\n") + 1
    entry = Entry(line=0, match="a/b/c/float32", output="dx", verdict="fail", reason="r")
    for after in (removed(text, NAME, 1), changed(text, NAME, 2, "max_error", 0.5),
                  added(text, (entry,))):  # fmt: skip
        assert after.count("\n") == after.count("\r\n")
        assert parsed(after, NAME)


def test_what_cannot_be_done_is_said_and_not_done():
    # What looks like a comment above an entry is the end of a text.
    odd = FILE.replace('reason = "it # crashes" # really\n\n', "reason = '''\n# no comment'''\n")
    with pytest.raises(UsageError, match=r"known.toml:26: remove the entry yourself"):
        removed(odd, NAME, 2)
    wrapped = FILE.replace("class = 'scale' #", 'class = """\nscale""" #')
    with pytest.raises(UsageError, match=r'known.toml:6: write `class = "term"` there yourself'):
        changed(wrapped, NAME, 0, "class", "term")


def test_a_new_file_says_what_is_asked_of_it():
    told = 'quotes " and \\ and \t, ünï'
    entry = Entry(
        line=0, match="a/b/c/float32", output="dx", verdict="fail", reason=told, label="scale",
        max_error=3.4e-05, when="implementation == 'x'", link="http://x",
    )  # fmt: skip
    bare = Entry(line=0, match="a/b/d/float32", output="dx", verdict="crash", reason="r")
    text = fresh(Baseline(name="k\n[[known]]", entries=(entry, bare), suite="2026.11",
                          dtypes=("float64",)))  # fmt: skip
    found = parsed(text, NAME)
    assert (found.suite, found.dtypes) == ("2026.11", ("float64",))
    for ours, theirs in zip((entry, bare), found.entries, strict=True):
        for key in ("match", "output", "verdict", "reason", "label", "max_error", "when", "link"):
            assert getattr(theirs, key) == getattr(ours, key)
    assert text.startswith("# Failures that are known")
    more = added(text, (bare,))
    assert more.startswith(text)
    assert len(parsed(more.replace("a/b/d", "a/b/e", 1), NAME).entries) == 3
