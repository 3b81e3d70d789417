"""A large gradient is screened by one pair per colour: nothing slips through, nobody is accused.

`python tests/judge/test_screened.py` prints the figures of docs/adr/0031.
"""

import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parent))
from screening import HARD, ORDINARY, drawn, layer, layer_vjp, softmax, softmax_vjp

from gradcheck import Verdict, check
from gradcheck.judge.call import vjp_rows_at
from gradcheck.judge.compare import TOLERANCES
from gradcheck.judge.conditioning import Conditioning
from gradcheck.judge.cotangents import draw_cotangents
from gradcheck.judge.primal_check import PrimalCheck
from gradcheck.numerics import coarse_pass as screening
from gradcheck.numerics import sparsity
from gradcheck.numerics.coarse_pass import SMALLEST, screen
from gradcheck.numerics.draw import Draw
from gradcheck.numerics.estimator import Differences, NoiseProbe
from gradcheck.numerics.evaluate import Evaluator, Point, flatten

U = 2.0**-53
SEEN = 2.0**-35
"""The part of the largest Σ|ct·J| below which values do not show a hundredth of an element: they
show 2^-43 of it (`function.UNSEEN`)."""
SEEDS = 5


@dataclass
class Tally:
    """Elements; those outside the screen's bar; planted errors; those missed; right ones failed."""

    elements: int = 0
    outside: int = 0
    planted: int = 0
    missed: int = 0
    accused: int = 0

    @property
    def coverage(self):
        return 1 - self.outside / self.elements

    @property
    def honest(self):
        return self.outside <= self.elements / 1000

    @property
    def sees(self):
        return self.planted > 0 and self.missed <= self.planted / 1000


def boxes(name, seed):
    """Per large primal: its differences, the right gradients [q, n], and a judge of others."""
    forward, vjp, primals = drawn(name, seed)
    point = Point(lambda *p: (np.asarray(forward(*p)),), primals)
    outputs = point.forward(*primals)
    cts = draw_cotangents(Draw(seed, name), [o.shape for o in outputs])
    answers = [vjp(ct[0], *primals) for ct in cts.values]
    rows = [a if isinstance(a, tuple) else (a,) for a in answers]
    conditioning = Conditioning(vjp_rows_at(vjp, cts, {}), point, TOLERANCES["float64"])
    for i, primal in enumerate(primals):
        if primal.size < SMALLEST:
            continue
        right = np.stack([np.reshape(row[i], -1) for row in rows])

        def judged(got, i=i):
            box = PrimalCheck(point, i, "x", cts, NoiseProbe(point, outputs), conditioning)
            box.judge(got)
            return box._truth._compare(got, TOLERANCES["float64"], [])

        yield Differences(point, i, cts.flat, NoiseProbe(point, outputs)), right, judged


def measure(name, seeds, sizes=(0.1, 0.01)):
    tally = Tally()
    for seed in seeds:
        for differences, right, judged in boxes(name, seed):
            rng = np.random.default_rng(seed)
            found = differences.estimate
            largest = found.scale.max(axis=1, keepdims=True)
            # The gradients that it is held against are rounded themselves.
            rounding = 64 * U * np.maximum(np.abs(right), found.scale + 0.1 * largest)
            inside = np.abs(right - found.value) <= found.bar + rounding
            tally.elements += right.size
            tally.outside += int((~inside).sum())
            tally.accused += int(judged(right).failed.sum())
            for size in sizes:
                planted = rng.random(right.shape[1]) < 0.02
                planted[rng.integers(right.shape[1])] = True
                result = judged(np.where(planted, right * (1 + size), right))
                seen = planted & (np.abs(right) > SEEN * largest)
                tally.planted += int(seen.sum())
                tally.missed += int((seen & ~result.failed).sum())
                tally.accused += int((result.failed & ~planted).sum())
    return tally


# ── honest bars, errors that are seen, nobody accused ────────────────────────────────────────


