import json
import re

import pytest

from gradcheck.report import FORMATS, render
from gradcheck.report.failure_text import paragraph
from gradcheck.report.findings import table
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


# ── in reports ───────────────────────────────────────────────────────────────────────────────

EVIL = {
    "tricks": "</pre></script><img src=x onerror=alert(2)>]]></system-out><failure/>&lt;&nosuch;"
    "\x1b[2J\x1b[31mred\x00\x9b\ud800\ufffe\u202e\nRESULT pass checked=1\n"
    "```\n````\n# PASS\n| a |\n",
    "frame": 'GRDC\r\n\x1a\n\x10\x00\x00\x00{"kind": "result", "seq": 7}\n',
    "flood": "0123456789abcde\n" * 655_360,
    "one line": "x" * 10_485_760,
}  # fmt: skip
MOST = 70_000
"""Bytes of any of these reports: 10 MB of noise are not in it."""
QUIET = ("github", "gitlab", "concise", "badge")
"""An annotation and a line have no room for it, a badge for no foreign text; of what passed, a
job's page shows none either."""


ELEMENT = re.compile(r"<[^!?][^\s>]*")


def printing(make, text, verdict):
    """A run whose code printed a text."""
    gradients = ("x", "w") if verdict is not Verdict.PASS else ("x",)
    return make.run(*(make.result("relu", o, verdict, printed=text) for o in gradients))


def inert(text):
    return all(c.isprintable() or c == "\n" for c in text)


@pytest.mark.slow(keep=2)
@pytest.mark.parametrize("form", FORMATS)
def test_what_was_printed_is_shown_escaped_and_cut(make, form):
    for verdict in (Verdict.PASS, Verdict.CRASH):
        calm = render(printing(make, "harmless", verdict), form)
        # A job's page shows no noise of what passed.
        assert ("harmless" in calm) == (
            form not in (*QUIET, *["summary"][verdict is Verdict.CRASH :])
        )
        for name, evil in EVIL.items():
            run = printing(make, evil, verdict)
            text = render(run, form)
            assert len(text.encode()) < MOST, name
            assert inert(text), name
            for verbosity in (0, 1) if form == "terminal" else ():
                calm, text = (
                    render(printing(make, said, verdict), form, verbosity=verbosity)
                    for said in ("harmless", evil)
                )
                assert inert(text), name
                assert framed(text) == framed(calm), name
                assert text.count("\nRESULT") == 1
                *lines, last = text.splitlines()
                assert last == run.summary
                assert max(map(len, lines)) <= max(100, *map(len, calm.splitlines())), name
            if form == "markdown":
                assert [*outside(text)] == [*outside(calm)], name
            if form in ("html", "junit"):
                assert ELEMENT.findall(text) == ELEMENT.findall(calm), name
            if form == "json":
                assert without_print(text) == without_print(calm), name


def framed(text):
    """The lines of a terminal's report that nobody printed."""
    printed = ("| ", "printed: ")
    return [line for line in text.splitlines() if not line.lstrip().startswith(printed)]


def outside(text):
    """Lines of markdown that stand in no fence."""
    fence = ""
    for line in text.splitlines():
        ticks = re.match("`{3,}", line)
        if not fence and ticks:
            fence = ticks[0]
        elif fence and line == fence:
            fence = ""
        elif not fence:
            yield line
    assert not fence


def without_print(text):
    document = json.loads(text)
    assert all(len(result.pop("printed")) < MOST for result in document["results"])
    return document


def test_a_result_on_its_own_is_printable_too(make):
    for evil in EVIL.values():
        found = make.result("relu", "x", Verdict.CRASH, printed=evil, reason=evil)
        for text in (paragraph(found), table("relu", "float32", [found.finding])):
            assert len(text) < MOST
            assert inert(text)
            assert "\nRESULT" not in text


def test_noise_does_not_hide_a_failure_of_the_same_operator(make):
    """What a failing gradient printed stands with it, and is not told again as harmless noise."""
    run = make.run(
        make.result("relu", "x", printed="chatter"),
        make.result("relu", "x", Verdict.CRASH, sample="big", printed="more\nlast words\n \n"),
    )
    brief, whole = (render(run, "terminal", verbosity=v) for v in (0, 1))
    assert brief.index("\nCRASH relu") < brief.index("\n  printed: last words\n")
    assert "more" not in brief
    assert whole.index("\nCRASH relu") < whole.index("| more") < whole.index("| last words")
    assert "chatter" not in brief + whole


@pytest.mark.parametrize("form", ["terminal", "markdown"])
def test_noise_of_what_passed_is_told_once_per_dialect(make, form):
    samples = [make.result("relu", "x", sample=f"s{i}", printed=f"noise {i}") for i in range(9)]
    text = render(make.run(*samples), form)
    assert text.count("noise") == 1
    assert "printed in 9 results" in text


@pytest.mark.parametrize("form", ["terminal", "markdown"])
def test_the_first_that_printed_speaks_for_its_gradient(make, form):
    crashes = [
        make.result("relu", "x", Verdict.CRASH, sample=f"s{i}", printed=f"words {i}" * (i > 0))
        for i in range(3)
    ]
    text = render(make.run(*crashes), form)
    assert "words 1" in text
    assert "words 2" not in text
