"""Python in a process of its own: the same verdicts as here, and ends that are verdicts, too."""

import platform
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from gradcheck_cases import SUITE as BUILTIN
from gradcheck_cases.mutants.contract import MUTANTS

from gradcheck.errors import LoadError, UnknownNameError
from gradcheck.implementations.isolated import COMPILING, Isolated, Isolation
from gradcheck.implementations.load import load
from gradcheck.implementations.returned import Broken
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
ONE = np.ones((2, 3))

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
    "stops": "raise KeyboardInterrupt",
    "quiet": "X = {}",
    "number": "X = 3",
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
    "asks_for_ever": {"gradients": right, "stages": {"*square*": {"backward": asks_for_ever}}},
    "dies": {"gradients": dies},
    "stage_dies": {"gradients": right, "stages": {"*square*": {"backward": lambda *_: os.abort()}}},
}

def clip(params, grads, state, t, *, max_norm):
    norm = np.sqrt(sum(np.sum(g.astype(np.float64) ** 2) for g in grads.values()))
    if norm > max_norm:
        for name in grads: grads[name] *= grads[name].dtype.type(max_norm / norm)
def replaces(params, grads, state, t, *, max_norm):
    norm = np.sqrt(sum(np.sum(g.astype(np.float64) ** 2) for g in grads.values()))
    for name, g in list(grads.items()):
        grads[name] = g * g.dtype.type(min(1.0, max_norm / norm)) if norm else g
def aborts(params, grads, state, t, *, max_norm): os.abort()
RULES = {"clip": clip, "replaces": replaces, "aborts": aborts}
from dataclasses import replace
import gradcheck_cases
from gradcheck_cases.mutants.contract import MUTANTS
from gradcheck import Suite
HABITS = {m.name.replace("-", "_"): m.make() for m in MUTANTS}
RMS_NORM = gradcheck_cases.SUITE.operators["rms_norm"]
QUADRATIC = gradcheck_cases.SUITE.models["quadratic"]
CLIP_NORM = gradcheck_cases.SUITE.rules["clip_norm"]
TABLE = {**HABITS, **{f"model_{name}": entry for name, entry in MODELS.items()},
         **{f"rule_{name}": {"update": update} for name, update in RULES.items()}}
SUITE = Suite(
    "trained", "1", [replace(RMS_NORM, name=name) for name in HABITS],
    models=[replace(QUADRATIC, name=f"model_{name}") for name in MODELS],
    rules=[replace(CLIP_NORM, name=f"rule_{name}") for name in RULES])
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


@pytest.fixture(scope="module")
def deadly(folder):
    """The deadly table; its process is started again after each end."""
    made = isolated("tiny:DEADLY")
    yield made
    made.close()


@pytest.fixture(scope="module")
def trainers(folder):
    """The contract mutants of rms_norm, models and rules, each by a name of its own."""
    suite, there = resolve("trainers:SUITE"), isolated("trainers:TABLE", ["trainers:SUITE"])

    def judged_model(name, who=there, dtype="float64"):
        (case,) = suite.model_cases([f"model_{name}"], [], ["tiny"])
        return judge_model(ModelTruth(case), who, dtype).findings

    here = load("trainers:TABLE", suite)
    yield SimpleNamespace(suite=suite, here=here, there=there, judged_model=judged_model)
    there.close()


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

VERDICTS = {
    "right": Verdict.PASS,
    "none": Verdict.MISSING,
    "value_error": Verdict.ERROR,
    "lacking": Verdict.UNSUPPORTED,
    "counts": Verdict.ERROR,
    **{f"says_{word}": Verdict.ERROR for word in Verdict},
}
REASONS = {
    "writes": "vjp writes into its arguments (output array is read-only); copy first",
    "pokes_ct": "vjp writes into its argument ct; copy first",
    "pokes_w": "vjp writes into its argument w; copy first",
    "mine": "vjp raised Mine: mine: \x1b[31m é\udc80",
    "leaves": "vjp raised SystemExit: 3",
    "key_error": "vjp raised KeyError: 'k'",
    "one_tensor": "vjp returned one Tensor for 2 primals (x, w); return a tuple",
}
OF_DTYPES = ("right", "pullback", "narrowed", "swapped_bytes", "nan", "tensors", "layouts",
             "same_object", "lists", "pokes_and_raises", "lacking", "counts")  # fmt: skip
"""Operators whose answers, or what is read of them, depend on the dtype."""


