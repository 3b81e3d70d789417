"""Completion: the scripts are run in the shells themselves, where they are installed."""

import shlex
import shutil
import subprocess

import pytest

from gradcheck.cli.completion import _actions, _names, _wanted
from gradcheck.cli.flags import SHELLS
from gradcheck.cli.main import _parser

FREE = {
    "budget",
    "keyword",
    "max_fail",
    "durations",
    "max_time",
    "suite",
    "seed",
    "timeout",
    "jobs",
    "shard",
    "scheduler",
    "part",
    "factor",
    "fail_on",
    "old",
    "new",
    "install",
}
"""What nobody can complete: numbers, modules, names with parts."""


@pytest.fixture
def script(run, folder):
    """The script of a shell, on file."""

    def write(shell, *words):
        found = run(shell, *words, command="completion")
        assert (found.code, found.err) == (0, "")
        path = folder / f"script.{shell}"
        path.write_text(found.out)
        return path

    return write


@pytest.fixture
def offered(script):
    """What bash offers for the last word of a line."""
    path = script("bash")

    def ask(line):
        words = line.split(" ")
        program = (
            f"source {path}; COMP_WORDS=({shlex.join(words)}); COMP_CWORD={len(words) - 1}; "
            "$(complete -p gradcheck | sed 's/.*-F \\([^ ]*\\).*/\\1/') 2>/dev/null; "
            'printf "%s\\n" "${COMPREPLY[@]}"'
        )
        program = program.replace("$(complete", "f=$(complete").replace(") 2>", "); $f 2>")
        done = subprocess.run(
            ["bash", "--norc", "-c", program], capture_output=True, text=True, check=True
        )
        assert done.stderr == ""
        return set(done.stdout.split())

    return ask


@pytest.mark.slow(keep=5)
@pytest.mark.parametrize(
    ("line", "some", "others"),
    [
        ("gradcheck ", {"run", "demo", "baseline", "completion"}, {"--op", "rms_norm"}),
        ("gradcheck ba", {"baseline"}, {"run"}),
        ("gradcheck baseline ", {"write", "update", "prune", "check"}, {"run"}),
        ("gradcheck run --no", {"--no-build", "--no-contract", "--no-config"}, {"--op"}),
        ("gradcheck run --op rms", {"rms_norm", "rms_norm_back"}, {"relu"}),
        ("gradcheck run --op relu --op so", {"softmax"}, {"relu"}),
        ("gradcheck run --model ", {"gpt2", "llama"}, {"relu", "adam"}),
        ("gradcheck run --rule ad", {"adam", "adamw"}, {"add"}),
        ("gradcheck run --dialect w", {"weight"}, {"default"}),
        ("gradcheck run --sample ty", {"typical"}, {"square"}),
        ("gradcheck run --dtype b", {"bfloat16"}, {"float64"}),
        ("gradcheck run --format m", {"markdown"}, {"html"}),
        ("gradcheck run --color a", {"auto", "always"}, {"never"}),
        ("gradcheck run --convention J", {"JAX"}, {"PyTorch"}),
        ("gradcheck run --impl ", {"reference", "torch", "jax", "mine.toml"}, {"kernels.py"}),
        ("gradcheck run -o kern", {"kernels.py"}, {"mine.toml"}),
        ("gradcheck baseline write ", {"mine.toml", "kernels.py"}, {"relu"}),
        ("gradcheck baseline check f --op ta", {"tanh"}, {"relu"}),
        ("gradcheck explain lla", {"llama"}, {"gpt2"}),
        ("gradcheck init --lib kern", {"kernels.py"}, {"relu"}),
        ("gradcheck init --kind ", {"c", "python", "process"}, {"relu"}),
        ("gradcheck completion ", {*SHELLS}, {"relu"}),
    ],
)
def test_bash_offers_what_fits_and_nothing_else(offered, folder, line, some, others):
    (folder / "mine.toml").touch()
    found = offered(line)
    assert some <= found
    assert not others & found


def test_a_word_that_nothing_begins_with_is_offered_nothing(offered):
    assert offered("gradcheck run --op zzz") == set()


def test_the_names_are_those_of_the_suite_that_is_named(script):
    own, usual = (
        script("bash", *words).read_text() for words in (["--suite", "kernels:SUITE"], [])
    )
    assert '"square"' in own
    assert "rms_norm" not in own
    assert "rms_norm" in usual


@pytest.mark.parametrize("shell", SHELLS)
def test_the_scripts_are_well_formed(script, shell):
    if shutil.which(shell) is None:
        pytest.skip(f"{shell} is not installed")
    done = subprocess.run([shell, "-n", str(script(shell))], capture_output=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")


def test_every_value_is_completed_or_cannot_be():
    names = _names([])
    lost = [
        f"{action.dest} {action.metavar}"
        for action in _actions(_parser())
        if action.nargs != 0 and action.choices is None
        and action.dest not in FREE and action.metavar != "CASE"
        and _wanted(action, names) is None
    ]  # fmt: skip
    assert lost == []
