import pytest

from gradcheck.results.printed import FEW, LINES, lines, marked, of
from gradcheck.results.verdict import Verdict


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
def test_the_first_and_the_last_lines_count(most):
    told = [f"line {i}" for i in range(100)]
    found = lines("\n".join(told), most)
    first = most // 2
    hidden = sum(len(line) + 1 for line in told[first : 100 - (most - first)])
    assert found == [*told[:first], f"… {hidden:,} bytes left out …", *told[100 - (most - first) :]]


def test_bytes_are_counted_and_not_characters():
    assert lines("ä\nb", 1) == ["… 3 bytes left out …", "b"]
    assert lines("\ud800\nb", 1)[0] == "… 7 bytes left out …"  # as it is shown: \\ud800


def test_one_endless_line_is_cut():
    first, cut, last = lines("why" + "x" * 10_000_000 + "end")
    assert cut == f"… {10_000_006 - len(first) - len(last):,} bytes left out …"
    assert first.startswith("whyx")
    assert last.endswith("xend")
    assert len(first) == len(last) == 999


@pytest.mark.parametrize("before", [0, 3, 1000])
@pytest.mark.parametrize("after", [0, 3, 1000, 100_000])
def test_what_was_cut_already_is_counted_too(before, after):
    """Evidence that a process kept of a flood, and a report's own cut, are one."""
    whole = ["why it died", *["noise"] * before, *["more"] * after, "where it died"]
    text = "\n".join(whole)
    kept = f"{text[: 12 + 6 * before]}… 4,000 bytes left out …\n{text[12 + 6 * before :]}"
    found = lines(kept, 8)
    (cut,) = (line for line in found if line.startswith("… "))
    found.remove(cut)
    assert found[0] == "why it died"
    assert found[-1] == "where it died"
    shown = sum(len(line) + 1 for line in found)
    assert cut == f"… {4000 + len(text) + 1 - shown:,} bytes left out …"


def test_blank_lines_at_the_beginning_are_not_counted_as_lost():
    assert lines("\n\n" + "a\n" * LINES) == ["a"] * LINES


def test_marked_lines_stand_under_a_title():
    assert marked("a\nb", "  ") == ["  printed:", "    | a", "    | b"]


@pytest.mark.parametrize("verdict", Verdict)
def test_what_passed_is_told_in_few_lines(make, verdict):
    text = "".join(f"line {i}\n" for i in range(100))
    found = of(make.result(verdict=verdict, printed=text))
    assert found[0] == "  line 0"
    assert found[-1] == "  line 99"
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
    "cut": "why\n" + "a\n" * 90 + "… 1,234 bytes left out …\n" + "b\n" * 90 + "where",
    "cut twice": "why\n… 1 byte left out …\nb\n… 9 bytes left out …\nwhere\n",
    "cut to nothing": "… 5 bytes left out …",
    "forged": "… 7 bytes left out …\n" + "x" * 3000,
    "forged nothing": "… 0 bytes left out …\n" + "x" * 3000,
    "blank between": "why\n" + " \n" * 3000 + "where",
    "indented": "\n\n    why\n" + "x\n" * 3000 + "    where",
    "short": "a\n\n  b",
}


@pytest.mark.slow(keep=6)
@pytest.mark.parametrize("name", TEXTS)
@pytest.mark.parametrize("most", [1, FEW, LINES])
def test_what_is_stored_is_shown_as_what_was_printed(name, most):
    """Stored are the lines that are shown; reports of the stored run show the same."""
    text = TEXTS[name]
    stored = "\n".join(lines(text))
    assert lines(stored) == lines(text)
    assert lines(stored, most) == lines(text, most)
    assert sum(len(line) + 1 for line in lines(text) if not line.startswith("… ")) <= 2001
