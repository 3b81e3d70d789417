"""The clients of examples/protocol: right where they are right, and nothing brings them down."""

import ast
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from gradcheck_cases import SUITE

from gradcheck.cli.main import main
from gradcheck.implementations.processes.frames import MAGIC, PREFIX
from gradcheck.numerics.draw import Draw
from gradcheck.results.finding import Part
from gradcheck.results.verdict import Verdict
from gradcheck.run.execute import execute
from gradcheck.run.plan import Plan

HERE = Path(__file__).parent
FOLDER = HERE.parents[1] / "examples" / "protocol"
GOLDEN = HERE.parent / "implementations" / "protocol" / "golden" / "requests.frames"
NEEDS = {"python": "python3", "c": "cc", "go": "go", "rust": "rustc", "javascript": "node"}
SOURCES = {path.parent.name: path for path in FOLDER.glob("*/grads.*")}
DTYPES = ("float64", "float32")


@pytest.fixture(scope="module", params=sorted(NEEDS))
def manifest(request, tmp_path_factory):
    """A client's manifest in a folder of its own, where it may build."""
    tool = NEEDS[request.param]
    if shutil.which(tool) is None:
        pytest.skip(f"no {tool} here")
    place = tmp_path_factory.mktemp("client") / request.param
    shutil.copytree(FOLDER / request.param, place, ignore=shutil.ignore_patterns("build"))
    return place / "gradcheck.toml"


def judged(manifest, cases, *, dtypes=DTYPES, contract=None):
    plan = Plan(
        suite=SUITE,
        cases=cases,
        implementations=[str(manifest)],
        dtypes=dtypes,
        seed=0,
        contract=contract,
    )
    run = execute(plan)
    assert run.troubles == ()
    return [r for r in run.results if r.finding.part is not Part.CONTRACT], run


def verdicts(results):
    return {(r.case.name, r.finding.name): r.finding.verdict for r in results}


RIGHT, WRONG = SUITE.cases(["rms_norm"]), SUITE.cases(["silu"], samples=["typical"])


@pytest.fixture(scope="module")
def reference():
    return verdicts(judged("reference", RIGHT, contract=False)[0])


def command(manifest):
    """What the manifest starts, once it is built."""
    text = manifest.read_text()
    words = ast.literal_eval(re.search(r"^cmd = (\[.*\])", text, re.MULTILINE)[1])
    build = re.search(r'^\[build\]\ncmd = "(.*)"', text, re.MULTILINE)
    if build is not None and not (manifest.parent / "build").exists():
        subprocess.run(build[1], shell=True, check=True, cwd=manifest.parent)
    return [str(manifest.parent / w) if (manifest.parent / w).exists() else w for w in words]


# ── what they compute ────────────────────────────────────────────────────────────────────────


@pytest.mark.slow
def test_rms_norm_gets_the_verdicts_of_the_reference_and_the_wrong_operator_fails(
    manifest, reference
):
    found, run = judged(manifest, [*RIGHT, *WRONG])
    right = [r for r in found if r.case.name.startswith("rms_norm/")]
    assert verdicts(right) == reference
    assert set(reference.values()) == {Verdict.PASS}
    assert len(right) == len(DTYPES) * (15 * 3 * 2 + 15 * 2)  # forward, dx and, but for plain, dw
    wrong = [r for r in found if r not in right]
    assert len(wrong) == 4
    assert {(r.finding.name, r.finding.verdict) for r in wrong} == {
        ("forward", Verdict.PASS),
        ("x", Verdict.FAIL),
    }
    unexpected = {r.case.name for r in run.results if not r.finding.verdict.expected}
    assert all(name.startswith("silu/") for name in unexpected), "the contract, too"


@pytest.mark.slow
def test_probe_finds_nothing_amiss(manifest, capsys):
    words = ["probe", "--suite", "gradcheck_cases:SUITE", "--", *command(manifest)]
    assert main(words) == 0, capsys.readouterr().out
    out = capsys.readouterr().out
    assert "rms_norm in float64" in out
    assert out.rstrip().endswith("0 FAIL")


@pytest.mark.slow
def test_a_shell_will_do(tmp_path, capsys):
    if any(shutil.which(tool) is None for tool in ("sh", "awk", "od", "paste")):
        pytest.skip("no shell here")
    place = shutil.copytree(FOLDER / "shell", tmp_path / "shell")
    squares = SUITE.cases(["sqr"])
    found, run = judged(place / "gradcheck.toml", squares, dtypes=["float64"], contract=False)
    assert len(found) == 2 * len(squares)
    assert run.passed
    found, _ = judged(place / "gradcheck.toml", WRONG, contract=False)
    assert {(r.case.dtype, r.finding.name, r.finding.verdict) for r in found} == {
        ("float64", "forward", Verdict.PASS),
        ("float64", "x", Verdict.FAIL),
        ("float32", "vjp", Verdict.UNSUPPORTED),
    }
    script = str(place / "oneshot.sh")
    words = ["probe", "--level", "oneshot", "--suite", "gradcheck_cases:SUITE", "--op", "sqr"]
    assert main([*words, "--", "sh", script]) == 0, capsys.readouterr().out


