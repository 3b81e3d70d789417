"""Python in a process of its own: the same verdicts as here, and ends that are verdicts, too."""

import json
import platform
import sys
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType, ModuleType

import ml_dtypes
import numpy as np
import pytest
from gradcheck_cases import SUITE as BUILTIN
from gradcheck_cases.mutants.contract import MUTANTS

from gradcheck.errors import LoadError, UnknownNameError, Unsupported
from gradcheck.implementations.bound import Bound, Into
from gradcheck.implementations.isolated import Isolated, Isolation
from gradcheck.implementations.isolated_calls import FOUND, exception_of
from gradcheck.implementations.isolated_host import Host
from gradcheck.implementations.load import load
from gradcheck.implementations.processes import frames
from gradcheck.implementations.returned import Broken, Missing, as_array, broken
from gradcheck.implementations.wire import Cargo, Packer, Unpacker, put_back
from gradcheck.judge import contract_check
from gradcheck.judge.contract.asking import Unasked, Unfit
from gradcheck.judge.contract.subject import Subject
from gradcheck.judge.model import judge_model
from gradcheck.judge.model_truth import ModelTruth
from gradcheck.judge.operator import CaseTruth, judge_case
from gradcheck.judge.rule import judge_rule
from gradcheck.judge.rule_truth import RuleTruth
from gradcheck.results.finding import Part
from gradcheck.results.verdict import Verdict
from gradcheck.spec.loading import resolve

LONG = 300.0
"""Seconds in which any call returns that returns at all."""

