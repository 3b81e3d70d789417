"""A C library on the command line: exit codes, several processes, what was printed."""

import json

import pytest

from gradcheck.cli.main import main

TANH = "double *dx, const double *dy, const double *y, int n"


@pytest.fixture
def manifest(kernels, tmp_path):
    """`manifest(*ops)`: the path of one, for `--impl`."""

    def written(*ops):
        path = tmp_path / "gradcheck.toml"
        head = f'schema = 1\n[impl]\nname = "kernels"\n[c]\nlibrary = "{kernels}"\ntimeout = 300\n'
        path.write_text(head + "".join(ops))
        return str(path)

    return written


@pytest.fixture
def results(tmp_path, capsys):
    """`results(*words)`: the exit code, and of every result its name, output, verdict, reason."""

    def found(*words):
        report = tmp_path / "run.json"
        code = main(["run", "--dtype", "float64", "--no-contract", "-o", str(report), *words])
        text = capsys.readouterr()
        told = json.loads(report.read_text())["results"] if code in (0, 1) else text.err
        report.unlink(missing_ok=True)
        if isinstance(told, str):
            return code, told
        return code, [(r["name"], r["output"], r["verdict"], r["reason"]) for r in told]

    return found


@pytest.mark.slow(keep=2)
@pytest.mark.parametrize(
    ("symbol", "code", "verdicts"),
    [
        ("mul", 0, {"pass"}),
        ("mul_swapped", 1, {"fail"}),
        ("mul_unwritten", 1, {"fail"}),
        ("mul_past", 1, {"crash"}),
    ],
)
def test_exit_codes(manifest, results, entry, symbol, code, verdicts):
    path = manifest(entry(symbol))
    got, told = results(
        "--impl", path, "--op", "mul", "--dialect", "same-shape", "--sample", "cube"
    )
    assert got == code
    assert {verdict for _, _, verdict, _ in told} == verdicts


def test_nonsense_ends_a_run_before_it_begins(manifest, results, entry):
    path = manifest(entry("mul", n="size(x) / 7"))
    code, said = results("--impl", path, "--op", "mul")
    assert code == 2
    assert "expression `size(x) / 7` of parameter `n` yields" in said


@pytest.mark.slow
def test_several_processes_say_the_same(manifest, results, entry):
    tanh = entry("from_output", TANH, op="tanh", dy="cotangent", y="out")
    path = manifest(entry("mul_past"), tanh)
    words = ("--impl", path, "--op", "mul", "--op", "tanh")
    (code, alone), (again, shared) = results(*words), results(*words, "-j", "2")
    assert code == again == 1
    assert [r[:3] for r in alone] == [r[:3] for r in shared]
    assert {r[2] for r in alone} == {"crash", "pass", "unbound"}
