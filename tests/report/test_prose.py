"""`code` between backticks becomes code, and no text gets out of it."""

import json
import re
import shutil
import subprocess
from html.parser import HTMLParser
from importlib import resources

import pytest

from gradcheck.report.markdown import render as markdown
from gradcheck.report.markdown import summary
from gradcheck.report.prose import in_html, in_markdown
from gradcheck.results.verdict import Verdict

LINES = [
    ("plain", "plain", "plain"),
    ("the term `g * n` is lost", "the term <code>g * n</code> is lost", "the term `g * n` is lost"),
    ("`a`, `b`", "<code>a</code>, <code>b</code>", "`a`, `b`"),
    ("`a<b` < 1", "<code>a&lt;b</code> &lt; 1", "`a<b` &lt; 1"),
    ("`a|b` | c", "<code>a|b</code> | c", "<code>a\\|b</code> \\| c"),
    ("a_b `c_d`", "a_b <code>c_d</code>", "a\\_b `c_d`"),
    # No code: a backtick without a partner, several in a row, nothing or blanks between two.
    ("it`s `", "it`s `", "it\\`s \\`"),
    ("```sh", "```sh", "\\`\\`\\`sh"),
    ("``x``", "``x``", "\\`\\`x\\`\\`"),
    ("` x `", "` x `", "\\` x \\`"),
    ("`<img src=x onerror=alert(1)>`", "<code>&lt;img src=x onerror=alert(1)&gt;</code>",
     "`<img src=x onerror=alert(1)>`"),
    ("`</code><script>`", "<code>&lt;/code&gt;&lt;script&gt;</code>", "`</code><script>`"),
    ("`a|</code><b>`", "<code>a|&lt;/code&gt;&lt;b&gt;</code>",
     "<code>a\\|&lt;/code&gt;&lt;b&gt;</code>"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "html", "_"), LINES)
def test_html_has_code_and_escapes_all_else(text, html, _):
    assert in_html(text).replace("&#x27;", "'") == html


@pytest.mark.parametrize(("text", "_", "written"), LINES)
def test_markdown_has_code_and_escapes_all_else(text, _, written):
    assert in_markdown(text) == written


class Text(HTMLParser):
    def __init__(self, markup):
        super().__init__()
        self.tags, self.text = set(), ""
        self.feed(markup)
        self.close()

    def handle_starttag(self, tag, attrs):
        self.tags.add(tag)

    def handle_data(self, data):
        self.text += data


def test_hostile_text_is_shown_as_it_is(make):
    for text in (make.hostile.split("\n")[0], *(line for line, _, _ in LINES)):
        found = Text(in_html(text))
        assert found.tags <= {"code"}
        assert found.text.replace("`", "") == text.replace("`", "")


@pytest.mark.skipif(shutil.which("node") is None, reason="node is not installed")
def test_a_browser_finds_the_same_code():
    script = resources.files("gradcheck.report").joinpath("templates/unpack.js").read_text("utf-8")
    (split,) = re.findall(r"text\.split\((/.*/)\)", script)
    texts = [text for text, _, _ in LINES]
    program = f"console.log(JSON.stringify({json.dumps(texts)}.map((text) => text.split({split}))))"
    done = subprocess.run(["node", "-e", program], capture_output=True, check=True, text=True)
    for text, parts in zip(texts, json.loads(done.stdout), strict=True):
        assert re.findall("<code>(.*?)</code>", in_html(text)) == [
            in_html(part) for part in parts[1::2]
        ]


@pytest.mark.parametrize("render", [markdown, summary])
def test_a_diagnosis_has_code_in_markdown_and_in_a_line_that_unfolds(make, render):
    why = make.why(says="dx lacks `g * n`", evidence=("`r` is 3 < 4",))
    text = render(make.run(make.result(verdict=Verdict.FAIL, diagnosis=why)))
    assert re.search("<summary>.*dx lacks <code>g \\* n</code>.*</summary>", text)
    assert "- evidence: `r` is 3 &lt; 4\n" in text
    assert ("dx lacks `g * n` (scale" in text) is (render is markdown)
