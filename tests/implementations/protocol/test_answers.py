"""What an export holds: a digest changes with every bit of a request, and an index is read back."""

import numpy as np
import pytest
from gradcheck_cases import SUITE

from gradcheck.errors import Unsupported, UsageError
from gradcheck.implementations.load import load
from gradcheck.implementations.protocol.answers import Answers, Exported, Index, digest, read, write
from gradcheck.implementations.protocol.message import Block, Form, Request
from gradcheck.run.export import export, requests_of

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


def test_every_bit_of_a_request_counts():
    assert digest(request()) == digest(request())
    for changes in (
        {"op": "relu"},
        {"ask": "forward"},
        {"dtype": "float64"},
        {"attrs": {"a": 1.0}},
        {"attrs": {}},
        {"wanted": ()},
        {"blocks": (Block(X, bytes(7) + b"\x80"), Block(CT, bytes(8)))},
        {"blocks": (Block(CT, bytes(8)), Block(X, bytes(8)))},
        {"blocks": (Block(X, bytes(8)),)},
    ):
        assert digest(request(**changes)) != digest(request()), changes


def test_an_index_comes_back_as_it_was_and_leads_nowhere_else(tmp_path):
    write(tmp_path, index())
    assert read(tmp_path) == index()
    for i, name in enumerate(["../x", "/etc", "a/b", "", ".", "..", ".hidden"]):
        folder = tmp_path / str(i)
        folder.mkdir()
        write(folder, index(places={"00": name}))
        with pytest.raises(UsageError, match="names a place outside of its folder"):
            read(folder)


CASE = SUITE.cases(["silu"], samples=["typical"])[0]


@pytest.fixture(params=["bin", "npz"])
def answers(request, tmp_path):
    """All requests of one case, answered with zeros."""
    place = tmp_path / "out"
    export(place, SUITE, [CASE], ["float64"], 0, request.param)
    for path in place.glob("*-??????*"):
        if path.is_dir():
            (path / "gradient.x.bin").write_bytes(bytes(8 * CASE.primals[0].size))
        else:
            zeros = np.zeros(CASE.primals[0].shape)
            np.savez(path.with_suffix(".answer.npz"), **{"gradient.x": zeros})
    return Answers("out", place)


def test_the_same_bits_are_answered_and_no_others(answers):
    bound = answers.bind(CASE, "float64")
    ((_, requests),) = requests_of(CASE, ["float64"])
    shape = CASE.primals[0].shape
    for request in requests:
        ct = np.frombuffer(request.blocks[1].data).reshape(shape)
        (dx,) = bound.vjp(ct, *CASE.primals, **CASE.attrs)
        assert np.array_equal(dx, np.zeros(shape))
    (x,) = CASE.primals
    for other in [(ct * 2, x), (ct, np.nextafter(x, 9)), (-ct, x)]:
        with pytest.raises(Unsupported, match="nothing but what was exported"):
            bound.vjp(*other, **CASE.attrs)


def test_what_was_not_exported_is_not_bound(answers):
    assert answers.bind(CASE, "float32") is None
    assert answers.bind(SUITE.cases(["silu"], samples=["cube"])[0], "float64") is None
    assert answers.bind_model(SUITE.model_cases()[0], "float64") is None
    assert answers.bind_rule(SUITE.rule_cases()[0], "float64") is None


def test_without_a_single_answer_nothing_is_bound(answers):
    for path in [*answers.place.glob("*/gradient.*"), *answers.place.glob("*.answer.npz")]:
        path.unlink()
    assert answers.bind(CASE, "float64") is None


def test_a_folder_is_an_implementation_if_it_holds_an_export(answers, tmp_path):
    assert isinstance(load(str(answers.place), SUITE), Answers)
    (answers.place / "index.json").write_text("{}")
    with pytest.raises(UsageError, match="is no index of an export"):
        load(str(answers.place), SUITE)
    with pytest.raises(UsageError, match="unknown implementation"):
        load(str(tmp_path), SUITE)
