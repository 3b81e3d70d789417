"""gradcheck where a system lacks what Linux has: `elsewhere/sitecustomize.py` removes it.

The worst that may happen is one line that says what is needed. Neither system is here: what they do
differently, and does not show by an absence, is not tested.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
NEEDS = (
    "gradcheck: this runs code in processes of its own, which needs Linux, macOS or WSL; on "
    "Windows use `gradcheck run --no-isolate` without -j, or `gradcheck.check` in Python\n"
)
KERNELS = """
import numpy as np
RIGHT = {"tanh": {"vjp": lambda ct, x: ct * (1 - np.tanh(x) ** 2)}}
WRONG = {"tanh": {"vjp": lambda ct, x: -ct * (1 - np.tanh(x) ** 2)}}
"""
MANIFEST = """schema = 1
[impl]
name = "k"
[c]
library = {macos = "libk.dylib", linux = "libk.so"}
[[op]]
name = "tanh"
vjp = "void tanh_backward(double *dx, const double *dy, const double *x, int n)"
bind = {dx = "grad:x", dy = "cotangent", x = "in:x", n = "size(x)"}
"""
IMPORTS = """
import importlib, pathlib, sys
import gradcheck
from gradcheck.errors import UsageError
root, refused = pathlib.Path(gradcheck.__file__).parent, 0
for file in sorted(root.rglob("*.py")):
    if file.name == "__main__.py" or file.parent.name == "cluster":  # needs an extra
        continue
    if file.parent.name == "highprecision" and file.stem.startswith(("torch", "jax")):
        continue
    parts = file.relative_to(root.parent).with_suffix("").parts
    try:
        importlib.import_module(".".join(parts).removesuffix(".__init__"))
    except UsageError:
        refused += 1
print(refused)
"""
CHECK = """
import numpy as np, gradcheck
x = np.array([0.5, -1.25, 2.0])
right = lambda ct, x: ct * (1 - np.tanh(x) ** 2)
assert gradcheck.check(np.tanh, right, x).ok
assert not gradcheck.check(np.tanh, lambda ct, x: ct * (1 - np.tanh(x)), x).ok
gradcheck.assert_vjp(np.tanh, right, x)
try:
    gradcheck.assert_vjp(np.tanh, lambda ct, x: -ct, x)
except AssertionError as error:
    assert "FAIL" in str(error)
else:
    raise SystemExit("a wrong VJP passed")
"""


@pytest.fixture
def on(tmp_path):
    """`on(system, *words, python=False)`: gradcheck, or Python, there: exit code and output."""
    (tmp_path / "kernels.py").write_text(KERNELS)
    (tmp_path / "gradcheck.toml").write_text(MANIFEST)

    def call(system, *words, python=False):
        path = [Path(__file__).parent / "elsewhere", ROOT, ROOT / "cases"]
        env = {**os.environ, "ELSEWHERE": system, "PYTHONPATH": os.pathsep.join(map(str, path))}
        program = [sys.executable] if python else [sys.executable, "-m", "gradcheck"]
        return subprocess.run(
            [*program, *words], cwd=tmp_path, env=env, capture_output=True, text=True,
            check=False, timeout=300,
        )  # fmt: skip

    return call


SMALL = ("--op", "tanh", "--sample", "typical", "-q")


@pytest.mark.slow
@pytest.mark.parametrize(("system", "some"), [("win32", True), ("darwin", False)])
def test_every_module_is_imported_or_refused_in_one_sentence(on, system, some):
    found = on(system, "-c", IMPORTS, python=True)
    assert (found.returncode, found.stderr) == (0, "")
    assert (int(found.stdout) > 0) == some


@pytest.mark.slow(keep=1)
@pytest.mark.parametrize("system", ["win32", "darwin"])
def test_check_and_assert_vjp_judge(on, system):
    found = on(system, "-c", CHECK, python=True)
    assert (found.returncode, found.stderr) == (0, "")


@pytest.mark.slow(keep=1, rest=4)
@pytest.mark.parametrize("system", ["win32", "darwin"])
@pytest.mark.parametrize(
    ("words", "code"),
    [
        ("run", 0),
        ("run -j auto --max-time 300", 0),
        ("run --no-isolate --impl kernels:RIGHT", 0),
        ("run --no-isolate --impl kernels:WRONG", 1),
    ],
)
def test_what_needs_no_process_runs(on, system, words, code):
    command, *more = words.split()
    found = on(system, command, *SMALL, *more)
    assert (found.returncode, found.stderr) == (code, "")
    assert found.stdout.splitlines()[-1].startswith(f"RESULT {'fail' if code else 'pass'} checked=")


@pytest.mark.slow(keep=1, rest=5)
@pytest.mark.parametrize(
    "words",
    [
        "run --impl kernels:RIGHT",
        "run --impl gradcheck.toml",
        "run --impl gradcheck.toml --no-isolate",
        "run -j 2",
        "demo",
        "power --op tanh",
        "probe -- cat",
        "export there",
    ],
)
def test_what_needs_a_process_says_so_on_windows(on, words):
    command, *more = words.split(" ")
    small = SMALL if command == "run" else ()
    found = on("win32", command, *small, *more)
    assert (found.returncode, found.stdout, found.stderr) == (2, "", NEEDS)


@pytest.mark.slow(rest=2)
@pytest.mark.parametrize(
    ("words", "code"),
    [("run --impl kernels:WRONG", 1), ("run --impl kernels:RIGHT -j 2", 0), ("demo", 0)],
)
def test_processes_work_on_macos(on, words, code):
    """Without pidfd, waitid, /proc and prctl; workers are spawned, not forked."""
    command, *more = words.split()
    found = on("darwin", command, *(SMALL if command == "run" else ()), *more)
    assert (found.returncode, found.stderr) == (code, "")
    assert ("CRASH" in found.stdout) == (command == "demo")


@pytest.mark.slow
@pytest.mark.parametrize("system", ["win32", "darwin"])
def test_files_are_written_and_read_again(on, system, tmp_path):
    reports = ("-o", "new.jsonl", "-o", "new.html", "-o", "new.xml")
    assert on(system, "run", *SMALL, *reports).returncode == 0
    for words, code, said in [
        ("report new.jsonl -o again.html --format concise", 0, "RESULT pass"),
        ("diff new.jsonl new.jsonl", 0, "DIFF"),
        ("repro tanh/default/typical/float64 --impl kernels:WRONG --no-isolate", 1, "RESULT fail"),
        ("list --op tanh", 0, "tanh"),
        ("baseline write known.toml new.jsonl", 0, ""),
    ]:
        found = on(system, *words.split())
        assert (found.returncode, found.stderr) == (code, ""), words
        assert said in found.stdout
    assert (tmp_path / "again.html").read_bytes() == (tmp_path / "new.html").read_bytes()


@pytest.mark.slow
def test_a_manifest_finds_the_library_of_its_system(on, tmp_path):
    found = on("darwin", "run", *SMALL, "--impl", "gradcheck.toml")
    assert found.returncode in (2, 3)
    assert "libk.dylib" in found.stderr
    assert "libk.so" not in found.stderr