MODULE = r"""
import ctypes, os, sys, time
import numpy as np
from gradcheck import OpSpec, Sample, Suite, Unsupported
from gradcheck.implementations.returned import Broken
from gradcheck.results.finding import Finding
from gradcheck.results.verdict import Verdict

def product(xp, x, w, *, scale=1.0): return scale * x * w
def product_vjp(xp, ct, x, w, *, scale=1.0): return scale * ct * w, scale * ct * x
def drawn(draw): return (draw.normal(2, 3), draw.normal(2, 3))

def right(ct, x, w): return ct * w, ct * x

class Tensor:
    def __init__(self, values): self.values, self.dtype = values, f"strange.{values.dtype}"
    def __array__(self, *_, **__): return self.values
class Opaque: dtype = "opaque"
class Mine(RuntimeError):
    def __init__(self, a, b): super().__init__(a)
    def __str__(self): return "mine: \x1b[31m é\udc80"
class Lacks(Unsupported): pass

def raising(error):
    def vjp(ct, x, w): raise error()
    return vjp

def giving(change):
    def vjp(ct, x, w): return change(*right(ct, x, w))
    return vjp

def poke(array):
    if array.nbytes: ctypes.memset(array.ctypes.data, 1, 1)

def pokes(which):
    def vjp(*args):
        poke(args[which])
        return right(*args)
    return vjp

def pokes_and_raises(ct, x, w):
    poke(x)
    raise ValueError("after it wrote")

def writes(ct, x, w):
    ct *= 2
    return right(ct, x, w)

COUNT = [0]
def counts(ct, x, w):
    COUNT[0] += 1
    return ct * w + COUNT[0], ct * x

def prints(ct, x, w):
    print("seen", x.shape)
    os.write(2, b"and by descriptor\n")
    return right(ct, x, w)

class Whole:
    @staticmethod
    def forward(x, w): return x * w
    vjp = staticmethod(right)

class Pullback:
    @staticmethod
    def forward(x, w): return x * w, lambda ct: right(ct, x, w)

def swapped(a): return a.astype(a.dtype.newbyteorder()) if a.dtype.kind == "f" else a
def reads_ahead(ct, x, w): return np.flip(np.flip(ct * w)), np.asfortranarray(ct * x)

def nested(which):
    def vjp(ct, x, w):
        a = [ct * w]; a.append(a)
        return tuple(a)
    return vjp

HARMLESS = {
    "right": right, "whole": Whole, "pullback": Pullback,
    "negated": giving(lambda a, b: (-a, b)),
    "listed": giving(lambda a, b: [a, b]),
    "none": giving(lambda a, b: (a, None)),
    "nothing": giving(lambda a, b: None),
    "one": giving(lambda a, b: a),
    "three": giving(lambda a, b: (a, b, a)),
    "shaped": giving(lambda a, b: (a[:1], b)),
    "narrowed": giving(lambda a, b: (a.astype("f2"), b)),
    "swapped_bytes": giving(lambda a, b: (swapped(a), b)),
    "objects": giving(lambda a, b: (a.astype(object), b)),
    "text": giving(lambda a, b: ("a", b)),
    "complexes": giving(lambda a, b: (a.astype(complex), 1j)),
    "lists": giving(lambda a, b: (a.tolist(), b.tolist())),
    "scalars": giving(lambda a, b: (1.5, np.float32(2))),
    "nan": giving(lambda a, b: (np.full_like(a, np.nan), -0.0 * b)),
    "infinite": giving(lambda a, b: (a / 0, b)),
    "tensors": giving(lambda a, b: (Tensor(a), Tensor(b))),
    "one_tensor": giving(lambda a, b: Tensor(a)),
    "opaque": giving(lambda a, b: (Opaque(), object())),
    "mapping": giving(lambda a, b: ({"x": a}, b)),
    "empty": giving(lambda a, b: (a[:0], b)),
    "integers": giving(lambda a, b: (a.astype(int), b)),
    "layouts": reads_ahead,
    "same_object": lambda ct, x, w: (x, x),
    "endless": nested(0),
    "value_error": raising(lambda: ValueError("\x1b[31mred\nline")),
    "key_error": raising(lambda: KeyError("k")),
    "silent": raising(ZeroDivisionError),
    "mine": raising(lambda: Mine(1, 2)),
    "unicode": raising(lambda: UnicodeDecodeError("utf8", b"x", 0, 1, "bad")),
    "group": raising(lambda: ExceptionGroup("several", [ValueError("x")])),
    "leaves": raising(lambda: SystemExit(3)),
    "stops": raising(StopIteration),
    "lacking": raising(lambda: Unsupported("not in this build")),
    "lacking_too": raising(lambda: Lacks("nor this")),
    "writes": writes, "pokes_ct": pokes(0), "pokes_w": pokes(2),
    "pokes_and_raises": pokes_and_raises,
    "counts": counts, "prints": prints,
    **{f"says_{word}": raising(lambda word=word: judging_itself(word)) for word in Verdict},
}
def judging_itself(verdict): return Broken(Finding(name="x", verdict=verdict, reason="so"))
def entry(value): return {"vjp": value} if not isinstance(value, type) else value
HARMLESS = {name: entry(value) for name, value in HARMLESS.items()}

def segfault(ct, x, w): ctypes.string_at(0)
def exits(ct, x, w): os._exit(0)
def aborts(ct, x, w): os.abort()
def killed(ct, x, w): os.kill(os.getpid(), 9)
def loops(ct, x, w):
    while True: pass
def closes(ct, x, w):
    os.closerange(0, 1024)
    return right(ct, x, w)
def speaks(ct, x, w):
    for fd in range(3, 200):
        try: os.write(fd, b"GRDC nonsense")
        except OSError: pass
    return right(ct, x, w)
def forges(ct, x, w):
    from gradcheck.implementations.processes import frames
    for fd in range(100, 200):
        answer = {"kind": "returned", "value": ["t", [None, None]],
                  "changed": [], "emptied": [], "late": []}
        for piece in frames.pieces(answer):
            try: os.write(fd, piece)
            except OSError: pass
    return right(ct, x, w)
def vast(ct, x, w): return np.zeros((1 << 13, 1 << 11)), ct * x
def vast_in_sum(ct, x, w):
    part = np.zeros(1 << 22)
    return [part, part, part]
def vast_as_text(ct, x, w): return "x" * (1 << 24), ct
def widens(ct, x, w):
    with_values = np.zeros(6 << 21)[:: 1 << 21]
    with_values[:] = (ct * w).reshape(-1)
    return with_values.reshape(2, 3), ct * x
def forks(ct, x, w):
    os.fork()
    return right(ct, x, w)
def third(ct, x, w):
    COUNT[0] += 1
    if COUNT[0] == 3: os.abort()
    return right(ct, x, w)
def interrupts(ct, x, w): raise KeyboardInterrupt
class Unreadable(Exception):
    def __str__(self): raise SystemExit(7)
def unreadable(ct, x, w): raise Unreadable
class Unflushable:
    def write(self, text): pass
    def flush(self): raise SystemExit(8)
def unflushable(ct, x, w):
    sys.stdout = Unflushable()
    return right(ct, x, w)
def acquits(ct, x, w):
    from gradcheck.implementations.returned import broken
    from gradcheck.results.verdict import Verdict
    raise broken("x", "all is well", Verdict.PASS)
def rounds(ct, x, w):
    ctypes.CDLL(None).fesetround(0x800)
    return right(ct, x, w)
def flushes(ct, x, w):
    saved, libc = ctypes.create_string_buffer(256), ctypes.CDLL(None)
    libc.fegetenv(saved)
    saved[28:32] = (0x9fc0).to_bytes(4, "little")
    libc.fesetenv(saved)
    assert TINY / 2 == 0
    return right(ct, x, w)
TINY, THREE = 2.0**-1022, 3.0
def usual(ct, x, w):
    assert (TINY / 2, 1 / THREE) == (2.0**-1023, 0.3333333333333333)
    return right(ct, x, w)
DEADLY = {name: {"vjp": value} for name, value in {
    "rounds": rounds, "flushes": flushes, "usual": usual,
    "interrupts": interrupts, "unreadable": unreadable, "unflushable": unflushable,
    "acquits": acquits,
    "right": right, "segfault": segfault, "exits": exits, "aborts": aborts, "killed": killed,
    "loops": loops, "closes": closes, "speaks": speaks, "forges": forges, "forks": forks,
    "vast": vast, "vast_in_sum": vast_in_sum, "vast_as_text": vast_as_text, "widens": widens,
    "third": third}.items()}

SUITE = Suite("tiny", "1", [
    OpSpec(name=name, signature="(),()->()", forward=product, vjp=product_vjp, formula="xw",
           source="none", samples=(Sample(name="only", primals=drawn, hunts="2"),
                                   Sample(name="more", primals=drawn, hunts="2"),
                                   Sample(name="scaled", primals=drawn, hunts="2",
                                          attrs={"scale": 2.0})))
    for name in {**HARMLESS, **DEADLY}])
"""
LOADS = {
    "dies": "import os; os.abort()",
    "leaves": "import os; os._exit(4)",
    "raises": "raise ValueError('one\\ntwo')",
    "exits": "raise SystemExit(3)",
    "stops": "raise KeyboardInterrupt",
    "quiet": "X = {}",
    "number": "X = 3",
    "misspelt": "X = {'relo': {'vjp': abs}}",
}
TRAINERS = r"""
import os
import numpy as np

def right(params, inputs):
    x, a = params["x"], params["a"]
    return {"x": 2 * a * x, "a": x * x, "b": np.ones_like(x)}

def loss(params, inputs): return (params["a"] * params["x"] ** 2 + params["b"]).sum()
def wrong(params, inputs): return {**right(params, inputs), "a": -params["x"] ** 2, "c": 1.0}
def writes(params, inputs):
    params["x"] *= 1
    return right(params, inputs)
def buffers(params, inputs):
    found = right(params, inputs)
    return {**found, "x": [found["x"] / 2, found["x"] / 2]}
def dies(params, inputs): os.abort()

class Product:
    @staticmethod
    def vjp(ct, x, y): return ct * y, ct * x

def backward(ct, values, stage):
    x, y = (values[name] for name in stage.reads)
    assert set(stage.reads) <= set(values) and len(values) > 2
    return ct[0] * y, ct[0] * x
def lost(ct, values, stage): return values["nowhere"]
def asks_for_ever(ct, values, stage):
    import gc
    (host,) = (o for o in gc.get_objects() if type(o).__name__ == "Host")
    for _ in range(2000):  # it knows even the stamp
        host.send({"kind": "get", "name": stage.reads[0]}, [])
        from gradcheck.implementations.processes import frames
        frames.read(host.channel.exactly)
    return backward(ct, values, stage)
def pokes(ct, values, stage):
    values[stage.reads[0]].flags.writeable = True
    values[stage.reads[0]][...] = 0
    return backward(ct, values, stage)

MODELS = {
    "right": {"gradients": right, "loss": loss}, "wrong": {"gradients": wrong},
    "writes": {"gradients": writes}, "buffers": {"gradients": buffers},
    "stages": {"stages": {"*square*": Product, "*": {"backward": backward}}},
    "lost": {"gradients": right, "stages": {"*": {"backward": lost}}},
    "pokes": {"gradients": right, "stages": {"*": {"backward": pokes}}},
    "asks_for_ever": {"gradients": right, "stages": {"*": {"backward": asks_for_ever}}},
    "dies": {"gradients": dies},
    "stage_dies": {"gradients": right, "stages": {"*": {"backward": lambda *_: os.abort()}}},
}
TABLES = {name: {"quadratic": entry} for name, entry in MODELS.items()}

def clip(params, grads, state, t, *, max_norm):
    norm = np.sqrt(sum(np.sum(g.astype(np.float64) ** 2) for g in grads.values()))
    if norm > max_norm:
        for name in grads: grads[name] *= grads[name].dtype.type(max_norm / norm)
def replaces(params, grads, state, t, *, max_norm):
    norm = np.sqrt(sum(np.sum(g.astype(np.float64) ** 2) for g in grads.values()))
    for name, g in list(grads.items()):
        grads[name] = g * g.dtype.type(min(1.0, max_norm / norm)) if norm else g
def aborts(params, grads, state, t, *, max_norm): os.abort()
RULES = {name: {"clip_norm": {"update": f}} for name, f in
         {"clip": clip, "replaces": replaces, "aborts": aborts}.items()}
from dataclasses import replace
import gradcheck_cases
from gradcheck_cases.mutants.contract import MUTANTS
from gradcheck import Suite
HABITS = {m.name.replace("-", "_"): m.make() for m in MUTANTS}
RMS_NORM = gradcheck_cases.SUITE.operators["rms_norm"]
HABITUAL = Suite("habitual", "1", [replace(RMS_NORM, name=name) for name in HABITS])

class Tables:
    def __init__(self, tables): self.__dict__.update(tables)
MODEL, RULE = Tables(TABLES), Tables(RULES)
"""


