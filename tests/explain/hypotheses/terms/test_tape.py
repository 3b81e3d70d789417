"""The tape: it gives what the text gives, and with an operation changed what that would give."""

from types import SimpleNamespace

import gradcheck_cases
import numpy as np
import pytest

from gradcheck.explain.hypotheses.terms import tape
from gradcheck.explain.hypotheses.terms.tape import TooLongError, record, replay
from gradcheck.numerics.arithmetic import F64
from gradcheck.numerics.arrays import as_tuple

SUITE = gradcheck_cases.SUITE


def recorded(vjp, *primals, forward=lambda xp, *primals, **attrs: primals[0], **attrs):
    spec = SimpleNamespace(vjp=vjp, forward=forward)
    names = [f"p{k}" for k in range(len(primals))]
    return record(spec, (np.arange(1.0, 4.0),), names, primals, attrs)


def kinds(found):
    return [node.kind for node in found.nodes if node.chain]


@pytest.mark.slow
def test_every_text_of_the_suite_gives_on_the_tape_what_it_gives_without():
    seen = set()
    for case in SUITE.cases(list(SUITE.operators)):
        key = case.spec.name, case.dialect.name
        if key in seen or not case.primals[0].size:
            continue
        seen.add(key)
        outputs = as_tuple(case.spec.forward(F64, *case.primals, **case.attrs))
        ct = tuple(case.draw("tape").away(0.0, *np.shape(o)) for o in outputs)
        found = record(case.spec, ct, case.primal_names, case.primals, case.attrs)
        bare = ct[0] if len(ct) == 1 else ct
        right = as_tuple(case.spec.vjp(F64, bare, *case.primals, **case.attrs))
        for node, gradient in zip(found.outputs, right, strict=True):
            assert (node is None) == (gradient is None), case.name
            if gradient is not None:
                np.testing.assert_array_equal(node.value, gradient, err_msg=case.name)
                needed = found.needed(found.outputs.index(node))
                np.testing.assert_array_equal(replay(needed, {}), gradient)
    assert len(seen) > 200


def test_a_changed_operation_changes_what_depends_on_it():
    x = np.array([2.0, 3.0, 5.0])
    found = recorded(lambda xp, ct, x: ct * (x * x + xp.sum(x)), x)
    node = next(n for n in found.nodes if n.kind == "sum")
    again = replay(found.needed(0), {node.index: lambda node, operands: 0.0})
    np.testing.assert_array_equal(again, np.arange(1.0, 4.0) * x * x)
    np.testing.assert_array_equal(found.outputs[0].value, np.arange(1.0, 4.0) * (x * x + 10))


def test_needed_leaves_out_what_another_gradient_needs():
    found = recorded(lambda xp, ct, x, y: (ct * y, ct * xp.exp(x)), np.ones(3), np.ones(3))
    assert [n.kind for n in found.needed(0)] == ["leaf", "leaf", "multiply"]
    assert "exp" in [n.kind for n in found.needed(1)]


def test_a_mask_follows_the_value_that_it_is_made_from():
    x = np.array([-1.0, 2.0, -3.0])
    found = recorded(lambda xp, ct, x: xp.where(x > 0, ct, 0.0), x)
    less = {n.index: lambda node, ops: ops[0] <= ops[1] for n in found.nodes if n.kind == "greater"}
    np.testing.assert_array_equal(replay(found.needed(0), less), [1.0, 0.0, 3.0])


def test_turns_of_a_loop_are_told_apart_and_calls_by_their_callers():
    def half(xp, v):
        return v / 2

    def vjp(xp, ct, x):
        for _ in range(3):
            ct = ct + x
        return half(xp, ct) + half(xp, x)

    found = recorded(vjp, np.ones(3))
    adds = [n for n in found.nodes if n.kind == "add" and n.turn == 0]
    assert [n.turn for n in found.nodes if n.kind == "add"] == [0, 1, 2, 0]
    assert len(adds) == 2
    halves = [n for n in found.nodes if n.kind == "divide"]
    assert halves[0].place == halves[1].place
    assert halves[0].chain != halves[1].chain


def test_a_list_of_arrays_is_as_many_operands():
    def vjp(xp, ct, x):
        return xp.concatenate([ct[:1], x[1:2], ct[2:]], axis=0)

    found = recorded(vjp, np.ones(3))
    joined = next(n for n in found.nodes if n.kind == "concatenate")
    assert len(joined.operands) == 4 - ("axis" in joined.kwargs)
    zeroed = {joined.index: lambda node, ops: node.call([np.zeros(1), *ops[1:]])}
    np.testing.assert_array_equal(replay(found.needed(0), zeroed), [0.0, 1.0, 3.0])


def test_attributes_that_are_real_numbers_are_operands():
    found = recorded(lambda xp, ct, x, *, a, n: ct * a * n, np.ones(3), a=0.5, n=3)
    assert [n.name for n in found.nodes if not n.chain] == ["ct", "p0", "a"]


def test_forward_comes_behind():
    def forward(xp, x):
        return xp.exp(x)

    found = recorded(lambda xp, ct, x: ct * x, np.ones(3), forward=forward)
    assert kinds(found) == ["multiply", "exp"]
    assert found.nodes[found.length].kind == "exp"
    assert found.forward[0].kind == "exp"


def test_a_gradient_that_is_no_array_is_none():
    found = recorded(lambda xp, ct, x, y: (ct, None), np.ones(3), np.ones(3, dtype=int))
    assert found.outputs[1] is None
    assert found.needed(1) == []


def test_an_endless_text_is_refused(monkeypatch):
    monkeypatch.setattr(tape, "MAX_OPERATIONS", 10)

    def vjp(xp, ct, x):
        for _ in range(20):
            ct = ct + x
        return ct

    with pytest.raises(TooLongError):
        recorded(vjp, np.ones(3))


def test_what_a_text_raises_is_raised():
    with pytest.raises(ValueError, match="broadcast"):
        recorded(lambda xp, ct, x: ct + x, np.ones(2))
