import os
import random
import re
from pathlib import Path

import pytest

from gradcheck.errors import LoadError, ManifestError
from gradcheck.implementations.manifest.operation import (
    NativeLibrary,
    Program,
    PythonEntry,
    Role,
    RoleKind,
    Special,
    Tensors,
    Value,
)
from gradcheck.implementations.manifest.read import check_libraries
from gradcheck.implementations.manifest.schema import LARGEST, PLATFORM, on_this_platform, parse

HEAD = 'schema = 1\n[impl]\nname = "k"\n'
C = f'{HEAD}[c]\nlibrary = "k.so"\n'
OP = f'{C}[[op]]\nname = "silu"\n'


def parsed(path, text):
    path = path / "gradcheck.toml"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return parse(path)


MISTAKES = [
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
]


def test_a_mistake_is_named_with_its_file_entry_and_key(tmp_path):
    assert refusals(lambda text: parsed(tmp_path, text), MISTAKES) == []


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


RMS_NORM = (
    "\n[[op]]\n"
    'name = "rms_norm/weight"\n'
    'vjp = "void f(float* dx, float* dw, const float* dy, const float* x, const float* w, '
    'int N, int D)"\n'
    'bind = { dx = "grad:x", dw = "grad:w", dy = "cotangent", x = "in:x", w = "in:w", '
    'N = "rows(x)", D = "dim(x, -1)" }\n'
)
SAVED = (
    "\n[[op]]\n"
    'name = "rms_norm/weight"\n'
    'forward = "int g(float* y, float* rstd, const float* x, const float* w, int N, int D)"\n'
    'forward_bind = { y = "out", rstd = "saved:rstd[N]", return = "status" }\n'
    'vjp = "void f(float* dx, float* dw, const float* dy, const float* x, const float* w, '
    'const float* rstd, int N, int D)"\n'
    'bind = { dx = "grad:x", dw = "grad:w", dy = "cotangent", x = "in:x", w = "in:w", '
    'rstd = "saved:rstd", N = "rows(x)", D = "dim(x, -1)" }\n'
)
XENT = (
    "\n[[op]]\n"
    'name = "softmax_cross_entropy"\n'
    'vjp = "float f(float* dx, const float* x, const int* t, int N, int V)"\n'
    'bind = { dx = "grad:logits", x = "in:logits", t = "in:targets", N = "rows(logits)", '
    'V = "dim(logits, -1)", return = "value" }\n'
)
SCAN = (
    "\n[[op]]\n"
    'name = "qk_norm/weight"\n'
    'forward = "void g(float* yq, float* yk, const float* q, const float* k)"\n'
    'forward_bind = { yq = "out", yk = "out:1", q = "in:q", k = "in:k" }\n'
)
ROPE = (
    "\n[[op]]\n"
    'name = "rope"\n'
    'handle = { create = "plan* plan_new(int d, double b)", bind = { d = "dim(x, -1)", '
    'b = "base" }, destroy = "void plan_free(plan*)" }\n'
    'vjp = "void f(const plan* p, float* d, int T)"\n'
    'bind = { p = "handle", d = "cotangent -> grad:x", T = "dim(x, 0)" }\n'
)


def changed(text, *changes):
    """The text, with other words ("old → new") or with lines more ("+ line")."""
    for change in changes:
        if change.startswith("+ "):
            text += change[2:]
        else:
            old, new = change.split(" → ")
            assert old in text
            text = text.replace(old, new)
    return text


