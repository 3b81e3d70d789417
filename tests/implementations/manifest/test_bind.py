import pytest

from gradcheck.errors import ManifestError
from gradcheck.implementations.manifest.bind import Scope, meaning, role
from gradcheck.implementations.manifest.operation import (
    CType,
    Role,
    RoleKind,
    Scratch,
    Special,
    Tensors,
    Value,
    View,
    expressions,
)

FLOATS = CType(base="float32", pointer=1)
INTS = CType(base="int32", pointer=1, const=True)
TEXT = CType(base="char", pointer=1, const=True)
INT = CType(base="int32")
SCOPE = Scope(frozenset({"x", "w", "eps", "form", "value", "D", "axes"}), frozenset({"x", "w"}))


def meant(said, ctype=FLOATS):
    return meaning(said, ctype, "gradcheck.toml, op 1 (f): bind.p", SCOPE)


def held(said):
    """The role of the only view."""
    (view,) = meant(said).views
    return view.role


@pytest.mark.parametrize(
    ("said", "wanted"),
    [
        ("in:x", Role(kind=RoleKind.IN, name="x")),
        ("in:b?", Role(kind=RoleKind.IN, name="b", optional=True)),
        ("cotangent", Role(kind=RoleKind.COTANGENT)),
        ("cotangent:1", Role(kind=RoleKind.COTANGENT, index=1)),
        ("grad:x", Role(kind=RoleKind.GRAD, name="x")),
        ("grad:x?", Role(kind=RoleKind.GRAD, name="x", optional=True)),
        ("out", Role(kind=RoleKind.OUT)),
        ("out:2", Role(kind=RoleKind.OUT, index=2)),
        ("value", Role(kind=RoleKind.VALUE)),
        ("value:1", Role(kind=RoleKind.VALUE, index=1)),
        ("saved:rstd", Role(kind=RoleKind.SAVED, name="rstd")),
        ("saved:s[]", Role(kind=RoleKind.SAVED, name="s")),
        (
            "saved:s[rows(x)]?",
            Role(kind=RoleKind.SAVED, name="s", extents=("rows(x)",), optional=True),
        ),
        (
            "saved:a[D, max(D, 2), dims(x)[0]]",
            Role(kind=RoleKind.SAVED, name="a", extents=("D", "max(D, 2)", "dims(x)[0]")),
        ),
    ],
)
def test_roles(said, wanted):
    assert held(said) == wanted


def test_in_place():
    (view,) = meant("cotangent -> grad:x").views
    assert view.role == Role(kind=RoleKind.COTANGENT)
    assert view.becomes == Role(kind=RoleKind.GRAD, name="x")


@pytest.mark.parametrize(
    ("said", "wanted"),
    [
        ("unused", Special.UNUSED),
        ("null", Special.NULL),
        ("handle", Special.HANDLE),
        ("scratch[D * 2]", Scratch(size="D * 2", anything=True)),
        ("zeros[dims(x)[0]]", Scratch(size="dims(x)[0]", anything=False)),
    ],
)
def test_pointers_to_no_tensor(said, wanted):
    assert meant(said) == wanted


@pytest.mark.parametrize(
    ("said", "ctype", "text"),
    [
        ("rows(x)", INT, "rows(x)"),
        (3, INT, "3"),
        (True, INT, "True"),
        (0.5, CType(base="float64"), "0.5"),
        (float("inf"), CType(base="float64"), "1e999"),
        ("value", INT, "value"),  # an attribute that is called like a role
        ("form", TEXT, "form"),
        ("'causal'", TEXT, "'causal'"),
        ("dims(x)", INTS, "dims(x)"),
        ("axes", INTS, "axes"),
        ([1, "rows(x)", "D"], INTS, "[1, rows(x), D]"),
    ],
)
def test_expressions(said, ctype, text):
    assert meant(said, ctype) == Value(expression=text)


def test_a_scalar_that_nobody_reads():
    assert meant("unused", INT) is Special.UNUSED


