"""The parser of the command line: help that fits the terminal, examples, mistakes in one line."""

from __future__ import annotations

import argparse
import re
import sys

from gradcheck.cli import console
from gradcheck.cli.exit_codes import USAGE

TYPE_CHECKING = False  # as type checkers know it, without importing `typing`
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from typing import Any, Final, NoReturn

    Rows = Sequence[tuple[str, str]]

MAX_WIDTH: Final = 100
"""Columns beyond which lines are hard to read."""
PIPE_WIDTH: Final = 80
"""Columns of help that is not shown in a terminal."""
MAX_USAGE_FLAGS: Final = 5
"""Flags that the usage line lists."""
INVALID: Final = re.compile(
    r"argument (\S+): invalid choice: '(.*?)' \(choose from (.*)\)", re.DOTALL
)
"""A value that is none of the choices: of a flag, or of COMMAND and ACTION."""
CODE: Final = re.compile(r".*\.(?:py|toml|so|dylib|dll)|[\w./]+:\w+")
"""A word that names an implementation."""
COMMANDS: Final[Mapping[str, str]] = {
    **dict.fromkeys(("check", "test", "verify"), "run"),
    **dict.fromkeys(("show", "describe", "info"), "explain"),
    "compare": "diff",
    "version": "--version",
}
"""What other tools call a command."""
FLAGS: Final[Mapping[str, str]] = {
    **dict.fromkeys(("--kernel", "--kernels", "--module", "--code"), "--impl"),
    **dict.fromkeys(("-n", "--workers", "--processes", "--threads"), "--jobs"),
    **dict.fromkeys(("--filter", "--select", "--keyword"), "-k"),
    **dict.fromkeys(("--fail-fast", "--failfast", "--exitfirst"), "-x"),
    **dict.fromkeys(("--html", "--json", "--markdown", "--junit", "--report", "--out"), "-o"),
    "--last-failed": "--lf",
    "--silent": "--quiet",
    "--variant": "--dialect",
}
"""What other tools call a flag."""
NEAR: Final = 0.65
"""Similarity from which on a word is taken for a misspelt one."""
FIRST_STEPS: Final[Rows] = (
    ("gradcheck demo", "see a pass, a failure and a crash"),
    ("gradcheck run --impl mykernels.py", "judge your own Python"),
    ("gradcheck init --lib build/libk.so", "bind a C library ..."),
    ("gradcheck run --impl gradcheck.toml", "... and judge it"),
    ("gradcheck COMMAND --help", "flags and examples of one command"),
)
EXAMPLES: Final[Mapping[str, Rows]] = {
    "demo": (
        ("gradcheck demo", "judge them"),
        ("gradcheck demo --copy play", "write them to play/kernels.py"),
    ),
    "run": (
        ("gradcheck run", "every operator of the suite"),
        ("gradcheck run --op rms_norm --op 'soft*'", "some of them"),
        ("gradcheck run -k 'norm and not empty'", "by words of their names"),
        ("gradcheck run --impl mykernels:IMPL", 'IMPL = {"silu": silu_vjp, ...}'),
        ("gradcheck run --impl gradcheck.toml", "a C library, or a program"),
        ("gradcheck run --impl torch -o report.html", "PyTorch's autograd, as a page"),
        ("gradcheck run --model gpt2 --impl torch", "a model, and its stages"),
        ("gradcheck run --rule 'adam*'", "update rules, step by step"),
        ("gradcheck run --baseline known.toml", "fail only on new failures"),
        ("gradcheck run --dtype bfloat16 -j auto", "another dtype, on every core"),
        ("gradcheck run --shard 1/4 -o 1.jsonl", "a quarter; `gradcheck merge`"),
    ),
    "repro": (
        ("gradcheck repro silu/default/zero/float32:x --impl mykernels:IMPL", "one gradient"),
        ("gradcheck repro silu/default/zero/float32 --export repro.py", "as a script"),
        ("gradcheck repro elu/default/far/float32 --impl jax --issue issue.md", "for a tracker"),
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
        ("gradcheck init --kind python --op layer_norm", "an empty kernel; --op '*': all"),
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
        ("gradcheck diff run.json", "the same, if it has just two"),
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
        ("gradcheck power --op rms_norm", "which wrong gradients each sample rejects"),
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
EXIT_CODES: Final[Mapping[str, Rows]] = {
    "diff": (
        ("0", "nothing is worse"),
        ("1", "something is"),
        ("2", "usage, or nothing that can be compared"),
    ),
}
"""Of commands that have codes of their own."""


class Help(argparse.HelpFormatter):
    """Wraps descriptions and lays out the tables of epilogs in the width of the terminal."""

    def __init__(self, prog: str) -> None:
        """Take the terminal's width, up to `MAX_WIDTH`."""
        width = min(console.columns(sys.__stdout__, PIPE_WIDTH), MAX_WIDTH)
        super().__init__(prog, max_help_position=28, width=width - 2)

    def add_usage(self, usage: Any, actions: Any, groups: Any, prefix: Any = None) -> None:
        """Add the usage line, which lists flags only where they are few."""
        named = [action for action in actions if not action.option_strings]
        if len(actions) - len(named) > MAX_USAGE_FLAGS:
            self._prog += " [flags]"
            actions, groups = named, []
        super().add_usage(usage, actions, groups, prefix)

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        if "\t" not in text:
            return super()._fill_text(text, width, indent)
        return "\n\n".join(_laid_out(block.splitlines(), width) for block in text.split("\n\n"))


def _laid_out(lines: list[str], width: int) -> str:
    """A title and rows of two columns; the second below the first where they do not fit."""
    import textwrap  # door: only for help

    title, *rows = lines
    cells = [row.partition("\t")[::2] for row in rows]
    column = 4 + max(len(left) for left, _ in cells)
    if column + max(len(right) for _, right in cells) <= width:
        return "\n".join([title, *(f"  {left}".ljust(column) + right for left, right in cells)])
    shown = [title]
    for left, right in cells:
        shown += [f"  {left}", *textwrap.wrap(right, width, initial_indent=" " * 6,
                                              subsequent_indent=" " * 6)]  # fmt: skip
    return "\n".join(shown)


class Parser(argparse.ArgumentParser):
    """A parser of a command, with the command's examples as its epilog."""

    def __init__(self, **options: Any) -> None:
        """Take the options of `argparse.ArgumentParser`."""
        options.setdefault("formatter_class", Help)
        super().__init__(**options)
        if self.epilog is None:
            self.epilog = examples_of(self.command)
        self.set_defaults(parser=self)

    @property
    def command(self) -> str:
        """The command's words, without the program's name."""
        return self.prog.partition(" ")[2]

    def error(self, message: str) -> NoReturn:
        """Report a mistake in one line on stderr, and exit with the code of a usage error."""
        mistaken = INVALID.search(message)
        if mistaken and mistaken[1] in ("COMMAND", "ACTION"):
            message = f"unknown command {mistaken[2]!r}{self._near_command(mistaken[2])}"
        elif mistaken:
            near = _nearest(mistaken[2], re.findall(r"[\w-]+", mistaken[3]))
            message += f": did you mean {near!r}?" if near else ""
        where = f"{self.command}: " if self.command else ""
        console.say(f"{where}{message.removeprefix('argument ')}; see `{self.prog} --help`")
        self.exit(USAGE)

    def _print_message(self, message: str, file: Any = None) -> None:
        """Write help to stdout; exit with the code of a usage error where that fails."""
        if file is not sys.stdout:
            super()._print_message(message, file)
        elif not console.show(message):
            self.exit(USAGE)

    def knows(self, flag: str) -> bool:
        """Whether a flag, or the beginning of a long one, is this parser's own."""
        known = self._option_string_actions
        long = flag.startswith("--") and len(flag) > 2
        return flag in known or (long and any(name.startswith(flag) for name in known))

    def refuse(self, words: Sequence[str]) -> NoReturn:
        """Report words that this command does not know, with the nearest flag."""
        flag = next((word for word in words if word.startswith("-") and word != "--"), "")
        known = self._option_string_actions
        if not flag:
            meant = "--impl" if CODE.fullmatch(words[0]) else "--op"
            asks = meant in known and words[0] != "--"
            hint = f": did you mean `{meant} {words[0]}`?" if asks else ""
            self.error(f"unexpected {words[0]!r}{hint}")
        name = flag.partition("=")[0]
        near = nearest_flag(name, known)
        hint = f": did you mean {near!r}?" if near else _of_run(name, self.command)
        self.error(f"unknown flag {name!r}{hint}")

    def _near_command(self, word: str) -> str:
        """The command that is meant, as the rest of a message."""
        names = [
            name
            for action in self._actions
            if isinstance(action, argparse._SubParsersAction)
            for name in action.choices
        ]
        near = "" if self.command else COMMANDS.get(word, "")
        near = near or _nearest(word, names)
        if near:
            return f": did you mean {near!r}?"
        if CODE.fullmatch(word) and not self.command:
            return f": did you mean `{self.prog} run --impl {word}`?"
        return f": known: {', '.join(names)}"


def nearest_flag(name: str, known: Iterable[str]) -> str:
    """The known flag that is most likely meant; empty: none is near.

    >>> flags = ["--impl", "--op", "--jobs", "-k"]
    >>> nearest_flag("--ipml", flags), nearest_flag("--operator", flags), nearest_flag("-n", flags)
    ('--impl', '--op', '--jobs')
    >>> nearest_flag("--tolerance", flags), nearest_flag("-z", flags)
    ('', '')
    """
    known = [*known]
    word = FLAGS.get(name.lower(), "")
    bare = name.lower().lstrip("-")
    if word in known or len(bare) < 2:
        return word if word in known else ""
    names = {flag.lstrip("-"): flag for flag in known if flag.startswith("--")}
    begins = [n for n in names if bare.startswith(n) or n.startswith(bare)]
    return names.get(max(begins, key=len) if begins else _nearest(bare, names), "")


def _nearest(word: str, known: Iterable[str]) -> str:
    import difflib  # door: only a mistake needs it

    return next(iter(difflib.get_close_matches(word, [*known], n=1, cutoff=NEAR)), "")


def _of_run(flag: str, command: str) -> str:
    """What to write instead of a flag of `gradcheck run`, as the rest of a message."""
    from gradcheck.run.options import OPTIONS  # door: only a mistake needs it

    names = [f"--{option.name}" for option in OPTIONS] + [o.short for o in OPTIONS if o.short]
    if command:
        return ", which `gradcheck run` has" if flag in names and command != "run" else ""
    near = flag if flag in names else nearest_flag(flag, names)
    return f": did you mean `gradcheck run {near}`?" if near else ""


def mention(commands: argparse._SubParsersAction[Parser], name: str, what: str) -> None:
    """List a command without making its parser: all of them take half of a start."""
    commands._choices_actions.append(commands._ChoicesPseudoAction(name, [], what))
    commands._name_parser_map[name] = None  # type: ignore[assignment]  # it is a choice


def epilog(title: str, rows: Rows) -> str:
    """Rows as an epilog that `Help` lays out: a tab between the columns."""
    return "\n".join([f"{title}:", *(f"{command}\t{what}" for command, what in rows)])


def examples_of(command: str) -> str:
    """The examples of a command, and its exit codes, as an epilog; empty: it has none."""
    blocks = [epilog("examples", EXAMPLES[command])] if command in EXAMPLES else []
    blocks += [epilog("exit codes", EXIT_CODES[command])] if command in EXIT_CODES else []
    return "\n\n".join(blocks)
