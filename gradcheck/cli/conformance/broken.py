"""Broken messages: cut short, too large, not JSON or contradictory; and the reactions allowed.

Each is sent to a program after its `hello`, and is the last message that it gets.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from gradcheck.implementations.processes.crash_or_hang import in_words
from gradcheck.implementations.processes.frames import MAGIC, PREFIX
from gradcheck.implementations.protocol.levels import decoded, encoded
from gradcheck.implementations.protocol.message import (
    ITEMSIZE,
    Failure,
    Lacking,
    Pong,
    Violation,
    shown,
)

NESTED: Final = b'{"kind":"ping","seq":1,"x":' + b"[" * 100_000 + b"]" * 100_000 + b',"blocks":[]}'
"""Enough brackets to exhaust the stack of a recursive reader."""

Answers = Sequence[Mapping[str, Any]]
Rule = Callable[[int, Answers], str]
"""Returns the fault in an exit status and the answers before it; "" for none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Last:
    """A last message: its bytes, whether the input ends there, and the rule for the program."""

    name: str
    data: bytes
    rule: Rule
    close: bool = True


def wrong_with(last: Last, level: str, code: int, said: bytes) -> str:
    """The fault in how a program ended; "" for none."""
    if code < 0:
        return f"it died of {in_words(code)}; answer `error`, or exit with a status other than 0"
    try:
        answers, printed = decoded(level, said)
    except Violation as error:
        return str(error)
    if printed.strip():
        return f"it printed on standard output: {shown(printed)}; print on standard error"
    return last.rule(code, answers)


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """An operator that the program offers, its first primal, and a dtype."""

    op: str = "tanh"
    primal: str = "x"
    dtype: str = "float64"
    ask: str = "forward"

    def run(self, **entry: Any) -> dict[str, Any]:
        """A request with one block of 24 bytes, whose entry `entry` changes."""
        shape = [24 // ITEMSIZE[self.dtype]]
        block = {"role": "input", "name": self.primal, "dtype": self.dtype, "shape": shape}
        return {
            "kind": "run",
            "seq": 1,
            "op": self.op,
            "ask": self.ask,
            "dtype": self.dtype,
            "attrs": {},
            "blocks": [{**block, **entry}],
        }


def lasts(level: str, target: Target) -> list[Last]:
    """All last messages of one level."""
    some = _frames(target) if level == "frames" else _lines(target)
    bye = encoded(level, {"kind": "bye"})
    return [
        *some,
        Last(name="`bye`", data=bye, rule=_leaves, close=False),
        Last(name="the end of the input without `bye`", data=b"", rule=_ends),
    ]


def _frames(target: Target) -> list[Last]:
    whole = encoded("frames", target.run(), [bytes(24)])
    ping = b'{"kind":"ping","seq":1,"blocks":[]}'
    unreadable = {
        "a frame with another beginning": b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n" + bytes(64),
        "a header that is not JSON": _frame(b"{kind: 'ping'}"),
        "a header that is not an object": _frame(b'["ping"]'),
        "a header of 4 GB that does not come": PREFIX.pack(MAGIC, 2**32 - 1, 0) + ping,
        "a payload of 9 EB that does not come": PREFIX.pack(MAGIC, len(ping), 2**63) + ping,
        "the end of the input within a length": whole[: PREFIX.size - 3],
        "the end of the input within a header": whole[: PREFIX.size + 9],
        "the end of the input within a payload": whole[:-5],
    }
    odd: dict[str, dict[str, Any]] = {
        "a block that lies outside of the payload": {"offset": 1 << 40, "nbytes": 24},
        "a block with a negative offset": {"offset": -64, "nbytes": 24},
        "a block with fewer bytes than its shape says": {"offset": 0, "nbytes": 8},
        "a block whose shape is not a list": {"offset": 0, "nbytes": 24, "shape": "3"},
        "a block with a negative length": {"offset": 0, "nbytes": 24, "shape": [-3]},
        "a block with 10^18 elements": {"offset": 0, "nbytes": 24, "shape": [10**9, 10**9]},
    }
    return [
        *(Last(name=name, data=data, rule=_refuses) for name, data in unreadable.items()),
        *(
            Last(name=name, data=_frame(_text(target.run(**entry)), bytes(64)), rule=_objects)
            for name, entry in odd.items()
        ),
        Last(name="a deeply nested header", data=_frame(NESTED), rule=_bears),
    ]


def _lines(target: Target) -> list[Last]:
    odd: dict[str, dict[str, Any]] = {
        "a block that is not base64": {"b64": "%%%"},
        "a block without bytes": {},
        "a block with fewer bytes than its shape says": {"b64": "AAAAAAAAAAA="},
        "a block whose shape is not a list": {"b64": "A" * 32, "shape": "3"},
        "a block with a negative length": {"b64": "A" * 32, "shape": [-3]},
    }
    lines = {
        "a line that is not JSON": b"{kind: 'ping'}",
        "a line that is not an object": b'["ping"]',
        **{name: _text(target.run(**entry)) for name, entry in odd.items()},
    }
    cut = encoded("jsonl", target.run(), [bytes(24)])[:-9]
    return [
        *(Last(name=name, data=data + b"\n", rule=_objects) for name, data in lines.items()),
        Last(name="a deeply nested line", data=NESTED + b"\n", rule=_bears),
        Last(name="the end of the input within a line", data=cut, rule=_survives),
    ]


def _frame(text: bytes, payload: bytes = b"") -> bytes:
    return PREFIX.pack(MAGIC, len(text), len(payload)) + text + payload


def _text(header: Mapping[str, Any]) -> bytes:
    return json.dumps(header).encode()


# ── rules for the program ──────────────────────────────────────────────────────────


def _refuses(code: int, answers: Answers) -> str:
    if any(a.get("kind") != Failure.kind or a.get("seq") is not None for a in answers):
        return f'it answered {shown(answers[0])}; answer `error` with "seq": null, or nothing'
    return "" if code else "it exited with status 0; exit with another: the conversation is broken"


def _objects(code: int, answers: Answers) -> str:
    said = any(a.get("kind") in (Failure.kind, Lacking.kind) for a in answers)
    odd = [a for a in answers if a.get("kind") not in (Failure.kind, Lacking.kind)]
    if odd:
        return f"it answered {shown(odd[0])}; answer `error`"
    return "" if said or code else "it said nothing and exited with status 0; answer `error`"


def _bears(code: int, answers: Answers) -> str:
    ponged = [a for a in answers if a.get("kind") == Pong.kind]  # it may be able to read that
    return "" if len(ponged) == 1 == len(answers) else _objects(code, answers)


def _survives(code: int, answers: Answers) -> str:
    odd = [a for a in answers if a.get("kind") != Failure.kind]
    return f"it answered {shown(odd[0])}; answer `error`, or nothing" if odd else ""


def _ends(code: int, answers: Answers) -> str:
    return f"it answered {shown(answers[0])}, and nothing was asked" if answers else ""


def _leaves(code: int, answers: Answers) -> str:
    return f"it exited with status {code}; exit with 0" if code else _ends(code, answers)
