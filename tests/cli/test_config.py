"""Where a project's defaults are looked for, and what they may be."""

import argparse

import pytest

from gradcheck.cli.main import _parser
from gradcheck.cli.project_defaults import project_keys, project_of
from gradcheck.errors import UsageError
from gradcheck.system.user_modules import project_file

# "full" is what "project = false" says; a file that nobody looks at is to open no gate.
LEFT_OUT = {"help", "no-config", "shard", "lf", "full", "exit-zero"}


@pytest.fixture
def project(tmp_path):
    """`project(text)`: a pyproject.toml with these lines in `[tool.gradcheck]`; its folder."""

    def write(*lines, head="[tool.gradcheck]"):
        (tmp_path / "pyproject.toml").write_text("\n".join([head, *lines, ""]))
        return tmp_path

    return write


@pytest.mark.slow(keep=3)
@pytest.mark.parametrize(
    ("line", "said"),
    [
        ('implementation = "x"', "unknown key 'implementation': did you mean 'impl'?"),
        ("no_build = true", "unknown key 'no_build': did you mean 'no-build'?"),
        ("impl = 3", 'impl = 3: write a text, or a list of texts: ["a", "b"]'),
        ('impl = ["a", 3]', "impl = ['a', 3]: write a text, or a list of texts"),
        ("baseline = true", "baseline = true: write a text"),
        ("seed = 1.5", "seed = 1.5: write a whole number"),
        ("seed = true", "seed = true: write a whole number"),
        ("jobs = 0", 'jobs = 0: write a number of processes, or "auto"'),
        ('jobs = "all"', "jobs = 'all': write a number of processes"),
        ("timeout = 0", "timeout = 0: write seconds, a positive number"),
        ("timeout = nan", "timeout = nan: write seconds"),
        ("timeout = inf", "timeout = inf: write seconds"),
        ('color = "red"', "color = 'red': write \"auto\", \"always\" or \"never\""),
        ('contract = "yes"', "contract = 'yes': write true or false"),
        (f'op = [{"3," * 200}]', "…: write a text"),
        ('"a\\u001b[31m" = 1', "unknown key 'a\\x1b[31m': known: "),
    ],
)  # fmt: skip
def test_a_line_that_cannot_be_right_is_named_with_its_file_and_key(project, line, said):
    folder = project(line)
    with pytest.raises(UsageError) as error:
        project_of(folder)
    assert str(error.value).startswith("pyproject.toml: [tool.gradcheck]: ")
    assert said in str(error.value)
    assert "\n" not in str(error.value)
    assert len(str(error.value)) < 200


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[tool.gradcheck\n", "pyproject.toml: it is not TOML: Expected"),
        ("tool.gradcheck = 3\n", "[tool.gradcheck] is not a table; write its keys below a line"),
        ("[[tool.gradcheck]]\n", "[tool.gradcheck] is not a table"),
    ],
)
def test_a_file_that_holds_no_table_is_named(tmp_path, text, said):
    (tmp_path / "pyproject.toml").write_text(text)
    with pytest.raises(UsageError) as error:
        project_of(tmp_path)
    assert said in str(error.value)


def test_a_file_that_is_no_text_is_named(tmp_path):
    (tmp_path / "pyproject.toml").write_bytes(b'gradcheck = "\xff"')
    with pytest.raises(UsageError, match="it is not TOML: 'utf-8'"):
        project_of(tmp_path)


@pytest.mark.parametrize(
    "text", ["", "[project]\nname = 'gradcheck-user'\n", "[tool.other]\n", "tool = 1"]
)  # fmt: skip
def test_a_project_that_says_nothing_of_this_has_no_defaults(tmp_path, text):
    (tmp_path / "pyproject.toml").write_text(text)
    assert project_of(tmp_path) is None


def test_another_tool_s_broken_file_is_none_of_ours(tmp_path):
    (tmp_path / "pyproject.toml").write_text("[broken")
    assert project_of(tmp_path) is None


