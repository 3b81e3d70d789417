import ctypes

import numpy as np
import pytest

from gradcheck.errors import LoadError, Unsupported
from gradcheck.implementations.checked_call import bound_by
from gradcheck.implementations.returned import Broken, gradients
from gradcheck.judge.call import ask_forward, ask_vjp
from gradcheck.judge.contract.asking import Unasked, Unfit, Vacuous
from gradcheck.judge.operator_truth import Unsuitable
from gradcheck.results.finding import Finding
from gradcheck.results.verdict import Verdict

# y = (x · w)[index], a row per index; `scale` is an attribute.
NAMES = ("x", "w", "index")
X = np.linspace(-2.0, 2.0, 15).reshape(3, 5)
W = np.linspace(1.0, 3.0, 5)
INDEX = np.array([2, 0, 2, 1])
CTS = [(np.linspace(-k, 1.0, 20).reshape(4, 5),) for k in (1.0, 2.0, 3.0)]


def right_forward(x, w, index, *, scale=1.0):
    return scale * (x * w)[index]


def right(ct, x, w, index, *, scale=1.0):
    dy = np.zeros_like(x)
    np.add.at(dy, index, scale * ct)
    return dy * w, (dy * x).sum(axis=0), None


def asked(vjp, cts=CTS, primals=(X, W, INDEX), names=NAMES, attrs=None):
    return ask_vjp(vjp, cts, primals, names, attrs or {}).gradients


def broken_by(ask, *args):
    with pytest.raises(Broken) as caught:
        ask(*args)
    finding = caught.value.finding
    assert finding.verdict is Verdict.ERROR
    assert finding.compared == 0
    assert "\n" not in finding.reason
    return finding.name, finding.reason


# ── a VJP that keeps its contract ────────────────────────────────────────────────────────────


@pytest.mark.parametrize("scale", [1.0, -2.5])
def test_each_floating_primal_gets_a_row_per_cotangent(scale):
    found = asked(right, attrs={"scale": scale})
    assert list(found) == ["x", "w"]
    for row, (ct,) in enumerate(CTS):
        dx, dw, _ = right(ct, X, W, INDEX, scale=scale)
        np.testing.assert_array_equal(found["x"][row], dx.ravel())
        np.testing.assert_array_equal(found["w"][row], dw)


def test_it_is_called_once_per_cotangent_and_once_more_with_read_only_copies():
    calls = []

    def spy(ct, *primals):
        calls.append(ct)
        for given, original in zip(primals, (X, W, INDEX), strict=True):
            assert not given.flags.writeable
            assert not np.shares_memory(given, original)
            np.testing.assert_array_equal(given, original)
        assert not ct.flags.writeable
        return right(ct, *primals)

    asked(spy)
    assert [np.flatnonzero([np.array_equal(ct, c) for (c,) in CTS])[0] for ct in calls] == [
        0, 1, 2, 0,
    ]  # fmt: skip


def test_several_outputs_come_as_a_tuple_of_cotangents():
    def vjp(ct, x):
        assert isinstance(ct, tuple)
        return ct[0] * ct[1]

    cts = [(np.full(5, 2.0 + k), np.arange(5.0)) for k in range(3)]
    found = asked(vjp, cts, (W,), ("w",))
    np.testing.assert_array_equal(found["w"], [(2.0 + k) * np.arange(5) for k in range(3)])


@pytest.mark.parametrize("index_gradient", [None, INDEX, np.zeros(2), "anything", np.nan])
def test_nobody_asks_for_the_gradient_of_an_index(index_gradient):
    found = asked(lambda *args: (*right(*args)[:2], index_gradient))
    assert list(found) == ["x", "w"]


@pytest.mark.parametrize(
    "view",
    [
        lambda ct, x: x,
        lambda ct, x: ct,
        lambda ct, x: x[::-1],
        lambda ct, x: np.broadcast_to(x[0], x.shape),
        lambda ct, x: np.asfortranarray(x),
    ],
)
def test_a_read_only_view_of_an_argument_is_taken_by_its_numbers(view):
    cts = [(k * np.ones((3, 5)),) for k in (1.0, 2.0, 3.0)]
    found = asked(view, cts, (X,), ("x",))["x"]
    for row, (ct,) in zip(found, cts, strict=True):
        np.testing.assert_array_equal(row, view(ct, X).ravel())
    found[...] = 0  # ours alone
    assert X[0, 0] == -2.0


