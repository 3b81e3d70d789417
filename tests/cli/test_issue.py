"""`gradcheck repro --issue`: a few lines in a framework's own API show what gradcheck says."""

import importlib
import re
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from gradcheck.cli.main import main

WITHOUT = (
    "import runpy, sys\n"
    "sys.modules.update(dict.fromkeys(('gradcheck', 'gradcheck_cases', 'numpy.testing')))\n"
    "sys.path.insert(0, '.')\n"
    "runpy.run_path(sys.argv[1], run_name='__main__')\n"
)
"""Runs a script where gradcheck is not installed."""
TORCH = """
import os, torch
from torch.nn.functional import one_hot
RIGHT = False

def made(forward, wrong, right):
    class Function(torch.autograd.Function):
        @staticmethod
        def forward(ctx, *values):
            ctx.save_for_backward(*values)
            return forward(*values)
        @staticmethod
        def backward(ctx, ct):
            return (right if RIGHT else wrong)(ct, *ctx.saved_tensors)
    return Function

def raises(ct, x):
    raise ValueError("no way")

Tanh = made(torch.tanh, lambda ct, x: 2 * ct * (1 - x.tanh() ** 2),
            lambda ct, x: ct * (1 - x.tanh() ** 2))
Tanh.__qualname__ = "Tanh"  # it is found by its name, and the others by the table

class Gelu(torch.nn.Module):
    def forward(self, x):
        return torch.nn.functional.gelu(x) if RIGHT else torch.nn.functional.silu(x)

IMPL = {
    "tanh": Tanh,
    "relu": made(torch.relu, lambda ct, x: None, lambda ct, x: ct * (x > 0)),
    "silu": made(torch.nn.functional.silu, raises,
                 lambda ct, x: ct * x.sigmoid() * (1 + x * (1 - x.sigmoid()))),
    "mul/same-shape": made(torch.mul, lambda ct, x, y: (ct * y, ct),
                           lambda ct, x, y: (ct * y, ct * x)),
    "max": made(lambda x: x.amax(-1), lambda ct, x: ct[..., None] * (x == x.amax(-1, keepdim=True)),
                lambda ct, x: ct[..., None] * one_hot(x.argmax(-1), x.shape[-1])),
    "gelu/erf": Gelu(),
    "sigmoid": made(torch.sigmoid, lambda ct, x: os.abort(), None),
    "exp": made(torch.exp, lambda ct, x: ct.mul_(x.exp()), lambda ct, x: ct * x.exp()),
}
if not RIGHT:
    IMPL["hardsigmoid"] = torch.nn.functional.logsigmoid
"""
JAX = """
import jax, jax.numpy as jnp
RIGHT = False

def made(forward, wrong, right):
    function = jax.custom_vjp(forward)
    function.defvjp(lambda *values: (forward(*values), values),
                    lambda values, ct: (right if RIGHT else wrong)(ct, *values))
    return function

def softmax(x):
    return jax.nn.softmax(x, axis=-1)

softmax = made(softmax, lambda ct, x: (ct * jax.nn.softmax(x),),
               lambda ct, x: (jax.vjp(jax.nn.softmax, x)[1](ct)[0],))
relu = made(jax.nn.relu, lambda ct, x: (ct * jnp.where(x > 0, 1.0, 1.5 * (x == 0)),),
            lambda ct, x: (ct * jnp.where(x > 0, 1.0, 0.7 * (x == 0)),))
rows = made(lambda x, rows: x[rows], lambda ct, x, rows: (jnp.zeros_like(x).at[rows].set(ct), None),
            lambda ct, x, rows: (jnp.zeros_like(x).at[rows].add(ct), None))
IMPL = {"softmax": softmax, "relu": relu, "get_rows": rows, "mish": jax.nn.softplus,
        "tanh": jax.jit(lambda x: jnp.tanh(x) if RIGHT else jnp.sin(x))}
"""


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A folder to stand in; modules imported from it are forgotten."""
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    monkeypatch.chdir(tmp_path)
    importlib.invalidate_caches()
    before = set(sys.modules)
    yield tmp_path
    for name in set(sys.modules) - before:
        if (getattr(sys.modules[name], "__file__", None) or "").startswith(str(tmp_path)):
            del sys.modules[name]


@pytest.fixture
def issue(folder, capsys):
    """`issue(case, impl, *words, name=)`: exit code, streams, the file's text; and `run()` it."""

    def call(case, impl, *words, name="issue.py", suite="gradcheck_cases:SUITE", isolate=False):
        own = () if isolate else ("--no-isolate",)
        flags = ("--impl", impl, "--suite", suite, *own, "--issue", name)
        code = main(["repro", case, *flags, *words])
        said, path = capsys.readouterr(), folder / name
        text = path.read_text() if path.exists() else None

        def run():
            words = [sys.executable, "-B", "-P", "-c", WITHOUT, str(path)]
            return subprocess.run(words, capture_output=True, text=True, check=False)

        return SimpleNamespace(code=code, out=said.out, err=said.err, text=text, run=run)

    return call


