"""What a script is told of an entry, in this process and from another one."""

from types import SimpleNamespace

import pytest

from gradcheck.implementations.isolated import Isolation
from gradcheck.implementations.load import load

TABLE = """
import numpy as np

class Both:
    def forward(x, w, b=None, *, eps): return x
    def vjp(ct, x, w, b=None, *, eps, unit_offset=False): return ct, ct
def pair(x): return x, lambda ct: ct
def into(outs, ct, x): outs["x"][...] = ct
def bare(ct, x): return ct

TABLE = {
    "rms_norm/weight": Both,
    "tanh": {"forward": pair},
    "neg": {"vjp_into": into},
    "softcap": {"vjp": bare},
    "abs": {"vjp": bare, "vjp_into": into, "forward": pair},
}
"""
WANT = {
    "rms_norm": ("rms_norm/weight", "vjp", False, {"eps", "unit_offset"}, {"eps"}),
    "tanh": ("tanh", "pullback", True, set(), set()),
    "neg": ("neg", "into", True, set(), None),
    "softcap": ("softcap", "vjp", True, set(), None),
    "abs": ("abs", "vjp", True, set(), set()),
}


@pytest.fixture(params=["here", "elsewhere"])
def table(request, suite, tmp_path, monkeypatch):
    """The implementation, in this process or in one of its own."""
    (tmp_path / "recipes.py").write_text(TABLE)
    monkeypatch.syspath_prepend(str(tmp_path))
    isolation = Isolation(suites=["gradcheck_cases:SUITE"])
    own = request.param == "elsewhere"
    found = load("recipes:TABLE", suite, isolation=isolation if own else None)
    yield found
    if own:
        found.close()


def test_each_entry_is_told_as_it_is_called(suite, table):
    for op, (key, style, mapping, attrs, forward) in WANT.items():
        dialect = key.partition("/")[2] or suite.operators[op].dialects[0].name
        case = suite.cases([op], [dialect], ["typical"])[0]
        recipe = table.bind(case, "float64").recipe
        assert (recipe.key, recipe.style, recipe.mapping) == (key, style, mapping)
        assert set(recipe.attrs) == attrs
        assert (None if recipe.forward is None else set(recipe.forward)) == forward
        assert all(recipe.attrs[name] == case.attrs[name] for name in attrs)
        assert not recipe.ours


def test_what_is_bound_by_no_table_has_none(suite):
    case = suite.cases(["tanh"])[0]
    assert load("reference", suite).bind(case, "float64").recipe is None


@pytest.mark.frameworks
def test_a_wrapped_function_needs_us_and_a_bare_one_does_not(suite, monkeypatch):
    torch = pytest.importorskip("torch")
    from gradcheck import torch_op

    class Scaled(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x, cap=30.0, other=7):
            return x

    table = {"tanh": torch_op(torch.tanh), "neg": torch.neg, "softcap": Scaled,
             "sigmoid": torch.nn.Sigmoid()}  # fmt: skip
    monkeypatch.setitem(__import__("sys").modules, "wrapped", SimpleNamespace(TABLE=table))
    found = load("wrapped:TABLE", suite)
    told = {op: found.bind(suite.cases([op])[0], "float64").recipe for op in table}
    assert {op: (r.style, r.ours) for op, r in told.items()} == {
        "tanh": ("vjp", True), "neg": ("torch", False), "softcap": ("apply", False),
        "sigmoid": ("module", False),
    }  # fmt: skip
    assert told["softcap"].behind == (suite.cases(["softcap"])[0].attrs["cap"],)
