"""The options of a run, each written once, in the order of `gradcheck run --help`.

From this table derive the flags of every command (`gradcheck.cli.flags`), the keys of
`[tool.gradcheck]` (`gradcheck.cli.project_defaults`), the flags of the pytest plugin, repro lines
(`gradcheck.run.to_result`), and the reference documentation. An option that changes what is judged,
or how, is also a field of `Plan`. A value that is not text
also needs a function in `gradcheck.cli.flags.TYPES`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from gradcheck.implementations.processes import TIMEOUT

MAX_SECONDS: Final = 1e9
"""The largest number of seconds that a project may set."""


@dataclass(frozen=True, slots=True)
class Kind:
    """A type of option values.

    `holds(value)` checks a TOML value, and `how` is the advice for a wrong one.
    """

    how: str
    holds: Callable[[Any], bool]


def _positive(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 1


def _seconds(value: object) -> bool:
    number = isinstance(value, int | float) and not isinstance(value, bool)
    return number and 0 < value <= MAX_SECONDS  # type: ignore[operator]


def _strings(value: object) -> bool:
    every = value if isinstance(value, list) else [value]
    return all(isinstance(word, str) for word in every)


def _one_of(*choices: str) -> Kind:
    *most, last = (f'"{choice}"' for choice in choices)
    return Kind(f"write {', '.join(most)} or {last}", lambda value: value in choices)


STRINGS: Final = Kind('write a text, or a list of texts: ["a", "b"]', _strings)
STRING: Final = Kind("write a text", lambda value: isinstance(value, str))
SWITCH: Final = Kind("write true or false", lambda value: isinstance(value, bool))
INTEGER: Final = Kind(
    "write a whole number", lambda value: isinstance(value, int) and not isinstance(value, bool)
)
CASES: Final = Kind("write a number of cases, 1 or more", _positive)
JOBS: Final = Kind(
    'write a number of processes, or "auto"', lambda value: value == "auto" or _positive(value)
)
SECONDS: Final = Kind("write seconds, a positive number", _seconds)

SELECTION: Final = "what is judged"
IMPLEMENTATION: Final = "implementation"
HOW: Final = ""
GATE: Final = "the gate"
LIMITS: Final = "limits"
WHERE: Final = " "
REPORTS: Final = "reports"


@dataclass(frozen=True, slots=True, kw_only=True)
class Option:
    """One option of a run.

    Attributes:
        name: the long flag without its dashes, and the key in `[tool.gradcheck]`.
        section: the title under which `--help` lists it; blank ones have no title.
        kind: the type of its values; a list of strings is a flag that may be repeated.
        default: its value where neither the command line nor a project sets one.
        help: its line in `--help`.
        metavar: how `--help` names its value.
        short: a short flag, beside the long one or, where `short_only`, in its place.
        choices: the values there are.
        target: the attribute of parsed arguments; default: the name, without "no-".
        plan: the field of `Plan` that it sets; empty: none of that name.
        config: whether a project may set it.
        paths: whether its values are paths, relative to the project's file.
        pytest: its line in `pytest --help`; empty: the plugin has no such flag.
        repro: which repro lines repeat it: "" (none), "always" (where it is not the default), or
            the `results` kind or part that depends on it.
        parse: further arguments of `argparse`.
    """

    name: str
    section: str
    kind: Kind
    help: str
    default: Any = None
    metavar: str | None = None
    short: str = ""
    short_only: bool = False
    choices: tuple[str, ...] = ()
    target: str = ""
    plan: str = ""
    config: bool = True
    paths: bool = False
    pytest: str = ""
    repro: str = ""
    parse: Mapping[str, Any] = field(default_factory=dict)

    @property
    def dest(self) -> str:
        """The attribute of parsed arguments that holds its value."""
        return self.target or self.name.removeprefix("no-").replace("-", "_")

    @property
    def negated(self) -> bool:
        """Whether the flag switches something off."""
        return self.name.startswith("no-")

    @property
    def repeatable(self) -> bool:
        """Whether the flag may be given several times."""
        return self.kind is STRINGS

    @property
    def initial(self) -> Any:
        """The default, as parsed arguments hold it."""
        if "default" in self.parse:
            return self.parse["default"]
        if self.kind is SWITCH and self.default is None:
            return self.negated
        return [] if self.repeatable else self.default


OPTIONS: Final = (
    Option(
        name="op", section=SELECTION, kind=STRINGS, metavar="GLOB",
        help="operators that match (repeat); default: all, unless another kind is named",
        pytest="operators that match (repeat); default: all, unless another kind is named",
    ),
    Option(
        name="model", section=SELECTION, kind=STRINGS, metavar="GLOB",
        help="models that match (repeat)",
        pytest="models that match (repeat)",
    ),
    Option(
        name="rule", section=SELECTION, kind=STRINGS, metavar="GLOB",
        help="update rules that match (repeat)",
        pytest="update rules that match (repeat)",
    ),
    Option(
        name="dialect", section=SELECTION, kind=STRINGS, metavar="GLOB",
        help="only dialects, the variants of an operator, that match (repeat); default: all",
        pytest="only dialects, the variants of an operator, that match (repeat)",
    ),
    Option(
        name="sample", section=SELECTION, kind=STRINGS, metavar="GLOB",
        help="only samples, or sizes of models, that match (repeat); default: all",
        pytest="only samples, or sizes of models, that match (repeat)",
    ),
    Option(
        name="keyword", section=SELECTION, kind=STRING, metavar="EXPR", short="-k",
        short_only=True, config=False,
        help="of these, cases with words in their name, operator/dialect/sample: "
        "'softmax and not (empty or zero)'",
    ),
    Option(
        name="suite", section=SELECTION, kind=STRINGS, metavar="MODULE:NAME", plan="suites",
        repro="always",
        help="a suite of your own instead of the installed ones (repeat)",
        pytest="a suite of your own, MODULE:NAME (repeat)",
    ),
    Option(
        name="impl", section=IMPLEMENTATION, kind=STRINGS, metavar="IMPL",
        help="implementation: reference (default), torch, jax, pkg.module:NAME, or a manifest, "
        "FILE.toml (repeat)",
        pytest="judge this implementation: reference, torch, jax, pkg.module:NAME, FILE.toml "
        "(repeat)",
    ),
    Option(
        name="no-build", section=IMPLEMENTATION, kind=SWITCH, plan="build",
        help="run none of the commands in a manifest",
        pytest="run none of the commands in a manifest",
    ),
    Option(
        name="no-isolate", section=IMPLEMENTATION, kind=SWITCH, plan="isolate",
        help="run Python implementations in this process: for a debugger; a crash ends the run",
        pytest="run Python implementations in pytest's own process: for a debugger",
    ),
    Option(
        name="timeout", section=IMPLEMENTATION, kind=SECONDS, default=TIMEOUT, metavar="S",
        plan="timeout", repro="always",
        help="seconds that one call of a Python implementation may take; default 30 (a manifest "
        "sets its own). Where JAX, numba or torch.compile is loaded, the first call with arguments "
        "of a size may take 120 more",
        pytest="seconds that one call of a Python implementation may take; default 30",
    ),
    Option(
        name="convention", section=IMPLEMENTATION, kind=STRING, default="", metavar="SYSTEM",
        plan="convention", repro="always",
        help="at kinks accept only the subgradient that this system chooses (PyTorch, JAX, ggml, "
        "…); default: any subgradient",
        pytest="at kinks accept only the subgradient that this system chooses (PyTorch, JAX, …)",
    ),
    Option(
        name="seed", section=IMPLEMENTATION, kind=INTEGER, default=0, metavar="N",
        plan="seed", repro="always",
        help="seed of all inputs; default 0",
        pytest="seed of all inputs; default 0",
    ),
    Option(
        name="dtype", section=HOW, kind=STRINGS, metavar="DTYPE",
        help="float64, float32, float16, bfloat16, all (repeat); models: mp50, float64, float32; "
        "default: float64 and float32, and mp50 for the suite's own models",
        pytest="float64, float32, float16, bfloat16, all (repeat); default: the first two",
    ),
    Option(
        name="all", section=HOW, kind=SWITCH, plan="all",
        help="also what is not implemented (reported as UNBOUND), samples without features, and "
        "more sizes of code that JAX, numba or torch.compile compiles for each",
        pytest="also what is not implemented, as skipped items, samples without features, and more "
        "sizes of code that is compiled for each",
    ),
    Option(
        name="train", section=HOW, kind=SWITCH, plan="train", repro="training",
        help="models: train each at its smallest size, and check that every step's loss falls as "
        "predicted",
        pytest="models: train each at its smallest size",
    ),
    Option(
        name="project", section=HOW, kind=SWITCH, plan="project", repro="model",
        help="models: compare gradients with slopes of the loss instead of element by element",
        pytest="models: compare gradients with slopes of the loss",
    ),
    Option(
        name="full", section=HOW, kind=SWITCH, target="project", config=False,
        parse={"action": "store_const", "const": False, "default": False},
        help="models: element by element (default); overrides `project` in pyproject.toml",
    ),
    Option(
        name="taylor", section=HOW, kind=SWITCH, plan="taylor",
        help="also the Taylor remainder of every gradient along one direction (in -o reports)",
        pytest="also the Taylor remainder of every gradient (in reports)",
    ),
    Option(
        name="contract", section=HOW, kind=SWITCH, plan="contract", repro="contract",
        parse={"action": "optional", "default": None},
        help="also check side conditions of the backward (linear, no mutation, any memory layout, "
        "…), once per operator and dialect; default: of all but the reference",
        pytest="check side conditions of the backward, of the reference too",
    ),
    Option(
        name="jobs", section=HOW, kind=JOBS, default=1, metavar="N", short="-j", plan="jobs",
        help="processes to use; auto: one per core; default 1",
    ),
    Option(
        name="baseline", section=GATE, kind=STRING, metavar="FILE", paths=True,
        help="file of known failures (`gradcheck baseline write FILE`): the gate fails on any "
        "other failure, and on a listed one that passes",
        pytest="failures that are known (`gradcheck baseline write FILE`): they are xfailed, "
        "strictly, and anything else about them fails",
    ),
    Option(
        name="require", section=GATE, kind=STRINGS, metavar="GLOB",
        help="operators, models or rules that must pass, or fail as the baseline says: the gate "
        "also fails on UNSUPPORTED, UNBOUND and SKIP; OP or OP/DIALECT (repeat)",
        pytest="operators, models or rules that may not be UNSUPPORTED or UNBOUND (repeat)",
    ),
    Option(
        name="exit-zero", section=GATE, kind=SWITCH, config=False,
        help="exit with 0 if the gate fails; reports still say `fail`, and other exit codes stay",
    ),
    Option(
        name="first", section=LIMITS, kind=SWITCH, short="-x", short_only=True, target="max_fail",
        config=False,
        parse={"action": "store_const", "const": 1, "default": None},
        help="stop at the first case with a failure that is not in the baseline",
    ),
    Option(
        name="max-fail", section=LIMITS, kind=CASES, metavar="N",
        help="stop at the N-th such case",
    ),
    Option(
        name="max-time", section=LIMITS, kind=SECONDS, metavar="S", plan="max_time",
        help="seconds that the run may take in all; after that, running calls are ended and "
        "remaining cases are NOTRUN (exit code 1)",
    ),
    Option(
        name="budget", section=LIMITS, kind=SECONDS, metavar="S", plan="budget",
        help="seconds of judging after which no case is begun: a typical sample of every operator "
        "comes first, then the most telling ones; the others are SKIP, or NOTRUN where an operator "
        "was not reached",
    ),
    Option(
        name="lf", section=LIMITS, kind=SWITCH, config=False,
        help="only the selected cases that failed last time in this folder",
    ),
    Option(
        name="shard", section=LIMITS, kind=STRING, metavar="I/N",
        config=False,
        help="every N-th case of the selection, from the I-th on; `gradcheck merge` joins them",
    ),
    Option(
        name="keep-artifacts", section=WHERE, kind=STRING, metavar="DIR", paths=True,
        help="write the tensors of failing gradients of operators to DIR, an .npz file each "
        "(primals, cotangent, got, want)",
    ),
    Option(
        name="executor", section=WHERE, kind=_one_of("local", "dask"), default="local",
        choices=("local", "dask"), plan="executor",
        help="run jobs in local processes (local, default) or on a Dask cluster (dask): that of "
        "--scheduler, else N local workers (needs gradcheck[dask])",
    ),
    Option(
        name="scheduler", section=WHERE, kind=STRING, default="", metavar="ADDRESS",
        plan="scheduler",
        help="with --executor dask: address of the scheduler (tcp://HOST:8786)",
    ),
    Option(
        name="output", section=REPORTS, kind=STRINGS, metavar="FILE[:FORMAT]", short="-o",
        target="outputs", paths=True,
        help="write a report: .md .html .json .xml .txt; .jsonl, a log that grows with the run; or "
        "FILE:FORMAT, also with concise, summary (a CI job's page), github, gitlab, badge (repeat)",
    ),
    Option(
        name="format", section=REPORTS, kind=STRING, default="terminal", metavar="FORMAT",
        help="format of stdout: terminal (default), concise (a line per failing gradient), "
        "markdown, summary, html, json, jsonl, junit, github, gitlab, badge",
    ),
    Option(
        name="verbose", section=REPORTS, kind=SWITCH, short="-v",
        help="a row for every case, every failure in full (terminal), or a line each (concise)",
    ),
    Option(
        name="durations", section=REPORTS, kind=CASES, metavar="N",
        help="also show the N slowest cases, and write times into JUnit reports",
    ),
    Option(
        name="color", section=REPORTS, kind=_one_of("auto", "always", "never"), default="auto",
        choices=("auto", "always", "never"),
        help="colour terminal output; auto (default): if the terminal supports it and NO_COLOR is "
        "not set",
    ),
    Option(
        name="quiet", section=REPORTS, kind=SWITCH, short="-q",
        help="failures alone, a line each (--format concise), and no progress on stderr",
    ),
    Option(
        name="progress", section=REPORTS, kind=SWITCH,
        help="progress also if stderr is not a terminal: a line every 30 s",
    ),
)  # fmt: skip
