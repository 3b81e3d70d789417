import pytest

from gradcheck.implementations.processes.crash_or_hang import (
    Budget,
    Ending,
    because,
    said_in,
    uncounted,
)
from gradcheck.results.verdict import Verdict

BACKTRACE = "\n".join(f"#{i} 0x7f00{i:08x} in frame_{i} (libc.so.6+0x{i:x})" for i in range(300))
REPORTS = {
    "gcc": (
        """log
=================================================================
==17==ERROR: AddressSanitizer: heap-buffer-overflow on address 0x60200000077c at pc 0x7f20 bp 0x7f
WRITE of size 16 at 0x60200000077c thread T0
    #0 0x7f2070fad20e in __interceptor_memcpy ../../src/libsanitizer/sanitizer_common/x.inc:827
    #1 0x7f2070fad20e in rms_backward src/rms.c:31
    #2 0x7f2070fb7f79  (/lib/libffi.so.8+0x6f79)

0x60200000077c is located 0 bytes to the right of 12-byte region [0x602000000770,0x60200000077c)
allocated by thread T0 here:
    #0 0x7f2071c98908 in __interceptor_malloc ../../src/libsanitizer/asan/x.cpp:69
    #1 0x7f2071c98908 in other src/rms.c:5
""",
        "AddressSanitizer: heap-buffer-overflow: WRITE of size 16 in rms_backward src/rms.c:31, "
        "0 bytes after 12-byte region",
    ),
    "clang": (
        """==17==ERROR: AddressSanitizer: heap-use-after-free on address 0x602000000910 at pc 0x7f71
READ of size 4 at 0x602000000910 thread T0
    #0 0x7f71 in __asan_memcpy (/usr/lib/libclang_rt.asan-x86_64.so+0xc5e2) (BuildId: 4b5e)
    #1 0x7f71 in uaf (libk.so+0x1139) (BuildId: 4b5e)

0x602000000910 is located 4 bytes inside of 8-byte region [0x602000000910,0x602000000918)
""",
        "AddressSanitizer: heap-use-after-free: READ of size 4 in uaf (libk.so+0x1139), "
        "4 bytes inside of 8-byte region",
    ),
    "twice freed": (
        """==17==ERROR: AddressSanitizer: attempting double-free on 0x602000000910 in thread T0:
    #0 0x7f71 in __interceptor_free ../../src/libsanitizer/asan/asan_malloc_linux.cpp:52
    #1 0x7f71 in frees k.c:11
""",
        "AddressSanitizer: double-free: in frees k.c:11",
    ),
    "undefined": (
        "a.c:17:90: runtime error: signed integer overflow: 3 + 4 cannot be represented\n",
        "UndefinedBehaviorSanitizer: signed integer overflow: 3 + 4 cannot be represented, "
        "at a.c:17:90",
    ),
}
ASSERTIONS = [
    "/src/ggml.c:1234: GGML_ASSERT(ne0 == ne1) failed",
    "prog: a.c:3: f: Assertion `x > 0' failed.",
    "Assertion failed: (n > 0), function f, file a.c, line 3.",
    "F0101 12:00 a.cc:3] Check failed: a == b (1 vs. 2)",
    "terminate called after throwing an instance of 'E'\n  what():  bad size",
    "thread 'main' panicked at src/lib.rs:3:5:\nindex out of bounds",
    "panic: runtime error: index out of range [3] with length 3",
    "*** stack smashing detected ***: terminated",
    "double free or corruption (out)",
    "free(): invalid pointer",
]


def crash(printed, reason="SIGABRT in f", verdict=Verdict.CRASH):
    return Ending(verdict=verdict, reason=reason, printed=printed, returncode=-6)


@pytest.mark.parametrize("name", REPORTS)
def test_a_sanitizers_report_is_the_reason_and_has_no_address(name):
    text, reason = REPORTS[name]
    assert because(crash(text)) == reason
    assert "0x7" not in reason


@pytest.mark.parametrize("said", ASSERTIONS)
@pytest.mark.parametrize("before", ["", "loading\n" * 500])
def test_what_code_says_as_it_gives_up_is_in_the_reason(said, before):
    printed = f"{before}{said}\n{BACKTRACE}\n"
    assert because(crash(printed)) == f"SIGABRT in f: {' '.join(said.split())}"


@pytest.mark.parametrize(
    "text", ["", "all is well\n", "assertions are on\n", "failure is no option"]
)
def test_other_words_are_no_reason(text):
    assert because(crash(text)) == "SIGABRT in f"
    assert said_in(text) == ""


def test_a_hang_keeps_its_reason_and_an_endless_line_is_cut():
    said = "assertion failed: "
    assert because(crash(said, "late", Verdict.TIMEOUT)) == "late"
    assert len(because(crash(said + "x" * 1_000_000))) < 400


@pytest.mark.parametrize(("verdict", "limit"), [(Verdict.TIMEOUT, 3), (Verdict.CRASH, 10)])
def test_the_rest_of_an_operator_is_left_out_after_so_many_ends(verdict, limit):
    budget = Budget()
    for _ in range(limit - 1):
        budget.spend("softmax", verdict)
        assert budget.exhausted("softmax") is None
    budget.spend("softmax", verdict)
    assert f"not run after {limit} " in budget.exhausted("softmax")
    assert budget.exhausted("relu") is None


def test_other_verdicts_cost_nothing():
    budget = Budget()
    for _ in range(20):
        budget.spend("relu", Verdict.FAIL)
    assert budget.exhausted("relu") is None


def test_what_is_asked_out_of_curiosity_costs_nothing():
    budget = Budget()
    with uncounted():
        for _ in range(20):
            budget.spend("relu", Verdict.TIMEOUT)
    assert budget.exhausted("relu") is None


def test_curiosity_ends_with_what_it_raises():
    budget = Budget()
    with pytest.raises(ValueError, match="died"), uncounted():
        raise ValueError("died")
    for _ in range(3):
        budget.spend("relu", Verdict.TIMEOUT)
    assert budget.exhausted("relu")
