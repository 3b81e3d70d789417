"""The rules against facts derived by hand, PyTorch, and the matrices that L-BFGS stands for."""

from functools import cache

import gradcheck_cases
import numpy as np
import pytest
from gradcheck_cases.optimizer import adam, adamw, clip, dot, lbfgs, pairs_of, sgd, two_loop

from gradcheck.implementations.reference import Reference
from gradcheck.judge.rule import certified_rule, judge_rule
from gradcheck.judge.rule_truth import RuleTruth
from gradcheck.numerics.arithmetic import F64
from gradcheck.numerics.draw import Draw
from gradcheck.numerics.fifty_digit_arithmetic import mp50
from gradcheck.power.rule import kills, rule_mutants_of
from gradcheck.results.verdict import Verdict
from tests.sizes import few

SUITE = gradcheck_cases.SUITE
CASES = SUITE.rule_cases()
MUTANTS = rule_mutants_of(SUITE)


@cache
def truth_of(name):
    return RuleTruth(next(case for case in CASES if case.name == name))


def tensors(seed, *shape):
    draw = Draw("optimizer", seed)
    return {"w": draw.signed(*(shape or (3, 4))), "b": draw.signed(2), "s": draw.signed()}


def step(rule, params, grads, state=None, t=1, **attrs):
    state = rule.init(F64, params) if state is None else state
    return rule.update(F64, params, grads, state, t, **{**rule.defaults, **attrs})


def agree(a, b, rtol=1e-14):
    assert a.keys() == b.keys()
    for name in a:
        np.testing.assert_allclose(np.asarray(a[name]), np.asarray(b[name]), rtol=rtol, atol=1e-300)


# ── the suite's own text ─────────────────────────────────────────────────────────────────────


@pytest.mark.suite(keep=2, by="gradcheck run --rule '*'")
@pytest.mark.parametrize(  # `gradcheck run --rule '*'`, which CI runs, judges all of them, too
    "case", few(CASES, lambda case: case.sample.name == "typical"), ids=lambda case: case.name
)
def test_every_rule_passes_in_both_dtypes_and_its_samples_reject_something(case):
    truth = truth_of(case.name)
    for dtype in ("float64", "float32"):
        findings = certified_rule(truth, judge_rule(truth, Reference(), dtype), dtype)
        assert {f.verdict for f in findings} == {Verdict.PASS}
        moving = any(row.want.any() for rows in truth.rows(dtype).values() for row in rows)
        assert any(f.certificate.proves for f in findings) == moving


@pytest.mark.parametrize("rule", SUITE.rules.values(), ids=lambda rule: rule.name)
def test_every_rule_takes_at_least_20_steps_over_several_tensors(rule):
    for case in SUITE.rule_cases([rule.name]):
        assert case.sample.count >= 20
        assert len({p.shape for p in case.params.values()}) >= 4


@pytest.mark.suite(keep=2, by="gradcheck power --rule '*'")
@pytest.mark.parametrize(
    "mutant", [m for ms in MUTANTS.values() for m in ms], ids=lambda m: m.full_name
)
def test_every_wrong_update_is_rejected_by_the_sample_that_says_so(mutant):
    cases = SUITE.rule_cases([mutant.rule], [], [mutant.killer])
    [found] = kills([mutant], [truth_of(case.name) for case in cases])
    assert found.as_said


def test_every_rule_has_at_least_six_wrong_updates():
    assert all(len(mutants) >= 6 for mutants in MUTANTS.values())


# ── Adam and AdamW ───────────────────────────────────────────────────────────────────────────


def test_adams_first_step_has_the_size_of_the_learning_rate_whatever_the_gradient():
    params, grads = tensors(0), tensors(1)
    for scale in (2.0**-20, 1.0, 2.0**20):
        new, _ = step(adam, params, {n: g * scale for n, g in grads.items()}, lr=0.125, eps=0.0)
        agree(new, {n: p - 0.125 * np.sign(grads[n]) for n, p in params.items()})


def test_adam_does_not_divide_zero_by_zero():
    params = tensors(0)
    zero = {n: 0 * p for n, p in params.items()}
    agree(step(adam, params, zero)[0], params)


def test_adams_decay_goes_through_the_moments_and_adamws_does_not():
    params, grads = tensors(0), tensors(1)
    by_hand = {n: g + 0.25 * params[n] for n, g in grads.items()}
    agree(
        step(adam, params, grads, weight_decay=0.25)[0],
        step(adam, params, by_hand, weight_decay=0.0)[0],
    )
    decayed = {n: p * (1 - 1e-3 * 0.25) for n, p in params.items()}
    agree(
        step(adamw, params, grads, weight_decay=0.25)[0],
        step(adam, decayed, grads, weight_decay=0.0)[0],
    )


def test_the_two_places_of_eps_agree_where_it_is_zero_only():
    params, grads = tensors(0), tensors(1)
    same = [step(adam, params, grads, eps=0.0, eps_hat=hat)[0] for hat in (False, True)]
    agree(*same)
    apart = [step(adam, params, grads, eps=0.125, eps_hat=hat)[0]["w"] for hat in (False, True)]
    assert np.all(apart[0] != apart[1])


# ── SGD ──────────────────────────────────────────────────────────────────────────────────────


def test_the_first_step_is_not_dampened_and_the_second_is():
    params, grads = tensors(0), tensors(1)
    new, state = step(sgd, params, grads, dampening=0.5, lr=0.5)
    agree(new, {n: p - 0.5 * grads[n] for n, p in params.items()})
    _, later = step(sgd, params, grads, state, t=2, dampening=0.5, momentum=0.25)
    agree(later["buf"], {n: 0.75 * g for n, g in grads.items()})


