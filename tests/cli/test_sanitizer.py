"""`[c] sanitize`: what a library does to memory of its own, as its sanitizer tells it."""

import shutil
import subprocess

import pytest

CODE = """
#include <stdlib.h>
void relu_backward(float *dx, const float *dy, const float *x, int n) {
    volatile float *own = malloc((n + 1) * sizeof *own);
    for (int i = 0; i <= n + OWN; i++) own[i] = 0;
    for (int i = 0; i < n; i++) dx[i] = x[i] > 0 ? dy[i] : own[i];
    if (PAST) dx[n] = 1;
    volatile int large = 0x7fffffff;
    if (SIGNED) large += n;
    free((void *)own);
}
"""
MANIFEST = """schema = 1
[impl]
name = "own"
[c]
library = "libown.so"
{key}
[[op]]
name = "relu"
vjp = "void relu_backward(float *dx, const float *dy, const float *x, int n)"
bind = {{ dx = "grad:x", dy = "cotangent", x = "in:x", n = "size(x)" }}
"""
WORDS = ("--op", "relu", "--sample", "typical", "--dtype", "float32", "--no-contract")


@pytest.fixture
def library(tmp_path):
    """`library(key, compiler, *flags, **mistakes)`: the manifest of one that is built so."""

    def build(key, compiler, *flags, **mistakes):
        if shutil.which(compiler) is None:
            pytest.skip(f"needs {compiler}")
        (tmp_path / "own.c").write_text(CODE)
        defined = [f"-D{name}={mistakes.get(name, 0)}" for name in ("OWN", "PAST", "SIGNED")]
        words = [compiler, "-g", "-shared", "-fPIC", *defined, *flags, "-o", "libown.so", "own.c"]
        subprocess.run(words, cwd=tmp_path, check=True)
        path = tmp_path / "gradcheck.toml"
        path.write_text(MANIFEST.format(key=key))
        return str(path)

    return build


ADDRESS = ('sanitize = "address"', "-fsanitize=address")
UNDEFINED = ('sanitize = "undefined"', "-fsanitize=undefined")


@pytest.mark.slow
@pytest.mark.parametrize("compiler", ["gcc", "clang"])
def test_an_overflow_in_memory_of_its_own_is_a_crash_with_the_report(judged, library, compiler):
    key, flag = ADDRESS
    found = judged("--impl", library(key, compiler, flag, OWN=1), *WORDS)
    assert found.code == 1
    (result,) = found.results
    assert result["verdict"] == "crash"
    report, _, rest = result["reason"].partition(" in relu_backward own.c:5")
    assert report == "AddressSanitizer: heap-buffer-overflow: WRITE of size 4"
    assert "0 bytes after" in rest
    assert "ERROR: AddressSanitizer: heap-buffer-overflow" in result["printed"]
    assert "0x60" not in result["printed"]  # addresses differ from run to run


def test_without_the_switch_it_is_not_seen(judged, library):
    (result,) = judged("--impl", library("", "gcc", OWN=1), *WORDS).results
    # Whether the heap itself notices depends on what lies behind.
    assert "AddressSanitizer" not in f"{result['reason']} {result['printed']}"


@pytest.mark.slow
def test_what_guard_pages_tell_is_told_as_before(judged, library):
    key, flag = ADDRESS
    (result,) = judged("--impl", library(key, "gcc", flag, PAST=1), *WORDS).results
    assert result["reason"] == (
        "SIGSEGV in relu_backward: it wrote up to 4 bytes past the end of dx"
    )


def test_right_code_passes_with_it(judged, library):
    key, flag = ADDRESS
    assert judged("--impl", library(key, "gcc", flag), *WORDS).code == 0


@pytest.mark.slow(keep=1)
@pytest.mark.parametrize("compiler", ["gcc", "clang"])
def test_undefined_behaviour_is_a_crash_with_its_line(judged, library, compiler):
    key, flag = UNDEFINED
    (result,) = judged("--impl", library(key, compiler, flag, SIGNED=1), *WORDS).results
    assert result["verdict"] == "crash"
    assert result["reason"].startswith("UndefinedBehaviorSanitizer: signed integer overflow: ")


@pytest.mark.slow(keep=1)
@pytest.mark.parametrize(
    ("key", "flags", "words"),
    [
        ('sanitize = "adress"', (), "sanitize"),
        ('sanitize = "address"', (), "libown.so is not built with it; compile and link it anew"),
        ("", ("-fsanitize=address",), 'write `sanitize = "address"` in [c]'),
    ],
)
def test_what_does_not_fit_together_is_refused_in_one_line(run, library, key, flags, words):
    found = run("--impl", library(key, "gcc", *flags), *WORDS)
    assert found.code in (2, 3)
    assert words in found.err
    assert len(found.err.strip().splitlines()) == 1


def test_a_runtime_that_is_not_found_is_named_with_its_package(run, library, monkeypatch):
    path = library(ADDRESS[0], "gcc", ADDRESS[1])
    monkeypatch.setattr("gradcheck.implementations.manifest.library_file.COMPILERS", ())
    monkeypatch.setattr(
        "gradcheck.implementations.manifest.library_file.find_library", lambda _: None
    )
    found = run("--impl", path, *WORDS)
    assert found.code == 3
    assert "is not found; install GCC's libasan" in found.err


@pytest.mark.slow
def test_a_build_command_is_given_the_flags(judged, library, tmp_path):
    key = f'{ADDRESS[0]}\n[build]\ncmd = "gcc $CFLAGS -DOWN=1 -DPAST=0 -DSIGNED=0 -shared -fPIC ' \
          '-o libown.so own.c"'  # fmt: skip
    (result,) = judged("--impl", library(key, "gcc"), *WORDS).results
    assert result["reason"].startswith("AddressSanitizer: heap-buffer-overflow: WRITE of size 4 in")
