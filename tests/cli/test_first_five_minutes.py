"""What a newcomer does in five minutes, typed in an empty folder, for Python and for C."""

import os
import shlex
import shutil
import subprocess
import sys
from types import SimpleNamespace

import pytest

PYTHON = """
import numpy as np

def silu(ct, x):
    s = 1 / (1 + np.exp(-x))
    return ct * s * (1 + x * (1 - s))

def tanh(ct, x):
    return ct * (1 - np.tanh(x))

def relu(ct, x):
    return ct * (x > 0)

IMPL = {"silu": {"vjp": silu}, "tanh": {"vjp": tanh}, "relu": {"vjp": relu}}
"""
WRONG, RIGHT = "1 - np.tanh(x))", "1 - np.tanh(x) ** 2)"

C = """
#include <math.h>
void silu_backward(float *dx, const float *dy, const float *x, int n) {
  for (int i = 0; i < n; i++) { float s = 1/(1+expf(-x[i])); dx[i] = dy[i]*s*(1+x[i]*(1-s)); }
}
void relu_backward(float *dx, const float *dy, const float *x, int n) {
  for (int i = 0; i < n; i++) dx[i] = x[i] > 0 ? dy[i] : 0;
}
void softmax_backward(float *dx, const float *dy, const float *y, int N, int D) {
  for (int n = 0; n < N; n++) {
    double s = 0;
    for (int i = 0; i < D; i++) s += (double)dy[n*D+i]*y[n*D+i];
    for (int i = 0; i < D; i++) dx[n*D+i] = y[n*D+i]*dy[n*D+i] - s;
  }
}
int a_helper(int a) { return a + 1; }
"""
WRONG_C, RIGHT_C = "y[n*D+i]*dy[n*D+i] - s", "y[n*D+i]*(dy[n*D+i] - s)"


@pytest.fixture
def shell(tmp_path, environment):
    """`shell(line)`: what comes of a line typed in an empty folder; `gradcheck` is on the path."""
    tools, here = tmp_path / "tools", tmp_path / "here"
    tools.mkdir()
    here.mkdir()
    program = tools / "gradcheck"
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m gradcheck "$@"\n')
    program.chmod(0o755)
    env = {**environment, "PATH": f"{tools}{os.pathsep}{os.environ['PATH']}"}

    def typed(line):
        done = subprocess.run(line, shell=True, cwd=here, env=env, capture_output=True, text=True,
                              check=False)  # fmt: skip
        return SimpleNamespace(code=done.returncode, out=done.stdout, err=done.stderr)

    typed.here = here
    return typed


def repro_lines(text):
    return [
        line.removeprefix("  run: ") for line in text.splitlines() if line.startswith("  run: ")
    ]


def adopted(shell, flags, break_it, mend_it):
    """Step 5: what fails is listed, what is broken shows, what is mended is to be taken out."""
    gate = f"gradcheck run {flags} --baseline known.toml"
    assert shell(f"gradcheck baseline write known.toml {flags}").code == 0
    assert shell(gate).code == 0
    break_it()
    broken = shell(gate)
    assert broken.code == 1
    assert "UNLISTED" in broken.out
    mend_it()
    mended = shell(gate)
    assert mended.code == 1
    assert " now: remove the entry" in " ".join(mended.out.split())
    assert shell(f"gradcheck baseline prune known.toml {flags}").code == 0
    done = shell(gate)
    assert (done.code, done.err) == (0, "")


@pytest.mark.slow(rest=0)
def test_in_python(shell):
    module = shell.here / "mymod.py"

    def edit(*pairs):
        text = module.read_text()
        for old, new in pairs:
            assert text.count(old) == 1
            text = text.replace(old, new)
        module.write_text(text)

    module.write_text(PYTHON)
    first = shell("gradcheck run --impl mymod:IMPL --sample typical --sample zero")
    assert (first.code, first.err) == (1, "")
    silu, tanh, relu = (
        next(line for line in first.out.splitlines() if line.startswith(f"{op} "))
        for op in ("silu", "tanh", "relu")
    )
    assert "FAIL" in tanh
    assert "FAIL" not in silu + relu
    told = first.out[first.out.index("\nFAIL tanh/") :]
    assert told.split("\n")[1].partition(" · dx: ")[2]  # a diagnosis, or what was counted
    assert "\n  worst: dx[" in told
    line = repro_lines(told)[0]
    again = shell(line)
    assert (again.code, again.err) == (1, "")
    case, _, gradient = shlex.split(line)[2].partition(":")
    assert f"\n{case}" in again.out
    assert f"\nFAIL d{gradient}" in again.out
    adopted(
        shell,
        "--impl mymod:IMPL --op silu --op tanh --op relu --sample typical",
        lambda: edit(("ct * (x > 0)", "ct * (x >= 1)")),
        lambda: edit(("ct * (x >= 1)", "ct * (x > 0)"), (WRONG, RIGHT)),
    )


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("gcc") is None, reason="there is no gcc")
def test_in_c(shell):
    def build(*pairs):
        text = C
        for old, new in pairs:
            assert text.count(old) == 1
            text = text.replace(old, new)
        (shell.here / "k.c").write_text(text)
        done = shell("mkdir -p build && gcc -g -O2 -shared -fPIC k.c -o build/libk.so -lm")
        assert done.code == 0, done.err

    build()
    found = shell("gradcheck init --lib build/libk.so")
    assert (found.code, found.err) == (0, "")
    assert "It binds 3 operators by name: " in found.out
    assert "Not recognised: a_helper.\n" in found.out
    assert found.out.endswith("\n    gradcheck run --impl gradcheck.toml\n")
    first = shell("gradcheck run --impl gradcheck.toml --sample typical")
    assert first.code == 1
    assert first.err.startswith("gradcheck: judging 3 of ")
    (line, *_) = repro_lines(first.out)
    assert line.startswith("gradcheck repro softmax/default/")
    assert shell(line).code == 1
    adopted(
        shell,
        "--impl gradcheck.toml --op silu --op relu --op softmax --sample typical",
        lambda: build(("x[i] > 0 ? dy[i] : 0", "x[i] > 0 ? dy[i] : 1")),
        lambda: build((WRONG_C, RIGHT_C)),
    )


@pytest.mark.slow(rest=1)
@pytest.mark.skipif(shutil.which("gcc") is None, reason="there is no gcc")
@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ('n = "size(x)"', "", "has a parameter `n` that bind does not explain; add `n = …`"),
        ('n = "size(x)"', 'n = "sice(x)"', "there is no function `sice`; did you mean `size`?"),
        ('x = "in:x"', 'x = "in:w"', "bind.x: silu has no primal `w`"),
        ("silu_backward(", "silu_backwrd(", "did you mean `silu_backward`?"),
        ("build/libk.so", "build/libq.so", "there is no library "),
        ('name = "silu"', 'name = "sily"', "no operator `sily`; did you mean `silu`?"),
    ],
)
def test_a_mistake_in_the_manifest_is_no_numerical_failure(shell, old, new, said):
    (shell.here / "k.c").write_text(C[: C.index("void relu")])
    assert shell("mkdir build && gcc -g -shared -fPIC k.c -o build/libk.so -lm").code == 0
    assert shell("gradcheck init --lib build/libk.so").code == 0
    path = shell.here / "gradcheck.toml"
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))
    found = shell("gradcheck run --impl gradcheck.toml")
    assert found.code in (2, 3)
    assert found.out == ""
    (line,) = found.err.splitlines()
    assert line.startswith("gradcheck: gradcheck.toml, op 1 (")
    assert said in line
