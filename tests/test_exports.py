import ast
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

import gradcheck

HEAVY = {"numpy", "mpmath", "jinja2", "tabulate", "pytest", "torch", "jax", "gradcheck_cases"}


def loaded_by(statement):
    """Top-level packages, and modules of ours, that a fresh interpreter holds afterwards."""
    program = f"{statement}\nimport sys\nprint(*sorted(sys.modules))"
    roots = [str(Path(gradcheck.__file__).parents[1])]
    command = [sys.executable, "-c", f"import sys; sys.path[:0] = {roots}\n{program}"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    modules = set(done.stdout.split())
    return modules, {name.partition(".")[0] for name in modules}


def test_the_public_names_are_sorted_and_each_is_there_once():
    assert gradcheck.__all__ == sorted(set(gradcheck.__all__))


def test_every_public_name_resolves_to_what_it_says():
    for name in gradcheck.__all__:
        found = getattr(gradcheck, name)
        assert found.__name__ == name
        assert found is getattr(import_module(found.__module__), name), name
        assert found.__doc__, name


def test_the_public_names_are_these():
    assert set(gradcheck.__all__) == {
        "CheckFailed", "Convention", "Dialect", "Finding", "GradcheckError", "Kink", "ModelSpec",
        "Mutant", "OpSpec", "Program", "Result",
        "Sample", "Size", "Slack", "Stage", "Suite", "Unsupported", "Verdict", "assert_vjp",
        "check", "check_model", "jax_op", "torch_op",
        "away", "case", "cases_of", "drawn", "integers", "normal", "positive", "uniform",
    }  # fmt: skip


def test_type_checkers_see_the_same_names():
    tree = ast.parse(Path(gradcheck.__file__).read_text())
    (block,) = (n for n in tree.body if isinstance(n, ast.If))
    typed = {alias.name: node.module for node in block.body for alias in node.names}
    assert set(typed) == set(gradcheck.__all__)
    for name, home in typed.items():
        assert getattr(gradcheck, name) is getattr(import_module(home), name)


def test_importing_the_package_imports_nothing_heavy():
    modules, packages = loaded_by("import gradcheck")
    assert not packages & HEAVY
    ours = {name for name in modules if name.startswith("gradcheck")}
    assert ours == {"gradcheck", "gradcheck.former_names"}


@pytest.mark.slow
def test_the_names_load_on_use_and_no_suite_with_them():
    _, packages = loaded_by("from gradcheck import *")
    assert not packages & (HEAVY - {"numpy", "mpmath"})
    _, packages = loaded_by("from gradcheck import GradcheckError, Unsupported")
    assert not packages & HEAVY


def test_what_is_not_public_is_no_attribute():
    for name in ("run_", "Case", "np", "__wrapped__"):
        assert not hasattr(gradcheck, name)
    with pytest.raises(AttributeError, match="module 'gradcheck' has no attribute 'chekc'"):
        gradcheck.chekc  # noqa: B018  the look-up is the point


def test_dir_lists_what_a_reader_may_use():
    assert set(dir(gradcheck)) == {*gradcheck.__all__, "__version__"}


@pytest.mark.parametrize(
    ("former", "name"),
    [
        ("gradcheck.draw", "Draw"), ("gradcheck.arithmetic", "FLOATS"),
        ("gradcheck.rule", "RuleSpec"),
        ("gradcheck.program", "Stage"), ("gradcheck.model", "ModelSpec"),
        ("gradcheck.suite", "Suite"), ("gradcheck.families", "Families"),
        ("gradcheck.verdict", "Verdict"), ("gradcheck.finding", "Finding"),
        ("gradcheck.label", "LABELS"), ("gradcheck.power.mutant", "Mutant"),
        ("gradcheck.power.fault", "Fault"),
    ],
)  # fmt: skip
def test_a_suite_on_file_finds_what_has_moved(former, name):
    sys.modules.pop(former, None)
    with pytest.warns(DeprecationWarning, match=f"{former} is gradcheck.* now: import it from"):
        module = import_module(former)
    found = getattr(module, name)
    assert found is getattr(import_module(getattr(found, "__module__", former)), name)
    assert module.__name__ == former