NUMBER = re.compile(r"[-+]?\d[\d,]*(\.\d+)?(e[-+]?\d+)?")


def skeleton(text):
    """Lines without what differs between machines: measured numbers, versions, padding."""
    lines = [line for line in text.splitlines() if not line.startswith(("on ", "gradcheck "))]
    plain = [" ".join(NUMBER.sub("#", line).replace("─", "").split()) for line in lines]
    return [line for line in plain if line]


@pytest.mark.slow
def test_the_readme_shows_what_is_printed(tmp_path):
    if shutil.which("go") is None:
        pytest.skip("no go here")
    shutil.copytree(FOLDER / "go", tmp_path / "go", ignore=shutil.ignore_patterns("build"))
    readme = (FOLDER / "README.md").read_text()
    shown = re.search(r"```console\n\$ gradcheck (run .*)\n((?s:.*?))```", readme)
    words = [*shown[1].split(), "--suite", "gradcheck_cases:SUITE"]
    path = os.pathsep.join(str(HERE.parents[1] / folder) for folder in ("", "cases"))
    done = subprocess.run(
        [sys.executable, "-m", "gradcheck", *words],
        cwd=tmp_path, env={**os.environ, "PYTHONPATH": path},
        capture_output=True, encoding="utf-8", check=False,
    )  # fmt: skip
    printed = done.stdout.replace(" --suite gradcheck_cases:SUITE", "")
    assert skeleton(printed) == skeleton(shown[2]), done.stderr


# ── what is sent to them ─────────────────────────────────────────────────────────────────────


def mutated(draw, data):
    """`data` with some bytes changed, cut or doubled."""
    found = bytearray(data)
    for _ in range(int(draw.integers(1, 6))):
        if not found:
            break
        at = int(draw.integers(0, len(found)))
        kind = int(draw.integers(0, 5))
        if kind == 0:
            found[at] ^= 1 << int(draw.integers(0, 8))
        elif kind == 1:
            found[at] = int(draw.integers(0, 256))
        elif kind == 2:
            del found[at : at + int(draw.integers(1, 40))]
        elif kind == 3:
            found[at:at] = found[at : at + int(draw.integers(1, 40))]
        else:  # a number or a mark that JSON knows
            found[at : at + 1] = b'0-9,:"[]{}\\e.'[int(draw.integers(0, 13)) :][:1]
    return bytes(found)


def frames(data):
    """Header and payload of each frame."""
    while data:
        size, rest = PREFIX.unpack(data[: PREFIX.size])[1:]
        data = data[PREFIX.size :]
        yield data[:size], data[size : size + rest]
        data = data[size + rest :]


ODD = [
    None, True, -1, 0, 1, 3, 7, 2**31, 2**32, 2**53, 2**63, 2**64, 1.5, 1e300,
    "", "x", "0", "float32", "float64", "int64", "bfloat16", "input", "cotangent", "forward",
    "vjp", "silu", "inf", '\\"\0é\U0001f600',
    [], [0], [-1], [2**40, 2**40], [1] * 40, {}, {"x": [{}]},
]  # fmt: skip


def places(value, path=()):
    """The ways to every value within a message."""
    items = value.items() if isinstance(value, dict) else enumerate(value)
    for key, inner in items:
        yield (*path, key)
        if isinstance(inner, (dict, list)):
            yield from places(inner, (*path, key))


def swapped(draw, header):
    """A header, one value of which is another, or gone."""
    found = json.loads(header)
    paths = list(places(found))
    if not paths:
        return header
    *way, last = paths[int(draw.integers(0, len(paths)))]
    owner = found
    for key in way:
        owner = owner[key]
    choice = int(draw.integers(0, len(ODD) + 2))
    if choice < len(ODD):
        owner[last] = ODD[choice]
    else:
        del owner[last]
    return json.dumps(found).encode()


def hostile(draw, data):
    """A conversation with a header that says something else, or with bytes changed or lost."""
    kind = int(draw.integers(0, 8))
    if kind == 0:
        return mutated(draw, data)
    whole = list(frames(data))
    for _ in range(int(draw.integers(1, 4))):
        at = int(draw.integers(0, len(whole)))
        whole[at] = (mutated if kind == 1 else swapped)(draw, whole[at][0]), whole[at][1]
    packed = [PREFIX.pack(MAGIC, len(h), len(p)) + h + p for h, p in whole]
    return b"".join(packed)


