"""What `--help` shows below the flags: a few command lines to copy, and what each is for."""

from __future__ import annotations

TYPE_CHECKING = False  # as type checkers know it, without importing `typing`
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Final

    Rows = Sequence[tuple[str, str]]

FIRST: Final[Rows] = (
    ("gradcheck demo", "see a pass, a failure and a crash"),
    ("gradcheck run --impl mykernels:IMPL", "judge your own Python"),
    ("gradcheck init --lib build/libk.so", "bind a C library ..."),
    ("gradcheck run --impl gradcheck.toml", "... and judge it"),
    ("gradcheck COMMAND --help", "flags and examples of one command"),
)
OF: Final[Mapping[str, Rows]] = {
    "demo": (
        ("gradcheck demo", "judge them"),
        ("gradcheck demo --copy play", "write them to play/kernels.py"),
    ),
    "run": (
        ("gradcheck run", "every operator, the suite's own"),
        ("gradcheck run --op rms_norm --op 'soft*'", "some of them"),
        ("gradcheck run -k 'norm and not empty'", "by words of their names"),
        ("gradcheck run --impl mykernels:IMPL", 'IMPL = {"silu": MySilu, ...}'),
        ("gradcheck run --impl gradcheck.toml", "a C library, or a program"),
        ("gradcheck run --impl torch -o report.html", "PyTorch's autograd, as a page"),
        ("gradcheck run --model gpt2 --impl torch", "a model, and its stages"),
        ("gradcheck run --rule 'adam*'", "update rules, step by step"),
        ("gradcheck run --baseline known.toml", "fail on what is not listed"),
        ("gradcheck run --dtype bfloat16 -j auto", "another dtype, on every core"),
        ("gradcheck run --shard 1/4 -o 1.jsonl", "a quarter; `gradcheck merge`"),
    ),
    "repro": (
        ("gradcheck repro silu/default/zero/float32:x --impl mykernels:IMPL", "one gradient"),
        ("gradcheck repro silu/default/zero/float32 --export repro.py", "as a script"),
    ),
    "list": (
        ("gradcheck list", "everything"),
        ("gradcheck list --op 'rms*'", "some operators"),
        ("gradcheck list --json", "for a program, every sample too"),
    ),
    "explain": (
        ("gradcheck explain rms_norm", "an operator"),
        ("gradcheck explain llama", "a model, with its stages"),
        ("gradcheck explain adamw", "an update rule"),
    ),
    "init": (
        ("gradcheck init --lib build/libk.so", "from a library"),
        ("gradcheck init --lib build/libk.so --header k.h", "with its prototypes"),
        ("gradcheck init --kind process", "for a program in any language"),
        ("gradcheck init --ci github --impl gradcheck.toml", "a workflow"),
    ),
    "baseline": (
        ("gradcheck baseline write known-failures.toml --impl gradcheck.toml", "accept today's"),
        ("gradcheck run --impl gradcheck.toml --baseline known-failures.toml", "the gate"),
        ("gradcheck baseline prune known-failures.toml --impl gradcheck.toml", "tidy up"),
    ),
    "baseline write": (
        ("gradcheck baseline write known-failures.toml --impl gradcheck.toml", "run now"),
        ("gradcheck baseline write known-failures.toml run.json", "of a run made before"),
    ),
    "baseline update": (
        ("gradcheck baseline update known-failures.toml --impl gradcheck.toml", "run now"),
        ("gradcheck baseline update known-failures.toml run.json", "of a run made before"),
    ),
    "baseline prune": (
        ("gradcheck baseline prune known-failures.toml --impl gradcheck.toml", "run now"),
        ("gradcheck baseline prune known-failures.toml run.json", "of a run made before"),
    ),
    "baseline check": (
        ("gradcheck baseline check known-failures.toml --impl gradcheck.toml", "run now"),
        ("gradcheck baseline check known-failures.toml run.json", "of a run made before"),
    ),
    "report": (
        ("gradcheck report run.jsonl -o report.html", "as a page"),
        ("gradcheck report run.jsonl", "in the terminal"),
    ),
    "diff": (
        ("gradcheck diff main.json pr.json", "what a change did"),
        ("gradcheck diff main.json pr.json -o diff.md", "as a comment"),
        ("gradcheck diff run.json::torch run.json::mine:IMPL", "two codes of one run"),
        ("gradcheck diff run.json", "the same, if it holds just two"),
        ("gradcheck diff a.json b.json --fail-on newly-failing", "exit 1 for no other"),
    ),
    "merge": (
        ("gradcheck merge 1.jsonl 2.jsonl -o run.json", "shards of one run"),
    ),
    "schema": (
        ("gradcheck schema", "of a report, -o run.json"),
        ("gradcheck schema log", "of each line of a log, -o run.jsonl"),
    ),
    "power": (
        ("gradcheck power --op rms_norm", "which wrong answers each sample rejects"),
        ("gradcheck power --model gpt2", "plant faults in a model"),
        ("gradcheck power --part 1/5 -o power.md", "a fifth of all, as a report"),
    ),
    "export": (
        ("gradcheck export cases --op 'conv*'", "raw bytes, for any language"),
        ("gradcheck export cases --format npz", "for NumPy"),
    ),
    "judge": (
        ("gradcheck judge cases", "in the terminal"),
        ("gradcheck judge cases -o report.html", "as a page"),
    ),
    "probe": (
        ("gradcheck probe -- ./grads", "a program that speaks in frames"),
        ("gradcheck probe --level jsonl -- node grads.js", "in lines of JSON"),
    ),
    "completion": (
        ('eval "$(gradcheck completion bash)"', "in ~/.bashrc; zsh: in ~/.zshrc"),
        ("gradcheck completion fish | source", "in ~/.config/fish/config.fish"),
    ),
}  # fmt: skip
"""By command."""
CODES_OF: Final[Mapping[str, Rows]] = {
    "diff": (
        ("0", "nothing is worse"),
        ("1", "something is"),
        ("2", "usage, or nothing that can be compared"),
    ),
}
"""Of commands that have codes of their own."""


def text(title: str, rows: Rows) -> str:
    """Rows as an epilog that `gradcheck.cli.parser` lays out: a tab between the columns."""
    return "\n".join([f"{title}:", *(f"{command}\t{what}" for command, what in rows)])


def of(command: str) -> str:
    """The examples of a command, and its exit codes, as an epilog; empty: it has none."""
    blocks = [text("examples", OF[command])] if command in OF else []
    blocks += [text("exit codes", CODES_OF[command])] if command in CODES_OF else []
    return "\n\n".join(blocks)