@pytest.mark.slow
def test_every_verdict_is_the_same_as_here(suite, there):
    here = load("tiny:HARMLESS", suite)
    assert len(here.table) > 40
    pairs = [(op, "float64") for op in here.table]
    pairs += [(op, dtype) for op in OF_DTYPES for dtype in ("float32", "bfloat16")]
    last, differing = {}, []
    for op, dtype in pairs:
        ours, theirs = (judged(suite, op, who, dtype) for who in (here, there))
        last.setdefault(op, theirs[-1].verdict)
        if bare(theirs) != bare(ours):
            differing.append((op, dtype))
    assert differing == []
    assert {op: last[op] for op in VERDICTS} == VERDICTS
    ours, theirs = (judged(suite, "right", who, sample="scaled") for who in (here, there))
    assert bare(theirs) == bare(ours)
    assert theirs[0].verdict is Verdict.UNSUPPORTED  # an attribute that is fixed there


def test_what_is_said_names_what_happened_there(suite, there):
    assert {op: judged(suite, op, there)[-1].reason for op in REASONS} == REASONS


def test_a_case_that_the_suite_does_not_have_binds_by_its_attributes(suite, there):
    case = case_of(suite, "right")
    other = replace(case, sample=replace(case.sample, name="derived"))
    assert there.bind(other, "float64") is not None
    assert there.bind(replace(case, spec=suite.operators["segfault"]), "float64") is None


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
BREAKS = {
    "reused_buffer": "owned",
    "one_past_the_end": "bounds",
    "flat_dy": "layouts",
    "scales_dy": "pure",
    "two_steps": "aliases",
}


@pytest.mark.slow(keep=5)
@pytest.mark.parametrize("name", HABITS)
def test_what_code_does_to_memory_is_seen_as_here(trainers, name):
    (case,) = trainers.suite.cases([name], ["weight"], ["typical"])
    truth = CaseTruth(case)

    def said(who, examine):
        try:
            return repr(examine(Subject(truth, who, "float32")))
        except (Broken, Unfit, Unasked) as error:
            return f"{type(error).__name__}: {error}"

    seen = set()
    for examined in PROPERTIES:
        ours, theirs = (said(who, examined.examine) for who in (trainers.here, trainers.there))
        assert theirs == ours, examined.name
        if theirs != "None":
            seen.add(examined.name)
    if name in BREAKS:
        assert BREAKS[name] in seen
    if name == "right":
        assert seen == set()


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
        ("forges", "the code wrote into the channel of its own process …"),
        ("third", "SIGABRT in vjp; not in a process of its own …"),
    ],
)
def test_a_crash_is_the_cases_and_what_was_bound_before_is_bound_again(suite, deadly, op, reason):
    bound = deadly.bind(case_of(suite, "right"), "float64")
    (finding,) = judged(suite, op, deadly)
    assert (finding.name, finding.verdict) == ("vjp", Verdict.CRASH)
    whole, cut = finding.reason, reason.removesuffix("…")
    assert whole == reason or (cut != reason and whole.startswith(cut.rstrip()))
    if op == "segfault":
        assert "Segmentation fault" in finding.printed
        assert "in segfault" in finding.printed
    assert np.array_equal(bound.vjp(ONE, 2 * ONE, 3 * ONE), (3 * ONE, 2 * ONE))


@pytest.mark.slow
def test_the_process_answers_for_what_is_wrong_and_lives_on(suite, deadly):
    large = "vjp returned more than could be right: "
    sizes = "an array of shape {} and dtype float64 (with it {} bytes; at most 67,111,168 are "
    judged(suite, "right", deadly)
    process = deadly._child.process.pid
    wrong = {
        "vast": large + sizes.format("(8192, 2048)", "134,217,728"),
        "vast_in_sum": large + sizes.format("(4194304,)", "100,663,296"),
        "vast_as_text": f"{large}more than 16,777,216 bytes outside of arrays, or more than 65,536",
        "interrupts": "vjp raised KeyboardInterrupt",
        "unreadable": "vjp raised Unreadable: (its text cannot be read)",
        "acquits": "vjp raised Broken: all is well",
    }
    for op, words in wrong.items():
        (finding,) = judged(suite, op, deadly)
        assert (finding.name, finding.verdict) == ("vjp", Verdict.ERROR), op
        assert finding.reason.startswith(words), op
    # A few numbers that lie far apart, which are sent without the gaps; and a copy of the process.
    for op in ("widens", "forks", "right"):
        assert [f.verdict for f in judged(suite, op, deadly)] == [Verdict.PASS] * 2, op
    assert deadly._child.process.pid == process


def test_a_stream_that_cannot_be_flushed_is_no_end(suite, deadly):
    assert [f.verdict for f in judged(suite, "unflushable", deadly)] == [Verdict.PASS] * 2


