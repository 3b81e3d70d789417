"""What a command leaves behind is refused before the run where it could not be left."""

import os
from pathlib import Path

import pytest

from gradcheck.cli import console
from gradcheck.cli.reports import check_folder, check_writable, publish, refuse_formats, save
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


# ── refused before the run ───────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("names", "says"),
    [
        (("a.md", "a.md"), "--to a.md: named twice; give each report its own file"),
        (("a.md", "./a.md"), "--to a.md: named twice; give each report its own file"),
        (("/dev/fd/987",), "--to /dev/fd/987: it is closed; name a file"),
        (("/dev/stdout", "none/b.md"), "--to none/b.md: there is no folder none; create it first"),
        ((f"{'x' * 300}.md",), f"--to {'x' * 300}.md: File name too long"),
        (("folder",), "--to folder: it is a folder; name a file in it"),
        (("dangling.md",), "--to dangling.md: FOLDER/gone is not a folder; create it"),
    ],
)
def test_what_could_not_be_written_after_the_run_is_refused(tmp_path, monkeypatch, names, says):
    monkeypatch.chdir(tmp_path)
    Path("folder").mkdir()
    Path("dangling.md").symlink_to("gone/there.md")
    with pytest.raises(UsageError) as refused:
        check_writable([Path(name) for name in names], "--to")
    assert str(refused.value) == says.replace("FOLDER", str(tmp_path.resolve()))


def test_files_descriptors_and_devices_are_taken(tmp_path):
    (tmp_path / "old.md").touch()
    check_writable(
        [tmp_path / "old.md", tmp_path / "new.md", Path("/dev/stderr"), Path(os.devnull)]
    )


@pytest.mark.parametrize("lacks", [os.W_OK, os.X_OK])
def test_the_folder_that_a_link_leads_to_must_take_a_temporary_file(tmp_path, monkeypatch, lacks):
    (tmp_path / "far").mkdir()
    far = (tmp_path / "far").resolve()
    (far / "there.md").touch()
    (tmp_path / "link.md").symlink_to(far / "there.md")
    check_writable([tmp_path / "link.md"])
    monkeypatch.setattr(os, "access", lambda path, how: path != far or not how & lacks)
    with pytest.raises(UsageError, match=f"no write permission in {far}, needed for a temporary"):
        check_writable([tmp_path / "link.md"])


# ── published after it ───────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("shown", [True, False])
@pytest.mark.parametrize("folder", [".", "none"])
def test_all_that_is_published_must_have_been_written(tmp_path, monkeypatch, capsys, shown, folder):
    show = console.show
    monkeypatch.setattr(console, "show", lambda text: show(text) and shown)
    monkeypatch.chdir(tmp_path)
    targets = [(Path(folder, "a.md"), "markdown"), (Path("b.json"), "json")]
    whole = publish(
        "a diff", targets, lambda what, form, width=0: f"{what} as {form}, {width} wide", width=80
    )
    assert whole is (shown and folder == ".")
    assert capsys.readouterr().out == "a diff as terminal, 80 wide"
    assert Path("b.json").read_text() == "a diff as json, 0 wide"
