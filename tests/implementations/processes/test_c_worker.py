import contextlib
import gc
import os
import platform
import signal as signals
import struct
import subprocess
import sys
import time
from functools import partial
from itertools import product
from pathlib import Path

import pytest

from gradcheck.implementations.processes import frames
from gradcheck.implementations.processes.c_worker import (
    ROOT,
    Access,
    Buffer,
    Call,
    Kept,
    Pointer,
    Scalar,
    Script,
    Worker,
    _Place,
)
from gradcheck.implementations.processes.crash_or_hang import Ending, WorkerError
from gradcheck.implementations.processes.frames import HIGH, ParentChannel
from gradcheck.implementations.processes.worker import (
    ANSWERING,
    CALLING,
    LOADING,
    Machine,
    RequestError,
    answer,
    serve,
)
from gradcheck.results.verdict import Verdict
from tests.implementations.processes.scripts import (
    DX,
    LONG,
    doubles,
    ended,
    gone,
    of_call,
    read,
    vjp_script,
)

GUARDS = ("end", "start", "off")


@pytest.fixture(scope="module")
def worker():
    with Worker(timeout=LONG) as one:
        yield one


@pytest.fixture
def short():
    """A worker whose calls must return within half a second."""
    with Worker(timeout=0.5, startup=LONG) as one:
        yield one


@pytest.fixture
def ask(library):
    """`ask(symbol)`: the script of dx = ct * x by that function."""
    return partial(vjp_script, library)


@pytest.fixture
def call(worker, library):
    """`call(symbol, *arguments, returns=…)`: what a call without buffers returns."""

    def made(symbol, *arguments, returns="void"):
        return worker.run(of_call(library, symbol, *arguments, returns=returns)).returned[0]

    return made


# ── what a kernel may do ─────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    "symbol", ["right", "forks", "closes_stdout", "leaves_a_thread", "moves_away", "unblocks_all"]
)
def test_a_call_that_returns_gives_its_numbers(worker, ask, symbol):
    for guard in ("end", "start", "off", "end"):
        outcome = worker.run(ask(symbol, guard=guard))
        assert read(outcome.buffers["dx"]) == DX
        assert [*outcome.buffers] == ["dx"]
        assert (outcome.strayed, outcome.returned) == ({}, (None,))


def test_what_a_kernel_adds_to_or_leaves_shows_in_what_was_there(worker, ask):
    nan = float("nan")
    assert read(worker.run(ask("accumulates", fill=1.0)).buffers["dx"]) == (5.0, -9.0, 19.0)
    part = worker.run(ask("partly", fill=nan)).buffers["dx"]
    assert part[8:] == doubles(nan, nan)
    assert read(part)[0] == DX[0]


def test_what_is_printed_does_not_reach_the_channel(worker, ask):
    outcome = worker.run(ask("prints"))
    assert (outcome.printed, read(outcome.buffers["dx"])) == ("GRDC\r\n n is 3", DX)
    assert worker.run(ask("right")).printed == ""


def test_noise_is_heard_after_standard_output_was_closed(worker, ask):
    worker.run(ask("closes_stdout"))
    assert worker.run(ask("prints")).printed == "GRDC\r\n n is 3"


