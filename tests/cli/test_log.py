"""What is computed is kept: killed at any moment, on a full disk, in shards, and rendered again."""

import errno
import hashlib
import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

from gradcheck.report import FORMATS
from gradcheck.results.stored.read import CUT, read
from gradcheck.results.verdict import Gate

SLOW = r"""
import os, time
import numpy as np
from pathlib import Path
from gradcheck import OpSpec, Sample, Suite

def square(xp, x): return x * x
def double(xp, ct, x): return 2 * ct * x
def point(draw): return (draw.normal(3),)

def op(name):
    return OpSpec(name=name, signature="()->()", forward=square, vjp=double, formula="x^2",
                  source="none", samples=(Sample(name="only", primals=point, hunts="2"),))

NAMES = [f"square{i:02}" for i in range(12)]
SUITE = Suite("slow", "1", [op(name) for name in NAMES])

def sleeps(ct, x):
    time.sleep(0.002)
    return 2 * ct * x

def hangs(ct, x):
    while not Path("go").exists():
        time.sleep(0.01)
    return 2 * ct * x

def marks(ct, x):
    Path("seen").touch()
    return hangs(ct, x)

def stops(ct, x):
    while Path("held").exists():
        time.sleep(0.01)
    return sleeps(ct, x)

SLEEPS = {name: {"vjp": sleeps} for name in NAMES} | {NAMES[6]: {"vjp": stops}}
RIGHT = {name: {"vjp": lambda ct, x: 2 * ct * x} for name in NAMES}
WRONG = RIGHT | {"square03": {"vjp": lambda ct, x: 3 * ct * x}}
HANGS = RIGHT | {NAMES[0]: {"vjp": hangs}, NAMES[-1]: {"vjp": marks}}
"""

FORKED = r"""
import json, os, resource, signal, sys, time
from pathlib import Path
import gradcheck.run.execute, gradcheck.report.html, gradcheck.results.stored.log, slow
from gradcheck.cli.main import main

def child(number, words, limit, deadly):
    with open(f"{number}.out", "w") as out:
        os.dup2(out.fileno(), 1)
        os.dup2(out.fileno(), 2)
    if limit is not None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
    if deadly is not None:
        where, name = deadly
        def dies(*_, **__): os.kill(os.getpid(), signal.SIGKILL)
        setattr(os if where == "os" else Path, name, dies)
    code = main([*words, "--suite", "slow:SUITE", "-q", "--no-isolate"])
    sys.stdout.flush()
    os._exit(code)

for number, task in enumerate(json.loads(sys.argv[1])):
    if "results" in task:
        Path("held").touch()
    pid = os.fork()
    if pid == 0:
        child(number, task["words"], task.get("limit"), task.get("deadly"))
    if "delay" in task:
        while not Path(f"{number}.jsonl").exists():
            time.sleep(0.001)
        time.sleep(task["delay"])
        while Path(f"{number}.jsonl").read_bytes().count(b"\n") <= task.get("results", -1):
            time.sleep(0.001)
        os.kill(pid, signal.SIGKILL)
    print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), flush=True)
"""


@pytest.fixture(autouse=True)
def slow():
    """A suite of twelve cases, `slow:SUITE`, and implementations of it."""
    Path("slow.py").write_text(SLOW)


@pytest.fixture
def forked(environment):
    """Runs in processes that begin in no time, in `N.jsonl`, `N.json` and `N.out`; exit codes."""

    def call(*tasks):
        done = subprocess.run(
            [sys.executable, "-c", FORKED, json.dumps(tasks)], env=environment, check=True,
            capture_output=True, text=True,
        )  # fmt: skip
        return [int(line) for line in done.stdout.split()]

    return call


@pytest.fixture
def begun(environment):
    """A command in a process of its own that finds `slow`, under way."""
    here = {**environment, "PYTHONPATH": f"{environment['PYTHONPATH']}{os.pathsep}{Path.cwd()}"}

    def call(*words, **options):
        streams = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **options}
        return subprocess.Popen([sys.executable, "-m", "gradcheck", *words], env=here, **streams)

    return call


@pytest.fixture
def there(begun):
    """The same, ended."""

    def call(*words, **options):
        with begun(*words, **options) as one:
            out, err = one.communicate()
        return subprocess.CompletedProcess(words, one.returncode, out, err)

    return call


