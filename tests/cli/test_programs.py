"""`gradcheck run --impl FILE.toml` with [subprocess]: a program in any language."""

import json
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parents[1] / "implementations" / "protocol"


@pytest.fixture
def manifest(folder):
    """A manifest of a program of these tests."""

    def write(level="frames", lie="", timeout=60.0):
        script = [HERE / "oneshot.py"] if level == "oneshot" else [HERE / "speaker.py", level]
        words = [sys.executable, "-I", "-S", *map(str, script), *filter(None, [lie])]
        lines = [
            "schema = 1",
            "[impl]",
            'name = "speaker"',
            "[subprocess]",
            f"cmd = {json.dumps(words)}",
            f'level = "{level}"',
            f"timeout = {timeout}",
            "startup = 60",
        ]
        (folder / "speaker.toml").write_text("\n".join(lines))
        return "speaker.toml"

    return write


@pytest.mark.slow(rest=1)
@pytest.mark.parametrize("level", ["frames", "jsonl", "oneshot"])
def test_a_program_is_judged(manifest, judged, level):
    found = judged("--impl", manifest(level), "--op", "tanh", "--sample", "t*", "--sample", "s*")
    assert found.code == 0
    results = [r for r in found.results if r["part"] == "gradient"]
    assert {r["verdict"] for r in results} == {"pass"}
    assert {r["implementation"] for r in results} == {"speaker.toml"}
    assert {r["output"] for r in results} == {"forward", "x"}


def test_a_wrong_program_fails_the_gate(manifest, judged):
    found = judged("--impl", manifest(lie="negated"), "--op", "tanh", "--sample", "typical")
    assert found.code == 1
    assert {r["verdict"] for r in found.results if r["output"] == "x"} == {"fail"}


def test_a_program_that_rounds_its_operands_to_tf32_fails_in_float32(manifest, judged):
    words = ["--op", "mul", "--dialect", "same-shape", "--sample", "typical", "--no-contract"]
    found = judged("--impl", manifest(lie="rounds_operands"), *words)
    assert found.code == 1
    verdicts = {(r["dtype"], r["output"]): r["verdict"] for r in found.results}
    for name in ("x", "y"):
        assert verdicts["float64", name] == "pass"
        assert verdicts["float32", name] == "fail"


def test_a_program_that_dies_is_no_end_of_the_run(manifest, judged):
    words = ["--impl", manifest(lie="exits_3"), "--op", "tanh", "--op", "silu"]
    found = judged(*words, "--sample", "typical", "--dtype", "float64")
    assert found.code == 1
    results = {r["op"]: r for r in found.results if r["part"] == "gradient"}
    assert {op: r["verdict"] for op, r in results.items()} == {"tanh": "crash", "silu": "unbound"}
    assert "out of luck" in results["tanh"]["printed"]


@pytest.mark.slow(keep=1)
@pytest.mark.parametrize(
    ("lie", "said"),
    [
        ("misspelt", "did you mean 'tanh'?"),
        ("version_2", "speaks GRADCHECK/2, this gradcheck GRADCHECK/1"),
        ("exits_at_once", "usage: speaker WHAT"),
    ],
)
def test_a_program_that_cannot_be_loaded_exits_with_3(manifest, run, lie, said):
    found = run("--impl", manifest(lie=lie), "--op", "tanh")
    assert found.code == 3
    assert said in found.err
