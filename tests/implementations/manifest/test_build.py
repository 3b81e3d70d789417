import sys
from threading import Thread

import pytest

from gradcheck.errors import LoadError, ManifestError
from gradcheck.implementations.manifest.library_file import LONGEST_VERSION, TAIL, prepare
from gradcheck.implementations.manifest.schema import parse

C = "[c]\nlibrary = 'k.so'\n"


def prepared(folder, build="", version="version = '1'"):
    path = folder / "gradcheck.toml"
    path.write_text(f"schema = 1\n[impl]\nname = 'k'\n{version}\n{C}{build}")
    return prepare(parse(path))


@pytest.mark.slow(keep=2)
@pytest.mark.parametrize(
    ("build", "message"),
    [
        ("cmd = 'echo nothing to be done; exit 3'", "`echo nothing to be done; exit 3` failed with "
         "exit status 3; it printed:\nnothing to be done"),
        ("cmd = 'exit 4'", "failed with exit status 4 and printed nothing"),
        ("cmd = 'echo on stderr >&2; false'", "it printed:\non stderr"),
        ("cmd = 'kill -9 $$'", "failed with SIGKILL"),
        ("cmd = 'no-such-program-here'", "exit status 127"),
        ("cmd = ['no-such-program-here', 'x']", "`no-such-program-here x` cannot be started"),
        ("cmd = []", "cannot be started"),
        ("cmd = 'sleep 100'\ntimeout = 0.05", "`sleep 100` took longer than 0.05 s"),
        (f"cmd = '{sys.executable} -c \"print(chr(120) * {10 * TAIL})\"; false'", "x" * 99),
        ("cmd = 'printf \"\\\\377\"; false'", "\N{REPLACEMENT CHARACTER}"),
    ],
)  # fmt: skip
def test_a_build_that_fails_is_a_load_error_with_what_it_printed(tmp_path, build, message):
    with pytest.raises(LoadError) as caught:
        prepared(tmp_path, f"[build]\n{build}")
    assert message in str(caught.value)
    assert str(caught.value).startswith(f"{tmp_path / 'gradcheck.toml'}: [build] ")
    assert len(str(caught.value)) < TAIL + 1000


@pytest.mark.parametrize("timeout", ["0", "-1", "inf", "nan"])
def test_a_timeout_that_is_none(tmp_path, timeout):
    with pytest.raises(ManifestError, match="write seconds, more than 0"):
        prepared(tmp_path, f"[build]\ncmd = 'true'\ntimeout = {timeout}")


def test_a_build_runs_in_the_manifests_folder(tmp_path):
    prepared(tmp_path, "[build]\ncmd = 'pwd > where; cat > input'")
    assert (tmp_path / "where").read_text().strip() == str(tmp_path.resolve())
    assert (tmp_path / "input").read_text() == ""  # it reads nothing of ours


def test_a_list_is_no_matter_of_the_shell(tmp_path):
    prepared(tmp_path, "[build]\ncmd = ['touch', 'a b; c']")
    assert (tmp_path / "a b; c").exists()


def test_what_a_build_leaves_running_is_not_waited_for(tmp_path):
    prepared(tmp_path, "[build]\ncmd = 'sleep 2 & echo started'\ntimeout = 600")
    assert prepared(tmp_path) == "1"


def test_a_build_that_takes_too_long_leaves_nothing_behind(tmp_path):
    with pytest.raises(LoadError, match="took longer"):
        prepared(tmp_path, "[build]\ncmd = '(sleep 1; touch late) & sleep 100'\ntimeout = 0.05")
    from time import sleep

    sleep(1.5)
    assert not (tmp_path / "late").exists()


def test_builds_of_one_manifest_wait_for_each_other(tmp_path):
    build = "[build]\ncmd = 'mkdir lock && sleep 0.1 && rmdir lock'"
    prepared(tmp_path, build)
    file = parse(tmp_path / "gradcheck.toml")
    faults = []

    def once():
        try:
            prepare(file)
        except LoadError as error:
            faults.append(error)

    threads = [Thread(target=once) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert faults == []


@pytest.mark.parametrize(
    ("version", "told"),
    [
        ("version = '1.2'", "1.2"),
        ("version.cmd = 'echo v3; echo more'", "v3"),
        ("version.cmd = ['echo', 'v4']", "v4"),
        ("version.cmd = 'printf \"a\\\\033[31mb\"'", "a"),
        ("version.cmd = 'false'", ""),
        ("version.cmd = 'true'", ""),
        ("version.cmd = 'no-such-program-here'", ""),
        ("version.cmd = 'head -c 9999 /dev/zero | tr \"\\\\0\" x'", "x" * LONGEST_VERSION),
        ("", ""),
    ],
)
def test_versions(tmp_path, version, told):
    assert prepared(tmp_path, version=version) == told


def test_the_version_is_asked_for_after_the_build(tmp_path):
    told = prepared(tmp_path, "[build]\ncmd = 'echo 7 > v'", "version.cmd = 'cat v'")
    assert told == "7"
