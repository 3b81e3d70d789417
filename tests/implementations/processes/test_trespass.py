"""C code that gets around what stops it, or leaves its process otherwise than it found it."""

import os
import platform
import signal

import pytest

from gradcheck.implementations.processes.c_worker import (
    Access,
    Buffer,
    Call,
    Pointer,
    Scalar,
    Script,
    Worker,
)
from gradcheck.implementations.processes.crash_analysis import handled
from tests.implementations.processes.scripts import (
    DX,
    LONG,
    X,
    argument,
    doubles,
    ended,
    of_call,
    read,
    vjp_script,
)

X86 = pytest.mark.skipif(platform.machine() != "x86_64", reason="x86's registers")
LINUX = pytest.mark.skipif(os.uname().sysname != "Linux", reason="the kernel says what is touched")
SOURCE = r"""
#define _GNU_SOURCE
#include <fenv.h>
#include <setjmp.h>
#include <signal.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <ucontext.h>
#include <unistd.h>

#define VJP(name) void name(double* dx, const double* ct, const double* x, int n)
VJP(right) { for (int i = 0; i < n; i++) dx[i] = ct[i] * x[i]; }

/* what a handler may do */
static void* page(const void* at) { return (void*)((uintptr_t)at & -4096L); }
static void opens(int number, siginfo_t* info, void* context) {
    mprotect(page(info->si_addr), 4096, PROT_READ | PROT_WRITE);
}
static sigjmp_buf out;
static void jumps(int number, siginfo_t* info, void* context) { siglongjmp(out, 1); }
static struct sigaction before[2];
static void install(void (*handler)(int, siginfo_t*, void*)) {
    struct sigaction own = {.sa_sigaction = handler, .sa_flags = SA_SIGINFO | SA_NODEFER};
    sigaction(SIGSEGV, &own, before);
    sigaction(SIGBUS, &own, before + 1);
}
static void uninstall(void) { sigaction(SIGSEGV, before, 0); sigaction(SIGBUS, before + 1, 0); }
static void unblock(void) {
    sigset_t none;
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, 0);
}
static void past(double* dx, int n) { ((volatile double*)dx)[n] = 1; }
static void over(const double* x) { ((volatile double*)x)[1] = 7; }
static void same(const double* x) { ((volatile double*)x)[1] = x[1]; }
static void reads(double* dx, const double* x, int n) { dx[0] += 0 * ((volatile double*)x)[n]; }

#define ALL(how, before, after) \
    VJP(how##_past) { right(dx, ct, x, n); before; past(dx, n); after; } \
    VJP(how##_over) { right(dx, ct, x, n); before; over(x); after; } \
    VJP(how##_same) { right(dx, ct, x, n); before; same(x); after; } \
    VJP(how##_reads) { right(dx, ct, x, n); before; reads(dx, x, n); after; }
ALL(handler, install(opens), uninstall())
ALL(jump, install(jumps); if (sigsetjmp(out, 1)) return, uninstall())
ALL(unblocked, install(opens); unblock(), uninstall())
ALL(open, mprotect(page(x), 8192, 3); mprotect(page(dx), 8192, 3), )
ALL(closed, mprotect(page(x), 8192, 3); mprotect(page(dx), 8192, 3),
    mprotect(page(x), 4096, 1);
    mprotect(page(x) + 4096, 4096, 0);
    mprotect(page(dx) + 4096, 4096, 0))
VJP(peeks) { mprotect(page(x), 4096, 3); right(dx, ct, x, n); }

/* memory of an earlier call */
static const double* kept;
VJP(stale) { right(dx, ct, x, n); if (kept) dx[0] += 0 * *(volatile double*)kept; kept = x; }

/* the processor */
VJP(rounds) { right(dx, ct, x, n); fesetround(FE_UPWARD); }
VJP(rounds_back) { fesetround(FE_UPWARD); right(dx, ct, x, n); fesetround(FE_TONEAREST); }
VJP(traps) { right(dx, ct, x, n); feclearexcept(FE_ALL_EXCEPT); feenableexcept(FE_DIVBYZERO); }
#ifdef __x86_64__
VJP(flushes) { right(dx, ct, x, n); __builtin_ia32_ldmxcsr(0x9fc0); }
VJP(mmx) { right(dx, ct, x, n); __asm__ volatile("movq %%rax, %%mm0" ::: "mm0"); }
VJP(x87) { right(dx, ct, x, n); short word = 0x27f; __asm__ volatile("fldcw %0" :: "m"(word)); }
#endif
double third(void) { volatile double one = 1, three = 3; return one / three; }
double half(double x) { volatile double two = 2; return x / two; }

/* signals */
static void set_timer(long seconds) {
    struct itimerval in = {.it_value = {.tv_sec = seconds}};
    setitimer(ITIMER_REAL, &in, 0);
}
VJP(alarms) { right(dx, ct, x, n); set_timer(1000); }
VJP(profiles) {
    struct itimerval in = {.it_value = {.tv_sec = 1000}};
    right(dx, ct, x, n);
    setitimer(ITIMER_PROF, &in, 0);
}
VJP(alarms_and_stops) { set_timer(1000); right(dx, ct, x, n); set_timer(0); }
static void steps_over(int number, siginfo_t* info, void* context) { siglongjmp(out, 1); }
VJP(handles_division) {
    struct sigaction own = {.sa_sigaction = steps_over, .sa_flags = SA_SIGINFO};
    sigaction(SIGFPE, &own, 0);
    sigsetjmp(out, 1);
    right(dx, ct, x, n);
}
VJP(divides) { volatile int zero = n - n; right(dx, ct, x, n); n /= zero; }
VJP(installs) { right(dx, ct, x, n); install(opens); }
VJP(blocks_all) {
    sigset_t all;
    right(dx, ct, x, n);
    sigfillset(&all);
    sigprocmask(SIG_SETMASK, &all, 0);
}
VJP(locks) { right(dx, ct, x, n); mlockall(MCL_CURRENT | MCL_FUTURE); }
VJP(raises) { right(dx, ct, x, n); raise(SIGSEGV); }

/* a runtime that grows its memory when it is touched */
static volatile double* heap;
static void grows(int number, siginfo_t* info, void* context) {
    if (page(info->si_addr) != (void*)heap) _exit(9);
    mprotect((void*)heap, 4096, PROT_READ | PROT_WRITE);
}
VJP(collects) {
    heap = mmap(0, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    install(grows);
    *heap = 0;
    right(dx, ct, x, n);
    dx[0] += *heap;
}
VJP(collects_past) { collects(dx, ct, x, n); past(dx, n); }
VJP(collects_open) {
    collects(dx, ct, x, n);
    install(opens);
    past(dx, n);
}
VJP(says) {
    install(jumps);
    if (sigsetjmp(out, 1)) { write(2, "my trace", 8); _exit(4); }
    past(dx, n);
}
"""


