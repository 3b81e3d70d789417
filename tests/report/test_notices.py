from gradcheck.report import run_words
from gradcheck.results.verdict import Verdict

FAIL = Verdict.FAIL


def test_gaps_are_told_once_per_reason(failing):
    gaps = [(g.verdict.value, g.reason, g.ops, g.count) for g in run_words.gaps(failing)]
    assert gaps == [
        ("unsupported", "no axis but the last", ("sort",), 2),
        ("unbound", "reference says nothing about it", ("conv",), 1),
        ("skip", "left out by -k", ("einsum",), 1),
    ]


def test_what_is_unbound_is_one_gap_per_implementation(make):
    run = make.run(
        *(make.result(op, verdict=Verdict.UNBOUND, reason=f"nothing about {op}") for op in "abc"),
        make.result(verdict=Verdict.UNBOUND, implementation="mine"),
    )
    first, second = run_words.gaps(run)
    assert (first.ops, first.reason) == (("a", "b", "c"), "reference says nothing about them")
    assert (second.count, second.reason) == (1, "mine says nothing about it")


def test_what_talks_and_fails_is_no_harmless_noise(make):
    run = make.run(
        make.result("calm", printed="hello\n"),
        make.result("calm", sample="tiny", printed="again\n"),
        make.result("dead", printed="hello\n"),
        make.result("dead", "w", Verdict.CRASH, printed="ouch\n"),
        make.result("silent", printed=" \n"),
    )
    assert [(r.case.op, r.case.sample, count) for r, count in run_words.talkers(run)] == [
        ("calm", "typical", 2)
    ]
