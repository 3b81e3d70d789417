"""What failed last time is remembered, and whatever happens to the memory harms no run."""

import json
from dataclasses import replace

import pytest

from gradcheck.results.stored.last_failed import FILE, FOLDER, after, cases, keep, known
from gradcheck.results.verdict import Expected, Gate, Known
from gradcheck.system import atomic_io


@pytest.fixture
def some(make):
    """A run in which one operator fails in one dtype."""
    return make.run(
        make.result("relu"), make.result("tanh", verdict="fail"), make.result("tanh", "float32"),
        make.result("exp", verdict="unsupported"),
    )  # fmt: skip


def test_what_failed_is_known_in_the_next_run(tmp_path, some):
    keep(some, tmp_path)
    assert known(tmp_path) == {"reference": ["tanh/default/typical/float64"]}
    assert cases(known(tmp_path), ["reference", "torch"]) == {"tanh/default/typical"}
    assert cases(known(tmp_path), ["torch"]) == frozenset()
    assert {p.name for p in (tmp_path / FOLDER).iterdir()} == {FILE, ".gitignore"}
    assert (tmp_path / FOLDER / ".gitignore").read_text() == "*\n"


def test_nothing_is_written_where_nothing_ever_failed(tmp_path, make):
    keep(make.whole(), tmp_path)
    assert [*tmp_path.iterdir()] == []


def test_what_is_mended_is_forgotten_and_what_was_not_run_is_not(tmp_path, make, some):
    keep(some, tmp_path)
    keep(make.run(make.result("gelu", verdict="crash")), tmp_path)
    names = ["tanh/default/typical/float64", "gelu/default/typical/float64"]
    assert known(tmp_path) == {"reference": names}
    keep(make.run(make.result("tanh", "float32"), make.result("gelu")), tmp_path)
    assert known(tmp_path) == {"reference": names[:1]}
    keep(make.run(make.result("tanh", whose="torch"), implementations=("torch",)), tmp_path)
    assert known(tmp_path) == {"reference": names[:1]}
    keep(make.run(make.result("tanh", verdict="skip")), tmp_path)  # a budget has left it out
    assert known(tmp_path) == {"reference": names[:1]}
    keep(make.run(make.result("tanh")), tmp_path)
    assert known(tmp_path) == {}


def test_one_wrong_gradient_is_enough(make):
    run = make.run(make.result(output="forward"), make.result(verdict="missing"),
                   make.result(output="y"))  # fmt: skip
    assert after({}, run) == {"reference": ["relu/default/typical/float64"]}


def test_what_comes_after_a_case_that_was_left_out_counts(make):
    run = make.run(make.result("tanh", verdict="skip"), make.result("relu", verdict="fail"))
    assert after({}, run) == {"reference": ["relu/default/typical/float64"]}


def test_a_failure_that_is_known_is_none_here(make, some):
    tanh = some.results[1]
    entry = Expected(accepted=True, known=Known.XFAIL, entry="k.toml:3")
    gate = Gate(baseline="k.toml", results={tanh.key: entry})
    assert after({}, replace(some, gate=gate)) == {}


@pytest.mark.parametrize(
    "text", ["", "{", "[]", "3", '{"failed": 3}', '{"failed": {"reference": 3}}', "[" * 100_000,
             '{"failed": {"reference": [3, null, {}]}}', "\xff\x00"],
)  # fmt: skip
def test_a_memory_that_is_damaged_is_none(tmp_path, some, text):
    place = tmp_path / FOLDER
    place.mkdir()
    (place / FILE).write_text(text, encoding="latin-1")
    assert not cases(known(tmp_path), ["reference"])
    keep(some, tmp_path)
    assert cases(known(tmp_path), ["reference"]) == {"tanh/default/typical"}


def test_a_folder_that_cannot_be_written_is_no_concern(tmp_path, some, monkeypatch):
    (tmp_path / FOLDER).write_text("a file")
    keep(some, tmp_path)
    assert known(tmp_path) == {}
    (tmp_path / FOLDER).unlink()

    def readonly(*_):
        raise OSError(30, "Read-only file system")

    monkeypatch.setattr(atomic_io, "replace", readonly)
    keep(some, tmp_path)
    assert known(tmp_path) == {}


def test_what_is_on_file_is_what_was_known(tmp_path, some):
    keep(some, tmp_path)
    plain = json.loads((tmp_path / FOLDER / FILE).read_text())
    assert plain == {"failed": {"reference": ["tanh/default/typical/float64"]}}
