import pytest

from gradcheck.report.printed import FEW, LINES, lines, marked, of
from gradcheck.verdict import Verdict


def test_nothing_printed_is_nothing_shown():
    assert lines("") == lines(" \n\t\n") == []
    assert marked("\n\n", "  ") == []


@pytest.mark.parametrize("end", ["\n", "\r", "\r\n", "\x0b", "\x0c", "\x85", "\u2028", "\x1c"])
def test_no_line_holds_the_end_of_one(end):
    assert lines(f"a{end}RESULT pass{end}") == ["a", "RESULT pass"]


@pytest.mark.parametrize("evil", ["\x1b[2J", "\x00", "\x07", "\x7f", "\u202e", "\ud800", "\x9b31m"])
def test_what_is_no_print_is_its_escape(evil):
    (line,) = lines(f"a{evil}b")
    assert line.isprintable()
    assert line == f"a{evil.encode('unicode_escape').decode()}b"


def test_columns_stay_under_each_other():
    assert lines("step\tloss\n    1\t0.5") == ["step    loss", "    1   0.5"]


@pytest.mark.parametrize("most", [1, 3, LINES])
def test_the_last_lines_count(most):
    text = "".join(f"line {i}\n" for i in range(100))
    found = lines(text, most)
    before = sum(len(f"line {i}\n") for i in range(100 - most))
    assert found[0] == f"… {before:,} more bytes before this"
    assert found[1:] == [f"line {i}" for i in range(100 - most, 100)]


def test_bytes_are_counted_and_not_characters():
    assert lines("ä\nb", 1) == ["… 3 more bytes before this", "b"]
    assert lines("\ud800\nb", 1)[0].startswith("… 7 more bytes")  # as it is shown: \\ud800


def test_one_endless_line_is_cut():
    first, line = lines("x" * 10_000_000 + "end")
    assert first == f"… {10_000_003 - len(line):,} more bytes before this"
    assert line.endswith("xend")
    assert len(line) == 2000


def test_blank_lines_at_the_beginning_are_not_counted_as_lost():
    assert lines("\n\n" + "a\n" * LINES) == ["a"] * LINES


def test_marked_lines_stand_under_a_title():
    assert marked("a\nb", "  ") == ["  printed:", "    | a", "    | b"]


@pytest.mark.parametrize("verdict", Verdict)
def test_what_passed_is_told_in_few_lines(make, verdict):
    text = "".join(f"line {i}\n" for i in range(100))
    found = of(make.result(verdict=verdict, printed=text))
    assert found[1:] == [f"line {i}" for i in range(100 - (len(found) - 1), 100)]
    assert len(found) - 1 == (FEW if verdict.expected else LINES)


TEXTS = {
    "long": "0123456789" * 1000,
    "many": "".join(f"line {i}\n" for i in range(100)),
    "escapes": "\x1b[31m" * 900 + "\tend",
    "commands": "##[a] ## b\t##vso[c]" * 300,
    "wide escapes": "\U000e0001x" * 2000,
    "tabs": "\t" * 3000 + "x",
    "blanks": "\n \n" * 2000 + "end \n",
    "breaks": "a\r\nb\x0bc\x85d\u2028e" * 300,
    "surrogates": "\ud800" * 3000,
    "forged": "… 7 more bytes before this\n" + "x" * 3000,
    "forged alone": "… 7 more bytes before this",
    "short": "a\n\n  b",
}


@pytest.mark.parametrize("name", TEXTS)
@pytest.mark.parametrize("most", [1, FEW, LINES])
def test_what_is_stored_is_shown_as_what_was_printed(name, most):
    """Stored are the lines that are shown; reports of the stored run show the same."""
    text = TEXTS[name]
    stored = "\n".join(lines(text))
    assert lines(stored) == lines(text)
    assert lines(stored, most) == lines(text, most)
    assert sum(len(line) + 1 for line in lines(text) if not line.startswith("… ")) <= 2001