CASES = {
    "function": ("tanh/default/typical/float64", "from mine import Tanh", "Tanh.apply(x)"),
    "low": ("tanh/default/typical/bfloat16", "dtype=torch.bfloat16", "Tanh.apply(x)"),
    "none": ("relu/default/typical/float32", "nan", "IMPL['relu'].apply(x)"),
    "raises": ("silu/default/typical/float64", "ValueError: no way", "out.backward("),
    "second": ("mul/same-shape/typical/float32:y", "y.grad", ".apply(x, y)"),
    "ties": ("max/default/ties/float64", "go together", "[1.0, 1.0]"),
    "module": ("gelu/erf/typical/float64", "IMPL['gelu/erf'].to(torch.float64)(x)", "out"),
}


@pytest.mark.frameworks(rest=2)
@pytest.mark.parametrize("name", CASES)
def test_pytorch_alone_shows_it_until_it_is_mended(issue, folder, name):
    pytest.importorskip("torch")
    (folder / "mine.py").write_text(TORCH)
    case, *said = CASES[name]
    found = issue(case, "mine:IMPL")
    assert found.code == 1, found.err
    code = re.sub("#.*", "", found.text)
    assert "gradcheck" not in code
    assert len(found.text.splitlines()) <= 15
    for text in said:
        assert text in found.text
    done = found.run()
    assert done.returncode == 1
    assert re.search(r" WRONG$", done.stdout, re.M) or "ValueError: no way" in done.stderr
    (folder / "mine.py").write_text(TORCH.replace("RIGHT = False", "RIGHT = True"))
    done = found.run()
    assert (done.returncode, done.stderr) == (0, "")
    assert "WRONG" not in done.stdout
    assert re.search(r" ok$", done.stdout, re.M)


@pytest.mark.frameworks(rest=0)
def test_code_that_kills_its_process_is_an_issue(issue, folder):
    pytest.importorskip("torch")
    (folder / "mine.py").write_text(TORCH)
    found = issue("sigmoid/default/single/float32", "mine:IMPL", name="issue.md", isolate=True)
    assert found.code == 1, found.err
    assert "It ends with SIGABRT." in found.text
    assert "CRASH sigmoid/" in found.text


@pytest.mark.frameworks(rest=1)
def test_a_framework_s_own_function_is_called_by_its_public_name(issue, folder):
    pytest.importorskip("torch")
    (folder / "mine.py").write_text(TORCH)
    found = issue("hardsigmoid/default/typical/float64:x", "mine:IMPL")
    assert found.code == 1, found.err
    assert "import torch\nx = torch.tensor(" in found.text
    assert "\nout = torch.nn.functional.logsigmoid(x)\n" in found.text
    assert "mine" not in re.sub("#.*", "", found.text)
    assert found.run().returncode == 1


@pytest.mark.frameworks(rest=0)
def test_what_the_numbers_do_not_show_is_refused(issue, folder):
    pytest.importorskip("torch")
    (folder / "mine.py").write_text(TORCH)
    found = issue("exp/default/typical/float64", "mine:IMPL")  # writes into its cotangent
    assert (found.code, found.text) == (2, None)
    assert "called by torch alone, the function does not show it" in found.err
    assert "--export FILE.py" in found.err


JAX_CASES = {
    "custom": (
        "softmax/default/typical/float32",
        "from yours import softmax",
        "jax.vjp(softmax, x)",
    ),
    "wide": ("softmax/default/typical/float64", "jax_enable_x64", "jax.vjp(softmax, x)"),
    "kink": ("relu/default/kink/float64", "on kinks, a range", "IMPL['relu']"),
    "indices": ("get_rows/default/repeated/float32:x", "lambda x: ", "rows = jax.numpy.array(["),
    "own": ("mish/default/typical/float32:x", "jax.vjp(jax.nn.softplus, x)", "import jax\nx = "),
    "jit": ("tanh/default/typical/float32:x", "IMPL['tanh']", "jax.vjp("),
}


