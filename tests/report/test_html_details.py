import pytest

from gradcheck.report import html_details, html_matrix
from gradcheck.report.html import render
from gradcheck.results.finding import Certificate
from gradcheck.results.verdict import Verdict

FAIL = Verdict.FAIL
CODED = ("sample", "hunts", "verdict", "certificate", "repro", "cotangent")


def results(chunk):
    """The results of a chunk, as the page's script reads them."""
    names = [name for name, value in chunk.items() if isinstance(value, str)]
    columns = {name: chunk[name].split("\n") for name in names}
    count = sum(chunk["counts"])
    assert {len(column) for column in columns.values()} == {count}
    found = []
    for i in range(count):
        one = {name: column[i] for name, column in columns.items()}
        one |= {name: chunk["texts"][int(one[name])] for name in CODED if one[name]}
        found.append(one | chunk["more"].get(str(i), {}))
    return found


def every(make, run):
    _, *chunks = make.unpacked(render(run))
    return [result for chunk in chunks for result in results(chunk)]


@pytest.mark.slow(keep=2)
def test_every_result_is_in_the_page(any_run, make):
    found = every(make, any_run)
    shown = [v for m in (*html_matrix.matrices(any_run), *html_matrix.model_matrices(any_run, 0))
             for line in m.lines for v in line.views if v is not None]  # fmt: skip
    assert len(found) == sum(len(view.cell.results) for view in shown)


def test_a_result_is_told_in_full(make):
    one = make.result(certificate=Certificate(rejected=("nan", "double"), blind=("half",)),
                      unresolved=2)  # fmt: skip
    (found,) = every(make, make.run(one))
    assert found == {
        "sample": "typical", "hunts": "a missing factor 1/n in the mean", "verdict": "PASS",
        "certificate": "nan,double|half",
        "repro": "gradcheck run --op rms_norm --dialect weight --sample typical --dtype float64",
        "compared": "24", "failed": "", "unresolved": "2", "place": "dx[1, 3]", "got": "0.5",
        "bar": "1e-20", "error": "2.22e-16", "bound": "7.11e-15",
        "times": "0.0312", "ulp": "1", "cotangent": "normal-0",
    }  # fmt: skip


def test_a_failure_says_why_and_lists_its_worst_elements(make):
    worst = tuple(make.miss(index=(i,), error=1e-3 / (i + 1)) for i in range(20))
    one = make.result(verdict=FAIL, diagnosis=make.why(), worst=worst, source="a.py:3",
                      printed="one\ntwo")  # fmt: skip
    (found,) = every(make, make.run(one))
    assert found["lead"] == "scale: dw is 1/3 of the right value"
    assert ["evidence", "3 is the number of rows"] in found["facts"]
    assert len(found["elements"]) == html_details.ELEMENTS
    assert found["elements"][1][0] == "dx[1]"
    assert found["printed"] == ["  one", "  two"]
    assert found["source"] == "a.py:3"


def test_an_ordinary_pass_says_no_more_than_its_numbers(make):
    _, chunk = make.unpacked(render(make.run(make.result())))
    assert chunk["more"] == {}


def test_what_is_special_about_a_pass_is_kept(make):
    one = make.result(evaluations=26, smallest_visible_error=0.25, conventions=("x = 0: 0",),
                      slack="by 64 ulp", taylor=make.curve())  # fmt: skip
    (found,) = every(make, make.run(one))
    assert [label for label, _ in found["facts"]] == ["visible", "taylor"]
    assert found["notes"] == ["x = 0: 0", "wider tolerance: by 64 ulp"]


def test_a_case_is_left_out_of_its_command_only_where_it_can_be_put_back(make):
    case = "rms_norm/weight/typical/float64"
    short, odd = make.result(repro=f"gradcheck repro {case}:x"), make.result(repro="run {} now")
    hostile = make.result(sample="a  b", repro="gradcheck repro 'rms_norm/weight/a  b/float64'")
    found = every(make, make.run(short, odd, hostile))
    assert [r["repro"] for r in found] == ["gradcheck repro {}:x", odd.repro, hostile.repro]


def test_a_chunk_holds_whole_cells(make, monkeypatch):
    monkeypatch.setattr(html_details, "CHUNK", 3)
    found = [make.result(f"op{i}", sample=f"s{j}") for i in range(4) for j in range(2)]
    run = make.run(*found)
    chunks = html_details.chunks(run, html_matrix.matrices(run), {})
    assert [chunk.first for chunk in chunks] == [0, 2]
    assert len(every(make, run)) == 8


def test_no_column_breaks_its_line(foreign, make):
    for one in every(make, foreign):
        assert "\n" not in "".join(v for v in one.values() if isinstance(v, str))


def test_what_a_baseline_says_stands_with_the_result(known, make):
    found = [one for one in every(make, known) if one["verdict"] == "XFAIL"]
    assert found
    assert {one["known"] for one in found} == {"known.toml:7: kept in half"}


@pytest.mark.parametrize("value", [{"a": float("inf")}, [1, "ü"], {}])
def test_packing_is_deterministic(value):
    assert html_details.packed(value) == html_details.packed(value)
