import shutil
import subprocess

import pytest

from gradcheck.errors import LoadError, ManifestError
from gradcheck.implementations.manifest.library_file import check_symbols, exported

pytestmark = pytest.mark.skipif(not shutil.which("gcc"), reason="no C compiler")

SOURCE = """
static void hidden_backward(void) {}
__attribute__((visibility("hidden"))) void invisible_backward(void) { hidden_backward(); }
int a_number = 3;
void rmsnorm_backward(float* dx, const float* dy, int n) {
    for (int i = 0; i < n; i++) dx[i] = dy[i];
}
__attribute__((weak)) void weak_backward(void) { invisible_backward(); }
"""


@pytest.fixture(scope="module")
def build(tmp_path_factory):
    """Compiles C (or another language) into a shared library."""

    def compiled(source, *flags, suffix=".c"):
        folder = tmp_path_factory.mktemp("library")
        (folder / f"k{suffix}").write_text(source)
        command = ["gcc", "-shared", "-fPIC", "-o", "libk.so", f"k{suffix}", *flags]
        subprocess.run(command, cwd=folder, check=True)
        return folder / "libk.so"

    return compiled


@pytest.fixture
def library(manifest):
    """A manifest that says that a library has a function."""

    def made(path, symbol):
        return manifest(f"""
            [[op]]
            name = "silu"
            library = "{path}"
            vjp = "void {symbol}(float* dx, const float* dy, int n)"
            bind = {{ dx = "grad:x", dy = "cotangent", n = "size(x)" }}
        """)

    return made


def test_what_is_exported_and_nothing_else(build):
    assert exported(build(SOURCE)) == ["rmsnorm_backward", "weak_backward"]
    assert exported(build(SOURCE, "-fvisibility=hidden", "-Wl,--hash-style=gnu")) == []
    stripped = build(SOURCE, "-s")
    assert exported(stripped) == ["rmsnorm_backward", "weak_backward"]


def test_what_is_no_library(tmp_path):
    with pytest.raises(LoadError, match="No such file"):
        exported(tmp_path / "nowhere.so")
    broken = b"\x7fELF\x02\x01\x01" + b"\xff" * 99
    for content in (b"", b"\x7fELF", b"\x7fELF" + bytes(60), b"!<arch>\n", broken):
        (tmp_path / "k.so").write_bytes(content)
        with pytest.raises(LoadError, match=r"k\.so is no shared library in ELF"):
            exported(tmp_path / "k.so")


def test_a_truncated_library_is_a_load_error(build, tmp_path, library):
    whole = build(SOURCE).read_bytes()
    for size in range(0, len(whole), 997):
        (tmp_path / "k.so").write_bytes(whole[:size])
        try:
            exported(tmp_path / "k.so")
        except LoadError as error:
            assert "k.so is no shared library" in str(error)  # noqa: PT017


def test_a_function_that_is_there(build, library):
    check_symbols(library(build(SOURCE), "rmsnorm_backward"))
    check_symbols(library(build(SOURCE), "weak_backward"))


@pytest.mark.parametrize(
    ("symbol", "message"),
    [
        ("rmsnorm_bwd", "did you mean `rmsnorm_backward`?"),
        ("hidden_backward", "is not in "),
        ("invisible_backward", "is not in "),
        ("qqq", "it exports rmsnorm_backward, weak_backward"),
    ],
)
def test_a_function_that_is_not_there_is_named_with_the_nearest(build, library, symbol, message):
    with pytest.raises(ManifestError) as caught:
        check_symbols(library(build(SOURCE), symbol))
    assert str(caught.value).startswith(f"gradcheck.toml, op 1 (silu): symbol `{symbol}` is not in")
    assert message in str(caught.value)


def test_a_library_that_exports_nothing(build, library):
    nothing = build(SOURCE, "-fvisibility=hidden", "-D__weak__=__unused__")
    with pytest.raises(ManifestError, match="it exports no function: is it `static`"):
        check_symbols(library(nothing, "qqq"))


def test_a_function_that_only_cpp_knows(build, library):
    path = build('void f(float* dx) __asm__("_Z1fPfPKfi"); void f(float* dx) {}')
    with pytest.raises(ManifestError, match=r"it is there as `_Z1fPfPKfi`, as C\+\+ names"):
        check_symbols(library(path, "f"))


def test_a_library_that_does_not_load(build, library, tmp_path):
    lacking = build(
        "void g(void); void f(float* dx, const float* dy, int n) { g(); }", "-Wl,-z,now"
    )
    with pytest.raises(LoadError, match=r"cannot be loaded: .*undefined symbol: g"):
        check_symbols(library(lacking, "f"))
    text = tmp_path / "text.so"
    text.write_text("void f();")
    with pytest.raises(LoadError, match="cannot be loaded: "):
        check_symbols(library(text, "f"))


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("abort();", "SIGABRT in loading libk.so"),
        ("_exit(3);", "loading libk.so ended the process with exit status 3"),
        ("*(volatile int*)0 = 1;", "SIGSEGV in loading libk.so"),
    ],
)
def test_a_library_that_ends_whatever_loads_it(build, library, body, message):
    path = build(
        "#include <stdlib.h>\n#include <unistd.h>\n"
        f"__attribute__((constructor)) static void begin(void) {{ {body} }}\n"
        "void f(float* dx, const float* dy, int n) {}"
    )
    with pytest.raises(LoadError, match=message):
        check_symbols(library(path, "f"))


def test_a_library_for_another_machine_is_said_to_be(build, library):
    path = build(SOURCE)
    content = bytearray(path.read_bytes())
    other, name = (0xF3, "RISC-V") if content[18] != 0xF3 else (0x3E, "x64")
    content[18:20] = other.to_bytes(2, "little")
    path.write_bytes(content)
    with pytest.raises(LoadError, match=rf"cannot be loaded: .*\(it is built for {name}, this "):
        check_symbols(library(path, "rmsnorm_backward"))