@pytest.mark.slow(keep=4)
@pytest.mark.parametrize(
    ("symbol", "reason"),
    [
        ("writes_past", "SIGSEGV in writes_past"),
        ("reads_past", "SIGSEGV in reads_past"),
        ("writes_far", "SIGSEGV in writes_far"),
        ("clobbers", "SIGSEGV in clobbers"),
        ("null_pointer", "SIGSEGV in null_pointer"),
        ("divides_by_zero", "SIGFPE in divides_by_zero"),
        ("aborts", "SIGABRT in aborts"),
        ("exits", "exits ended the process with exit status 0"),
        ("exits_at_once", "exits_at_once ended the process with exit status 3"),
        ("closes_all", "closes_all closed file descriptors that are not its own"),
        ("steals_all", "steals_all closed file descriptors that are not its own"),
        (
            "speaks",
            "something else than the worker wrote into the worker's own channel in speaks",
        ),
        (
            "claims_to_begin",
            "something else than the worker wrote into the worker's own channel in claims_to_begin",
        ),
        (
            "claims_to_load",
            "something else than the worker wrote into the worker's own channel in claims_to_load",
        ),
        ("forges", "something else than the worker wrote into the worker's own channel in forges"),
        ("is_killed", "SIGKILL (not from here: out of memory?) in is_killed"),
    ],
)
def test_a_crash_is_named_and_the_next_call_works(worker, ask, symbol, reason):
    ending = ended(lambda: worker.run(ask(symbol)))
    assert (ending.verdict, ending.reason) == (Verdict.CRASH, reason)
    assert symbol != "aborts" or ending.printed == "assertion failed: n"
    assert read(worker.run(ask("right")).buffers["dx"]) == DX


@pytest.mark.slow(keep=1)
@pytest.mark.parametrize(
    "symbol",
    ["hangs", "claims_once", "floods", "ignores_signals", "forks_and_stays", "stops_itself"],
)
def test_a_call_that_does_not_return_is_a_timeout(short, ask, symbol):
    ending = ended(lambda: short.run(ask(symbol)))
    assert ending.verdict is Verdict.TIMEOUT
    assert ending.reason == f"{symbol} did not return within 0.5 s"
    assert len(ending.printed) < 70_000
    short._timeout = LONG
    assert read(short.run(ask("right")).buffers["dx"]) == DX


def test_a_write_before_the_start_needs_the_guard_there(worker, ask):
    assert ended(lambda: worker.run(ask("writes_before", guard="start"))).reason.startswith("SIG")
    outcome = worker.run(ask("writes_before"))
    assert outcome.strayed == {"dx": "wrote up to 8 bytes before its start"}


@pytest.mark.parametrize(("guard", "align"), [("end", 16), ("start", 8), ("off", 8)])
def test_a_write_into_a_gap_is_reported(worker, ask, guard, align):
    outcome = worker.run(ask("writes_past", guard=guard, align=align))
    assert outcome.strayed == {"dx": "wrote up to 8 bytes past its end"}
    assert read(outcome.buffers["dx"]) == DX


def test_the_message_names_the_label_of_the_call(worker, ask):
    script = ask("right")
    good, bad = script.calls[0], ask("aborts").calls[0]
    named = Call(**{n: getattr(bad, n) for n in ("library", "symbol", "arguments")}, label="vjp 2")
    both = Script(buffers=script.buffers, calls=(good, named))
    assert ended(lambda: worker.run(both)).reason == "SIGABRT in vjp 2"


def test_state_lives_from_script_to_script_and_not_beyond_a_crash(library, ask):
    dx = Buffer(name="dx", content=doubles(0.0))
    count = Call(library=library, symbol="counts", arguments=(Pointer(buffer="dx"),))
    once = Script(buffers=(dx,), calls=(count,))
    with Worker(timeout=LONG) as one:
        seen = [read(one.run(once).buffers["dx"])[0] for _ in range(2)]
        ended(lambda: one.run(ask("aborts")))
        assert [*seen, read(one.run(once).buffers["dx"])[0]] == [1.0, 2.0, 1.0]


@pytest.mark.slow(keep=1)
@pytest.mark.parametrize("signal", ["SIGABRT", "SIGALRM"])
def test_a_death_between_calls_is_not_blamed_on_the_next(ask, signal):
    """As that of a thread that a call has left behind, or of an alarm that it has set."""
    with Worker(timeout=LONG) as one:
        one.run(ask("right"))
        child = one._child
        os.kill(child.process.pid, getattr(signals, signal))
        while child.alive:
            time.sleep(0.01)
        reason = ended(lambda: one.run(ask("right"))).reason
        assert reason.startswith(f"{signal} between calls")
        assert read(one.run(ask("right")).buffers["dx"]) == DX


