"""An exported script finds what we found, where nothing of ours is installed."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from gradcheck.cli.main import main

KERNELS = """
import numpy as np

WRONG = True  # a later test repairs it
FACTOR = 2.0 if WRONG else 1.0


class Softmax:
    @staticmethod
    def forward(x):
        e = np.exp(x - x.max(axis=-1, keepdims=True))
        return e / e.sum(axis=-1, keepdims=True)

    @staticmethod
    def vjp(ct, x):
        y = Softmax.forward(x)
        return x.dtype.type(FACTOR) * y * (ct - (ct * y).sum(axis=-1, keepdims=True))


def tanh_pair(x):
    y = np.tanh(x)
    return y, lambda ct: x.dtype.type(FACTOR) * ct * (1 - y * y)


def mul_into(outs, ct, x, y):
    for name, other, own in (("x", y, x), ("y", x, y)):
        if other.shape == own.shape == ct.shape:
            outs[name][...] = x.dtype.type(FACTOR) * ct * other


def norm(ct, x, w, *, eps):
    rms = np.sqrt((x * x).mean(axis=-1, keepdims=True) + eps)
    n = x / rms
    g = ct * w
    dx = (g - n * (g * n).mean(axis=-1, keepdims=True)) / rms
    return dx, x.dtype.type(FACTOR) * (ct * n).reshape(-1, len(w)).sum(axis=0)


def relu(ct, x): return ct * ((x > 0) + (2 * FACTOR - 1.5) * (x == 0))


def rows(ct, x, rows):
    out = np.zeros_like(x)
    np.add.at(out, rows, x.dtype.type(FACTOR) * ct)
    return out, None


TABLE = {
    "softmax": Softmax,
    "tanh": {"forward": tanh_pair},
    "mul/same-shape": {"vjp_into": mul_into},
    "rms_norm/weight": norm,
    "get_rows": {"vjp": rows},
}


class Kept:
    TABLE = {"relu": {"vjp": relu}}
"""
STYLES = [
    ("softmax/default/typical/float64", "kernels:TABLE", True),
    ("softmax/default/typical/float32", "kernels:TABLE", True),
    ("softmax/default/batched/float16", "kernels:TABLE", True),
    ("tanh/default/cube/float32", "kernels:TABLE", True),
    ("tanh/default/single/float64", "kernels:TABLE", True),
    ("mul/same-shape/typical/float64:y", "kernels:TABLE", False),
    ("rms_norm/weight/typical/float32:dw", "kernels:TABLE", False),
    ("get_rows/default/typical/float64:x", "kernels:TABLE", False),
    ("relu/default/kink/float64", "kernels:Kept.TABLE", False),
]
SMALL = ("--no-shrink",)


@pytest.fixture
def kernels(folder):
    path = folder / "kernels.py"
    path.write_text(KERNELS)
    return path


@pytest.mark.slow(keep=1, rest=5)
@pytest.mark.parametrize(("case", "impl", "differenced"), STYLES, ids=[s[0] for s in STYLES])
def test_a_script_is_wrong_until_the_code_is_right(alone, kernels, export, case, impl, differenced):
    wrong = export(case, impl)
    assert wrong.code == 1, wrong.err
    assert "gradcheck" not in re.sub("#.*", "", wrong.text)
    found = alone(wrong.path)
    assert (found.returncode, found.stderr) == (1, "")
    assert "  WRONG\n" in found.stdout
    assert re.search(r"\nWRONG: \d+ of \d+ elements of d", found.stdout)
    assert ("own forward, differenced" in found.stdout) == differenced
    kernels.write_text(KERNELS.replace("WRONG = True ", "WRONG = False"))
    found = alone(wrong.path)
    assert (found.returncode, found.stderr) == (0, "")
    assert re.search(r"\nRIGHT: all \d+ elements of d\w+ agree\n$", found.stdout)


@pytest.mark.slow
def test_a_gradient_that_is_right_is_exported_too(alone, kernels, export):
    kernels.write_text(KERNELS.replace("WRONG = True ", "WRONG = False"))
    for name in ("typical", "saturated", "shifted"):
        right = export(f"softmax/default/{name}/float32", "kernels:TABLE")
        assert right.code == 0
        found = alone(right.path)
        assert (found.returncode, found.stderr) == (0, "")
        assert len(found.stdout.splitlines()) <= 25  # the 20 worst


@pytest.mark.slow
def test_on_a_kink_all_subgradients_are_right(alone, kernels, export):
    wrong = export("relu/default/kink/float64", "kernels:Kept.TABLE", *SMALL)
    assert "\nlow = np.array(" in wrong.text
    for factor, code in ((0.75, 0), (1.25, 0), (1.0, 0), (1.3, 1), (0.7, 1)):
        kernels.write_text(KERNELS.replace("FACTOR = 2.0 if WRONG else 1.0", f"FACTOR = {factor}"))
        assert alone(wrong.path).returncode == code


TIES = """
import numpy as np

