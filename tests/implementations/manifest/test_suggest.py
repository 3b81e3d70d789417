import json
import shutil
import subprocess
import tomllib

import pytest
from gradcheck_cases import SUITE

from gradcheck.cli.main import main
from gradcheck.errors import LoadError, UsageError
from gradcheck.implementations.manifest import read, schema
from gradcheck.implementations.manifest.library_file import exported
from gradcheck.implementations.manifest.prototype import parse, prototypes
from gradcheck.implementations.manifest.suggest import suggest_c, template

needs_gcc = pytest.mark.skipif(not shutil.which("gcc"), reason="no C compiler")

SOURCE = """
#include <stddef.h>
#include <stdint.h>
typedef float real;
typedef unsigned int count;
typedef struct plan plan;
enum order { ROWS, COLUMNS };

void silu_backward(real* dx, const real* dy, const real* x, size_t n) {
    for (size_t i = 0; i < n; i++) {
        double s = 1 / (1 + __builtin_exp(-(double)x[i]));
        dx[i] = (real)(dy[i] * s * (1 + x[i] * (1 - s)));
    }
}
void mul_bwd(double* dx, double* dy, const double* dz, const double* x, const double* y, count n) {
    for (count i = 0; i < n; i++) { dx[i] = dz[i] * y[i]; dy[i] = dz[i] * x[i]; }
}
void softmax_forward(float* out, const float* inp, int rows, int cols) {
    for (int r = 0; r < rows; r++, inp += cols, out += cols) {
        float most = -__builtin_inff(), sum = 0;
        for (int i = 0; i < cols; i++) most = inp[i] > most ? inp[i] : most;
        for (int i = 0; i < cols; i++) sum += out[i] = __builtin_expf(inp[i] - most);
        for (int i = 0; i < cols; i++) out[i] /= sum;
    }
}
void softmax_backward(float* dinp, const float* dout, const float* out, int rows, int cols) {
    for (int r = 0; r < rows; r++, dinp += cols, dout += cols, out += cols) {
        double dot = 0;
        for (int i = 0; i < cols; i++) dot += (double)dout[i] * out[i];
        for (int i = 0; i < cols; i++) dinp[i] = (float)(out[i] * (dout[i] - dot));
    }
}
/* What cannot be guessed */
void attention_backward(float* dqkv, const float* dout, const float* qkv, enum order o) {}
void attention_plan_free(plan* p, void (*done)(int), float** rows) {}
void relu_forward(float* y, const float* x, int n) {}
int helper(int n, ...) { return n; }
"""


@pytest.fixture(scope="module")
def library(tmp_path_factory):
    """A shared library with debug information, and what compiles it otherwise."""
    folder = tmp_path_factory.mktemp("library")
    (folder / "k.c").write_text(SOURCE)

    def compiled(*flags):
        path = folder / f"lib{''.join(flags).replace('-', '_')}.so"
        if not path.exists():
            command = ["gcc", "-shared", "-fPIC", *flags, "-o", path, "k.c", "-lm"]
            subprocess.run(command, cwd=folder, check=True)
        return path

    return compiled


# ── debug information ────────────────────────────────────────────────────────────────────────


@pytest.mark.slow(keep=1)
@needs_gcc
@pytest.mark.parametrize("flags", [["-g"], ["-g", "-O2"], ["-gdwarf-4"], ["-g", "-gz"]])
def test_prototypes_from_debug_information(library, flags):
    path = library(*flags)
    found = prototypes(path, exported(path))
    assert sorted(found) == exported(path)
    assert found["silu_backward"] == (
        "void silu_backward(float *dx, const float *dy, const float *x, size_t n)"
    )
    assert "unsigned int n)" in found["mul_bwd"].replace("count", "unsigned int")
    assert found["helper"] == "int helper(int n, ...)"
    assert "plan *p" in found["attention_plan_free"]
    assert "int o)" in found["attention_backward"]
    for symbol in ("silu_backward", "mul_bwd", "softmax_backward", "attention_backward"):
        assert parse(found[symbol], "here").symbol == symbol


@needs_gcc
def test_a_library_without_debug_information_has_no_prototypes(library):
    path = library("-g0")
    assert prototypes(path, exported(path)) == {}


@needs_gcc
def test_debug_information_that_is_damaged_is_none(library, tmp_path):
    content = bytearray(library("-g", "-O1").read_bytes())
    half = len(content) // 2
    content[half : half + 4000] = b"\xff" * 4000
    (tmp_path / "k.so").write_bytes(content)
    try:
        prototypes(tmp_path / "k.so", ["silu_backward"])
    except LoadError as error:
        assert "is not a shared library in ELF" in str(error)  # noqa: PT017