def test_a_script_has_as_many_clocks_as_calls_and_libraries():
    """Whoever found the stamp in memory gains no more than that."""
    calls = tuple(Call(library="a", symbol=name, arguments=()) for name in "xy")
    place = _Place(calls)
    assert [place.reached(mark) for mark in (LOADING, LOADING, CALLING, LOADING)] == [
        True, False, True, False,
    ]  # fmt: skip
    assert [place.reached(CALLING) for _ in range(3)] == [True, False, False]
    assert not place.reached(LOADING)
    ending = Ending(verdict=Verdict.TIMEOUT, reason="")
    assert place.explained(ending).reason.startswith("y did not return")


# ── memory ───────────────────────────────────────────────────────────────────────────────────


@pytest.mark.slow(keep=1)
@pytest.mark.parametrize("guard", ["end", "start"])
@pytest.mark.parametrize("symbol", ["put", "get"])
def test_an_empty_buffer_faults_when_it_is_touched(worker, library, symbol, guard):
    empty = Buffer(name="x", content=b"", guard=guard)
    arguments = (Pointer(buffer="x"), Scalar(ctype="float64", value=1.0))
    one = Call(library=library, symbol=symbol, arguments=arguments, returns="float64")
    assert ended(lambda: worker.run(Script(buffers=(empty,), calls=(one,)))).returncode == -11
    fine = Call(library=library, symbol="address", arguments=arguments[:1], returns="uint64")
    outcome = worker.run(Script(buffers=(empty,), calls=(fine,)))
    assert outcome.returned[0] > 0
    assert outcome.buffers["x"].nbytes == 0


def test_a_buffer_begins_where_it_should(worker, library):
    offset = Pointer(buffer="x", offset=3)
    one = Call(library=library, symbol="address", arguments=(offset,), returns="uint64")
    for nbytes, align, guard in product((1, 40, 4096, 10_000), (1, 4, 64, 4096), GUARDS):
        buffer = Buffer(name="x", content=bytes(nbytes), guard=guard, align=align)
        outcome = worker.run(Script(buffers=(buffer,), calls=(one,)))
        assert (outcome.returned[0] - 3) % align == 0, (nbytes, align, guard)
        assert bytes(outcome.buffers["x"]) == bytes(nbytes)


def test_memory_that_may_not_be_touched_faults(worker, library):
    unused = Buffer(name="tmp", content=doubles(1.0), access=Access.NONE)
    one = Call(library=library, symbol="get", arguments=(Pointer(buffer="tmp"),))
    assert ended(lambda: worker.run(Script(buffers=(unused,), calls=(one,)))).returncode == -11


# ── scalars, results, handles ────────────────────────────────────────────────────────────────


def test_every_scalar_type_arrives(call):
    values = {
        "int8": -1, "uint8": 255, "int16": -300, "uint16": 65535, "int32": -70000,
        "uint32": 1 << 31, "int64": -(1 << 40), "uint64": 1 << 41, "float32": 0.5,
        "float64": 0.25, "bool": True,
    }  # fmt: skip
    arguments = [Scalar(ctype=name, value=value) for name, value in values.items()]
    total = sum(values.values()) + 9 * 255 + 999
    assert call("every", *arguments, returns="float64") == total


def test_every_result_comes_back(call):
    seven = Scalar(ctype="float32", value=7.0)
    assert call("status", returns="int32") == -7
    assert (
        call("single", seven, returns="float32") == struct.unpack("f", struct.pack("f", 7 / 3))[0]
    )
    assert call("truth", Scalar(ctype="int32", value=2), returns="bool") is True
    assert call("large", returns="uint64") == 2**64 - 1
    assert call("is_null", None, returns="int32") == 1
    assert call("make", Scalar(ctype="int32", value=1), returns="pointer") is None


