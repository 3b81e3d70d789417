"""One operator, one case, one element: no text speaks of "1 operators"."""

import re
from pathlib import Path

import pytest

from gradcheck.cli.main import main
from gradcheck.report import FORMATS

ONE = r"""
import kernels as k
from gradcheck import OpSpec, Sample, Suite

def one(draw): return (draw.normal(1),)
def square(xp, x): return x * x
def double(xp, ct, x): return 2 * ct * x

sample = Sample(name="only", primals=one, hunts="2")
spec = OpSpec(name="square", signature="()->()", forward=square, vjp=double, formula="x^2",
              source="none", samples=(sample,))
SUITE = Suite("mine", "1", [spec])
RIGHT = {"square": lambda ct, x: 2 * ct * x}
WRONG = {"square": lambda ct, x: 3 * ct * x}
NAN = {"square": lambda ct, x: 3 * ct * float("nan")}
"""
WRONG = re.compile(r"(?<![\w.,:=/×-])1 (?!is\b|has\b|was\b|passes\b|s\b)[a-z]*[a-rt-z]s\b")
SUITE = ("--suite", "one:SUITE")
RUN = ("--dtype", "float64", *SUITE)


def test_what_this_looks_for_it_finds():
    for text in ("1 operators", "all 1 checks passed", "1 of 1 elements are", "of 1 cases;"):
        assert WRONG.search(text)
    for text in ("21 operators", "1 operator", "1 of 3 elements is wrong", "1 is", "v1.1 runs"):
        assert not WRONG.search(text)


@pytest.mark.slow
def test_one_is_singular_in_every_text(capsys, folder):
    Path("one.py").write_text(ONE)
    lines = [
        ["list", *SUITE],
        ["explain", "square", *SUITE],
        ["init", "--op", "square", *SUITE],
        ["power", *SUITE],
        ["power", *SUITE, "-o", "power.md"],
        ["power", "--diagnosis", *SUITE],
        ["export", "cases", *SUITE],
        ["run", "--lf", "--impl", "one:WRONG", *RUN, "--keep-artifacts", "kept"],
        ["run", "--lf", "--impl", "one:WRONG", *RUN, "-v"],
        ["run", "--lf", "--impl", "one:RIGHT", *RUN],
        ["run", "-k", "nothing", *RUN],
        ["repro", "square/default/only/float64:x", "--impl", "one:WRONG", *SUITE],
        ["run", "--impl", "one:RIGHT", *RUN, "-o", "right.json"],
        ["diff", "right.json", "one:WRONG.json"],
        ["diff", "right.json", "one:WRONG.json", "--format", "markdown"],
        ["baseline", "write", "known.toml", "--impl", "one:WRONG", *RUN],
        ["run", "--impl", "one:WRONG", *RUN, "--baseline", "known.toml"],
        ["run", "--impl", "one:RIGHT", *RUN, "--baseline", "known.toml"],
    ]
    for name in ("one:RIGHT", "one:WRONG", "one:NAN", "reference"):
        lines.append(["run", "--impl", name, *RUN, "-o", f"{name}.json"])
        lines += [["report", f"{name}.json", "--format", form] for form in FORMATS]
    for line in sorted(lines, key=lambda words: words[0] in ("report", "diff")):
        assert main(line) in (0, 1, 2, 3, 4)
        said = "\n".join(capsys.readouterr())
        assert said
        found = [m[0] for m in WRONG.finditer(said)]
        assert not found, f"gradcheck {' '.join(line)}: {found}\n{said[-3000:]}"
    assert not WRONG.search(Path("power.md").read_text())
