"""The kill matrix: who is rejected where, and what no sample of an operator would notice."""

import pytest

from gradcheck.report.kills import MARKS, MOST, holed, matrices


def row(make, sample, rejected, blind=(), **changes):
    return make.result(sample=sample, certificate=make.certificate(rejected, blind), **changes)


def kinds(line):
    return [mark.kind for mark in line.marks]


def test_each_impostor_is_rejected_invisible_or_no_impostor_there(make):
    run = make.run(
        row(make, "a", ("zeros", "nan"), ("stale",)),
        row(make, "b", ("stale", "nan"), ("zeros",)),
        row(make, "c", ("nan",)),
    )
    (matrix,) = matrices(run)
    assert matrix.impostors == ("zeros", "nan", "stale")
    assert [line.sample for line in matrix.lines] == ["a", "b", "c"]
    assert [kinds(line) for line in matrix.lines] == [
        ["rejected", "rejected", "blind"],
        ["blind", "rejected", "rejected"],
        ["equal", "rejected", "equal"],
    ]
    assert (matrix.missed, matrix.rejected, matrix.tried) == ((), 5, 7)


def test_what_only_some_checks_of_a_sample_reject_is_half_seen(make):
    run = make.run(
        row(make, "a", ("zeros", "nan")),
        row(make, "a", ("nan",), ("zeros",), dtype="float32"),
        row(make, "a", ("nan", "zeros"), output="weight"),
    )
    (matrix,) = matrices(run)
    zeros, nan = matrix.lines[0].marks
    assert (zeros.kind, nan.kind) == ("partly", "rejected")
    assert zeros.says == (
        "zeros: rejected by some checks, not detected by others by the check of dx in float32"
    )


def test_what_no_sample_rejects_is_missed(make):
    run = make.run(
        row(make, "a", ("nan",), ("stale", "mean")), row(make, "b", ("nan", "mean"), ("stale",))
    )
    (matrix,) = matrices(run)
    assert matrix.missed == ("stale",)


def test_a_sample_that_rejects_nothing_but_nan_is_blind(make):
    run = make.run(
        row(make, "weak", ("nan",), ("zeros",)),
        row(make, "weak", ("nan",), ("zeros",), dtype="float32"),
        row(make, "half", ("nan",), ("zeros",)),
        row(make, "half", ("nan", "zeros"), output="weight"),
    )
    (matrix,) = matrices(run)
    assert [line.blind for line in matrix.lines] == [True, False]


def test_operators_implementations_and_dialects_are_kept_apart(make):
    run = make.run(
        row(make, "a", ("nan",)),
        row(make, "a", ("nan",), dialect="plain"),
        row(make, "a", ("nan",), implementation="mine"),
        row(make, "a", ("nan",), op="gelu"),
        make.result("exp", "x"),
        row(make, "b", ("nan",)),
    )
    found = matrices(run)
    assert [(m.implementation, m.op) for m in found] == [
        ("reference", "rms_norm"), ("mine", "rms_norm"), ("reference", "gelu"),
    ]  # fmt: skip
    assert [(line.dialect, line.sample) for line in found[0].lines] == [
        ("weight", "a"), ("plain", "a"), ("weight", "b"),
    ]  # fmt: skip


@pytest.mark.parametrize("field", [0, 1])
def test_marks_are_told_without_colour(field):
    assert len({pair[field] for pair in MARKS.values()}) == len(MARKS)


def test_foreign_text_is_cleaned(hostile):
    for matrix in matrices(hostile):
        texts = [matrix.op, matrix.implementation, *matrix.impostors, *matrix.missed]
        texts += [mark.says for line in matrix.lines for mark in line.marks]
        texts += [text for line in matrix.lines for text in (line.dialect, line.sample)]
        assert texts
        assert not any("\x1b" in text or "\n" in text for text in texts)


def test_without_certificates_there_is_none(passing, empty):
    assert matrices(passing) == matrices(empty) == []


def test_holes_are_what_a_page_shows_and_the_most_first(make):
    run = make.run(
        row(make, "a", ("zeros", "nan"), op="sharp"),
        row(make, "a", ("nan",), ("zeros",), op="one"),
        row(make, "b", ("zeros", "nan"), op="one"),
        *(row(make, sample, ("nan",), ("zeros",), op="two") for sample in "ab"),
    )
    found = holed(run)
    assert [m.op for m in found] == ["two", "one"]
    assert [line.sample for line in found[1].holes] == ["a"]
    many = [row(make, "a", ("nan",), ("zeros",), op=f"op{i}") for i in range(MOST + 1)]
    assert len(holed(make.run(*many))) == MOST
