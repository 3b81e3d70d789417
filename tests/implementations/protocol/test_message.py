"""Answers are held against what was asked; what does not fit is said in one short sentence."""

import json
import math

import pytest

from gradcheck.implementations.protocol.message import (
    Block,
    Done,
    Failure,
    Form,
    Hello,
    Pong,
    Request,
    Result,
    Violation,
    as_json,
    check_seq,
    fitting,
    parse,
    shown,
    tame,
)

X = Form(role="gradient", name="x", dtype="float32", shape=(2, 3))
B = Form(role="gradient", name="bias", dtype="float32", shape=())


def request(*wanted, ask="vjp"):
    return Request(op="add", ask=ask, dtype="float32", wanted=wanted)


def changed(form, **changes):
    return Form(**{name: changes.get(name, getattr(form, name)) for name in form.__struct_fields__})


HELLO = {
    "kind": "hello",
    "protocol": 1,
    "implementation": {"name": "mine"},
    "ops": {"add": {"asks": ["vjp"], "dtypes": ["float64"], "attrs": ["axis"]}},
}


def test_a_message_is_read_and_what_is_not_known_is_ignored():
    hello = parse({**HELLO, "colour": "red"}, Hello)
    assert hello.ops["add"].attrs == ("axis",)
    assert hello.implementation.language == ""
    assert parse({"kind": "pong", "seq": [1]}, Pong, Failure).seq == [1]


@pytest.mark.parametrize(
    ("header", "said"),
    [
        ({}, "the kind null"),
        ({"kind": 3}, "the kind 3"),
        ({"kind": ["result"]}, "the kind"),
        ({"kind": "res\x1bult"}, 'the kind "res ult"; `result` is expected'),
        ({"kind": "pong", "seq": 1}, "the answer is a `pong` where `result` is expected"),
        ({"kind": "result", "blocks": []}, "missing required field `seq`"),
        ({"kind": "result", "seq": 1}, "missing required field `blocks`"),
        ({"kind": "result", "seq": 1, "blocks": {}}, "Expected `array`"),
        ({"kind": "result", "seq": 1, "blocks": [3]}, "Expected `object`"),
        (
            {"kind": "result", "seq": 1, "blocks": [{"role": "gradient", "name": 1}]},
            "Expected `str`",
        ),
        (
            {
                "kind": "result",
                "seq": 1,
                "blocks": [{"role": "gradient", "name": "x", "dtype": "float64", "shape": [1.5]}],
            },
            "shape",
        ),
    ],
)
def test_a_message_of_another_form_is_a_violation(header, said):
    with pytest.raises(Violation, match=said) as caught:
        parse(header, Result)
    assert str(caught.value).startswith("protocol: ")


def test_blocks_that_fit_are_given_back_and_a_missing_one_is_absent():
    block = Block(X, bytes(24))
    assert fitting(request(X, B), [block]) == {"x": block}
    assert fitting(request(X, B), [Block(B, bytes(4)), block]).keys() == {"x", "bias"}


@pytest.mark.parametrize(
    ("blocks", "said"),
    [
        ([Block(changed(X, role="grad"), bytes(24))], 'the role "grad"'),
        ([Block(changed(X, role="output"), bytes(24))], "role 'gradient'"),
        ([Block(changed(X, name="y"), bytes(24))], "asked for were x, bias"),
        ([Block(X, bytes(24)), Block(X, bytes(24))], "comes twice"),
        ([Block(changed(X, dtype="float64"), bytes(48))], "is float64; make it float32"),
        ([Block(changed(X, dtype="float8"), bytes(6))], "is float8; make it float32"),
        ([Block(changed(X, shape=(3, 2)), bytes(24))], r"shape \[3, 2\], not \[2, 3\]"),
        ([Block(changed(X, shape=(6,)), bytes(24))], r"shape \[6\], not"),
        ([Block(changed(B, shape=(1,)), bytes(4))], r"shape \[1\], not \[\]"),
        ([Block(X, bytes(23))], "comes with 23 bytes"),
        ([Block(X, bytes(28))], r"float32 of shape \[2, 3\] has 24"),
        ([Block(B, b"")], "comes with 0 bytes"),
    ],
)
def test_blocks_that_answer_something_else_are_violations(blocks, said):
    with pytest.raises(Violation, match=said):
        fitting(request(X, B), blocks)


@pytest.mark.parametrize("seq", [1, "1", None, True, 0.5, [1, {"a": []}], {"a": 1, "b": 2}])
def test_a_seq_comes_back_as_it_was(seq):
    check_seq(json.loads(json.dumps(seq)), seq)
    others = [1, "1", None, True, 0.5, [1], {"a": 1}, 1.5, 0]
    for other in others:
        if json.dumps(other) != json.dumps(seq):
            with pytest.raises(Violation, match="seq") as caught:
                check_seq(other, seq)
            assert caught.value.derailed


def test_the_order_of_keys_in_a_seq_means_nothing():
    check_seq({"b": 2, "a": 1}, {"a": 1, "b": 2})


def test_attributes_become_json():
    found = as_json((1, math.inf, [-math.inf, math.nan, None, "inf", (0.1, True)]))
    assert found == [1, "inf", ["-inf", "nan", None, "inf", [0.1, True]]]
    json.dumps(found, allow_nan=False)


def test_a_request_says_everything_but_the_bytes():
    block = Block(Form(role="input", name="x", dtype="float32", shape=(2,)), bytes(8))
    header = Request(op="add", ask="vjp", dtype="float32", attrs={"n": 1}, blocks=(block,)).header(
        9
    )
    assert json.loads(json.dumps(header)) == {
        "kind": "run",
        "seq": 9,
        "op": "add",
        "ask": "vjp",
        "dtype": "float32",
        "attrs": {"n": 1},
        "blocks": [{"role": "input", "name": "x", "dtype": "float32", "shape": [2]}],
    }


@pytest.mark.parametrize("text", ["a\nb", "\x1b[2J", "\ud800", "x" * 10**6, " " * 10**6, "\u202e"])
def test_a_foreign_text_is_one_short_printable_line(text):
    for found in (tame(text), shown(text), shown([text]), shown(text, bare=True)):
        assert found.isprintable()
        assert len(found) <= 510
        found.encode()


def test_what_is_deeply_nested_can_be_shown_and_compared():
    deep = []
    for _ in range(10**5):
        deep = [deep]
    assert shown(deep)
    with pytest.raises(Violation):
        check_seq(deep, 1)


def test_an_answer_to_reset_is_done():
    assert parse({"kind": "done", "seq": 3}, Done).seq == 3
