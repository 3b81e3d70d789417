import pytest

from gradcheck.errors import UsageError
from gradcheck.results.baseline.change import added, changed, fresh, removed
from gradcheck.results.baseline.entry import Baseline, Entry
from gradcheck.results.baseline.file import parsed

NAME = "known.toml"
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
