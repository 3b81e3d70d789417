"""References are resolved, or it is said why not; suites are found and joined."""

import sys
from importlib.metadata import entry_points

import pytest
from gradcheck_cases import SUITE

from gradcheck.errors import LoadError, SpecError, UsageError
from gradcheck.spec.loading import ENTRY_POINTS, load_suite, resolve
from gradcheck.spec.suite import Case


def test_the_installed_suite_is_found():
    points = {p.name: p.value for p in entry_points(group=ENTRY_POINTS)}
    if "builtin" not in points:
        pytest.skip("gradcheck is not installed here")
    assert points["builtin"] == "gradcheck_cases:SUITE"
    loaded = load_suite()
    assert "rms_norm" in loaded.operators
    assert isinstance(loaded.cases(["rms_norm"])[0], Case)


def test_no_installed_suite_is_a_message_and_no_crash(monkeypatch):
    monkeypatch.setattr("gradcheck.system.entry_points.entry_points", lambda group: {})
    with pytest.raises(UsageError, match=r"pip install -e \.` or pass --suite MODULE:NAME"):
        load_suite()


def test_suites_are_loaded_by_reference_and_joined():
    assert load_suite(["gradcheck_cases:SUITE"]) is SUITE
    with pytest.raises(SpecError, match="two operators"):
        load_suite(["gradcheck_cases:SUITE", "gradcheck_cases:SUITE"])
    with pytest.raises(LoadError, match=r"gradcheck_cases:norm is a module, not a gradcheck Suite"):
        load_suite(["gradcheck_cases:norm"])


@pytest.mark.parametrize("reference", ["numpy", "numpy:", ":x", ""])
def test_a_reference_of_another_form_is_refused(reference):
    with pytest.raises(LoadError, match=r"is not of the form package\.module:NAME"):
        resolve(reference)


def test_what_cannot_be_resolved_says_why(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "raises_here.py").write_text("raise RuntimeError('out of cheese')")
    (tmp_path / "leaves_here.py").write_text("import sys; sys.exit(3)")
    assert resolve("gradcheck_cases.norm:rms_norm.name") == "rms_norm"
    with pytest.raises(LoadError, match=r"no_such_package raised ModuleNotFoundError"):
        resolve("no_such_package:x")
    with pytest.raises(LoadError, match=r"raised RuntimeError: out of cheese"):
        resolve("raises_here:x")
    with pytest.raises(LoadError, match=r"raised SystemExit: 3"):
        resolve("leaves_here:x")
    with pytest.raises(LoadError, match=r"gradcheck_cases has no 'NOTHING'"):
        resolve("gradcheck_cases:NOTHING")
    assert LoadError.exit_code == 3
    assert "raises_here" not in sys.modules
