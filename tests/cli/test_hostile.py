"""Code that does its worst: each report is written, stays what it is, and commands nobody."""

import json
import re
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from gradcheck.cli.main import main

EVIL = r"""
import os

TEXT = ("</script><script>alert(1)</script>]]>|`x`\n::error::pwned\n ##[group]pwned\x1b[31m\x00"
        "\u202e&\nRESULT pass checked=1\n</details>\n```\n")

class Odd(Exception):
    def __str__(self): return "\ud800" + TEXT

class Array:
    def __repr__(self): return TEXT * 10_000

def says(ct, x): raise ValueError(TEXT + "x" * 1_000_000)
def odd(ct, x): raise Odd()
def strange(ct, x): return Array()
def floods(ct, x):
    os.write(1, b"\xff\xfe\x00" + TEXT.encode("utf-8", "surrogatepass") + b"y" * 1_000_000)
    os.write(2, b"\xff" * 100 + b"\n::error::pwned\n##[error]pwned\n")
    return 3 * ct
def dies(ct, x):
    os.write(2, b"\n::error::pwned\n##[error]pwned\n" + b"\xff\xc3(" * 100)
    os.abort()

IMPL = {"relu": {"vjp": says}, "tanh": {"vjp": odd}, "silu": {"vjp": strange},
        "exp": {"vjp": floods}, "abs": {"vjp": dies}}
"""
FORMATS = ("json", "jsonl", "markdown", "summary", "html", "junit", "github", "gitlab", "badge",
           "concise", "terminal")  # fmt: skip
FLAGS = ["--impl", "evil:IMPL", "--sample", "typical", "--dtype", "float64", "--no-contract"]


@pytest.fixture
def judged(folder, process):
    """What a process of its own says of such code, and the reports that it writes."""
    (folder / "evil.py").write_text(EVIL)
    ops = [word for op in ("relu", "tanh", "silu", "exp", "abs") for word in ("--op", op)]
    wanted = [word for form in FORMATS for word in ("-o", f"out.{form}:{form}")]
    done = process("run", *FLAGS, *ops, *wanted, errors="strict")
    return done, {form: Path(f"out.{form}").read_text("utf-8") for form in FORMATS}


def commanding(text):
    """Lines that a CI service would take for commands."""
    return [line[:200] for line in text.splitlines() if re.match(r"\s*::|.*##\w*\[", line)]


@pytest.mark.slow
def test_code_that_does_its_worst_is_reported_and_commands_nobody(judged, folder, capsys, untimed):
    done, found = judged
    assert done.returncode == 1, done.stderr[-2000:]
    assert commanding(done.stdout) == commanding(done.stderr) == []
    assert untimed(done.stdout) == found["terminal"]
    last = done.stdout.splitlines()[-1]
    assert last.startswith("RESULT fail checked=5 pass=0")
    for form, text in found.items():
        assert all(c.isprintable() or c == "\n" for c in text), form
        assert len(text) < 400_000, form
        lines = [line for line in text.splitlines() if line.startswith("RESULT")]
        assert lines in ([], [last]), form

    verdicts = {r["op"]: r["verdict"] for r in json.loads(found["json"])["results"]}
    assert verdicts == {
        "relu": "error", "tanh": "error", "silu": "fail", "exp": "fail", "abs": "crash",
    }  # fmt: skip
    assert [line["footer"] for line in map(json.loads, found["jsonl"].splitlines()[-1:])]
    assert json.loads(found["badge"])["message"] == "0/5"
    assert len(list(ET.fromstring(found["junit"]).iter("testcase"))) == 5
    assert "<script>alert" not in found["html"]
    assert len(found["github"].splitlines()) == 6
    assert [f["location"]["path"] for f in json.loads(found["gitlab"])] == ["evil.py"] * 5
    assert found["summary"].count("\n<details>") == found["summary"].count("\n</details>") == 5

    for form in ("json", "jsonl"):  # and a report of the report says the same
        assert main(["baseline", "write", f"{form}.toml", f"out.{form}"]) == 0
        assert commanding("".join(capsys.readouterr())) == []
        assert "pwned" in Path(f"{form}.toml").read_text("utf-8")
        assert main(["report", f"out.{form}", "-o", f"again.{form}"]) == 1
        assert Path(f"again.{form}").read_text("utf-8") == found[form]
        capsys.readouterr()