def test_nesterov_looks_ahead_by_the_new_buffer():
    params, grads = tensors(0), tensors(1)
    new, _ = step(sgd, params, grads, lr=0.5, momentum=0.5, nesterov=True)
    agree(new, {n: p - 0.5 * 1.5 * grads[n] for n, p in params.items()})


# ── clipping ─────────────────────────────────────────────────────────────────────────────────


def test_gradients_above_the_norm_get_it_and_others_stay_as_they_are():
    grads = {"w": np.array([[3.0, 0.0]]), "b": np.array([0.0, 4.0])}
    clipped, _ = step(clip, grads, grads, max_norm=2.5)
    agree(clipped, {n: g / 2 for n, g in grads.items()})
    for limit in (5.0, 8.0):
        kept, _ = step(clip, grads, grads, max_norm=limit)
        assert all(np.array_equal(kept[n], g) for n, g in grads.items())


def test_pytorchs_eps_scales_at_the_norm_already():
    grads = {"w": np.array([3.0, 4.0])}
    clipped, _ = step(clip, grads, grads, max_norm=5.0, eps=1e-6)
    agree(clipped, {"w": grads["w"] * 5 / (5 + 1e-6)})


def test_zero_gradients_stay_zero():
    zero = {"w": np.zeros(3)}
    for eps in (0.0, 1e-6):
        agree(step(clip, zero, zero, eps=eps)[0], zero)


# ── L-BFGS ───────────────────────────────────────────────────────────────────────────────────


def flat(xp, named):
    return np.concatenate([np.ravel(np.asarray(a, dtype=object)) for a in named.values()])


def inverse_hessian(xp, pairs, size):
    """H by the BFGS formula (Nocedal & Wright 6.17), pair by pair from the oldest on."""
    newest = [flat(xp, part) for part in pairs[0]]
    scale = np.dot(*newest) / np.dot(newest[1], newest[1])
    h = xp.asarray(np.eye(size)) * scale
    for s, y in reversed([tuple(flat(xp, part) for part in pair) for pair in pairs]):
        rho = 1 / np.dot(y, s)
        left = xp.asarray(np.eye(size)) - rho * np.outer(s, y)
        h = left @ h @ left.T + rho * np.outer(s, s)
    return h


@pytest.mark.slow(keep=1)
@pytest.mark.parametrize("count", [1, 2, 3, 7])
def test_the_two_loops_are_the_explicit_inverse_hessian(count):
    xp = mp50()
    like = tensors(2)
    state = pairs_of(count)(Draw("pairs", count), like)
    pairs = [
        tuple({n: xp.asarray(a) for n, a in state[f"{of}.{k}"].items()} for of in "sy")
        for k in range(count)
    ]
    grads = {n: xp.asarray(g) for n, g in tensors(3).items()}
    vector = flat(xp, grads)
    wanted = inverse_hessian(xp, pairs, len(vector)) @ vector
    found = flat(xp, two_loop(xp, grads, pairs))
    size = max(abs(x) for x in wanted)
    assert all(abs(a - b) <= 1e-45 * size for a, b in zip(found, wanted, strict=True))


def test_without_a_history_the_direction_is_the_gradient():
    grads = tensors(1)
    agree(two_loop(F64, grads, []), grads)


def test_the_newest_pair_fulfils_the_secant_equation():
    state = pairs_of(4)(Draw("secant"), tensors(2))
    pairs = [(state[f"s.{k}"], state[f"y.{k}"]) for k in range(4)]
    agree(two_loop(F64, pairs[0][1], pairs), pairs[0][0], rtol=1e-12)


def run(count, slope, **attrs):
    """Steps with gradients slope·p: what is remembered at the end."""
    params, state = tensors(0), {}
    for t in range(1, count + 1):
        grads = {n: slope * p for n, p in params.items()}
        params, state = step(lbfgs, params, grads, state, t, **attrs)
    return state


def test_no_more_than_m_pairs_are_kept_the_newest_first():
    state = run(6, 1.0, m=3, lr=0.25)
    assert sorted(slot for slot in state if slot.startswith("s.")) == ["s.0", "s.1", "s.2"]
    sizes = [float(dot(F64, state[f"s.{k}"], state[f"s.{k}"])) for k in range(3)]
    assert sizes == sorted(sizes)  # steps become shorter


@pytest.mark.parametrize("slope", [-1.0, 0.0])
def test_a_pair_without_positive_curvature_is_skipped(slope):
    params, state = tensors(0), {}
    for t in (1, 2, 3):
        grads = {n: slope * p if slope else np.ones_like(p) for n, p in params.items()}
        params, state = step(lbfgs, params, grads, state, t, lr=0.25)
    assert set(state) == {"x", "g"}


def test_the_first_step_has_the_length_lr():
    params, grads = tensors(0), {n: 64 * g for n, g in tensors(1).items()}
    new, _ = step(lbfgs, params, grads, lr=0.5)
    moved = {n: p - params[n] for n, p in new.items()}
    np.testing.assert_allclose(dot(F64, moved, moved), 0.25, rtol=1e-12)


# ── PyTorch ──────────────────────────────────────────────────────────────────────────────────


@pytest.mark.frameworks(rest=len(CASES) // 2)
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_pytorchs_own_optimisers_pass(case):
    pytest.importorskip("torch")
    from gradcheck.implementations.torch import Torch

    torch = Torch(SUITE.peers["torch"])
    if torch.bind_rule(case, "float64") is None:
        assert case.dialect.name != "default" or case.spec.name in {"clip_norm", "lbfgs"}
        return
    for dtype in ("float64", "float32"):
        assert {f.verdict for f in judge_rule(truth_of(case.name), torch, dtype)} == {Verdict.PASS}