@pytest.fixture(scope="module", autouse=True)
def folder(tmp_path_factory):
    """A folder with the modules above, on the path."""
    made = tmp_path_factory.mktemp("isolated")
    (made / "tiny.py").write_text(MODULE, errors="surrogatepass")
    (made / "trainers.py").write_text(TRAINERS)
    for name, text in LOADS.items():
        (made / f"load_{name}.py").write_text(text)
    before = set(sys.modules)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "path", [str(made), *sys.path])
        yield made
    for name in set(sys.modules) - before:
        if str(made) in str(getattr(sys.modules[name], "__file__", "")):
            del sys.modules[name]


@pytest.fixture(scope="module")
def suite(folder):
    return resolve("tiny:SUITE")


@pytest.fixture(scope="module")
def there(folder):
    """The harmless table, in a process of its own."""
    made = isolated("tiny:HARMLESS")
    yield made
    made.close()


@pytest.fixture
def deadly(folder):
    made = isolated("tiny:DEADLY")
    yield made
    made.close()


def isolated(word, suites=("tiny:SUITE",), timeout=LONG):
    return Isolated(word, Isolation(suites=suites, timeout=timeout))


def case_of(suite, op, sample="only"):
    (case,) = suite.cases([op], samples=[sample])
    return case


def judged(suite, op, binding, dtype="float64", sample="only"):
    case = case_of(suite, op, sample)
    truth = CaseTruth.in_low(case, "", dtype) if dtype == "bfloat16" else CaseTruth(case)
    return judge_case(truth, binding, dtype)


def bare(findings):
    """Findings as text: NaN is not itself; what was printed is not known here."""
    return [repr(replace(finding, printed="")) for finding in findings]


# ── the same verdicts ────────────────────────────────────────────────────────────────────────


@pytest.mark.slow(keep=1)
@pytest.mark.parametrize("dtype", ["float64", "float32", "bfloat16"])
def test_every_verdict_is_the_same_as_here(suite, there, dtype):
    here = load("tiny:HARMLESS", suite)
    assert len(here.table) > 40
    for op in here.table:
        ours, theirs = (bare(judged(suite, op, who, dtype)) for who in (here, there))
        assert theirs == ours, op


@pytest.mark.slow(keep=3)
@pytest.mark.parametrize(
    ("op", "verdict"),
    [
        ("right", Verdict.PASS),
        ("none", Verdict.MISSING),
        ("value_error", Verdict.ERROR),
        ("lacking", Verdict.UNSUPPORTED),
        ("writes", Verdict.ERROR),
        ("pokes_ct", Verdict.ERROR),
        ("counts", Verdict.ERROR),
        *((f"says_{word}", Verdict.ERROR) for word in Verdict),
    ],
)
def test_the_verdicts_are_of_every_kind(suite, there, op, verdict):
    assert judged(suite, op, there)[-1].verdict is verdict


@pytest.mark.parametrize(
    ("op", "words"),
    [
        ("writes", "vjp writes into its arguments (output array is read-only); copy first"),
        ("pokes_ct", "vjp writes into its argument ct; copy first"),
        ("pokes_w", "vjp writes into its argument w; copy first"),
        ("mine", "vjp raised Mine: mine: \x1b[31m é\udc80"),
        ("leaves", "vjp raised SystemExit: 3"),
        ("key_error", "vjp raised KeyError: 'k'"),
        ("one_tensor", "vjp returned one Tensor for 2 primals (x, w); return a tuple"),
    ],
)
def test_what_is_said_names_what_happened_there(suite, there, op, words):
    assert judged(suite, op, there)[-1].reason == words


@pytest.mark.slow
def test_an_attribute_that_is_fixed_there_is_unsupported(suite, there):
    here = load("tiny:HARMLESS", suite)
    ours, theirs = (judged(suite, "right", who, sample="scaled") for who in (here, there))
    assert bare(theirs) == bare(ours)
    assert theirs[0].verdict is Verdict.UNSUPPORTED


def test_a_case_that_the_suite_does_not_have_binds_by_its_attributes(suite, there):
    case = case_of(suite, "right")
    other = replace(case, sample=replace(case.sample, name="derived"))
    assert there.bind(other, "float64") is not None
    assert there.bind(replace(case, spec=replace_name(case.spec)), "float64") is None


def replace_name(spec):
    (found,) = (s for s in resolve("tiny:SUITE") if s.name == "segfault")
    return found


def test_what_is_printed_comes_with_the_findings_and_is_shown(suite, there, capfd):
    there.printed()
    found = judged(suite, "prints", there)
    assert found[0].printed.count("seen (2, 3)\n") == found[0].printed.count("and by descriptor\n")
    assert "seen (2, 3)\n" in capfd.readouterr().err
    assert there.printed() == ""