@pytest.mark.slow
def test_a_process_that_promises_more_than_it_may_is_ended(suite, deadly, monkeypatch):
    bound = deadly.bind(case_of(suite, "right"), "float64")
    monkeypatch.setattr("gradcheck.implementations.wire.ROOM", -(1 << 26))
    with pytest.raises(Broken, match="the code wrote into the channel of its own process in vjp"):
        bound.vjp(ONE, ONE, ONE)


@pytest.mark.slow
def test_an_interrupted_call_does_not_answer_the_next(suite, deadly, monkeypatch):
    bound = deadly.bind(case_of(suite, "right"), "float64")

    def interrupted(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("gradcheck.implementations.isolated._read", interrupted)
        with pytest.raises(KeyboardInterrupt):
            bound.vjp(ONE, 5 * ONE, 7 * ONE)
    assert np.array_equal(bound.vjp(ONE, 2 * ONE, 3 * ONE), (3 * ONE, 2 * ONE))


@pytest.mark.slow
def test_a_loop_is_a_timeout_and_after_three_the_rest_is_left_out(suite, deadly):
    judged(suite, "right", deadly)
    deadly.timeout = 0.3
    for _ in range(3):
        (finding,) = judged(suite, "loops", deadly)
        assert finding.verdict is Verdict.TIMEOUT
        assert finding.reason == "vjp did not return within 0.3 s"
    (finding,) = judged(suite, "loops", deadly)
    assert (finding.verdict, finding.reason) == (Verdict.NOTRUN, "not run after 3 hangs of loops")
    deadly.timeout = LONG
    assert [f.verdict for f in judged(suite, "right", deadly)] == [Verdict.PASS] * 2


@pytest.mark.slow
@pytest.mark.skipif(platform.machine() != "x86_64", reason="sets x86's control registers")
def test_another_way_to_compute_does_not_reach_the_next_operator(suite, deadly):
    (finding,) = judged(suite, "rounds", deadly)
    assert finding.verdict is Verdict.ERROR
    assert finding.reason.endswith("vjp leaves another rounding mode; restore it")
    assert [f.verdict for f in judged(suite, "usual", deadly)] == [Verdict.PASS] * 2
    judged(suite, "flushes", deadly)
    assert [f.verdict for f in judged(suite, "usual", deadly)] == [Verdict.PASS] * 2


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


# ── loading ──────────────────────────────────────────────────────────────────────────────────


@pytest.mark.slow(keep=1)
@pytest.mark.parametrize("module", ["raises", "number"])  # all: test_isolated_host.py
def test_what_cannot_be_loaded_is_said_as_here(module, folder):
    with pytest.raises(LoadError) as here:
        load(f"load_{module}:X", BUILTIN)
    with pytest.raises(LoadError) as there:
        isolated(f"load_{module}:X", ["gradcheck_cases:SUITE"])
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


def test_load_gives_a_process_to_python_alone_and_close_leaves_nothing(suite, folder):
    isolation = Isolation(suites=["tiny:SUITE"])
    assert load("reference", suite, isolation=isolation).name == "reference"
    with pytest.raises(UnknownNameError, match="unknown implementation"):
        load("torhc", suite, isolation=isolation)
    one = load("load_quiet:X", suite, isolation=isolation)
    assert isinstance(one, Isolated)
    pid = one._child.process.pid
    one.close()
    one.close()
    assert not Path(f"/proc/{pid}").exists()


# ── models and rules ─────────────────────────────────────────────────────────────────────────


@pytest.mark.slow(keep=1)
@pytest.mark.parametrize(
    "name", ["right", "wrong", "writes", "buffers", "stages", "lost", "pokes"]
)  # fmt: skip
def test_a_model_is_judged_as_here(trainers, name):
    dtypes = ("float64", "float32", "mp50") if name in ("right", "stages") else ("float64",)
    for dtype in dtypes:
        ours, theirs = (
            bare(trainers.judged_model(name, who, dtype)) for who in (trainers.here, trainers.there)
        )
        assert theirs == ours


@pytest.mark.slow
def test_a_model_that_crashes_is_a_verdict(trainers):
    (finding,) = trainers.judged_model("dies")
    assert (finding.verdict, finding.reason) == (Verdict.CRASH, "SIGABRT in gradients")
    for _ in range(9):
        trainers.there._budget.spend("model_dies", Verdict.CRASH)
    (finding,) = trainers.judged_model("dies")
    assert finding.verdict is Verdict.NOTRUN


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("stage_dies", "SIGABRT in stage"),
        # So that nobody makes one call last for ever, each question of which is answered.
        ("asks_for_ever", "the code wrote into the channel of its own process in stage"),
    ],
)
def test_a_stage_that_crashes_or_asks_twice_is_that_stages_verdict(trainers, name, reason):
    found = trainers.judged_model(name)
    stages = [f for f in found if f.part is Part.STAGE]
    assert {(f.verdict, f.reason) for f in stages} == {(Verdict.CRASH, reason)}
    assert {f.verdict for f in found if f.part is Part.GRADIENT} == {Verdict.PASS}


