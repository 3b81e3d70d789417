"""A mistake on the command line: one line that says what to write, before anything is judged."""

import shlex
from pathlib import Path

import pytest

from gradcheck.cli.main import main

RELU = "--op relu --sample typical --dtype float64 --no-contract"
PART = "write I/N with 1 ≤ I ≤ N"
NO_CASES = "nothing can be compared: the reports have no case in common"
FILES = {
    "out.md": "",
    "unparsable.py": "def (",
    "exiting.py": "import sys; sys.exit(0)",
    "empty.jsonl": "",
    "cut.jsonl": '{"header": {"sch',
    "list.jsonl": "[]\n",
    "text.jsonl": "RESULT pass\n",
    "later.jsonl": '{"header": {"schema": 99}}\n',
    "full/mine": "mine",
    "trainers.py": "def right(params, inputs): return {}\n"
    "GLOB = {'quadratic': {'stages': {'tims_a': type('P', (), {'vjp': right})}}}\n"
    "BUFFER = {'quadratic': {'gradients': right, 'buffers': {'xx': ('dx',)}}}\n"
    "KEY = {'quadratc': {'gradients': right}}\nNOTHING = {'quadratic': object()}\n",
}
REPORTS = {
    "old": "--impl kernels:RIGHT",
    "mine": "--impl kernels:PRINTS",
    "seed": "--impl kernels:RIGHT --seed 1",
    "other": "--impl kernels:RIGHT --op tanh",
    "both": "--impl kernels:RIGHT --impl kernels:WRONG",
}
"""Runs whose reports are on file."""
MISTAKES = {
    "commands": {
        "rnu": "unknown command 'rnu': did you mean 'run'?; see `gradcheck --help`",
        "xyz": "unknown command 'xyz': known: demo, run, ",
        "baseline wirte": "baseline: unknown command 'wirte': did you mean 'write'?",
        "--hepl": "unknown flag '--hepl': did you mean '--help'?; see `gradcheck --help`",
        "judge": "judge: the following arguments are required: DIR; see `gradcheck judge --help`",
        "explain": "explain: the following arguments are required: OP|MODEL|RULE",
        "explain relu tanh": "explain: unexpected 'tanh'; see `gradcheck explain --help`",
        "list -o x": "list: unknown flag '-o'",
        "baseline": "baseline: the following arguments are required: ACTION",
        "probe --level frames": "probe: the following arguments are required: CMD",
        "completion csh": "completion: shell: invalid choice: 'csh'",
        "list --op layernorm": "unknown operator 'layernorm': did you mean 'layer_norm'?",
        "explain layernorm": "operator, model or rule 'layernorm': did you mean 'layer_norm'?",
        "run --sed 3": "run: unknown flag '--sed': did you mean '--seed'?; see `gradcheck run",
        "run --sed=3": "run: unknown flag '--sed': did you mean '--seed'?",
        "run --zzzz": "run: unknown flag '--zzzz'; see `gradcheck run --help`",
        "run '--\x1b[31m\nx'": r"run: unknown flag '--\x1b[31m\nx'",
        "run rms_norm": "run: unexpected 'rms_norm': did you mean `--op rms_norm`?; see",
        "run mine.py": "run: unexpected 'mine.py': did you mean `--impl mine.py`?; see",
        "run kernels:RIGHT": "unexpected 'kernels:RIGHT': did you mean `--impl kernels:RIGHT`?",
        "kernels.py": "unknown command 'kernels.py': did you mean `gradcheck run --impl kernels.",
        "test": "unknown command 'test': did you mean 'run'?",
        "help rnu": "unknown command 'rnu': did you mean 'run'?",
        "--impl kernels:RIGHT": "unknown flag '--impl': did you mean `gradcheck run --impl`?; see",
        "--ipml=kernels:RIGHT": "unknown flag '--ipml': did you mean `gradcheck run --impl`?",
        "-k relu": "unknown flag '-k': did you mean `gradcheck run -k`?; see `gradcheck --help`",
        "run --kernel kernels:RIGHT": "unknown flag '--kernel': did you mean '--impl'?",
        "run --operator relu": "unknown flag '--operator': did you mean '--op'?",
        "run -n 4": "unknown flag '-n': did you mean '--jobs'?",
        "run --tolerance 3": "unknown flag '--tolerance'; see",
        "list --impl kernels:RIGHT": "unknown flag '--impl', which `gradcheck run` has; see",
        "run --color alway": "(choose from 'auto', 'always', 'never'): did you mean 'always'?; see",
        "init --kind pyton": "did you mean 'python'?",
    },
    "values": {
        "run --seed x": "run: --seed: invalid int value: 'x'",
        "run --color red": "run: --color: invalid choice: 'red'",
        "run -j many": "run: -j/--jobs: 'many' is not a number of processes; write 1 or more",
        **{f"run -j {n}": "-j/--jobs: " for n in ("0", "-1", "1.5")},
        **{f"run --max-fail={n}": "--max-fail: " for n in ("0", "-1", "x", "1.5", "", "²", "1e3")},
        **{f"run --max-time={n}": "--max-time: " for n in ("0", "-1", "x", "", "nan", "inf", "s")},
        **{f"run --budget={n}": "write a positive number of seconds" for n in ("0s", "2d", "m2")},
        **{f"run --timeout={n}": "--timeout: " for n in ("0", "-1", "nan", "inf", "soon")},
        **{f"run --shard={n}": PART for n in ("", "0/1", "2/1", "x", "1/2/3")},
        **{f"diff a b --factor={n}": "factor" for n in ("0.9", "0", "-1", "nan", "inf", "x")},
        "run --keep-artifacts=": "--keep-artifacts: the name of the folder is empty",
        "run --keep-artifacts kernels.py": "--keep-artifacts kernels.py: it is not a folder",
        "run --keep-artifacts kernels.py/below": "Not a directory",
        f"run --keep-artifacts {'a' * 300}": "File name too long",
        "run --convention torc": "did you mean 'PyTorch'?",
        "judge out --convention Torhc": "unknown system",
        "probe --timeout 0 -- true": "--timeout 0: nothing answers in no time",
        "probe --timeout nan -- true": "--timeout nan: nothing answers in no time",
        "probe --op no_such -- true": "no_such",
    },
    "selection": {
        "run --op rms_nrom": "unknown operator 'rms_nrom': did you mean 'rms_norm'?",
        "run --op relu --op xq": "unknown operator 'xq': known: ",
        "run --op relu*x": "unknown operator 'relu*x': did you mean 'relu'?",
        "run --op rms_norm --dialect wieght": "dialect 'wieght': did you mean 'weight'?",
        "run --op relu --dialect weight": "unknown dialect 'weight': known: default",
        "run --op relu --sample typicl": "unknown sample 'typicl': did you mean 'typical'?",
        "run --dtype flaot64": "unknown dtype 'flaot64': did you mean 'float64'?",
        "run --dtype bfloat": "unknown dtype 'bfloat': did you mean 'bfloat16'?",
        "run --dtype bfloat16 --dtype float8": "unknown dtype 'float8': did you mean 'float",
        "run --format markdwon": "unknown format 'markdwon': did you mean 'markdown'?",
        "run --impl refrence": "'refrence': did you mean 'reference'?",
        "run --impl reference --impl trch": "write your own as pkg.module:NAME",
        "run --impl kernels.py": "kernels.py has 6 tables; name one: kernels:RIGHT, kernels:WRONG",
        "run --impl kernels": "kernels.py has 6 tables; name one: kernels:RIGHT, kernels:WRONG",
        "repro relu/default/typical/float64 --impl kernels.py": "kernels.py has 6 tables; name",
        "run --impl raising": "raising.py has no dict of operators; write IMPL = ",
        "run --impl unparsable.py": "unparsable.py cannot be parsed: ",
        "run --impl gone.py": "--impl gone.py: No such file or directory",
        "run --model gtp2": "unknown model 'gtp2': did you mean 'gpt2'?",
        "run --model gpt2 --sample tinny": "unknown size 'tinny': did you mean 'tiny'?",
        "run --model gpt2 --dialect mean": "unknown dialect 'mean': known: default",
        "run --model gpt2 --dtype float16": "models are judged in mp50, float64, float32",
        "run --op relu --dtype mp50": "--dtype mp50 is for models (--model GLOB)",
        "run --dtype mp50": "--dtype mp50 is for models (--model GLOB)",
        "run --rule adaam": "unknown rule 'adaam': did you mean 'adam'?",
        "run -k 'relu and'": "-k 'relu and': at the end: expected a word of a name",
        "run -k 'a) or b'": "column 2, at ')': no ( is open here",
        "run -k ''": "-k '': it is empty",
        "run -k reluu": "such a name: names are operator/dialect/sample (`gradcheck list`)",
        "run -k float64": "dtypes go to --dtype",
        "run -k 'relu and not relu'": "none of the ",
        "run --model gpt2 -k relu": "names are operator/dialect/size",
        "run --op relu --require rleu": "or rule to require 'rleu': did you mean",
        "run --op relu --require relu/typical": "did you mean 'relu/default'?",
        "run --op relu --require tanh": "--require tanh: nothing that is selected matches it; sel",
        "run --op relu --require ''": "unknown operator, model or rule to require ''",
        "run --op relu --op tanh -k tanh --require relu": "--require relu: nothing that is",
    },
    "outputs": {
        "run -o report.pdf": "-o report.pdf: the ending does not say which format",
        "run -o report.md:pdf": "unknown format 'pdf'",
        "run -o missing/report.md": "there is no folder missing; create it first",
        "run -o .:html": "it is a folder; name a file in it",
        "run -o kernels.py/report.md": "there is no folder kernels.py",
        "run -o -": "-o -: what stdout carries is named by --format FORMAT",
        f"run -o {'a' * 300}.md": "File name too long",
        "run -o a.md -o ./a.md:html": "-o a.md: named twice; give each report its own file",
        "run -o link.json": "gone is not a folder; create it",
        "demo --copy .": "--copy kernels.py: it exists already; name another folder",
        "demo --copy kernels.py": "--copy kernels.py: it is not a folder; name another folder",
        "demo --copy kernels.py/inner": "Not a directory",
        f"demo --copy {'a' * 300}": "File name too long",
        "export full": "full is not empty; name a new folder",
        "export no/such/folder": "No such file or directory",
        "export kernels.py": "File exists",
        "export new --model gpt2": "only operators are exported; remove --model and --rule",
        "export new --op rms_nrom": "did you mean 'rms_norm'?",
        "export new --dtype mp50": "--dtype mp50 is for models",
        "judge out --format xls": "unknown format",
        "judge out -o no/such/r.md": "there is no folder",
    },
    "reports": {
        "report none.jsonl": "there is no such file; `gradcheck run -o none.jsonl` writes it",
        "report empty.jsonl": "the run was killed as it began",
        "report cut.jsonl": "the run was killed as it began",
        "report list.jsonl -o new.md": "it is no report of",
        "report text.jsonl": "it is no report of",
        "report later.jsonl": "its schema is 99, and this gradcheck reads 1",
        "diff old.json none.json": "none.json: there is no such file; `gradcheck run",
        "diff old.json kernels.py": "kernels.py: it is no report of",
        "diff old.json::kernel:RIGHT old.json": "did you mean 'kernels:RIGHT'?",
        "diff old.json old.json::": "write REPORT::IMPLEMENTATION",
        "diff ::kernels:RIGHT old.json": "write REPORT::IMPLEMENTATION",
        "diff old.json": "it has 1 implementation (kernels:RIGHT), and one report alone",
        "diff both.json::kernels:WRONG": "name NEW, too",
        "diff mine.json both.json": "name the two to compare, mine.json::NAME both.json::NAME",
        "diff old.json old.json --format junit": "unknown format 'junit'",
        "diff old.json old.json -o x.xml": "diff writes terminal, markdown, html, json",
        "diff old.json old.json -o none/x.md": "there is no folder none",
        "diff old.json old.json --fail-on newly_failing": "did you mean 'newly-failing'?",
        "diff old.json old.json --fail-on ''": "unknown mark ''",
        "baseline check known.toml": "gradcheck baseline write known.toml",
        "run --baseline known.toml": "gradcheck baseline write known.toml",
        "baseline check known.toml none.json": "gradcheck baseline write known.toml",
        "baseline write none/known.toml": "there is no folder none",
    },
    "repro": {
        "repro relu/default/typical/float46": "dtype 'float46': did you mean 'float64'?",
        "repro rellu/default/typical/float64": "unknown operator 'rellu': did you mean 'relu'?",
        "repro relu/default/typical": "is no name of a case",
        "repro relu/default/typical/float64#0000": "the case has changed its meaning since",
        "repro gpt2/default/small/float64": "gpt2 is a model: `gradcheck run --model gpt2",
        "repro relu/default/typical/float64 --format docx": "unknown format 'docx'",
        "repro relu/default/typical/float64 --convention Torch": "did you mean 'PyTorch'",
        "repro relu/default/typical/float64 -o no/report.html": "there is no folder no",
        "repro relu/default/typical/float64 --export no/r.py": "--export no/r.py: there is no fol",
    },
    "power": {
        "power --suite kernels:SUITE --op sqaure": "operator 'sqaure': did you mean 'square'?",
        "power --dtype flaot64": "unknown dtype 'flaot64': did you mean 'float64'?",
        "power --dtype float16": "power tests float64 and float32, not float16 or bfloat16",
        "power --dtype all": "power tests float64 and float32, not float16 or bfloat16",
        **{
            f"power --part={part}": f"--part {part}: {PART}, such as 1/5"
            for part in ("0/5", "6/5", "1", "1/", "/5", "-1/5", "1/0", "a/b", "1/5/5", "²/5")
        },
        "power -o power.md:junit": "power writes terminal, markdown, html, json, not junit",
        "power --seed 1.5": "power: --seed: invalid int value",
        "power --op": "power: --op: expected one argument",
        "power --model svn": "did you mean 'svm'?",
        "power --model svm --op sqr": "remove --op, --rule and --part",
        "power --model svm --part 1/2": "remove --op, --rule and --part",
        "power --model svm --dtype float16": "float64 and float32, not float16",
        "power --model svm -o report.xml": "power writes terminal, markdown, html, json",
        "power --rule adm": "unknown rule 'adm'",
        "power --rule adam --op relu": "remove --op, --dtype and --part",
        "power --rule adam -o x.xml": "power writes",
        "power --contract --op relu": "remove --op, --dtype and --part",
        "power --contract --model svm": "remove --model and --rule",
        "power --contract --rule adam": "remove --model and --rule",
        "power --contract -o x.xml": "power writes",
        "power --black-box": "add --diagnosis",
        **{
            f"power --diagnosis {flag}": "remove --model, --rule, --contract and --dtype"
            for flag in ("--model svm", "--rule adam", "--contract", "--dtype float32")
        },
    },
    "what does not load": {
        "run --impl absent:IMPL": "importing absent raised ModuleNotFoundError",
        "run --impl raising:IMPL": "importing raising raised ValueError: one two",
        "run --impl unparsable:IMPL": "importing unparsable raised SyntaxError",
        "run --impl exiting:IMPL": "importing exiting raised SystemExit: 0",
        "run --impl kernels:ABSENT": "kernels has no 'ABSENT'",
        "run --impl kernels:RIGHT.relu": "kernels has no 'RIGHT.relu'",
        "run --impl kernels:": "is not of the form package.module:NAME",
        "run --impl :IMPL": "is not of the form package.module:NAME",
        "run --impl kernels:NUMBER": "kernels:NUMBER is a int; make it a dict",
        "run --impl kernels:BARE": "kernels:BARE['relu'] is a object without a callable `vjp`",
        "run --suite absent:SUITE": "importing absent raised",
        "run --suite raising:SUITE": "raised ValueError: one two",
        "list --suite kernels:RIGHT": "kernels:RIGHT is a dict, not a",
        "list --suite kernels": "not of the form",
        "power --suite kernels:ABSENT": "kernels has no 'ABSENT'",
        "repro relu/default/typical/float64 --impl nothing:X": "No module named 'nothing'",
        "repro relu/default/typical/float64 --impl kernels:NUMBER": "make it a dict from operator",
        "run --model quadratic --impl trainers:GLOB": "trainers:GLOB['quadratic']: unknown stage "
        "'tims_a': did you mean 'times_a'?",
        "run --model quadratic --impl trainers:BUFFER": "trainers:BUFFER['quadratic']: unknown "
        "parameter 'xx': did you mean 'x",
        "run --model quadratic --impl trainers:KEY": "trainers:KEY['quadratc']: the suite has no "
        "such model; did you mean 'quadratic'?",
        "run --model quadratic --impl trainers:NOTHING": "trainers:NOTHING['quadratic'] has "
        "neither `gradients` nor `stages`;",
        "probe -- ./nothing-here": "does not start: No such file",
    },
}


