import os
import stat

import pytest

from gradcheck.system import atomic_io


def test_a_file_is_replaced_with_its_permissions_and_nothing_is_left_beside_it(tmp_path):
    path = tmp_path / "k.toml"
    path.write_text("old")
    path.chmod(0o640)
    atomic_io.replace(path, "new\r\n\n")
    assert path.read_bytes() == b"new\r\n\n"
    assert stat.S_IMODE(path.stat().st_mode) == 0o640
    assert [p.name for p in tmp_path.iterdir()] == ["k.toml"]


@pytest.mark.parametrize("write", [atomic_io.replace, atomic_io.save])
def test_bytes_are_written_as_they_are(tmp_path, write):
    content = bytes(range(256)) + b"\r\n\xff"
    write(tmp_path / "a.npz", content)
    assert (tmp_path / "a.npz").read_bytes() == content


def test_a_new_file_has_the_usual_permissions(tmp_path):
    path, usual = tmp_path / "k.toml", tmp_path / "usual"
    usual.touch()
    atomic_io.replace(path, "new")
    assert path.stat().st_mode == usual.stat().st_mode


def test_a_link_stays_one(tmp_path):
    path, link = tmp_path / "k.toml", tmp_path / "link.toml"
    path.write_text("old")
    link.symlink_to(path)
    atomic_io.replace(link, "new")
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
        atomic_io.replace(path, "new")
    assert path.read_text() == "old"
    assert [p.name for p in tmp_path.iterdir()] == ["k.toml"]


# ── new files, and what is none ──────────────────────────────────────────────────────────────


def test_what_is_there_is_never_created_again(tmp_path, monkeypatch):
    path = tmp_path / "k.toml"
    atomic_io.create(path, "one")
    with pytest.raises(FileExistsError):
        atomic_io.create(path, "two")
    dangling = tmp_path / "link.toml"
    dangling.symlink_to(tmp_path / "nowhere")
    with pytest.raises(FileExistsError):
        atomic_io.create(dangling, "two")

    def unknown(*_):
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(type(path), "hardlink_to", unknown)  # no such links on this disk
    with pytest.raises(FileExistsError):
        atomic_io.create(path, "two")
    atomic_io.create(tmp_path / "new.toml", "new")
    assert path.read_text() == "one"
    assert (tmp_path / "new.toml").read_text() == "new"
    assert {p.name for p in tmp_path.iterdir()} == {"k.toml", "link.toml", "new.toml"}
    usual = tmp_path / "usual"
    usual.touch()
    assert path.stat().st_mode == usual.stat().st_mode


def test_a_file_is_saved_aside_and_a_pipe_as_it_is(tmp_path):
    path, pipe = tmp_path / "r.md", tmp_path / "pipe"
    atomic_io.save(path, "report")
    before = path.stat().st_ino
    atomic_io.save(path, "another")
    assert path.stat().st_ino != before
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    atomic_io.save(pipe, "report")
    assert os.read(reader, 100) == b"report"
    os.close(reader)
    assert stat.S_ISFIFO(pipe.stat().st_mode)


def test_a_descriptor_of_ours_goes_on_where_it_is(tmp_path):
    path = tmp_path / "out"
    with path.open("w") as out:
        out.write("before\n")
        out.flush()
        for name in (f"/dev/fd/{out.fileno()}", f"/proc/self/fd/{out.fileno()}"):
            assert atomic_io.is_special(type(path)(name))
            atomic_io.save(type(path)(name), "report\n")
    assert path.read_text() == "before\nreport\nreport\n"


@pytest.mark.parametrize("name", ["/dev/null", "/dev/stdout", "/dev/stderr"])
def test_devices_are_no_files(name, tmp_path):
    assert atomic_io.is_special(type(tmp_path)(name))
    assert not atomic_io.is_special(tmp_path / "new")


def test_a_text_in_pieces_is_written_whole_or_not_at_all(tmp_path):
    path = tmp_path / "run.json"
    atomic_io.save(path, (piece for piece in ("{\n", "é", "}\r\n")))
    assert path.read_bytes() == "{\né}\r\n".encode()

    def breaks():
        yield "a part"
        raise MemoryError

    with pytest.raises(MemoryError):
        atomic_io.save(path, breaks())
    assert path.read_bytes() == "{\né}\r\n".encode()
    assert [p.name for p in tmp_path.iterdir()] == ["run.json"]
