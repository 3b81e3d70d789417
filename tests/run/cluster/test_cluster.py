"""The same run on a Dask cluster: the same bytes, whoever is lost in the middle."""

import json
import signal
import subprocess
import sys

import pytest
from gradcheck_cases import SUITE

from gradcheck.cli.main import main
from gradcheck.errors import UsageError
from gradcheck.run.cluster.client import working
from gradcheck.run.plan import Plan
from tests.run.cluster.conftest import LONG, environment, gone, there

DASK = ("--executor", "dask")
KERNELS = """
import os, signal

def square(ct, x):
    return 2 * x * ct

def deadly(ct, x):
    print("::error::last words", flush=True)
    os.kill(os.getpid(), signal.SIGSEGV)

IMPL = {"square0": {"vjp": square}, "square1": {"vjp": deadly}, "square2": {"vjp": square}}
"""


@pytest.mark.slow
def test_records_are_the_same_on_two_workers(folder, cluster, alone):
    out, err, code = folder.run(*DASK, "--scheduler", cluster.address, "-o", "dask.json")
    assert (err, code) == ("", 0), out
    assert (folder.path / "dask.json").read_text() == alone


@pytest.mark.slow
def test_records_are_the_same_on_a_cluster_that_is_started_for_it(folder, alone, tmp_path_factory):
    temporary = tmp_path_factory.mktemp("temporary")
    before = {*folder.path.rglob("*")}
    out, err, code = folder.run(*DASK, "-j", "2", "-o", "dask.json", TMPDIR=str(temporary))
    assert (err, code) == ("", 0), out
    assert (folder.path / "dask.json").read_text() == alone
    new = {path.name for path in {*folder.path.rglob("*")} - before}
    assert {name for name in new if not name.endswith(".pyc")} <= {"dask.json", "__pycache__"}
    assert [*temporary.iterdir()] == []


@pytest.mark.slow(rest=0)
def test_a_worker_that_is_killed_loses_no_result(folder, cluster, alone):
    (folder.path / "hold").touch()
    with folder.begin(*DASK, "--scheduler", str(cluster.file), "-o", "dask.json") as run:
        judge, pid = folder.judging()
        (worker,) = (worker for worker in cluster.workers if worker.pid == pid)
        worker.kill()
        assert worker.wait(LONG) == -signal.SIGKILL
        assert gone(judge)
        folder.release()
        out, err = run.communicate(timeout=LONG)
    assert (err, run.returncode) == ("", 0), out
    assert (folder.path / "dask.json").read_text() == alone


def killed_while_it_loads(folder, worker):
    loads, pid = folder.judging("loading")
    assert pid == worker.pid
    worker.kill()
    assert worker.wait(LONG) == -signal.SIGKILL
    assert gone(loads)


@pytest.mark.slow
def test_a_worker_that_is_killed_while_it_loads_is_one_worker_less(folder, cluster, alone):
    worker = cluster.add(HOLDS_LOADING="1")
    with folder.begin(*DASK, "--scheduler", cluster.address, "-o", "dask.json") as run:
        killed_while_it_loads(folder, worker)
        out, err = run.communicate(timeout=LONG)
    assert (err, run.returncode) == ("", 0), out
    assert (folder.path / "dask.json").read_text() == alone


@pytest.mark.slow(rest=0)
def test_where_it_is_the_only_one_the_next_is_waited_for(folder, own, alone):
    worker = own.add(HOLDS_LOADING="1")
    with folder.begin(*DASK, "--scheduler", own.address, "-o", "dask.json") as run:
        killed_while_it_loads(folder, worker)
        own.add()
        out, err = run.communicate(timeout=LONG)
    assert (err, run.returncode) == ("", 0), out
    assert (folder.path / "dask.json").read_text() == alone


@pytest.mark.slow
def test_a_scheduler_that_is_lost_while_workers_load_leaves_an_empty_report(folder, own):
    own.add(HOLDS_LOADING="1")
    with folder.begin(*DASK, "--scheduler", own.address, "-o", "part.json") as run:
        folder.judging("loading")
        own.scheduler.kill()
        out, err = run.communicate(timeout=LONG)
    assert (err, run.returncode) == ("", 130)
    assert f"problem: the connection to the cluster at {own.address} was lost; what was" in out
    report = json.loads((folder.path / "part.json").read_text())
    assert (report["results"], report["footer"]["complete"]) == ([], False)


@pytest.mark.slow
def test_a_framework_of_another_version_is_refused_before_the_first_case(cluster, monkeypatch):
    monkeypatch.setattr("gradcheck.run.cluster.process.version", lambda package: "0.1")
    cases = SUITE.cases(["relu"])
    plan = Plan(suite=SUITE, cases=cases, implementations=["torch"], dtypes=["float64"], seed=0,
                executor="dask", scheduler=cluster.address)  # fmt: skip
    with (
        pytest.raises(UsageError, match=r": PyTorch \S+, not 0\.1 as here; it needs the same"),
        working(plan, cases),
    ):
        pytest.fail("it was begun")