def test_bits_and_layout_arrive(there, suite):
    bound = there.bind(case_of(suite, "same_object"), "float64")
    base = np.arange(24.0).reshape(4, 6)
    base[0, 0] = -0.0
    base[0, 2] = np.array(0x7FF800000000BEEF, np.uint64).view(np.float64)
    for array in (base, base.T, base[::2, ::-3], np.broadcast_to(base[0], (3, 6)), base[:0],
                  base[1, 1:1], np.asarray(base[2, 3]), base.astype("f4")):  # fmt: skip
        found = bound.vjp(base, array, base)[0]
        assert found is array  # the object that was given comes back as itself


HABITS = [m.name.replace("-", "_") for m in MUTANTS]
PROPERTIES = [
    p for p in contract_check.PROPERTIES if p.name not in ("sizes", "attributes", "scaling")
]
"""Not those that need many samples, and say nothing of memory."""


@pytest.fixture(scope="module")
def habits():
    """The contract mutants of rms_norm, as operators of their own: here and there."""
    suite = resolve("trainers:HABITUAL")
    there = isolated("trainers:HABITS", ["trainers:HABITUAL"])
    yield suite, load("trainers:HABITS", suite), there
    there.close()


@pytest.mark.slow(keep=5)
@pytest.mark.parametrize("name", HABITS)
def test_what_code_does_to_memory_is_seen_as_here(habits, name):
    suite, *both = habits
    (case,) = suite.cases([name], ["weight"], ["typical"])
    truth = CaseTruth(case)

    def said(who, examine):
        try:
            return repr(examine(Subject(truth, who, "float32")))
        except (Broken, Unfit, Unasked) as error:
            return f"{type(error).__name__}: {error}"

    for examined in PROPERTIES:
        ours, theirs = (said(who, examined.examine) for who in both)
        assert theirs == ours, examined.name


@pytest.mark.slow(keep=1)
@pytest.mark.parametrize(
    ("name", "broken"),
    [
        ("reused_buffer", "owned"),
        ("one_past_the_end", "bounds"),
        ("flat_dy", "layouts"),
        ("scales_dy", "pure"),
        ("two_steps", "aliases"),
        ("right", ""),
    ],
)
def test_and_it_is_seen(habits, name, broken):
    suite, _, there = habits
    (case,) = suite.cases([name], ["weight"], ["typical"])
    subject = Subject(CaseTruth(case), there, "float32")
    found = [p.name for p in PROPERTIES if p.examine(subject) is not None]
    assert (broken in found) if broken else found == []


# ── ends ─────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.slow(keep=1)
@pytest.mark.parametrize(
    ("op", "reason"),
    [
        ("segfault", "SIGSEGV in vjp"),
        ("aborts", "SIGABRT in vjp"),
        ("exits", "vjp ended the process with exit status 0"),
        ("killed", "SIGKILL (not from here: out of memory?) in vjp"),
        ("closes", "vjp closed file descriptors that are not its own"),
        ("speaks", "the code wrote into the channel of its own process in vjp"),
    ],
)
def test_a_crash_is_the_cases_and_the_next_is_judged(suite, deadly, op, reason):
    (finding,) = judged(suite, op, deadly)
    assert (finding.name, finding.verdict, finding.reason) == ("vjp", Verdict.CRASH, reason)
    assert [f.verdict for f in judged(suite, "right", deadly)] == [Verdict.PASS] * 2


@pytest.mark.slow
def test_a_forged_answer_is_a_crash(suite, deadly):
    bound = deadly.bind(case_of(suite, "right"), "float64")
    (finding,) = judged(suite, "forges", deadly)
    assert finding.verdict is Verdict.CRASH
    assert "the code wrote into the channel of its own process" in finding.reason
    one = np.ones((2, 3))
    assert np.array_equal(bound.vjp(one, 2 * one, 3 * one), (3 * one, 2 * one))


@pytest.mark.slow(keep=1)
@pytest.mark.parametrize(
    ("op", "words"),
    [
        (
            "vast",
            "vjp returned more than could be right: an array of shape (8192, 2048) and dtype "
            "float64 (with it 134,217,728 bytes; at most 67,111,168 are taken here)",
        ),
        (
            "vast_in_sum",
            "vjp returned more than could be right: an array of shape (4194304,) and dtype "
            "float64 (with it 100,663,296 bytes; at most 67,111,168 are taken here)",
        ),
        (
            "vast_as_text",
            "vjp returned more than could be right: more than 16,777,216 bytes outside of arrays, "
            "or more than 65,536 arrays",
        ),
    ],
)
def test_what_is_far_too_large_is_told_and_not_sent(suite, deadly, op, words):
    process = deadly._child.process.pid
    (finding,) = judged(suite, op, deadly)
    assert (finding.name, finding.verdict) == ("vjp", Verdict.ERROR)
    assert finding.reason == words
    assert deadly._child.process.pid == process  # which did nothing amiss


@pytest.mark.slow
def test_a_few_numbers_that_lie_far_apart_are_sent_without_the_gaps(suite, deadly):
    assert [f.verdict for f in judged(suite, "widens", deadly)] == [Verdict.PASS] * 2


@pytest.mark.slow
def test_a_process_that_promises_more_than_it_may_is_ended(suite, deadly, monkeypatch):
    bound = deadly.bind(case_of(suite, "right"), "float64")
    monkeypatch.setattr("gradcheck.implementations.wire.ROOM", -(1 << 26))
    one = np.ones((2, 3))
    with pytest.raises(Broken, match="the code wrote into the channel of its own process in vjp"):
        bound.vjp(one, one, one)


