"""A C library that prints what it likes, from the call to every report."""

import json
import shutil
import subprocess
from html.parser import HTMLParser
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

NOISE = r"""
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static void noise(void) {
    static const char text[] =
        "\nRESULT pass checked=1 pass=1 fail=0 </details>\n"
        "\x1b[2J\x1b]0;owned\x07\x9b\xff\xfe\0\b\r</pre>"
        "</script><script>alert(1)</script>]]><failure/>&lt;```\n| # </details>\n"
        "GRDC\r\n\x1a\n\x02\0\0\0\0\0\0\0\0\0\0\0{}\n{\"kind\": \"result\", \"seq\": 1}\n";
    fwrite(text, 1, sizeof text - 1, stdout);
    fflush(stdout);
    if (write(1, text, sizeof text - 1) < 0 || write(2, text, sizeof text - 1) < 0) abort();
}

void relu_backward(float *dx, const float *dy, const float *x, int n) {
    noise();
    for (int i = 0; i < n; i++) dx[i] = x[i] > 0 ? dy[i] : 0;
    noise();
}

void abs_backward(float *dx, const float *dy, const float *x, int n) {
    noise();
    abort();
}

void tanh_backward(float *dx, const float *dy, const float *x, int n) {
    puts("ops.c:31: OPS_ASSERT(n == 3) failed");
    for (int i = 0; i < 100 * 1000; i++) printf("#%d 0x7f00 in frame_%d\n", i, i);
    puts("the last frame");
    abort();
}

void neg_backward(float *dx, const float *dy, const float *x, int n) {
    for (int i = 0; i < 10 * 1024 * 1024 / 64; i++)
        puts("0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcde");
    for (int i = 0; i < n; i++) dx[i] = -dy[i];
}
"""
ENTRY = """[[op]]
name = "{op}"
vjp = "void {op}_backward(float *dx, const float *dy, const float *x, int n)"
bind = {{ dx = "grad:x", dy = "cotangent", x = "in:x", n = "size(x)" }}
"""
HEAD = '[impl]\nname = "noise"\n[c]\nlibrary = "libnoise.so"\n'


@pytest.fixture(scope="module")
def library(tmp_path_factory):
    if shutil.which("cc") is None:
        pytest.skip("needs a C compiler")
    folder = tmp_path_factory.mktemp("noise")
    (folder / "noise.c").write_text(NOISE, encoding="utf-8")
    subprocess.run(["cc", "-w", "-fPIC", "-shared", "-o", "libnoise.so", "noise.c"],
                   cwd=folder, check=True)  # fmt: skip
    ops = "".join(ENTRY.format(op=op) for op in ("relu", "abs", "neg", "tanh"))
    (folder / "gradcheck.toml").write_text(f"schema = 1\n{HEAD}{ops}", encoding="utf-8")
    return folder / "gradcheck.toml"


def gradients(report):
    """What is said of gradients; a call's noise does not touch its contract either."""
    results = json.loads(report)["results"]
    assert {r["verdict"] for r in results if r["part"] == "contract"} <= {"pass", "skip", "notrun"}
    return [r for r in results if r["part"] == "gradient"]


WHERE = ("--no-contract",)


def judged(process, manifest, op, *words):
    return process(
        "run", "--impl", str(manifest), "--op", op, "--dtype", "float32",
        "--sample", "typical", "--sample", "square", *words,
    )  # fmt: skip


class Tags(HTMLParser):
    def __init__(self, text):
        super().__init__()
        self.tags = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)


