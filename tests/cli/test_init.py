"""`gradcheck init --op`: a module of backward passes to fill in."""

import inspect
import runpy
from pathlib import Path

import pytest
from gradcheck_cases import SUITE

from gradcheck.cli.main import main

SILU = "s = 1 / (1 + np.exp(-x)); return ct * s * (1 + x * (1 - s))"
FLAGS = ("--op", "silu", "--op", "tanh", "--sample", "typical", "--no-contract")


@pytest.fixture
def init(capsys):
    def call(*words):
        code = main(["init", *words])
        return code, *capsys.readouterr()

    return call


def test_what_is_written_runs_and_judges_what_is_filled_in(init, judged):
    code, told, _ = init("--kind", "python", "--op", "silu", "--op", "tanh")
    assert code == 0
    assert told == (
        "mykernels.py has 2 backward passes to fill in. Then\n"
        "    gradcheck run --impl mykernels.py\n"
    )
    path = Path("mykernels.py")
    lines = path.read_text().splitlines()
    assert "def silu_vjp(ct, x):" in lines
    formula = SUITE.operators["silu"].formula
    assert lines[lines.index("def silu_vjp(ct, x):") + 3] == f"    {formula}"
    for factor, verdict in (("", "pass"), ("2 * ", "fail")):
        empty = 'raise NotImplementedError("silu")'
        text = "\n".join(lines).replace(empty, SILU.replace("return ", f"return {factor}"))
        path.with_name(f"{verdict}ing.py").write_text(text)
        found = judged("--impl", f"{verdict}ing.py", *FLAGS)
        verdicts = {r["op"]: r["verdict"] for r in found.results}
        assert verdicts["silu"] == verdict
        assert verdicts["tanh"] != "pass"  # it raises


def test_every_operator_has_a_function_with_its_signature(init):
    assert init("--op", "*", "-o", "every.py")[0] == 0
    table = runpy.run_path("every.py")["IMPL"]
    assert [*table] == [*SUITE.operators]
    for name, function in table.items():
        spec, taken = SUITE.operators[name], inspect.signature(function).parameters
        assert [*taken] == ["ct", *spec.primals, *spec.defaults]
        assert " ".join(spec.formula.split()) in function.__doc__
        with pytest.raises(NotImplementedError, match=f"^{name}$"):
            function(*range(1 + len(spec.primals)))


def test_a_formula_cannot_end_its_docstring(init):
    Path("evil.py").write_text(
        "import kernels as k\n"
        "FORMULA = 'x' + 3 * '\"' + '\\nraise SystemExit'\n"
        "spec = k.OpSpec(name='a-b.c', signature='()->()', forward=k.square, vjp=k.double, "
        "formula=FORMULA, source='s', samples=(k.Sample(name='s', primals=k.good, hunts='h'),))\n"
        "SUITE = k.Suite('mine', '1', [spec])\n"
    )
    assert init("--op", "*", "--suite", "evil:SUITE")[0] == 0
    assert "raise SystemExit" in runpy.run_path("mykernels.py")["IMPL"]["a-b.c"].__doc__


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        ("--op silu -o kernels.py", "-o kernels.py: it exists; remove it, or name another"),
        ("--op silu -o here.toml", "-o here.toml: name a .py file for the operators of --op"),
        ("--op sliu", "unknown operator 'sliu': did you mean 'silu'?"),
        ("--op silu --lib k.so", "--op writes a Python module; remove --lib and --header, or --op"),
        ("--op silu --kind process", "--op writes a Python module; remove "),
        (
            "--op silu --ci github",
            "--ci writes a workflow; remove --lib, --header, --kind and --op",
        ),
        ("--op silu -o no/such.py", "-o no/such.py: No such file or directory"),
        ("", "--kind python --op 'soft*'"),
    ],
)
def test_what_cannot_be_written_is_refused_and_nothing_is(init, flags, said):
    before = {path: path.read_bytes() for path in Path().iterdir()}
    code, out, err = init(*flags.split())
    assert (code, out) == (2, "")
    assert said in err
    assert {path: path.read_bytes() for path in Path().iterdir()} == before
