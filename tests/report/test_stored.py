"""What is read back from a file renders as what was written, in every format."""

import html
import json
from dataclasses import replace

import pytest

from gradcheck.errors import UsageError
from gradcheck.report import FORMATS, render
from gradcheck.results.run import digest_of
from gradcheck.results.stored.read import CUT, read

KEPT = ("json", "jsonl")


@pytest.fixture(params=KEPT)
def kept(request, tmp_path):
    """Writes a run and reads it again."""

    def through(run):
        path = tmp_path / f"run.{request.param}"
        path.write_text(render(run, request.param))
        return read(path)

    return through


@pytest.mark.suite(keep=17, rest=153)
@pytest.mark.parametrize("form", FORMATS)
def test_a_run_read_back_renders_as_before(any_run, kept, form):
    header = replace(any_run.header, cases=digest_of(any_run.results))
    run = replace(any_run, header=header)
    found = kept(run)
    assert render(found, form) == render(run, form)
    assert found.passed is run.passed


def test_what_a_baseline_makes_of_it_is_read_back(known, outdated, kept):
    for run in (known, outdated):
        assert kept(run).gate == run.gate


@pytest.fixture
def log(failing):
    return render(failing, "jsonl")


def _read(tmp_path, content):
    path = tmp_path / "run.jsonl"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return read(path)


def test_a_log_cut_anywhere_holds_every_whole_line(tmp_path, log, failing):
    head, *lines, foot = log.splitlines(keepends=True)
    whole = render(_read(tmp_path, log), "json")
    for size in range(len(head), len(log), 97):
        found = _read(tmp_path, log[:size])
        assert (found.complete, found.passed, found.stopped) == (False, False, CUT)
        assert len(found.results) == log[:size].count("\n") - 1
    assert len(_read(tmp_path, head + "".join(lines)).results) == len(lines) == len(failing.results)
    assert render(_read(tmp_path, log), "json") == whole
    assert foot.startswith('{"footer"')


@pytest.mark.parametrize("size", [0, 1, 40])
def test_a_log_without_a_whole_header_is_none(tmp_path, log, size):
    with pytest.raises(UsageError, match="it is no report of"):
        _read(tmp_path, log[:size])


def test_a_log_that_was_changed_is_refused(tmp_path, log):
    lines = log.splitlines(keepends=True)
    assert '"verdict": "fail"' in log
    with pytest.raises(UsageError, match="changed after it was written"):
        _read(tmp_path, log.replace('"verdict": "fail"', '"verdict": "pass"', 1))
    with pytest.raises(UsageError, match="changed after it was written"):
        _read(tmp_path, "".join([lines[0], *lines[2:]]))
    with pytest.raises(UsageError, match="something after the footer"):
        _read(tmp_path, log + lines[1])
    with pytest.raises(UsageError, match="line 2"):
        _read(tmp_path, "".join([lines[0], "{half\n", *lines[2:]]))


def test_a_header_comes_first(tmp_path, log):
    with pytest.raises(UsageError, match="it is no report of"):
        _read(tmp_path, "".join(log.splitlines(keepends=True)[1:]))


def test_an_older_report_counts_impostors_without_names(tmp_path, passing):
    plain = json.loads(render(passing, "json"))
    plain["results"][0]["certificate"] = {"rejected": 3, "tried": 4, "blind": ["x2"]}
    found = _read(tmp_path, json.dumps(plain))
    certificate = found.results[0].finding.certificate
    assert (len(certificate.rejected), certificate.tried, certificate.blind) == (3, 4, ("x2",))


def test_every_report_says_why_a_run_ended(make):
    run = make.run(make.result(), complete=False, stopped="stopped by <me>; 3 of 4 cases")
    for form in ("terminal", "markdown", "github", "junit", "html", "json", "jsonl"):
        text = html.unescape(render(run, form)).replace("\\", "")
        assert "stopped by <me>; 3 of 4 cases" in text
        assert "stopped early" not in text
    bare = replace(run, stopped="")
    for form in ("terminal", "markdown", "github", "junit", "html"):
        assert "the run stopped early" in render(bare, form)
