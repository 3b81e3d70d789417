"""`gradcheck init --ci`: the workflows that it writes, run as a CI service would."""

import json
import os
import re
import subprocess
from importlib import metadata
from pathlib import Path

import pytest
import yaml

from gradcheck.cli.init import SERVICES, installed
from gradcheck.cli.main import main
from gradcheck.errors import UsageError

FEW = "--op relu --sample typical --dtype float64 --no-contract"


@pytest.fixture
def init(capsys):
    def call(*words, install="somewhere/gradcheck"):
        flags = ["--install", install] if install else []
        code = main(["init", *words, *flags])
        return code, "".join(capsys.readouterr())

    return call


def parsed(service):
    return yaml.safe_load(SERVICES[service].read_text())


def scripts(service):
    """The commands of the workflow: to install, and to judge."""
    found = parsed(service)
    if service == "gitlab":
        install, *judge = found["gradcheck"]["script"]
        return install, "\n".join(judge)
    steps = found["jobs"]["gradcheck"]["steps"]
    install, judge = (step["run"] for step in steps if "run" in step)
    return install, judge


@pytest.fixture(params=SERVICES)
def service(request, folder):
    return request.param


def test_it_is_yaml_of_bash_and_says_what_to_commit(service, init, folder):
    code, told = init("--ci", service, "--impl", "kernels:RIGHT")
    path = SERVICES[service]
    assert code == 0
    assert f"{path} judges kernels:RIGHT" in told
    assert f"git add {path} && git commit" in told
    for text in scripts(service):
        subprocess.run(["bash", "-n"], input=text, text=True, check=True)
    text = path.read_text()
    assert "<<" not in text
    assert "${{" not in text
    assert [u for u in re.findall(r"uses: (\S+)", text) if not re.search(r"@v\d+$", u)] == []
    assert scripts(service)[0].strip() == "python -m pip install somewhere/gradcheck"


@pytest.mark.slow(rest=1)
@pytest.mark.parametrize(("whose", "expected"), [("RIGHT", 0), ("WRONG", 1), ("NONE", 3)])
def test_its_script_judges(service, init, runner, whose, expected):
    init("--ci", service, "--impl", f"kernels:{whose}")
    _, judge = scripts(service)
    done = runner(judge.replace("gradcheck run", f"gradcheck run {FEW}"))
    assert done.code == expected, done.log
    assert ("RESULT pass" in done.log) == (expected == 0)
    if expected == 3:
        assert "kernels:NONE" in done.log
        return
    reports = Path("gradcheck-reports")
    assert (reports / "gradcheck.html").exists()
    assert json.loads((reports / "badge.json").read_text())["schemaVersion"] == 1
    named = parsed(service)
    assert "gradcheck-reports/" in json.dumps(named)
    if service == "github":
        assert done.summary.startswith("**gradcheck: ")
        errors = [properties for name, properties, _ in done.commands if name == "error"]
        assert len(errors) == len(done.commands)
        assert [*map(bool, errors)] == [True] * (whose == "WRONG")
        assert ("file=kernels.py,line=6" in "".join(errors)) == (whose == "WRONG")
    else:
        shown = named["gradcheck"]["artifacts"]["reports"]
        assert Path(shown["junit"]).exists()
        found = json.loads(Path(shown["codequality"]).read_text())
        places = [(f["location"]["path"], f["location"]["lines"]["begin"]) for f in found]
        assert places == [("kernels.py", 6)] * (whose == "WRONG")


@pytest.mark.slow(rest=1)
@pytest.mark.parametrize("whose", ["TALKS", "RAISES"])
def test_what_the_code_prints_is_no_command(init, runner, folder, whose):
    init("--ci", "github", "--impl", f"kernels:{whose}")
    done = runner(scripts("github")[1].replace("gradcheck run", f"gradcheck run {FEW}"))
    ((name, properties, _),) = done.commands
    assert (name, done.code) == ("error", 1)
    assert "title=mine" not in properties


@pytest.mark.slow
def test_a_run_that_never_began_fails_too(init, runner, folder):
    init("--ci", "github")
    done = runner(scripts("github")[1].replace("gradcheck run", "gradcheck run --op nosuch"))
    assert done.code == 2
    assert "unknown operator" in done.log


