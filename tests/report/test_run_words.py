from gradcheck.report import run_words
from gradcheck.results.verdict import Verdict


def test_the_headline_never_sounds_better_than_the_gate(make):
    passed = make.result()
    skipped = make.result(verdict=Verdict.SKIP)
    failed = make.result(verdict=Verdict.FAIL)
    for run, text in (
        (make.run(), "nothing was checked"),
        (make.run(skipped), "nothing was checked"),
        (make.run(passed), "1 check passed"),
        (make.run(passed, passed, skipped), "all 2 checks passed"),
        (make.run(passed, failed), "1 of 2 checks did not pass"),
        (make.run(passed, failed, complete=False), "1 of 2 checks did not pass"),
        (make.run(passed, complete=False), "the run is incomplete"),
        (make.run(passed, troubles=("x",)), "1 problem kept the run from judging everything"),
    ):
        assert run_words.headline(run) == text
        assert run_words.headline(run).endswith("passed") == run.passed


def test_an_implementation_says_what_it_is(make):
    run = make.run(
        implementations=("gradcheck.toml", "torch", "odd.toml"),
        versions={"gradcheck.toml": "mykernels 1.2", "odd.toml": make.hostile + "x" * 10_000},
    )
    shown = dict(run_words.versions(run))["implementations"]
    assert shown.startswith("gradcheck.toml (mykernels 1.2), torch, odd.toml (")
    assert shown.isprintable()
    assert len(shown) < 1_000