CONTRADICTIONS = {
    RMS_NORM: [
        ("rms_norm → rmsnorm", "no operator `rmsnorm`; did you mean `rms_norm`?"),
        ("rms_norm → qqq", "no operator `qqq`; `gradcheck list` shows them all"),
        ("/weight → /wieght", "rms_norm has no dialect `wieght`; did you mean `weight`?"),
        ("void f( → f(", "vjp: `f("),
        ("dw =  → dww = ", "`f` has no such parameter; did you mean `dw`?"),
        ("N =  → M = ", "bind explains `M`"),
        (', N = "rows(x)" → ', "`f` has a parameter `N` that bind does not explain; add `N = …`"),
        ("grad:w → grad:weight", "bind.dw: rms_norm has no primal `weight`; known: x, w"),
        ("grad:w → out:1", "rms_norm has 1 output, counted from 0"),
        ("/weight → /plain", "bind.dw: the dialect has no `w`; leave `grad:w` out, or end it with"),
        (["rows(x) → D", "dim(x, -1) → N"], "defined by each other"),
        ("rows(x) → row(x)", "did you mean `rows`?"),
        ("float* dw → const float* dw", "bind.dw is const in the prototype"),
        (['"grad:w" → "scratch[D]"', "float* dw → const float* dw"], "bind.dw is const"),
        ('"cotangent" → "cotangent -> grad:x"', "bind.dy is const in the prototype"),
        ("float* dw → double* dw", "several types (float32: `dx`, `dy`, `x`, `w`; float64: `dw`)"),
        ("float* → int*", "no tensor in its prototype has a float type; say the dtype"),
        ("float* → void*", "no tensor in its prototype has a float type; say the dtype"),
        ("float* dw → int* dw", "`dw` leads to int32 and is `grad:w`, which is float32 here"),
        ('vjp = "void → vjp.float64 = "void', "vjp.float64: `dx` leads to float32"),
        ('vjp = "void → vjp.flot32 = "void', "the dtype `flot32`; did you mean `float32`?"),
        (["grad:x → in:x", "grad:w → in:w"], "no parameter is a gradient; bind one to grad:x"),
        ("cotangent → saved:rstd", "there is no forward in float32"),
        ("vjp = → forward =", "`grad` has no place here: a forward knows in, out, saved"),
        ("vjp = → source =", "write `vjp ="),
        ('+ forward_bind = { a = "out" }', "`forward_bind` explains no function"),
        ('+ accumulates = ["dq"]', "accumulates: `dq` is no gradient; did you mean"),
        ('+ accumulates = ["dy"]', "accumulates: `dy` is no gradient"),
        ('+ zeroed = ["N"]', "zeroed: `N` is no gradient"),
        ('+ zeroed = ["dw"]\naccumulates = ["w"]', "either accumulates or must be zeroed"),
        ('+ aliases = [["dy", "x"]]', "neither is a gradient"),
        ('+ aliases = [["dx", "dw"]]', "`dw` is neither a cotangent nor a primal"),
        ('+ aliases = [["dx", "N"]]', "`N` is neither a cotangent nor a primal"),
        (
            [
                '"grad:x" → { parts = [{ is = "grad:x" }, { is = "grad:w", at = "1" }] }',
                '+ aliases = [["dx", "dy"]]',
            ],
            "`dx` holds several gradients; alias one alone",
        ),
        ("+ attrs = { ep = 1 }", "attrs: no attribute `ep`; did you mean `eps`?"),
        ("+ attrs = { eps = '1e-5' }", "its default is 1e-05, of another kind"),
        ("+ attrs = { unit_offset = 1 }", "of another kind"),
        ('+ requires = ["Q == 1"]', "there is no `Q` here"),
        ('+ loss_scale = "K"', "there is no `K` here"),
        ('+ missing = { w = "frozen" }', "missing: `w` has a gradient"),
        ('+ missing = { b = "frozen" }', "missing: rms_norm has no primal `b`"),
        ('+ saved = { r = "eps" }', "`saved` explains `r`, which no parameter of vjp is"),
        ("+ slack = { float32 = { ulp = 3, because = ' ' } }", "a wider bound needs a sentence"),
        ("+ slack = { float32 = { ulp = 0, because = 'x' } }", "more than 0"),
        ("+ slack = { float32 = { ulp = inf, because = 'x' } }", "ulp = inf; write"),
        ("+ slack = { float32 = { ulp = nan, because = 'x' } }", "ulp = nan; write"),
        ("+ slack = { float = { ulp = 1, because = 'x' } }", "slack names the dtype `float`"),
        (['"void f → "float* f', 'bind = { → bind = { return = "out",'], "returns a pointer"),
        ('bind = { → bind = { return = "status",', "the function returns nothing (void)"),
    ],
    XENT: [
        ('return = "value" → return = "status"', "a status is a whole number, and this is float32"),
        ('"float f → "int f', "`value` is a real number, and this is int32"),
        ('"value" → "in:logits"', "a result is `out`, `value`, `grad:x` or `status`"),
        ('return = "value" → return = "rows(x)"', "is no role"),
        ("grad:logits → grad:targets", "`targets` holds indices, which have no gradient"),
        ('+ missing = { targets = "x" }', "`targets` holds indices, which have no gradient"),
    ],
    SAVED: [
        ("saved:rstd[N] → saved:rst[N]", "forward saves no such thing; did you mean `rst`?"),
        (
            ["w, int N → w, int M", "rstd[N] → rstd[M]", 'return =  → M = "rows(x)", return = '],
            "saved:rstd of `f` has no shape, and the other function's means nothing here: "
            "expression `M`: there is no `M` here",
        ),
        ('y = "out" → y = "scratch[N]"', "forward gives no `out:0`"),
        ('y = "out" → y = "grad:x"', "forward_bind.y: `grad` has no place here"),
        ('y = "out" → y = "out", q = "out"', "forward_bind explains `q`"),
        ('+ residuals = "reference"', "`saved` does not say what `rstd` is"),
        ('+ residuals = "reference"\nsaved = { rstd = "sqrt(q)" }', "there is no `q` here"),
    ],
    SCAN: [
        ('"out:1" → "out"', "forward gives no `out:1`"),
        ('"out:1" → "out:2"', "has 2 outputs, counted from 0"),
    ],
    ROPE: [
        ('"handle" → "unused"', 'no parameter is bound to "handle"; leave `handle` out'),
        ("handle = { → attrs = {}\nX = {", "unknown key `X`"),
        ('"plan* plan_new → "int plan_new', "`plan_new` returns no pointer"),
        ("plan_free(plan*) → plan_free(plan*, int n)", "`plan_free` must take the handle alone"),
        ("plan_free(plan*) → plan_free(int n)", "`plan_free` must take the handle alone"),
        ('b = "base" → b = "bse"', "there is no `bse` here; did you mean `base`?"),
        (', b = "base" → ', "`plan_new` has a parameter `b` that bind does not explain"),
    ],
    RMS_NORM + RMS_NORM: [
        ([], "rms_norm/weight in float32 is already in gradcheck.toml, op 1 (rms_norm/weight)"),
    ],
    "": [([], "there is no [[op]]")],
}


