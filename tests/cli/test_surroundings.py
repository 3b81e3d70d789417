"""What a command finds around it: folders, descriptors, files that are none, signals."""

import json
import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest

LIMIT = 300
PROGRAM = (sys.executable, "-m", "gradcheck")
RELU = ("run", "--op", "relu", "--sample", "typical", "--dtype", "float64", "--no-contract")
SLOW = """
import os, time
from kernels import relu
def waits(ct, x):
    open("began", "x").close()
    time.sleep(1000)
IMPL = {"relu": {"vjp": relu}, "tanh": {"vjp": waits}}
"""
WITHOUT = ("--version", "schema", "completion", "diff", "demo")
"""Commands that take no suite."""
STAYS_ONCE = """import numpy
    if os.path.exists("began"): return ct * (1 - numpy.tanh(x) ** 2)
    open("began", "x").close()"""
MEMORY = 3 << 30
"""Bytes of address space."""


@pytest.fixture
def started(environment):
    """`started(*words, shell=)`: a command in a process of its own, begun by a shell's words."""
    processes = []

    def call(*words, shell=""):
        suite = () if words[0] in WITHOUT else ("--suite", "gradcheck_cases:SUITE")
        process = subprocess.Popen(
            ["bash", "-c", f'{shell} exec "$@"', "-", *PROGRAM, *words, *suite],
            env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
            start_new_session=True,
        )  # fmt: skip
        processes.append(process)
        return process

    yield call
    for process in processes:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate(timeout=LIMIT)


def begun(process):
    """Wait until the code judged is at work."""
    deadline = time.monotonic() + LIMIT
    while not Path("began").exists():
        assert process.poll() is None, process.communicate(timeout=LIMIT)
        assert time.monotonic() < deadline
        time.sleep(0.01)


# ── modules ──────────────────────────────────────────────────────────────────────────────────


@pytest.fixture
def shadows():
    """A folder full of modules that are named like Python's and like what is installed.

    What Python itself imports before `-m` gives us a say is left out.
    """
    words = [sys.executable, "-P", "-c", "import runpy, importlib.util, sys; print(*sys.modules)"]
    before = subprocess.run(words, capture_output=True, text=True, check=True, timeout=LIMIT)
    installed = {"numpy", "msgspec", "mpmath", "jinja2", "tabulate", "markupsafe", "ml_dtypes",
                 "shtab", "pycparser", "elftools"}  # fmt: skip
    for name in (sys.stdlib_module_names | installed) - {*before.stdout.split()}:
        Path(f"{name}.py").write_text(f"open('{Path.cwd()}/ran', 'a').write('{name} ')\n")
    return Path("ran")


@pytest.mark.slow(rest=1)
@pytest.mark.parametrize(
    "words",
    [
        "list",
        "run --op relu --sample typical -j 2 -o new.json -o new.html -o new.jsonl -o new.xml",
        "report run.json --baseline known.toml --format markdown",
        "diff run.json run.json --format html",
        "export cases --op relu --sample typical",
        "run --op relu --sample typical --impl kernels:RIGHT -j 2",
        "repro relu/default/typical/float64 --impl kernels:RIGHT --export script.py",
    ],
)
def test_no_module_of_the_working_directory_takes_another_s_place(started, run, shadows, words):
    assert run(*RELU[1:], "-o", "run.json").code == 0
    Path("known.toml").touch()
    process = started(*words.split())
    out, err = process.communicate(timeout=LIMIT)
    assert not shadows.exists(), shadows.read_text()
    assert process.returncode == 0, out + err


@pytest.mark.slow
def test_a_user_s_module_that_another_one_hides_is_named(run):
    Path("random.py").write_text("from kernels import RIGHT\n")
    Path("jinja2.py").write_text("from kernels import RIGHT\n")
    for name, why in (("random", "Python has a module of that name"), ("jinja2", "site-packages")):
        found = run("--op", "relu", "--impl", f"{name}:RIGHT", isolate=True)
        assert found.code == 3
        assert why in found.err.splitlines()[-1]
        assert f"{name}.py" in found.err.splitlines()[-1]


@pytest.mark.slow
def test_a_manifest_s_folder_comes_before_the_working_directory(run):
    Path("inner").mkdir()
    Path("inner/g.toml").write_text(
        'schema = 1\n[impl]\nname = "mine"\n[python]\nentry = "mine:SQUARE"\n'
    )
    Path("inner/mine.py").write_text("from kernels import SQUARE\n")
    Path("mine.py").write_text("SQUARE = {}\n")
    words = ("--suite", "kernels:SUITE", "--impl", "inner/g.toml", "--format", "json")
    counts = json.loads(run(*words, isolate=True).out)["footer"]["counts"]
    assert counts["fail"]


