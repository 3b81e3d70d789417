"""What the process of an implementation answers, asked within this one."""

import sys
from types import ModuleType

import gradcheck_cases
import numpy as np
import pytest

from gradcheck.errors import LoadError, Unsupported
from gradcheck.implementations.bound import Bound, Into
from gradcheck.implementations.isolated_calls import FOUND, exception_of
from gradcheck.implementations.isolated_host import Host
from gradcheck.implementations.load import load
from gradcheck.implementations.processes import frames
from gradcheck.implementations.returned import Broken, broken
from gradcheck.implementations.wire import Cargo, Packer, Unpacker
from gradcheck.results.verdict import Verdict

STAMP = bytes(range(8))
BEGIN = {"kind": "begin", "argv": sys.argv, "suites": ["gradcheck_cases:SUITE"]}


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
        return ask({**BEGIN, "word": "kernels_there:IMPL"})

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


LOADS = {
    "raises": "raise ValueError('one\\ntwo')",
    "exits": "raise SystemExit(3)",
    "number": "X = 3",
    "misspelt": "X = {'relo': {'vjp': abs}}",
    "quiet": "Y = {}",
}


@pytest.mark.parametrize("name", [*LOADS, "nothing"])
def test_what_cannot_be_loaded_is_said_as_here(ask, tmp_path, monkeypatch, name):
    for module, text in LOADS.items():
        (tmp_path / f"host_{module}.py").write_text(text)
    monkeypatch.syspath_prepend(str(tmp_path))
    word = f"host_{name}:X"
    with pytest.raises(LoadError) as here:
        load(word, gradcheck_cases.SUITE)
    said = ask({**BEGIN, "word": word})
    assert (said["kind"], said["name"], said["ours"]) == ("raised", "LoadError", "LoadError")
    told = exception_of(said)
    assert (type(told), str(told)) == (LoadError, str(here.value))


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
