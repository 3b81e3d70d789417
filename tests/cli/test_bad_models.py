"""What is wrong with a bound model is one clear line each, and the rest of the report is intact."""

import json
from pathlib import Path

import pytest

TRAINER = r"""
import numpy as np
import gradcheck_cases
from gradcheck.arithmetic import FLOATS

CASE = next(c for c in gradcheck_cases.SUITE.model_cases(["gpt2"]) if c.size.name == "tiny")
PROGRAM = CASE.program

def folded(params, inputs):
    xp = FLOATS[params["wte"].dtype.name]
    values = PROGRAM.forward(xp, {**params, **inputs})
    cts = PROGRAM.backward(xp, values, xp.asarray(1.0))
    return {name: np.array(cts[name]) for name in params}

def entry(change, **more):
    def gradients(params, inputs):
        return change(folded(params, inputs), params)
    return {"gpt2": {"gradients": gradients, **more}}

def right(found, params):
    return found

def unknown(found, params):
    found["h.0.ln_1.weight"] = found.pop("h.0.ln_1.w")
    return found

def missing(found, params):
    del found["ln_f.w"]
    return found

def shaped(found, params):
    found["wpe"] = found["wpe"].T
    return found

def overwritten(found, params):
    program = PROGRAM
    xp = FLOATS["float64"]
    values = program.forward(xp, CASE.given)
    def vjp(stage, cts, values):
        shares = stage.vjp(xp, cts, values)
        return (None, *shares[1:]) if stage.name == "encoder" else shares
    cts = program.backward(xp, values, xp.asarray(1.0), vjp)
    found["wte"] = np.asarray(cts["wte"]).astype(params["wte"].dtype)
    return found

def raises(found, params):
    raise IndexError("row 7\nof 5")

class Broken:
    @staticmethod
    def vjp(ct, x, w=None, b=None, **attrs):
        raise ZeroDivisionError("at\x1b[31m ln")

RIGHT = entry(right)
UNKNOWN, MISSING, SHAPED, TIED = map(entry, (unknown, missing, shaped, overwritten))
RAISES = entry(raises)
NAN = entry(right, loss=lambda params, inputs: float("nan"))
STAGE = {"gpt2": {"stages": {"ln_f": Broken}}}
GLOB = {"gpt2": {"stages": {"ln_g": Broken}}}
NAME = {"gtp2": {"gradients": folded}}
"""


@pytest.fixture(autouse=True)
def trainer(folder, tmp_path):
    (tmp_path / "trainer.py").write_text(TRAINER)


@pytest.fixture
def judged(run):
    """What a run of one bound model finds in float64: exit code, output, results by name."""

    def call(name):
        ran = run(
            "--model", "gpt2", "--sample", "tiny", "--dtype", "float64",
            "--impl", f"trainer:{name}", "-o", "run.json",
        )  # fmt: skip
        written = Path("run.json")
        results = json.loads(written.read_text())["results"] if written.exists() else []
        return ran, {(r["part"], r["output"]): r for r in results}

    return call


def bad(results):
    return {key: r for key, r in results.items() if r["verdict"] != "pass"}


def test_a_trainer_that_is_right_passes(judged):
    ran, results = judged("RIGHT")
    assert ran.code == 0
    assert bad(results) == {}
    assert len([key for key in results if key[0] == "gradient"]) == 28


def test_an_unknown_parameter_name(judged):
    ran, results = judged("UNKNOWN")
    assert ran.code == 1
    found = bad(results)
    assert found["gradient", "h.0.ln_1.w"]["verdict"] == "missing"
    assert "did you mean 'h.0.ln_1.w'" in found["gradient", "h.0.ln_1.weight"]["diagnosis"]
    assert len(found) == 2


def test_a_missing_gradient_is_not_a_wrong_one(judged):
    ran, results = judged("MISSING")
    assert ran.code == 1
    ((key, found),) = bad(results).items()
    assert key == ("gradient", "ln_f.w")
    assert found["verdict"] == "missing"


def test_a_wrong_shape(judged):
    ran, results = judged("SHAPED")
    ((key, found),) = bad(results).items()
    assert (ran.code, key) == (1, ("gradient", "wpe"))
    assert "shape" in found["diagnosis"]


def test_a_tied_weight_that_is_bound_once(judged):
    ran, results = judged("TIED")
    assert ran.code == 1
    assert list(bad(results)) == [("gradient", "wte")]
    assert "encoder" in ran.out
    assert "tied" in ran.out


def test_a_whole_backward_that_raises(judged):
    ran, results = judged("RAISES")
    assert ran.code == 1
    (found,) = bad(results).values()
    assert found["verdict"] == "error"
    assert "IndexError: row 7 of 5" in found["diagnosis"]


def test_a_model_that_raises_at_one_stage(judged):
    ran, results = judged("STAGE")
    assert ran.code == 1
    ((key, found),) = bad(results).items()
    assert key == ("stage", "ln_f")
    assert found["verdict"] == "error"
    assert "ZeroDivisionError" in found["diagnosis"]
    assert "\x1b" not in ran.out
    assert len([k for k in results if k[0] == "gradient"]) == 28


def test_a_loss_that_is_nan(judged):
    ran, results = judged("NAN")
    ((key, found),) = bad(results).items()
    assert (ran.code, key) == (1, ("value", "loss"))
    assert "nan" in found["diagnosis"]


@pytest.mark.parametrize(("name", "says"), [("GLOB", "ln_f"), ("NAME", "gpt2")])
def test_a_name_that_matches_nothing_suggests_the_nearest(judged, name, says):
    ran, _ = judged(name)
    assert ran.code in (1, 2, 3)
    assert f"did you mean '{says}'" in ran.out + ran.err
    assert "Traceback" not in ran.err
