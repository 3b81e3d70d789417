"""Failing tensors on file: the numbers that were judged, under names that any disk can hold."""

import json
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

from gradcheck.report.scripts.artifacts import LONGEST, keep, name_of, wanted
from gradcheck.results.verdict import Expected, Gate, Known, Verdict
from gradcheck.run.execute import executed
from gradcheck.run.plan import Plan, loaded
from gradcheck.spec.case_selection import CaseSelection
from gradcheck.system import atomic_io
from tests.case_results import case_result

KERNELS = """
import numpy as np

class RmsNorm:
    @staticmethod
    def vjp(ct, x, w, eps=1e-5, unit_offset=False):
        return 2 * ct, None

def raises(ct, x):
    raise ValueError("no")

IMPL = {
    "tanh": {"vjp": lambda ct, x: ct},
    "silu": {"vjp": raises},
    "rms_norm/weight": RmsNorm,
    "relu": {"vjp": lambda ct, x: ct * (x > 0)},
}
"""


@pytest.fixture
def judged(folder, suite, monkeypatch):
    """`judged(*ops, dtype=…)`: the loaded plan and its run, while the code is still there."""
    (folder / "wrong.py").write_text(KERNELS)
    monkeypatch.syspath_prepend(folder)
    open_now = []

    def call(*ops, dtype="float32", samples=("typical", "square"), impl=("wrong:IMPL",)):
        dialects = ["weight"] if ops == ("rms_norm",) else ["default"]
        chosen = CaseSelection(ops=ops, samples=samples, dialects=dialects).cases(suite)
        plan = Plan(
            suite=suite, cases=chosen.operators, implementations=impl, dtypes=[dtype], seed=0,
            contract=False,
        )  # fmt: skip
        context = loaded(plan)
        ready = context.__enter__()
        open_now.append(context)
        return ready, executed(ready)

    yield call
    for context in open_now:
        context.__exit__(None, None, None)


def load(path):
    with np.load(path, allow_pickle=False) as found:
        return {name: found[name] for name in found.files}


@pytest.mark.slow(keep=1)
@pytest.mark.parametrize("dtype", ["float64", "float32", "float16", "bfloat16"])
def test_a_file_holds_what_was_judged(judged, folder, dtype):
    ready, run = judged("tanh", dtype=dtype)
    kept = keep(ready, run, folder)
    assert (kept.files, kept.of, kept.trouble) == (2, 2, "")
    found = load(folder / f"tanh.default.typical.{dtype}.x.npz")
    about = json.loads(str(found["about"]))
    record = next(r for r in run.results if r.case.name == about["name"])
    assert (about["verdict"], about["output"], about["repro"]) == ("fail", "x", record.repro)
    x, ct = found["primal.x"], found["cotangent.0"]
    assert x.dtype == ct.dtype == np.dtype("float32" if dtype == "bfloat16" else dtype)
    assert found["got"].shape == found["want"].shape == x.shape
    np.testing.assert_array_equal(found["got"], ct.astype(np.float64))
    want = ct.astype(np.float64) * (1 - np.tanh(x.astype(np.float64)) ** 2)
    np.testing.assert_allclose(found["want"], want, rtol=1e-12)
    worst = tuple(about["worst_index"])
    assert worst == record.finding.top.index
    assert found["got"][worst] == record.finding.top.got
    assert found["want"][worst] == pytest.approx(record.finding.top.want, rel=1e-12)


def test_what_gave_nothing_has_its_input_all_the_same(judged, folder):
    ready, run = judged("silu", samples=("typical",))
    assert keep(ready, run, folder).files == 1
    found = load(folder / "silu.default.typical.float32.vjp.npz")
    assert np.isnan(found["got"]).all()
    assert np.isfinite(found["want"]).all()
    assert json.loads(str(found["about"]))["verdict"] == "error"


def test_every_gradient_has_a_file_of_its_own(judged, folder):
    ready, run = judged("rms_norm", samples=("typical",))
    assert keep(ready, run, folder).files == 2
    names = sorted(path.name for path in folder.glob("*.npz"))
    assert names == [f"rms_norm.weight.typical.float32.{n}.npz" for n in ("w", "x")]
    missing, wrong = (load(folder / name) for name in names)
    assert np.isnan(missing["got"]).all()
    assert missing["got"].shape == missing["primal.w"].shape
    np.testing.assert_array_equal(wrong["got"], 2 * wrong["cotangent.0"].astype(np.float64))