def test_a_buffer_that_every_call_reuses_keeps_the_numbers_of_each():
    buffer = np.empty_like(W)

    def vjp(ct, w):
        np.multiply(ct, w, out=buffer)
        return buffer

    cts = [(np.full(5, k),) for k in (1.0, 2.0, 3.0)]
    np.testing.assert_array_equal(asked(vjp, cts, (W,), ("w",))["w"], [W, 2 * W, 3 * W])


def test_no_number_is_a_number_here_and_floating_point_warnings_are_silent():
    found = asked(lambda ct, w: ct / (w - w), [(np.ones(5),), (np.zeros(5),)], (W,), ("w",))
    np.testing.assert_array_equal(found["w"], [[np.inf] * 5, [np.nan] * 5])


@pytest.mark.parametrize(
    ("dw", "verdict", "reason"),
    [
        (None, Verdict.MISSING, "no gradient for w"),
        (np.zeros((1, 5)), Verdict.FAIL, "shape (1, 5), w has (5,)"),
        (np.zeros((3, 5)), Verdict.FAIL, "shape (3, 5), w has (5,)"),
        (np.zeros(5, np.float32), Verdict.FAIL, "is float32, w is float64"),
        (np.zeros(5, int), Verdict.FAIL, "is int64, w is float64"),
        ("zeros", Verdict.FAIL, "is a str"),
        ([0.0, [0.0]], Verdict.FAIL, "is a list"),
        (object(), Verdict.FAIL, "is a object"),
    ],
)
def test_one_gradient_of_a_bad_form_does_not_spoil_the_other(dw, verdict, reason):
    found = asked(lambda *args: (right(*args)[0], dw, None))
    assert isinstance(found["w"], Finding)
    assert (found["w"].name, found["w"].verdict) == ("w", verdict)
    assert reason in found["w"].reason
    np.testing.assert_array_equal(found["x"], asked(right)["x"])


def test_a_gradient_of_a_shape_that_no_memory_holds_is_refused_uncopied():
    vast = np.broadcast_to(1.0, (10**6, 10**6))
    with pytest.raises(Broken) as caught:
        asked(lambda ct, x, w, index: (x, vast, None))
    finding = caught.value.finding
    assert (finding.name, finding.verdict) == ("w", Verdict.FAIL)
    assert "has shape (1000000, 1000000), w has (5,)" in finding.reason


def test_a_gradient_that_is_bad_under_one_cotangent_only_is_bad():
    calls = iter((0.0, None, 0.0, 0.0))
    found = asked(lambda ct, w: None if next(calls) is None else ct, [(W,)] * 3, (W,), ("w",))
    assert found["w"].verdict is Verdict.MISSING


# ── a VJP that breaks it ─────────────────────────────────────────────────────────────────────


class UnreadableError(Exception):
    def __str__(self):
        raise ValueError


def raising(error):
    def vjp(*args, **attrs):
        raise error

    return vjp


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (ValueError("shapes\n  differ"), "vjp raised ValueError: shapes differ"),
        (ZeroDivisionError(), "vjp raised ZeroDivisionError: no message"),
        (SystemExit(3), "vjp raised SystemExit: 3"),
        (GeneratorExit(), "vjp raised GeneratorExit: no message"),
        (MemoryError("big"), "vjp raised MemoryError: big"),
        (StopIteration(), "vjp raised StopIteration: no message"),
        (DeprecationWarning("old"), "vjp raised DeprecationWarning: old"),
        (LoadError("gone"), "vjp raised LoadError: gone"),
        (Unfit("elsewhere"), "vjp raised Unfit: elsewhere"),
        (Unasked("that"), "vjp raised Unasked: that"),
        (Vacuous("so"), "vjp raised Vacuous: so"),
        (Unsuitable("low"), "vjp raised Unsuitable: low"),
        (RecursionError("deep"), "vjp raised RecursionError: deep"),
        (UnreadableError(), "vjp raised UnreadableError: its text cannot be read"),
        *((Broken(Finding(name="x", verdict=verdict, reason="so it says")),
           "vjp raised Broken: so it says") for verdict in Verdict),
    ],
)  # fmt: skip
def test_whatever_it_raises_is_an_error_of_the_code_judged(error, reason):
    assert broken_by(asked, raising(error)) == ("vjp", reason)