@pytest.mark.parametrize(
    ("said", "ctype", "message"),
    [
        ("x", FLOATS, "is a pointer: `x` alone says nothing; write `in:x`"),
        ("grd:x", FLOATS, "`grd:x` is no role; did you mean `grad:x`?"),
        ("input:x", FLOATS, "`input:x` is no role"),
        ("cotangnet", FLOATS, "did you mean `cotangent`?"),
        ("cotangnet -> grad:x", FLOATS, "did you mean `cotangent`?"),
        ("in", FLOATS, "`in`: write of which primal: `in:x`"),
        ("grad:", FLOATS, "`grad:`: write of which primal: `grad:x`"),
        ("saved", FLOATS, "`saved`: write of which residual: `saved:x`"),
        ("in:x[3]", FLOATS, "only `saved:` has a shape of its own"),
        ("out:x", FLOATS, "write the output's number, `out:1`"),
        ("cotangent:-1", FLOATS, "is no role"),
        ("status", FLOATS, "only `return` can be a status"),
        ("saved:s[rows(y)]", FLOATS, "there is no `y` here"),
        ("scratch", FLOATS, "is no role"),
        ("scratch[n]", FLOATS, "there is no `n` here"),
        ("", FLOATS, "cannot be read"),
        ("nonsense + 1", FLOATS, "there is no `nonsense` here"),
        ("dims(x)", CType(base="void", pointer=1), "what the pointer leads to has no type"),
        ("in:x", INT, "is a number by value, and `in:x` is for pointers"),
        ("cotangent", INT, "or `item(x)`"),
        ("null", INT, "is a number by value"),
        ("rows(y)", INT, "there is no `y` here"),
        ({"is": "in:x"}, INT, "is a number by value; a layout is for pointers"),
        ({}, FLOATS, "`is` is missing"),
        ({"is": "in:x", "shap": []}, FLOATS, "unknown key `shap`; did you mean `shape`?"),
        ({"is": "in:x", "shape": ["D"], "strides": ["D", "1"]}, FLOATS, "one stride per axis"),
        ({"is": "in:x", "axes": [0, 2]}, FLOATS, "axes = [0, 2] is no order of the axes 0 to 1"),
        ({"is": "in:x", "axes": [0, 0]}, FLOATS, "is no order"),
        ({"is": "in:x", "axes": [0], "strides": ["1"]}, FLOATS, "give `axes` or `strides`, not"),
        ({"is": "in:x", "axes": [1, 0], "shape": ["D"]}, FLOATS, "`axes` has length 2 and `shape`"),
        ({"is": "in:x", "at": ""}, FLOATS, "cannot be read"),
        ({"is": "in:x", "shape": [""]}, FLOATS, "cannot be read"),
        ({"is": "in:x", "at": "y"}, FLOATS, "there is no `y` here"),
        ({"is": "in:x", "size": "y"}, FLOATS, "there is no `y` here"),
        ({"is": "scratch[3]"}, FLOATS, "is no role"),
        ({"parts": []}, FLOATS, "`parts` is empty"),
        ({"parts": [{"is": "in:x"}], "at": "3"}, FLOATS, "unknown key `at`"),
        ({"parts": [{"is": "in:x"}, {"at": "3"}]}, FLOATS, "is` is missing"),
        (None, FLOATS, "is neither a role nor an expression"),
        ([1, None], INTS, "is neither a role nor an expression"),
    ],
)  # fmt: skip
def test_mistakes_are_named_with_the_parameter_and_what_to_do(said, ctype, message):
    with pytest.raises(ManifestError) as caught:
        meant(said, ctype)
    assert message in str(caught.value)
    assert str(caught.value).startswith("gradcheck.toml, op 1 (f): bind.p")


def test_layouts():
    made = meant({"is": "in:x", "shape": ["D", 2], "strides": ["2 * D", 1], "size": "9", "at": 3})
    view = View(role=role("in:x", "", SCOPE), at="3", shape=("D", "2"), strides=("2 * D", "1"))
    assert made == Tensors(views=(view,), size="9")
    assert meant({"is": "grad:x", "axes": [0, 2, 1]}).views[0].axes == (0, 2, 1)


def test_several_tensors_in_one_buffer():
    made = meant({"size": "3 * D", "parts": [{"is": "in:x"}, {"is": "in:w", "at": "2 * D"}]})
    assert [(v.role.name, v.at) for v in made.views] == [("x", "0"), ("w", "2 * D")]
    assert made.size == "3 * D"


def test_every_expression_of_a_meaning_is_found():
    part = {"is": "saved:s[D, 2] -> saved:t[3]", "shape": ["4"], "strides": ["5"], "at": "6"}
    said = {"size": "9", "parts": [part]}
    assert sorted(expressions(meant(said))) == ["2", "3", "4", "5", "6", "9", "D"]
    assert [*expressions(meant("scratch[D]"))] == ["D"]
    assert [*expressions(meant("D + 1", INT))] == ["D + 1"]
    assert [*expressions(meant("null"))] == []
