import subprocess
import sys
from pathlib import Path

import pytest

from gradcheck.errors import UsageError
from gradcheck.report import FORMATS, check_format, format_of, render


@pytest.mark.parametrize("text", ["out.pdf", "out", "out.md.gz", ".md", "runs.md/out", "a:b/c"])
def test_an_ending_that_says_nothing_is_refused_and_the_formats_are_named(text):
    with pytest.raises(UsageError) as caught:
        format_of(text)
    for name in FORMATS:
        assert name in str(caught.value)


@pytest.mark.parametrize("text", ["out.md:pdf", "out.md:", "out.md:HTML", "out:md"])
def test_an_unknown_format_is_refused_and_the_known_ones_are_named(text):
    with pytest.raises(
        UsageError, match="known: terminal, concise, json, jsonl, markdown, summary, html"
    ):
        format_of(text)


@pytest.mark.parametrize("text", ["", ":html"])
def test_a_missing_file_name_is_refused(text):
    with pytest.raises(UsageError, match="no file is named"):
        format_of(text)


@pytest.mark.parametrize(
    ("text", "path", "name"),
    [
        ("out.md", "out.md", "markdown"),
        ("out.markdown", "out.markdown", "markdown"),
        ("out.HTML", "out.HTML", "html"),
        ("out.htm", "out.htm", "html"),
        ("out.json", "out.json", "json"),
        ("out.xml", "out.xml", "junit"),
        ("out.junit.xml", "out.junit.xml", "junit"),
        ("out.txt", "out.txt", "terminal"),
        ("out.txt:html", "out.txt", "html"),  # what is said wins over the ending
        ("out:junit", "out", "junit"),
        ("a:b:json", "a:b", "json"),
        ("runs:3/out.md", "runs:3/out.md", "markdown"),
        ("a:b.md", "a:b.md", "markdown"),
    ],
)
def test_file_and_format_are_told_apart(text, path, name):
    assert format_of(text) == (Path(path), name)


def test_unknown_formats_are_refused_before_anything_is_rendered(passing):
    with pytest.raises(UsageError, match="unknown format 'pdf'"):
        render(passing, "pdf")
    with pytest.raises(UsageError, match="unknown format 'outline'"):
        render(passing, "outline")  # a module of the package, but no format
    assert check_format("html") == "html"


@pytest.mark.suite(keep=22)
@pytest.mark.parametrize("name", FORMATS)
def test_every_format_renders_every_run_the_same_way_twice_and_for_any_file(name, any_run):
    text = render(any_run, name)
    assert text == render(any_run, name)
    assert text.endswith("\n")
    assert not text.endswith("\n\n")
    assert text.encode("utf-8")  # a lone surrogate would raise


def test_colour_and_width_are_ignored_by_files(passing):
    for name in FORMATS[1:]:
        assert render(passing, name, color=True, width=60) == render(passing, name)


def test_importing_the_package_loads_no_renderer():
    program = (
        "import sys, gradcheck; before = set(sys.modules); import gradcheck.report;"
        "print(*sorted(set(sys.modules) - before))"
    )
    command = [sys.executable, "-c", program]
    loaded = subprocess.run(command, check=True, capture_output=True, text=True).stdout.split()
    assert "gradcheck.report" in loaded
    heavy = {"jinja2", "tabulate", "numpy", "gradcheck.results.run"}
    assert not heavy & set(loaded)
    assert not [name for name in loaded if name.startswith("gradcheck.report.")]