@pytest.mark.suite(keep=5, rest=10)
@pytest.mark.parametrize("name", [*ORDINARY, *HARD])
def test_the_screen_is_honest_sees_and_accuses_nobody(name):
    tally = measure(name, range(1), sizes=(0.01,))
    assert tally.elements >= 192
    assert tally.outside <= max(1, tally.elements / 1000), tally
    assert tally.sees, tally
    assert not tally.accused, tally


@pytest.mark.soak
@pytest.mark.parametrize("name", [*ORDINARY, *HARD])
def test_the_screen_is_honest_sees_and_accuses_nobody_at_many_seeds(name):
    tally = measure(name, range(SEEDS))
    assert tally.honest, tally
    assert tally.sees, tally
    assert not tally.accused, tally


def test_narrower_bars_would_be_caught(monkeypatch):
    original = screening._Pilot.sweep

    def narrow(self):
        found = original(self)
        found[1] /= 200
        return found

    monkeypatch.setattr(screening._Pilot, "sweep", narrow)
    assert not measure("softmax", range(1), sizes=(0.01,)).honest


@pytest.mark.slow(keep=1, rest=4)
@pytest.mark.parametrize("name", ORDINARY)
def test_right_gradients_pass_and_a_doubled_element_fails(name):
    forward, vjp, primals = drawn(name, 7)
    assert check(forward, vjp, *primals, full=True).ok

    def wrong(ct, *primals):
        gradients = vjp(ct, *primals)
        first = np.array(gradients[0] if isinstance(gradients, tuple) else gradients)
        first.reshape(-1)[first.size // 3 + 5] *= 2
        return (first, *gradients[1:]) if isinstance(gradients, tuple) else first

    found = check(forward, wrong, *primals, full=True).findings[0]
    assert found.verdict is Verdict.FAIL
    assert 1 <= found.failed <= 3
    (worst, *_) = found.worst
    assert np.ravel_multi_index(worst.index, primals[0].shape) == primals[0].size // 3 + 5
    assert abs(worst.got - 2 * worst.want) <= 1e-7 * abs(worst.want)
    assert worst.error_bar <= 1e-6 * abs(worst.want)


# ── what the screen costs ────────────────────────────────────────────────────────────────────


def counted(name, seed=0):
    """Copies of the first primal that the screen evaluates, its colours, and its size."""
    forward, _, primals = drawn(name, seed)
    copies = []

    def counting(*p):
        copies.append(p[0].size // primals[0].size)
        return (np.asarray(forward(*p)),)

    point = Point(counting, primals)
    outputs = (np.asarray(forward(*primals)),)
    it = Differences(point, 0, np.ones((1, outputs[0].size)), NoiseProbe(point, outputs))
    total = sum(copies)
    return total, sparsity.near(it.evaluator, *_steps(primals[0]))[0].colours, primals[0].size


def _steps(x, size=2.0**-10):
    flat = x.reshape(1, -1)
    return flat + size * screening._signs(x.size), flat - size * screening._signs(x.size)


@pytest.mark.parametrize(
    ("name", "colours"), [("softmax", 32), ("layer_norm", 64), ("matmul", 24), ("gelu", 1)]
)
def test_it_costs_two_copies_per_colour_and_few_for_the_pilot(name, colours):
    total, found, size = counted(name)
    assert found == colours
    assert total <= 2 * colours + 24 + 3 + 2 * size.bit_length()


def test_without_structure_it_costs_two_copies_per_element_and_a_pilot():
    total, _, size = counted("cross_entropy")
    assert size == 640
    assert total <= 2 * size + 6 * 8 + 4


def test_what_agrees_costs_nothing_more_than_the_screen():
    forward, vjp, primals = drawn("layer_norm", 3)
    asked = []
    right = check(lambda *p: asked.append(1) or forward(*p), vjp, *primals, full=True)
    assert right.ok
    assert len(asked) <= 20  # two at first; per primal a probe, its first copy alone, pilot, sweep


# ── structures and stacks that lie ───────────────────────────────────────────────────────────


@pytest.mark.slow
def test_a_structure_that_hides_mixing_accuses_nobody(monkeypatch):
    x = np.random.default_rng(0).standard_normal((4, 16))

    def mixed(x):  # every row moves with the next one
        return np.sin(x) + 0.5 * np.roll(x, 1, axis=-2)

    def vjp(ct, x):
        return ct * np.cos(x) + 0.5 * np.roll(ct, -1, axis=0)

    def rowwise(evaluator, above, below):
        owner = np.repeat(np.arange(4), 16)
        copies = np.concatenate([above, below, x.reshape(1, -1)]).reshape(3, *x.shape)
        moved = evaluator.first_values(copies, 2)
        return sparsity._arrange(evaluator.x, {0: owner}, 64), moved[:1] - moved[1:2]

    monkeypatch.setattr(sparsity, "near", rowwise)
    assert check(mixed, vjp, x, full=True).ok
    for forgets in (lambda ct, x: ct * np.cos(x), lambda ct, x: ct * (np.cos(x) + 0.5)):
        assert check(mixed, forgets, x, full=True).verdict is Verdict.FAIL


def test_a_stack_that_is_right_for_the_first_copy_alone_accuses_nobody():
    x = np.random.default_rng(0).standard_normal(60)

    def first_only(x):  # of a stack it understands the first copy
        out = np.tanh(x)
        if x.ndim > 1:
            out[1:] = out[1:] * 1.001
        return out

    assert check(first_only, lambda ct, x: ct / np.cosh(x) ** 2, x, full=True).ok


def test_a_stack_that_is_right_for_the_primal_itself_alone_accuses_nobody():
    x = np.random.default_rng(0).standard_normal(60)

    def itself_only(p):
        out = np.tanh(p)
        if p.ndim > 1:
            out[~(p == x).all(axis=-1)] *= 1.001
        return out

    assert check(itself_only, lambda ct, x: ct / np.cosh(x) ** 2, x, full=True).ok


def test_a_stack_whose_copies_all_give_what_the_primal_gives_proves_nothing():
    x = np.random.default_rng(0).standard_normal((6, 10))

    def deaf(p):  # to what a stack holds
        return np.tanh(p) if p.ndim == 2 else np.broadcast_to(np.tanh(x), p.shape)

    evaluator = Evaluator(Point(lambda p: (deaf(p),), (x,)), 0, (deaf(x),))
    copies = np.stack([x + 0.5, x - 0.5, x])
    moved = evaluator.first_values(copies, 2)
    assert not evaluator.stacked
    np.testing.assert_array_equal(moved, np.tanh(copies).reshape(3, -1))
    assert check(deaf, lambda ct, x: ct / np.cosh(x) ** 2, x, full=True).ok
    assert check(deaf, lambda ct, x: 0 * ct, x, full=True).verdict is Verdict.FAIL


def shared(at):
    """Sequences of one step whose state x[at] is returned besides; its cotangent is forgotten."""
    return lambda x: (2 * x, x[at]), lambda ct, x: 2 * ct[0], (1, 60)


WEIGHTS = np.random.default_rng(3).standard_normal(60)


@pytest.mark.slow(keep=1, rest=4)
@pytest.mark.parametrize(
    ("forward", "forgets", "shape"),
    [
        shared(-1),
        shared(0),
        (lambda x: x * x[-1], lambda ct, x: ct * x[-1], (60,)),
        (lambda x: x * x[0], lambda ct, x: ct * x[0], (60,)),
        (lambda x: x - x[-1], lambda ct, x: 1 * ct, (60,)),
        (lambda x: x - x.mean(0), lambda ct, x: 1 * ct, (6, 10)),
        (lambda x: ((x - x[-1]) * WEIGHTS).sum(-1), lambda ct, x: ct * WEIGHTS, (60,)),
        (lambda x: ((x - x.mean(0)) * WEIGHTS).sum(-1), lambda ct, x: ct * WEIGHTS, (60,)),
    ],
)
def test_copies_that_share_the_value_of_one_hide_no_term(forward, forgets, shape):
    x = np.ones(shape)  # of which x[0], x[-1] and the mean are what every row is
    assert check(forward, forgets, x, full=True).verdict is Verdict.FAIL


def test_zeros_prove_no_stack():
    x, product = np.zeros(60), lambda x: x * x[-1]  # whatever x[-1] is taken for, it is zero
    evaluator = Evaluator(Point(lambda x: (product(x),), (x,)), 0, (product(x),))
    copies = x + np.array([1.0, 2.0, 0.0, 3.0])[:, None]
    values = evaluator.first_values(copies, 2)
    assert not evaluator.stacked
    np.testing.assert_array_equal(values, np.tile([[1.0], [4.0], [0.0], [9.0]], 60))


def test_a_stack_in_which_nothing_moves_is_believed_where_nothing_does():
    x = np.random.default_rng(0).standard_normal((6, 10))
    evaluator = Evaluator(Point(lambda p: (np.sign(p),), (x,)), 0, (np.sign(x),))
    evaluator.first_values(np.stack([x * 1.5, x, x * 0.5]), 1)
    assert evaluator.stacked


def test_a_primal_with_fewer_axes_is_stacked_where_all_have_as_many():
    rng = np.random.default_rng(0)
    x, w = rng.standard_normal((4, 50)), rng.standard_normal(50)
    ranks = []

    def scaled(x, w):
        ranks.append(w.ndim)
        return (x * w,)

    evaluator = Evaluator(Point(scaled, (x, w)), 1, scaled(x, w))
    values = evaluator.first_values(np.stack([w + 0.5, w, w - 0.5]), 1)
    np.testing.assert_array_equal(values[0], (x * (w + 0.5)).reshape(-1))
    assert ranks == [1, 3]  # no layout was refused first


def test_a_forward_that_writes_into_later_stacks_is_evaluated_one_by_one():
    x = np.random.default_rng(0).standard_normal((8, 40))

    def scribbles(x):
        if x.ndim > 2 and len(x) > 16:
            x *= 1.0
            x += 1.0
        return softmax(x)

    assert check(scribbles, softmax_vjp, x, full=True).ok


# ── structure from one kind of probe ─────────────────────────────────────────────────────────


def near(function, x):
    evaluator = Evaluator(Point(lambda x: (np.asarray(function(x)),), (x,)), 0, (function(x),))
    return sparsity.near(evaluator, *_steps(x))


@pytest.mark.parametrize(
    ("function", "colours"),
    [
        (np.tanh, 1),
        (softmax, 7),
        (lambda x: np.cumsum(x, axis=-2), 5),
        (lambda x: x.sum(axis=-1), 7),
        (lambda x: x + x[..., ::-1], 7),
        (lambda x: np.tanh(x) + 1e-3 * x.sum(axis=(-1, -2), keepdims=True), 35),
        (lambda x: np.where(x > 9, 1.0, 0.0), 1),  # nothing moves
        (lambda x: x / np.where(np.isnan(x).any(), 1.0, 1.0), 1),
    ],
)
def test_axes_that_mix_are_found(function, colours):
    x = np.random.default_rng(0).standard_normal((5, 7))
    found, moved = near(function, x)
    assert found.colours == colours
    above, below = _steps(x)
    both = [np.asarray(function(p.reshape(5, 7))).reshape(-1) for p in (above, below)]
    np.testing.assert_array_equal(moved, [both[0] - both[1]])
    assert sorted(found.grid.reshape(-1)) == list(range(35))


def test_an_output_answers_for_the_slice_that_moves_it():
    x = np.random.default_rng(0).standard_normal((6, 4))
    found, _ = near(lambda x: np.exp(x[..., ::-1, :]), x)
    assert found.colours == 1
    assert found.owner.tolist() == np.arange(24).reshape(6, 4)[::-1].reshape(-1).tolist()


@pytest.mark.parametrize("function", [np.tanh, softmax, lambda x: np.cumsum(x, axis=-2)])
@pytest.mark.parametrize("shape", [(5, 7), (3, 4, 5), (48,)])
def test_values_by_colour_and_block_go_back_to_their_elements(function, shape):
    if function is not np.tanh and len(shape) == 1:
        shape = (1, *shape)
    x = np.random.default_rng(0).standard_normal(shape)
    found, _ = near(function, x)
    np.testing.assert_array_equal(found.by_element(found.grid), np.arange(x.size))
    both = np.stack([found.grid, -found.grid])
    np.testing.assert_array_equal(found.by_element(both), [np.arange(x.size), -np.arange(x.size)])
    assert not np.shares_memory(found.by_element(both), both)


# ── the parts ────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("shape", [(5, 7), (35,), (7, 5, 1)])
@pytest.mark.parametrize("function", [np.tanh, softmax, lambda x: np.stack([x, 2 * x], axis=-1)])
def test_sums_by_block_are_those_of_the_structure(function, shape):
    x = np.random.default_rng(0).standard_normal(shape)
    found, _ = near(function, x)
    rng = np.random.default_rng(1)
    cts = rng.standard_normal((3, found.owner.size))
    moved = rng.standard_normal((4, found.owner.size))
    sums, sizes = screening.Contraction(found, cts)(moved)
    weighted = cts[:, None] * moved
    np.testing.assert_allclose(sums, found.by_block(weighted), rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(sizes, found.by_block(np.abs(weighted)), rtol=1e-12)


@pytest.mark.parametrize("one", [softmax, np.tanh])
def test_blocks_without_outputs_have_no_sum(one):
    def masked(x):  # rows 0 and 3 move nothing
        return one(x) * (np.arange(5) % 3 > 0)[:, None]

    x = np.random.default_rng(0).standard_normal((5, 7))
    found, _ = near(masked, x)
    assert len(found.present) == found.blocks * 3 // 5
    assert found.outputs.sum() == 21
    rng = np.random.default_rng(1)
    cts, moved = rng.standard_normal((3, 35)), rng.standard_normal((4, 35))
    summing = screening.Contraction(found, cts)
    weighted = cts[:, None] * moved
    for got, values in zip(summing(moved), (weighted, np.abs(weighted)), strict=True):
        np.testing.assert_allclose(got, found.by_block(values), rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(summing.by_block(cts), found.by_block(cts), atol=1e-12)


@pytest.mark.parametrize("count", [3, 64, 5000])
def test_pairs_move_what_they_are_told_and_nothing_else(count):
    x = np.random.default_rng(0).standard_normal(count)
    evaluator = Evaluator(Point(lambda x: (np.asarray(2 * x),), (x,)), 0)
    some = min(count, 40)
    cells = np.arange(count)[:some, None]
    above, below = x[cells] + 0.5, x[cells] - 0.25
    rows = np.concatenate([d for _, d in evaluator.pairs(cells, above, below)])
    expected = np.zeros((some, count))
    expected[np.arange(some), np.arange(some)] = 2 * (above - below)[:, 0]
    np.testing.assert_array_equal(rows, expected)


def test_every_element_of_a_flat_primal_has_its_turn():
    x = np.random.default_rng(0).standard_normal(700)
    evaluator = Evaluator(Point(lambda x: (np.asarray((x * x).sum(axis=-1)),), (x,)), 0)
    cells = np.arange(700)[:, None]
    above, below = x[cells] + 0.5, x[cells] - 0.5
    rows = np.concatenate([d for _, d in evaluator.pairs(cells, above, below)])
    np.testing.assert_allclose(rows[:, 0], 2 * x, rtol=1e-10, atol=1e-10)


def test_signs_follow_no_rule_and_never_change():
    signs = screening._signs(4096)
    assert (np.abs(signs) <= 1).all()
    assert (np.abs(signs) > 15 / 16).all()
    assert np.unique(np.abs(signs)).size > 0.9 * signs.size  # balanced signs add up to no zero
    for lag in (0, 1, 2, 3, 16, 64, 1024):
        product = signs[lag:] * signs[: signs.size - lag] if lag else signs
        assert abs(product.mean()) < 0.06
    assert signs[:8].tolist() == screening._signs(8).tolist()


@pytest.mark.parametrize("at", ["nowhere", "half"])
def test_a_forward_that_refuses_steps_leaves_the_bars_infinite(at):
    x = np.random.default_rng(0).uniform(1, 2, 60)

    def refuses(y):
        if at == "nowhere" and not np.array_equal(y, x):
            raise ValueError("nowhere else")
        return np.where(np.arange(60) < 30, np.where(y == x, y, np.nan), np.sqrt(y))

    point = Point(lambda y: (refuses(y),), (x,))
    found = screen(Evaluator(point, 0, point.forward(x)), np.ones((1, 60)))
    lost = slice(None) if at == "nowhere" else slice(30)
    assert np.isinf(found.bar[0, lost]).all()
    if at == "half":
        rest = found.value[0, 30:] - 0.5 / np.sqrt(x[30:])
        assert np.all(np.abs(rest) <= found.bar[0, 30:])


@pytest.mark.slow(rest=0)
def test_kinks_beside_the_point_are_left_to_the_ladder():
    rng = np.random.default_rng(0)
    x, w = rng.standard_normal((1, 64)), rng.standard_normal((64, 128)) / 8
    w[:, 5] -= x[0] * ((x @ w)[0, 5] - 1e-7) / (x @ x.T)[0, 0]  # column 5 is 1e-7 from its kink
    assert abs((x @ w)[0, 5] - 1e-7) < 1e-12
    assert check(layer, layer_vjp, x, w, full=True).ok


def test_differences_know_what_was_only_screened():
    forward, _, primals = drawn("softmax", 0)
    point = Point(lambda x: (forward(x),), primals)
    cts = np.ones((1, 512))
    it = Differences(point, 0, cts, NoiseProbe(point))
    assert it.estimate.screened.all()
    before = it.estimate.value.copy()
    assert it.sharpen(np.array([3, 40]))
    assert np.flatnonzero(~it.estimate.screened).tolist() == [3, 40]
    rest = it.estimate.screened
    assert np.array_equal(it.estimate.value[:, rest], before[:, rest])
    assert not it.sharpen(np.array([3, 40]))
    it.refine(np.array([3]))
    assert np.array_equal(it.estimate.value[:, rest], before[:, rest])


def test_small_primals_and_float32_are_not_screened():
    small = np.ones(SMALLEST - 1)
    for x in (small, np.ones(SMALLEST, dtype=np.float32)):
        point = Point(lambda x: (np.tanh(x),), (x,))
        it = Differences(point, 0, np.ones((1, x.size)), NoiseProbe(point))
        assert not it.estimate.screened.any()
        assert flatten(point.forward(x)).size == it.evaluator.base.size


# ── the figures ──────────────────────────────────────────────────────────────────────────────


def table():
    lines = [
        "| input | elements | outside their bar | coverage | planted errors | missed | accused |",
        "|---|---:|---:|---:|---:|---:|---:|",
    ]
    for name in [*ORDINARY, *HARD]:
        t = measure(name, range(SEEDS))
        cells = f"{t.elements:,} | {t.outside} | {t.coverage:.5f} | {t.planted:,} | {t.missed}"
        lines.append(f"| {name} | {cells} | {t.accused} |")
    return "\n".join(lines)


if __name__ == "__main__":
    sys.stdout.write(table() + "\n")
