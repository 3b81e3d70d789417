"""Imports point backwards, at the top of a module, in a function, and for type checkers alike."""

import ast
import graphlib
import sys
from functools import cache
from pathlib import Path

import gradcheck_cases

import gradcheck

ENGINE = Path(gradcheck.__file__).parent
CASES = Path(gradcheck_cases.__file__).parent

# From the top down.
ROOMS = (
    *("__main__", "pytest_plugin", "testing", "api", "cli", "report", "power", "run", "explain"),
    *("judge", "implementations", "results", "spec", "numerics", "system", "demo", "errors"),
    "former_names",
)
# By whom a dependency may be imported; one that is not named here, by nobody.
OUTSIDE = {
    "numpy": ("numerics", "spec", "implementations", "judge", "power", "explain", "run",
              "report.scripts", "api", "testing", "cli.conformance", "demo.kernels"),
    "msgspec": ("implementations", "results.stored", "cli.conformance"),
    "mpmath": ("numerics.fifty_digit_arithmetic", "numerics.highprecision.numbers"),
    "ml_dtypes": ("numerics.arrays",),
    "torch": ("implementations.torch_op", "numerics.highprecision.torch",
              "numerics.highprecision.torch_operators"),
    "jax": ("implementations.jax", "numerics.highprecision.jax"),
    "tabulate": ("report",),
    "shtab": ("cli.completion",),
    "elftools": ("implementations.manifest.library_file",),
    "pycparser": ("implementations.manifest.prototype",),
    "dask": ("run.cluster.client",),
    "distributed": ("run.cluster.client", "run.cluster.scheduler"),
    "jinja2": ("report.html", "report.html_evidence", "report.html_page"),
    "markupsafe": ("report.html", "report.html_evidence", "report.html_page"),
    "pytest": ("pytest_plugin", "testing"),
}  # fmt: skip


def modules(root):
    """Names of the modules below a package, and their files."""
    for path in sorted(root.rglob("*.py")):
        parts = path.relative_to(root.parent).with_suffix("").parts
        yield ".".join(parts[:-1] if parts[-1] == "__init__" else parts), path


ENGINE_MODULES, CASE_MODULES = dict(modules(ENGINE)), dict(modules(CASES))
BOTH = {**ENGINE_MODULES, **CASE_MODULES}


@cache
def tree(name):
    """The syntax of a module."""
    return ast.parse(BOTH[name].read_text())


def typed(name):
    """The modules that a module imports for type checkers alone."""
    for node in tree(name).body:
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            yield from (n.module for n in node.body if isinstance(n, ast.ImportFrom))


@cache
def imports(name):
    """The modules that a module imports, wherever in it."""
    found = []
    for node in ast.walk(tree(name)):
        if isinstance(node, ast.Import):
            found += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{name}: write imports in full"
            wholes = [f"{node.module}.{alias.name}" for alias in node.names]
            found += [whole if whole in BOTH else node.module for whole in wholes]
    return found


def ours(name):
    """Those of them that are the engine's."""
    return [m for m in imports(name) if m in ENGINE_MODULES]


def room_of(name):
    """The room of a module: the first part of its name; empty for the package itself."""
    return name.removeprefix("gradcheck").lstrip(".").partition(".")[0]


def test_every_module_stands_in_a_room():
    assert {room_of(name) for name in ENGINE_MODULES} == {"", *ROOMS}


def test_imports_point_down():
    assert {*ours("gradcheck")} - {*typed("gradcheck")} == {"gradcheck.former_names"}
    above = [
        f"{name} imports {m}"
        for name in ENGINE_MODULES
        if room_of(name) in ROOMS
        for m in ours(name)
        if room_of(m) and ROOMS.index(room_of(m)) < ROOMS.index(room_of(name))
    ]
    assert above == []


def test_no_module_needs_itself():
    """Faces that load on use (`__init__` under TYPE_CHECKING) are left out."""
    graph = {name: {*ours(name)} - {*typed(name), name} for name in ENGINE_MODULES}
    assert [*graphlib.TopologicalSorter(graph).static_order()]


def test_the_engine_knows_no_cases():
    knows = [name for name, file in ENGINE_MODULES.items() if "gradcheck_cases" in file.read_text()]
    assert knows == []


def test_dependencies_stay_where_they_belong():
    astray = []
    for name in ENGINE_MODULES:
        inside = name.removeprefix("gradcheck.")
        for module in imports(name):
            top = module.partition(".")[0]
            if top not in sys.stdlib_module_names and top != "gradcheck":
                rooms = OUTSIDE.get(top, ())
                if not any(f"{inside}.".startswith(f"{room}.") for room in rooms):
                    astray.append(f"{name} imports {top}")
    assert astray == []


def test_a_case_file_sees_specs_alone():
    astray = []
    for name in CASE_MODULES:
        allowed = {
            f"gradcheck.{m}"
            for m in ("numerics.arithmetic", "numerics.draw", "spec", "spec.lazy_specs",
                      "spec.model", "spec.operator", "spec.program", "spec.rule", "spec.suite")
        }  # fmt: skip
        if ".faults" in name:
            allowed |= {"gradcheck.spec.fault", "gradcheck.spec.mutant"}
            allowed |= {"gradcheck.power.mutate"}
        if ".mutants" in name:
            allowed |= {f"gradcheck.power.{m}" for m in ("mutate", "rule", "contract")}
            allowed |= {"gradcheck.spec.mutant"}
        peers = {framework for framework in ("torch", "jax") if f".peers.{framework}" in name}
        known = {*sys.stdlib_module_names, "numpy", "gradcheck_cases", *peers}
        for module in imports(name):
            top = module.partition(".")[0]
            if not (top in known or module in allowed):
                astray.append(f"{name} imports {module}")
            if not peers and module.startswith("gradcheck_cases.peers"):
                astray.append(f"{name} imports {module}")
    assert astray == []


def test_every_module_says_what_it_is_for():
    silent = []
    for name in BOTH:
        text = ast.get_docstring(tree(name)) or ""
        if not text.partition("\n\n")[0].endswith((".", "?")):
            silent.append(name)
    assert silent == []
