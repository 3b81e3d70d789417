import re

import pytest

from gradcheck import errors

CODES = {
    "GradcheckError": 5,
    "UsageError": 2,
    "UnknownNameError": 2,
    "SpecError": 2,
    "ManifestError": 2,
    "LoadError": 3,
    "Unsupported": 5,  # never meant to reach the command line: a verdict, not an exit code
}
TREE = {n: c for n, c in vars(errors).items() if isinstance(c, type) and issubclass(c, Exception)}


def test_every_error_has_its_exit_code_and_one_base():
    assert {name: error.exit_code for name, error in TREE.items()} == CODES
    assert all(issubclass(error, errors.GradcheckError) for error in TREE.values())


def test_the_tree_in_the_docstring_is_the_tree():
    drawn = re.findall(r"^ *([│ ]*[├└]── )?(\w+) +(?:base|[–\d])", errors.__doc__, re.MULTILINE)
    parents = {}
    path = []
    for branch, name in drawn:
        depth = len(branch) // 4
        path[depth:] = [name]
        parents[name] = path[depth - 1] if depth else None
    assert set(parents) == set(TREE)
    for name, error in TREE.items():
        base = error.__base__.__name__
        assert parents[name] == (None if name == "GradcheckError" else base)


def test_an_unknown_name_suggests_the_nearest():
    error = errors.UnknownNameError("operator", "rms_nrom", ["softmax", "rms_norm", "norm"])
    assert str(error) == "unknown operator 'rms_nrom': did you mean 'rms_norm'?"


@pytest.mark.parametrize(
    ("known", "shown"),
    [
        (["b", "a"], "known: a, b"),
        ([f"n{i:02}" for i in range(12)], "n10, n11"),
        ([f"n{i:02}" for i in range(13)], "n10, n11, …"),
        ([], "known: "),
    ],
)
def test_an_unknown_name_far_from_all_lists_some(known, shown):
    text = str(errors.UnknownNameError("sample", "zzzz", known))
    assert text.startswith("unknown sample 'zzzz': known: ")
    assert text.endswith(shown)
