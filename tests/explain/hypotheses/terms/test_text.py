"""A text at several probes: the same edit means the same place everywhere."""

import numpy as np
import pytest

from gradcheck.explain.hypotheses.terms.tape import TooLongError
from gradcheck.explain.hypotheses.terms.text import Edit, Match, Ref, Run, Target, Text, at, targets
from tests.explain.scenes import scene


def wrong(ct, x):
    return 2 * ct


@pytest.fixture(scope="module")
def softmax():
    return scene("softmax", wrong, "x")


def run_of(found, k=0):
    return Run(found.failing[k], "x")


def test_the_last_operation_gives_the_right_gradient(softmax):
    run = run_of(softmax)
    np.testing.assert_array_equal(run.needed[-1].value, softmax.first.right["x"])
    np.testing.assert_array_equal(run.again({}), softmax.first.right["x"])


def test_a_text_that_is_not_the_truth_is_refused(softmax):
    probe = softmax.first
    probe.__dict__["right"] = {"x": probe.right["x"] + 1.0}
    try:
        with pytest.raises(TooLongError):
            Run(probe, "x")
        assert Text(softmax).run(probe) is None
    finally:
        del probe.__dict__["right"]


def test_an_edit_predicts_at_probes_of_other_shapes(softmax):
    text = Text(softmax)
    run = text.run(softmax.first)
    (node,) = [n for n in run.needed if n.kind == "subtract" and n.index in run.with_ct]
    (target,) = targets(node, run)
    edit = Edit(label="T", says="", changes=at(target, lambda node, ops: ops[0]))
    for probe in softmax.failing:
        x = probe.primal("x")
        e = np.exp(x - x.max(axis=-1, keepdims=True))
        y = e / e.sum(axis=-1, keepdims=True)
        np.testing.assert_allclose(text.predicted(probe, edit), y * probe.ct[0], rtol=1e-12)


def test_where_the_text_goes_another_way_nothing_is_edited(softmax):
    run = run_of(softmax)
    elsewhere = Target(place=(wrong.__code__, 0), kind="add")
    assert elsewhere.on(run) == []
    np.testing.assert_array_equal(
        run.again(at(elsewhere, lambda node, ops: 0.0)(run)), softmax.first.right["x"]
    )


def test_an_edit_that_is_not_defined_predicts_nothing(softmax):
    run = run_of(softmax)

    def refused(node, ops):
        raise ValueError

    last = run.needed[-1].index
    assert run.again({last: refused}) is None
    assert run.again({last: lambda node, ops: np.ones(2)}) is None


def test_values_are_found_again_by_what_they_are(softmax):
    run = run_of(softmax)
    assert Ref(name="x").on(run, 0) is run.leaves["x"].value
    assert Ref(name="nobody").on(run, 0) is None
    np.testing.assert_array_equal(Ref(output=0).on(run, 0), softmax.first.outputs[0])
    exp = next(n for n in run.needed if n.kind == "exp")
    assert Ref(chain=exp.chain, kind="exp").on(run, 7) is exp.value
    assert Ref(chain=exp.chain, kind="exp", step=1).on(run, 0) is None
    np.testing.assert_array_equal(
        Ref(name="x", of=np.abs).on(run, 0), np.abs(run.leaves["x"].value)
    )


def test_likeness_lets_through_what_came_and_nothing_else(softmax):
    like = Match(softmax.first, "x")
    came = 2 * softmax.first.ct[0]
    assert like(came)
    assert not like(None)
    assert not like(softmax.first.right["x"])
    assert not like(came[:, :-1])
    off = came.copy()
    off[0, 0] *= 1 + 1e-6
    assert not like(off)


def test_turns_of_a_loop_are_meant_together_or_at_an_end():
    found = scene("wkv", lambda ct, w, *rest, **attrs: tuple(2 * p for p in (w, *rest)), "w")
    run = Run(found.first, "w")
    last = next(n for n in reversed(run.needed) if n.turn > 1)
    node = next(n for n in run.needed if n.chain == last.chain and n.turn == 0)
    meant = [len(target.on(run)) for target in targets(node, run)]
    assert meant[0] > 1
    assert meant[-1] == 1
