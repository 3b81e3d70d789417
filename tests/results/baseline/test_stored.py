import json
import math

import pytest

from gradcheck.errors import UsageError
from gradcheck.report import render
from gradcheck.results.stored.read import read


@pytest.fixture
def report(make, tmp_path):
    def write(run=None, **changes):
        run = run or make.run(make.result(verdict="fail", label="F", error=0.25, reason="off"))
        plain = json.loads(render(run, "json"))
        for path, value in changes.items():
            *outer, last = path.split("__")
            at = plain
            for key in outer:
                at = at[int(key) if key.isdecimal() else key]
            if value is None:
                del at[last]
            else:
                at[last] = value
        path = tmp_path / "run.json"
        path.write_text(json.dumps(plain))
        return path

    return write


def test_what_a_baseline_asks_for_is_read_back(make, report):
    run = make.run(
        make.result(verdict="fail", label="F", error=0.25, reason="off"),
        make.result("square", verdict="fail", error=math.nan), make.result("tiny", "crash", "vjp"),
        complete=False, troubles=("no torch",), versions={"mine": "mine 1.2"},
    )  # fmt: skip
    found = read(report(run))
    assert (found.complete, found.troubles) == (False, ("no torch",))
    assert found.header.versions == {"mine": "mine 1.2"}
    assert found.header.dtypes == run.header.dtypes
    text = make.toml({"class": "scale", "max_error": 0.26})
    ours, theirs = make.held(run, text), make.held(found, text)
    assert theirs.gate.problems == ours.gate.problems
    assert theirs.gate.results == ours.gate.results
    assert theirs.summary == ours.summary
    assert [r.finding.reason for r in found.results] == [r.finding.reason for r in run.results]


def test_more_than_is_known_today_is_no_mistake(report):
    assert read(report(header__new=1, footer__new=[1], results__0__new={"a": 1}))


@pytest.mark.slow(keep=2)
@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"header__schema": 2}, "its schema is 2, and this gradcheck reads 1; run again"),
        ({"header__schema": "1"}, "it is no report of"),
        ({"header": None}, "it is no report of"),
        ({"results": None}, "it is no report of"),
        ({"footer__complete": None}, "it is no report of"),
        ({"footer__complete": 1}, "it is no report of"),
        ({"results__0__verdict": "passed"}, "it is no report of"),
        ({"results__0__name": 3}, "it is no report of"),
        ({"results__0__worst__0": {}}, "it is no report of"),
        ({"results__0__worst": [{"index": [0], "got": "many", "want": 1, "error": 1, "bound": 1,
                                 "error_bar": 0}]}, "it is no report of"),
    ],
)  # fmt: skip
def test_another_document_is_refused_in_one_line(report, changes, says):
    with pytest.raises(UsageError) as error:
        read(report(**changes) if "results__0__worst__0" not in changes else report(
            results__0__worst=[{}]))  # fmt: skip
    assert says in str(error.value)
    assert str(error.value).isprintable()


@pytest.mark.parametrize(
    "content", [b"", b"{", b"[]", b"\xff", b"[" * 100_000, b'{"header": {"schema": 1}}\n{}']
)
def test_what_is_no_json_is_refused(tmp_path, content):
    path = tmp_path / "run.json"
    path.write_bytes(content)
    with pytest.raises(UsageError, match="it is no report of"):
        read(path)


def test_a_file_that_cannot_be_read(tmp_path):
    with pytest.raises(UsageError, match="there is no such file; `gradcheck run -o"):
        read(tmp_path / "absent.json")
    with pytest.raises(UsageError, match="Is a directory"):
        read(tmp_path)
