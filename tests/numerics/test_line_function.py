"""Directions that are never stored, and a tensor that is moved in place and put back."""

import contextlib
import itertools
import tracemalloc

import numpy as np
import pytest

from gradcheck.numerics.draw import CHUNK, direction
from gradcheck.numerics.line_function import Given, Heading, Ray, Scalar, Segment, unit_of

F64, F32 = np.dtype(np.float64), np.dtype(np.float32)


def whole(key, start, stop, dtype=F64):
    return np.concatenate([d.copy() for d in direction(key, start, stop, dtype)])


def ray(tensor, function=lambda: 0.0, gradient=None, uphill=False, **changes):
    given = Given.of(np.zeros_like(tensor) if gradient is None else gradient)
    options = {"unit": 1.0, "start": 0, "stop": tensor.size} | changes
    heading = Heading(options.pop("key", 7), uphill)
    return Ray(tensor, given, heading, value=Scalar(function), **options)


@pytest.mark.parametrize("start", [0, 1, 15, 16, 17, 33_000, 2 * CHUNK - 1])
def test_any_part_of_a_direction_can_be_had_alone(start):
    stop = 3 * CHUNK + 5
    assert np.array_equal(whole(7, start, stop), whole(7, 0, stop)[start:])


def test_a_direction_is_dense_of_both_signs_and_the_same_in_both_dtypes():
    d = whole(7, 0, 100_000)
    assert np.array_equal(d, whole(7, 0, 100_000, F32))
    assert 0.5 <= np.abs(d).min() <= 0.501
    assert 1.499 <= np.abs(d).max() <= 1.5
    assert abs(d.mean()) < 0.02
    assert abs(np.mean(d**2) - 13 / 12) < 0.01
    assert np.abs(np.corrcoef(d[:-1], d[1:])[0, 1]) < 0.02
    assert not np.array_equal(d, whole(8, 0, 100_000))


def test_two_equal_errors_hardly_ever_cancel():
    sums = [abs(float(whole(key, 0, 2).sum())) for key in range(4000)]
    assert np.mean(np.array(sums) < 1e-3) < 0.005


def strange_bits(dtype):
    """Zeros of both signs, subnormals, NaN with payloads, infinities, and ordinary numbers."""
    words = np.array([0, 1, 2, 3], dtype="u4" if dtype == F32 else "u8")
    x = np.zeros(64, dtype)
    x.view(words.dtype)[:4] = words
    x[4] = -0.0
    quiet = 0x7FC12345 if dtype == F32 else 0x7FF8000012345678
    x.view(words.dtype)[5:7] = quiet, quiet + 77
    x[7:9] = np.inf, -np.inf
    x[9:] = np.random.default_rng(0).normal(size=55)
    return x


@pytest.mark.parametrize("dtype", [F64, F32])
@pytest.mark.parametrize("error", [None, ValueError, KeyboardInterrupt, SystemExit])
def test_a_tensor_is_put_back_bit_by_bit_whatever_happens(dtype, error):
    x = strange_bits(dtype)
    before, calls = x.tobytes(), []

    def function():
        calls.append(x.tobytes())
        if error is KeyboardInterrupt:
            raise error
        if error is not None and len(calls) > 1:
            raise error("no")
        return 1.0

    line = ray(x, function)
    if error is KeyboardInterrupt:
        with pytest.raises(error), line:
            line.pair(0.25)
    else:
        with np.errstate(all="ignore"), line:
            pair = line.pair(0.25)
        assert np.isnan(pair.below) == (error is not None)
    assert x.tobytes() == before
    assert all(seen != before for seen in calls)


def test_only_the_run_is_moved_and_by_the_same_direction():
    x = np.zeros(50)
    seen = []
    line = ray(x, lambda: seen.append(x.copy()) or 0.0, start=20, stop=33, unit=2.0)
    with line:
        line.pair(0.5)
    d = whole(7, 0, 50)
    d[:20] = d[33:] = 0
    assert np.array_equal(seen, [d, -d])
    assert not x.any()


@pytest.mark.parametrize("dtype", [F64, F32])
def test_the_gradient_is_multiplied_by_what_the_machine_moved(dtype):
    draw = np.random.default_rng(1)
    x = (1000 + draw.normal(size=70_000)).astype(dtype)
    g = draw.normal(size=x.size).astype(dtype)
    ends = []
    line = ray(x, lambda: ends.append(x.astype(np.float64)) or 0.0, g)
    with line:
        pair = line.pair(1e-3)
    nominal = 2e-3 * float(whole(7, 0, x.size) @ g.astype(np.float64))
    exact = float(g.astype(np.float64) @ (ends[0] - ends[1]))
    assert pair.given == pytest.approx(exact, rel=1e-12)
    assert (pair.given != pytest.approx(nominal, rel=1e-6)) == (dtype == F32)


def test_a_ray_that_is_not_open_moves_nothing():
    with pytest.raises(RuntimeError, match="inside `with`"):
        ray(np.ones(3)).pair(0.1)