def refusals(read, rows):
    """What is not refused, or in other words than its row gives."""
    wrong = []
    for text, message in rows:
        try:
            wrong.append((text, read(text)))
        except ManifestError as error:
            if message not in str(error) or "gradcheck.toml" not in str(error):
                wrong.append((text, str(error)))
    return wrong


def test_a_contradiction_is_named_with_its_entry_and_key(manifest):
    rows = [
        (changed(base, *([change] if isinstance(change, str) else change)), message)
        for base, rows in CONTRADICTIONS.items()
        for change, message in rows
    ]
    assert refusals(manifest, rows) == []


def test_a_handle_that_nobody_makes(manifest):
    text = "\n".join(line for line in ROPE.splitlines() if not line.startswith("handle"))
    with pytest.raises(ManifestError, match="nothing makes one; add `handle`"):
        manifest(text)


SETTINGS = [
    ("align = 3", "align = 3; write a power of 2"),
    ("align = 0", "align = 0; write a power of 2"),
    ("align = 131072", "align = 131072; write a power of 2"),
    ("timeout = 0", "timeout = 0.0; write seconds, more than 0"),
    ("timeout = nan", "timeout = nan; write seconds"),
    ("timeout = inf", "timeout = inf; write seconds"),
    ("[capabilities]\nmax_elements = 0", "max_elements = 0 leaves nothing to check"),
    ("[capabilities]\ndtypes = ['float']", "capabilities.dtypes names the dtype `float`"),
    ("[capabilities]\ndtypes = ['float64']", "its prototypes are for float32, [capabilities]"),
    ("[capabilities]\ndtypes = []", "its prototypes are for float32, [capabilities]"),
]


def test_settings_that_cannot_be(manifest):
    assert refusals(lambda head: manifest(head + RMS_NORM), SETTINGS) == []