@pytest.mark.slow(keep=2)
@pytest.mark.parametrize("name", ["a b:IMPL", "$(touch pwned):X", "x'; touch pwned; '", "-x: #y"])
def test_a_name_is_one_word_of_the_command(service, init, runner, folder, name):
    init("--ci", service, f"--impl={name}", install=f"{name}/gradcheck")
    install, judge = scripts(service)
    done = runner(f"python() {{ printf '%s\\n' \"$@\"; }}; {install}")
    assert done.log.splitlines()[-1] == f"{name}/gradcheck"
    told = runner(f"gradcheck() {{ printf '%s\\n' \"$@\"; }}; {judge}").log.splitlines()
    assert f"--impl={name}" in told
    assert not Path("pwned").exists()


@pytest.mark.parametrize(
    "name", ["${{ secrets.TOKEN }}:X", "a\nb:X", "a\x1b[31m:X", " ", "a\u202e:X"]
)
def test_what_cannot_stand_in_a_workflow_is_refused(service, init, name):
    for words, install in (((f"--impl={name}",), "x"), ((), name)):
        code, told = init("--ci", service, *words, install=install)
        assert code == 2
        assert "cannot stand in a workflow" in told
    assert not SERVICES[service].exists()


def test_a_file_that_is_there_stays(service, init):
    path = SERVICES[service]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("mine")
    code, told = init("--ci", service)
    assert code == 2
    assert f"{path}: it exists; " in told
    assert " -o " in told
    assert path.read_text() == "mine"
    (beside,) = re.findall(r"-o (\S+?)[,\s]", told + " ")
    assert init("--ci", service, "-o", beside)[0] == 0
    assert yaml.safe_load(Path(beside).read_text())


def test_a_folder_that_cannot_be_written_is_said(service, init, folder):
    code, told = init("--ci", service, "-o", "nosuch/folder.yml")
    assert code == 2
    assert "nosuch/folder.yml: No such file" in told


def test_a_baseline_and_a_manifest_are_taken_up(service, init, folder):
    Path("known-failures.toml").write_text("")
    Path("gradcheck.toml").write_text("")
    _, told = init("--ci", service)
    assert "--impl=gradcheck.toml --baseline=known-failures.toml" in scripts(service)[1]
    assert f"{SERVICES[service]} judges gradcheck.toml" in told
    assert f"git add {SERVICES[service]} known-failures.toml gradcheck.toml &&" in told


def test_what_a_project_names_is_left_to_it(service, init, folder):
    Path("known-failures.toml").write_text("")
    Path("gradcheck.toml").write_text("")
    Path("pyproject.toml").write_text(
        '[tool.gradcheck]\nimpl = ["kernels:WRONG"]\nbaseline = "mine.toml"\n'
    )
    _, told = init("--ci", service)
    assert "judges what [tool.gradcheck] names" in told
    judge = scripts(service)[1]
    assert "--impl" not in judge
    assert "--baseline" not in judge


def test_nobodys_code_is_the_reference(service, init):
    _, told = init("--ci", service)
    assert "own reference (name yours with --impl)" in told


@pytest.mark.parametrize(
    "words", [("--ci", "github", "--lib", "x.so"), ("--ci", "gitlab", "--kind", "c"),
              ("--kind", "python", "--impl", "x:Y"), ("--impl", "x:Y")]
)  # fmt: skip
def test_flags_of_the_other_kind_are_refused(init, folder, words):
    assert init(*words)[0] == 2
    assert [p.name for p in folder.iterdir()] == ["kernels.py"]


class Found:
    """A distribution as an installer left it."""

    version = "0.1.0"

    def __init__(self, origin):
        self.origin = origin

    def read_text(self, name):
        assert name == "direct_url.json"
        return self.origin


@pytest.mark.parametrize(
    ("origin", "told"),
    [
        (None, "gradcheck==0.1.0"),
        (
            '{"url": "https://x.org/g.git", "vcs_info": {"vcs": "git", "commit_id": "abc"}}',
            "gradcheck @ git+https://x.org/g.git@abc",
        ),
        ('{"url": "file:///home/me", "dir_info": {"editable": true}}', ""),
        ('{"url": "file:///home/me/g.whl", "archive_info": {}}', ""),
        ("{", ""),
    ],
)
def test_what_is_installed_here_is_installed_there(monkeypatch, origin, told):
    monkeypatch.setattr(metadata, "distribution", lambda name: Found(origin))
    if told:
        assert installed() == told
    else:
        with pytest.raises(UsageError, match=r"from a folder of this machine.*--install"):
            installed()


def test_what_is_not_installed_at_all_must_be_said(monkeypatch, init, folder):
    def missing(name):
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr(metadata, "distribution", missing)
    code, told = init("--ci", "github", install="")
    assert code == 2
    assert "--install" in told
    assert os.listdir(folder) == ["kernels.py"]  # noqa: PTH208