def test_a_handle_lives_for_one_script(worker, library):
    def step(symbol, *arguments, **rest):
        return Call(library=library, symbol=symbol, arguments=arguments, **rest)

    made = step("make", Scalar(ctype="int32", value=2), returns="pointer", keep="h")
    put = step("put", Kept(name="h"), Scalar(ctype="float64", value=2.5))
    get = step("get", Kept(name="h"), returns="float64")
    assert worker.run(Script(buffers=(), calls=(made, put, get))).returned == (None, None, 2.5)
    with pytest.raises(RequestError, match="get takes 'h', which the script does not have"):
        worker.run(Script(buffers=(), calls=(get,)))
    null = step("make", Scalar(ctype="int32", value=-1), returns="pointer", keep="h", label="new")
    with pytest.raises(RequestError, match="new returned a null pointer"):
        worker.run(Script(buffers=(), calls=(null, get)))


def test_what_cannot_be_called_is_refused_and_the_worker_lives_on(worker, call, ask):
    for scalar, words in (
        (Scalar(ctype="int32", value=1 << 31), "int32, which cannot hold 2147483648"),
        (Scalar(ctype="uint8", value=-1), "uint8, which cannot hold -1"),
        (Scalar(ctype="int64", value=1.5), "1.5 is no whole number"),
        (Scalar(ctype="int64", value=float("nan")), "NaN"),
        (Scalar(ctype="int64", value=float("inf")), "infinity"),
        (Scalar(ctype="int3", value=1), "no scalar type 'int3'"),
        (Pointer(buffer="x"), "is_null takes 'x'"),
    ):
        with pytest.raises(RequestError, match=words):
            call("is_null", scalar)
    with pytest.raises(RequestError, match="has no function 'nothing'"):
        call("nothing")
    with pytest.raises(RequestError, match=r"nowhere\.so: cannot open shared object"):
        worker.run(of_call("/nowhere.so", "f"))
    odd, empty = Buffer(name="x", content=b"a", align=3), Buffer(name="x", content=b"")
    for buffers, words in (((odd,), "align is 3"), ((empty,) * 2, "two buffers are called 'x'")):
        with pytest.raises(RequestError, match=words):
            worker.run(Script(buffers=buffers, calls=()))
    assert read(worker.run(ask("right")).buffers["dx"]) == DX


# ── loading ──────────────────────────────────────────────────────────────────────────────────


def test_inspect_says_which_functions_are_there(worker, library, constructing):
    assert worker.inspect(library, ["right", "wrong", "_handle", "__init__"]) == {"right"}
    assert worker.inspect(constructing("printing"), ["seven"]) == {"seven"}
    with pytest.raises(RequestError, match=r"/no\.so"):
        worker.inspect("/no.so", ["f"])


def test_a_library_of_another_kind_is_refused_with_the_loaders_words(worker, tmp_path):
    (tmp_path / "text.so").write_text("no library")
    with pytest.raises(RequestError, match=r"text\.so: file too short|invalid ELF header"):
        worker.inspect(str(tmp_path / "text.so"), [])


@pytest.mark.slow(keep=1)
@pytest.mark.parametrize(
    ("what", "reason"),
    [
        ("crashing", "SIGSEGV in loading {}"),
        ("exiting", "loading {} ended the process with exit status 5"),
        ("closing", "loading {} closed file descriptors that are not its own"),
    ],
)
def test_a_constructor_that_ends_the_process_is_named(worker, constructing, what, reason):
    path = constructing(what)
    ending = ended(lambda: worker.inspect(path, ["seven"]))
    assert (ending.verdict, ending.reason) == (Verdict.CRASH, reason.format(Path(path).name))


def test_a_constructor_that_hangs_is_named(constructing):
    path = constructing("hanging")
    with Worker(timeout=LONG) as one:
        one.inspect(constructing("printing"), [])  # started without haste
        one._startup = 0.5
        ending = ended(lambda: one.inspect(path, []))
    assert ending.verdict is Verdict.TIMEOUT
    assert ending.reason == f"loading {Path(path).name} did not return within 0.5 s"


