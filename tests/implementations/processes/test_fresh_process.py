"""One operator's code cannot silence another: what it lacks only now is asked in a new process."""

import sys
from pathlib import Path

import numpy as np
import pytest
from gradcheck_cases import SUITE

import gradcheck.implementations.isolated as module
from gradcheck.implementations.isolated import Isolated, Isolation
from gradcheck.implementations.manifest.operation import Program
from gradcheck.implementations.protocol.program import Process
from gradcheck.judge.model import judge_model
from gradcheck.judge.model_truth import ModelTruth
from gradcheck.judge.operator import CaseTruth, judge_case
from gradcheck.results.verdict import Verdict

KERNELS = r"""
import gc, sys
import numpy as np
from gradcheck import Unsupported

def right(ct, x): return ct * (x > 0)
def tanh(ct, x): return ct * (1 - np.tanh(x) ** 2)
def lacking(*_, **__): raise Unsupported("not on this machine")

def the_host():
    return next(o for o in gc.get_objects() if type(o).__name__ == "Host")

def binds_unwillingly():
    from gradcheck.implementations.python import Python
    Python.bind = lacking
def answers_for_the_host():
    type(the_host())._bind = lambda *_: {"kind": "none"}
def changes_the_entry():
    TANH["vjp"] = lacking
def hides_the_stages():
    MODEL["stages"] = {}
def silencing(how):
    def vjp(ct, x):
        how()
        return right(ct, x)
    return vjp

def gradients(params, inputs):
    x, a = params["x"], params["a"]
    return {"x": 2 * a * x, "a": x * x, "b": np.ones_like(x)}
class Product:
    @staticmethod
    def vjp(ct, x, y): return ct * y, ct * x

TANH = {"vjp": tanh}
MODEL = {"gradients": gradients, "stages": {"*square*": Product}}
HOW = [binds_unwillingly, answers_for_the_host, changes_the_entry, hides_the_stages]

class Tables:
    def __init__(self):
        for how in HOW:
            table = {"relu": {"vjp": silencing(how)}, "tanh": TANH, "quadratic": MODEL}
            setattr(self, how.__name__, table)
TABLE = Tables()
HONEST = {"relu": {"vjp": right}, "tanh": {"vjp": lacking}, "exp": {"vjp": lacking}}
"""


@pytest.fixture(scope="module", autouse=True)
def folder(tmp_path_factory):
    """A folder with the kernels, on the path."""
    made = tmp_path_factory.mktemp("witness")
    (made / "silencing.py").write_text(KERNELS)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "path", [str(made), *sys.path])
        yield made


@pytest.fixture
def isolated(request):
    """`isolated(name)`: a table of the kernels, in a process of its own."""

    def made(name):
        there = Isolated(f"silencing:{name}", Isolation(suites=["gradcheck_cases:SUITE"]))
        request.addfinalizer(there.close)
        return there

    return made


def verdicts(op, there):
    case, *_ = SUITE.cases([op], [], ["typical"])
    return judge_case(CaseTruth(case), there, "float64")


def of_model(there):
    (case,) = SUITE.model_cases(["quadratic"], [], ["tiny"])
    return judge_model(ModelTruth(case), there, "float64").findings


@pytest.mark.slow(keep=1, rest=1)
@pytest.mark.parametrize("how", ["binds_unwillingly", "answers_for_the_host", "changes_the_entry"])
def test_what_another_operator_has_silenced_is_an_error(isolated, how):
    there = isolated(f"TABLE.{how}")
    assert {f.verdict for f in verdicts("relu", there)} == {Verdict.PASS}
    (finding,) = verdicts("tanh", there)
    assert finding.verdict is Verdict.ERROR
    assert "another operator's code has changed this process" in finding.reason
    assert finding.reason.endswith("before, it ran the code of relu")
    assert {f.verdict for f in verdicts("tanh", there)} == {Verdict.PASS}  # in a process as it was


@pytest.mark.slow
def test_so_is_a_stage_of_a_model(isolated):
    there = isolated("TABLE.hides_the_stages")
    before = {(f.name, f.part) for f in of_model(there)}
    verdicts("relu", there)
    found = of_model(there)
    wrong = [f for f in found if f.verdict is Verdict.ERROR]
    assert "another operator's code has changed this process" in wrong[0].reason
    assert not {f.verdict for f in found} - {Verdict.ERROR, Verdict.PASS}
    again = of_model(there)
    assert {(f.name, f.part) for f in again} == before
    assert {f.verdict for f in again} == {Verdict.PASS}


@pytest.mark.slow
def test_what_is_honestly_lacking_costs_a_process_for_each_that_says_so_when_called(
    isolated, monkeypatch
):
    started = []

    class Counting(module.Child):
        def __init__(self, *args, **options):
            started.append(self)
            super().__init__(*args, **options)

    monkeypatch.setattr(module, "Child", Counting)
    there = isolated("HONEST")
    verdicts("relu", there)
    counts = []
    for op in ("sigmoid", "silu", "tanh", "tanh", "exp", "exp", "sigmoid"):
        (finding,) = verdicts(op, there)
        assert not finding.verdict.checked, finding
        counts.append(len(started))
    # One that binds serves all; one per operator that says so when called; one to bind again.
    assert counts == [2, 2, 2, 2, 3, 3, 4]


@pytest.mark.slow
def test_a_witness_that_cannot_be_started_confirms_nothing(isolated, monkeypatch, folder):
    there = isolated("HONEST")
    verdicts("relu", there)
    text = (folder / "silencing.py").read_text()
    (folder / "silencing.py").write_text("raise ValueError('once only')")
    (finding,) = verdicts("tanh", there)
    (folder / "silencing.py").write_text(text)
    assert finding.verdict is Verdict.ERROR
    assert "a second process cannot tell" in finding.reason
    assert "once only" in finding.reason


@pytest.mark.slow
def test_a_program_is_asked_again_too():
    protocol = Path(__file__).parents[1] / "protocol"
    for lie, verdict in (("silences", Verdict.ERROR), ("", Verdict.PASS)):
        command = (sys.executable, "-I", "-S", "speaker.py", "frames", *filter(None, [lie]))
        program = Program(name="speaker", path=protocol / "gradcheck.toml", command=command,
                          level="frames", timeout=60.0, startup=60.0)  # fmt: skip
        there = Process("speaker.toml", program)
        assert {f.verdict for f in verdicts("tanh", there)} == {Verdict.PASS}
        found = verdicts("mul", there)
        assert {f.verdict for f in found} == {verdict}, lie
        if lie:
            assert "it ran the code of tanh" in found[0].reason
        assert {f.verdict for f in verdicts("mul", there)} == {Verdict.PASS}
        there.close()


@pytest.mark.slow
def test_a_slack_that_the_process_gives_itself_widens_nothing(isolated, monkeypatch):
    there = isolated("HONEST")
    (case,) = SUITE.cases(["relu"], ["default"], ["typical"])
    handle = there._bound(case, "float64")
    handle.facts = {**handle.facts, "slack": {"ulp": 1e300, "because": "it says so"}}
    monkeypatch.setattr(there, "_bound", lambda *_: handle)
    assert there.bind(case, "float64").slack is None
    np.testing.assert_array_equal(there.bind(case, "float64").vjp(np.ones(2), np.ones(2)), 1.0)