def ends_by_itself(program, data, env=None):
    """Whatever it is sent, a client answers or gives up; it is not killed by it."""
    done = subprocess.run(
        program, input=data, capture_output=True, timeout=300, check=False, env=env
    )
    assert done.returncode in (0, 1), (done.returncode, done.stderr[-2000:])
    return done.stdout


@pytest.mark.slow
def test_no_input_brings_a_client_down(manifest):
    program, data = command(manifest), GOLDEN.read_bytes()
    whole = ends_by_itself(program, data).count(b"GRDC")
    assert whole == 9  # all but `bye` are answered
    for i in range(10):
        answered = ends_by_itself(program, hostile(Draw("hostile", i), data)).count(b"GRDC")
        assert answered <= whole + 1


@pytest.fixture(scope="module")
def watched(tmp_path_factory):
    """The client in C, built so that a wrong access to memory ends it with 99."""
    if shutil.which("gcc") is None:
        pytest.skip("no gcc here")
    program = tmp_path_factory.mktemp("watched") / "grads"
    flags = ["-std=c99", "-O1", "-g", "-Wall", "-Wextra", "-Wpedantic", "-Werror"]
    flags += ["-fsanitize=address,undefined", "-fno-sanitize-recover=all"]
    done = subprocess.run(
        ["gcc", *flags, "-o", program, SOURCES["c"], "-lm"],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    if "cannot find" in done.stderr:
        pytest.skip("gcc has no sanitizers here")
    assert done.returncode == 0, done.stderr
    options = "exitcode=99:detect_leaks=0:allocator_may_return_null=1"
    env = {**os.environ, "ASAN_OPTIONS": options, "UBSAN_OPTIONS": "exitcode=99"}
    return lambda data: ends_by_itself([program], data, env)


@pytest.mark.slow
def test_the_client_in_c_touches_no_memory_but_its_own(watched):
    data = GOLDEN.read_bytes()
    assert watched(data).count(b"GRDC") == 9
    for i in range(150):
        watched(hostile(Draw("hostile c", i), data))


@pytest.mark.slow
@pytest.mark.parametrize(
    "text",
    [
        b'{"a":"\\', b'{"a":"\\"}', b'{"a"', b'{"a":[1,', b"{", b"", b" ", b'"', b"-", b"{}x",
        b'{"kind":"ping","seq":"\\u00', b"[" * 1000, b'{"a":' * 1000, b'{"kind":"ping","seq":-}',
        b'{"kind":"run","op":"silu","ask":"vjp","blocks":[{"shape":[]}]}',
        b'{"kind":"run","op":"silu","ask":"vjp","blocks":[[],{},3,null]}',
        b'{"kind":"run","op":"silu","ask":"vjp","blocks":[' + b"{}," * 99 + b"{}]}",
    ],
)  # fmt: skip
def test_the_client_in_c_reads_no_further_than_its_header(watched, text):
    frame = b"GRDC\r\n\x1a\n" + len(text).to_bytes(4, "little") + bytes(8) + text
    answer = watched(frame)
    assert answer.count(b"GRDC") == 1
    assert b'"kind":"error"' in answer or b'"kind":"unsupported"' in answer


# ── what they are ────────────────────────────────────────────────────────────────────────────


def test_there_are_five_and_each_fits_its_page():
    assert set(SOURCES) == set(NEEDS)
    for path in SOURCES.values():
        lines = path.read_text().splitlines()
        assert len(lines) <= 200, path
        assert max(map(len, lines)) <= 100, path
        assert "WRONG" in path.read_text(), "the wrong operator is marked"


def test_they_need_nothing_but_their_standard_library():
    tree = ast.parse(SOURCES["python"].read_text())
    names = {a.name for n in ast.walk(tree) if isinstance(n, ast.Import) for a in n.names}
    names |= {n.module for n in ast.walk(tree) if isinstance(n, ast.ImportFrom)}
    assert names <= set(sys.stdlib_module_names)
    required = re.findall(r'require\("([^"]+)"\)', SOURCES["javascript"].read_text())
    assert required == ["node:fs"]
    imports = re.search(r"import \((.*?)\)", SOURCES["go"].read_text(), re.DOTALL)[1].split()
    assert not [name for name in imports if "." in name]
    uses = re.findall(r"^use (\w+)::", SOURCES["rust"].read_text(), re.MULTILINE)
    assert set(uses) == {"std"}