def test_what_a_constructor_prints_comes_with_its_script(constructing):
    path = constructing("printing")
    seven = Call(library=path, symbol="seven", arguments=(), returns="int32")
    with Worker(timeout=LONG) as one:
        outcome = one.run(Script(buffers=(), calls=(seven,)))
        assert (outcome.printed, outcome.returned) == ("loaded", (7,))
        assert one.run(Script(buffers=(), calls=(seven,))).printed == ""


# ── the process ──────────────────────────────────────────────────────────────────────────────


@pytest.mark.skipif(platform.machine() != "x86_64", reason="sets x86's control register")
def test_a_library_that_flushes_denormals_does_not_reach_us(compiled):
    path = compiled(
        "__attribute__((constructor)) void fast(void) { __builtin_ia32_ldmxcsr(0x9fc0); }"
        "double half(double x) { return x / 2; }"
    )
    tiny = 2.0**-1022
    half = Call(library=path, symbol="half", returns="float64",
                arguments=(Scalar(ctype="float64", value=tiny),))  # fmt: skip
    with Worker(timeout=LONG) as one:
        assert one.run(Script(buffers=(), calls=(half,))).returned == (0.0,)
    assert tiny / 2 > 0.0


def test_nothing_is_left_when_it_is_closed_or_forgotten(ask):
    gc.collect()
    before = len([*Path("/proc/self/fd").iterdir()])
    one = Worker(timeout=LONG)
    one.run(ask("right"))
    pid = one._child.process.pid
    one.close()
    one.close()
    assert not Path(f"/proc/{pid}").exists()
    assert read(one.run(ask("right")).buffers["dx"]) == DX
    pid = one._child.process.pid
    del one
    gc.collect()
    assert not Path(f"/proc/{pid}").exists()
    assert len([*Path("/proc/self/fd").iterdir()]) == before


@pytest.mark.slow(keep=1)
@pytest.mark.parametrize("last", ["right", "null_pointer", "exits"])
def test_a_daemon_without_an_environment_does_not_outlive_its_worker(ask, last):
    with Worker(timeout=LONG) as one:
        daemon = int(one.run(ask("daemonises")).printed)
        with contextlib.suppress(WorkerError):
            one.run(ask(last))
    assert gone(daemon)


def test_a_worker_does_not_outlive_a_parent_that_is_killed(library):
    code = (
        "import os, signal\n"
        "from gradcheck.implementations.processes.c_worker import Worker\n"
        f"one = Worker(); one.inspect({library!r}, [])\n"
        "print(one._child.process.pid, flush=True)\n"
        "os.kill(os.getpid(), signal.SIGKILL)"
    )
    env = {**os.environ, "PYTHONPATH": ROOT}
    found = subprocess.run(
        [sys.executable, "-c", code], env=env, capture_output=True, text=True, check=False
    )
    assert gone(int(found.stdout))


def test_the_worker_starts_without_numpy_and_what_else_is_slow():
    code = "import sys; sys.path.insert(0, sys.argv[1]); "
    code += "import gradcheck.implementations.processes.worker; print(*sys.modules)"
    found = subprocess.run(
        [sys.executable, "-I", "-S", "-c", code, ROOT], capture_output=True, text=True, check=True
    )
    loaded = set(found.stdout.split())
    assert "gradcheck.implementations.processes.worker" in loaded
    assert not loaded & {"numpy", "asyncio", "multiprocessing", "subprocess", "msgspec", "site"}


