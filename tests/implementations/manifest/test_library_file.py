import shutil
import subprocess
import sys
from threading import Thread
from time import sleep

import pytest

from gradcheck.errors import LoadError, ManifestError
from gradcheck.implementations.manifest.library_file import (
    LONGEST_VERSION,
    TAIL,
    check_symbols,
    exported,
    prepare,
)
from gradcheck.implementations.manifest.schema import parse

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
    """Compiles C into a shared library, once for each source and flags."""
    if not shutil.which("gcc"):
        pytest.skip("no C compiler")
    made = {}

    def compiled(source, *flags):
        if (source, flags) not in made:
            folder = tmp_path_factory.mktemp("library")
            (folder / "k.c").write_text(source)
            command = ["gcc", "-shared", "-fPIC", "-o", "libk.so", "k.c", *flags]
            subprocess.run(command, cwd=folder, check=True)
            made[source, flags] = folder / "libk.so"
        return made[source, flags]

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
        with pytest.raises(LoadError, match=r"k\.so is not a shared library in ELF"):
            exported(tmp_path / "k.so")


@pytest.mark.parametrize("magic", [b"\xcf\xfa\xed\xfe", b"\xca\xfe\xba\xbe"])
def test_a_library_for_macos_leads_to_its_header(tmp_path, magic):
    (tmp_path / "k.dylib").write_bytes(magic + bytes(60))
    with pytest.raises(LoadError, match=r"k\.dylib is a library for macOS, .* init --header"):
        exported(tmp_path / "k.dylib")


def test_a_truncated_library_is_a_load_error(build, tmp_path, library):
    whole = build(SOURCE).read_bytes()
    for size in range(0, len(whole), 997):
        (tmp_path / "k.so").write_bytes(whole[:size])
        try:
            exported(tmp_path / "k.so")
        except LoadError as error:
            assert "k.so is not a shared library" in str(error)  # noqa: PT017


def test_a_function_that_is_there(build, library):
    check_symbols(library(build(SOURCE), "rmsnorm_backward"))
    check_symbols(library(build(SOURCE), "weak_backward"))


HIDDEN = ("-fvisibility=hidden", "-D__weak__=__unused__")
CPP = 'void f(float* dx) __asm__("_Z1fPfPKfi"); void f(float* dx) {}'


def test_a_function_that_is_not_there_is_named_with_the_nearest(build, library):
    table = [
        (SOURCE, (), "rmsnorm_bwd", "did you mean `rmsnorm_backward`?"),
        (SOURCE, (), "hidden_backward", "is not in "),
        (SOURCE, (), "invisible_backward", "is not in "),
        (SOURCE, (), "qqq", "it exports rmsnorm_backward, weak_backward"),
        (SOURCE, HIDDEN, "qqq", "it exports no function: is it `static`"),
        (CPP, (), "f", "it is there as `_Z1fPfPKfi`, as C++ names"),
    ]
    for source, flags, symbol, message in table:
        with pytest.raises(ManifestError) as caught:
            check_symbols(library(build(source, *flags), symbol))
        said = str(caught.value)
        assert said.startswith(f"gradcheck.toml, op 1 (silu): symbol `{symbol}` is not in")
        assert message in said


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


def test_a_library_that_ends_whatever_loads_it(build, library):
    table = {
        "abort();": "SIGABRT in loading libk.so",
        "_exit(3);": "loading libk.so ended the process with exit status 3",
        "*(volatile int*)0 = 1;": "SIGSEGV in loading libk.so",
    }
    for body, message in table.items():
        path = build(
            "#include <stdlib.h>\n#include <unistd.h>\n"
            f"__attribute__((constructor)) static void begin(void) {{ {body} }}\n"
            "void f(float* dx, const float* dy, int n) {}"
        )
        with pytest.raises(LoadError, match=message):
            check_symbols(library(path, "f"))


def test_a_library_for_another_machine_is_said_to_be(build, library, tmp_path):
    path, content = tmp_path / "libk.so", bytearray(build(SOURCE).read_bytes())
    other, name = (0xF3, "RISC-V") if content[18] != 0xF3 else (0x3E, "x64")
    content[18:20] = other.to_bytes(2, "little")
    path.write_bytes(content)
    with pytest.raises(LoadError, match=rf"cannot be loaded: .*\(it is built for {name}, this "):
        check_symbols(library(path, "rmsnorm_backward"))


# ── build and version ────────────────────────────────────────────────────────────────────────

