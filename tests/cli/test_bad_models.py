"""A user's mistakes about models: one clear line each, and the rest of the report stands."""

from pathlib import Path

import pytest

TRAINERS = r"""
import numpy as np

def right(params, inputs):
    x, a = params["x"], params["a"]
    return {"x": 2 * a * x, "a": x * x, "b": np.ones_like(x)}

def loss(params, inputs):
    x, a, b = (params[name] for name in "xab")
    return (a * x * x + b).sum()

def with_(**changes):
    def gradients(params, inputs):
        found = {**right(params, inputs), **changes}
        return {name: g for name, g in found.items() if g is not Ellipsis}
    return gradients

def once(params, inputs):
    return {**right(params, inputs), "x_right": params["a"] * params["x"],
            "x_left": params["a"] * params["x"]}

def raises(*_): raise ValueError("no\nkernel")

class Product:
    def vjp(self, ct, x, y): return ct * y, ct * x

class Broken:
    def vjp(self, ct, x, y): raise ValueError("no\nkernel")

def fit(params, inputs):
    x, w, b, y = inputs["x"], params["w"], params["b"], inputs["y"]
    ct = 2 * (x @ w.T + b - y) / y.size
    return {"w": ct.T @ x, "b": ct.sum(0)}

def table(**entry): return {"quadratic": entry, "linear_regression": {"gradients": fit}}

UNKNOWN = table(gradients=with_(bb=np.ones(1)))
MISSING = table(gradients=with_(a=...))
NONE = table(gradients=with_(a=None))
SHAPE = table(gradients=with_(a=np.ones((1, 1))))
ONCE = table(gradients=once, buffers={"x": ("x_left",)})
RAISES = table(gradients=raises)
STAGE = table(stages={"times_a": Broken(), "square": Product()})
NAN = table(gradients=right, loss=lambda params, inputs: float("nan"))
LIST = table(gradients=lambda params, inputs: [1.0])
RIGHT = table(gradients=right, loss=loss)
"""


@pytest.fixture
def models(judged, folder):
    """Both models of a table in float64: results by model and output."""
    Path("trainers.py").write_text(TRAINERS)

    def call(name):
        words = ("--model", "quadratic", "--model", "linear_regression", "--sample", "tiny")
        found = judged(*words, "--dtype", "float64", "--impl", f"trainers:{name}")
        rows = {(r["op"], r["output"]): r for r in found.results}
        others = {r["verdict"] for (op, _), r in rows.items() if op == "linear_regression"}
        assert others == {"pass"}
        lines = {o: r for (op, o), r in rows.items() if op == "quadratic"}
        assert not [r for r in lines.values() if "\n" in (r["reason"] or "")]
        return found.code, lines

    return call


def said(lines):
    return {o: r["verdict"] for o, r in lines.items() if r["verdict"] != "pass"}


@pytest.mark.slow
def test_right_gradients_pass(models):
    code, lines = models("RIGHT")
    assert (code, said(lines)) == (0, {})
    assert {"loss", "x", "a", "b"} <= lines.keys()


@pytest.mark.slow(keep=1)
@pytest.mark.parametrize(
    ("name", "verdicts", "reason"),
    [
        ("UNKNOWN", {"bb": "error"}, "gradients returned 'bb', and the model has no such value"),
        ("MISSING", {"a": "missing"}, "no gradient for a: gradients did not return it"),
        ("NONE", {"a": "missing"}, "no gradient for a: gradients returned None"),
        ("SHAPE", {"a": "fail"}, "the gradient of a has shape (1, 1), a has (1,)"),
        ("NAN", {"loss": "fail"}, "the loss is nan, and the model's is finite here"),
        ("RAISES", {"gradients": "error"}, "gradients raised ValueError: no kernel"),
        ("LIST", {"gradients": "error"}, "gradients returned a list; return a dict from"),
        ("STAGE", {"times_a": "error"}, "the VJP of times_a raised ValueError: no kernel"),
    ],
)
def test_a_mistake_is_one_line_and_what_is_right_passes(models, name, verdicts, reason):
    code, lines = models(name)
    assert code == 1
    assert said(lines) == verdicts
    assert reason in lines[next(iter(verdicts))]["reason"]


def test_a_tied_weight_bound_once_names_the_buffer_that_is_left_over(models):
    code, lines = models("ONCE")
    assert code == 1
    assert said(lines) == {"x": "fail", "x_right": "error"}
    assert lines["x_right"]["reason"].endswith(
        "is it a buffer of a tied weight (x)? Bind all of its buffers"
    )
