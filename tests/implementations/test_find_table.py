"""A module or a file without a table: its only one is found, and nothing of it is run."""

import sys
from pathlib import Path

import pytest
from gradcheck_cases import SUITE

from gradcheck.errors import UsageError
from gradcheck.implementations.find_table import completed

STOP = "raise SystemExit('imported')\n"
"""Nothing here may run the user's code: the process in which it runs is another."""


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.setattr("gradcheck.system.user_modules._FOLDERS", set())


def found(text, word="kernels.py"):
    Path("kernels.py").write_text(STOP + text)
    return completed(word, SUITE)


@pytest.mark.parametrize(
    "text",
    [
        'IMPL = {"silu": f}',
        'IMPL: dict = {"silu": f}',
        "IMPL = dict(silu=f)",
        'IMPL = {}\nIMPL["silu"] = f',
        'IMPL = {"rms_norm/unit-offset": f}',
        'IMPL = {"gpt2": f}',
        'NUMBER, IMPL = 3, {"silu": f}',
        'IMPL = {"adam": f}',
        "IMPL = {name: f for name in NAMES}",
        "IMPL = {**OTHERS}",
        'IMPL = {"sliu": f}',  # a mistake that loading names
        'IMPL = {"silu": f}\nNUMBERS = {"a": 1}\n_OLD = {"silu": f}\nEMPTY = {}',
        'OLD = {"silu": f}\nOLD = None\nIMPL = {"silu": f}',
    ],
)
def test_the_only_table_is_found_without_an_import(text):
    assert found(text) == "kernels:IMPL"


@pytest.mark.parametrize(
    ("word", "name"),
    [
        ("kernels", "kernels:IMPL"),
        ("./kernels.py", "kernels:IMPL"),
        ("kernels.py:OTHER", "kernels:OTHER"),
        ("inner/more.py", "inner/more.py:IMPL"),
        ("inner/more.py:OTHER", "inner/more.py:OTHER"),
        ("inner.more", "inner.more:IMPL"),
        ("package", "package:IMPL"),
        *((word, word) for word in ("torch:IMPL", "gradcheck.toml", "build/k.so", "no_such", "")),
        ("inner", "inner"),  # a folder alone has no code
    ],
)
def test_how_the_table_is_named_then(word, name):
    for path in ("inner/more.py", "package/__init__.py"):
        Path(path).parent.mkdir()
        Path(path).write_text(STOP + 'IMPL = {"silu": f}')
    assert found('IMPL = {"silu": f}', word) == name


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("X = 1", 'kernels.py has no dict of operators; write IMPL = {"silu": silu_vjp}, or'),
        ('SIZES = {"width": 3}', "or name what makes one: --impl kernels:NAME"),
        ('def f():\n    IMPL = {"silu": f}', "has no dict of operators"),
        (
            'A = {"silu": f}\nB = {"relu": f}',
            "kernels.py has 2 tables; name one: kernels:A, kernels:B",
        ),
        ("\n".join(f'T{k} = {{"silu": f}}' for k in range(9)), "kernels:T7, …"),
        ("def (", "kernels.py cannot be parsed: invalid syntax"),
    ],
)
def test_several_tables_or_none_are_a_mistake_that_lists_them(text, said):
    with pytest.raises(UsageError) as error:
        found(text)
    assert str(error.value).startswith("--impl kernels.py: ")
    assert said in str(error.value)


def test_a_file_that_is_not_there_is_named():
    with pytest.raises(UsageError, match=r"--impl gone\.py: No such file"):
        completed("gone.py", SUITE)


@pytest.mark.parametrize("word", ["reference", "torch", "jax"])
def test_a_framework_that_is_installed_is_no_table(word, monkeypatch):
    package = Path("installed", word)
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("NUMBER = 3\n")
    monkeypatch.syspath_prepend("installed")
    assert completed(word, SUITE) == word