def test_a_whole_library(manifest, tmp_path):
    head = (
        "schema = 1\n[impl]\nname = 'kernels'\nversion = '1.2'\nhomepage = 'h'\nissues = 'i'\n"
        "[c]\nlibrary = 'build/libk.so'\nguard = 'start'\nalign = 64\ntimeout = 2\n"
        "env = { A = 'b' }\n[capabilities]\nmax_elements = 100\n"
    )
    found = manifest(RMS_NORM + XENT, head)
    assert isinstance(found, NativeLibrary)
    assert [*found.operations] == [
        ("rms_norm/weight", "float32"), ("softmax_cross_entropy", "float32"),
    ]  # fmt: skip
    assert (found.name, found.version) == ("kernels", "1.2")
    assert (found.guard, found.align, found.timeout, found.max_elements) == ("start", 64, 2, 100)
    assert found.environment == {"A": "b"}
    assert found.path == tmp_path / "gradcheck.toml"


def test_one_operation(operation, tmp_path):
    found = operation(RMS_NORM + "source = 'rms.c:3'\nrequires = ['D % 2 == 0']\nloss_scale = 8")
    assert (found.op, found.dialect, found.dtype) == ("rms_norm", "weight", "float32")
    assert found.where == "gradcheck.toml, op 1 (rms_norm/weight)"
    assert (found.source, found.requires, found.loss_scale) == ("rms.c:3", ("D % 2 == 0",), "8")
    assert found.forward is None
    assert found.vjp.library == tmp_path / "build/libk.so"
    assert found.vjp.prototype.symbol == "f"
    assert found.vjp.meanings["N"] == Value(expression="rows(x)")
    assert found.vjp.meanings["dx"].views[0].role == Role(kind=RoleKind.GRAD, name="x")
    assert found.missing == {}


def test_relative_paths_begin_at_the_manifest(operation, monkeypatch, tmp_path):
    monkeypatch.chdir("/")
    assert operation(RMS_NORM).vjp.library == tmp_path / "build/libk.so"
    other = operation(RMS_NORM + "library = { linux = '/abs/lib.so', macos = 'x' }")
    assert other.vjp.library == Path("/abs/lib.so")


FLIP = """
    [[op]]
    name = "flip"
    vjp = "void f(float* dx, const float* dy)"
    bind = { dx = "grad:x", dy = "cotangent" }
    attrs = { axes = [0, 1] }
"""


def test_attributes_that_the_code_has_fixed(operation):
    """Those that no expression mentions, at their default or as said."""
    one = "int N → int N, float eps"
    table = [
        (RMS_NORM, [], {"eps": 1e-5, "unit_offset": False}),
        (RMS_NORM, ["/weight → /unit-offset"], {"eps": 1e-6, "unit_offset": True}),
        (RMS_NORM, ["+ attrs = { eps = 1e-6 }"], {"eps": 1e-6, "unit_offset": False}),
        (RMS_NORM, [one, 'N =  → eps = "eps", N = '], {"unit_offset": False}),
        (RMS_NORM, [one, 'N =  → eps = "2", N = '], {"eps": 1e-5, "unit_offset": False}),
        (RMS_NORM, ['+ requires = ["not unit_offset"]'], {"eps": 1e-5}),
        (FLIP, [], {"axes": (0, 1)}),  # a tuple, as the operator has it
    ]
    for text, changes, attrs in table:
        assert operation(changed(text, *changes)).attrs == attrs, changes


def test_gradients_that_are_said_to_be_missing(operation):
    less = changed(RMS_NORM, "float* dw → float* tmp", 'dw = "grad:w" → tmp = "scratch[D]"')
    assert operation(less).missing == {}  # the judge sees that it is not there
    assert operation(less + 'missing = { w = "frozen" }').missing == {"w": "frozen"}
    assert operation(XENT).missing == {}  # the targets have none


