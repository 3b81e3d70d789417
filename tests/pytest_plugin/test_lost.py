"""Processes of xdist's that end while they judge: no result is lost."""

import json
import xml.etree.ElementTree as ET

import pytest

pytest.importorskip("xdist")

KERNELS = """
import os, signal
import numpy as np

def dies(): os.kill(os.getpid(), signal.SIGKILL)  # as nobody inside can prevent
def dies_once():
    try:
        os.close(os.open("died", os.O_CREAT | os.O_EXCL))
    except FileExistsError:
        return
    dies()

class Relu:
    vjp = staticmethod(lambda ct, x: ct * (x > 0))
class Neg:
    vjp = staticmethod(lambda ct, x: -ct)
class Once:
    def vjp(ct, x):
        dies_once()
        return ct * (1 - np.tanh(x) ** 2)
class Always:
    def vjp(ct, x): dies()

class Tanh:
    vjp = staticmethod(lambda ct, x: ct * (1 - np.tanh(x) ** 2))

RIGHT = {"relu": Relu, "tanh": Tanh, "neg": Neg}
ONCE = {"relu": Relu, "tanh": Once, "neg": Neg}
ALWAYS = {"relu": Relu, "tanh": Always, "neg": Neg}
"""
WORDS = (
    "--gradcheck-suite", "gradcheck_cases:SUITE", "--gradcheck-op", "relu", "--gradcheck-op", "neg",
    "--gradcheck-op", "tanh", "--gradcheck-sample", "typical", "--gradcheck-no-contract",
    "--gradcheck-no-isolate", "--gradcheck-report", "run.json",
)  # fmt: skip
TANH = "gradcheck::kernels:{}::tanh/default/typical/float32"
SCHEDULERS = (("load", 2), ("worksteal", 1), ("loadscope", 1))
"""Ways of sharing tests out among so many processes; one that is lost is replaced."""


@pytest.fixture
def judged(pytest_):
    def judge(impl, *words, processes=2):
        shared = ("-p", "xdist", "-n", str(processes)) if processes else ()
        return pytest_(*WORDS, "--gradcheck-impl", f"kernels:{impl}", *shared, *words, alone=True)

    return judge


@pytest.mark.slow(rest=1)
@pytest.mark.parametrize(("how", "processes"), SCHEDULERS)
def test_an_item_whose_process_is_killed_is_judged_by_another(judged, folder, how, processes):
    found = judged("ONCE", "--dist", how, "--junitxml", "out.xml", processes=processes)
    assert found.returncode == 0, found.stdout
    assert (folder / "died").exists()
    assert "6 passed, 1 retried" in found.stdout
    assert "\n6 checks passed\n" in found.stdout
    cases = [*ET.parse(folder / "out.xml").iter("testcase")]
    tried = [case for case in cases if case.get("name").startswith("tanh/default/typical/")]
    assert (len(cases), len(tried)) == (7, 3)
    (skipped,) = [child for case in cases for child in case]
    assert skipped.tag == "skipped"
    assert skipped.get("message").endswith("that judged it ended: tried again")
    run = json.loads((folder / "run.json").read_text())
    assert run["footer"]["complete"]
    assert [result["op"] for result in run["results"]].count("tanh") == 2


@pytest.mark.slow(rest=0)
def test_the_report_is_that_of_a_session_that_lost_nothing(judged, folder):
    words = ("--gradcheck-dtype", "float32")
    assert "1 retried" in judged("ONCE", *words, processes=1).stdout
    shared = (folder / "run.json").read_bytes()
    assert "retried" not in judged("ONCE", *words, processes=0).stdout
    assert (folder / "run.json").read_bytes() == shared


@pytest.mark.slow(rest=1)
@pytest.mark.parametrize(("how", "processes"), SCHEDULERS[::2])
def test_one_that_ends_every_process_fails_and_all_others_are_judged(
    judged, folder, how, processes
):
    found = judged("ALWAYS", "--dist", how, "--gradcheck-dtype", "float32", processes=processes)
    assert found.returncode == 1
    assert "1 failed, 2 passed, 1 retried" in found.stdout
    said = "the process of pytest's that judged it ended, in 2 tries"
    assert f"FAILED {TANH.format('ALWAYS')} - CRASH vjp: {said}\n" in found.stdout
    assert f"\nCRASH tanh/default/typical/float32 · vjp\n  {said}\n" in found.stdout
    assert "\n  run: gradcheck repro tanh/default/typical/float32 " in found.stdout
    assert "Traceback" not in found.stdout
    run = json.loads((folder / "run.json").read_text())
    verdicts = {result["op"]: result["verdict"] for result in run["results"]}
    assert verdicts == {"relu": "pass", "neg": "pass", "tanh": "crash"}