def words(number, *more, impl="slow:SLEEPS"):
    kept = ["-o", f"{number}.jsonl", "-o", f"{number}.json"]
    return ["run", "--impl", impl, *kept, "--no-contract", *more]


@pytest.fixture
def again(run):
    """`gradcheck report LOG`."""
    return lambda *words: run(*map(str, words), command="report")


# ── killed ───────────────────────────────────────────────────────────────────────────────────

DELAYS = (0, 0.002, 0.005, 0.01, 0.02, 0.03, 0.045, 0.06, 0.08, 0.1, 0.13, 0.17)


@pytest.mark.slow
def test_a_run_that_is_killed_leaves_what_it_knew(forked, again):
    for number in range(1, len(DELAYS) + 2):
        Path(f"{number}.json").write_text("the one before\n")
    tasks = [{"words": words(n), "delay": d} for n, d in enumerate(DELAYS, 1)]
    tasks.append({"words": words(len(tasks) + 1), "delay": 0, "results": 12})  # held at the next
    codes = forked({"words": words(0)}, *tasks)
    assert codes[0] == 0
    assert set(codes[1:]) <= {0, -signal.SIGKILL}
    whole, report = Path("0.jsonl").read_bytes(), Path("0.json").read_bytes()
    partial = 0
    for number in range(1, len(DELAYS) + 2):
        assert Path(f"{number}.json").read_bytes() in (b"the one before\n", report)
        cut = Path(f"{number}.jsonl").read_bytes()
        assert whole.startswith(cut)
        found = again(f"{number}.jsonl", "--format", "json")
        if b"\n" not in cut:
            assert found.code == 2
            assert "the run was killed as it began" in found.err
        elif len(cut) < len(whole):
            partial += 1
            assert found.code == 130
            shown = json.loads(found.out)
            assert shown["footer"]["complete"] is shown["footer"]["passed"] is False
            assert shown["footer"]["stopped"] == CUT
            assert len(shown["results"]) == cut.count(b"\n") - 1
    assert partial


@pytest.mark.slow(rest=2)
@pytest.mark.parametrize("deadly", [("os", "fsync"), ("Path", "replace"), ("Path", "chmod")])
def test_a_report_that_is_killed_leaves_the_old_one(forked, deadly):
    Path("0.json").write_text("the one before\n")
    assert forked({"words": words(0), "deadly": deadly}) == [-signal.SIGKILL]
    assert Path("0.json").read_text() == "the one before\n"
    assert read(Path("0.jsonl")).complete  # it had been sealed


# ── a full disk ──────────────────────────────────────────────────────────────────────────────


@pytest.mark.slow
def test_a_disk_that_fills_up_costs_the_log_its_end_and_the_run_nothing(forked, again):
    Path("1.json").write_text("the one before\n")
    codes = forked({"words": words(0)}, {"words": words(1), "limit": 20_000})
    assert codes == [0, 2]
    whole, cut = Path("0.jsonl").read_bytes(), Path("1.jsonl").read_bytes()
    assert cut == whole[:20_000]
    assert Path("1.json").read_text() == "the one before\n"
    said = [line for line in Path("1.out").read_text().splitlines() if ": -o " in line]
    number = cut.count(b"\n") - 1
    assert said == [
        f"gradcheck: -o 1.jsonl: {os.strerror(errno.EFBIG)}: it ends after {number} of 24 results; "
        "all of them are on stdout",
        f"gradcheck: -o 1.json: {os.strerror(errno.EFBIG)}; the results are on stdout",
    ]
    assert "RESULT pass checked=24 " in Path("1.out").read_text()
    assert len(list(Path().glob(".1.json*"))) == 0
    found = again("1.jsonl")
    assert found.code == 130
    assert f"incomplete: {CUT[:40]}" in found.out


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full here")
def test_a_log_on_a_full_device_costs_the_exit_code_alone(run):
    one = ("--op", "relu", "--sample", "typical", "--dtype", "float64")
    found = run(*one, "-o", "/dev/full:jsonl")
    assert found.code == 2
    assert found.err == (
        "gradcheck: -o /dev/full: No space left on device: it ends after 0 of 2 results; all of "
        "them are on stdout\n"
    )
    assert "RESULT pass checked=2 " in found.out
    assert (
        run(*one, "--impl", "raising:X", "--impl", "reference", "-o", "/dev/full:jsonl").code == 3
    )


