"""What a command leaves behind is refused before the run where it could not be left."""

import os
from pathlib import Path

import pytest

from gradcheck.cli.reports import check_folder, refuse_formats, save
from gradcheck.errors import UsageError


def test_a_folder_is_made_with_all_above_it_and_may_be_there(tmp_path):
    for _ in range(2):
        check_folder(tmp_path / "a" / "b", "--to")
    assert (tmp_path / "a" / "b").is_dir()


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("file", "--to .*file: it is not a folder; name another"),
        ("file/below", "--to .*below: Not a directory"),
        ("a\0b", "--to .*: .*null"),
        ("x" * 300, "--to .*: File name too long"),
    ],
)
def test_a_folder_that_there_cannot_be_is_refused(tmp_path, name, says):
    (tmp_path / "file").touch()
    with pytest.raises(UsageError, match=says):
        check_folder(tmp_path / name, "--to")


@pytest.mark.parametrize(("mode", "fits"), [(0o700, True), (0o500, False), (0o600, False)])
def test_a_folder_must_be_writable_and_searchable(tmp_path, mode, fits, monkeypatch):
    """Asked of `os.access`: an administrator may do everything."""
    mine = {os.W_OK: bool(mode & 0o200), os.X_OK: bool(mode & 0o100)}
    monkeypatch.setattr(os, "access", lambda _, how: all(ok for k, ok in mine.items() if how & k))
    if fits:
        check_folder(tmp_path, "--to")
        return
    with pytest.raises(UsageError, match=r"--to .*: no permission to write there"):
        check_folder(tmp_path, "--to")


def test_a_format_that_is_not_written_is_refused_by_its_name():
    targets = [(Path("a.json"), "json"), (Path("b.xml"), "junit")]
    refuse_formats(targets, ("json", "junit"), "a diff")
    with pytest.raises(UsageError, match=r"^-o b.xml: a diff writes json, not junit$"):
        refuse_formats(targets, ("json",), "a diff")


def test_a_report_that_cannot_be_written_is_told(tmp_path, capsys):
    assert save(tmp_path / "good", "text") is True
    assert save(tmp_path / "none" / "bad", "text", "--to") is False
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    assert "bad: No such file or directory; the results are on stdout" in said