C = "[c]\nlibrary = 'k.so'\n"


def prepared(folder, build="", version="version = '1'"):
    path = folder / "gradcheck.toml"
    path.write_text(f"schema = 1\n[impl]\nname = 'k'\n{version}\n{C}{build}")
    return prepare(parse(path))


@pytest.mark.slow(keep=2)
@pytest.mark.parametrize(
    ("build", "message"),
    [
        ("cmd = 'echo nothing to be done; exit 3'", "`echo nothing to be done; exit 3` failed with "
         "exit status 3; it printed:\nnothing to be done"),
        ("cmd = 'exit 4'", "failed with exit status 4 and printed nothing"),
        ("cmd = 'echo on stderr >&2; false'", "it printed:\non stderr"),
        ("cmd = 'kill -9 $$'", "failed with SIGKILL"),
        ("cmd = 'no-such-program-here'", "exit status 127"),
        ("cmd = ['no-such-program-here', 'x']", "`no-such-program-here x` cannot be started"),
        ("cmd = []", "cannot be started"),
        ("cmd = 'sleep 100'\ntimeout = 0.05", "`sleep 100` took longer than 0.05 s"),
        (f"cmd = '{sys.executable} -c \"print(chr(120) * {10 * TAIL})\"; false'", "x" * 99),
        ("cmd = 'printf \"\\\\377\"; false'", "\N{REPLACEMENT CHARACTER}"),
    ],
)  # fmt: skip
def test_a_build_that_fails_is_a_load_error_with_what_it_printed(tmp_path, build, message):
    with pytest.raises(LoadError) as caught:
        prepared(tmp_path, f"[build]\n{build}")
    assert message in str(caught.value)
    assert str(caught.value).startswith(f"{tmp_path / 'gradcheck.toml'}: [build] ")
    assert len(str(caught.value)) < TAIL + 1000


def test_a_timeout_that_is_none(tmp_path):
    for timeout in ("0", "-1", "inf", "nan"):
        with pytest.raises(ManifestError, match="write seconds, more than 0"):
            prepared(tmp_path, f"[build]\ncmd = 'true'\ntimeout = {timeout}")


def test_a_build_runs_in_the_manifests_folder(tmp_path):
    prepared(tmp_path, "[build]\ncmd = 'pwd > where; cat > input'")
    assert (tmp_path / "where").read_text().strip() == str(tmp_path.resolve())
    assert (tmp_path / "input").read_text() == ""  # it reads nothing of ours
    prepared(tmp_path, "[build]\ncmd = ['touch', 'a b; c']")  # without the shell
    assert (tmp_path / "a b; c").exists()


def test_what_a_build_leaves_running_is_not_waited_for(tmp_path):
    prepared(tmp_path, "[build]\ncmd = 'sleep 2 & echo started'\ntimeout = 600")
    assert prepared(tmp_path) == "1"


def test_a_build_that_takes_too_long_leaves_nothing_behind(tmp_path):
    with pytest.raises(LoadError, match="took longer"):
        prepared(tmp_path, "[build]\ncmd = '(sleep 1; touch late) & sleep 100'\ntimeout = 0.05")
    sleep(1.5)
    assert not (tmp_path / "late").exists()


def test_builds_of_one_manifest_wait_for_each_other(tmp_path):
    build = "[build]\ncmd = 'mkdir lock && sleep 0.1 && rmdir lock'"
    prepared(tmp_path, build)
    file = parse(tmp_path / "gradcheck.toml")
    faults = []

    def once():
        try:
            prepare(file)
        except LoadError as error:
            faults.append(error)

    threads = [Thread(target=once) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert faults == []


def test_versions(tmp_path):
    table = {
        "version = '1.2'": "1.2",
        "version.cmd = 'echo v3; echo more'": "v3",
        "version.cmd = ['echo', 'v4']": "v4",
        "version.cmd = 'printf \"a\\\\033[31mb\"'": "a",
        "version.cmd = 'false'": "",
        "version.cmd = 'true'": "",
        "version.cmd = 'no-such-program-here'": "",
        "version.cmd = 'head -c 9999 /dev/zero | tr \"\\\\0\" x'": "x" * LONGEST_VERSION,
        "": "",
    }
    assert {text: prepared(tmp_path, version=text) for text in table} == table
    told = prepared(tmp_path, "[build]\ncmd = 'echo 7 > v'", "version.cmd = 'cat v'")
    assert told == "7"  # it is asked for after the build