@pytest.fixture(scope="module")
def hostile(compiled):
    return compiled(SOURCE, "-O0")


@pytest.fixture(scope="module")
def worker():
    with Worker(timeout=LONG) as one:
        yield one


@pytest.fixture
def ask(hostile):
    """`ask(symbol, …)`: the script of dx = ct * x by these functions in turn."""

    def script(*symbols, access=Access.READ):
        return vjp_script(hostile, *symbols, x=argument("x", doubles(*X), access))

    return script


def numbers(outcome):
    return read(outcome.buffers["dx"])


def number(worker, library, symbol, *values):
    arguments = tuple(Scalar(ctype="float64", value=v) for v in values)
    return worker.run(of_call(library, symbol, *arguments, returns="float64")).returned[0]


def ending(worker, script):
    return ended(lambda: worker.run(script))


# ── memory ───────────────────────────────────────────────────────────────────────────────────


@pytest.mark.slow(keep=1)
@pytest.mark.parametrize("what", ["past", "over", "same", "reads"])
@pytest.mark.parametrize("how", ["handler", "jump"])
def test_a_handler_of_the_code_hides_no_fault(worker, ask, how, what):
    """Neither one that makes the page accessible, nor one that leaves the access out."""
    assert ending(worker, ask(f"{how}_{what}")).reason == f"SIGSEGV in {how}_{what}"


