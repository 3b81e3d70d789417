import os
import stat

import pytest

from gradcheck import disk


def test_a_file_is_replaced_with_its_permissions_and_nothing_is_left_beside_it(tmp_path):
    path = tmp_path / "k.toml"
    path.write_text("old")
    path.chmod(0o640)
    disk.replace(path, "new\r\n\n")
    assert path.read_bytes() == b"new\r\n\n"
    assert stat.S_IMODE(path.stat().st_mode) == 0o640
    assert [p.name for p in tmp_path.iterdir()] == ["k.toml"]


def test_a_new_file_has_the_usual_permissions(tmp_path):
    path, usual = tmp_path / "k.toml", tmp_path / "usual"
    usual.touch()
    disk.replace(path, "new")
    assert path.stat().st_mode == usual.stat().st_mode


def test_a_link_stays_one(tmp_path):
    path, link = tmp_path / "k.toml", tmp_path / "link.toml"
    path.write_text("old")
    link.symlink_to(path)
    disk.replace(link, "new")
    assert link.is_symlink()
    assert path.read_text() == "new"


@pytest.mark.parametrize("fault", ["fsync", "replace"])
def test_what_goes_wrong_leaves_what_was_there(tmp_path, monkeypatch, fault):
    def fails(*_):
        raise OSError(28, "No space left on device")

    path = tmp_path / "k.toml"
    path.write_text("old")
    where = os if fault == "fsync" else type(path)
    monkeypatch.setattr(where, fault, fails)
    with pytest.raises(OSError, match="No space"):
        disk.replace(path, "new")
    assert path.read_text() == "old"
    assert [p.name for p in tmp_path.iterdir()] == ["k.toml"]