RUST = """
pub mod kernels {
    #[no_mangle]
    pub unsafe extern "C" fn leaky_relu_backward(
        dx: *mut f32, dy: *const f32, x: *const f32, slope: f32, n: usize, fast: bool, k: i16
    ) {
        let mut i = 0;
        while i < n && k == 0 && !fast {
            *dx.add(i) = if *x.add(i) > 0.0 { *dy.add(i) } else { slope * *dy.add(i) };
            i += 1;
        }
    }
}
"""


@pytest.mark.skipif(not shutil.which("rustc"), reason="no Rust compiler")
def test_types_of_another_language_are_written_as_c_has_them(tmp_path):
    (tmp_path / "k.rs").write_text(RUST)
    command = ["rustc", "-g", "--crate-type", "cdylib", "k.rs"]
    subprocess.run(command, cwd=tmp_path, check=True, capture_output=True)
    found = prototypes(tmp_path / "libk.so", ["leaky_relu_backward"])
    assert found == {
        "leaky_relu_backward": "void leaky_relu_backward(float *dx, const float *dy, "
        "const float *x, float slope, uint64_t n, bool fast, int16_t k)"
    }


@needs_gcc
def test_a_function_that_only_cpp_can_name_is_a_comment(tmp_path):
    (tmp_path / "k.c").write_text(
        'void f(void) __asm__("_Z13relu_backwardPfPKfi"); void f(void) {}\n'
        'void g(void) __asm__("_Z99relu_backward"); void g(void) {}\n'
        'void h(void) __asm__("_Z6helperi"); void h(void) {}\n'
    )
    subprocess.run(["gcc", "-shared", "-o", "libk.so", "k.c"], cwd=tmp_path, check=True)
    found = suggest_c(tmp_path / "libk.so", None, tmp_path / "gradcheck.toml", SUITE)
    said = '# relu_backward is there as `_Z13relu_backwardPfPKfi`: declare it extern "C" to bind it'
    assert said in found.text.splitlines()
    assert "helper" not in found.text


# ── manifests ────────────────────────────────────────────────────────────────────────────────


@needs_gcc
def test_what_is_suggested_is_read(library, tmp_path):
    path = tmp_path / "gradcheck.toml"
    found = suggest_c(library("-g"), None, path, SUITE)
    manifest = read.resolve(schema.parse_text(found.text.encode(), path), SUITE)
    assert [*manifest.operations] == [
        ("mul", "float64"), ("silu", "float32"), ("softmax", "float32"),
    ]  # fmt: skip
    assert found.bound == ("mul", "silu", "softmax")
    assert sorted(found.open) == ["helper", "relu_forward"]
    for name in ("attention_backward", "attention_plan_free", "helper", "relu_forward"):
        assert name in found.text
    read.check_libraries(manifest)


@needs_gcc
def test_what_is_to_be_confirmed_is_marked(library, tmp_path):
    text = suggest_c(library("-g"), None, tmp_path / "gradcheck.toml", SUITE).text
    lines = text.splitlines()
    assert 'dinp = "grad:x"  # confirm' in lines
    assert 'rows = "rows(x)"' in lines
    assert '# accumulates = ["dinp"]  # those that the code adds to what is there (+=)' in lines
    assert any(line.startswith('# dqkv = "?"  # in:x, grad:x') for line in lines)


@needs_gcc
def test_a_header_says_what_the_library_does_not(library, tmp_path):
    header = tmp_path / "k.h"
    header.write_text(
        "#pragma once\n#include <stddef.h>\n"
        "void silu_backward(float* dx, const float* dy, const float* x, size_t n);\n"
        "void unexported_backward(float* dx, int n);\n"
    )
    found = suggest_c(library("-g0"), header, tmp_path / "gradcheck.toml", SUITE)
    assert found.bound == ("silu",)
    assert "unexported" not in found.text
    assert "# softmax_backward: nothing says what it takes; name its --header" in found.text


def from_header(folder, *texts):
    (folder / "k.h").write_text("\n".join(texts))
    return suggest_c(None, folder / "k.h", folder / "gradcheck.toml", SUITE)


