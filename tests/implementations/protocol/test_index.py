"""What an export holds: a digest changes with every bit of a request, and an index is read back."""

import pytest

from gradcheck.errors import UsageError
from gradcheck.implementations.protocol.answers import Exported, Index, digest, read, write
from gradcheck.implementations.protocol.message import Block, Form, Request

X = Form(role="input", name="x", dtype="float32", shape=(2,))
CT = Form(role="cotangent", name="0", dtype="float32", shape=(2,))


def request(**changes):
    settings = {
        "op": "silu",
        "ask": "vjp",
        "dtype": "float32",
        "attrs": {"a": 1},
        "blocks": (Block(X, bytes(8)), Block(CT, bytes(8))),
        "wanted": (Form(role="gradient", name="x", dtype="float32", shape=(2,)),),
    }
    return Request(**{**settings, **changes})


def index(**changes):
    case = Exported(case="silu/default/typical", hash="0a0b", dtype="float32", calls=("00",))
    settings = {"layout": "bin", "suite": "builtin", "suite_version": "1", "seed": 0}
    return Index(**{**settings, "cases": (case,), "places": {"00": "1-00"}, **changes})


@pytest.mark.parametrize(
    "changes",
    [
        {"op": "relu"},
        {"ask": "forward"},
        {"dtype": "float64"},
        {"attrs": {"a": 1.0}},
        {"attrs": {}},
        {"wanted": ()},
        {"blocks": (Block(X, bytes(7) + b"\x80"), Block(CT, bytes(8)))},
        {"blocks": (Block(CT, bytes(8)), Block(X, bytes(8)))},
        {"blocks": (Block(X, bytes(8)),)},
    ],
)
def test_every_bit_of_a_request_counts(changes):
    assert digest(request()) == digest(request())
    assert digest(request(**changes)) != digest(request())


def test_an_index_comes_back_as_it_was(tmp_path):
    write(tmp_path, index())
    assert read(tmp_path) == index()


@pytest.mark.parametrize("name", ["../x", "/etc", "a/b", "", ".", "..", ".hidden"])
def test_an_index_leads_nowhere_else(tmp_path, name):
    write(tmp_path, index(places={"00": name}))
    with pytest.raises(UsageError, match="names a place outside of its folder"):
        read(tmp_path)
