import json
import shutil
import sys
from dataclasses import replace

import pytest
from gradcheck_cases import SUITE

from gradcheck.cli.main import main
from gradcheck.errors import GradcheckError, LoadError, ManifestError, UnknownNameError, UsageError
from gradcheck.implementations.load import WORDS, load
from gradcheck.implementations.native.library import Native
from gradcheck.implementations.protocol.program import Process
from gradcheck.implementations.python import Python
from gradcheck.implementations.reference import Reference
from gradcheck.results.verdict import Verdict
from gradcheck.run.execute import execute
from gradcheck.run.plan import Plan
from gradcheck.spec.suite import Suite
from tests.implementations.tables import imported


def test_the_reference_needs_nothing():
    assert isinstance(load("reference", Suite("empty", "0", ())), Reference)


def loaded(table):
    return imported(table, lambda word: load(word, SUITE))


def test_a_colon_means_a_table_of_python_functions():
    binding = loaded({})
    assert isinstance(binding, Python)
    assert binding.name == "kernels:IMPL"


@pytest.mark.parametrize(
    ("word", "message"),
    [
        ("refernce", "did you mean 'reference'?"),
        ("Torch", "did you mean 'torch'?"),
        ("kernels", "known: jax, reference, torch"),
        ("", "known: jax, reference, torch"),
    ],
)
def test_another_word_is_a_mistake_of_the_user_with_a_hint(word, message):
    with pytest.raises(UnknownNameError) as caught:
        load(word, SUITE)
    assert message in str(caught.value)
    assert "pkg.module:NAME" in str(caught.value)
    assert caught.value.exit_code == 2


def test_every_word_that_is_offered_is_understood():
    for word in WORDS:
        try:
            assert load(word, SUITE).name == word
        except LoadError as error:  # a framework is not installed
            assert f"pip install {word}" in str(error)  # noqa: PT017


def raising(error):
    class Hostile(dict):
        def items(self):
            raise error

    return Hostile(a=1)


@pytest.mark.parametrize("error", [ValueError("v"), SystemExit(1), RuntimeError("r")])
def test_whatever_a_table_raises_while_it_is_read_is_a_load_error(error):
    with pytest.raises(LoadError, match=f"kernels:IMPL.*{type(error).__name__}") as caught:
        loaded(raising(error))
    assert caught.value.exit_code == 3


def test_ctrl_c_is_no_load_error():
    with pytest.raises(KeyboardInterrupt):
        loaded(raising(KeyboardInterrupt()))


def test_a_load_error_keeps_its_own_words():
    with pytest.raises(LoadError) as caught:
        load("no_such_kernels:IMPL", SUITE)
    assert str(caught.value).startswith("no_such_kernels:IMPL: importing no_such_kernels raised")


def test_pytorch_missing_says_how_to_get_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(LoadError, match="PyTorch is not installed; run `pip install torch`"):
        load("torch", SUITE)
    assert issubclass(LoadError, GradcheckError)


class Op:
    vjp = staticmethod(lambda ct, x: ct)


def test_a_key_beside_an_operators_name_is_refused_and_others_may_be_another_suites():
    for key, meant in (("rleu", "relu"), ("rms_norm/wieght", "rms_norm/weight")):
        with pytest.raises(LoadError, match=f"did you mean '{meant}'"):
            loaded({key: Op})
    assert loaded({"conv_3d_winograd": Op, "relu": Op}).name == "kernels:IMPL"


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


@pytest.mark.slow(keep=2)
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
    verdicts = [
        (record.case.name, record.finding.name, record.finding.verdict) for record in alone.results
    ]
    assert [(r.case.name, r.finding.name, r.finding.verdict) for r in together.results] == verdicts
    assert Verdict.PASS in {verdict for _, _, verdict in verdicts}
    assert {verdict for _, _, verdict in verdicts} <= {Verdict.PASS, Verdict.SKIP}
