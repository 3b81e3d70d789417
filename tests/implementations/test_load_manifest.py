import json
import shutil
import sys
from dataclasses import replace

import pytest
from gradcheck_cases import SUITE

from gradcheck.cli.main import main
from gradcheck.errors import LoadError, ManifestError, UsageError
from gradcheck.implementations.load import load
from gradcheck.implementations.native.library import Native
from gradcheck.implementations.process import Process
from gradcheck.implementations.python import Python
from gradcheck.results.verdict import Verdict
from gradcheck.run.execute import execute
from gradcheck.run.plan import Plan

needs_gcc = pytest.mark.skipif(not shutil.which("gcc"), reason="no C compiler")

SOURCE = """
void neg_backward(double* dx, const double* dy, int n) {
    for (int i = 0; i < n; i++) dx[i] = -dy[i];
}
void step_backward(double* dx, const double* dy, int n) {
    for (int i = 0; i < n; i++) dx[i] = dy[i];
}
"""
MANIFEST = """
schema = 1
[impl]
name = "kernels"
version.cmd = "cat built"
[build]
cmd = "echo . >> built && gcc -shared -fPIC -o libk.so k.c"
[c]
library = "libk.so"
[[op]]
name = "neg"
vjp = "void neg_backward(double* dx, const double* dy, int n)"
bind = { dx = "grad:x", dy = "cotangent", n = "size(x)" }
"""


@pytest.fixture
def folder(tmp_path):
    """A folder with a manifest and the source that its build compiles."""
    (tmp_path / "k.c").write_text(SOURCE)
    (tmp_path / "gradcheck.toml").write_text(MANIFEST)
    return tmp_path


def built(folder):
    """How often the build has run."""
    return len((folder / "built").read_text().split()) if (folder / "built").exists() else 0


def edit(folder, old, new):
    path = folder / "gradcheck.toml"
    assert old in path.read_text()
    path.write_text(path.read_text().replace(old, new))
    return str(path)


@needs_gcc
def test_a_manifest_is_built_and_loaded(folder):
    word = str(folder / "gradcheck.toml")
    binding = load(word, SUITE)
    assert isinstance(binding, Native)
    assert binding.name == word
    assert binding.library.version == "."
    assert built(folder) == 1


def test_without_build_nothing_of_the_manifest_is_run(folder):
    word = str(folder / "gradcheck.toml")
    with pytest.raises(LoadError, match=r"there is no library .*libk\.so; build it, or"):
        load(word, SUITE, build=False)
    assert built(folder) == 0


def test_a_manifest_that_cannot_be_right_is_not_built(folder):
    with pytest.raises(ManifestError, match="did you mean `size`"):
        load(edit(folder, "size(x)", "sise(x)"), SUITE)
    assert built(folder) == 0


@needs_gcc
def test_a_build_that_fails_is_a_load_error(folder):
    (folder / "k.c").write_text("void f( {")
    with pytest.raises(LoadError, match=r"error: expected"):
        load(str(folder / "gradcheck.toml"), SUITE)


@needs_gcc
def test_a_function_that_the_library_lacks(folder):
    with pytest.raises(ManifestError, match=r"is not in .*libk\.so; did you mean `neg_backward`"):
        load(edit(folder, "neg_backward", "neg_bwd"), SUITE)


def test_a_manifest_that_is_not_there():
    with pytest.raises(LoadError, match=r"nowhere\.toml: No such file"):
        load("nowhere.toml", SUITE)


def test_a_library_without_a_manifest():
    with pytest.raises(UsageError, match=r"gradcheck init --lib build/libk\.so` writes one"):
        load("build/libk.so", SUITE)


def test_a_program(folder):
    (folder / "program.py").write_text("import sys; sys.exit(3)")
    (folder / "program.toml").write_text(
        "schema = 1\n[impl]\nname = 'p'\n"
        f"[subprocess]\ncmd = ['{sys.executable}', '{folder}/program.py']\nlevel = 'oneshot'\n"
    )
    binding = load(str(folder / "program.toml"), SUITE)
    assert isinstance(binding, Process)
    assert binding.name == str(folder / "program.toml")


def test_a_table_of_python_objects_beside_the_manifest(folder, monkeypatch):
    monkeypatch.setattr(sys, "path", [*sys.path])
    (folder / "kernels_of_a_manifest.py").write_text(
        "class Neg:\n    @staticmethod\n    def vjp(ct, x):\n        return -ct\n"
        "IMPL = {'neg': Neg}"
    )
    path = folder / "python.toml"
    path.write_text(
        "schema = 1\n[impl]\nname = 'p'\n[python]\nentry = 'kernels_of_a_manifest:IMPL'\n"
    )
    binding = load(str(path), SUITE)
    assert isinstance(binding, Python)
    assert binding.name == str(path)
    assert "neg" in binding.table


def run(folder, *flags):
    word = str(folder / "gradcheck.toml")
    return main(["run", "-q", "--op", "neg", "--dtype", "float64", "--impl", word, *flags])


@pytest.mark.slow
@needs_gcc
def test_the_command_line_judges_a_library(folder, capsys):
    report = folder / "report.json"
    assert run(folder, "-o", str(report)) == 0
    assert "RESULT pass" in capsys.readouterr().out
    assert built(folder) == 1
    (said,) = json.loads(report.read_text())["header"]["versions"].values()
    assert said == "kernels ."  # as version.cmd has it
    edit(folder, "neg_backward", "step_backward")
    assert run(folder) == 1
    assert "RESULT fail" in capsys.readouterr().out


@pytest.mark.slow
@needs_gcc
def test_the_command_line_can_be_told_to_run_no_command(folder, capsys):
    assert run(folder, "--no-build") == 3
    assert "there is no library" in capsys.readouterr().err
    assert run(folder) == 0
    assert run(folder, "--no-build") == 0
    assert built(folder) == 1


@pytest.mark.parametrize(
    ("old", "new", "code", "message"),
    [
        ("schema = 1", "schema = ", 2, "no TOML"),
        ("grad:x", "grad:y", 2, "gradcheck.toml, op 1 (neg): bind.dx: neg has no primal `y`"),
        ("gcc", "false && gcc", 3, "failed with exit status 1"),
    ],
)
def test_exit_codes(folder, capsys, old, new, code, message):
    edit(folder, old, new)
    assert run(folder) == code
    assert message in capsys.readouterr().err


@pytest.mark.slow
@needs_gcc
def test_processes_of_one_run_do_not_build_again(folder):
    plan = Plan(
        suite=SUITE,
        cases=SUITE.cases(["neg"]),
        implementations=[str(folder / "gradcheck.toml")],
        dtypes=["float64"],
        seed=0,
        suites=["gradcheck_cases:SUITE"],
    )
    alone = execute(plan)
    assert built(folder) == 1
    together = execute(replace(plan, jobs=2))
    assert built(folder) == 2  # by the process that was asked, not by its two helpers
    verdicts = [(record.name, record.output, record.verdict) for record in alone.results]
    assert [(r.name, r.output, r.verdict) for r in together.results] == verdicts
    assert Verdict.PASS in {verdict for _, _, verdict in verdicts}
    assert {verdict for _, _, verdict in verdicts} <= {Verdict.PASS, Verdict.SKIP}