def test_what_passes_or_is_known_has_none(judged, folder):
    ready, run = judged("relu")
    assert (wanted(run), keep(ready, run, folder).files) == ([], 0)
    ready, run = judged("tanh")
    first, second = wanted(run)
    known = Expected(accepted=True, known=Known.XFAIL, entry="k.toml:1")
    run = replace(run, gate=Gate(baseline="k.toml", results={first.key: known}))
    assert wanted(run) == [second]
    assert keep(ready, run, folder).files == 1


def test_two_implementations_do_not_share_a_file(judged, folder):
    (folder / "other.py").write_text(KERNELS)
    ready, run = judged("tanh", samples=("typical",), impl=("wrong:IMPL", "other:IMPL"))
    assert keep(ready, run, folder).files == 2
    assert len([*folder.glob("*.npz")]) == 2


def test_files_and_bytes_are_bounded_and_the_first_are_kept(judged, folder):
    ready, run = judged("tanh", samples=("typical", "square", "cube"))
    names = [f"tanh.default.{r.case.sample}.float32.x.npz" for r in wanted(run)]
    kept = keep(ready, run, folder, most=2)
    assert (kept.files, kept.of) == (2, 3)
    assert {path.name for path in folder.glob("*.npz")} == {*names[:2]}
    size = (folder / names[0]).stat().st_size
    for path in folder.glob("*.npz"):
        path.unlink()
    assert keep(ready, run, folder, largest=size).files == 1
    assert keep(ready, run, folder, largest=0).files == 0


def test_the_same_run_writes_the_same_bytes(judged, folder):
    ready, run = judged("tanh", samples=("typical",))
    contents = []
    for _ in range(2):
        keep(ready, run, folder)
        (path,) = folder.glob("*.npz")
        contents.append(path.read_bytes())
    assert contents[0] == contents[1]


def test_a_disk_that_is_full_leaves_no_half_file(judged, folder, monkeypatch):
    ready, run = judged("tanh")
    before = {path.name for path in folder.iterdir()}
    calls = []

    def full(handle):
        calls.append(handle)
        if len(calls) == 2:
            raise OSError(28, "No space left on device")

    monkeypatch.setattr(atomic_io.os, "fsync", full)
    kept = keep(ready, run, folder)
    assert (kept.files, kept.trouble) == (1, "No space left on device")
    assert len({path.name for path in folder.iterdir()} - before) == 1


def result(**changes):
    plain = {"name": "", "hash": "", "implementation": "k", "op": "relu", "dialect": "default",
             "sample": "zero", "dtype": "float32", "output": "x", "verdict": Verdict.FAIL,
             "seed": 0, "repro": ""}  # fmt: skip
    return case_result(**{**plain, **changes})


HARD = [
    result(op="../../etc/passwd"), result(op="a/b"), result(op="a_b"), result(op="A_B"),
    result(op="a" * 500), result(op="a" * 499 + "b"), result(op="x\0y\n"), result(op="ÄÖ"),
    result(op="..."), result(op="-rf"), result(op="con"), result(op="\ud800"), result(op=""),
    result(op="a.default", dialect="zero"), result(op="a", dialect="default.zero"),
]  # fmt: skip


def test_names_are_plain_short_and_never_shared():
    taken = set()
    for record in HARD:
        name = name_of(record, taken, named=True)
        assert name.isascii()
        assert name.isprintable()
        assert not set(name) & set('/\\:*?"<>| ')
        assert not name.startswith((".", "-"))
        assert len(name) <= LONGEST + 20
        assert name.lower() not in taken
        taken.add(name.lower())


def test_a_name_says_what_it_is_about():
    assert name_of(result(), set(), named=False) == "relu.default.zero.float32.x.npz"
    assert name_of(result(), set(), named=True) == "k.relu.default.zero.float32.x.npz"


def test_a_case_that_is_not_there_any_more_is_left_out(judged, folder):
    ready, run = judged("tanh")
    empty = SimpleNamespace(plan=replace(ready.plan, cases=[]), bindings=ready.bindings)
    assert keep(empty, run, folder).files == 0