def vjp(ct, x):
    ties = x == x.max(axis=-1, keepdims=True)
    return np.asarray(ct)[..., None] * ties{share}

IMPL = {{"max": {{"vjp": vjp}}}}
"""


@pytest.mark.slow
def test_elements_on_a_kink_must_be_right_together(alone, folder, export):
    path = folder / "ties.py"
    path.write_text(TIES.format(share=""))  # each of them is a subgradient; all of them are not
    wrong = export("max/default/ties/float64", "ties:IMPL")
    assert wrong.code == 1, wrong.err
    found = alone(wrong.path)
    assert (found.returncode, found.stderr) == (1, "")
    assert "WRONG: the elements on a kink do not go together" in found.stdout
    path.write_text(TIES.format(share=" / ties.sum(axis=-1, keepdims=True)"))
    assert alone(wrong.path).returncode == 0


def test_the_difference_of_the_codes_own_forward_is_the_true_slope(alone, kernels, export):
    wrong = export("softmax/default/typical/float64", "kernels:TABLE", *SMALL)
    out = alone(wrong.path).stdout
    told = float(re.search(r"first of them: (\S+), with a step", out)[1])
    index, got, want = re.match(r" *(\d+, \d+) +(\S+) +(\S+)", out.splitlines()[1]).groups()
    assert told == pytest.approx(float(want), rel=1e-5)
    assert told == pytest.approx(float(got) / 2, rel=1e-5)
    assert index == wrong.out.partition("dx[")[2].partition("]")[0]


def test_a_forward_that_raises_is_no_verdict(alone, kernels, export):
    script = export("softmax/default/typical/float64", "kernels:TABLE").path
    right = KERNELS.replace("WRONG = True ", "WRONG = False")
    kernels.write_text(right.replace("y = Softmax.forward(x)", "y = softmax(x)") + FAILING)
    found = alone(script)
    assert "differenced at the first of them: not to be had: OSError" in found.stdout
    assert found.returncode == 0


FAILING = """
softmax = Softmax.forward
def fails(x): raise OSError('no')
Softmax.forward = staticmethod(fails)
"""
BROKEN = {
    "none": ("return None", "WRONG: there is no gradient of x"),
    "shape": ("return ct[0]", "WRONG: the gradient of x is float64 of shape (1,), not float64 of"),
    "dtype": ("return ct.astype('float32')", "WRONG: the gradient of x is float32 of shape"),
    "arity": ("return ct, ct", "WRONG: 2 gradients for 1 primals"),
    "random": ("return ct * np.random.rand()", "WRONG: called twice, the code gives two gradients"),
    "raises": ("raise ValueError('no way')", "ValueError: no way"),
    "writes": ("ct *= 0; return ct", "read-only"),
    "exits": ("raise SystemExit(0)", "WRONG: the code asked to exit"),
    "nan": ("return ct * np.nan", "WRONG: "),
    "text": ("return 'abc'", "WRONG: "),
}


@pytest.mark.slow(keep=2, rest=7)
@pytest.mark.parametrize("name", BROKEN)
def test_what_is_no_gradient_is_wrong(alone, folder, export, name):
    body, says = BROKEN[name]
    text = f"import numpy as np\ndef vjp(ct, x): {body}\nIMPL = {{'tanh': {{'vjp': vjp}}}}\n"
    (folder / "broken.py").write_text(text)
    wrong = export("tanh/default/typical/float64", "broken:IMPL")
    assert wrong.code == 1, wrong.err
    found = alone(wrong.path)
    assert found.returncode == 1
    assert says in found.stdout + found.stderr


TWO = """
from gradcheck import OpSpec, Sample, Suite

