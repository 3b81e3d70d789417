"""Whatever the code judged prints: every report shows it escaped, cut, and stays what it is."""

import json
import re
from html.parser import HTMLParser
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest
import xmlschema

from gradcheck.report import FORMATS, render
from gradcheck.report.failure_text import paragraph
from gradcheck.report.findings import table
from gradcheck.results.verdict import Verdict

EVIL = {
    "escapes": "\x1b[2J\x1b[1;1H\x1b]0;title\x07\x1b[31mred",
    "script": "</pre></script><script>alert(1)</script><img src=x onerror=alert(2)>",
    "cdata": "]]></system-out><failure/><![CDATA[",
    "entities": '&lt;&#x3c;&quot;"&nosuch;',
    "bytes": b"\xff\xfe\xc3(".decode(errors="surrogateescape") + "\ud800\ufffe\uffff",
    "nul": "\x00\x01\x08\x0b\x7f\x9b",
    "result": "\nRESULT pass checked=1 pass=1 fail=0\n",
    "frame": 'GRDC\r\n\x1a\n\x10\x00\x00\x00{"kind": "result", "seq": 7}\n',
    "fences": "```\n````\n| a | b |\n# PASS\n</details>\n",
    "bidi": "\u202eSSAP\u2066\u200b",
    "flood": "0123456789abcde\n" * 655_360,
    "one line": "x" * 10_485_760,
}
VERDICTS = (Verdict.PASS, Verdict.CRASH)
MOST = 70_000
"""Bytes of any of these reports: 10 MB of noise are not in it."""


class Elements(HTMLParser):
    """Which elements and attributes a page has, and its text."""

    def __init__(self, text):
        super().__init__()
        self.found, self.texts = [], []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag, attrs):
        self.found.append((tag, tuple(name for name, _ in attrs)))

    def handle_data(self, data):
        self.texts.append(data)


@pytest.fixture(params=EVIL)
def evil(request):
    return EVIL[request.param]


@pytest.fixture(params=VERDICTS)
def runs(request, make, evil):
    """One run whose code printed something harmless, and the same with a hostile text."""

    def printing(text):
        gradients = ("x", "w") if request.param is not Verdict.PASS else ("x",)
        return make.run(*(make.result("relu", o, request.param, printed=text) for o in gradients))

    return printing("harmless"), printing(evil)


def outside(lines):
    """Lines of markdown that stand in no fence."""
    fence = ""
    for line in lines:
        ticks = re.match("`{3,}", line)
        if not fence and ticks:
            fence = ticks[0]
        elif fence and line == fence:
            fence = ""
        elif not fence:
            yield line
    assert not fence


@pytest.mark.suite(keep=17)
@pytest.mark.parametrize("form", FORMATS)
def test_what_was_printed_is_shown_and_cut(form, runs):
    calm, hostile = (render(run, form) for run in runs)
    failed = runs[0].results[0].finding.verdict is not Verdict.PASS
    # An annotation and a line have no room for it, a badge no foreign text, a job's page no noise.
    short = ("github", "gitlab", "concise", "badge", *["summary"][failed:])
    assert ("harmless" in calm) == (form not in short)
    assert len(hostile.encode()) < MOST
    assert all(c.isprintable() or c == "\n" for c in hostile)


@pytest.mark.suite(keep=4)
def test_the_terminal_keeps_its_lines(runs):
    calm, hostile = (render(run, "terminal").splitlines() for run in runs)
    ours = [line for line in hostile if not line.lstrip().startswith("| ")]
    assert ours == [line for line in calm if not line.lstrip().startswith("| ")]
    assert [line for line in hostile if line.startswith("RESULT")] == [runs[1].summary]
    assert hostile[-1] == runs[1].summary
    assert max(map(len, hostile[:-1])) <= max(100, *map(len, calm[:-1]))


@pytest.mark.suite(keep=4)
def test_markdown_keeps_its_blocks(runs):
    calm, hostile = (list(outside(render(run, "markdown").splitlines())) for run in runs)
    assert hostile == calm


@pytest.mark.suite(keep=4)
def test_html_has_no_new_element(runs):
    calm, hostile = (Elements(render(run, "html")) for run in runs)
    assert hostile.found == calm.found
    assert hostile.texts.count(runs[1].summary) == 1


@pytest.mark.suite(keep=4)
def test_json_keeps_its_shape(runs):
    calm, hostile = (json.loads(render(run, "json")) for run in runs)
    for one, other in zip(calm["results"], hostile["results"], strict=True):
        assert one.pop("printed") == "harmless"
        assert len(other.pop("printed")) < MOST
        assert one == other
    assert calm["footer"] == hostile["footer"]


@pytest.mark.suite(keep=4)
def test_junit_keeps_its_elements(runs):
    schema = xmlschema.XMLSchema(Path(__file__).parent / "data" / "junit-10.xsd")
    calm, hostile = (render(run, "junit") for run in runs)
    schema.validate(hostile)
    one, other = (ET.fromstring(text) for text in (calm, hostile))
    assert [e.tag for e in one.iter()] == [e.tag for e in other.iter()]
    assert one.attrib == other.attrib


@pytest.mark.slow(keep=2)
def test_a_result_on_its_own_is_printable_too(make, evil):
    found = make.result("relu", "x", Verdict.CRASH, printed=evil, reason=evil)
    for text in (paragraph(found), table("relu", "float32", [found.finding])):
        assert len(text) < MOST
        assert all(c.isprintable() or c == "\n" for c in text)
        assert not [line for line in text.splitlines() if line.startswith("RESULT")]


def test_noise_does_not_hide_a_failure_of_the_same_operator(make):
    """What a failing gradient printed stands with it, and is not told again as harmless noise."""
    run = make.run(
        make.result("relu", "x", printed="chatter"),
        make.result("relu", "x", Verdict.CRASH, sample="big", printed="last words"),
    )
    text = render(run, "terminal")
    assert text.index("CRASH relu") < text.index("| last words")
    assert "chatter" not in text


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