def test_a_verdict_that_code_gives_itself_by_way_of_ours_is_none():
    mine = Broken(Finding(name="x", verdict=Verdict.PASS))

    def vjp(*args):
        try:
            gradients((), ("x", "w"))
        except Broken as error:
            raise mine.with_traceback(error.__traceback__) from None

    assert broken_by(asked, vjp) == ("vjp", "vjp raised Broken: no message")


def test_a_contract_that_ours_finds_broken_within_a_call_keeps_its_finding():
    def vjp(*args):
        return gradients((), ("x", "w"), role="inner")

    name, reason = broken_by(asked, vjp)
    assert name == "inner"
    assert reason.startswith("inner returned 0 gradients for 2 primals")


@pytest.mark.parametrize("ask", [asked, forward_of := lambda f: ask_forward(f, (X,), ("x",), {})])
def test_what_has_answered_a_case_does_not_lack_it(ask):
    answers = iter([right_forward(X, W, INDEX)])

    def lacks(*args):
        for found in answers:
            return found if ask is forward_of else right(*args)
        raise Unsupported("these numbers")

    _, reason = broken_by(ask, lacks)
    assert "raised Unsupported: these numbers; it had answered another call" in reason


@pytest.mark.parametrize("hostile", [len, iter, np.asarray])
def test_a_result_that_raises_when_it_is_looked_at_is_an_error(hostile):
    class Result(tuple):
        def refuse(self, *_, **__):
            raise GeneratorExit("not for you")

    setattr(Result, {len: "__len__", iter: "__iter__"}.get(hostile, "__array__"), Result.refuse)
    found = Result((X, W, None))
    if hostile is np.asarray:
        found = (Result((1, 2)), W, None)
        reason = asked(lambda *_: found)["x"].reason
        assert reason == "the gradient of x is a Result, not an array of numbers"
    else:
        assert broken_by(asked, lambda *_: found) == (
            "vjp",
            "vjp raised GeneratorExit: not for you",
        )


def test_binding_may_raise_anything_too():
    def bind():
        raise SystemExit("no")

    assert broken_by(bound_by, bind) == ("vjp", "binding it raised SystemExit: no")
    with pytest.raises(Unsupported):
        bound_by(raising(Unsupported("it says so")))


def test_arguments_that_it_does_not_take_are_an_error():
    _, reason = broken_by(asked, lambda ct, x: ct)
    assert reason.startswith("vjp raised TypeError: ")
    _, reason = broken_by(asked, lambda ct, x, w, index: ct, CTS, (X, W, INDEX), NAMES, {"k": 1})
    assert "'k'" in reason


@pytest.mark.parametrize("error", [Unsupported("no float64"), KeyboardInterrupt()])
def test_a_statement_of_the_code_and_ctrl_c_pass_through(error):
    with pytest.raises(type(error)):
        asked(raising(error))
    with pytest.raises(type(error)):
        ask_forward(raising(error), (X,), ("x",), {})


@pytest.mark.parametrize("target", ["ct", "x", "w", "index"])
def test_writing_into_an_argument_is_an_error(target):
    def through_numpy(*args):
        args[("ct", *NAMES).index(target)][0] = 0
        return right(*args)

    def through_ctypes(*args):
        out = right(*args)
        ctypes.memset(args[("ct", *NAMES).index(target)].ctypes.data, 0x7F, 8)
        return out

    def through_the_flag(*args):
        out = right(*args)
        array = args[("ct", *NAMES).index(target)]
        array.setflags(write=True)
        array.ravel()[-1:] += 1
        return out

    name, reason = broken_by(asked, through_numpy)
    assert name == "vjp"
    assert reason.startswith("vjp writes into its arguments (")
    for write in (through_ctypes, through_the_flag):
        assert broken_by(asked, write) == (
            "vjp", f"vjp writes into its argument {target}; copy first",
        )  # fmt: skip


def drawing(rng):
    return lambda ct, w: ct * w * (1 + 1e-15 * rng.integers(1, 9, w.shape))


def counting():
    calls = iter(range(99))
    return lambda ct, w: ct * w + next(calls)


