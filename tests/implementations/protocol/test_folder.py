"""Requests as files: what is written can be read in any language; what comes back is hostile."""

import math
import os
import struct

import pytest

from gradcheck.implementations.protocol.folder import META, FolderError, file_of, meta, read, write
from gradcheck.implementations.protocol.message import Block, Form, Request, as_json

X = Form(role="input", name="x", dtype="float32", shape=(3, 8))
W = Form(role="input", name="weight", dtype="float32", shape=(8,))
CT = Form(role="cotangent", name="0", dtype="float32", shape=(3, 8))
DX = Form(role="gradient", name="x", dtype="float32", shape=(3, 8))
DW = Form(role="gradient", name="weight", dtype="float32", shape=(8,))
SCALAR = Form(role="gradient", name="c", dtype="float64", shape=())
Y = Form(role="output", name="0", dtype="float32", shape=(3, 8))


def task(**changes):
    given = (Block(X, bytes(range(96))), Block(W, bytes(32)), Block(CT, bytes(96)))
    settings = {"op": "rms_norm", "ask": "vjp", "dtype": "float32", "attrs": {"eps": 1e-05}}
    return Request(**{**settings, "blocks": given, "wanted": (DX, DW), **changes})


def answers(folder, *wanted):
    return {b.form.name: b.data for b in read(folder, task(wanted=wanted))}


def test_a_request_is_written_as_the_protocol_shows_it(tmp_path):
    write(tmp_path / "new", task())
    assert (tmp_path / "new" / META).read_text() == (
        "protocol 1\nop rms_norm\nask vjp\ndtype float32\nattr eps 1e-05\n"
        "input x float32 3 8\ninput weight float32 8\ncotangent 0 float32 3 8\n"
        "gradient x float32 3 8\ngradient weight float32 8\n"
    )
    assert (tmp_path / "new" / "input.x.bin").read_bytes() == bytes(range(96))
    names = {path.name for path in (tmp_path / "new").iterdir()}
    assert names == {META, "input.x.bin", "input.weight.bin", "cotangent.0.bin"}


def test_scalars_have_no_lengths_and_outputs_no_shape(tmp_path):
    write(tmp_path, task(ask="forward", blocks=(Block(SCALAR, bytes(8)),), wanted=(Y,), attrs={}))
    assert (tmp_path / META).read_text().splitlines()[-2:] == [
        "gradient c float64",
        "output 0 float32",
    ]


def test_an_attribute_is_a_json_value_on_one_line():
    for value, text in (
        (True, "true"),
        (None, "null"),
        ((0, -1), "[0,-1]"),
        ((None, (1, 2)), "[null,[1,2]]"),
        ("two words\nand a line", '"two words\\nand a line"'),
        (math.inf, '"inf"'),
        (-math.inf, '"-inf"'),
        (math.nan, '"nan"'),
        ((1.5, math.inf), '[1.5,"inf"]'),
    ):
        assert meta(task(attrs={"a": as_json(value)})).splitlines()[4] == f"attr a {text}"


def test_a_request_never_overwrites(tmp_path):
    (tmp_path / "input.x.bin").write_bytes(b"mine")
    with pytest.raises(FolderError, match=r"input\.x\.bin is there already"):
        write(tmp_path, task())
    assert (tmp_path / "input.x.bin").read_bytes() == b"mine"


def test_answers_are_read_by_name_and_a_missing_one_is_absent(tmp_path):
    write(tmp_path, task())
    assert answers(tmp_path, DX, DW) == {}
    data = struct.pack("<8f", *range(8))
    (tmp_path / file_of(DW)).write_bytes(data)
    (tmp_path / "log.txt").write_text("files of other names are nobody's business")
    assert answers(tmp_path, DX, DW) == {"weight": data}
    nothing = Form(role="gradient", name="x", dtype="float32", shape=(0, 5))
    (tmp_path / file_of(nothing)).write_bytes(b"")
    (tmp_path / file_of(SCALAR)).write_bytes(bytes(8))
    assert answers(tmp_path, nothing, SCALAR, DW) == {"x": b"", "c": bytes(8), "weight": data}


def sized(size):
    """Makes a sparse file: 8 GiB take no room."""

    def make(path):
        with path.open("wb") as file:
            file.truncate(size)

    return make


def linked(path):
    (path.parent / "secret").write_bytes(bytes(96))
    path.symlink_to(path.parent / "secret")


@pytest.mark.parametrize(
    ("make", "said"),
    [
        *(
            (sized(n), rf"gradient\.x\.bin has {n:,} bytes; 3 × 8 elements of float32 are 96")
            for n in (0, 95, 97, 192, 1 << 33)
        ),
        (linked, r"gradient\.x\.bin is no plain file"),
        (os.mkfifo, "no plain file"),
        (os.mkdir, "no plain file"),
        (
            lambda path: path.with_name("gradient.dx.bin").write_bytes(bytes(96)),
            r"dx\.bin is not asked for; wanted: gradient\.x",
        ),
    ],
)
def test_a_file_that_is_no_answer_is_refused_unread(tmp_path, make, said):
    make(tmp_path / file_of(DX))
    with pytest.raises(FolderError, match=said):
        answers(tmp_path, DX)


def test_a_folder_that_is_none_is_an_error_in_words(tmp_path):
    (tmp_path / "file").write_text("")
    (tmp_path / "folder").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "folder")
    for name in ("gone", "file", "link"):
        with pytest.raises(FolderError, match="cannot be opened as a folder"):
            answers(tmp_path / name, DX)