def test_an_interrupted_script_does_not_answer_the_next(worker, ask, monkeypatch):
    worker.run(ask("right"))

    def interrupted(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(Worker, "_answer", interrupted)
        with pytest.raises(KeyboardInterrupt):
            worker.run(ask("accumulates", fill=5.0))
    assert read(worker.run(ask("right")).buffers["dx"]) == DX


def test_few_descriptors_are_enough(library):
    code = (
        "import resource; from gradcheck.implementations.processes.c_worker import Worker\n"
        "resource.setrlimit(resource.RLIMIT_NOFILE, (20, 20))\n"
        f"with Worker() as one: print(one.inspect({library!r}, ['right']))"
    )
    env = {**os.environ, "PYTHONPATH": ROOT}
    found = subprocess.run(
        [sys.executable, "-c", code], env=env, capture_output=True, text=True, check=False
    )
    assert found.stdout == "frozenset({'right'})\n", found.stderr


def test_a_worker_that_cannot_start_says_so():
    with Worker({"LD_PRELOAD": "", "PYTHONHASHSEED": "0"}, timeout=LONG, startup=0.0) as one:
        ending = ended(lambda: one.run(Script(buffers=(), calls=())))
    assert ending.reason == "the worker process did not start: no answer within 0 s"


def use(pid):
    """Resident bytes, descriptors and mappings of a process."""
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    descriptors = len([*Path(f"/proc/{pid}/fd").iterdir()])
    return pages * 4096, descriptors, len(Path(f"/proc/{pid}/maps").read_text().splitlines())


@pytest.mark.slow
@pytest.mark.parametrize("count", [1000, pytest.param(10_000, marks=pytest.mark.soak)])
def test_scripts_leak_nothing(ask, count):
    script = ask("right")
    with Worker(timeout=LONG) as one:
        for _ in range(2_000):
            one.run(script)
        pid = one._child.process.pid
        for _ in range(3):  # pages come back that were paged out: what leaks does so each time
            gc.collect()
            before, ours = use(pid), use(os.getpid())
            for _ in range(count):
                one.run(script)
            after, ours_after = use(pid), use(os.getpid())
            if after[0] - before[0] < 1 << 20 and ours_after[0] - ours[0] < 4 << 20:
                break
        else:
            pytest.fail(f"{before} {after} {ours} {ours_after}")
        assert one._child.process.pid == pid
    assert (after[1], ours_after[1]) == (before[1], ours[1])
    # Neighbouring mappings join and part, a few more or less say nothing; a mapping that each
    # call, or each tenth, left behind would show.
    assert after[2] <= before[2] + count // 10


@pytest.fixture
def machine():
    """What answers in the worker, here in this process, and what it has marked and checked."""
    marks = []
    made = Machine(marks.append, lambda: marks.append(b"check"))
    made.marks = marks
    return made


@pytest.fixture
def ask_worker(machine):
    """`ask_worker(request, *contents)`: the answer's header and the bytes of its blocks."""

    def made(request, *contents):
        mapped = {}
        said, blocks = answer(machine, request, [memoryview(c) for c in contents], mapped)
        found = [bytes(block.view()) for block in blocks]
        for block in mapped.values():
            block.free()
        return said, found

    return made


def script(*calls, blocks=()):
    return {"kind": "script", "calls": [*calls], "blocks": [*blocks]}


def buffer(name, access="write", **rest):
    return {"name": name, "access": access, "guard": "end", "align": 1, **rest}


def step(library, symbol, *arguments, returns="void", keep="", label=""):
    return {
        "library": library,
        "symbol": symbol,
        "arguments": [*arguments],
        "returns": returns,
        "keep": keep,
        "label": label,
    }


def test_marks_tell_loading_from_calling(machine, ask_worker, library):
    said, _ = ask_worker(script(step(library, "status", returns="int32"), step(library, "status")))
    assert said["returned"] == [-7, None]
    assert machine.marks == [LOADING, b"check", CALLING, b"check", CALLING, b"check"]


def test_memory_goes_in_and_comes_back(ask_worker, library):
    put = step(library, "put", {"buffer": "x", "offset": 8}, ["float64", 0.0])
    said, found = ask_worker(
        script(put, blocks=[buffer("x"), buffer("y", "read"), buffer("z")]),
        bytes([1]) * 16, b"read only", b"other",
    )  # fmt: skip
    assert said["kind"] == "outcome"
    assert [b["name"] for b in said["blocks"]] == ["x", "z"]
    assert found == [bytes([1]) * 8 + bytes(8), b"other"]


def test_a_stray_write_is_in_the_answer(ask_worker, library):
    put = step(library, "put", {"buffer": "x", "offset": 8}, ["float64", 0.0])
    said, _ = ask_worker(script(put, blocks=[buffer("x", align=64)]), bytes(8))
    assert said["strayed"] == {"x": "wrote up to 8 bytes past its end"}


def test_handles_are_kept_for_later_calls(ask_worker, library):
    said, _ = ask_worker(
        script(
            step(library, "make", ["int32", 1], returns="pointer", keep="h"),
            step(library, "put", {"kept": "h"}, ["float64", 1.5]),
            step(library, "get", {"kept": "h"}, returns="float64"),
        )
    )
    assert said["returned"] == [None, None, 1.5]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("nothing",), "has no function 'nothing'"),
        (("get", {"kept": "h"}), "get takes 'h', which the script does not have"),
        (("get", ["int128", 1]), "no scalar type 'int128'"),
        (("get", ["uint16", 65536]), "cannot hold 65536"),
        (("get", ["uint16", 0.5]), "0.5 is no whole number"),
    ],
)
def test_what_cannot_be_done_is_refused_in_words(ask_worker, library, arguments, words):
    said, found = ask_worker(script(step(library, *arguments)))
    assert (said["kind"], found) == ("refused", [])
    assert words in said["message"]