SILU = "void silu_backward{}(float* dx, const float* dy, const float* x, int n);"
RMS = "void rms_norm_{}backward(float* dx, const float* dy, const float* x, int N, int D);"
SOFTMAX = "void softmax_backward(float* dx, const float* dy, const float* x, int N, int D);"
HEADERS = {
    "a header alone": (
        [SILU.format("")],
        ["silu"],
        ['library = "build/libkernels.so"  # confirm'],
    ),
    "a second backward is a comment": (
        [SILU.format(""), SILU.format("_fast")],
        ["silu"],
        ["# silu_backward_fast: another backward of silu: name a dialect in each"],
    ),
    "a word may be a dialect": (
        [RMS.format("plain_"), RMS.format("fast_")], ["rms_norm/plain", "rms_norm"], [],
    ),
    "a forward that cannot be guessed": (
        ["void softmax(void* a, void* b, int c);", SOFTMAX], ["softmax"], ["!forward = "],
    ),
    "a forward": (
        ["void softmax(float* y, float* x, int N, int D);", SOFTMAX],
        ["softmax"],
        ['forward = "void softmax(', "[op.forward_bind]"],
    ),
    "a residual that no forward saves": (
        ["void rms_norm_backward(float* dx, float* dw, const float* dy, const float* x, "
         "const float* w, const float* rstd, int N, int D);"],
        ["rms_norm"],
        ['\nresiduals = "reference"\n',
         '\nsaved = { rstd = "1 / sqrt(mean(x * x, -1) + eps)" }  # confirm\n'],
    ),
    "what only a forward left out would save": (
        ["void rms_norm(float* r, float* x, ctx* c);",
         "void rms_norm_backward(float* dx, const float* dy, const float* x, const float* r);"],
        [],
        ['# r = "?"'],
    ),
    "a guess that cannot be read": (
        ["void silu_backward(float* dx, const double* dy, int n);"],
        [],
        ["# silu_backward: gradcheck.toml, op 1 (silu): vjp: its tensors are of"],
    ),
}  # fmt: skip


def test_what_a_header_suggests(tmp_path):
    for name, (texts, bound, lines) in HEADERS.items():
        found = from_header(tmp_path, *texts)
        assert [*found.bound] == bound, name
        for line in lines:
            assert (line.removeprefix("!") in found.text) != line.startswith("!"), name


@pytest.mark.slow
@needs_gcc
def test_guessed_residuals_are_the_ones_that_a_forward_saves(tmp_path, monkeypatch, capsys):
    (tmp_path / "k.c").write_text("""
        void rms_norm_backward(double* dx, double* dw, const double* dy, const double* x,
                               const double* w, const double* rstd, int N, int D) {
            for (int j = 0; j < D; j++) dw[j] = 0;
            for (int i = 0; i < N; i++, dx += D, dy += D, x += D) {
                double r = rstd[i], dot = 0;
                for (int j = 0; j < D; j++) dot += dy[j] * w[j] * x[j];
                for (int j = 0; j < D; j++) {
                    dx[j] = r * (dy[j] * w[j] - x[j] * r * r * dot / D);
                    dw[j] += dy[j] * x[j] * r;
                }
            }
        }
        void layer_norm_backward(double* dx, const double* dy, const double* x, const double* mean,
                                 const double* rstd, int N, int D) {
            for (int i = 0; i < N; i++, dx += D, dy += D, x += D) {
                double m = mean[i], r = rstd[i], a = 0, b = 0;
                for (int j = 0; j < D; j++) { a += dy[j] / D; b += dy[j] * (x[j] - m) * r / D; }
                for (int j = 0; j < D; j++) dx[j] = r * (dy[j] - a - (x[j] - m) * r * b);
            }
        }
    """)
    subprocess.run(
        ["gcc", "-g", "-shared", "-fPIC", "-o", "libk.so", "k.c"], cwd=tmp_path, check=True
    )
    monkeypatch.chdir(tmp_path)
    assert main(["init", "--lib", "libk.so"]) == 0
    flags = ["--op", "rms_norm", "--op", "layer_norm", "--dtype", "float64"]
    main(["run", "-q", "--impl", "gradcheck.toml", *flags, "-o", "run.json"])
    results = json.loads((tmp_path / "run.json").read_text())["results"]
    judged = {(r["op"], r["dialect"], r["output"], r["verdict"]) for r in results}
    for right in (
        ("rms_norm", "weight", "x", "pass"),
        ("rms_norm", "weight", "w", "pass"),
        ("layer_norm", "plain", "x", "pass"),
    ):
        assert right in judged
        assert (*right[:-1], "fail") not in judged


