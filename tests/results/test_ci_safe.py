"""What foreign code prints is no command to a CI system, however it is cut into pieces."""

import io
import re
import sys

import pytest

from gradcheck.results.ci_safe import Inert, heard, inert

COMMANDS = [
    "::error::no",
    "::stop-commands::token",
    "  \t::add-mask::a",
    "fine\n::error file=a.py,line=1::no\n",
    "fine\r::error::no",
    "fine\r\n\u2003::error::no",
    "##[error]no",
    "so ##[group]no",
    "##vso[task.complete result=Failed;]no",
    "##teamcity[testFailed]",
]


def is_command(text):
    """Whether a line would be taken for one: GitHub trims, and finds `##[` anywhere."""
    lines = re.split(r"[\r\n]", text)
    return any(line.strip().startswith("::") or re.search(r"##\w*\[", line) for line in lines)


@pytest.mark.parametrize("text", COMMANDS)
def test_what_would_be_a_command_is_none_and_can_still_be_read(text):
    assert is_command(text)
    assert not is_command(inert(text))
    assert inert(text).replace("| ", "").replace("## ", "##") == text


@pytest.mark.parametrize("text", COMMANDS)
def test_pieces_do_not_come_together_as_a_command(text):
    for cut in range(len(text) + 1):
        for again in range(cut, len(text) + 1):
            stream = io.StringIO()
            seen = Inert(stream)
            for piece in (text[:cut], text[cut:again], text[again:]):
                assert seen.write(piece) == len(piece)
            assert not is_command(stream.getvalue())


@pytest.mark.parametrize(
    "text", ["", "\n", "a::b\n", "loss: 3 :: 4\n", "# a\n## b\n", "#hash [1]", "x[0] ## y"]
)
def test_all_else_stays(text):
    assert inert(text) == text
    stream = io.StringIO()
    Inert(stream).write(text)
    assert stream.getvalue() == text


def test_both_streams_are_one_within_and_themselves_after(capsys):
    before = sys.stdout, sys.stderr
    with heard():
        sys.stdout.write("::error::one\n")
        sys.stderr.writelines(["::error::two\n", "three\n"])
        assert sys.stdout.encoding == before[1].encoding
    with pytest.raises(ZeroDivisionError), heard():
        raise ZeroDivisionError
    assert (sys.stdout, sys.stderr) == before
    out, err = capsys.readouterr()
    assert out == ""
    assert err == "| ::error::one\n| ::error::two\nthree\n"