def test_a_null_handle_is_refused_by_the_label(ask_worker, library):
    made = step(library, "make", ["int32", -1], returns="pointer", keep="h", label="new")
    assert ask_worker(script(made))[0]["message"] == "new returned a null pointer"


def test_inspecting_says_which_functions_are_there(ask_worker, library):
    request = {"kind": "inspect", "library": library, "symbols": ["get", "got", "_name"]}
    assert ask_worker(request)[0] == {"kind": "symbols", "present": ["get"]}
    said, _ = ask_worker({**request, "library": "/not/there.so"})
    assert "/not/there.so: cannot open shared object file" in said["message"]


class Talk:
    """A line to a parent that has said everything already."""

    def __init__(self, *requests):
        self.said = bytearray(b"".join(bytes(p) for r in requests for p in frames.pieces(*r)))
        self.heard, self.restored, self.stamp = bytearray(), 0, b""

    def exactly(self, n):
        found = self.said[:n]
        del self.said[:n]
        return found

    def write(self, piece):
        self.heard += piece

    def restore(self):
        self.restored += 1


def test_a_request_is_answered_after_a_mark_and_its_memory_is_freed(machine, library):
    put = step(library, "put", {"buffer": "x", "offset": 0}, ["float64", 0.0])
    stamp = frames.new_stamp()
    asked = {**script(put, blocks=[buffer("x")]), "stamp": stamp.hex()}
    talk = Talk((asked, [bytes([1]) * 16]))
    serve(machine, talk)
    assert talk.heard[:1] == ANSWERING
    rest = talk.heard[1:]
    frame = frames.read(lambda n: take(rest, n), stamp=stamp)
    assert bytes(frame.blocks[0]) == bytes(8) + bytes([1]) * 8
    assert talk.restored == 1


def take(store, n):
    found = bytes(store[:n])
    del store[:n]
    return found


def test_the_line_keeps_out_of_the_way_and_knows_its_descriptors():
    (requests, mine), (hers, answers) = os.pipe(), os.pipe()
    line = ParentChannel(requests, answers)
    try:
        os.write(mine, b"hello")
        assert line.exactly(5) == b"hello"
        line.write(memoryview(b"answer"))
        assert os.read(hers, 100) == b"answer"
        line.check()
        assert min(line._mine) >= HIGH
        with pytest.raises(OSError, match="Bad file descriptor"):
            os.fstat(requests)
    finally:
        for descriptor in (mine, hers, *line._mine, line._capture):
            os.close(descriptor)


def test_a_buffer_of_an_unknown_kind_is_refused(ask_worker):
    said, _ = ask_worker(script(blocks=[buffer("x", guard="nowhere")]), b"a")
    assert said["message"] == "guard is 'nowhere'; make it 'end', 'start' or 'off'"
