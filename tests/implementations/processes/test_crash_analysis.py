from functools import partial

import pytest

from gradcheck.implementations.processes.c_worker import Access, Worker
from gradcheck.implementations.processes.crash_analysis import WILD, diagnose
from tests.implementations.processes import scripts
from tests.implementations.processes.scripts import LONG, ended, vjp_script

BYTES = bytes(range(1, 9))


def fresh():
    return Worker(timeout=LONG)


def argument(name, count=3, **options):
    return scripts.argument(name, BYTES * count, **options)


def crashed(library, symbol, **changed):
    """A script, and how it ended."""
    usual = {"dx": argument("dx", access=Access.WRITE), "x": argument("x")}
    script = vjp_script(library, symbol, **{**usual, **changed})
    with fresh() as worker:
        return script, ended(lambda: worker.run(script))


@pytest.fixture
def crash(library):
    """`crash(symbol, **guards)`: the script, and how it ended."""
    return partial(crashed, library)


@pytest.mark.slow(keep=2, rest=9)
@pytest.mark.parametrize(
    ("symbol", "words"),
    [
        ("writes_past", "SIGSEGV in writes_past: it wrote up to 8 bytes past the end of dx"),
        ("reads_past", "SIGSEGV in reads_past: it reads past the end of x"),
        ("clobbers", "SIGSEGV in clobbers: it wrote into its input x (bytes 8 to 15 of 24)"),
        ("rewrites", "SIGSEGV in rewrites: it wrote into its input x (what it held before)"),
        ("null_pointer", f"SIGSEGV in null_pointer: {WILD}"),
        ("writes_far", f"SIGSEGV in writes_far: {WILD}"),
        ("recurses", f"SIGSEGV in recurses: {WILD}"),
        (
            "divides_by_zero",
            "SIGFPE in divides_by_zero: an integer division by zero, "
            "or a floating-point trap that it has enabled",
        ),
        (
            "aborts",
            "SIGABRT in aborts: assertion failed: n",
        ),
        (
            "aborts_silently",
            "SIGABRT in aborts_silently: it called abort(), or its runtime did; see what it "
            "printed",
        ),
        (
            "reads_past_and_aborts",
            "SIGSEGV in reads_past_and_aborts: where it may touch more memory, SIGABRT in "
            "reads_past_and_aborts",
        ),
        ("exits", "exits ended the process with exit status 0"),
    ],
)
def test_a_crash_is_explained(crash, symbol, words):
    assert diagnose(*crash(symbol), fresh) == words


def test_a_write_before_the_start_is_told_from_one_past_the_end(crash):
    before = argument("dx", access=Access.WRITE, guard="start")
    words = diagnose(*crash("writes_before", dx=before), fresh)
    assert words.endswith(": it wrote up to 8 bytes before the start of dx")


@pytest.mark.slow(keep=1)
@pytest.mark.parametrize(
    ("guard", "place", "words"),
    [("start", "-1", "it reads before the start of x"), ("end", "n", "it reads past the end of x")],
)
def test_a_read_outside_is_put_on_its_side(compiled, guard, place, words):
    head = "void f(double* dx, double* dy, double* x, int n)"
    path = compiled(f"{head} {{ dx[0] = ((volatile double*)x)[{place}]; }}")
    found = crashed(path, "f", x=argument("x", guard=guard))
    assert diagnose(*found, fresh) == f"SIGSEGV in f: {words}"


@pytest.mark.slow(keep=1)
@pytest.mark.parametrize(
    ("symbol", "words"),
    [
        ("right", "read from x, which it may not touch"),
        ("clobbers", "wrote into x (bytes 8 to 15 of 24)"),
    ],
)
def test_memory_that_is_none_of_its_business(crash, symbol, words):
    unused = argument("x", access=Access.NONE)
    assert diagnose(*crash(symbol, x=unused), fresh).endswith(f": it {words}")


def test_two_mistakes_are_both_told(crash):
    words = diagnose(*crash("right", n=4), fresh)
    assert words.endswith(": it wrote up to 8 bytes past the end of dx")
    words = diagnose(*crash("clobbers", dx=argument("dx", 2, access=Access.WRITE)), fresh)
    assert "wrote up to 8 bytes past the end of dx and wrote into its input x" in words


def test_a_crash_that_needs_what_went_before_is_told_from_one_that_does_not(library):
    script = vjp_script(library, "dies_the_third_time")
    with fresh() as worker:
        worker.run(script)
        worker.run(script)
        ending = ended(lambda: worker.run(script))
    words = diagnose(script, ending, fresh)
    assert words.startswith("SIGSEGV in dies_the_third_time; not in a process of its own")


def test_a_hang_is_told_as_it_is_and_costs_nothing(library):
    script = vjp_script(library, "hangs")
    with Worker(timeout=0.2) as worker:
        ending = ended(lambda: worker.run(script))

    def unwanted():
        raise AssertionError

    assert diagnose(script, ending, unwanted) == "hangs did not return within 0.2 s"