def forward(xp, x): return xp.sum(x * x), x * x * x
def vjp(xp, ct, x): return 2 * ct[0] * x + 3 * ct[1] * x * x
SUITE = Suite("mine", "1", [OpSpec(
    name="two", signature="(n)->(),(n)", forward=forward, vjp=vjp, formula="x", source="none",
    samples=(Sample(name="only", primals=lambda draw: (draw.normal(3),), hunts="2"),))])
"""


@pytest.mark.slow
def test_a_function_of_two_outputs_gets_two_cotangents(alone, folder, export):
    (folder / "ours.py").write_text(TWO)
    code = "def vjp(ct, x): return {} * ct[0] * x + 3 * ct[1] * x * x\n"
    code += "IMPL = {{'two': {{'vjp': vjp}}}}"
    (folder / "yours.py").write_text(code.format(3))
    wrong = export("two/default/only/float64", "yours:IMPL", suite="ours:SUITE")
    assert wrong.code == 1
    assert alone(wrong.path).returncode == 1
    (folder / "yours.py").write_text(code.format(2))
    assert alone(wrong.path).returncode == 0


@pytest.mark.slow
def test_a_manifest_and_a_package_are_found_where_they_lie(alone, folder, export, monkeypatch):
    package = folder / "far" / "my"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("")
    (package / "kernels.py").write_text(KERNELS)
    manifest = 'schema = 1\n[impl]\nname = "k"\n[python]\nentry = "my.kernels:TABLE"\n'
    (folder / "far" / "gradcheck.toml").write_text(manifest)
    wrong = export("tanh/default/typical/float64", "far/gradcheck.toml")
    assert alone(wrong.path).returncode == 1
    monkeypatch.syspath_prepend(str(folder / "far"))
    wrong = export("tanh/default/typical/float64", "my.kernels:TABLE")
    assert f"sys.path.insert(0, {str(folder / 'far')!r})" in wrong.text
    assert alone(wrong.path).returncode == 1
    wrong = export("tanh/default/typical/float64", "far/my/kernels.py:TABLE")
    assert f"sys.path.insert(0, {str(package)!r})" in wrong.text
    assert alone(wrong.path).returncode == 1


HOSTILE = 'it\'s # """ %s {name}'


def test_hostile_names_and_reasons_stay_text(alone, folder, export):
    (folder / f"{HOSTILE}.py").write_text(
        "def vjp(ct, x):\n"
        '    raise ValueError(\'"""\\nimport os; os.system("touch pwned")\\n\\x1b[1m\')\n'
        "IMPL = {'tanh': {'vjp': vjp}}\n"
    )
    wrong = export("tanh/default/typical/float64", f"{HOSTILE}:IMPL")
    assert wrong.code == 1, wrong.err
    assert "\x1b" not in wrong.text
    comments = [line for line in wrong.text.splitlines() if "os.system" in line]
    assert comments
    assert all(line.startswith("#") for line in comments)
    found = alone(wrong.path)
    assert "ValueError" in found.stderr
    assert not list(Path(folder).rglob("pwned"))


# ── frameworks ───────────────────────────────────────────────────────────────────────────────

FRAMEWORKS = {
    "torch": {
        "apply": (
            "class Tanh(torch.autograd.Function):\n"
            "    @staticmethod\n"
            "    def forward(ctx, x):\n"
            "        y = torch.tanh(x); ctx.save_for_backward(y); return y\n"
            "    @staticmethod\n"
            "    def backward(ctx, ct):\n"
            "        (y,) = ctx.saved_tensors; return FACTOR * ct * (1 - y * y)\n"
            "ENTRY = Tanh\n"
        ),
        "module": (
            "class Tanh(torch.nn.Module):\n"
            "    def forward(self, x): return torch.tanh(x) * (1 if FACTOR == 1 else 1.5)\n"
            "ENTRY = Tanh()\n"
        ),
        "function": "ENTRY = torch.tanh if FACTOR == 1 else torch.sigmoid\n",
    },
    "jax": {
        "jit": (
            "ENTRY = jax.jit(lambda x: jax.numpy.tanh(x) if FACTOR == 1 else jax.numpy.sin(x))\n"
        ),
    },
}
ONE_BY_ONE = """
import contextlib, io, json, runpy, sys
for path in sys.argv[1:]:
    out, code = io.StringIO(), 0
    with contextlib.redirect_stdout(out):
        try:
            runpy.run_path(path, run_name="__main__")
        except SystemExit as end:
            code = end.code
    for name in [name for name in sys.modules if name.startswith("yours")]:
        del sys.modules[name]
    print(json.dumps([code, out.getvalue()]))
"""
"""Runs scripts in one process: to import a framework takes longer than all of them."""