@pytest.mark.slow(rest=0)
def test_where_every_process_runs_all_a_loss_is_xdist_s_to_tell(judged, folder):
    found = judged("ALWAYS", "--dist", "each", "--gradcheck-dtype", "float32")
    assert found.returncode == 1, found.stdout
    assert f"FAILED {TANH.format('ALWAYS')} - worker 'gw" in found.stdout
    assert "INTERNALERROR" not in found.stdout


@pytest.mark.slow
def test_one_that_cannot_be_tried_again_fails(judged, folder):
    words = ("--max-worker-restart", "0", "--gradcheck-dtype", "float32")
    found = judged("ONCE", *words, processes=1)
    assert found.returncode == 1
    said = "the process of pytest's that judged it ended, and it was not tried again"
    assert f"FAILED {TANH.format('ONCE')} - NOTRUN vjp: {said}\n" in found.stdout
    assert "1 failed, 2 passed, 1 retried" in found.stdout
    run = json.loads((folder / "run.json").read_text())
    assert [r["verdict"] for r in run["results"] if r["op"] == "tanh"] == ["notrun"]


REVERSED = "def pytest_collection_modifyitems(items): items.reverse()\n"
TEARDOWN = """
import kernels
def pytest_runtest_teardown(item):
    if "tanh" in item.nodeid: kernels.dies_once()
"""


@pytest.mark.slow(rest=1)
@pytest.mark.parametrize("excused", ["retried", "heard"])
def test_a_loss_that_is_excused_hides_no_other(judged, folder, excused):
    (folder / "conftest.py").write_text(REVERSED + TEARDOWN * (excused == "heard"))
    (folder / "test_own.py").write_text("def test_own(): pass\n")
    (folder / "pytest.ini").write_text("[pytest]\npythonpath = .\n")
    impl = "ONCE" if excused == "retried" else "RIGHT"
    words = ("--max-worker-restart", "0", "--gradcheck-dtype", "float32")
    found = judged(impl, *words, processes=1)
    assert found.returncode == 1
    lines = [line for line in found.stdout.splitlines() if line.startswith("FAILED ")]
    gone = "processes of pytest's ended, and none took their place"
    retried = excused == "retried"
    assert len(lines) == 3 + retried
    assert "tanh" in lines[0] or not retried
    assert [line.endswith(f" - NOTRUN vjp: {gone}") for line in lines[retried:-1]] == [True, True]
    assert lines[-1].startswith("FAILED test_own.py::test_own")
    assert f"\nit was not run: {gone}\n" in found.stdout
    run = json.loads((folder / "run.json").read_text())
    assert len(run["results"]) == 3
    assert not run["footer"]["passed"]


@pytest.mark.slow(rest=0)
def test_what_was_reported_before_its_process_was_killed_is_not_run_again(judged, folder):
    (folder / "conftest.py").write_text(
        "import kernels\n"
        "def pytest_runtest_teardown(item):\n"
        "    if 'neg' in item.nodeid: kernels.dies_once()\n"
    )
    (folder / "pytest.ini").write_text("[pytest]\npythonpath = .\n")
    found = judged("ONCE", "--gradcheck-dtype", "float32", processes=1)
    assert (folder / "died").exists()
    assert found.returncode == 0, found.stdout
    assert "3 passed" in found.stdout
    assert "retried" not in found.stdout
    assert "\n3 checks passed\n" in found.stdout


@pytest.mark.slow(rest=0)
def test_somebody_else_s_test_is_not_run_twice(judged, folder):
    (folder / "test_own.py").write_text(
        "import os, signal\n"
        "def test_own():\n"
        "    open('began', 'a').write('.')\n"
        "    os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    found = judged("ONCE", "--gradcheck-dtype", "float32", processes=1)
    assert found.returncode == 1
    assert "1 failed, 3 passed, 1 retried" in found.stdout
    assert "crashed while running 'test_own.py::test_own'" in found.stdout
    assert (folder / "began").read_text() == "."
