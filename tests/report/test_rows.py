from gradcheck.report.outline import rows
from gradcheck.results.verdict import Verdict
from tests.case_results import changed


def test_rows_gather_samples_and_keep_everything_else_apart(make):
    base = make.result(compared=10)
    apart = [
        changed(base, implementation="other"),
        changed(base, op="tanh"),
        changed(base, dialect="quick"),
        changed(base, output="forward"),
    ]
    together = [
        changed(base, sample="tiny", verdict=Verdict.FAIL, compared=5),
        changed(base, dtype="float32", verdict=Verdict.MISSING, compared=0),
    ]
    found = rows(make.run(base, *apart, *together))
    assert [(r.implementation, r.op, r.dialect, r.output) for r in found] == [
        (r.case.implementation, r.case.op, r.case.dialect, r.finding.name) for r in (base, *apart)
    ]
    first = found[0]
    assert list(first.cells) == ["float64", "float32"]
    assert first.cells["float64"].results == (base, together[0])
    assert first.cells["float64"].verdict is Verdict.FAIL
    assert first.cells["float32"].verdict is Verdict.MISSING
    assert (first.verdict, first.compared, first.samples) == (Verdict.FAIL, 15, 2)
    assert (found[1].verdict, found[1].compared, found[1].samples) == (Verdict.PASS, 10, 1)
    assert rows(make.run()) == []