@pytest.mark.frameworks(rest=1)
@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_a_frameworks_code_is_asked_as_its_users_ask_it(folder, export, framework):
    pytest.importorskip(framework)
    codes, scripts = {}, {}
    for name, body in FRAMEWORKS[framework].items():
        path = folder / f"yours_{name}.py"
        codes[path] = f"import {framework}\nFACTOR = 2\n{body}IMPL = {{'tanh': ENTRY}}\n"
        path.write_text(codes[path])
        for dtype in ("float32", "float64"):  # JAX computes in float64 from the second on
            case = f"tanh/default/typical/{dtype}:x"
            wrong = export(case, f"yours_{name}:IMPL", name=f"{name}_{dtype}.py")
            assert wrong.code == 1, wrong.err
            assert "gradcheck" not in re.sub("#.*", "", wrong.text)
            scripts[name, dtype] = str(wrong.path)

    def run():
        words = [sys.executable, "-B", "-P", "-c", ONE_BY_ONE, *scripts.values()]
        done = subprocess.run(words, capture_output=True, text=True, check=False, cwd="/")
        assert (done.returncode, done.stderr) == (0, "")
        return dict(zip(scripts, map(json.loads, done.stdout.splitlines()), strict=True))

    for name, (code, out) in run().items():
        assert code == 1, name
        assert "own forward, differenced at the first of them: " in out, name
    for path, text in codes.items():
        path.write_text(text.replace("FACTOR = 2", "FACTOR = 1"))
    for name, (code, out) in run().items():
        assert code == 0, name
        assert "not to be had" not in out, name


# ── what is refused ──────────────────────────────────────────────────────────────────────────


@pytest.mark.slow(keep=1)
@pytest.mark.parametrize(
    ("impl", "name", "says"),
    [
        ("reference", "r.py", "the reference cannot be exported; name your code"),
        (
            "torch",
            "r.py",
            "torch's own operators cannot be exported; name your code by --impl, or write "
            "--issue FILE.md",
        ),
        ("kernels:TABLE", "r.txt", "end its name in .py for code in Python, in .c for a C library"),
        ("kernels:TABLE", "r.c", "kernels:TABLE is Python; end the name in .py"),
        ("kernels:TABLE", "no/r.py", "there is no folder"),
    ],
)
def test_what_cannot_be_exported_is_refused(kernels, export, impl, name, says):
    found = export("softmax/default/typical/float64", impl, name=name)
    assert found.code == 2
    assert says in found.err
    assert found.text is None


def test_what_is_no_export_is_never_written_over(kernels, export):
    found = export("softmax/default/typical/float64", "kernels:TABLE", name="other.py")
    assert found.code == 1
    again = ["softmax/default/typical/float64", "--impl", "kernels:TABLE", "--export"]
    suite = ["--suite", "gradcheck_cases:SUITE", "--no-isolate", "--no-shrink"]
    assert main(["repro", *again, "other.py", *suite]) == 1
    assert found.path.read_text() != found.text  # as it is, not in small
    assert main(["repro", *again, "kernels.py", *suite]) == 2
    assert kernels.read_text() == KERNELS


def test_one_implementation_is_exported_at_a_time(kernels, export):
    words = ("--impl", "kernels:TABLE")
    found = export("softmax/default/typical/float64", "kernels:Kept.TABLE", *words)
    assert (found.code, found.text) == (2, None)
    assert "name one --impl" in found.err


def test_what_the_code_lacks_is_nothing_to_show(kernels, export):
    found = export("sigmoid/default/typical/float64", "kernels:TABLE")
    assert (found.code, found.text) == (2, None)
    assert "not implemented by kernels:TABLE: there is nothing to show" in found.err
    found = export("softmax/default/empty/float64", "kernels:TABLE")
    assert (found.code, found.text) == (2, None)
    assert "has no elements" in found.err
