from functools import partial

import pytest

from gradcheck import Suite
from gradcheck.errors import LoadError, SpecError
from gradcheck.spec import Dialect, Sample
from gradcheck.spec.mutant import KnownMutants, check, mutants_of


def triple(xp, ct, x):
    return 3 * ct * x


def scaled(xp, x, *, by=1.0):
    return by * x


def scaled_vjp(xp, ct, x, *, by=1.0):
    return by * ct


def typical(draw):
    return (draw.signed(3),)


DIALECTS = (Dialect(name="plain", says="1"), Dialect(name="twice", says="2", attrs={"by": 2.0}))


@pytest.fixture
def spec(make):
    """Dialects `plain` and `twice`; `everywhere` is a sample of both, `at-two` of the second."""
    at_two = Sample(name="at-two", primals=typical, hunts="2", dialects=("twice",))
    samples = {"everywhere": typical, "at-two": at_two}
    return make.op("scale", scaled, scaled_vjp, options={"dialects": DIALECTS}, **samples)


@pytest.fixture
def mutant(make):
    return partial(make.mutant, scaled_vjp, op="scale", killer="everywhere")


# ── one mutant against its operator ──────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("parts", "said"),
    [
        ({"killer": "typical"}, "its killer 'typical' is no sample of scale; known: ['at-two', 'e"),
        ({"killer": "every*"}, "its killer 'every*' is no sample of scale"),
        ({"dialects": ("thrice",)}, "scale has no dialect 'thrice'; known: ['plain', 'twice']"),
        (
            {"killer": "at-two", "dialects": ("plain",)},
            "its killer 'at-two' is a sample of other dialects than ['plain']",
        ),
        (
            {"vjp": triple},
            "its vjp takes ['xp', 'ct', 'x'], the operator's takes ['xp', 'ct', 'x', 'by']; "
            "give it the same",
        ),
        ({"vjp": lambda xp, ct, *primals, **attrs: ct}, "['xp', 'ct', 'primals', 'attrs'], the"),
        ({"vjp": lambda xp, ct, y, *, by=1.0: ct}, "['xp', 'ct', 'y', 'by'], the operator's"),
        ({"vjp": lambda xp, x, ct, *, by=1.0: ct}, "['xp', 'x', 'ct', 'by'], the operator's"),
    ],
)
def test_one_that_does_not_fit_is_refused_with_what_to_change(make, spec, parts, said):
    usual = {"vjp": scaled_vjp, "op": "scale", "killer": "everywhere"}
    with pytest.raises(SpecError) as caught:
        check(make.mutant(**{**usual, **parts}), spec)
    assert str(caught.value).startswith("mutant scale/wrong: ")
    assert said in str(caught.value)


@pytest.mark.parametrize(
    "parts",
    [
        {},
        {"killer": "at-two"},  # one of the dialects has it: enough
        {"killer": "at-two", "dialects": ("twice",)},
        {"killer": "at-two", "dialects": ("plain", "twice")},
        {"dialects": ("plain",)},
    ],
)
def test_one_that_fits_is_taken(spec, mutant, parts):
    check(mutant(**parts), spec)


def test_what_make_returns_may_take_anything(make, spec):
    check(make.mutant(make=lambda: lambda *a, **b: a, op="scale", killer="at-two"), spec)


def test_an_equivalent_one_needs_no_sample(spec, mutant):
    def inputs(draw):
        return typical(draw), {}

    check(mutant(killer="", equivalent="1 = 1.", inputs=inputs, dialects=("plain",)), spec)


# ── the tables of a suite ────────────────────────────────────────────────────────────────────


def test_mutants_come_by_operator_in_suite_order_and_an_operator_may_have_none(make, suite_of):
    table = [
        make.mutant(triple, op="b", name="wrong"),
        make.mutant(triple, op="a", name="second"),
        make.mutant(triple, op="a", name="wrong"),
    ]
    suite = suite_of([make.op("a"), make.op("none"), make.op("b")], table)
    found = {op: [m.name for m in mutants] for op, mutants in mutants_of(suite).items()}
    assert list(found.items()) == [("a", ["second", "wrong"]), ("none", []), ("b", ["wrong"])]