@pytest.mark.slow
def test_an_interrupted_call_does_not_answer_the_next(suite, deadly, monkeypatch):
    bound = deadly.bind(case_of(suite, "right"), "float64")
    one = np.ones((2, 3))

    def interrupted(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("gradcheck.implementations.isolated._read", interrupted)
        with pytest.raises(KeyboardInterrupt):
            bound.vjp(one, 5 * one, 7 * one)
    assert np.array_equal(bound.vjp(one, 2 * one, 3 * one), (3 * one, 2 * one))


@pytest.mark.slow
def test_where_a_segmentation_fault_happened_is_in_what_was_printed(suite, deadly):
    (finding,) = judged(suite, "segfault", deadly)
    assert "Segmentation fault" in finding.printed
    assert "in segfault" in finding.printed


@pytest.mark.slow
def test_a_loop_is_a_timeout_and_after_three_the_rest_is_left_out(suite, folder):
    looping = isolated("tiny:DEADLY", timeout=0.3)
    for _ in range(3):
        (finding,) = judged(suite, "loops", looping)
        assert finding.verdict is Verdict.TIMEOUT
        assert finding.reason == "vjp did not return within 0.3 s"
    (finding,) = judged(suite, "loops", looping)
    assert (finding.verdict, finding.reason) == (Verdict.NOTRUN, "not run after 3 hangs of loops")
    looping.timeout = LONG
    assert [f.verdict for f in judged(suite, "right", looping)] == [Verdict.PASS] * 2
    looping.close()


@pytest.mark.slow(keep=1)
@pytest.mark.parametrize(
    ("op", "words"),
    [
        ("interrupts", "vjp raised KeyboardInterrupt"),
        ("unreadable", "vjp raised Unreadable: (its text cannot be read)"),
        ("acquits", "vjp raised Broken: all is well"),
    ],
)
def test_whatever_is_raised_is_an_error_of_the_code(suite, deadly, op, words):
    (finding,) = judged(suite, op, deadly)
    assert finding.verdict is Verdict.ERROR
    assert words in finding.reason


@pytest.mark.slow
@pytest.mark.skipif(platform.machine() != "x86_64", reason="sets x86's control registers")
def test_another_way_to_compute_does_not_reach_the_next_operator(suite, deadly):
    (finding,) = judged(suite, "rounds", deadly)
    assert finding.verdict is Verdict.ERROR
    assert finding.reason.endswith("vjp leaves another rounding mode; restore it")
    assert [f.verdict for f in judged(suite, "usual", deadly)] == [Verdict.PASS] * 2
    judged(suite, "flushes", deadly)
    assert [f.verdict for f in judged(suite, "usual", deadly)] == [Verdict.PASS] * 2


@pytest.mark.parametrize("verdict", [v for v in Verdict if v not in FOUND])
def test_a_verdict_that_no_binding_there_can_find_is_not_believed(verdict):
    told = {"name": "vjp", "verdict": verdict, "reason": "", "part": "gradient", "printed": ""}
    said = {"text": "so", "name": "Broken", "ours": "", "builtin": "Exception", "finding": told}
    assert not isinstance(exception_of(said), Broken)
    assert isinstance(exception_of({**said, "finding": {**told, "verdict": "error"}}), Broken)


def test_an_interruption_that_a_call_makes_up_does_not_end_the_run():
    said = {"text": "", "name": "KeyboardInterrupt", "ours": "", "builtin": "KeyboardInterrupt"}
    assert not isinstance(exception_of(said), KeyboardInterrupt)
    assert isinstance(exception_of(said, interrupts=True), KeyboardInterrupt)


def test_a_stream_that_cannot_be_flushed_is_no_end(suite, deadly):
    assert [f.verdict for f in judged(suite, "unflushable", deadly)] == [Verdict.PASS] * 2


@pytest.mark.slow
def test_code_that_forks_is_answered_for_once(suite, deadly):
    assert [f.verdict for f in judged(suite, "forks", deadly)] == [Verdict.PASS] * 2


@pytest.mark.slow
def test_a_crash_that_depends_on_the_calls_before_says_so(suite, deadly):
    (finding,) = judged(suite, "third", deadly)
    assert finding.verdict is Verdict.CRASH
    assert finding.reason.startswith("SIGABRT in vjp; not in a process of its own")


@pytest.mark.slow
def test_what_was_bound_before_a_crash_is_bound_again(suite, deadly):
    bound = deadly.bind(case_of(suite, "right"), "float64")
    one = np.ones((2, 3))
    with pytest.raises(Broken, match="SIGABRT"):
        deadly.bind(case_of(suite, "aborts"), "float64").vjp(one, one, one)
    assert np.array_equal(bound.vjp(one, 2 * one, 3 * one), (3 * one, 2 * one))


@pytest.mark.slow
def test_an_implementation_that_loads_only_once_is_a_crash(suite, folder):
    (folder / "once.py").write_text(
        "import os, pathlib\n"
        "flag = pathlib.Path(__file__).with_suffix('.flag')\n"
        "if flag.exists(): raise ValueError('twice')\n"
        "flag.touch()\n"
        "from tiny import DEADLY as X\n"
    )
    one = isolated("once:X")
    (finding,) = judged(suite, "aborts", one)
    assert finding.verdict is Verdict.CRASH
    (finding,) = judged(suite, "right", one)
    assert finding.verdict is Verdict.CRASH
    assert "could not be started again" in finding.reason
    assert "importing once raised ValueError: twice" in finding.reason
    one.close()


def test_nothing_is_left_when_it_is_closed(suite, deadly):
    pid = deadly._child.process.pid
    deadly.close()
    deadly.close()
    assert not Path(f"/proc/{pid}").exists()


# ── loading ──────────────────────────────────────────────────────────────────────────────────


@pytest.mark.slow(keep=1)
@pytest.mark.parametrize("module", ["raises", "exits", "number", "misspelt", "nothing", "quiet"])
def test_what_cannot_be_loaded_is_said_as_here(module, folder):
    word = "load_quiet:Y" if module == "quiet" else f"load_{module}:X"
    with pytest.raises(LoadError) as here:
        load(word, BUILTIN)
    with pytest.raises(LoadError) as there:
        isolated(word, ["gradcheck_cases:SUITE"])
    assert str(there.value) == str(here.value)


@pytest.mark.slow(keep=1)
@pytest.mark.parametrize(
    ("module", "words"),
    [
        ("dies", "SIGABRT in loading it"),
        ("leaves", "loading it ended the process with exit status 4"),
    ],
)
def test_a_module_that_ends_the_process_cannot_be_loaded(module, words):
    with pytest.raises(LoadError, match=f"^--impl load_{module}:X: {words}$"):
        isolated(f"load_{module}:X")


@pytest.mark.slow
def test_an_interruption_there_is_one_here():
    with pytest.raises(KeyboardInterrupt):
        isolated("load_stops:X")


def test_load_gives_a_process_to_python_alone(suite, folder):
    isolation = Isolation(suites=["tiny:SUITE"])
    assert load("reference", suite, isolation=isolation).name == "reference"
    with pytest.raises(UnknownNameError, match="unknown implementation"):
        load("torhc", suite, isolation=isolation)
    one = load("load_quiet:X", suite, isolation=isolation)
    assert isinstance(one, Isolated)
    one.close()


# ── models and rules ─────────────────────────────────────────────────────────────────────────


@pytest.mark.slow(keep=1)
@pytest.mark.parametrize(
    "name", ["right", "wrong", "writes", "buffers", "stages", "lost", "pokes"]
)  # fmt: skip
def test_a_model_is_judged_as_here(name):
    (case,) = BUILTIN.model_cases(["quadratic"], [], ["tiny"])
    word = f"trainers:MODEL.{name}"
    there = isolated(word, ["gradcheck_cases:SUITE"])
    here = load(word, BUILTIN)
    for dtype in ("float64", "float32", "mp50"):
        ours, theirs = (
            bare(judge_model(ModelTruth(case), who, dtype).findings) for who in (here, there)
        )
        assert theirs == ours
    there.close()


@pytest.mark.slow
def test_a_model_that_crashes_is_a_verdict():
    (case,) = BUILTIN.model_cases(["quadratic"], [], ["tiny"])
    there = isolated("trainers:MODEL.dies", ["gradcheck_cases:SUITE"])
    (finding,) = judge_model(ModelTruth(case), there, "float64").findings
    assert (finding.verdict, finding.reason) == (Verdict.CRASH, "SIGABRT in gradients")
    for _ in range(9):
        there._budget.spend("quadratic", Verdict.CRASH)
    (finding,) = judge_model(ModelTruth(case), there, "float64").findings
    assert finding.verdict is Verdict.NOTRUN
    there.close()


@pytest.mark.slow
def test_a_value_is_asked_for_once():
    """So that nobody makes one call last for ever, each question of which is answered."""
    (case,) = BUILTIN.model_cases(["quadratic"], [], ["tiny"])
    there = isolated("trainers:MODEL.asks_for_ever", ["gradcheck_cases:SUITE"])
    found = judge_model(ModelTruth(case), there, "float64").findings
    stages = [f for f in found if f.part is Part.STAGE]
    forged = "the code wrote into the channel of its own process in stage"
    assert {(f.verdict, f.reason) for f in stages} == {(Verdict.CRASH, forged)}
    there.close()


@pytest.mark.slow
def test_a_stage_that_crashes_is_that_stages_verdict():
    (case,) = BUILTIN.model_cases(["quadratic"], [], ["tiny"])
    there = isolated("trainers:MODEL.stage_dies", ["gradcheck_cases:SUITE"])
    found = judge_model(ModelTruth(case), there, "float64").findings
    stages = [f for f in found if f.part is Part.STAGE]
    assert {(f.verdict, f.reason) for f in stages} == {(Verdict.CRASH, "SIGABRT in stage")}
    assert {f.verdict for f in found if f.part is Part.GRADIENT} == {Verdict.PASS}
    there.close()


@pytest.mark.slow
@pytest.mark.parametrize("name", ["clip", "replaces"])
def test_an_update_rule_is_judged_as_here(name):
    word = f"trainers:RULE.{name}"
    there = isolated(word, ["gradcheck_cases:SUITE"])
    here = load(word, BUILTIN)
    for case in BUILTIN.rule_cases(["clip_norm"], ["default"], []):
        ours, theirs = (bare(judge_rule(RuleTruth(case), who, "float64")) for who in (here, there))
        assert theirs == ours
    there.close()


@pytest.mark.slow
def test_a_rule_that_crashes_is_a_verdict():
    (case,) = BUILTIN.rule_cases(["clip_norm"], ["default"], ["typical"])
    there = isolated("trainers:RULE.aborts", ["gradcheck_cases:SUITE"])
    (finding,) = judge_rule(RuleTruth(case), there, "float64")
    assert (finding.verdict, finding.reason) == (Verdict.CRASH, "SIGABRT in update")
    there.close()


@pytest.mark.frameworks
def test_torch_is_judged_as_here():
    pytest.importorskip("torch")
    there, here = isolated("torch", ["gradcheck_cases:SUITE"]), load("torch", BUILTIN)
    for case in BUILTIN.cases(["softmax", "relu", "input_embedding"], samples=["typical"]):
        ours, theirs = (bare(judge_case(CaseTruth(case), who, "float32")) for who in (here, there))
        assert theirs == ours
    there.close()


STAMP = bytes(range(8))


class Line:
    """The line to a parent that has said everything already."""

    def __init__(self):
        self.said, self.heard = bytearray(), bytearray()

    def say(self, header, blocks=()):
        for piece in frames.pieces({**header, "stamp": STAMP.hex()}, blocks):
            self.said += piece

    def exactly(self, n):
        found = self.said[:n]
        del self.said[:n]
        return found

    def write(self, piece):
        self.heard += piece

    def answers(self):
        while self.heard:
            yield frames.read(self._heard, stamp=STAMP)

    def _heard(self, n):
        found = self.heard[:n]
        del self.heard[:n]
        return found

    def check(self):
        """Nobody has closed anything."""

    restore = check


@pytest.fixture
def host():
    return Host(Line())


@pytest.fixture
def ask(host):
    """`ask(header, *values)`: the answers to one request, whose `args` are those values."""

    def made(header, *values):
        cargo = Cargo()
        packer = Packer(cargo, adds=True)
        asked = {"args": packer.pack(values), "options": packer.pack({}), **header}
        host.channel.say(asked, packer.blocks)
        host.serve()
        (frame,) = host.channel.answers()
        value = frame.header.get("value")
        found = Unpacker(cargo, adds=False).unpack(value, frame.blocks)
        return {**frame.header, "value": found, "contents": frame.blocks}

    return made


@pytest.fixture
def begun(ask, monkeypatch):
    """`begun(table)`: the host has loaded it."""

    def made(table):
        module = ModuleType("kernels_there")
        module.IMPL = table
        monkeypatch.setitem(sys.modules, "kernels_there", module)
        return ask({"kind": "begin", "word": "kernels_there:IMPL", "argv": sys.argv,
                    "suites": ["gradcheck_cases:SUITE"]})  # fmt: skip

    return made


def bind(name, point="typical", dialect="default", attrs=(), dtype="float64"):
    pairs = [[key, value] for key, value in dict(attrs).items()]
    names = [name, dialect, point, 0]
    return {"kind": "bind", "names": names, "dtype": dtype, "attrs": ["d", pairs]}


def call(number, role="vjp"):
    return {"kind": "call", "number": number, "role": role, "call": 0}


def relu(ct, x):
    return ct * (x > 0)


def test_it_loads_binds_calls_and_forgets(begun, ask):
    assert begun({"relu": {"vjp": relu}})["kind"] == "done"
    bound = ask(bind("relu"))
    assert (bound["kind"], bound["roles"], bound["strided"]) == ("bound", ["vjp"], True)
    found = ask(call(bound["number"]), np.ones(2), np.array([-1.0, 2.0]))
    assert np.array_equal(found["value"], [0.0, 1.0])
    assert (found["changed"], found["emptied"]) == ([], [])
    assert ask(bind("tanh"))["kind"] == "none"
    gone = ask({**call(bound["number"]), "drop": [bound["number"]]})
    assert (gone["kind"], gone["name"]) == ("raised", "KeyError")


def test_what_cannot_be_loaded_is_raised_as_ours(begun):
    said = begun({"relo": {"vjp": relu}})
    assert (said["kind"], said["name"], said["ours"]) == ("raised", "LoadError", "LoadError")
    assert "did you mean 'relu'?" in said["text"]


class Unreadable(ArithmeticError):  # noqa: N818  a name to be told by
    def __str__(self):
        raise RuntimeError


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (ValueError("a\nb"), {"name": "ValueError", "text": "a\nb", "builtin": "ValueError"}),
        (Unsupported("lacks it"), {"ours": "Unsupported", "text": "lacks it"}),
        (Unreadable(), {"name": "Unreadable", "builtin": "ArithmeticError"}),
        (SystemExit(2), {"name": "SystemExit", "builtin": "SystemExit", "text": "2"}),
        (broken("dx", "no good"), {"ours": "", "text": "no good"}),
    ],
)
def test_what_is_raised_is_told_with_what_was_written_before(begun, ask, error, told):
    def vjp(ct, x):
        x[0] = 9
        raise error

    begun({"relu": {"vjp": vjp}})
    number = ask(bind("relu"))["number"]
    said = ask(call(number), np.ones(2), np.ones(2))
    assert said["kind"] == "raised"
    assert {key: said[key] for key in told} == told
    ((index, block),) = said["changed"]
    assert (index, bytes(said["contents"][block])) == (1, np.array([9.0, 1.0]).tobytes())
    assert "finding" not in said