# ── several jobs, Ctrl-C ─────────────────────────────────────────────────────────────────────


HANGS = ("--suite", "slow:SUITE", "-j", "2", "--no-isolate")


@pytest.mark.slow(rest=1)
@pytest.mark.parametrize("sent", [signal.SIGINT, signal.SIGTERM])
def test_what_other_jobs_had_finished_is_in_the_log(begun, again, sent):
    with begun(*words(0, *HANGS, impl="slow:HANGS")) as one:
        while not Path("seen").exists():
            assert one.poll() is None
            time.sleep(0.01)
        # the last case is begun: that of the one before it was heard before it was sent
        before = read(Path("0.jsonl"))
        one.send_signal(sent)
        one.communicate()
    assert one.returncode == 130
    assert before.results == ()
    found = read(Path("0.jsonl"))
    assert found.stopped == "interrupted; not reached: 2 of 12 cases"
    assert [*dict.fromkeys(r.case.op for r in found.results)] == [
        f"square{i:02}" for i in range(1, 11)
    ]
    assert found == read(Path("0.json"))
    assert again("0.jsonl").code == 130


@pytest.mark.slow
def test_a_log_grows_while_several_jobs_go_on(begun):
    Path("slow.py").write_text(SLOW.replace("NAMES[0]: {", "NAMES[2]: {"))
    with begun(*words(0, *HANGS, "--op", "square0[012]", impl="slow:HANGS")) as one:
        ops = set()
        while ops < {"square00", "square01"}:
            assert one.poll() is None
            time.sleep(0.02)
            if Path("0.jsonl").exists() and b"\n" in Path("0.jsonl").read_bytes():
                ops = {result.case.op for result in read(Path("0.jsonl")).results}
        Path("go").touch()
        one.communicate()
    assert one.returncode == 0
    assert read(Path("0.jsonl")).complete


# ── the first failure ends it ────────────────────────────────────────────────────────────────

FIRST = ("--suite", "slow:SUITE", "--impl", "slow:WRONG", "--no-contract", "-x")
STOPPED = "stopped at the first failure (-x); not reached: 8 of 12 cases"


def test_the_first_failure_ends_the_run(run, again):
    found = run(*FIRST, "-o", "x.jsonl", "-o", "x.json", "-o", "x.md")
    assert found.code == 1
    assert f"\nincomplete: {STOPPED}\n" in found.out
    assert f"incomplete: {STOPPED}" in Path("x.md").read_text().replace("\\", "")
    kept = read(Path("x.jsonl"))
    assert [*dict.fromkeys(r.case.op for r in kept.results)] == [f"square0{i}" for i in range(4)]
    assert (kept.complete, kept.stopped) == (False, STOPPED)
    assert kept == read(Path("x.json"))
    assert again("x.jsonl").code == again("x.json").code == 1


@pytest.mark.slow(rest=0)
def test_several_jobs_end_at_the_same_one(there):
    one, two = (there("run", *FIRST, "--format", "jsonl", "-j", jobs) for jobs in ("1", "2"))
    assert (one.returncode, two.returncode) == (1, 1)
    assert one.stdout == two.stdout
    assert STOPPED in one.stdout.decode()


def test_a_failure_that_is_known_does_not_end_it(run):
    Path("known.toml").write_text(
        'suite = "1"\n[[known]]\nmatch = "square03/*/*/float*"\noutput = "dx"\nverdict = "fail"\n'
        'reason = "3"\n'
    )
    found = run(*FIRST, "--baseline", "known.toml")
    assert found.code == 0
    assert "incomplete" not in found.out
    other = Path("known.toml").read_text().replace("output", 'class = "sign"\noutput')
    Path("known.toml").write_text(other)
    found = run(*FIRST, "--baseline", "known.toml")
    assert found.code == 1
    assert f"\nincomplete: {STOPPED}\n" in found.out


def test_a_failure_in_the_last_case_leaves_nothing_out(run):
    found = run(*FIRST, "--op", "square0[0-3]")
    assert found.code == 1
    assert "incomplete" not in found.out


def test_without_a_failure_all_is_judged(run):
    found = run("--suite", "slow:SUITE", "-x", "--format", "json")
    assert found.code == 0
    assert json.loads(found.out)["footer"]["complete"] is True


