import os

import pytest

from gradcheck.errors import LoadError, ManifestError
from gradcheck.implementations.manifest.schema import LARGEST, PLATFORM, on_this_platform, parse

HEAD = 'schema = 1\n[impl]\nname = "k"\n'
C = f'{HEAD}[c]\nlibrary = "k.so"\n'
OP = f'{C}[[op]]\nname = "silu"\n'


def parsed(path, text):
    path = path / "gradcheck.toml"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return parse(path)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("schema = ", "no TOML: Invalid value (at end of document)"),
        ("schema = 1\nschema = 2\n", "line 2"),
        (b"schema = 1 # \xff", "byte 13 is no UTF-8"),
        ("[" * 5000, "no TOML"),
        ("", "`schema` is missing; write `schema = 1`"),
        ("schema = 2", "`schema` is 2; write `schema = 1`"),
        ("schema = '1'", "`schema` is '1'"),
        ("schema = 1", "`impl` is missing"),
        ("schema = 1\n[impl]\n", "`impl.name` is missing"),
        ("schema = 1\n[impl]\nname = 3", "`impl.name`: expected str, got int"),
        (HEAD, "has no code to run; write exactly one of [c], [python], [subprocess]"),
        (C + '[subprocess]\ncmd = "./p"', "has [c] and [subprocess]; write exactly one"),
        (C + "libary = 3", "unknown key `libary` in `c`; did you mean `library`?"),
        (C + 'guard = "ends"', "`c.guard` is 'ends'; write one of 'end', 'start', 'off'"),
        (C + 'timeout = "3"', "`c.timeout`: expected float, got str"),
        (HEAD + "[c]\nlibrary = 3", "`c.library`: expected "),
        (HEAD + "[c]\n", "`c.library` is missing"),
        ("ops = 3\n" + C, "unknown key `ops`; did you mean `op`?"),
        (HEAD + "version.command = 'x'\n[c]\nlibrary = 'k'", "`command` in `impl.version`"),
        (C + "[[op]]\n", "op 1 (no name): `name` is missing"),
        (OP + 'vpj = "x"', "op 1 (silu): unknown key `vpj`; did you mean `vjp`?"),
        (OP + "[[op]]\nname = 'a'\nbnd = {}", "op 2 (a): unknown key `bnd`; did you mean `bind`?"),
        (OP + "vjp = 3", "op 1 (silu): `vjp`: expected "),
        (OP + "vjp = { float32 = 3 }", "op 1 (silu): `vjp"),
        (OP + "requires = 'x'", "`requires`: expected array, got str"),
        (OP + "aliases = [['a']]", "`aliases.0`: expected array of length 2"),
        (OP + "residuals = 'mine'", "`residuals` is 'mine'; write one of 'self', 'reference'"),
        (
            OP + "handle = { crate = 'x' }",
            "unknown key `crate` in `handle`; did you mean `create`?",
        ),
        (OP + "slack = { float32 = { ulp = 3 } }", "`slack"),
        (OP + "slack = { float32 = { ulp = 3, because = 'x', upl = 3 } }", "did you mean `ulp`?"),
        (OP + "alias_of = 'silu'", "alias_of: silu → silu"),
        (OP + "alias_of = 'sliu'", "no entry 'sliu'"),
        (OP + "alias_of = 'b'\n[[op]]\nname = 'b'\nalias_of = 'silu'", "silu → b → silu"),
        (OP + "alias_of = 'b'\n[[op]]\nname = 'b'\n[[op]]\nname = 'b'", "2 entries are called 'b'"),
        (HEAD + "[python]\nentry = 'a:B'\n[[op]]\nname = 'silu'", "[[op]] belongs to [c]"),
        (HEAD + "[subprocess]\ncmd = 'a'\nlevel = 'json'", "one of 'frames', 'jsonl', 'oneshot'"),
    ],
)
def test_a_mistake_is_named_with_its_file_entry_and_key(tmp_path, text, message):
    with pytest.raises(ManifestError) as caught:
        parsed(tmp_path, text)
    assert message in str(caught.value)
    assert "gradcheck.toml" in str(caught.value)


def test_a_file_that_is_not_there_is_a_load_error(tmp_path):
    with pytest.raises(LoadError, match="No such file"):
        parse(tmp_path / "nowhere.toml")
    with pytest.raises(LoadError, match="directory"):
        parse(tmp_path)


def test_a_byte_order_mark_is_no_part_of_the_text(tmp_path):
    assert parsed(tmp_path, b"\xef\xbb\xbf" + OP.encode()).top.op == parsed(tmp_path, OP).top.op


def test_a_file_that_is_far_too_large_is_not_read(tmp_path):
    path = tmp_path / "gradcheck.toml"
    with path.open("wb") as sparse:
        sparse.truncate(LARGEST + 1)
    with pytest.raises(ManifestError, match="it is too large: at most 4 MiB"):
        parse(path)


def test_an_alias_takes_everything_that_it_does_not_say_itself(tmp_path):
    text = OP + (
        "vjp = 'void f(int n)'\nattrs = { a = 1, b = 2 }\nsource = 'a.c:1'\n"
        "[[op]]\nname = 'second'\nalias_of = 'third'\nsource = 'a.c:2'\n"
        "[[op]]\nname = 'third'\nalias_of = 'silu'\nattrs = { a = 3 }\n"
    )
    (_, first), (where, second), _ = parsed(tmp_path, text).ops
    assert where == "gradcheck.toml, op 2 (second)"
    assert (second.name, second.vjp, second.source) == ("second", first.vjp, "a.c:2")
    assert second.attrs == {"a": 3}
    assert first.attrs == {"a": 1, "b": 2}


def test_a_library_per_platform(tmp_path):
    (tmp_path / "g").mkdir()
    text = f"{HEAD}[c]\nlibrary = {{ {PLATFORM} = 'here.so', other = 'there.so' }}\n"
    top = parsed(tmp_path, text).top
    assert on_this_platform(top.c.library, "here") == "here.so"
    with pytest.raises(ManifestError, match=f"`library` has no `{PLATFORM}`"):
        on_this_platform({"other": "there.so"}, "gradcheck.toml")


def test_a_pipe_is_not_waited_for(tmp_path):
    os.mkfifo(tmp_path / "gradcheck.toml")
    with pytest.raises(LoadError, match="it is a pipe with a name"):
        parse(tmp_path / "gradcheck.toml")