def test_the_nearest_file_that_has_the_table_counts(project, tmp_path):
    root = project("seed = 1")
    middle, inner = tmp_path / "middle", tmp_path / "middle" / "inner"
    inner.mkdir(parents=True)
    (inner / "pyproject.toml").write_text("[project]\nname = 'inner'\n")
    assert project_file(inner) == root / "pyproject.toml"
    (middle / "pyproject.toml").write_text("[tool.gradcheck]\nseed = 2\n")
    assert project_of(inner).defaults == {"seed": 2}
    assert project_of(inner).path == middle / "pyproject.toml"
    assert project_of(root).defaults == {"seed": 1}


def test_an_empty_table_stops_the_search(project, tmp_path):
    project("seed = 1")
    inner = tmp_path / "inner"
    inner.mkdir()
    (inner / "pyproject.toml").write_text("[tool.gradcheck]\n")
    assert project_of(inner).defaults == {}


def test_a_word_is_a_list_where_its_flag_may_be_repeated(project):
    folder = project('op = "relu"', 'impl = ["a:B", "torch"]', 'convention = "jax"', "jobs = 2")
    assert project_of(folder).defaults == {
        "op": ["relu"], "impl": ["a:B", "torch"], "convention": "jax", "jobs": 2,
    }  # fmt: skip


def test_paths_are_relative_to_the_file(project, tmp_path):
    root = project(
        'impl = ["gradcheck.toml", "./torch", "torch", "pkg.module:NAME", "/abs/k.toml"]',
        'baseline = "known-failures.toml"',
        'output = ["report.md", "odd:html"]',
        'op = "a/b"',
    )
    inner = tmp_path / "a" / "b"
    inner.mkdir(parents=True)
    here, there = project_of(root).defaults, project_of(inner).defaults
    assert here["impl"][:2] == ["gradcheck.toml", "./torch"]
    assert there["impl"] == [
        "../../gradcheck.toml", "../.././torch", "torch", "pkg.module:NAME", "/abs/k.toml",
    ]  # fmt: skip
    assert there["baseline"] == "../../known-failures.toml"
    assert there["output"] == ["../../report.md", "../../odd:html"]
    assert there["op"] == ["a/b"]


def commands():
    (action,) = (a for a in _parser()._actions if isinstance(a, argparse._SubParsersAction))
    return action.choices


def test_every_long_flag_of_a_run_is_a_key_and_nothing_else_is():
    flags = {
        next(o for o in action.option_strings if o.startswith("--")).removeprefix("--")
        for action in commands()["run"]._actions
        if any(o.startswith("--") for o in action.option_strings)
    }
    assert {*project_keys()} <= flags
    assert flags - {*project_keys()} <= LEFT_OUT


def test_a_flag_that_is_not_given_has_its_usual_value_where_no_project_says_another():
    untouched = {"timeout": 30.0, "jobs": 1, "seed": 0, "build": True, "color": "auto"}
    usual = commands()["run"].get_default("usual")
    for name, value in untouched.items():
        (key,) = (key for key, option in project_keys().items() if option.dest == name)
        assert usual[key] == value


def test_an_unreadable_folder_is_passed_over(monkeypatch, project):
    folder = project("seed = 1")
    inner = folder / "inner"
    inner.mkdir()
    (inner / "pyproject.toml").mkdir()  # a folder of that name cannot be read
    assert project_of(inner).defaults == {"seed": 1}


@pytest.mark.parametrize(
    "text",
    [
        "[tool.gradcheck]\nseed = 3",
        "[ tool . gradcheck ]\nseed = 3",
        "['tool'.\"gradcheck\"]\nseed = 3",
        "[tool]\ngradcheck = {seed = 3}",
        "[ 'tool' ]\ngradcheck.seed = 3",
        "tool.gradcheck.seed = 3",
        "tool = {gradcheck = {seed = 3}}",
        '["\\u0074ool".gradcheck]\nseed = 3',
    ],
)
def test_however_the_table_is_spelt_it_is_found(tmp_path, text):
    (tmp_path / "pyproject.toml").write_text(f"{text}\n")
    assert project_of(tmp_path).defaults == {"seed": 3}


def test_a_project_that_only_uses_us_has_no_table(tmp_path):
    text = "[project]\ndependencies = ['gradcheck']\n[tool.ruff]\n[tool.tox]\nenv = 'gradcheck'\n"
    (tmp_path / "pyproject.toml").write_text(text)
    assert project_file(tmp_path) is None
