"""Imports point backwards, at the top of a module, in a function, and for type checkers alike."""

import ast
import graphlib
import sys
from pathlib import Path

import gradcheck_cases
import pytest

import gradcheck

ENGINE = Path(gradcheck.__file__).parent
CASES = Path(gradcheck_cases.__file__).parent

# From the top down.
ROOMS = (
    *("__main__", "pytest_plugin", "testing", "api", "cli", "report", "power", "run", "explain"),
    *("judge", "implementations", "results", "spec", "numerics", "system", "demo", "errors"),
)
# By whom a dependency may be imported; one that is not named here, by nobody.
OUTSIDE = {
    "numpy": ("numerics", "spec", "implementations", "judge", "power", "explain", "run",
              "report.scripts", "api", "testing", "cli.conformance", "demo.kernels"),
    "msgspec": ("implementations", "results.stored", "cli.config_table", "cli.conformance"),
    "mpmath": ("numerics.fifty_digits", "numerics.highprecision.numbers"),
    "ml_dtypes": ("numerics.dtypes",),
    "torch": ("implementations.tensors", "numerics.highprecision.torch",
              "numerics.highprecision.torch_operators"),
    "jax": ("implementations.jax_op", "numerics.highprecision.jax"),
    "tabulate": ("report",),
    "shtab": ("cli.completion",),
    "elftools": ("implementations.manifest.symbols",),
    "pycparser": ("implementations.manifest.prototype",),
    "simpleeval": ("implementations.manifest.expression", "results.baseline.condition"),
    "dask": ("run.cluster.connect",),
    "distributed": ("run.cluster.connect", "run.cluster.scheduler"),
    "jinja2": ("report.html", "report.html_evidence", "report.html_page"),
    "markupsafe": ("report.html", "report.html_evidence", "report.html_page", "report.diff_html"),
    "pytest": ("pytest_plugin", "testing"),
}  # fmt: skip


def modules(root):
    """Names of the modules below a package, and their files."""
    for path in sorted(root.rglob("*.py")):
        parts = path.relative_to(root.parent).with_suffix("").parts
        yield ".".join(parts[:-1] if parts[-1] == "__init__" else parts), path


ENGINE_MODULES, CASE_MODULES = dict(modules(ENGINE)), dict(modules(CASES))
BOTH = {**ENGINE_MODULES, **CASE_MODULES}


def typed(name):
    """The modules that a module imports for type checkers alone."""
    for node in ast.parse(BOTH[name].read_text()).body:
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            yield from (n.module for n in node.body if isinstance(n, ast.ImportFrom))


def imports(name):
    """The modules that a module imports, wherever in it."""
    for node in ast.walk(ast.parse(BOTH[name].read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{name}: write imports in full"
            for alias in node.names:
                whole = f"{node.module}.{alias.name}"
                yield whole if whole in BOTH else node.module


def room_of(name):
    """The room of a module: the first part of its name; empty for the package itself."""
    return name.removeprefix("gradcheck").lstrip(".").partition(".")[0]


def test_every_module_stands_in_a_room():
    assert {room_of(name) for name in ENGINE_MODULES} == {"", "_moved", *ROOMS}


@pytest.mark.parametrize("name", ENGINE_MODULES)
def test_imports_point_down(name):
    ours = [m for m in imports(name) if m in ENGINE_MODULES]
    if name == "gradcheck":
        assert not [m for m in ours if m not in typed(name)]
    elif room_of(name) != "_moved":
        place = ROOMS.index(room_of(name))
        above = [m for m in ours if room_of(m) and ROOMS.index(room_of(m)) < place]
        assert above == [], f"{name} imports what lies above it"


def test_no_module_needs_itself():
    """Faces that load on use (`__init__` under TYPE_CHECKING) are left out."""
    graph = {
        name: {m for m in imports(name) if m in ENGINE_MODULES and m != name} - {*typed(name)}
        for name in ENGINE_MODULES
    }
    assert [*graphlib.TopologicalSorter(graph).static_order()]


@pytest.mark.parametrize("name", ENGINE_MODULES)
def test_the_engine_knows_no_cases(name):
    assert not [m for m in imports(name) if m.startswith("gradcheck_cases")]
    assert "gradcheck_cases" not in ENGINE_MODULES[name].read_text()


@pytest.mark.parametrize("name", ENGINE_MODULES)
def test_dependencies_stay_where_they_belong(name):
    inside = name.removeprefix("gradcheck.")
    for module in imports(name):
        top = module.partition(".")[0]
        if top not in sys.stdlib_module_names and top != "gradcheck":
            rooms = OUTSIDE.get(top, ())
            assert any(f"{inside}.".startswith(f"{room}.") for room in rooms), f"{name}: {top}"


@pytest.mark.parametrize("name", CASE_MODULES)
def test_a_case_file_sees_specs_alone(name):
    allowed = {
        f"gradcheck.{m}"
        for m in (
            "numerics.arithmetic",
            "numerics.draw",
            "spec",
            "spec.lazy_specs",
            "spec.model",
            "spec.operator",
            "spec.program",
            "spec.rule",
            "spec.suite",
        )
    }
    if ".faults" in name:
        allowed |= {"gradcheck.spec.fault", "gradcheck.power.mutate"}
    if ".mutants" in name:
        allowed |= {f"gradcheck.power.{m}" for m in ("mutate", "rule", "contract")}
        allowed |= {"gradcheck.spec.mutant"}
    peers = {framework for framework in ("torch", "jax") if f".peers.{framework}" in name}
    for module in imports(name):
        top = module.partition(".")[0]
        known = {*sys.stdlib_module_names, "numpy", "gradcheck_cases", *peers}
        assert top in known or module in allowed, f"{name} imports {module}"
        assert peers or not module.startswith("gradcheck_cases.peers")


@pytest.mark.parametrize("name", BOTH)
def test_every_module_says_what_it_is_for(name):
    text = ast.get_docstring(ast.parse(BOTH[name].read_text()))
    assert text
    assert text.partition("\n\n")[0].endswith((".", "?"))
