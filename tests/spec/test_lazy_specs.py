"""Specs that are imported when they are asked for, under names that are known before."""

import sys
from importlib import import_module

import gradcheck_cases
import pytest

from gradcheck.errors import SpecError
from gradcheck.spec.lazy_specs import Families
from gradcheck.spec.suite import Suite

SPEC = """\
from gradcheck import OpSpec, Sample

def forward(xp, x): return x * x
def vjp(xp, ct, x): return 2 * ct * x
sample = Sample(name="only", primals=lambda draw: (draw.normal(3),), hunts="2")
PARTS = dict(signature="()->()", forward=forward, vjp=vjp, formula="x^2", source="none",
             samples=(sample,))
def op(name): return OpSpec(name=name, **PARTS)

"""


@pytest.fixture
def families(tmp_path, monkeypatch):
    """`families(names, one="OPERATORS = …", …)`: a package of such modules, and its specs."""

    def made(names, **modules):
        package = tmp_path / "our_cases"
        package.mkdir()
        (package / "__init__.py").write_text("")
        for name, text in modules.items():
            (package / f"{name}.py").write_text(SPEC + text)
        return Families("our_cases", "OPERATORS", names)

    monkeypatch.syspath_prepend(tmp_path)
    yield made
    for name in [name for name in sys.modules if name.partition(".")[0] == "our_cases"]:
        del sys.modules[name]


TWO = {"one": 'OPERATORS = (op("a"), op("b"))', "two": 'OPERATORS = (op("c"),)'}


@pytest.mark.parametrize(
    "said", ["a", "a b c", "b a", "a x", ""], ids=["less", "more", "order", "other", "none"]
)
def test_a_module_that_holds_others_than_was_said_is_refused(families, said):
    found = families({"one": said, "two": "c a"} if "a" not in said else {"one": said}, **TWO)
    with pytest.raises(SpecError, match=r"our_cases\.(one|two)\.OPERATORS holds .* write the same"):
        _ = found["a"]


def test_a_name_that_stands_twice_is_refused_before_anything_is_imported(families):
    with pytest.raises(SpecError, match="'a' stands in one and two; rename one"):
        families({"one": "a b", "two": "a"}, **TWO)
    assert "our_cases.one" not in sys.modules


def test_what_there_is_not_is_said_as_a_mapping_says_it(families):
    found = families({"one": "a b", "two": "c"}, **TWO)
    assert "d" not in found
    assert found.get("d") is None
    with pytest.raises(KeyError):
        _ = found["d"]
    assert "our_cases.one" not in sys.modules


def test_names_cost_no_import_and_a_spec_that_of_its_family(families):
    found = families({"one": "a b", "two": "c"}, **TWO)
    assert ([*found], len(found), "c" in found) == (["a", "b", "c"], 3, True)
    assert "our_cases.one" not in sys.modules
    assert found["b"].name == "b"
    assert "our_cases.one" in sys.modules
    assert "our_cases.two" not in sys.modules
    assert found["b"] is found["b"]
    assert [spec.name for spec in found.values()] == ["a", "b", "c"]


def test_a_suite_takes_them_as_it_takes_specs(families):
    lazy = Suite("mine", "1", families({"one": "a b", "two": "c"}, **TWO))
    assert [case.name for case in lazy.cases(["b"])] == ["b/default/only"]
    assert "our_cases.two" not in sys.modules
    plain = Suite("mine", "1", [*lazy])
    assert [*plain.operators] == [*lazy.operators]
    assert [c.fingerprint for c in plain.cases()] == [c.fingerprint for c in lazy.cases()]
    with pytest.raises(SpecError, match="two operators are called 'a'"):
        Suite.joined([lazy, plain])
    with pytest.raises(SpecError, match="two specs are called 'encoder'"):
        Suite("mine", "1", gradcheck_cases.SUITE.operators, models=gradcheck_cases.SUITE.operators)


# ── names that are read from the modules' text ───────────────────────────────────────────────

WRITTEN = {
    "one": 'a = OpSpec(name="a", **PARTS)\nb_ = OpSpec(\n    name="b", **PARTS)\n',
    "two": 'from our_cases.one import a\nc = OpSpec(name="c", **PARTS)\n',
}


@pytest.fixture
def written(families):
    """`written(one=text, …)`: the specs of a package of modules with these texts."""

    def made(**modules):
        families({}, **modules)
        import_module("our_cases")
        return Families.written_in("our_cases", modules, "OpSpec")

    return made


def test_written_names_cost_no_import_and_a_spec_that_of_its_module(written):
    found = written(**WRITTEN)
    assert ([*found], found.homes) == (["a", "b", "c"], {"a": "one", "b": "one", "c": "two"})
    assert "our_cases.one" not in sys.modules
    assert found["b"].name == "b"
    assert "our_cases.two" not in sys.modules
    assert found["c"].name == "c"  # the spec that `two` imports stays one of `one`
    assert found["a"] is found["a"]


@pytest.mark.parametrize(
    "text",
    [
        'for n in "xy":\n    globals()[n] = op(n)\n',
        'def make():\n    x = OpSpec(name="x", **PARTS)\n    return x\n',
        'TABLE = {"x": "x"}\nx = OpSpec(name=TABLE["x"], **PARTS)\n',
        'x = OpSpec(name="x", **PARTS)\ny = x\n',
    ],
    ids=["in a loop", "in a function", "a computed name", "twice"],
)
def test_a_spec_that_is_written_in_another_way_is_refused_with_what_to_do(written, text):
    found = written(one='a = OpSpec(name="a", **PARTS)\n' + text)
    with pytest.raises(SpecError, match=r"our_cases\.one holds .* says a.*; define each spec once"):
        _ = found["a"]


@pytest.mark.parametrize("kind", ["operators", "models", "rules"])
def test_what_the_built_in_suite_says_of_itself_is_true(kind):
    specs = getattr(gradcheck_cases.SUITE, kind)
    assert isinstance(specs, Families)
    assert [spec.name for spec in specs.values()] == [*specs]