@pytest.mark.slow(keep=2)
@LINUX
@pytest.mark.parametrize(
    ("symbol", "words"),
    [
        ("unblocked_past", "touched memory beside dx"),
        ("unblocked_over", "wrote into x, which it was given to read"),
        ("unblocked_same", "changed the protection of the pages of x"),
        ("unblocked_reads", "touched memory beside x"),
        ("open_past", "touched memory beside dx"),
        ("open_over", "wrote into x, which it was given to read"),
        ("open_same", "changed the protection of the pages of dx"),
        ("open_reads", "touched memory beside x"),
        ("closed_past", "touched memory beside dx"),
        ("closed_over", "wrote into x, which it was given to read"),
        ("closed_reads", "touched memory beside x"),
    ],
)
def test_pages_that_were_made_accessible_tell_it(worker, ask, symbol, words):
    outcome = worker.run(ask(symbol))
    assert f"{symbol} {words}" in outcome.breaches
    assert worker.run(ask("right")).breaches == ()


@LINUX
def test_memory_that_may_not_be_touched_tells_it(worker, ask):
    outcome = worker.run(ask("peeks", access=Access.NONE))
    assert outcome.breaches == ("peeks touched x",)


def test_memory_that_is_left_alone_tells_nothing(worker, ask):
    outcome = worker.run(ask("third", access=Access.NONE))
    assert (outcome.breaches, outcome.strayed) == ((), {})


def test_memory_of_an_earlier_call_is_gone(worker, ask):
    assert worker.run(ask("stale")).breaches == ()
    assert ending(worker, ask("stale")).reason == "SIGSEGV in stale"