def accumulating():
    total = np.zeros_like(W)

    def vjp(ct, w):
        np.add(total, ct * w, out=total)
        return total

    return vjp


def stale():
    kept = [np.zeros_like(W)]

    def vjp(ct, w):
        kept.append(ct * w)
        return kept[-2]

    return vjp


def of_changing_form():
    calls = iter(range(99))
    return lambda ct, w: None if next(calls) == 2 else ct * w


@pytest.mark.parametrize(
    "vjp",
    [
        drawing(np.random.default_rng(0)),
        counting(),
        accumulating(),
        stale(),
        of_changing_form(),
    ],
    ids=["drawing", "counting", "accumulating", "stale", "of_changing_form"],
)
def test_other_bits_on_the_second_call_are_an_error(vjp):
    name, reason = broken_by(asked, vjp, [(np.full(5, k),) for k in (1.0, 2.0)], (W,), ("w",))
    assert name == "vjp"
    assert "not deterministic" in reason
    assert "Look for a buffer" in reason


@pytest.mark.parametrize(("code", "label"), [("writes", "X"), ("counts", "C"), ("raises", "")])
def test_what_a_call_does_tells_its_class(code, label):
    def writes(ct, w):
        ct *= w
        return ct

    def raises(ct, w):
        raise ValueError("writes into its argument")

    vjp = {"writes": writes, "counts": counting(), "raises": raises}[code]
    with pytest.raises(Broken) as caught:
        ask_vjp(vjp, [(np.full(5, 2.0),)], (W,), ("w",), {})
    found = caught.value.finding.diagnosis
    assert (found.label if found else "") == label


def test_a_generator_that_starts_afresh_on_each_call_is_deterministic():
    def vjp(ct, w):
        return ct * np.random.default_rng(0).normal(size=w.shape)

    assert asked(vjp, [(W,)], (W,), ("w",))["w"].shape == (1, 5)


# ── forward ──────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("returned", "count"),
    [(X, 1), ((X, W), 2), ([X, W, W], 3), (1.5, 1), (np.float32(1), 1), ((1.5, X), 2)],
)
def test_an_array_or_several_or_a_number_will_do(returned, count):
    outputs = ask_forward(lambda x: returned, (X,), ("x",), {})
    parts = returned if isinstance(returned, (tuple, list)) else (returned,)
    assert len(outputs) == count
    for output, part in zip(outputs, parts, strict=True):
        assert isinstance(output, np.ndarray)
        np.testing.assert_array_equal(output, part)
        assert not np.shares_memory(output, part)


@pytest.mark.parametrize(
    ("returned", "reason"),
    [
        (None, "forward returned NoneType; return a float array or a tuple of them"),
        ("text", "forward returned str;"),
        (np.arange(3), "forward returned int64;"),
        (X > 0, "forward returned bool;"),
        (X.astype(complex), "forward returned complex128;"),
        (7, "forward returned int;"),
        ((X, None), "forward returned NoneType;"),
        ({"y": X}, "forward returned dict;"),
        ((), "forward returned an empty tuple; return a float array"),
        ([], "forward returned an empty tuple; return a float array"),
    ],
)
def test_what_is_no_float_array_is_an_error_of_forward(returned, reason):
    name, told = broken_by(ask_forward, lambda x: returned, (X,), ("x",), {})
    assert name == "forward"
    assert reason in told


def test_a_forward_that_raises_writes_or_draws_is_an_error():
    def ask(forward):
        return broken_by(ask_forward, forward, (X, W), ("x", "w"), {})

    def writes(x, w):
        x *= w
        return x

    rng = np.random.default_rng(0)
    assert ask(raising(SystemExit())) == ("forward", "forward raised SystemExit: no message")
    assert ask(raising(KeyError("k"))) == ("forward", "forward raised KeyError: 'k'")
    name, reason = ask(writes)
    assert (name, "forward writes into its arguments" in reason) == ("forward", True)
    name, reason = ask(lambda x, w: x * w * (rng.random(5) < 0.5))
    assert (name, "Fix its seed" in reason) == ("forward", True)


def test_attributes_reach_forward():
    (output,) = ask_forward(right_forward, (X, W, INDEX), NAMES, {"scale": 3.0})
    np.testing.assert_array_equal(output, 3 * (X * W)[INDEX])
