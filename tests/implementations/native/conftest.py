"""The library of kernels.c, and implementations that bind some of its functions."""

import shutil
import subprocess

import pytest
from gradcheck_cases import SUITE

from gradcheck.implementations.manifest.read import read
from gradcheck.implementations.native.library import Native
from gradcheck.judge.operator import CaseTruth, judge_case
from tests.implementations.native.kernels import SOURCE


@pytest.fixture(scope="session")
def kernels(tmp_path_factory):
    """The library of kernels.c."""
    if shutil.which("gcc") is None:
        pytest.skip("needs gcc")
    library = tmp_path_factory.mktemp("kernels") / "libkernels.so"
    flags = ["-O2", "-fPIC", "-shared", "-Wall", "-Wextra", "-Werror"]
    subprocess.run(["gcc", *flags, str(SOURCE), "-o", str(library)], check=True)
    return library


@pytest.fixture
def manifest(kernels, tmp_path):
    """`manifest(*entries, c=)`: the path of a manifest, `c` more lines of its [c]."""

    def written(*entries, c=""):
        path = tmp_path / "gradcheck.toml"
        head = f'schema = 1\n[impl]\nname = "kernels"\n[c]\nlibrary = "{kernels}"\n{c}\n'
        path.write_text(head + "".join(entries))
        return path

    return written


@pytest.fixture
def native(manifest):
    """`native(*entries, c=, suite=)`: the implementation that this manifest is."""
    made = []

    def library(*entries, c="", suite=SUITE):
        made.append(Native(read(manifest(*entries, c=c), suite)))
        return made[-1]

    yield library
    for one in made:
        one.close()


@pytest.fixture
def case(suite):
    """`case(op, dialect=, sample=)`: the one case of these names."""

    def one(op="mul", dialect="same-shape", sample="typical", suite=suite):
        (found,) = suite.cases([op], [dialect] if dialect else [], [sample])
        return found

    return one


@pytest.fixture
def judged(case):
    """`judged(native, op, dialect=, sample=, dtype=, suite=)`: findings of one case, by name."""

    def found(native, *names, dtype="float64", **more):
        findings = judge_case(CaseTruth(case(*names, **more)), native, dtype)
        assert len({f.name for f in findings}) == len(findings)
        return {finding.name: finding for finding in findings}

    return found


@pytest.fixture
def mul(judged):
    """`mul(native, sample=, dtype=)`: verdict and reason of each output of mul, by name."""

    def found(native, **more):
        findings = judged(native, **more)
        return {name: (f.verdict.value, f.reason) for name, f in findings.items()}

    return found
