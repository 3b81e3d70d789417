"""Small changes are made as they are named, and the score complains of what it must."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent


@pytest.fixture(scope="module")
def load():
    """A module of this folder, which is a program and no package."""
    sys.path.insert(0, str(HERE))
    try:
        yield importlib.import_module
    finally:
        sys.path.remove(str(HERE))
        for name in ("mutations", "score"):
            sys.modules.pop(name, None)


CHANGES = [
    ("a < b", {"a <= b", "a >= b"}),
    ("a == b", {"a != b"}),
    ("a and b", {"a or b", "a", "b"}),
    ("a and b and c", {"b and c", "a and c", "a and b"}),
    ("not a", {"a"}),
    ("-a", {"a"}),
    ("a + b", {"a - b", "a", "b"}),
    ("a ** b", {"a * b", "a", "b"}),
    ("3", {"4", "30"}),
    ("0", {"1"}),
    ("2.5", {"25.0"}),
    ("True", {"False"}),
    ("np.maximum(a, b)", {"np.minimum(a, b)", "a", "b"}),
    ("any(a)", {"all(a)"}),
    ("abs(a)", {"a"}),
    ("[a for b in c if d()]", set()),
    ("f'{a + 1}'", set()),
    ("'a' + 'b'", set()),
]


@pytest.mark.parametrize(("old", "new"), CHANGES)
def test_an_expression_is_changed_in_every_way_there_is(load, old, new):
    source = f"x = [{old}]\n".encode()
    found = load("mutations").mutations("m.py", source)
    assert {m.applied(source).decode().strip() for m in found} == {f"x = [({n})]" for n in new}
    assert all(not m.lines for m in found)  # it runs on import


def test_a_statement_is_dropped_and_what_is_no_code_stays(load):
    source = '''"""A module."""
import a
if TYPE_CHECKING:
    import b
def f(x: 3 = 1) -> 4:
    """A function."""
    assert x
    if x:
        raise ValueError("ü")
    g(x)
    for y in x:
        continue
    return y
'''.encode()
    found = load("mutations").mutations("m.py", source)
    lines = [(m.where, m.line, m.change, [*m.lines]) for m in found]
    assert lines == [
        ("f", 5, "1 → 2", []),
        ("f", 5, "1 → 10", []),
        ("f", 8, "x → not x", [8]),
        ("f", 9, "raise ValueError('ü') → pass", [9]),
        ("f", 10, "g(x) → pass", [10]),
        ("f", 12, "continue → break", [12]),
        ("f", 13, "return y → return None", [13]),
    ]
    assert b"\n        pass\n    g(x)" in found[3].applied(source)


def test_a_name_and_its_place_in_the_draw_do_not_follow_the_line(load):
    mutations = load("mutations").mutations
    before = mutations("m.py", b"def f(a):\n    return a < 1, a < 1\n")
    moved = b"# more\ndef g(a):\n    return a < 1\ndef f(a):\n    return a < 1, a < 1\n"
    after = mutations("m.py", moved)
    assert len({m.name for m in after}) == len(after) == len({m.place for m in after})
    assert {m.name: m.place for m in before}.items() <= {m.name: m.place for m in after}.items()


def test_the_score_complains_of_survivors_and_of_reasons_that_are_stale(load):
    score, mutations = load("score"), load("mutations").mutations
    every = mutations(
        "gradcheck/results/diff/m.py", b"x = [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12]\n"
    )
    lost, *others = (score.Fate(m, killed=True) for m in every)
    lost = score.Fate(lost.mutation, killed=False)
    name = lost.mutation.name
    assert score.complaints([lost, *others], {name: "it is so"}) == []
    assert score.complaints([lost, *others], {}) == [f"survives without a reason: {name}"]
    died = others[0].mutation.name
    assert score.complaints([lost, *others], {name: "", died: "", "gone": ""}) == [
        "survivors.toml has a reason too many (it is not drawn): gone",
        f"survivors.toml has a reason too many (a test kills it now): {died}",
    ]
    assert score.complaints([lost, *others[:18]], {name: ""}) == [
        "18 of 19 killed: 94.7%; at least 95% have to die"
    ]
    told = score.report([lost, *others], {name: "it is so"})
    assert f"**{len(others)} of {len(every)} killed" in told
    assert "| gradcheck/results/diff/m.py:1 `x` | `1 → 2` | it is so |" in told


def test_what_was_chosen_by_hand_must_be_found(load, tmp_path):
    (tmp_path / "gradcheck").mkdir()
    (tmp_path / "gradcheck" / "m.py").write_text("def f():\n    x = 1\n    return x  # ü\n")
    table = tmp_path / "chosen.toml"
    table.write_text('[[mutation]]\nfile = "m.py"\nsays = "none"\nold = "x  # ü"\nnew = "None"\n')
    (found,) = load("mutations").chosen(table, tmp_path)
    source = (tmp_path / "gradcheck" / "m.py").read_bytes()
    assert found.applied(source) == b"def f():\n    x = 1\n    return None\n"
    assert (found.line, [*found.lines]) == (3, [3])
    table.write_text('[[mutation]]\nfile = "m.py"\nsays = "any"\nold = "x"\nnew = "None"\n')
    with pytest.raises(SystemExit, match="has not exactly once 'x'"):
        load("mutations").chosen(table, tmp_path)


def test_what_was_chosen_by_hand_is_still_there(load):
    """A module that moves, or a line that changes, would end the run of hours at its start."""
    found = load("mutations").chosen(HERE / "chosen.toml", HERE.parents[1])
    assert len(found) >= 40
