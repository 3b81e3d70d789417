from functools import partial

import numpy as np
import pytest

from gradcheck.errors import Unsupported
from gradcheck.implementations.bound import BoundRule
from gradcheck.implementations.reference import Reference
from gradcheck.implementations.returned import Broken
from gradcheck.judge.rule import certified_rule, judge_rule
from gradcheck.results.finding import Finding, Part
from gradcheck.results.verdict import Verdict
from tests.judge.heavy_ball import LR, truth_of


@pytest.fixture(scope="module")
def truth():
    return truth_of()


class Bound:
    """An implementation made of one function of arrays."""

    name = "mine"

    def __init__(self, update, init=None, attrs=None):
        self.bound = BoundRule(update=update, init=init, attrs=attrs or {})

    def bind_rule(self, case, dtype):
        return self.bound


def right(params, grads, state, t):
    buf = {n: 0.5 * state["buf"][n] + g for n, g in grads.items()}
    new = {n: np.asarray(p - LR * buf[n], p.dtype) for n, p in params.items()}
    return new, {"buf": {n: np.asarray(b, params[n].dtype) for n, b in buf.items()}}


def verdicts(truth, update, dtype="float64", **parts):
    return {f.name: f for f in judge_rule(truth, Bound(update, **parts), dtype)}


# ── what is wrong with the form ──────────────────────────────────────────────────────────────


def raising(params, grads, state, t):
    raise ZeroDivisionError("no steps")


def leaving(params, grads, state, t):
    raise SystemExit(3)


def bare(params, grads, state, t):
    return params


def no_mapping(params, grads, state, t):
    return [params["w"], params["s"]], state


def no_state_mapping(params, grads, state, t):
    return params, {"buf": params["w"]}


def greedy(params, grads, state, t):
    for name in grads:
        grads[name] *= 2
    return right(params, grads, state, t)


CALLS = []


def random(params, grads, state, t):
    CALLS.append(t)
    new, state = right(params, grads, state, t)
    return {n: p + len(CALLS) for n, p in new.items()}, state


@pytest.mark.parametrize(
    ("update", "said"),
    [
        (raising, "update raised ZeroDivisionError: no steps"),
        (leaving, "update raised SystemExit: 3"),
        (bare, "update returned one dict; return (tensors, state), or None"),
        (no_mapping, "update returned a list, not a dict by name"),
        (no_state_mapping, "state 'buf' of update returned a ndarray, not a dict by name"),
        (greedy, "update writes into its gradients; copy first"),
        (random, "update is not deterministic"),
    ],
)
def test_a_call_that_breaks_its_contract_is_one_line(truth, update, said):
    [finding] = verdicts(truth, update).values()
    assert finding.verdict is Verdict.ERROR
    assert finding.part is Part.UPDATE
    assert said in finding.reason


def changed(name, change):
    """The right update, with one output changed."""

    def update(params, grads, state, t):
        new, state = right(params, grads, state, t)
        where = state["buf"] if name.startswith("buf.") else new
        key = name.removeprefix("buf.")
        where[key] = change(where[key])
        if where[key] is None:
            del where[key]
        return new, state

    return update


@pytest.mark.slow(keep=3)
@pytest.mark.parametrize("name", ["w", "s", "buf.w"])
@pytest.mark.parametrize(
    ("change", "verdict", "said"),
    [
        (lambda a: None, Verdict.MISSING, "no new value for"),
        (lambda a: a[None], Verdict.FAIL, "has shape"),
        (lambda a: a.astype(np.float32), Verdict.FAIL, "is float32"),
        (lambda a: a * np.nan, Verdict.FAIL, "not finite"),
        (lambda a: a * np.inf, Verdict.FAIL, "not finite"),
        (str, Verdict.FAIL, "not an array of numbers"),
    ],
)
def test_a_wrong_form_is_a_finding_of_its_tensor(truth, name, change, verdict, said):
    found = verdicts(truth, changed(name, change))
    assert found.pop(name).verdict is verdict
    assert said in verdicts(truth, changed(name, change))[name].reason
    if verdict is Verdict.MISSING:
        assert {f.verdict for f in found.values()} == {Verdict.PASS}


# ── numbers ──────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_a_right_update_passes_and_has_a_finding_per_tensor_and_state(truth, dtype):
    found = verdicts(truth, right, dtype)
    assert list(found) == ["w", "s", "buf.w", "buf.s"]
    assert {f.verdict for f in found.values()} == {Verdict.PASS}
    assert {f.part for f in found.values()} == {Part.UPDATE}
    assert found["w"].compared == 2 * 20 * 6  # every step, and every way from the start
    assert {f.verdict for f in judge_rule(truth, Reference(), dtype)} == {Verdict.PASS}


@pytest.mark.slow(keep=2)
@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("scale", [0.0, -1.0, 2.0, 1.01, 1 + 1e-4])
def test_a_wrong_step_fails(truth, dtype, scale):
    def update(params, grads, state, t):
        new, state = right(params, grads, state, t)
        return {n: p + ((new[n] - p) * scale).astype(dtype) for n, p in params.items()}, state

    found = verdicts(truth, update, dtype)
    assert found["w"].verdict is found["s"].verdict is Verdict.FAIL
    assert found["buf.w"].verdict is Verdict.PASS


def test_an_error_of_1e_12_of_the_step_is_seen_in_float64(truth):
    def update(params, grads, state, t):
        new, state = right(params, grads, state, t)
        return {n: p + (new[n] - p) * (1 + 1e-12) for n, p in params.items()}, state

    assert verdicts(truth, update)["w"].verdict is Verdict.FAIL


