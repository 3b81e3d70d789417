"""What `[tool.gradcheck]` of a project means for a pytest session."""

import subprocess
import sys

import pytest

KERNELS = """
import numpy as np
class Relu:
    vjp = staticmethod(lambda ct, x: ct * (x > 0))
class Doubled:
    vjp = staticmethod(lambda ct, x: 2.0 * ct * (x > 0))
class Tanh:
    vjp = staticmethod(lambda ct, x: ct * (1 - np.tanh(x) ** 2))

RIGHT = {"relu": Relu, "tanh": Tanh}
WRONG = {"relu": Doubled, "tanh": Tanh}
"""
TABLE = """
[tool.gradcheck]
impl = "kernels:WRONG"
suite = "gradcheck_cases:SUITE"
op = ["relu", "tanh"]
sample = "typical"
dtype = "float32"
contract = false
seed = 3
"""
KNOWN = """
[[known]]
match = "relu/*/*/float32"
output = "dx"
verdict = "fail"
reason = "twice the value"
"""
WRONG = "gradcheck::kernels:WRONG::"
XDIST = ("-p", "xdist", "-n", "2")


@pytest.fixture
def project(folder):
    """`project(table)`: the folder, with this in its pyproject.toml."""

    def write(text=TABLE):
        (folder / "pyproject.toml").write_text(text)
        return folder

    return write


def items(found):
    return [line for line in found.stdout.splitlines() if line.startswith("gradcheck::")]


@pytest.mark.slow(rest=1)
@pytest.mark.parametrize("table", [TABLE, "[tool.gradcheck]\nimpl = 3\n"], ids=["right", "wrong"])
def test_a_session_that_asks_for_nothing_is_none_of_the_table_s(pytest_, project, table):
    (project(table) / "test_own.py").write_text(
        "import sys\n"
        "LATE = {'numpy', 'gradcheck.cli.project_defaults'}\n"
        "def test_own(): assert not LATE & set(sys.modules)\n"
    )
    for words in ((), ("--gradcheck-op", "tanh", "--gradcheck-seed", "2")):
        found = pytest_(*words, alone=True)
        assert (found.returncode, "1 passed" in found.stdout) == (0, True), found.stdout


@pytest.mark.slow(rest=2)
@pytest.mark.parametrize(
    ("line", "said"),
    [
        ('implementation = "x"', "unknown key 'implementation': did you mean 'impl'?"),
        ("timeout = 0", "timeout = 0: write seconds, a positive number"),
        ('contract = "\\u001b[31m"', r"contract = '\x1b[31m': write true or false"),
    ],
    ids=["key", "number", "switch"],
)
def test_a_line_that_cannot_be_right_is_a_usage_error(pytest_, project, line, said):
    project(f"[tool.gradcheck]\n{line}\n")
    found = pytest_("--gradcheck")
    assert found.returncode == pytest.ExitCode.USAGE_ERROR
    (first,) = found.stderr.splitlines()[:1]
    assert first == f"ERROR: gradcheck: pyproject.toml: [tool.gradcheck]: {said}"
    assert "Traceback" not in found.stderr


@pytest.mark.slow
def test_it_is_the_line_that_gradcheck_run_says(pytest_, project, environment):
    folder = project("[tool.gradcheck]\nimplementation = 3\n")
    command = [sys.executable, "-P", "-m", "gradcheck", "run"]
    run = subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, check=False
    )
    found = pytest_("--gradcheck-impl=kernels:RIGHT", *XDIST)
    assert found.returncode == pytest.ExitCode.USAGE_ERROR
    assert found.stderr.splitlines()[0] == f"ERROR: {run.stderr.splitlines()[0]}"
    left_out = pytest_("--gradcheck", "--gradcheck-no-config")
    assert left_out.stderr.startswith("ERROR: gradcheck: --gradcheck: no implementation is named: ")


@pytest.mark.slow
@pytest.mark.parametrize("table", ["", "[tool.gradcheck]\nop = 'relu'\n"], ids=["none", "other"])
def test_somebody_s_code_has_to_be_named(pytest_, project, table):
    project(table)
    found = pytest_("--gradcheck")
    assert found.returncode == pytest.ExitCode.USAGE_ERROR
    assert "use --gradcheck-impl, or `impl` in [tool.gradcheck]" in found.stderr


@pytest.mark.slow
def test_an_implementation_that_the_table_names_and_nobody_has_is_a_usage_error(pytest_, project):
    project(TABLE.replace("WRONG", "NONE"))
    found = pytest_("--gradcheck")
    assert found.returncode == pytest.ExitCode.USAGE_ERROR
    assert "kernels:NONE" in found.stderr.splitlines()[0]
    assert "Traceback" not in found.stderr