def test_a_dict_that_was_changed_in_place_comes_back(begun, ask):
    def update(params, grads, state, t, *, max_norm):
        grads["a"] = grads["a"] * 2
        del grads["b"]

    begun({"clip_norm": {"update": update, "init": lambda params: {}}})
    bound = ask(bind("clip_norm"))
    assert bound["roles"] == ["update", "init"]
    grads = {"a": np.array([0.5, -3.0]), "b": np.ones(1)}
    cargo = Cargo()
    packer = Packer(cargo, adds=True)
    said = ask({**call(bound["number"], "update"), "options": packer.pack({"max_norm": 1.0})},
               {}, grads, {}, 1)  # fmt: skip
    assert said["changed"] == []
    ((index, entries),) = said["emptied"]
    ((key, value),) = entries
    assert (index, key) == (1, "a")
    found = Unpacker(cargo, adds=False).unpack(value, said["contents"])
    assert np.array_equal(found, [1.0, -6.0])


def test_a_stage_asks_for_the_values_that_it_looks_at(begun, ask, host):
    seen = []

    def backward(cts, values, stage):
        seen.extend((len(values), *values))
        with pytest.raises(KeyError, match="no such value"):
            values["nowhere"]
        return tuple(values[name] * cts[0] for name in stage.reads)

    begun({"quadratic": {"stages": {"*": {"backward": backward}}}})
    model = ask(bind("quadratic", "tiny"))
    assert model["roles"] == []
    stage = host.models[model["number"]][0].program.stages[0]
    bound = ask({"kind": "stage", "number": model["number"], "name": stage.name})
    packer = Packer(Cargo(), adds=True)
    asked = {**call(bound["number"], "stage"), "options": packer.pack({}),
             "args": ["t", [packer.pack((np.ones(2),)), ["m", ["x", "y"]]]]}  # fmt: skip
    host.channel.say(asked, packer.blocks)
    host.channel.say({"kind": "lacking", "text": "no such value"})
    for _ in set(stage.reads):
        more = Packer(Cargo(), adds=True)
        host.channel.say({"kind": "value", "value": more.pack(np.full(2, 3.0))}, more.blocks)
    host.serve()
    *gets, last = host.channel.answers()
    assert [get.header["name"] for get in gets] == ["nowhere", *dict.fromkeys(stage.reads)]
    assert last.header["kind"] == "returned"
    assert seen == [2, "x", "y"]