@pytest.mark.slow
def test_what_kills_its_process_is_a_crash_and_kills_no_worker(folder, cluster):
    (folder.path / "kernels.py").write_text(KERNELS)
    (folder.path / "deadly").touch()
    words = (
        "--impl",
        "kernels:IMPL",
        "--no-isolate",
        "--no-contract",
        "--dtype",
        "float64",
        "--all",
    )
    out, err, code = folder.run(*DASK, "--scheduler", cluster.address, *words, "--format", "json")
    assert (err, code) == ("", 1)  # what it printed is in the log of its worker
    assert "| ::error::last words" in cluster.log()
    assert "\n::error" not in cluster.log()
    results = json.loads(out)["results"]
    assert len({r["name"] for r in results}) == 16
    crashed = {r["name"]: r for r in results if r["verdict"] == "crash"}
    assert [*crashed] == [
        "square1/default/typical/float64", "square1/default/small/float64",
        "square5/default/kills/float64",
    ]  # fmt: skip
    assert all(r["reason"].endswith("in 2 tries: SIGSEGV") for r in crashed.values())
    assert [bool(r["hash"]) for r in crashed.values()] == [True, True, False]
    right = [r for r in results if r["op"] in ("square0", "square2")]
    assert {r["verdict"] for r in right} == {"pass"}
    assert [w.poll() for w in cluster.workers].count(None) == 2


@pytest.mark.slow
def test_an_interrupted_run_leaves_a_report_and_a_cluster_to_use(folder, cluster):
    (folder.path / "hold").touch()
    words = (*DASK, "--scheduler", cluster.address, "--op", "square0", "--op", "held")
    with folder.begin(*words, "-o", "part.json") as run:
        judge, worker = folder.judging()
        run.send_signal(signal.SIGINT)
        out, err = run.communicate(timeout=LONG)
    assert (err, run.returncode) == ("", 130)
    assert "incomplete: interrupted" in out
    assert json.loads((folder.path / "part.json").read_text())["footer"]["complete"] is False
    assert gone(judge)  # although it would never have come to an end
    assert there(worker)
    folder.release()
    out, err, code = folder.run(*words)
    assert (err, code) == ("", 0), out


@pytest.mark.slow
def test_attacks_are_the_same_too(folder, cluster):
    words = ("--op", "square[01]", "-q", "-o")
    for name, where in (("one", ()), ("two", (*DASK, "--scheduler", cluster.address))):
        out, err, code = folder.run(*words, f"{name}.json", *where, command="power")
        assert (err, code) == ("", 0)
        assert "POWER pass mutants=0/0 equivalent=0 impostors=36/36" in out
    one, two = ((folder.path / f"{name}.json").read_bytes() for name in ("one", "two"))
    assert one == two


def test_attacks_that_are_made_here_alone(capsys):
    assert main(["power", "--contract", *DASK]) == 2
    wanted = "--rule and --contract run in this process; remove --executor"
    assert capsys.readouterr() == ("", f"gradcheck: {wanted}\n")


@pytest.mark.slow
def test_a_scheduler_that_is_lost_leaves_what_was_finished(folder, own):
    own.add("--nthreads", "2")
    (folder.path / "hold").touch()
    words = (*DASK, "--scheduler", own.address, "--op", "square0", "--op", "held")
    with folder.begin(*words, "-o", "part.json") as run:
        folder.judging()
        own.scheduler.kill()
        out, err = run.communicate(timeout=LONG)
    assert (err, run.returncode) == ("", 130)
    assert f"problem: the connection to the cluster at {own.address} was lost; what was" in out
    assert json.loads((folder.path / "part.json").read_text())["footer"]["complete"] is False


def unhappy(*words, before=""):
    """What the command says that runs in a process of its own, `before` it other things are so."""
    code = (
        f"{before}\nimport sys\nfrom gradcheck.cli.main import main\nsys.exit(main(sys.argv[1:]))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, "run", "--op", "relu", *words],
        env=environment(), capture_output=True, text=True, timeout=LONG,
        check=False,
    )  # fmt: skip
    assert (done.stdout, done.returncode) == ("", 2)
    (line,) = done.stderr.splitlines()
    return line.removeprefix("gradcheck: ")


@pytest.mark.slow
def test_a_scheduler_that_does_not_answer():
    soon = "import gradcheck.run.cluster.client as c; c.CONNECT_SECONDS = 0.5"
    said = unhappy(*DASK, "--scheduler", "127.0.0.1:1", before=soon)
    assert said.startswith("--scheduler 127.0.0.1:1: no Dask scheduler answers there")
    assert said.endswith("start one with `dask scheduler`, and give the address that it prints")


@pytest.mark.slow(rest=0)
def test_a_cluster_without_workers_and_one_with_a_worker_that_lacks_something(own, tmp_path):
    soon = "import gradcheck.run.cluster.client as c; c.JOIN_SECONDS = 0.5"
    said = unhappy(*DASK, "--scheduler", own.address, before=soon)
    assert said == (
        f"--scheduler {own.address}: it has no workers; start some: dask worker {own.address}"
    )
    other = tmp_path / "gradcheck"
    other.mkdir()
    (other / "__init__.py").touch()
    own.add(PYTHONPATH=f"{tmp_path}:{environment()['PYTHONPATH']}")
    said = unhappy(*DASK, "--scheduler", own.address)
    assert said.startswith("the worker at tcp://127.0.0.1:")
    assert "install the same gradcheck there as here" in said


def test_without_the_extra(monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "distributed", None)
    assert main(["run", "--op", "relu", *DASK]) == 2
    wanted = "--executor dask: Dask is not installed; run: pip install 'gradcheck[dask]'"
    assert capsys.readouterr() == ("", f"gradcheck: {wanted}\n")


def test_a_scheduler_for_nobody(capsys):
    assert main(["run", "--op", "relu", "--scheduler", "head:8786"]) == 2
    wanted = "--scheduler head:8786: nothing would run there; add --executor dask"
    assert capsys.readouterr() == ("", f"gradcheck: {wanted}\n")