def test_buffers_of_one_gradient_are_summed():
    a, b = np.arange(5.0), np.array([2.0, -1, 0, 1, 5])
    assert np.array_equal(Given.of([a, b]).part(1, 4), (a + b)[1:4])
    assert np.array_equal(Given.of(a.reshape(5, 1)).part(0, 5), a)
    assert np.array_equal(Given.of(np.arange(10.0)[::2]).part(0, 5), np.arange(0, 10, 2))


def test_uphill_takes_the_gradients_signs_where_it_has_one():
    g = np.array([1.0, -2.0, 0.0, 3.0, -1e-300, 0.0])
    line = ray(np.zeros(6), gradient=g, key=3, uphill=True, unit=2.0)
    d = whole(3, 0, 6)
    expected = np.where(g == 0, d, np.copysign(d, g))
    product, norm = line.products()
    assert product == pytest.approx(2 * float(expected @ g))
    assert norm == pytest.approx(2 * float(np.linalg.norm(expected * g)))
    assert [line.width(i) for i in range(6)] == pytest.approx(2 * expected)


@pytest.mark.parametrize(
    ("values", "single"),
    [
        ([0.5], False),
        ([0.5] * 9, False),
        ([0.5, 0.25, 0.125], True),
        ([0.5, 0.25, 0.125, 0.1], False),
        ([float(np.float32(x)) for x in (0.1, 0.2, 0.3)], True),
        ([np.float32(0.1)], True),
        ([np.array(0.1, np.float32)], True),
        ([np.float64(0.1), 1e300, np.nan], False),
    ],
)
def test_a_scalar_shows_in_which_precision_it_was_rounded(values, single):
    left = iter(values)
    scalar = Scalar(lambda: next(left))
    for _ in values:
        scalar()
    assert scalar.u == (2.0**-24 if single else 2.0**-53)


def test_a_scalar_counts_and_refuses():
    values = iter([0.1, ValueError("outside"), 0.3])

    def function():
        value = next(values)
        if isinstance(value, Exception):
            raise value
        return value

    scalar = Scalar(function)
    assert scalar() == 0.1
    assert np.isnan(scalar())
    assert scalar.refusal == "ValueError: outside"
    assert scalar() == 0.3
    assert scalar.evaluations == 3


@pytest.mark.parametrize(
    ("x", "unit"),
    [
        (np.zeros(4), 1.0),
        (np.zeros(0), 1.0),
        (np.full(70_000, -3.0), 3.0),
        (np.array([1e-30, -1e-30], np.float32), 1e-30),
        (np.array([1e300, -1e300]), 1e300),
        (np.array([3.0, 4.0, np.inf]), 1.0),
    ],
)
def test_the_unit_of_a_tensor(x, unit):
    assert unit_of(x) == pytest.approx(unit, rel=1e-6)


def test_a_pair_takes_one_copy_of_the_tensor_and_a_few_chunks():
    x, g = np.ones(2_000_000, np.float32), np.ones(2_000_000, np.float32)
    line = ray(x, gradient=g)
    tracemalloc.start()
    try:
        with line:
            line.products()
            line.pair(0.1)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak <= x.nbytes + 2**21


@pytest.mark.parametrize("uphill", [False, True])
@pytest.mark.parametrize("dtype", [F64, F32])
def test_the_shards_of_a_tensor_move_as_the_whole_does(dtype, uphill):
    """However it is cut: each part knows only its own numbers, and sums add up."""
    draw = np.random.default_rng(0)
    x, g = (draw.normal(size=CHUNK + 77).astype(dtype) for _ in range(2))
    options = {"heading": Heading(7, uphill), "unit": 0.5}
    whole_x = x.copy()
    whole = Segment(whole_x, Given.of(g), start=5, stop=x.size - 3, **options)
    cuts = [0, 1000, 1001, CHUNK + 3, x.size]
    parts = []
    for start, stop in itertools.pairwise(cuts):
        within = {"start": max(5 - start, 0), "stop": min(x.size - 3, stop) - start}
        given = Given.of(g[start:stop])
        parts.append(Segment(x[start:stop].copy(), given, offset=start, **within, **options))
    with whole, contextlib.ExitStack() as stack:
        for part in parts:
            stack.enter_context(part)
            part.move(0.25)
        whole.move(0.25)
        assert np.array_equal(np.concatenate([p.tensor for p in parts]), whole_x)
        assert np.isclose(sum(p.move_back(0.25) for p in parts), whole.move_back(0.25), rtol=1e-9)
        assert np.array_equal(np.concatenate([p.tensor for p in parts]), whole_x)
        np.testing.assert_allclose(np.sum([p.sums() for p in parts], axis=0), whole.sums(), 1e-9)
        assert parts[2].width(9) == whole.width(1001 + 9)
    assert np.array_equal(np.concatenate([p.tensor for p in parts]), x)


@pytest.mark.parametrize(("dtype", "u"), [("float32", 2.0**-24), ("float64", 2.0**-53)])
def test_a_gradient_rounds_as_its_dtype_does_and_is_the_sum_of_its_buffers(dtype, u):
    given = Given.of([np.array([[1.0, 2.0]], dtype), np.array([[0.5, -4.0]], dtype)])
    assert given.u == u
    assert given.part(0, 2).tolist() == [1.5, -2.0]
    assert given.part(1, 2).tolist() == [-2.0]
