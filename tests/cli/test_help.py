"""Help: examples that parse, lines that fit, and nothing heavy imported."""

import shlex
import shutil

import pytest

from gradcheck.cli.main import _function, _parser, main
from gradcheck.cli.parser import EXAMPLES, Parser, examples_of


def below(parser, words=()):
    """Every command with its parser, the nested ones too."""
    yield " ".join(words), parser
    for action in parser._actions:
        if isinstance(action.choices, dict):
            for name, inner in action.choices.items():
                yield from below(inner, (*words, name))


PARSERS = dict(below(_parser()))
COMMANDS = [name for name in PARSERS if name]
LINES = [(name, line) for name, rows in EXAMPLES.items() for line, _ in rows]


def test_every_command_says_what_it_does_and_shows_examples():
    for name in COMMANDS:
        parser = PARSERS[name]
        assert isinstance(parser, Parser)
        assert parser.description.endswith((".", "?"))
        text = parser.format_help()
        assert "\nexamples:\n  gradcheck " in text or "\nexamples:\n  eval " in text, name
        for action in parser._actions:
            assert action.help or action.required, f"{name}: {action.dest} has no help"


def test_no_two_commands_show_the_same_examples():
    texts = [examples_of(name) for name in EXAMPLES]
    assert len(set(texts)) == len(texts)


def test_every_example_can_be_typed():
    for name, line in LINES:
        words = shlex.split(line.replace('eval "$(', "").replace(')"', "").partition(" | ")[0])
        assert words.pop(0) == "gradcheck"
        arguments, unknown = _parser(words).parse_known_args(words)
        assert unknown == [], line
        assert callable(_function(arguments.command))
        about = name.split()[0]
        assert about in (words[0], "baseline")


def test_an_example_of_a_command_that_is_not_there_would_be_noticed():
    assert set(EXAMPLES) <= set(COMMANDS)
    with pytest.raises(SystemExit):
        _parser().parse_known_args(["rum", "--op", "relu"])


@pytest.mark.parametrize("columns", [60, 80, 100, 200])
def test_no_line_of_help_is_wider_than_the_terminal(monkeypatch, columns):
    monkeypatch.setenv("COLUMNS", str(columns))
    assert shutil.get_terminal_size().columns == columns
    for name, parser in PARSERS.items():
        lines = parser.format_help().splitlines()
        copied = [line for line in lines if line.lstrip().startswith("gradcheck ")]
        assert max(len(line) for line in lines if line not in copied) <= min(columns, 100), name
        assert max((len(line) for line in copied), default=0) <= max(columns, 72), name


def test_two_columns_where_there_is_room_else_one(monkeypatch):
    row = "  gradcheck run --impl torch -o report.html  PyTorch's autograd, as a page\n"
    monkeypatch.setenv("COLUMNS", "80")
    assert row in PARSERS["run"].format_help()
    monkeypatch.setenv("COLUMNS", "60")
    text = PARSERS["run"].format_help()
    assert (
        "  gradcheck run --impl torch -o report.html\n      PyTorch's autograd, as a page\n" in text
    )


def test_the_codes_are_all_told(capsys):
    with pytest.raises(SystemExit) as stop:
        main(["--help"])
    assert stop.value.code == 0
    text = capsys.readouterr().out
    for code in (0, 1, 2, 3, 4, 5, 130):
        assert f"\n  {code} " in text


@pytest.mark.parametrize("command", ["", "run", "baseline write"])
def test_help_is_a_command_too(capsys, command):
    texts = []
    for words in (["help", *command.split()], [*command.split(), "--help"]):
        with pytest.raises(SystemExit) as stop:
            main(words)
        assert stop.value.code == 0
        texts.append(capsys.readouterr().out)
    assert texts[0] == texts[1]
    assert texts[0].startswith(f"usage: {f'gradcheck {command}'.strip()} ")