# ── rendered again ───────────────────────────────────────────────────────────────────────────

KEPT = ("--impl", "slow:WRONG", "--suite", "slow:SUITE", "--op", "square0[2-4]", "--no-contract")


@pytest.mark.slow(keep=1)
@pytest.mark.parametrize("kept", ["run.jsonl", "run.json"])
def test_every_format_is_what_the_run_itself_would_have_written(run, again, kept, untimed):
    targets = [word for form in FORMATS for word in ("-o", f"once.{form}:{form}")]
    first = run(*KEPT, *targets, "-o", kept)
    second = again(kept, *[word.replace("once", "again") for word in targets])
    shown = untimed(first.out)
    assert shown != first.out
    assert (first.code, shown, first.err) == (second.code, second.out, second.err)
    for form in FORMATS:
        assert Path(f"once.{form}").read_bytes() == Path(f"again.{form}").read_bytes()


def test_times_are_written_only_where_they_are_asked_for(run, again):
    names = [f"{form}:{form}" for form in FORMATS if form != "terminal"]
    for folder, more in (("one", ()), ("two", ()), ("timed", ("--durations", "2"))):
        targets = [word for name in names for word in ("-o", f"{folder}/{name}")]
        Path(folder).mkdir()
        found = run("--suite", "slow:SUITE", "--dtype", "float64", *more, *targets)
        assert found.code == 0
    assert re.search(r"\nslowest 2 cases\n( +\d+\.\d\d s  square\d\d/default/only\n){2}", found.out)
    for form in FORMATS:
        if form != "terminal":
            one, two, timed = (Path(f"{f}/{form}").read_bytes() for f in ("one", "two", "timed"))
            assert one == two
            assert (one == timed) == (form != "junit"), form
    times = {case.get("time") for case in ET.parse("one/junit").iter("testcase")}
    assert times == {"0"}
    times = [float(case.get("time")) for case in ET.parse("timed/junit").iter("testcase")]
    assert any(times)
    stored = again("timed/json")  # which has no seconds
    assert "slowest" not in stored.out
    assert stored.out.endswith(again("one/json").out[-100:])


KNOWN = '[[known]]\nmatch = "square03/*/*/*"\noutput = "dx"\nverdict = "fail"\nreason = "3"\n'


def test_a_log_knows_its_baseline_and_takes_another(run, again, untimed):
    Path("known.toml").write_text(KNOWN)
    targets = [word for form in FORMATS for word in ("-o", f"once.{form}:{form}")]
    first = run(*KEPT, "--baseline", "known.toml", *targets)
    assert (first.code, "XFAIL" in first.out) == (0, True)
    for kept in ("once.jsonl", "once.json"):
        second = again(kept, *[word.replace("once", "again") for word in targets])
        assert (second.code, second.out) == (0, untimed(first.out))
        for form in FORMATS:
            assert Path(f"once.{form}").read_bytes() == Path(f"again.{form}").read_bytes()
        held = again(kept, "--baseline", "known.toml", "--suite", "slow:SUITE")
        assert (held.code, held.out) == (0, untimed(first.out))
    Path("known.toml").write_text("")
    assert again("once.jsonl").code == 0  # as it was then
    assert again("once.jsonl", "--baseline", "known.toml", "--suite", "slow:SUITE").code == 1
    wrong = again("once.json", "--baseline", "known.toml")
    assert wrong.code == 2
    assert "its suite is slow 1, expected builtin" in wrong.err


def test_what_closes_the_gate_is_in_the_log(run, again, untimed):
    Path("known.toml").write_text(KNOWN.replace("square03", "square02"))  # it passes
    first = run(*KEPT, "--baseline", "known.toml", "-o", "run.jsonl")
    second = again("run.jsonl")
    assert (first.code, second.code) == (1, 1)
    assert second.out == untimed(first.out)
    assert second.out.count(" XPASS: ") == second.out.count("known.toml: UNLISTED: ") == 1