def test_a_suite_without_a_table_has_no_mutants(make, suite_of):
    assert mutants_of(suite_of([make.op()])) == {"square": []}
    assert mutants_of(suite_of([make.op()], ())) == {"square": []}


def test_joined_suites_bring_their_own_tables(make, suite_of):
    suite = suite_of([make.op()], [make.mutant(triple)], OTHERS=[make.mutant(triple, op="b")])
    joined = Suite.joined([suite, Suite("other", "1", [make.op("b")], mutants="user:OTHERS")])
    found = mutants_of(joined)
    assert {op: [m.full_name for m in of] for op, of in found.items()} == {
        "square": ["square/wrong"],
        "b": ["b/wrong"],
    }


def test_a_table_of_an_operator_is_loaded_when_that_is_asked_for(make, suite_of):
    suite_of([], (), A=[make.mutant(triple, op="a")])
    homes = {"a": "user:A", "b": "nowhere:B"}
    suite = Suite("mine", "1", [make.op("a"), make.op("b"), make.op("c")], mutants=homes)
    known = KnownMutants(suite)
    assert [m.full_name for m in known["a"]] == ["a/wrong"]
    assert (known["c"], len(known), [*known]) == ([], 3, ["a", "b", "c"])
    with pytest.raises(LoadError, match="nowhere"):
        known["b"]
    with pytest.raises(LoadError, match="nowhere"):
        mutants_of(suite)
    with pytest.raises(KeyError):
        known["d"]


def test_a_mutant_stands_where_the_suite_looks_for_it(make, suite_of):
    suite_of([], (), A=[make.mutant(triple, op="b")])
    homes = {"a": "user:A", "b": "user:B"}
    suite = Suite("mine", "1", [make.op("a"), make.op("b")], mutants=homes)
    with pytest.raises(SpecError, match=r"b/wrong: it stands in user:A, .* of b in user:B"):
        mutants_of(suite)


def test_a_table_cannot_name_an_operator_of_nobody(make, suite_of):
    suite = suite_of([make.op()], [make.mutant(triple, op="sqare")])
    with pytest.raises(SpecError, match="mutant sqare/wrong: the suite has no operator 'sqare'"):
        mutants_of(suite)


def test_two_of_one_name_are_refused(make, suite_of):
    suite = suite_of([make.op()], [make.mutant(triple), make.mutant(lambda xp, ct, x: ct)])
    with pytest.raises(SpecError, match="two mutants are called square/wrong; rename one"):
        mutants_of(suite)


def test_one_that_does_not_fit_is_refused_in_a_table_too(make, suite_of):
    suite = suite_of([make.op()], [make.mutant(triple, killer="typcial")])
    with pytest.raises(SpecError, match="its killer 'typcial' is no sample of square"):
        mutants_of(suite)


@pytest.mark.parametrize(
    "table",
    [
        lambda m: m,
        lambda m: [m, "square/another"],
        lambda m: {"square": m},
        lambda m: (m for _ in range(1)),  # it can be read once: the second reader sees none
        lambda m: 3,
        lambda m: "mutants",
    ],
)
def test_a_table_of_something_else_is_refused(make, suite_of, table):
    suite = suite_of([make.op()], table(make.mutant(triple)))
    with pytest.raises(LoadError, match=r"user:MUTANTS: make it a tuple of gradcheck\.Mutant"):
        mutants_of(suite)


@pytest.mark.parametrize(
    ("reference", "said"),
    [
        ("nowhere.at.all:MUTANTS", "importing nowhere.at.all raised ModuleNotFoundError"),
        ("gradcheck:MUTATNS", "gradcheck has no 'MUTATNS'"),
        ("gradcheck", "is not of the form package.module:NAME"),
    ],
)
def test_a_table_that_is_not_there_is_said_to_be_missing(make, reference, said):
    with pytest.raises(LoadError, match=said):
        mutants_of(Suite("mine", "1", [make.op()], mutants=reference))