# ── descriptors ──────────────────────────────────────────────────────────────────────────────


@pytest.mark.slow(rest=1)
@pytest.mark.parametrize(
    ("closed", "jobs"),
    [("<&-", "1"), ("<&-", "2"), (">&-", "1"), ("2>&-", "2"), ("<&- >&- 2>&-", "1")],
)
def test_closed_descriptors_are_no_other_s(started, closed, jobs):
    words = (*RELU, "--impl", "kernels:RIGHT", "-j", jobs, "-o", "out.json")
    process = started(*words, shell=f"exec {closed};")
    out, err = process.communicate(timeout=LIMIT)
    assert (process.returncode, err) == (0, "")
    assert ("RESULT pass" in out) is (">&-" not in closed.split())
    assert json.loads(Path("out.json").read_text())["footer"]["passed"] is True


@pytest.mark.slow(keep=1)
@pytest.mark.parametrize("path", ["/dev/stdout:json", "/dev/fd/1:json", "/proc/self/fd/1:html"])
def test_a_report_that_nobody_can_get_is_refused(started, path):
    process = started(*RELU, "-o", path, shell="exec >&-;")
    _, err = process.communicate(timeout=LIMIT)
    name = path.partition(":")[0]
    assert (process.returncode, err) == (2, f"gradcheck: -o {name}: it is closed; name a file\n")


@pytest.mark.slow
def test_a_log_that_is_read_no_more_ends_no_run(started):
    words = (*RELU, "--impl", "kernels:PRINTS", "--progress", "-o", "out.json")
    process = started(*words, shell="exec 2> >(exec true); wait $!;")
    out, _ = process.communicate(timeout=LIMIT)
    assert process.returncode == 0
    assert "RESULT pass" in out


# ── folders and files ────────────────────────────────────────────────────────────────────────


@pytest.mark.slow(keep=1, rest=5)
@pytest.mark.parametrize(
    ("words", "code"),
    [
        ("--version", 0),
        ("list", 0),
        ("report {run} --format concise", 0),
        ("run --op relu", 2),
        ("run --op relu --no-config --impl kernels:RIGHT", 2),
        ("repro relu/default/typical/float64 --impl kernels:RIGHT", 2),
        ("baseline check known.toml", 2),
        ("init --kind python", 2),
        ("export cases --op relu", 2),
        ("judge cases", 2),
        ("probe true", 2),
    ],
)
def test_a_working_directory_that_is_gone_is_one_line_at_most(run, started, words, code):
    assert run(*RELU[1:], "-o", "run.json").code == 0
    here = Path.cwd()
    Path("gone").mkdir()
    command = words.format(run=here / "run.json").split()
    process = started(*command, shell="cd gone; rmdir ../gone;")
    _, err = process.communicate(timeout=LIMIT)
    assert process.returncode == code, err
    assert len(err.splitlines()) == (code > 0)
    assert "Traceback" not in err


@pytest.fixture
def odd():
    """Names of what is no file that could be read."""
    os.mkfifo("pipe")
    Path("folder").mkdir()
    Path("zero").symlink_to("/dev/zero")
    with Path("huge").open("w") as file:
        file.truncate(1 << 40)
    for name in ("pipe", "folder", "zero", "huge"):
        Path(f"{name}.toml").symlink_to(name)


@pytest.mark.usefixtures("odd")
def test_what_is_no_file_is_one_line(run):
    commands = ("report {}", "merge {}", "diff {} {}", "report {} --baseline {}", "judge {}")
    for name in ("pipe", "folder", "zero", "huge", "/dev/zero"):
        for words in commands:
            command, *others = words.format(*[name] * 2).split()
            found = run(*others, command=command)
            assert (found.code, found.out) == (2, ""), words
            assert found.err.startswith(f"gradcheck: {name}")
            assert found.err.count("\n") == 1


@pytest.mark.slow(keep=1)
@pytest.mark.parametrize("name", ["pipe", "folder", "zero", "huge"])
@pytest.mark.usefixtures("odd")
def test_nor_is_it_a_manifest_a_project_or_what_failed_last(run, name):
    assert run(*RELU[1:], "--impl", f"{name}.toml").code == (2 if name == "huge" else 3)
    Path(".gradcheck_cache").mkdir()
    Path(".gradcheck_cache/failed.json").symlink_to(f"../{name}")
    assert run(*RELU[1:], "--lf").code == 0
    Path("pyproject.toml").symlink_to(name)
    found = run(*RELU[1:])
    if name == "folder":  # it says nothing to anybody
        assert found.code == 0
        return
    assert (found.code, found.err.count("\n")) == (2, 1)
    assert found.err.startswith("gradcheck: pyproject.toml: ")
    assert run(*RELU[1:], "--no-config").code == 0