def test_a_state_that_is_wrong_fails_by_name(truth):
    found = verdicts(truth, changed("buf.w", lambda a: a * (1 + 1e-10)))
    assert found["buf.w"].verdict is Verdict.FAIL
    assert found["buf.s"].verdict is Verdict.PASS


def test_a_defect_of_one_late_step_is_seen_and_named(truth):
    def update(params, grads, state, t):
        new, state = right(params, grads, state, t)
        return ({n: p * 2 for n, p in new.items()} if t == 17 else new), state

    found = verdicts(truth, update)["w"]
    assert found.verdict is Verdict.FAIL
    assert found.top.cotangent in {"step 17", *(f"steps 1 to {t}" for t in range(17, 21))}


def test_state_that_is_kept_elsewhere_is_seen(truth):
    kept = {}

    def update(params, grads, state, t):
        if kept.get("t") == t - 1:  # the steps follow each other: it trusts its own memory
            state = {"buf": kept["buf"]}
        new, state = right(params, grads, state, t)
        kept.update(buf=state["buf"], t=t)
        return new, state

    assert {f.verdict for f in judge_rule(truth, Bound(update), "float64")} == {Verdict.PASS}

    def careless(params, grads, state, t):
        new, state = right(params, grads, {"buf": kept["buf"]}, t)
        kept.update(buf=state["buf"])
        return new, state

    assert {f.verdict for f in judge_rule(truth, Bound(careless), "float64")} == {Verdict.ERROR}


def test_working_in_place_is_allowed(truth):
    def update(params, grads, state, t):
        for name in params:
            buf = state["buf"][name]
            buf *= 0.5
            buf += grads[name]
            params[name] -= LR * buf

    assert {f.verdict for f in judge_rule(truth, Bound(update), "float64")} == {Verdict.PASS}


def test_a_buffer_that_is_used_again_does_not_excuse(truth):
    out = {"w": np.zeros((2, 3)), "s": np.zeros(())}

    def update(params, grads, state, t):
        new, state = right(params, grads, state, t)
        for name, p in new.items():
            out[name][...] = p
        return out, state

    assert {f.verdict for f in judge_rule(truth, Bound(update), "float64")} == {Verdict.PASS}


def test_an_own_init_is_asked(truth):
    def ones(params):
        return {"buf": {n: np.ones_like(p) for n, p in params.items()}}

    found = verdicts(truth, right, init=ones)
    assert found["w"].verdict is Verdict.FAIL
    assert found["w"].top.cotangent.startswith("steps 1 to ")


# ── what is not judged ───────────────────────────────────────────────────────────────────────


def test_saying_nothing_and_lacking_are_told_apart(truth):
    def lacking(params, grads, state, t):
        raise Unsupported("no momentum here")

    assert judge_rule(truth, Bound(lacking), "float64")[0].verdict is Verdict.UNSUPPORTED
    silent = Bound(right)
    silent.bind_rule = lambda case, dtype: None
    assert judge_rule(truth, silent, "float64")[0].verdict is Verdict.UNBOUND
    assert judge_rule(truth, Bound(right), "float16")[0].verdict is Verdict.UNSUPPORTED


# ── sharpness ────────────────────────────────────────────────────────────────────────────────


def test_the_certificate_says_what_would_be_rejected(truth):
    findings = judge_rule(truth, Bound(right), "float32")
    for finding in certified_rule(truth, findings, "float32"):
        assert finding.certificate.proves
        assert "one-percent" in finding.certificate.rejected
        assert finding.certificate.blind == ()


def bouncing(xp, params, drawn):
    return {name: 3 * p for name, p in params.items()}


def test_a_way_on_which_rounding_grows_is_cut_and_single_steps_are_not():
    def wild(xp, params, drawn):
        return {n: 16 * xp.sin(64 * p) for n, p in params.items()}

    grown = truth_of(slope=wild)
    names = [row.name for row in grown.rows("float32")["w"]]
    assert [f"step {t}" for t in range(1, 21)] == names[:20]
    assert 0 < len(names[20:]) < 20
    assert {f.verdict for f in judge_rule(grown, Reference(), "float32")} == {Verdict.PASS}


def test_gradients_may_follow_the_parameters():
    bounced = truth_of(slope=bouncing)
    assert {f.verdict for f in judge_rule(bounced, Reference(), "float64")} == {Verdict.PASS}
    wrong = partial(right, t=0)

    def stuck(params, grads, state, t):
        return params, wrong(params, grads, state)[1]

    assert verdicts(bounced, stuck)["w"].verdict is Verdict.FAIL


class Hostile(dict):
    def keys(self):
        raise GeneratorExit("no keys")

    __iter__ = keys


def test_an_update_gives_itself_no_verdict(truth):
    def says(*_):
        raise Broken(Finding(name="w", verdict=Verdict.SKIP))

    steps = iter([True])

    def lacks(*given):
        if next(steps, False):
            return right(*given)
        raise Unsupported("this step")

    for update, words in (
        (says, "update raised Broken: no message"),
        (lacks, "update raised Unsupported: this step; it had answered another call of this case"),
        (lambda *_: (Hostile(), {}), "update raised GeneratorExit: no keys"),
    ):
        (finding,) = judge_rule(truth, Bound(update), "float64")
        assert finding.verdict is Verdict.ERROR
        assert finding.reason.startswith(words)
