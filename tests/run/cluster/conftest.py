"""A real scheduler and real workers, as processes of their own."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

pytest.importorskip("distributed")

LONG = 300
"""Seconds after which a test gives up what is to happen soon: a machine may be busy."""
MODULE = '''
import os, signal, time
from pathlib import Path
from gradcheck import OpSpec, Sample, Suite

HERE = Path(__file__).parent

if "HOLDS_LOADING" in os.environ:
    (HERE / "loading.new").write_text(f"{os.getpid()} {os.getppid()}")
    (HERE / "loading.new").rename(HERE / "loading")
    while True:
        time.sleep(1)


def stops(draw):
    """Say who judges this, and go on once nobody holds it."""
    if (HERE / "hold").exists():
        (HERE / "judging.new").write_text(f"{os.getpid()} {os.getppid()}")
        (HERE / "judging.new").rename(HERE / "judging")
    while (HERE / "hold").exists():
        time.sleep(0.01)
    return (draw.normal(3),)


def kills(draw):
    if (HERE / "deadly").exists():
        os.kill(os.getpid(), signal.SIGSEGV)
    return (draw.normal(2),)


def op(name, *more):
    return OpSpec(
        name=name,
        signature="()->()",
        forward=lambda xp, x: x * x,
        vjp=lambda xp, ct, x: 2 * x * ct,
        formula="y = x^2",
        source="a test",
        samples=(
            Sample(name="typical", primals=lambda draw: (draw.normal(4),), hunts="anything"),
            Sample(name="small", primals=lambda draw: (draw.normal(1),), hunts="sizes"),
            *more,
        ),
    )


OPS = [op(f"square{i}") for i in range(5)]
STOPS = Sample(name="stops", primals=stops, hunts="a worker that is lost")
KILLS = Sample(name="kills", primals=kills, hunts="inputs that take a process with them")
SUITE = Suite("dozen", "1", [*OPS[:2], op("held", STOPS), op("square5", KILLS), *OPS[2:]])
'''


DASK = """
import ctypes, runpy, signal
ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # tests that are killed leave no cluster behind
runpy.run_module("dask", run_name="__main__", alter_sys=True)
"""


class Folder:
    """Where a client is at work."""

    def __init__(self, path):
        self.path = path
        (path / "dozen.py").write_text(MODULE)

    def begin(self, *words, command="run", **env):
        return subprocess.Popen(
            [sys.executable, "-m", "gradcheck", command, "--suite", "dozen:SUITE", *words],
            cwd=self.path,
            env={**environment(), **env},
            text=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )

    def run(self, *words, **more):
        """What a run prints, says and returns."""
        with self.begin(*words, **more) as process:
            out, err = process.communicate(timeout=LONG)
        return out, err, process.returncode

    def judging(self, what="judging"):
        """Wait until a case is held: the process that judges it, and the worker behind that."""
        eventually((self.path / what).exists)
        return [int(pid) for pid in (self.path / what).read_text().split()]

    def release(self):
        (self.path / "hold").unlink()


@pytest.fixture(scope="session")
def alone(tmp_path_factory):
    """The report of a run without a cluster."""
    folder = Folder(tmp_path_factory.mktemp("alone"))
    out, err, code = folder.run("-o", "alone.json")
    assert (err, code) == ("", 0), out
    return (folder.path / "alone.json").read_text()


@pytest.fixture
def folder(tmp_path):
    return Folder(tmp_path)


def environment():
    return {**os.environ, "PYTHONPATH": ":".join(p for p in sys.path if p)}


class Cluster:
    """A scheduler and workers, each a process."""

    def __init__(self, path):
        self.path, self.processes = path, []
        self.file = path / "scheduler.json"
        self.scheduler = self._start(
            "scheduler", "--host", "127.0.0.1", "--port", "0", "--no-dashboard",
            "--scheduler-file", str(self.file),
        )  # fmt: skip
        self.address = self._address()

    @property
    def workers(self):
        """The processes of workers, some of which may have ended."""
        return self.processes[1:]

    def add(self, *words, **env):
        """One more worker, which the scheduler knows."""
        before = self._known()
        worker = self._start(
            "worker", "--scheduler-file", str(self.file), "--no-dashboard", "--no-nanny",
            "--local-directory", str(self.path), *words, **env,
        )  # fmt: skip
        eventually(lambda: self._known() > before or worker.poll() is not None)
        assert worker.poll() is None, self.log()
        return worker

    def close(self):
        for process in self.processes:
            process.send_signal(signal.SIGKILL)
            process.wait(LONG)

    def _known(self):
        return len(re.findall("Registered to:", self.log()))

    def log(self):
        return (self.path / "log").read_text()

    def _start(self, *words, **env):
        with (self.path / "log").open("a") as log:
            process = subprocess.Popen(
                [sys.executable, "-c", DASK, *words],
                cwd=self.path, env={**environment(), **env}, stdout=log, stderr=log,
            )  # fmt: skip
        self.processes.append(process)
        return process

    def _address(self):
        deadline = time.monotonic() + LONG
        while time.monotonic() < deadline:
            try:
                return json.loads(self.file.read_text())["address"]
            except (OSError, ValueError):
                time.sleep(0.05)
        raise AssertionError("no scheduler: " + self.log())


@pytest.fixture(scope="session")
def shared(tmp_path_factory):
    made = Cluster(tmp_path_factory.mktemp("cluster"))
    yield made
    made.close()


@pytest.fixture
def cluster(shared):
    """A scheduler, and two workers that live when a test begins; it may end one of them."""
    while len([w for w in shared.workers if w.poll() is None]) < 2:
        shared.add("--nthreads", str(1 + len(shared.workers) % 2))
    return shared


@pytest.fixture
def own(tmp_path_factory):
    """A scheduler without workers, for a test that ends it, or adds strange ones."""
    made = Cluster(tmp_path_factory.mktemp("own"))
    yield made
    made.close()


def there(pid):
    """Whether a process is at work."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def gone(pid):
    """Whether a process ends; this waits for it."""
    eventually(lambda: not there(pid))
    return True


def eventually(happened):
    """Wait until something has happened."""
    deadline = time.monotonic() + LONG
    while not happened():
        assert time.monotonic() < deadline, "it never happened"
        time.sleep(0.01)