def test_no_address_is_given_twice(worker, library):
    one = Call(
        library=library, symbol="address", arguments=(Pointer(buffer="x"),), returns="uint64"
    )
    script = Script(buffers=(Buffer(name="x", content=bytes(8)),), calls=(one,))
    seen = [worker.run(script).returned[0] // 4096 for _ in range(50)]
    assert len({*seen}) == 50


# ── the processor ────────────────────────────────────────────────────────────────────────────


@pytest.mark.slow(keep=1)
@pytest.mark.parametrize(
    ("symbol", "what"),
    [
        pytest.param("rounds", "rounding mode", marks=X86),
        pytest.param("flushes", "flush-to-zero mode", marks=X86),
        pytest.param("traps", "set of floating-point exceptions that trap", marks=X86),
        pytest.param("x87", "precision of the x87 unit", marks=X86),
        pytest.param("mmx", "x87 register stack (MMX code ends with `emms`)", marks=X86),
    ],
)
def test_another_way_to_compute_is_told_and_undone(worker, ask, hostile, symbol, what):
    outcome = worker.run(ask(symbol, "right"))
    words = f"{symbol} leaves another {what}; restore what it was before"
    assert (outcome.breaches[0], numbers(outcome)) == (words, DX)
    assert worker.run(ask("right")).breaches == ()
    assert number(worker, hostile, "third") == 1 / 3
    assert number(worker, hostile, "half", 2.0**-1022) == 2.0**-1023


def test_another_rounding_mode_that_is_undone_is_nobody_s_business(worker, ask):
    assert worker.run(ask("rounds_back")).breaches == ()


@X86
def test_a_library_computes_as_loading_it_leaves_it_and_no_other_does(compiled, hostile, library):
    fast = compiled(
        "__attribute__((constructor)) void fast(void) { __builtin_ia32_ldmxcsr(0x9fc0); }"
        "double half(double x) { return x / 2; }"
    )
    tiny = 2.0**-1022
    with Worker(timeout=LONG) as one:
        one.inspect(fast, [])
        asked = [(hostile, "half"), (fast, "half"), (library, "denormal"), (hostile, "half")]
        found = [number(one, who, symbol, tiny) for who, symbol in asked]
    assert found == [tiny / 2, 0.0, tiny / 2, tiny / 2]


# ── signals ──────────────────────────────────────────────────────────────────────────────────


@pytest.mark.slow(keep=1)
@pytest.mark.parametrize(("symbol", "what"), [("alarms", "SIGALRM"), ("profiles", "SIGPROF")])
def test_a_timer_that_is_left_is_told_and_stopped(worker, ask, symbol, what):
    words = f"{symbol} leaves an interval timer running, whose {what} comes later; stop it"
    assert worker.run(ask(symbol, "right")).breaches == (words,)


@pytest.mark.parametrize("symbol", ["alarms_and_stops", "installs", "handles_division"])
def test_what_harms_nobody_is_no_breach(worker, ask, symbol):
    for _ in range(2):
        outcome = worker.run(ask(symbol))
        assert (outcome.breaches, numbers(outcome)) == ((), DX)


def test_pages_that_the_code_locks_in_memory_are_not_touched(ask):
    with Worker(timeout=LONG) as one:
        for access in (Access.READ, Access.WRITE):
            assert one.run(ask("locks", "right", access=access)).breaches == ()


def test_a_handler_of_one_call_does_not_serve_the_next(worker, ask):
    worker.run(ask("handles_division"))
    assert ending(worker, ask("handles_division", "divides")).reason == "SIGFPE in divides"


@pytest.mark.slow(keep=1)
@pytest.mark.parametrize("before", ["right", "blocks_all"])
def test_a_signal_that_the_code_sends_itself_arrives_in_its_call(worker, ask, before):
    assert ending(worker, ask(before, "raises", "right")).reason == "SIGSEGV in raises"


def test_what_a_constructor_handles_and_installs_is_the_library_s(compiled, worker):
    path = compiled(
        "#include <setjmp.h>\n#include <signal.h>\nstatic sigjmp_buf out;"
        "static void no(int n) { siglongjmp(out, 1); }"
        "__attribute__((constructor)) void probe(void) { signal(SIGSEGV, no); signal(SIGFPE, no);"
        "  if (!sigsetjmp(out, 1)) *(volatile int*)0 = 1; }"
        "double over(double x) { volatile int n = x; return sigsetjmp(out, 1) ? -1 : 6 / n; }"
    )
    assert [number(worker, path, "over", x) for x in (2.0, 0.0, 0.0)] == [3.0, -1.0, -1.0]


# ── a runtime with faults of its own ─────────────────────────────────────────────────────────


def strict():
    return Worker(timeout=LONG)


def let():
    return Worker(timeout=LONG, handled=True)


def test_faults_in_memory_of_its_own_are_the_code_s_affair(worker, ask):
    script = ask("collects")
    end = ending(worker, script)
    assert end.returncode == -signal.SIGSEGV
    assert numbers(handled(script, end, strict, let)) == DX


@LINUX
def test_faults_of_its_own_hide_no_others(worker, ask):
    script = ask("collects_open")
    found = handled(script, ending(worker, script), strict, let)
    assert found.breaches == ("collects_open touched memory beside dx",)


@pytest.mark.slow(keep=1)
@pytest.mark.parametrize(
    ("symbol", "printed"),
    [("handler_past", ""), ("jump_reads", ""), ("collects_past", ""), ("says", "my trace")],
)
def test_faults_at_the_script_s_memory_are_not(worker, ask, symbol, printed):
    script = ask(symbol)
    found = handled(script, ending(worker, script), strict, let)
    assert (found.reason, found.printed) == (f"SIGSEGV in {symbol}", printed)