@pytest.mark.slow(keep=1)
@pytest.mark.parametrize("source", ["< /dev/zero", "< <(yes)", "< <(cat /dev/zero)", "<&-"])
def test_a_report_on_stdin_may_be_endless(started, source):
    process = started("report", "-", shell=f"ulimit -v {MEMORY >> 10}; exec {source};")
    out, err = process.communicate(timeout=LIMIT)
    assert (process.returncode, out, err.count("\n")) == (2, "", 1)
    assert err.startswith("gradcheck: /dev/stdin: ")


# ── signals ──────────────────────────────────────────────────────────────────────────────────


@pytest.mark.slow(rest=1)
@pytest.mark.parametrize(
    ("kind", "jobs"), [(signal.SIGHUP, "1"), (signal.SIGHUP, "2"), (signal.SIGQUIT, "2")]
)
def test_whatever_asks_a_run_to_end_leaves_a_report(started, kind, jobs):
    Path("slow.py").write_text(SLOW)
    words = ("run", "--op", "relu", "--op", "tanh", "--impl", "slow:IMPL", "-j", jobs)
    process = started(*words, "--timeout", "1000", "-o", "out.json", "-o", "out.jsonl")
    begun(process)
    os.killpg(process.pid, kind)  # as a terminal does
    out, _ = process.communicate(timeout=LIMIT)
    assert process.returncode == 130
    assert "incomplete: interrupted" in out
    footer = json.loads(Path("out.json").read_text())["footer"]
    assert (footer["complete"], footer["passed"]) == (False, False)
    last = json.loads(Path("out.jsonl").read_text().splitlines()[-1])
    assert last["footer"]["complete"] is False


@pytest.mark.slow
def test_what_is_ignored_stays_ignored(started):
    Path("slow.py").write_text(SLOW.replace("time.sleep(1000)", "time.sleep(0.5)\n    return -ct"))
    words = (*RELU[:1], "--op", "tanh", *RELU[3:], "--impl", "slow:IMPL", "--timeout", "100")
    process = started(*words, shell="trap '' INT HUP QUIT TERM;")
    begun(process)
    for kind in (signal.SIGHUP, signal.SIGQUIT, signal.SIGTERM, signal.SIGINT):
        process.send_signal(kind)
    out, _ = process.communicate(timeout=LIMIT)
    assert process.returncode == 1
    assert "RESULT fail" in out


@pytest.mark.slow(keep=1)
@pytest.mark.parametrize("module", ["gradcheck.cli.main", "gradcheck.cli.run", "numpy"])
def test_ctrl_c_within_an_import_is_no_traceback(environment, module):
    """As if it came while `module` is imported."""
    program = (
        "import runpy, sys\n"
        "class Asked:\n"
        "    def find_spec(self, name, *rest):\n"
        f"        if name == {module!r}: raise KeyboardInterrupt\n"
        "sys.meta_path.insert(0, Asked())\n"
        f"sys.argv[1:] = {[*RELU]!r}\n"
        "runpy.run_module('gradcheck', run_name='__main__')\n"
    )
    found = subprocess.run(
        [sys.executable, "-c", program], env=environment, capture_output=True, text=True,
        timeout=LIMIT, check=False,
    )  # fmt: skip
    assert found.returncode == 130
    assert found.stderr in ("", "gradcheck: interrupted\n")


@pytest.mark.slow
def test_a_fork_server_that_is_killed_costs_no_result(started):
    Path("slow.py").write_text(SLOW.replace('open("began", "x").close()', STAYS_ONCE))
    words = ("--op", "relu", "--op", "tanh", *RELU[3:], "--impl", "slow:IMPL", "-j", "2")
    process = started("run", *words, "--timeout", "1000", "-o", "out.json")
    begun(process)
    for pid in Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split():
        if b"gradcheck.run.workers.fork_server" in Path(f"/proc/{pid}/cmdline").read_bytes():
            os.kill(int(pid), signal.SIGKILL)
    out, _ = process.communicate(timeout=LIMIT)
    assert (process.returncode, "RESULT pass" in out) == (0, True), out
    footer = json.loads(Path("out.json").read_text())["footer"]
    assert (footer["complete"], footer["passed"]) == (True, True)
