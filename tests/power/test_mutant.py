from dataclasses import FrozenInstanceError
from functools import partial

import pytest

from gradcheck.errors import SpecError
from gradcheck.spec.defect import LABELS
from gradcheck.spec.mutant import Mutant, mutant_table


def vjp(xp, ct, x):
    return ct


def inputs(draw):
    return (draw.normal(3),), {}


@pytest.mark.slow(keep=4)
@pytest.mark.parametrize(
    ("parts", "said"),
    [
        ({"name": "Wrong"}, "use lower-case letters"),
        ({"name": "a b"}, "use lower-case letters"),
        ({"name": "zeros of x"}, "use lower-case letters"),  # what an impostor is called
        ({"name": ""}, "use lower-case letters"),
        ({"label": "Z"}, "no class 'Z'; known: sign, scale, reduction, "),
        ({"label": ""}, "no class ''; known: "),
        ({"label": "f"}, "no class 'f'; known: "),
        ({"label": "F", "also": ("Q",)}, "no class 'Q'; known: "),
        ({"label": "F", "also": ("F",)}, "a class stands twice"),
        ({"says": ""}, "say in `says`, in one sentence, what is wrong with it"),
        ({"says": " \n"}, "say in `says`, in one sentence, what is wrong with it"),
        ({"vjp": None}, "give it a `vjp`, or a `make` that returns a fresh one"),
        ({"make": lambda: vjp}, "give it a `vjp`, or a `make` that returns a fresh one"),
        ({"vjp": "negated"}, "its `vjp` or `make` cannot be called; give it a function"),
        ({"vjp": None, "make": 3}, "its `vjp` or `make` cannot be called; give it a function"),
        ({"dtype": "flaot32"}, "no dtype 'flaot32'; known: float64, float32"),
        ({"dtype": "float16"}, "no dtype 'float16'; known: float64, float32"),
        ({"killer": ""}, "name the sample that must catch it in `killer`, or prove in"),
        ({"killer": "", "inputs": inputs}, "an equivalent mutant needs both its proof"),
        ({"killer": "", "equivalent": "1 = 1."}, "an equivalent mutant needs both its proof"),
        ({"inputs": inputs}, "a mutant that differs needs neither"),
        ({"killer": "", "equivalent": " ", "inputs": inputs}, "write its proof into `equivalent`"),
        ({"killer": "typical", "equivalent": "1 = 1.", "inputs": inputs}, "or prove in"),
    ],
)
def test_a_mutant_that_contradicts_itself_is_refused_with_what_to_change(make, parts, said):
    with pytest.raises(SpecError) as caught:
        make.mutant(**{"vjp": vjp, "killer": "typical", **parts})
    assert str(caught.value).startswith(f"mutant square/{parts.get('name', 'wrong')}: ")
    assert said in str(caught.value)


def test_it_is_named_after_its_operator_and_nothing_can_be_changed_later(make):
    mutant = make.mutant(vjp)
    assert mutant.full_name == "square/wrong"
    with pytest.raises(FrozenInstanceError):
        mutant.killer = "another"


def counting():
    calls = []

    def vjp(xp, ct, x):
        calls.append(0)
        return len(calls)

    return vjp


def test_one_with_a_memory_starts_afresh_every_time(make):
    mutant = make.mutant(make=counting)
    first, second = mutant.fresh(), mutant.fresh()
    assert [first(None, 1, 1), first(None, 1, 1), second(None, 1, 1)] == [1, 2, 1]


def test_one_without_a_memory_is_its_function(make):
    assert make.mutant(vjp).fresh() is vjp


def test_an_equivalent_one_carries_its_proof_and_names_no_killer(make):
    mutant = make.mutant(vjp, equivalent="1 = 1.", inputs=inputs)
    assert (mutant.killer, mutant.inputs) == ("", inputs)


def test_no_two_classes_of_defects_say_the_same():
    assert len({label.says for label in LABELS.values()}) == len(LABELS)
    assert len({label.word for label in LABELS.values()}) == len(LABELS)
    assert all(label.says and label.word for label in LABELS.values())


def test_its_own_class_comes_first_among_those_that_name_its_defect(make):
    assert make.mutant(vjp, killer="typical", label="F", also=("R",)).labels == ("F", "R")


# ── a table ──────────────────────────────────────────────────────────────────────────────────


def wrong(xp, ct, x):
    return -ct


def test_a_row_has_name_classes_killer_sentence_vjp_and_further_fields():
    more = {"dialects": ("erf",), "modelled_on": "a bug"}
    (found,) = mutant_table("gelu", {("negated", "S T", "typical"): ("Wrong.", wrong, more)})
    assert found == Mutant(
        op="gelu", name="negated", label="S", also=("T",), killer="typical", says="Wrong.",
        vjp=wrong, dialects=("erf",), modelled_on="a bug",
    )  # fmt: skip


def test_a_row_without_a_vjp_has_a_maker_or_the_fault_of_its_name():
    rows = {
        ("first", "S", "typical"): "Wrong.",
        ("second", "S", "typical"): ("Wrong.", {"dtype": "float32"}),
        ("third", "S", "typical"): ("Wrong.", {"make": lambda: wrong}),
    }
    made = {"first": partial(wrong), "second": partial(wrong)}
    first, second, third = mutant_table("gelu", rows, faulty=made.__getitem__)
    assert (first.vjp, second.vjp, third.vjp) == (made["first"], made["second"], None)
    assert (second.dtype, third.fresh()) == ("float32", wrong)


def test_a_row_that_contradicts_itself_is_refused_as_a_mutant_is():
    with pytest.raises(SpecError, match="mutant gelu/a: give it a `vjp`, or a `make`"):
        mutant_table("gelu", {("a", "S", "typical"): "Wrong."})
    with pytest.raises(SpecError, match="mutant gelu/a: no class 'Q'"):
        mutant_table("gelu", {("a", "S Q", "typical"): ("Wrong.", wrong)})