@pytest.mark.frameworks(rest=1)
@pytest.mark.parametrize("name", JAX_CASES)
def test_jax_alone_shows_it_until_it_is_mended(issue, folder, name):
    pytest.importorskip("jax")
    (folder / "yours.py").write_text(JAX)
    case, *said = JAX_CASES[name]
    found = issue(case, "yours:IMPL")
    assert found.code == 1, found.err
    assert "gradcheck" not in re.sub("#.*", "", found.text)
    assert len(found.text.splitlines()) <= 15
    for text in said:
        assert text in found.text
    done = found.run()
    assert (done.returncode, done.stderr) == (1, "")
    assert re.search(r" WRONG$", done.stdout, re.M)
    (folder / "yours.py").write_text(JAX.replace("RIGHT = False", "RIGHT = True"))
    done = found.run()
    assert (done.returncode, done.stderr) == (int(name == "own"), "")  # that is not the folder's


OURS = """
from gradcheck import OpSpec, Sample, Suite

def forward(xp, x): return xp.sqrt(x * x + 1.0)
def vjp(xp, ct, x): return ct * x / xp.sqrt(x * x + 1.0)
SUITE = Suite("mine", "1", [OpSpec(
    name="round", signature="(n)->(n)", forward=forward, vjp=vjp, formula="x", source="none",
    samples=(Sample(name="only", primals=lambda draw: (draw.normal(3),), hunts="2"),))],
    peers={{"{0}": "peer:TABLE"}})
"""
PEERS = {
    "torch": (
        "import torch\nRIGHT = False\ndef twice(x): return x if RIGHT else x * 1.001\n"
        "def round(x):\n    '''Not in PyTorch.'''\n    return torch.sqrt(twice(x) ** 2 + 1)\n"
        "TABLE = {'round': round}\n"
    ),
    "jax": (
        "import jax.numpy as jnp\nRIGHT = False\n"
        "def round(x): return jnp.sqrt(x * x + 1 if RIGHT else x * x * 1.001 + 1)\n"
        "TABLE = {'round': round}\n"
    ),
}


@pytest.mark.frameworks(rest=1)
@pytest.mark.parametrize("framework", PEERS)
def test_a_suite_s_counterpart_is_written_out(issue, folder, framework):
    pytest.importorskip(framework)
    (folder / "ours.py").write_text(OURS.format(framework))
    (folder / "peer.py").write_text(PEERS[framework])
    found = issue("round/default/only/float64:x", framework, suite="ours:SUITE")
    assert found.code == 1, found.err
    assert not re.search("gradcheck|peer|Not in", re.sub("#.*", "", found.text))
    assert len(found.text.splitlines()) <= 15
    Path("peer.py").unlink()
    done = found.run()
    assert (done.returncode, done.stderr) == (1, "")


@pytest.mark.frameworks(rest=1)
@pytest.mark.parametrize(
    ("framework", "case"),
    [("torch", "rms_norm/weight/typical/float32:w"), ("jax", "softcap/default/typical/float64:x")],
)
def test_a_gradient_that_is_right_is_written_too(issue, framework, case):
    pytest.importorskip(framework)
    found = issue(case, framework, name="issue.md")
    assert found.code == 0, found.err
    lines = found.text.splitlines()
    script = lines[lines.index("```python") + 1 : lines.index("```")]
    assert len(script) <= 15
    assert "It ends with exit status 0, and prints:" in lines
    assert any(line.startswith(f"| {framework} | ") for line in lines)
    assert (
        f"Again: gradcheck repro {case} --suite gradcheck_cases:SUITE --impl {framework}" in lines
    )


@pytest.mark.parametrize(
    ("impl", "name", "says"),
    [
        ("reference", "issue.md", "--issue is for PyTorch and JAX"),
        ("mine:IMPL", "issue.txt", "end its name in .md for Markdown, in .py for its script"),
        ("mine:IMPL", "mine.py", "it exists, and is not an export"),
        ("mine:IMPL", "no/issue.md", "there is no folder"),
        ("mine:IMPL", "issue.md", "--issue is for functions of PyTorch and JAX"),
    ],
)
def test_what_cannot_be_an_issue_is_refused(issue, folder, impl, name, says):
    text = "IMPL = {'tanh': {'vjp': lambda ct, x: 2 * ct}}\n"
    (folder / "mine.py").write_text(text)
    found = issue("tanh/default/single/float64", impl, name=name)
    assert found.code == 2
    assert says in found.err
    assert (folder / "mine.py").read_text() == text
    assert not (folder / "issue.md").exists()