@pytest.mark.slow
def test_asked_for_it_judges_what_the_table_names(pytest_, project):
    project()
    found = pytest_("--gradcheck", "-rA")
    assert found.returncode == 1
    assert "1 failed, 1 passed" in found.stdout
    assert f"PASSED {WRONG}tanh/default/typical/float32\n" in found.stdout
    assert f"FAILED {WRONG}relu/default/typical/float32 - dx: scale: " in found.stdout
    assert "gradcheck repro relu/default/typical/float32:x " in found.stdout
    assert "--impl kernels:WRONG --seed 3" in found.stdout  # what it rests on stands there


@pytest.mark.slow(rest=1)
@pytest.mark.parametrize(
    ("words", "names"),
    [
        (("--gradcheck-impl=kernels:RIGHT", "--gradcheck-op=tanh"),
         ["gradcheck::kernels:RIGHT::tanh/default/typical/float32"]),
        (("--gradcheck", "--gradcheck-dtype=float64", "--gradcheck-op=relu"),
         [f"{WRONG}relu/default/typical/float64"]),
        (("--gradcheck-impl=reference", "--gradcheck-model=quadratic", "--gradcheck-sample=tiny"),
         ["gradcheck::reference::quadratic/default/tiny/float32"]),  # and no operator
    ],
    ids=["impl", "dtype", "model"],
)  # fmt: skip
def test_a_flag_wins(pytest_, project, words, names):
    project()
    assert items(pytest_(*words, "--collect-only")) == names


@pytest.mark.slow
def test_options_of_pytest_s_own_configuration_are_flags(pytest_, project):
    (project() / "pytest.ini").write_text(
        "[pytest]\naddopts = --gradcheck --gradcheck-impl=kernels:RIGHT --gradcheck-op=relu\n"
    )
    found = pytest_("--collect-only")
    assert items(found) == ["gradcheck::kernels:RIGHT::relu/default/typical/float32"]


@pytest.mark.slow
def test_without_the_table_flags_mean_what_they_do(pytest_, project):
    project()
    words = ("--gradcheck-impl=kernels:RIGHT", "--gradcheck-suite=gradcheck_cases:SUITE")
    found = pytest_(*words, "--gradcheck-no-config", "--gradcheck-op=relu", "--collect-only")
    names = {name.rpartition("::")[2] for name in items(found)}
    assert {"relu/default/typical/float64", "relu/default/cube/float32"} < names


@pytest.mark.slow(rest=1)
@pytest.mark.parametrize("several", [(), XDIST], ids=["one", "two"])
def test_a_folder_below_finds_modules_and_files_of_the_project(pytest_, project, several):
    if several:
        pytest.importorskip("xdist")
    folder = project(f'{TABLE}baseline = "known.toml"\n')
    (folder / "known.toml").write_text(KNOWN)
    inner = folder / "tests" / "inner"
    inner.mkdir(parents=True)
    found = pytest_("--gradcheck", "-rx", *several, cwd=inner)
    assert found.returncode == 0, found.stdout + found.stderr
    assert "2 passed, 1 xfailed" in found.stdout  # one of them is the baseline itself
    assert "../../known.toml:2: twice the value" in found.stdout
    assert "2 checks, 1 known; known failures: ../../known.toml" in found.stdout


@pytest.mark.slow
def test_a_baseline_alone_asks_for_what_the_table_names(pytest_, project):
    (project() / "known.toml").write_text(KNOWN)
    found = pytest_("--gradcheck-baseline", "known.toml")
    assert (found.returncode, "2 passed, 1 xfailed" in found.stdout) == (0, True), found.stdout


@pytest.mark.slow
def test_switches_of_the_table_hold(pytest_, project, folder):
    project(f"{TABLE}no-isolate = true\nno-build = true\n")
    (folder / "kernels.py").write_text(
        f"{KERNELS}\nimport os\nopen(f'pid.{{os.getpid()}}', 'w').close()\n"
    )
    assert "1 failed, 1 passed" in pytest_("--gradcheck").stdout
    assert len([*folder.glob("pid.*")]) == 1


@pytest.mark.slow
def test_the_report_is_that_of_gradcheck_run(pytest_, project, environment):
    table = TABLE.replace("contract = false\n", "taylor = true\n").replace("WRONG", "RIGHT")
    folder = project(table)
    assert pytest_("--gradcheck", "--gradcheck-report", "pytest.json").returncode == 0
    command = [sys.executable, "-P", "-m", "gradcheck", "run", "-q", "-o", "run.json"]
    run = subprocess.run(command, cwd=folder, env=environment, capture_output=True, check=False)
    assert run.returncode == 0
    assert (folder / "pytest.json").read_bytes() == (folder / "run.json").read_bytes()
    said = (folder / "run.json").read_text()
    assert '"seed": 3' in said
    assert '"remainders"' in said