def test_a_symbol_per_dtype(manifest):
    text = changed(RMS_NORM, 'vjp = " → vjp.float32 = "')
    halves = text.splitlines()[3].replace("float*", "uint16_t*")
    both = text + halves.replace("vjp.float32", "vjp.bfloat16").replace("f(", "f_bf16(") + "\n"
    both += (
        halves.replace("vjp.float32", "vjp.float16")
        .replace("f(", "f_f16(")
        .replace("uint16_t", "void")
    )
    found = manifest(both).operations
    assert {dtype: o.vjp.prototype.symbol for (_, dtype), o in found.items()} == {
        "float32": "f", "float16": "f_f16", "bfloat16": "f_bf16",
    }  # fmt: skip
    narrowed = manifest("[capabilities]\ndtypes = ['bfloat16']\n" + both).operations
    assert [*narrowed] == [("rms_norm/weight", "bfloat16")]


def test_what_is_said_of_one_dtype_alone(manifest):
    text = changed(RMS_NORM, 'vjp = " → vjp.float32 = "')
    text += text.splitlines()[3].replace("float*", "double*").replace("float32", "float64")
    text += '\nforward = "void g(float* y, const float* x, const float* w, int N, int D)"\n'
    text += 'forward_bind = { y = "out" }\n'
    text += "slack = { float32 = { ulp = 64, because = 'table' } }"
    operations = manifest(text).operations
    single, double = (operations["rms_norm/weight", d] for d in ("float32", "float64"))
    assert (single.slack.ulp, double.slack) == (64, None)
    assert (single.forward is None, double.forward) == (False, None)


def test_forward_takes_from_bind_what_it_does_not_say_itself(operation):
    found = operation(SAVED)
    assert found.forward.meanings["x"] == found.vjp.meanings["x"]
    assert found.forward.returned == Role(kind=RoleKind.STATUS)
    assert found.vjp.returned is None
    assert found.forward.library == found.vjp.library


def test_a_forward_of_its_own(operation, tmp_path):
    found = operation(SCAN + "forward_library = 'other.so'")
    assert found.vjp is None
    assert found.missing == {}
    assert found.forward.library == tmp_path / "other.so"


def test_the_shape_of_a_residual(operation):
    """It may stand on either side, or on both, each in its own words."""
    table = [
        ([], "N", "N"),
        (['rstd = "saved:rstd" → rstd = "saved:rstd[N]"'], "N", "N"),
        (['rstd = "saved:rstd" → rstd = "saved:rstd[size(x) // D]"'], "size(x) // D", "N"),
        (["saved:rstd[N] → saved:rstd"], "", ""),
    ]
    for changes, vjp, forward in table:
        found = operation(changed(SAVED, *changes))
        for function, shape in ((found.vjp, vjp), (found.forward, forward)):
            extents = function.meanings["rstd"].views[0].role.extents
            assert extents == ((shape,) if shape else ()), changes


def test_residuals_from_the_reference(operation):
    text = SAVED + 'residuals = "reference"\nsaved = { rstd = "1 / sqrt(mean(x * x, -1) + eps)" }'
    found = operation(text)
    assert found.residuals == "reference"
    assert [*found.saved] == ["rstd"]
    assert "eps" not in found.attrs


def test_declarations_are_in_terms_of_primals(operation):
    found = operation(
        RMS_NORM + 'accumulates = ["dw"]\nzeroed = ["x"]\naliases = [["dx", "dy"], ["w", "dw"]]'
    )
    assert found.accumulates == {"w"}
    assert found.zeroed == {"x"}
    assert found.aliases == (("x", "ct"), ("w", "w"))


def test_a_handle(operation):
    found = operation(ROPE)
    assert found.create.prototype.symbol == "plan_new"
    assert found.create.meanings["b"] == Value(expression="base")
    assert found.destroy.meanings == {"handle": Special.HANDLE}
    assert "base" not in found.attrs
    (view,) = found.vjp.meanings["d"].views
    assert (view.role.kind, view.becomes.name) == (RoleKind.COTANGENT, "x")


def test_an_optional_role_in_a_dialect_without_the_primal(operation):
    text = changed(RMS_NORM, "/weight → /plain", "in:w → in:w?", "grad:w → grad:w?")
    assert operation(text).vjp.meanings["w"].views[0].role.optional