def test_what_a_bound_offers_besides_is_told(begun, ask, host, monkeypatch):
    begun({"relu": {"vjp": relu}})
    into = Into(call=relu, zeroed=frozenset("x"), aliases=(("x", "ct"),))
    whole = Bound(vjp=relu, forward=relu, attrs={"a": (1, 2)}, into=into, asked=relu, strided=True,
                  source="a.py:3", missing={"w": "frozen"})  # fmt: skip
    monkeypatch.setattr(host.implementation, "bind", lambda *_: whole)
    said = ask(bind("relu"))
    assert said["roles"] == ["vjp", "forward", "asked", "into"]
    assert said["into"] == {"accumulates": [], "zeroed": ["x"], "aliases": [["x", "ct"]]}
    assert (said["source"], said["missing"]) == ("a.py:3", {"w": "frozen"})
    assert said["attrs"] == ["d", [["a", ["t", [1, 2]]]]]


def sent(value, *, adds=True, lazily=None):
    """A value after its journey, the packer's cargo and the unpacker."""
    packer = Packer(Cargo(), adds=adds)
    said = json.loads(json.dumps(packer.pack(value)))
    blocks = [memoryview(bytes(block)) for block in packer.blocks]
    unpacker = Unpacker(Cargo(), adds=adds, lazily=lazily)
    return unpacker.unpack(said, blocks), packer, unpacker


@pytest.mark.parametrize(
    "value",
    [None, True, False, 0, -(1 << 80), 1.5, -0.0, 5e-324, float("inf"), "", "é\udc80\x00",
     (), [], {}, (1, [2.0, None], {"a": (True,), 3: "x", (1, None): []})],
)  # fmt: skip
def test_plain_values_arrive_as_they_are(value):
    found, *_ = sent(value)
    assert repr(found) == repr(value)
    assert type(found) is type(value)


def test_a_nan_keeps_its_payload():
    payload = np.array([0x7FF8DEAD00000001], np.uint64).view(np.float64)
    found, *_ = sent((float(payload[0]), payload))
    assert np.float64(found[0]).tobytes() == found[1].tobytes() == payload.tobytes()


BASE = np.arange(60, dtype=np.float64).reshape(3, 4, 5)