def test_a_log_says_which_baseline_it_was(run):
    Path("known.toml").write_text(KNOWN)
    run(*KEPT, "--baseline", "known.toml", "-o", "run.jsonl")
    run(*KEPT, "-o", "bare.jsonl")
    digest = hashlib.sha256(KNOWN.encode()).hexdigest()
    head, *_, foot = map(json.loads, Path("run.jsonl").read_text().splitlines())
    assert head["header"]["baseline"] == {"file": "known.toml", "sha256": digest}
    assert foot["footer"]["baseline"]["sha256"] == digest
    assert "baseline" not in json.loads(Path("bare.jsonl").read_text().splitlines()[0])["header"]


def test_a_log_cut_short_knows_what_was_known_so_far(run, again):
    Path("known.toml").write_text(KNOWN)
    run(*KEPT, "--baseline", "known.toml", "-o", "run.jsonl")
    *lines, _ = Path("run.jsonl").read_text().splitlines(keepends=True)
    Path("cut.jsonl").write_text("".join(lines))
    found = again("cut.jsonl")
    assert found.code == 130
    assert "XFAIL" in found.out
    assert "\nFAIL " not in found.out
    assert "RESULT fail " in found.out
    Path("cut.jsonl").write_text(lines[0])
    assert read(Path("cut.jsonl")).gate == Gate(
        baseline="known.toml", digest=hashlib.sha256(KNOWN.encode()).hexdigest()
    )


def test_a_log_is_read_from_a_pipe(run, there):
    run(*KEPT, "-o", "run.jsonl")
    with Path("run.jsonl").open("rb") as log:
        done = there("report", "-", "--format", "jsonl", stdin=log)
    assert (done.returncode, done.stderr) == (1, b"")
    assert done.stdout == Path("run.jsonl").read_bytes()


@pytest.mark.slow
def test_a_log_may_go_to_stdout_and_to_a_pipe(there):
    os.mkfifo("pipe.jsonl")
    got = []
    thread = threading.Thread(target=lambda: got.append(Path("pipe.jsonl").read_bytes()))
    thread.start()
    targets = ["-o", "/dev/stdout:jsonl", "-o", "pipe.jsonl", "-o", "/dev/stderr:badge"]
    with Path("out").open("w") as out:
        out.write("before\n")
        out.flush()
        done = there("run", *KEPT, "--format", "github", *targets, stdout=out)
    thread.join()
    assert done.returncode == 1
    assert json.loads(done.stderr)
    first, text = Path("out").read_bytes().split(b"\n", 1)
    assert first == b"before"
    assert text.startswith(got[0])
    assert text[len(got[0]) :].startswith(b"::error ")
    Path("piped.jsonl").write_bytes(got[0])
    assert len(read(Path("piped.jsonl")).results) == 6


# ── shards ───────────────────────────────────────────────────────────────────────────────────


def shards(run, of, *words):
    names = []
    for number in range(1, of + 1):
        names.append(f"s{number}.jsonl")
        run(*words, "--shard", f"{number}/{of}", "-o", names[-1])
    return names


@pytest.mark.slow
@pytest.mark.parametrize(
    "words",
    [
        ("--impl", "slow:WRONG", "--suite", "slow:SUITE", "--impl", "reference"),
        ("--op", "relu", "--op", "rms_norm", "--rule", "sgd*", "--sample", "t*",
         "--impl", "kernels:WRONG", "--impl", "reference"),
    ],
)  # fmt: skip
def test_the_shards_of_a_run_are_the_run_byte_for_byte(run, words, untimed):
    targets = [word for form in FORMATS for word in ("-o", f"once.{form}:{form}")]
    whole = run(*words, *targets)
    names = shards(run, 3, *words)
    merged = run(*names, *[w.replace("once", "merged") for w in targets], command="merge")
    assert (merged.code, merged.out, merged.err) == (whole.code, untimed(whole.out), whole.err)
    for form in FORMATS:
        assert Path(f"once.{form}").read_bytes() == Path(f"merged.{form}").read_bytes()
    lost = run(*names[:2], command="merge")
    assert lost.code == 130
    assert "\nincomplete: shard 3/3 is missing\n" in lost.out


def test_a_shard_says_which_it_is(run):
    found = run("--suite", "slow:SUITE", "--shard", "2/5", "-o", "s.json")
    assert " · shard 2/5 · " in found.out
    assert json.loads(Path("s.json").read_text())["header"]["shard"] == "2/5"
    assert "checked=12 " in found.out  # cases 1 and 6 and 11, in two dtypes, forward and dx