@pytest.fixture
def mistaken(run, monkeypatch, capsys):
    """`mistaken(line)`: what the command says; the test fails if it judges anything."""
    for name, text in FILES.items():
        Path(name).parent.mkdir(exist_ok=True)
        Path(name).write_text(text)
    Path("link.json").symlink_to("gone/run.json")
    assert run("out", *RELU.split()[:-1], command="export").code == 0

    def began(*_):
        raise AssertionError("something was judged")

    for name in ("run.judge_case.CaseTruth", "judge.model_truth.ModelTruth", "cli.power.run"):
        monkeypatch.setattr(f"gradcheck.{name}", began)

    def call(line):
        words = shlex.split(line)
        words[1:1] = ["--no-isolate"] * (words[0] in ("run", "repro"))
        try:
            code = main(words)
        except SystemExit as stop:
            code = stop.code
        return code, *capsys.readouterr()

    return call


@pytest.fixture
def reported(run):
    for name, words in REPORTS.items():
        own = () if name == "other" else ("--op", "relu")
        run(*RELU.split()[2:], *own, *words.split(), "-o", f"{name}.json")


@pytest.mark.slow(keep=2)
@pytest.mark.parametrize("about", MISTAKES)
def test_a_mistake_is_answered_in_one_line_before_anything_is_judged(reported, mistaken, about):
    before = {path: path.is_file() and path.read_bytes() for path in Path().rglob("*")}
    wrong = []
    for line, says in MISTAKES[about].items():
        code, out, err = mistaken(line)
        right = code == (3 if about == "what does not load" else 2) and out == ""
        right = right and err.startswith("gradcheck: ") and err.count("\n") == 1
        if not (right and says in err and err[:-1].isprintable()):
            wrong.append(f"{line}: {code} {out}{err}")
    assert not wrong, "\n".join(wrong)
    assert {path: path.is_file() and path.read_bytes() for path in Path().rglob("*")} == before


def test_reports_without_a_common_case_are_not_compared(reported, run):
    for name in ("other", "seed"):
        found = run("old.json", f"{name}.json", command="diff")
        assert (found.code, NO_CASES in found.err) == (2, True)
