"""A C library with a function per convention, and manifests that bind some of them."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest
from gradcheck_cases import SUITE

from gradcheck.implementations.manifest.read import read
from gradcheck.implementations.native.library import Native
from gradcheck.judge.operator import CaseTruth, judge_case


@pytest.fixture(scope="session")
def kernels(tmp_path_factory):
    """The library of kernels.c."""
    if shutil.which("gcc") is None:
        pytest.skip("needs gcc")
    library = tmp_path_factory.mktemp("kernels") / "libkernels.so"
    source = Path(__file__).with_name("kernels.c")
    flags = ["-O2", "-fPIC", "-shared", "-Wall", "-Wextra", "-Werror"]
    subprocess.run(["gcc", *flags, str(source), "-o", str(library)], check=True)
    return library


@pytest.fixture
def native(kernels, tmp_path):
    """`native(ops, c=, suite=)`: the implementation that a manifest with these entries is."""
    made = []

    def manifest(ops, c="", suite=SUITE):
        path = tmp_path / "gradcheck.toml"
        head = f'schema = 1\n[impl]\nname = "kernels"\n[c]\nlibrary = "{kernels}"\n{c}\n'
        path.write_text(head + ops)
        made.append(Native(read(path, suite)))
        return made[-1]

    yield manifest
    for one in made:
        one.close()


@pytest.fixture(scope="session")
def judged():
    """`judged(native, op, dialect=, sample=, dtype=, suite=)`: findings of one case, by name."""

    def found(native, op, dialect="", sample="typical", dtype="float64", suite=SUITE):
        (case,) = suite.cases([op], [dialect] if dialect else [], [sample])
        findings = judge_case(CaseTruth(case), native, dtype)
        assert len({f.name for f in findings}) == len(findings)
        return {finding.name: finding for finding in findings}

    return found


@pytest.fixture(scope="session")
def mul(judged):
    """`mul(native, dtype=, sample=)`: verdict and reason of each output of mul, by name."""

    def found(native, dtype="float64", sample="typical"):
        findings = judged(native, "mul", "same-shape", sample, dtype)
        return {name: (f.verdict.value, f.reason) for name, f in findings.items()}

    return found


BIND = {
    "dx": "grad:x", "dy": "grad:y", "dz": "cotangent", "x": "in:x", "y": "in:y", "n": "size(x)",
}  # fmt: skip
PARAMETERS = "double *dx, double *dy, const double *dz, const double *x, const double *y, int n"


@pytest.fixture(scope="session")
def entry():
    """`entry(symbol, parameters=, returns=, more=, **bind)`: an [[op]] that binds mul's VJP.

    What `bind` does not say of a parameter is said by its name; `more` are further lines.
    """

    def text(symbol, parameters=PARAMETERS, returns="void", more="", op="mul/same-shape", **bind):
        names = re.findall(r"(\w+)(?=,|\[\d*\]|$)", parameters)
        said = {name: bind.pop(name, BIND.get(name)) for name in names} | bind
        lines = ", ".join(f"{name} = {_toml(what)}" for name, what in said.items())
        return (
            f'[[op]]\nname = "{op}"\nvjp = "{returns} {symbol}({parameters})"\n'
            f"bind = {{ {lines} }}\n{more}\n"
        )

    return text


def _toml(value):
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{k} = {_toml(v)}" for k, v in value.items()) + " }"
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(map(_toml, value)) + "]"
    return str(value) if isinstance(value, int) else f'"{value}"'
