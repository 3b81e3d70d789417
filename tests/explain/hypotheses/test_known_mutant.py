"""A known defect is named with its sentence; one with a memory, or the right answer, names none."""

import gradcheck_cases

from gradcheck.explain.hypotheses.known_mutant import nearest
from gradcheck.numerics.arithmetic import F64
from gradcheck.spec.mutant import Mutant
from tests.explain.scenes import changed, named

SPEC = gradcheck_cases.SUITE.operators["tanh"]


def cubed(xp, ct, x):
    return SPEC.vjp(xp, ct, x) ** 3


def known(**options):
    return Mutant(
        **{"op": "tanh", "name": "cubed", "says": "The gradient is cubed.", "label": "NL",
           "killer": "typical", "vjp": cubed, **options}
    )  # fmt: skip


def test_a_known_defect_is_told_with_its_sentence():
    found = named("tanh", lambda ct, x: cubed(F64, ct, x), "x", [nearest([known()])])
    assert (found.label, found.rule) == ("NL", "nearest")
    assert found.says == "dx is that of a known defect, tanh/cubed: The gradient is cubed"


def test_another_defect_is_not_taken_for_it():
    wrong = changed("tanh", x=lambda g: g**2)
    assert not named("tanh", wrong, "x", [nearest([known()])]).label


def test_one_with_a_memory_is_no_function_of_its_arguments():
    remembering = known(vjp=None, make=lambda: cubed)
    wrong = changed("tanh", x=lambda g: g**3)
    assert not named("tanh", wrong, "x", [nearest([remembering])]).label


def test_one_that_raises_or_gives_nothing_names_nothing():
    def raises(xp, ct, x):
        raise ValueError("no")

    wrong = changed("tanh", x=lambda g: g**3)
    lost = known(vjp=lambda xp, ct, x: None)
    assert not named("tanh", wrong, "x", [nearest([known(vjp=raises), lost])]).label