def test_a_shard_without_a_case_checks_nothing(run):
    assert run("--suite", "slow:SUITE", "--op", "square00", "--shard", "2/2").code == 4


def test_shards_that_do_not_belong_together_are_refused(run):
    one = ("--op", "relu", "--sample", "typical")
    run(*one, "--shard", "1/2", "-o", "a.jsonl")
    run(*one, "--shard", "2/2", "--seed", "1", "-o", "b.jsonl")
    found = run("a.jsonl", "b.jsonl", "-o", "m.html", command="merge")
    assert (found.code, found.out) == (2, "")
    assert found.err.startswith("gradcheck: b.jsonl: seed 1, but 0 in a.jsonl: ")
    assert found.err.count("\n") == 1
    assert not Path("m.html").exists()


def test_a_baseline_is_of_the_whole(run):
    Path("known.toml").write_text(
        '[[known]]\nmatch = "square03/*/*/*"\noutput = "dx"\nverdict = "fail"\nreason = "3"\n'
    )
    words = ("--impl", "slow:WRONG", "--suite", "slow:SUITE", "--no-contract")
    names = [name.replace("jsonl", "json") for name in shards(run, 2, *words)]
    for number, name in enumerate(names, 1):
        run(*words, "--shard", f"{number}/2", "--baseline", "known.toml", "-o", name)
    merged = run(*names, command="merge")
    assert merged.code == 1
    assert "name it with --baseline FILE" in merged.err
    merged = run(*names, "--baseline", "known.toml", "--suite", "slow:SUITE", command="merge")
    assert (merged.code, merged.err) == (0, "")


# ── what failed last time ────────────────────────────────────────────────────────────────────


def ops_of(name):
    return {result.case.op for result in read(Path(name)).results}


def test_only_what_failed_last_time_is_run_until_nothing_fails(run, monkeypatch):
    words = ("--suite", "slow:SUITE", "--impl", "slow:WRONG", "--no-contract", "-o", "run.jsonl")
    assert run(*words).code == 1
    found = run(*words, "--lf")
    assert (found.code, ops_of("run.jsonl")) == (1, {"square03"})
    assert "gradcheck: --lf: 1 of 12 cases failed last time\n" in found.err
    found = run(*words, "--lf", "--op", "square0[0-2]")  # combined with flags: nothing is left
    assert (found.code, ops_of("run.jsonl")) == (0, {"square00", "square01", "square02"})
    assert "--lf: nothing of this failed last time; running 3 cases\n" in found.err
    monkeypatch.setitem(
        sys.modules["slow"].WRONG, "square03", sys.modules["slow"].RIGHT["square03"]
    )
    assert (run(*words, "--lf").code, ops_of("run.jsonl")) == (0, {"square03"})
    found = run(*words, "--lf")
    assert (found.code, len(ops_of("run.jsonl"))) == (0, 12)


@pytest.mark.slow
def test_what_a_run_did_not_reach_is_still_known(run):
    words = ("--suite", "slow:SUITE", "--impl", "slow:BAD", "--no-contract", "-o", "run.jsonl")
    Path("slow.py").write_text(f"{SLOW}BAD = RIGHT | {{n: WRONG['square03'] for n in NAMES[3:6]}}")
    assert run(*words).code == 1
    assert (run(*words, "--lf", "-x").code, ops_of("run.jsonl")) == (1, {"square03"})
    run(*words, "--lf")
    assert ops_of("run.jsonl") == {"square03", "square04", "square05"}


@pytest.mark.slow
def test_the_contract_is_asked_where_the_full_run_asks_it(run):
    words = ("--op", "relu", "--impl", "kernels:WRONG", "-o", "run.jsonl")
    assert run(*words).code == 1
    asked = {r.case.sample for r in read(Path("run.jsonl")).results if r.finding.part == "contract"}
    run(*words, "--lf")
    assert {
        r.case.sample for r in read(Path("run.jsonl")).results if r.finding.part == "contract"
    } == asked
    run(*words, "--shard", "2/2")
    assert asked.isdisjoint(
        r.case.sample for r in read(Path("run.jsonl")).results if r.finding.part == "contract"
    )


def test_other_commands_leave_no_memory(run):
    assert run("relu/default/typical/float64", "--impl", "kernels:WRONG", command="repro").code == 1
    assert not Path(".gradcheck_cache").exists()