@pytest.mark.parametrize(
    "array",
    [
        BASE, BASE.T, BASE[:, ::2, ::-1], BASE[::-1, 1:3], np.asfortranarray(BASE), BASE[1, 2, 3:4],
        np.broadcast_to(BASE[0, 0], (4, 5)), np.array(3.5), BASE[:0], BASE[:, :0, ::2],
        BASE.astype("f4"), BASE.astype("f2"), BASE.astype(ml_dtypes.bfloat16), BASE.astype(">f8"),
        BASE.astype("i8"), BASE.astype("u1"), BASE > 3, BASE.astype(complex),
        BASE.astype(ml_dtypes.bfloat16)[::2, :, ::-2],
    ],
)  # fmt: skip
@pytest.mark.parametrize("writable", [True, False])
def test_an_array_arrives_with_its_bits_dtype_layout_and_flag(array, writable):
    given = array.view()
    given.flags.writeable = writable and array.flags.writeable
    found, *_ = sent(given)
    assert (found.dtype, found.shape) == (given.dtype, given.shape)
    assert not array.size or found.strides == given.strides
    assert found.tobytes() == given.tobytes()
    assert found.flags.writeable == given.flags.writeable


def test_the_gaps_of_a_view_arrive_too():
    base = np.arange(12.0)
    found, *_ = sent(base[::3])
    wide = np.lib.stride_tricks.as_strided(found, (10,), (8,))
    assert np.array_equal(wide, base[:10])


def test_scalars_of_numpy_stay_scalars():
    for value in (np.float32(1.5), np.int64(3), ml_dtypes.bfloat16(2)):
        found, *_ = sent(value)
        assert (type(found), found) == (type(value), value)


def test_what_is_passed_twice_is_one_object():
    array, table = np.ones(3), {"a": 1}
    found, *_ = sent((array, [array], table, table))
    assert found[0] is found[1][0]
    assert found[2] is found[3]


def test_what_was_carried_before_is_named_by_its_number():
    array = np.ones(3)
    here, there = Cargo(), Cargo()
    packer = Packer(here, adds=True)
    unpacker = Unpacker(there, adds=True)
    copy = unpacker.unpack(packer.pack(array), packer.blocks)
    back = Packer(there, adds=False).pack((copy, copy[:2]))
    assert back[1][0] == ["r", 0]
    assert back[1][1][0] == "a"
    assert Unpacker(here, adds=False).unpack(back[1][0], []) is array


def test_a_missing_gradient_keeps_its_reason():
    assert sent(Missing("frozen"))[0] == Missing("frozen")


class Tensor:
    dtype = "torch.float32"

    def __init__(self, values):
        self.values = values

    def __array__(self, *_, **__):
        if self.values is None:
            raise RuntimeError("no numbers")
        return self.values


def test_a_stranger_is_told_by_its_name_its_dtype_and_its_numbers():
    found, *_ = sent(Tensor(np.arange(3.0)), adds=False)
    assert (type(found).__name__, found.dtype) == ("Tensor", "torch.float32")
    assert np.array_equal(as_array(found), np.arange(3.0))
    empty, *_ = sent(Tensor(None), adds=False)
    assert (type(empty).__name__, as_array(empty)) == ("Tensor", None)


@pytest.mark.parametrize(
    "value", [object(), b"bytes", {1, 2}, 1j, np.array(["a"]), np.array([None])]
)
def test_what_is_no_array_stays_none(value):
    found, *_ = sent(value, adds=False)
    assert as_array(found) is None
    assert type(found).__name__ == type(value).__name__


def test_a_list_that_holds_itself_is_no_array():
    endless = [1]
    endless.append(endless)
    found, *_ = sent(endless, adds=False)
    assert found[0] == 1
    assert as_array(found[1]) is None


def test_a_lazy_mapping_is_asked_for_by_name():
    class Lazy(dict):
        pass

    given = MappingProxyType({"a": 1})
    found, *_ = sent(given, lazily=lambda names: ("lazy", names))
    assert found == ("lazy", ["a"])
    assert sent(Lazy(a=1))[0] == {"a": 1}
    assert sent(given, adds=False)[0] == {"a": 1}


@pytest.mark.parametrize("of", [lambda a: a, lambda a: a.T, lambda a: a[:, ::2, ::-1]])
def test_a_write_there_is_a_write_here_even_into_what_is_read_only(of):
    mine = of(BASE.copy())
    mine.flags.writeable = False
    found, packer, unpacker = sent(mine)
    assert [*unpacker.cargo.changed()] == []
    found.flags.writeable = True
    found[0, 0, 0] = -7.0
    ((index, content),) = unpacker.cargo.changed()
    room = packer.cargo.rooms[index]
    put_back(room.low, room.size, content)
    assert mine[0, 0, 0] == -7.0
    assert mine.tobytes() == found.tobytes()


def test_views_of_one_array_share_its_memory_there_too():
    whole = np.arange(10.0)
    (left, right, outer), packer, unpacker = sent((whole[2:6], whole[4:], np.arange(3.0)))
    assert np.shares_memory(left, right)
    assert not np.shares_memory(left, outer)
    left[3] = -1.0
    wide = np.lib.stride_tricks.as_strided(left, (6,), (8,))
    wide[5] = -2.0  # beside both
    assert right[:3].tolist() == [4.0, -1.0, 6.0]
    for number, content in unpacker.cargo.changed():
        room = packer.cargo.rooms[number]
        put_back(room.low, room.size, content)
    assert whole.tolist() == [0, 1, 2, 3, 4, -1, 6, -2, 8, 9]


def test_a_view_of_much_more_travels_alone():
    _, packer, _ = sent(np.zeros(1_000_000)[10:14])
    assert [memoryview(block).nbytes for block in packer.blocks] == [32]


@pytest.mark.parametrize("strides", [None, [8]])
def test_no_bytes_become_objects(strides):
    said = ["a", 0, 0, "|O", [2], strides, 0, True]
    with pytest.raises(ValueError, match="no numbers are sent as"):
        Unpacker(Cargo(), adds=False).unpack(said, [b"\1" * 16])


def test_another_size_is_not_put_back():
    with pytest.raises(ValueError, match="another size"):
        put_back(0, 24, bytes(8))


@pytest.mark.slow(keep=1)
@pytest.mark.parametrize(
    "said",
    [["q", 1], ["r", 0], ["a", -1, 0, "<f8", [2], None, 0, True], ["f", "xx"], [], ["m", []]],
)
def test_nonsense_is_an_error(said):
    with pytest.raises((ValueError, KeyError, IndexError, TypeError)):
        Unpacker(Cargo(), adds=False).unpack(said, [])