def test_a_status_can_be_bound_where_the_comment_stands(tmp_path):
    found = from_header(tmp_path, "int silu_backward(float* dx, const float* dy, float* x, int n);")
    text = found.text.replace('# return = "status"', 'return = "status"')
    assert text != found.text
    path = tmp_path / "gradcheck.toml"
    manifest = read.resolve(schema.parse_text(text.encode(), path), SUITE)
    assert manifest.operations["silu", "float32"].vjp.returned is not None


def test_of_a_crowd_of_other_functions_some_are_named(tmp_path):
    found = from_header(tmp_path, *(f"void zz{i:03}q(int n);" for i in range(100)))
    assert len(found.open) == 100
    assert "zz039q, and 60 more" in found.text.replace("\n# ", " ")
    assert "zz040q" not in found.text


def test_whatever_a_header_holds_the_manifest_is_read(tmp_path):
    path = tmp_path / "gradcheck.toml"
    for text in (
        "",
        "int x;",
        "void silu_backward(float* dx, const float* dy, const float* x, ctx c);",
        "void silu_backward(float* dx, float** x);",
        "void silu_backward(float*, const float*);",
        "void silu_backward(float* dx\x01, const float* dy);",
        "void silu_backward(float* dx, const float* dy, const float* x, int \u2028n);",
        "void silu_backward(float* dx) /* \" \\ ''' */;",
        "void silu_backward(float* dx, int n); void silu_backward(float* dx, int n);",
    ):
        found = from_header(tmp_path, text)
        if "op" in tomllib.loads(found.text):
            read.resolve(schema.parse_text(found.text.encode(), path), SUITE)
        assert bool(found.bound) == ("op" in tomllib.loads(found.text)), text
    for kind in ("python", "process"):
        read.resolve(schema.parse_text(template(kind).text.encode(), path), SUITE)


def test_files_that_cannot_be_read(tmp_path):
    path = tmp_path / "gradcheck.toml"
    with pytest.raises(LoadError, match="No such file"):
        suggest_c(tmp_path / "nowhere.so", None, path, SUITE)
    with pytest.raises(LoadError, match="No such file"):
        suggest_c(None, tmp_path / "nowhere.h", path, SUITE)
    with pytest.raises(UsageError, match="needs --lib"):
        suggest_c(None, None, path, SUITE)


# ── the command ──────────────────────────────────────────────────────────────────────────────


@needs_gcc
def test_from_a_library_to_its_verdicts(library, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(["init", "--lib", str(library("-g", "-O2"))]) == 0
    said = capsys.readouterr().out
    assert "It binds 3 operators by name: mul, silu, softmax.\n" in said
    assert "gradcheck run --impl gradcheck.toml" in said
    flags = [f for op in ("mul", "silu", "softmax") for f in ("--op", op)]
    flags += ["--dialect", "same-shape", "--dialect", "default"]
    assert main(["run", "-q", "--impl", "gradcheck.toml", *flags]) == 0
    last = capsys.readouterr().out.splitlines()[-1]
    assert "RESULT pass" in last
    assert "fail=0" in last
    assert "checked=0" not in last


def test_nothing_is_overwritten(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "gradcheck.toml").write_text("mine")
    assert main(["init", "--kind", "python"]) == 2
    assert "it exists; remove it, or name another with -o" in capsys.readouterr().err
    assert (tmp_path / "gradcheck.toml").read_text() == "mine"
    assert main(["init", "--kind", "process", "-o", "other.toml"]) == 0
    assert "gradcheck run --impl other.toml" in capsys.readouterr().out
    assert (tmp_path / "other.toml").exists()


@pytest.mark.parametrize(
    ("flags", "code", "message"),
    [
        ([], 2, "say what for: --lib build/libk.so, --kind python"),
        (["--kind", "c"], 2, "--kind c needs --lib"),
        (["--kind", "python", "--lib", "k.so"], 2, "--lib and --header are for --kind c"),
        (["--kind", "python", "-o", "gradcheck.txt"], 2, "name a .toml"),
        (["--kind", "python", "-o", "nowhere/gradcheck.toml"], 2, "No such file"),
        (["--lib", "nowhere.so"], 3, "nowhere.so: No such file"),
    ],
)
def test_mistakes(tmp_path, monkeypatch, capsys, flags, code, message):
    monkeypatch.chdir(tmp_path)
    assert main(["init", *flags]) == code
    assert message in capsys.readouterr().err
    assert [*tmp_path.iterdir()] == []