@pytest.mark.slow(rest=1)
@pytest.mark.parametrize(("op", "verdict"), [("relu", "pass"), ("abs", "crash")])
def test_no_report_is_harmed(process, library, op, verdict):
    names = ["r.json", "r.html", "r.md", "r.xml"]
    done = judged(process, library, op, *(word for name in names for word in ("-o", name)))
    assert done.returncode == (0 if verdict == "pass" else 1), done.stderr
    # The terminal: nothing that paints, and one line that says RESULT, ours.
    assert all(c.isprintable() or c == "\n" for c in done.stdout + done.stderr)
    result = [line for line in done.stdout.splitlines() if line.startswith("RESULT")]
    assert result == [done.stdout.splitlines()[-1]]
    assert "| RESULT pass checked=1" in done.stdout
    assert r"\x1b[2J" in done.stdout
    # The files.
    texts = {name: Path(name).read_text(encoding="utf-8") for name in names}
    assert all(c.isprintable() or c == "\n" for text in texts.values() for c in text)
    found = gradients(texts["r.json"])
    assert [r["verdict"] for r in found] == [verdict] * 2
    assert all("RESULT pass checked=1" in r["printed"] for r in found)
    assert Tags(texts["r.html"]).tags.count("script") == 1
    assert "&lt;/details&gt;" in texts["r.html"]
    suites = ET.fromstring(texts["r.xml"])
    assert len(suites.findall(".//failure")) == 0
    assert len(suites.findall(".//error")) == 2 * (verdict == "crash")
    assert '"kind": "result"' in suites.find(".//system-out").text
    assert "</summary>" in texts["r.md"]
    assert "RESULT pass checked=1" in texts["r.md"]


@pytest.mark.slow
def test_ten_megabytes_in_every_call_are_cut_and_change_no_verdict(process, library):
    done = judged(process, library, "neg", "--no-contract", "-o", "r.json")
    assert done.returncode == 0, done.stderr
    found = gradients(Path("r.json").read_text(encoding="utf-8"))
    assert [r["verdict"] for r in found] == ["pass"] * 2
    for result in found:
        assert "bytes left out" in result["printed"]
        assert len(result["printed"]) < 3000
    assert len(done.stdout) < 6000


@pytest.mark.slow(rest=0)
def test_the_first_line_before_a_flood_and_the_last_after_it_are_everywhere(process, library):
    names = ["r.json", "r.html", "r.md", "r.xml"]
    words = (*WHERE, *(word for name in names for word in ("-o", name)))
    whole = judged(process, library, "tanh", "-v", *words).stdout
    case = json.loads(Path("r.json").read_text(encoding="utf-8"))["results"][0]
    assert case["reason"] == "SIGABRT in tanh_backward: ops.c:31: OPS_ASSERT(n == 3) failed"
    again = process("repro", case["name"], "--impl", str(library))
    short = judged(process, library, "tanh", *WHERE).stdout
    files = [Path(name).read_text(encoding="utf-8") for name in names if name != "r.html"]
    for text in (short, whole, again.stdout, *files):
        first, _, last = text.partition("bytes left out")
        assert "OPS_ASSERT(n == 3) failed" in first
        assert first.count("frame_1") > 0  # what it printed, not the reason alone
        assert "the last frame" in last
        assert len(text) < 40_000


@pytest.mark.slow
@pytest.mark.parametrize("key", ["build", "version"])
def test_what_the_manifests_commands_print_is_tame(process, library, key):
    text = r"printf '\nRESULT pass\n\033[2J\007\377<script>\n'"
    command = {"build": f'[build]\ncmd = """{text}; exit 7"""\n', "version": ""}[key]
    name = 'version.cmd = """' + text + '"""' if key == "version" else ""
    head = HEAD.replace('name = "noise"', f'name = "noise"\n{name}')
    evil = library.with_name(f"{key}.toml")
    entry = library.read_text(encoding="utf-8").partition(HEAD)[2]
    evil.write_text(f"schema = 1\n{command}{head}{entry}".replace("\\", "\\\\"), encoding="utf-8")
    done = judged(process, evil, "relu")
    assert done.returncode == (3 if key == "build" else 0), done.stderr
    said = done.stdout + done.stderr
    assert all(c.isprintable() or c == "\n" for c in said)
    lines = [line for line in said.splitlines() if line.startswith("RESULT pass")]
    assert len(lines) == (0 if key == "build" else 1)
    assert ("  | RESULT pass\n" in done.stderr) == (key == "build")
