import os
from datetime import date
from pathlib import Path

import pytest

from gradcheck.errors import UsageError
from gradcheck.results.baseline.file import lines_of, parsed, read

NAME = "known.toml"


def refused(text, name=NAME):
    with pytest.raises(UsageError) as error:
        parsed(text, name)
    assert error.value.exit_code == 2
    said = str(error.value)
    assert "\n" not in said
    return said


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"mach": "a"}, "unknown key 'mach': did you mean 'match'?"),
        ({r'"\u001b[31m"': "a"}, r"unknown key '\x1b[31m'"),
        ({"match": None}, "the entry has no `match`; it needs match, output, verdict, reason"),
        ({"output": None}, "the entry has no `output`"),
        ({"verdict": None}, "the entry has no `verdict`"),
        ({"reason": None}, "the entry has no `reason`"),
        ({"reason": "  "}, "reason = ' ': write a text"),
        ({"match": 3}, "match = 3: write a text"),
        ({"match": "rms_norm"}, "write operator/dialect/sample/dtype"),
        ({"match": "a/b/c/d/e"}, "write operator/dialect/sample/dtype"),
        ({"match": "a//c/d"}, "write operator/dialect/sample/dtype"),
        ({"match": "a/b/c/float[36"}, "a [ has no ] behind it"),
        ({"match": "a/b[/c]/d/float32"}, "write operator/dialect/sample/dtype"),
        ({"match": "a/[b/c]/float32"}, "a [ has no ] behind it"),
        ({"output": True}, "output = True: write a text"),
        ({"verdict": "fial"}, "verdict: unknown verdict 'fial': did you mean 'fail'?"),
        ({"verdict": "pass"}, "verdict: unknown verdict 'pass'"),
        ({"verdict": "invalid"}, "verdict: unknown verdict 'invalid'"),
        ({"verdict": "notrun"}, "verdict: unknown verdict 'notrun'"),
        ({"verdict": "XFAIL"}, "verdict: unknown verdict 'XFAIL'"),
        ({"class": "scales"}, "class: unknown class of defects 'scales': did you mean 'scale'?"),
        ({"class": "F"}, "class: unknown class of defects 'F'"),
        ({"max_error": 0}, "max_error = 0: write a positive number"),
        ({"max_error": -0.1}, "max_error = -0.1"),
        ({"max_error": True}, "max_error = True"),
        ({"max_error": "0.1"}, "max_error = '0.1'"),
        ({"max_error": float("nan")}, "max_error = nan"),
        ({"max_error": float("inf")}, "max_error = inf"),
        ({"max_error": 10**400}, "max_error = 1000"),
        ({"verdict": "crash", "max_error": 0.1}, "max_error: there is no error where the verdict"),
        ({"when": "os.system('x')"}, "is not allowed"),
        ({"when": "dtype == "}, "when = 'dtype == ': it cannot be read"),
        ({"expires": "2027-03-01"}, "expires = '2027-03-01': write a date, without quotes"),
        ({"expires": 20270301}, "write a date, without quotes"),
        ({"link": 7}, "link = 7: write a text"),
    ],
)
def test_a_bad_entry_is_refused_in_one_line_with_its_place(make, changes, says):
    text = make.toml(changes)
    for before, line in (("", 1), ("\n# nothing\n\n", 4)):
        said = refused(before + text)
        assert said.startswith(f"{NAME}:{line}: ")
        assert says in said
        assert said.isprintable()


def test_a_time_is_no_date(make):
    said = refused(make.toml({}) + "expires = 2027-03-01T00:00:00Z\n")
    assert "write a date" in said


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("[[known]\n", "known.toml: it is no TOML: "),
        ("x = 1\n", "unknown key 'x'"),
        ("suite = 3\n", "suite = 3: write the version as a text"),
        ('dtypes = "float64"\n', "dtypes = 'float64': write a list"),
        ("dtypes = [3]\n", "dtypes = [3]: write a list"),
        ('dtypes = ["float46"]\n', "unknown dtype 'float46': did you mean 'float64'?"),
        ("known = 3\n", "known = 3: write every entry under a line `[[known]]`"),
        ("known = [3]\n", "write every entry under a line `[[known]]`"),
        (
            'known = [3]\nsuite = """\n[[known]]\n"""\n',
            "write every entry under a line `[[known]]`",
        ),
        ("[known]\nmatch = 'a'\n", "write every entry under a line `[[known]]`"),
        ('known = [{match = "a/b/c/d"}]\n', "write every entry under a line `[[known]]`"),
        ("a = " + "[" * 20_000, "it is no TOML"),
    ],
)
def test_a_bad_file_is_refused(text, says):
    said = refused(text)
    assert said.startswith(f"{NAME}: ")
    assert says in said


def test_the_same_entry_twice_is_refused(make):
    said = refused(make.toml({}, {"class": "scale"}, {"reason": "another"}))
    assert said == f"{NAME}:14: the entry says what that of line 1 says; leave one out"


def test_a_file_that_cannot_be_read(tmp_path):
    absent, folder, binary = tmp_path / "absent.toml", tmp_path, tmp_path / "binary.toml"
    binary.write_bytes(b"reason = '\xff'")
    for path, says in (
        (absent, "there is no such file; `gradcheck baseline write"),
        (folder, "Is a directory"),
        (binary, "no text in UTF-8"),
        (Path("nul\0.toml"), "null"),
    ):
        with pytest.raises(UsageError, match=says):
            read(path)


def test_everything_that_an_entry_may_say(make, tmp_path):
    text = make.toml(
        {"class": "scale", "max_error": 0.04, "when": "dtype == 'float32'", "link": "http://x",
         "expires": date(2027, 3, 1)},
        {"verdict": "flaky", "max_error": 1, "output": "contract: linear"},
        top='suite = "2026.11"\ndtypes = ["float32", "bfloat16"]\n',
    )  # fmt: skip
    path = tmp_path / "k.toml"
    path.write_text(text)
    found = read(path)
    first, second = found.entries
    assert (found.name, found.suite, found.dtypes) == (
        str(path), "2026.11", ("float32", "bfloat16")
    )  # fmt: skip
    assert (first.label, first.max_error, first.link) == ("scale", 0.04, "http://x")
    assert (first.when, first.expires) == ("dtype == 'float32'", date(2027, 3, 1))
    assert (first.flaky, second.flaky, second.max_error) == (False, True, 1.0)
    assert found.where(second) == f"{path}:15"
    assert parsed("", NAME).entries == ()


def test_lines_are_those_of_the_headers_whatever_stands_in_texts():
    text = "\n".join([
        '  [[ known ]]  # one', "reason = '''", "[[known]]", "'''", "", "# [[known]]",
        '[["known"]]', "[[known]]\u2028",
    ])  # fmt: skip
    plain = text.removesuffix("[[known]]\u2028")
    assert lines_of(plain, 2, NAME) == [1, 7]
    with pytest.raises(UsageError, match="a line `"):
        lines_of(plain, 4, NAME)


def test_lines_end_where_toml_ends_them(make):
    text = make.toml({"reason": "a\u2028b\u0085c\u000cd".replace("\u000c", "")}, {"output": "dw"})
    assert [entry.line for entry in parsed(text.replace("\n", "\r\n"), NAME).entries] == [1, 7]


def test_a_file_larger_than_any_baseline_is_not_read(tmp_path):
    path = tmp_path / "vast.toml"
    path.touch()
    os.truncate(path, (1 << 26) + 1)  # a hole: it takes no room
    with pytest.raises(UsageError, match="too large: at most 64 MiB"):
        read(path)
