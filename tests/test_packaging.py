import configparser
import email.parser
import os
import re
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from pathlib import Path, PurePosixPath

import pytest
import yaml

import gradcheck

ROOT = Path(__file__).parents[1]
PYPROJECT = ROOT / "pyproject.toml"
pytestmark = pytest.mark.skipif(not PYPROJECT.exists(), reason="not in a source tree")
BUILD = "import sys; from hatchling import build; print(getattr(build, sys.argv[1])(sys.argv[2]))"


def built(kind, source, into):
    """Build with the backend itself: no isolation, no network."""
    pytest.importorskip("hatchling")
    command = [sys.executable, "-P", "-c", BUILD, f"build_{kind}", str(into)]
    done = subprocess.run(command, cwd=source, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return into / done.stdout.split()[-1]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    with zipfile.ZipFile(built("wheel", ROOT, tmp_path_factory.mktemp("wheel"))) as archive:
        yield archive


@pytest.fixture(scope="module")
def sdist(tmp_path_factory):
    return built("sdist", ROOT, tmp_path_factory.mktemp("sdist"))


@pytest.fixture(scope="module")
def metadata(wheel):
    (name,) = (n for n in wheel.namelist() if n.endswith(".dist-info/METADATA"))
    return email.parser.Parser().parsestr(wheel.read(name).decode())


def names(root):
    """Files below a folder of the source tree, as an archive would name them."""
    found = (p.relative_to(root.parent) for p in root.rglob("*") if p.is_file())
    return {p.as_posix() for p in found if "__pycache__" not in p.parts}


def test_the_wheel_puts_exactly_two_names_into_site_packages(wheel):
    top = {PurePosixPath(name).parts[0] for name in wheel.namelist()}
    assert top == {
        "gradcheck",
        "gradcheck_cases",
        f"gradcheck-{gradcheck.__version__}.dist-info",
    }


def test_the_wheel_holds_every_file_of_the_packages_and_no_other(wheel):
    packed = {n for n in wheel.namelist() if ".dist-info/" not in n}
    assert packed == names(ROOT / "gradcheck") | names(ROOT / "cases" / "gradcheck_cases")
    for name in ("gradcheck/py.typed", "gradcheck_cases/py.typed",
                 "gradcheck/report/templates/report.html.j2"):  # fmt: skip
        assert name in packed


def test_the_wheel_carries_the_licence(wheel, metadata):
    (name,) = (n for n in wheel.namelist() if n.endswith("/licenses/LICENSE"))
    assert wheel.read(name) == (ROOT / "LICENSE").read_bytes()
    assert b"Apache License" in wheel.read(name)
    assert metadata["License-Expression"] == "Apache-2.0"


def test_the_version_stands_in_one_place(metadata):
    project = tomllib.loads(PYPROJECT.read_text())["project"]
    assert "version" not in project
    assert metadata["Version"] == gradcheck.__version__
    assert re.fullmatch(r"\d+\.\d+\.\d+", gradcheck.__version__)
    sources = [PYPROJECT, *(ROOT / "gradcheck").rglob("*.py"), *(ROOT / "cases").rglob("*.py")]
    where = [p.name for p in sources if f'"{gradcheck.__version__}"' in p.read_text()]
    assert where == ["__init__.py"]


def test_few_packages_are_required_and_the_others_are_extras(metadata):
    required = [r for r in metadata.get_all("Requires-Dist") if "extra ==" not in r]
    assert {re.match(r"[\w-]+", r)[0] for r in required} == {
        "jinja2",
        "ml-dtypes",
        "mpmath",
        "msgspec",
        "numpy",
        "pycparser",
        "pyelftools",
        "shtab",
        "tabulate",
    }
    assert {"torch", "jax", "test"} <= set(metadata.get_all("Provides-Extra"))
    assert metadata["Requires-Python"] == ">=3.11"


def test_the_entry_points_name_what_exists(wheel):
    (name,) = (n for n in wheel.namelist() if n.endswith("/entry_points.txt"))
    parser = configparser.ConfigParser(delimiters="=")
    parser.read_string(wheel.read(name).decode())
    assert {s: dict(parser[s]) for s in parser.sections()} == {
        "console_scripts": {"gradcheck": "gradcheck.__main__:main"},
        "gradcheck.suites": {"builtin": "gradcheck_cases:SUITE"},
        "pytest11": {"gradcheck": "gradcheck.pytest_plugin"},
    }


@pytest.mark.slow
def test_the_wheel_works_where_there_is_nothing_else(wheel, tmp_path):
    site, home = tmp_path / "site", tmp_path / "home"
    wheel.extractall(site)
    home.mkdir()
    program = (
        "import sys, gradcheck, gradcheck_cases\n"
        "assert all(m.__file__.startswith(sys.argv[1]) for m in (gradcheck, gradcheck_cases))\n"
        "from gradcheck.cli.main import main\n"
        "sys.exit(main(['run', '--op', 'relu', '-o', 'out.html', '-o', 'out.xml']))"
    )
    done = subprocess.run(
        [sys.executable, "-P", "-c", program, str(site)],
        cwd=home, env={**os.environ, "PYTHONPATH": str(site)},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")
    assert f"gradcheck {gradcheck.__version__} · suite builtin " in done.stdout
    assert sorted(p.name for p in home.iterdir()) == ["out.html", "out.xml"]


@pytest.mark.slow
def test_the_source_archive_carries_what_testing_takes(sdist):
    with tarfile.open(sdist) as archive:
        members = {PurePosixPath(m.name).relative_to(sdist.name.removesuffix(".tar.gz"))
                   for m in archive.getmembers()}  # fmt: skip
    held = {str(m) for m in members}
    whole = {"tox.ini", "pyproject.toml", "LICENSE", "README.md", "CHANGELOG.md", "CITATION.cff"}
    assert {*whole, ".pre-commit-hooks.yaml", "action/action.yml", "mkdocs.yml"} <= held
    assert names(ROOT / "docs") <= held
    assert {"gradcheck", "cases", "tests", "reports"} <= {m.parts[0] for m in members}
    assert names(ROOT / "tests") <= held
    assert names(ROOT / "cases") <= held
    assert not {m for m in members if ".ci" in m.parts or "__pycache__" in m.parts}


@pytest.mark.slow
def test_the_source_archive_builds_the_same_wheel(sdist, wheel, tmp_path):
    with tarfile.open(sdist) as archive:
        archive.extractall(tmp_path, filter="data")
    source = tmp_path / sdist.name.removesuffix(".tar.gz")
    with zipfile.ZipFile(built("wheel", source, tmp_path / "again")) as again:
        assert again.namelist() == wheel.namelist()


# ── a release ────────────────────────────────────────────────────────────────────────────────────

HERE = re.compile(r"https://HOST/OWNER/gradcheck\b")


def test_what_is_said_of_the_project_is_said_alike(metadata):
    cited = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert cited["title"] == metadata["Name"]
    assert cited["license"] == metadata["License-Expression"]
    assert ",".join(sorted(cited["keywords"])) == metadata["Keywords"]
    assert {"cff-version", "message", "authors"} <= {*cited}
    urls = dict(line.split(", ") for line in metadata.get_all("Project-URL"))
    assert {"Source", "Documentation", "Changelog", "Issues"} == {*urls}
    assert all(HERE.match(url) for url in (*urls.values(), cited["repository-code"]))
    for url in (urls["Documentation"], urls["Changelog"]):
        assert (ROOT / url.partition("/blob/main/")[2]).is_file()


def test_classifiers_agree_with_what_is_required(metadata):
    """Whether each exists is checked by the build."""
    said = metadata.get_all("Classifier")
    minors = [int(c.rpartition(".")[2]) for c in said if re.search(r":: 3\.\d+$", c)]
    assert minors == [*range(11, 11 + len(minors))]
    assert metadata["Requires-Python"] == f">=3.{minors[0]}"
    assert not any(c.startswith("License ::") for c in said)  # the expression says it


@pytest.mark.slow
def test_the_hook_of_pre_commit_runs(tmp_path):
    (hook,) = yaml.safe_load((ROOT / ".pre-commit-hooks.yaml").read_text())
    assert (hook["id"], hook["language"], hook["pass_filenames"]) == ("gradcheck", "python", False)
    program, *words = hook["entry"].split()
    assert program in tomllib.loads(PYPROJECT.read_text())["project"]["scripts"]
    page = (ROOT / "docs" / "guides" / "ci.md").read_text(encoding="utf-8")
    text = re.search(r'```yaml title="\.pre-commit-config\.yaml"\n(.*?)```', page, re.DOTALL)[1]
    (shown,) = yaml.safe_load(text)["repos"]
    assert HERE.fullmatch(shown["repo"])
    assert shown["rev"] == f"v{gradcheck.__version__}"
    assert shown["hooks"][0]["id"] == hook["id"]
    assert shown["hooks"][0]["args"][:2] == ["--impl", "mykernels:IMPL"]
    for factor, code in ((1, 0), (2, 1)):
        vjp = f"def vjp(ct, x): return {factor} * ct / np.cosh(x) ** 2"
        text = f"import numpy as np\n{vjp}\nIMPL = {{'tanh': {{'vjp': vjp}}}}\n"
        (tmp_path / "mykernels.py").write_text(text)
        small = ["--op", "tanh", "--sample", "typical", "--dtype", "float64", "--no-contract"]
        command = [sys.executable, "-m", "gradcheck", *words, "--impl", "mykernels:IMPL", *small]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
        assert (done.returncode, done.stderr) == (code, "")