@pytest.mark.slow
@pytest.mark.parametrize("name", ["clip", "replaces"])
def test_an_update_rule_is_judged_as_here(trainers, name):
    cases = trainers.suite.rule_cases([f"rule_{name}"], ["default"], [])
    assert cases
    for case in cases:
        truth = RuleTruth(case)
        ours, theirs = (
            bare(judge_rule(truth, who, "float64")) for who in (trainers.here, trainers.there)
        )
        assert theirs == ours


@pytest.mark.slow
def test_a_rule_that_crashes_is_a_verdict(trainers):
    (case,) = trainers.suite.rule_cases(["rule_aborts"], ["default"], ["typical"])
    (finding,) = judge_rule(RuleTruth(case), trainers.there, "float64")
    assert (finding.verdict, finding.reason) == (Verdict.CRASH, "SIGABRT in update")


@pytest.mark.frameworks
def test_torch_is_judged_as_here():
    pytest.importorskip("torch")
    there, here = isolated("torch", ["gradcheck_cases:SUITE"]), load("torch", BUILTIN)
    for case in BUILTIN.cases(["softmax", "relu", "input_embedding"], samples=["typical"]):
        ours, theirs = (bare(judge_case(CaseTruth(case), who, "float32")) for who in (here, there))
        assert theirs == ours
    there.close()


# ── compilers ────────────────────────────────────────────────────────────────────────────────────

COMPILED = """
import sys, types
import numpy as np
sys.modules["numba"] = types.ModuleType("numba")  # as after `import numba`

def vjp(ct, x): return ct * (1 - np.tanh(x) ** 2)
def loops(ct, x):
    while x.shape[-1] == 7: pass
    return vjp(ct, x)
IMPL, LOOPS = {"tanh": {"vjp": vjp}}, {"tanh": {"vjp": loops}}
"""


def of_size(isolated, *shapes):
    """The limits of calls of tanh's vjp, with arguments of these shapes."""
    limits, exchange = [], isolated.exchange

    def spied(asked, blocks=(), give=None, seconds=None, cargo=None):
        limits.extend([seconds or isolated.timeout] * (asked["kind"] == "call"))
        return exchange(asked, blocks, give, seconds, cargo)

    isolated.exchange = spied
    bound = isolated.bind(BUILTIN.cases(["tanh"])[0], "float64")
    for shape in shapes:
        bound.vjp(np.ones(shape), np.ones(shape))
    return limits


@pytest.fixture
def compiled(folder):
    """Tables of a module that has imported a compiler."""
    (folder / "compiled_kernels.py").write_text(COMPILED)
    return lambda name: isolated(f"compiled_kernels:{name}", ["gradcheck_cases:SUITE"])


@pytest.mark.slow
def test_the_first_call_of_a_size_has_time_to_compile(compiled):
    there = compiled("IMPL")
    long = LONG + COMPILING
    assert of_size(there, (2, 3), (2, 3), (3, 2), (2, 3)) == [long, LONG, long, LONG]
    assert there.bind(BUILTIN.cases(["tanh"])[0], "float64").compiles
    there._end()  # a new process has compiled nothing
    assert of_size(there, (2, 3)) == [long]
    there.close()


@pytest.mark.slow
def test_no_other_code_has(folder):
    (folder / "plain_kernels.py").write_text(COMPILED.replace('"numba"]', '"number"]'))
    there = isolated("plain_kernels:IMPL", ["gradcheck_cases:SUITE"])
    assert of_size(there, (2, 3), (3, 2)) == [LONG, LONG]
    assert not there.bind(BUILTIN.cases(["tanh"])[0], "float64").compiles
    there.close()


@pytest.mark.slow
def test_a_hang_while_it_compiles_is_a_timeout_of_that_limit(compiled, monkeypatch):
    monkeypatch.setattr("gradcheck.implementations.isolated.COMPILING", 0.5)
    there = compiled("LOOPS")
    there.timeout = 0.25
    with pytest.raises(Broken) as error:
        of_size(there, (1, 7))
    assert error.value.finding.verdict is Verdict.TIMEOUT
    assert error.value.finding.reason == "vjp did not return within 0.75 s"
    there.close()
