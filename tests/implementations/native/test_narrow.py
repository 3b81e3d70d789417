"""A C kernel that rounds its operands, or its cotangent, to TF32 is a FAIL in its gradients."""

import json
import shutil
import subprocess

import pytest

from gradcheck.cli.main import main

SOURCE = """
#include <stdint.h>
#include <string.h>
static float tf32(float x) {
    uint32_t bits;
    memcpy(&bits, &x, 4);
    bits = (bits + 0x0fffu + ((bits >> 13) & 1u)) & ~0x1fffu;
    memcpy(&x, &bits, 4);
    return x;
}
static float same(float x) { return x; }
#define MUL(NAME, OPERAND, COTANGENT) \\
void NAME(float *dx, float *dy, const float *dz, const float *x, const float *y, int n) { \\
    for (int i = 0; i < n; i++) { \\
        dx[i] = COTANGENT(dz[i]) * OPERAND(y[i]); \\
        dy[i] = COTANGENT(dz[i]) * OPERAND(x[i]); \\
    } \\
}
MUL(right, same, same)
MUL(operands, tf32, same)
MUL(cotangent, same, tf32)
"""
PARAMETERS = "float *dx, float *dy, const float *dz, const float *x, const float *y, int n"


@pytest.fixture(scope="module")
def library(tmp_path_factory):
    if shutil.which("gcc") is None:
        pytest.skip("needs gcc")
    folder = tmp_path_factory.mktemp("narrow")
    (folder / "mul.c").write_text(SOURCE)
    words = ["gcc", "-O2", "-fPIC", "-shared", "mul.c", "-o", "libmul.so"]
    subprocess.run(words, check=True, cwd=folder)
    return folder / "libmul.so"


@pytest.mark.slow(keep=1)
@pytest.mark.parametrize(
    ("symbol", "verdict"), [("right", "pass"), ("operands", "fail"), ("cotangent", "fail")]
)
def test_tf32_shows_in_the_gradients_of_a_manifest(library, entry, tmp_path, symbol, verdict):
    path, report = tmp_path / "gradcheck.toml", tmp_path / "run.json"
    head = f'schema = 1\n[impl]\nname = "mul"\n[c]\nlibrary = "{library}"\n'
    path.write_text(head + entry(symbol, PARAMETERS))
    words = ["--op", "mul", "--dialect", "same-shape", "--sample", "typical", "--dtype", "float32"]
    code = main(["run", "--impl", str(path), "--no-contract", "-o", str(report), *words])
    assert code == (verdict == "fail")
    results = json.loads(report.read_text())["results"]
    assert {r["output"]: r["verdict"] for r in results} == {"x": verdict, "y": verdict}
