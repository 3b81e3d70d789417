"""A program of level `oneshot` in plain Python: `python oneshot.py [LIE] FOLDER`."""

import array
import math
import os
import sys
import time
from pathlib import Path

CODES = {"float64": "d", "float32": "f"}


def tanh(ask, read):
    x = read("input.x")
    if ask == "forward":
        return {"output.0": [math.tanh(v) for v in x]}
    return {
        "gradient.x": [
            c * (1 - math.tanh(v) ** 2) for c, v in zip(read("cotangent.0"), x, strict=True)
        ]
    }


def main(lie, folder):
    lines = [line.split(" ") for line in (folder / "meta.txt").read_text().splitlines()]
    facts = {words[0]: words[1] for words in lines if len(words) == 2}
    if facts["protocol"] != "1":
        return 1
    known = facts["op"] == "tanh" and facts["ask"] in ("vjp", "forward")
    if not known or facts["dtype"] not in CODES:
        sys.stderr.write("only tanh\n")
        return 3
    if lie == "no_forward" and facts["ask"] == "forward":
        return 3
    shapes = {f"{words[0]}.{words[1]}": words[3:] for words in lines if len(words) > 2}
    code = CODES[facts["dtype"]]

    def read(name):
        values = array.array(code, (folder / f"{name}.bin").read_bytes())
        if len(values) != math.prod(map(int, shapes[name])):
            raise ValueError(f"{name}.bin has another size than meta.txt says")
        return values

    for name, values in tanh(facts["ask"], read).items():
        data = array.array(code, values).tobytes()
        lied = LIES[lie](folder / f"{name}.bin", data)
        if lied is not None:
            (folder / f"{name}.bin").write_bytes(lied)
    return 4 if lie == "exits_4" else 0


def extra(path, data):
    (path.parent / "gradient.weight.bin").write_bytes(data)
    return data


def prints(path, data):
    sys.stdout.write("loss 0.3\n")
    sys.stderr.write("slow\n")
    return data


LIES = {
    "": lambda path, data: data,
    "no_forward": lambda path, data: data,
    "short": lambda path, data: data[:-1],
    "long": lambda path, data: data + b"\0",
    "nothing": lambda path, data: None,
    "exits_4": lambda path, data: sys.stderr.write("singular\n") and data,
    "aborts": lambda path, data: os.abort(),
    "hangs": lambda path, data: time.sleep(600),
    "link": lambda path, data: path.symlink_to("/etc/passwd"),
    "extra": extra,
    "prints": prints,
}


GARBAGE = {"forgives": lambda: 0, "aborts_on_garbage": os.abort}


if __name__ == "__main__":
    if len(sys.argv) > 1 and sys.argv[1] in GARBAGE:
        try:
            sys.exit(main("", Path(sys.argv[2])))
        except Exception:  # noqa: BLE001
            sys.exit(GARBAGE[sys.argv[1]]())
    lie, place = sys.argv[1:] if len(sys.argv) == 3 else ("", sys.argv[1])
    sys.exit(main(lie, Path(place)))