def test_bytes_of_any_type_may_hold_a_tensor(operation):
    found = operation(changed(RMS_NORM, "float* dw → void* dw", "const float* w → floatX* w"))
    assert found.dtype == "float32"
    assert isinstance(found.vjp.meanings["dw"], Tensors)


def test_a_library_that_is_not_there(manifest, tmp_path):
    found = manifest(RMS_NORM)
    with pytest.raises(LoadError, match="there is no library") as caught:
        check_libraries(found)
    assert str(tmp_path / "build/libk.so") in str(caught.value)
    (tmp_path / "build").mkdir()
    (tmp_path / "build/libk.so").touch()
    check_libraries(found)


def mutations(text, count):
    """Copies of a text with a token or two lost, replaced, doubled, or a strange sign instead."""
    draw = random.Random("mutations of a manifest")
    tokens = re.findall(r"\w+|[^\w\s]", text)
    for _ in range(count):
        mutant = text
        for _ in range(draw.choice((1, 1, 2))):
            at = draw.choice([*re.finditer(r"\w+|[^\w\s]", mutant)])
            instead = draw.choice(
                ["", draw.choice(tokens), f"{at[0]} {at[0]}", "\0", "\u2028", "-"]
            )
            mutant = mutant[: at.start()] + instead + mutant[at.end() :]
        yield mutant


@pytest.mark.slow(keep=2)
@pytest.mark.parametrize("text", [RMS_NORM, SAVED, XENT, SCAN, ROPE])
def test_whatever_is_wrong_with_a_manifest_is_said_in_terms_of_it(manifest, text):
    refused = 0
    for mutant in mutations(text, 150):
        try:
            manifest(mutant)
        except ManifestError as error:
            assert "gradcheck.toml" in str(error)  # noqa: PT017
            refused += 1
    assert refused > 50


def test_the_manifests_in_the_documentation_are_read(manifest):
    page = (Path(__file__).parents[3] / "docs/manifest.md").read_text()
    blocks = re.findall(r"```toml\n(.*?)```", page, flags=re.DOTALL)
    whole, layouts, *others = blocks
    assert manifest(whole, "").operations["rms_norm", "float32"].accumulates == {"w"}
    assert "parts" in layouts
    kinds = [type(manifest(text, OTHER)) for text in others]
    assert kinds == [Program, PythonEntry]


# ── other kinds ──────────────────────────────────────────────────────────────────────────────

OTHER = "schema = 1\n[impl]\nname = 'k'\nversion = '3'\n"


def test_a_program(manifest, tmp_path):
    found = manifest(
        "[subprocess]\ncmd = './grads --fast \"a b\"'\nlevel = 'jsonl'\nenv = { A = '1' }", OTHER
    )
    assert isinstance(found, Program)
    assert found.command == (str(tmp_path / "grads"), "--fast", "a b")
    assert (found.level, found.environment, found.version) == ("jsonl", {"A": "1"}, "3")
    assert (found.startup, found.timeout) == (30, 10)
    listed = manifest("[subprocess]\ncmd = ['python3', 'a b.py']", OTHER)
    assert listed.command == ("python3", "a b.py")


UNUSABLE = [
    ("[subprocess]\ncmd = ''", "cmd is empty; name the program"),
    ("[subprocess]\ncmd = []", "cmd is empty; name the program"),
    ("[subprocess]\ncmd = 'a \"b'", "cmd: No closing quotation"),
    ("[subprocess]\ncmd = 'a'\ntimeout = -1", "timeout = -1.0; write seconds"),
    ("[subprocess]\ncmd = 'a'\nstartup = 0", "startup = 0.0; write seconds"),
    ("[python]\nentry = 'module'", 'write `entry = "package.module:NAME"`'),
    ("[python]\nentry = ':NAME'", 'write `entry = "package.module:NAME"`'),
]


def test_programs_and_tables_that_cannot_be(manifest):
    assert refusals(lambda text: manifest(text, OTHER), UNUSABLE) == []


def test_a_table_of_python_objects(manifest, tmp_path):
    found = manifest("[python]\nentry = 'kernels:IMPL'", OTHER)
    assert found == PythonEntry(name="k", path=tmp_path / "gradcheck.toml", entry="kernels:IMPL")
