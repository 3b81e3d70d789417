"""Cases on file and the answers to them, right, wrong, missing and hostile."""

import io
import json
import os
import pickle
import re
import subprocess
import sys
import zipfile
from pathlib import Path

import numpy as np
import pytest
from gradcheck_cases import SUITE

from gradcheck.implementations.reference import Reference
from gradcheck.numerics.arrays import dtype_named
from gradcheck.spec.suite import Case

SMALL = ("--op", "rms_norm", "--dialect", "weight", "--sample", "typical", "--sample", "batched")
BOTH = pytest.mark.parametrize("layout", ["bin", "npz"])


@pytest.fixture
def export(run):
    """`gradcheck export`, which must succeed."""

    def call(place, layout, *words):
        found = run(place, "--format", layout, *words, command="export")
        assert found.code == 0, found.err
        return Path(place)

    return call


@pytest.fixture
def judge(run):
    """`gradcheck judge --format json`: verdicts by (case and dtype, output), and what was said."""

    def call(place, *words):
        found = run(str(place), "--format", "json", *words, command="judge")
        if found.out:
            results = json.loads(found.out)["results"]
            found.results = results
            found.verdicts = {(r["name"], r["output"]): r["verdict"] for r in results}
        return found

    return call


def facts(text):
    """What `meta.txt` says: words by their line's first, in order."""
    lines = [line.split(" ", 2) for line in text.splitlines()]
    return lambda key: [line[1:] for line in lines if line[0] == key]


def value(text):
    found = json.loads(text)
    numbers = {"inf": np.inf, "-inf": -np.inf, "nan": np.nan}
    if isinstance(found, list):
        return tuple(tuple(x) if isinstance(x, list) else x for x in found)
    return numbers.get(found, found) if isinstance(found, str) else found


def gradients(text, read):
    """What the reference answers; `read(role, name, dtype, shape)` gives an array."""
    said = facts(text)

    def arrays(role):
        split = [(name, *form.split()) for name, form in said(role)]
        return {n: read(role, n, dtype_named(d), tuple(map(int, s))) for n, d, *s in split}

    spec = SUITE.operators[said("op")[0][0]]
    attrs = {name: value(text) for name, text in said("attr")}
    case = Case(spec, spec.dialects[0], spec.samples[0], 0, "any")
    bound = Reference().bind(case, said("dtype")[0][0])
    primals, cts = arrays("input"), tuple(arrays("cotangent").values())
    found = bound.vjp(cts[0] if len(cts) == 1 else cts, *primals.values(), **attrs)
    found = found if isinstance(found, tuple) else (found,)
    return {n: np.asarray(g) for n, g in zip(primals, found, strict=True) if g is not None}


def requests(place):
    """The requests, and what each says."""
    for path in sorted(place.glob("*-??????")):
        yield path, (path / "meta.txt").read_text()
    for path in sorted(place.glob("*-??????.npz")):
        with np.load(path, allow_pickle=False) as file:
            yield path, file["meta.txt"].decode()


def answered(path, text):
    """The reference's gradients for one request."""
    if path.is_dir():

        def read(role, name, dtype, shape):
            data = (path / f"{role}.{name}.bin").read_bytes()
            return np.frombuffer(data, dtype).reshape(shape) if data else np.zeros(shape, dtype)

        return gradients(text, read)
    with np.load(path, allow_pickle=False) as file:
        return gradients(text, lambda role, name, dtype, _: file[f"{role}.{name}"].view(dtype))


def put(path, found):
    """Write gradients as the answer to a request."""
    if path.is_dir():
        for name, gradient in found.items():
            (path / f"gradient.{name}.bin").write_bytes(gradient.tobytes())
        return
    bits = {n: g.view(np.uint16) if g.dtype.name == "bfloat16" else g for n, g in found.items()}
    np.savez(answer(path), **{f"gradient.{n}": g for n, g in bits.items()})


def answer(path):
    return path.with_name(f"{path.stem}.answer.npz")


def answer_all(place):
    for path, text in requests(place):
        put(path, answered(path, text))


def one(place, dtype="float32"):
    """A request whose arrays have elements, and the only case that it belongs to."""
    index = json.loads((place / "index.json").read_text())
    for case in index["cases"]:
        if case["dtype"] == dtype and case["case"].endswith("typical"):
            return place / index["places"][case["calls"][0]], f"{case['case']}/{dtype}"
    raise AssertionError


# ── what is written ──────────────────────────────────────────────────────────────────────────


@BOTH
def test_nothing_that_the_code_reads_names_a_case_or_an_expectation(export, layout):
    place = export("out", layout, *SMALL)
    found = list(requests(place))
    assert len(found) == 2 * 2 * 3  # samples, dtypes, cotangents
    for path, text in found:
        assert re.fullmatch(r"\d\d-[0-9a-f]{6}(\.npz)?", path.name)
        words = {line.split()[0] for line in text.splitlines()}
        assert words == {"protocol", "op", "ask", "dtype", "attr", "input", "cotangent", "gradient"}
        assert not any(w in text for w in ("typical", "batched", "weight", "normal", "powers"))
        names = {p.name for p in path.iterdir()} if layout == "bin" else set()
        assert names <= {"meta.txt", "input.x.bin", "input.w.bin", "cotangent.0.bin"}
    assert {p.name for p in place.iterdir()} == {
        "index.json", "README.txt", *(path.name for path, _ in found)
    }  # fmt: skip
    assert "gradcheck judge" in (place / "README.txt").read_text()


@BOTH
def test_an_export_is_the_same_bytes_again(export, layout):
    one, two = export("one", layout, *SMALL), export("two", layout, *SMALL)
    files = sorted(p.relative_to(one) for p in one.rglob("*") if p.is_file())
    assert files == sorted(p.relative_to(two) for p in two.rglob("*") if p.is_file())
    assert all((one / f).read_bytes() == (two / f).read_bytes() for f in files)


def test_another_seed_asks_something_else(export):
    one, two = export("one", "bin", *SMALL), export("two", "bin", *SMALL, "--seed", "1")
    digests = [json.loads((place / "index.json").read_text())["places"] for place in (one, two)]
    assert not set(digests[0]) & set(digests[1])


def test_what_a_dtype_does_not_hold_is_counted_and_not_asked(run):
    words = ("--op", "exp", "--dtype", "float16", "--dtype", "float32")
    found = run("out", *words, command="export")
    skipped = int(re.search(r"\((\d+) do not fit their dtype\)", found.out)[1])
    index = json.loads(Path("out/index.json").read_text())
    assert skipped > 0
    assert len(index["cases"]) == 2 * len(SUITE.cases(["exp"])) - skipped


# ── what is answered ─────────────────────────────────────────────────────────────────────────


@pytest.mark.slow(keep=1)
@BOTH
def test_the_reference_passes(export, judge, layout):
    words = ["--op", "rms_norm", "--op", "softmax_cross_entropy", "--op", "softcap_back"]
    words += ["--sample", "typical"]
    place = export("out", layout, *words, "--dtype", "all", "--seed", "3")
    answer_all(place)
    found = judge(place)
    assert found.code == 0, found.err
    assert set(found.verdicts.values()) <= {"pass", "skip"}
    names = {name.rpartition("/")[0] for name, _ in found.verdicts}
    cases = SUITE.cases(["rms_norm", "softmax_cross_entropy", "softcap_back"], samples=["typical"])
    assert names == {case.name for case in cases}
    assert len({name for name, _ in found.verdicts}) == 4 * len(cases)
    assert all(r["seed"] == 3 for r in found.results)


@pytest.mark.slow(keep=1)
@BOTH
def test_one_wrong_number_fails_its_gradient_alone(export, judge, layout):
    place = export("out", layout, *SMALL)
    answer_all(place)
    path, name = one(place)
    found = answered(path, dict(requests(place))[path])
    wrong = found["w"].copy()
    wrong[2] = np.nextafter(wrong[2] * 1.01, 9)
    put(path, {**found, "w": wrong})
    found = judge(place)
    assert found.code == 1
    assert {key for key, verdict in found.verdicts.items() if verdict != "pass"} == {(name, "w")}
    failed = next(r for r in found.results if r["verdict"] == "fail")
    assert failed["worst_index"] == [2]


@pytest.mark.slow(keep=1)
@BOTH
def test_nan_fails(export, judge, layout):
    place = export("out", layout, *SMALL)
    answer_all(place)
    path, name = one(place)
    found = answered(path, dict(requests(place))[path])
    put(path, {**found, "x": np.full_like(found["x"], np.nan)})
    found = judge(place)
    assert {key for key, verdict in found.verdicts.items() if verdict != "pass"} == {(name, "x")}


@pytest.mark.slow(keep=1)
@BOTH
def test_what_is_not_answered_is_unbound_and_nothing_answered_is_no_pass(export, judge, layout):
    place = export("out", layout, *SMALL)
    found = judge(place)
    assert found.code == 4
    assert "has no answers yet; README.txt there describes them" in found.err
    assert set(found.verdicts.values()) == {"unbound"}
    path, name = one(place)
    put(path, answered(path, dict(requests(place))[path]))
    found = judge(place)
    rest = {key: verdict for key, verdict in found.verdicts.items() if key[0] != name}
    assert set(rest.values()) == {"unbound"}
    # one cotangent of three: the others are missing
    assert {v for k, v in found.verdicts.items() if k[0] == name} == {"missing"}
    assert found.code == 1


@pytest.mark.slow(keep=1)
@BOTH
def test_a_gradient_that_is_left_out_is_missing(export, judge, layout):
    place = export("out", layout, *SMALL)
    for path, text in requests(place):
        put(path, {"x": answered(path, text)["x"]})
    found = judge(place)
    assert {verdict for (_, output), verdict in found.verdicts.items() if output == "x"} == {"pass"}
    missing = {verdict for (_, output), verdict in found.verdicts.items() if output == "w"}
    assert missing == {"missing"}


def test_the_example_in_the_readme_passes(export, judge):
    place = export("out", "npz", "--op", "silu", "--op", "relu", "--sample", "typical")
    readme = (place / "README.txt").read_text()
    code = "".join(line[4:] for line in readme.splitlines(True) if line.startswith("    "))
    subprocess.run([sys.executable, "-c", code], cwd=place, check=True)
    found = judge(place)
    assert {(r["op"], r["verdict"]) for r in found.results} == {
        ("silu", "pass"),
        ("relu", "unbound"),
    }


# ── what is no answer ────────────────────────────────────────────────────────────────────────


def outcome(judge, place, name):
    """The one result that is no pass: its verdict and its reason."""
    found = judge(place)
    assert found.code == 1
    odd = [r for r in found.results if r["verdict"] != "pass"]
    assert [r["name"] for r in odd] == [name] * len(odd)
    assert len(odd) == 1
    return odd[0]["verdict"], odd[0]["reason"]


def spoilt(place):
    """A whole export answered; the path of one request, and its case."""
    answer_all(place)
    return one(place)


@pytest.mark.slow(keep=1)
@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (lambda f: f.write_bytes(f.read_bytes()[:-4]), "has 80 bytes; 3 × 7 elements of float32"),
        (lambda f: f.write_bytes(f.read_bytes() * 2), "has 168 bytes"),
        (lambda f: (f.unlink(), f.symlink_to("../index.json")), "gradient.x.bin is no plain file"),
        (lambda f: (f.unlink(), f.symlink_to("nowhere")), "gradient.x.bin is no plain file"),
        (lambda f: (f.unlink(), os.mkfifo(f)), "gradient.x.bin is no plain file"),
        (lambda f: f.rename(f.with_name("gradient.dx.bin")), "gradient.dx.bin is not asked for"),
    ],
)
def test_a_file_that_is_no_answer_is_an_error_of_its_case(export, judge, spoil, said):
    place = export("out", "bin", *SMALL)
    path, name = spoilt(place)
    spoil(path / "gradient.x.bin")
    verdict, reason = outcome(judge, place, name)
    assert verdict == "error"
    assert said in reason
    assert path.name in reason


def resaved(change):
    """Replace an answer by what `change` makes of its arrays."""

    def spoil(file):
        with np.load(file) as old:
            arrays = dict(old)
        np.savez(file, **change(arrays))

    return spoil


def with_x(change):
    return resaved(lambda arrays: {**arrays, "gradient.x": change(arrays["gradient.x"])})


def renamed(name, data):
    """An archive that holds one file of any content."""

    def spoil(file):
        with zipfile.ZipFile(file, "w") as archive:
            archive.writestr(name, data)

    return spoil


def header(text):
    """An .npy file without an array."""
    raw = text.encode().ljust(117) + b"\n"
    return b"\x93NUMPY\x01\x00" + len(raw).to_bytes(2, "little") + raw


def pickled(obj):
    stream = io.BytesIO()
    np.lib.format.write_array(stream, np.array([obj]), allow_pickle=True)
    return stream.getvalue()


class Bomb:
    """What runs code when it is unpickled."""

    def __reduce__(self):
        return os.mkdir, ("exploded",)


HUGE = "{'descr': '<f4', 'fortran_order': False, 'shape': (1000000000000, 1000), }"
X = "gradient.x.npy"


@pytest.mark.slow(keep=4)
@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (lambda f: f.write_bytes(f.read_bytes()[:-40]), "is no .npz file"),
        (lambda f: f.write_bytes(b"dx = 3"), "is no .npz file"),
        (lambda f: f.write_bytes(b""), "is no .npz file"),
        (lambda f: f.write_bytes(pickle.dumps({"gradient.x": 3})), "is no .npz file"),
        (lambda f: (f.unlink(), f.mkdir()), "is no plain file"),
        (lambda f: (f.unlink(), f.symlink_to("index.json")), "is no plain file"),
        (lambda f: (f.unlink(), os.mkfifo(f)), "is no plain file"),
        (resaved(lambda a: {"x": a["gradient.x"]}), 'the array "x" is not asked for; wanted:'),
        (resaved(lambda a: {**a, "more": np.ones(2)}), 'the array "more" is not asked for'),
        (renamed(X, pickled(Bomb())), "gradient.x holds Python objects"),
        (renamed(X, header(HUGE) + bytes(84)), "gradient.x has 84 bytes for float32 of shape"),
        (renamed(X, header("{'descr': '<f4'")), "is no .npz file"),
        (renamed(X, b"no array"), "is no .npz file"),
        (renamed(X, bytes(1 << 20)), "too many to read"),
        (renamed("../../gradient.x.npy", b""), "is not asked for"),
        (renamed("\x1b[31m\n" * 1000 + ".npy", b""), "is not asked for"),
    ],
)
def test_an_archive_that_is_no_answer_is_an_error_of_its_case(export, judge, spoil, said):
    place = export("out", "npz", *SMALL)
    path, name = spoilt(place)
    spoil(answer(path))
    verdict, reason = outcome(judge, place, name)
    assert verdict == "error"
    assert said in reason
    assert reason.isprintable()
    assert not Path("exploded").exists()


@pytest.mark.slow(keep=3)
@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda x: x.astype(np.float64), "is float64, x is float32"),
        (lambda x: x.astype(">f4"), "is >f4, x is float32"),
        (lambda x: x.T, "has shape (7, 3), x has (3, 7)"),
        (lambda x: x[:2], "has shape (2, 7)"),
        (lambda x: x.astype(complex), "is a ndarray of complex128"),
        (lambda x: x.astype(str), "not an array of numbers"),
        (lambda x: x * np.float32(1.01), "outside the tolerance"),
    ],
)
def test_an_array_of_another_form_fails_its_gradient_alone(export, judge, change, said):
    place = export("out", "npz", *SMALL)
    path, name = spoilt(place)
    with_x(change)(answer(path))
    verdict, reason = outcome(judge, place, name)
    assert verdict == "fail"
    assert said in reason


def test_fortran_order_is_no_other_array(export, judge):
    place = export("out", "npz", *SMALL)
    path, _ = spoilt(place)
    with_x(np.asfortranarray)(answer(path))
    assert judge(place).code == 0


# ── what is no export ────────────────────────────────────────────────────────────────────────


def edited(change):
    def spoil(place):
        index = json.loads((place / "index.json").read_text())
        change(index)
        (place / "index.json").write_text(json.dumps(index))

    return spoil


@pytest.mark.slow(keep=2)
@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (lambda p: (p / "index.json").unlink(), "name a folder that `gradcheck export` wrote"),
        (lambda p: (p / "index.json").write_text("{"), "is no index of an export"),
        (lambda p: (p / "index.json").write_bytes(b"\xff"), "is no index of an export"),
        (lambda p: (p / "index.json").write_text("[" * 100_000), "is no index of an export"),
        (lambda p: (p / "index.json").write_text("[]"), "is no index of an export"),
        (edited(lambda i: i.update(format=9)), "has format 9, this version reads 1"),
        (edited(lambda i: i.update(suite_version="1999.1")), "an export of the suite builtin 1999"),
        (edited(lambda i: i.update(suite="mine")), "name its suite with --suite"),
        (edited(lambda i: i.update(seed=9)), "is another case today: write it again"),
        (edited(lambda i: i["cases"][0].update(hash="0000")), "is another case today"),
        (edited(lambda i: i["cases"][0].update(case="a/b/c")), "a/b/c is another case today"),
        (edited(lambda i: i["cases"][0].update(calls=["00"])), "is asked otherwise today"),
        (edited(lambda i: i["cases"][0].update(dtype="complex64")), "unknown dtype"),
        (
            edited(lambda i: i["places"].update({"0": "../../etc"})),
            "names a place outside of its folder",
        ),
    ],
)
def test_what_is_no_export_of_today_is_refused_with_what_to_do(export, judge, spoil, said):
    place = export("out", "bin", *SMALL)
    spoil(place)
    found = judge(place)
    assert (found.code, found.out) == (2, "")
    assert said in found.err
    assert "Traceback" not in found.err


def test_an_export_of_a_suite_of_ones_own_is_judged_by_it(export, judge):
    place = export("out", "npz", "--suite", "kernels:SUITE")
    found = judge(place)
    assert (found.code, found.out) == (2, "")
    assert "is an export of the suite mine 1, this is builtin" in found.err
    for path, _ in requests(place):
        with np.load(path) as file:
            np.savez(answer(path), **{"gradient.x": 2 * file["input.x"] * file["cotangent.0"]})
    found = judge(place, "--suite", "kernels:SUITE")
    assert found.code == 0
    assert len(found.verdicts) == 2


# ── how it is reported ───────────────────────────────────────────────────────────────────────


def test_a_failure_is_repeated_by_the_line_that_is_printed(export, run, judge):
    place = export("torch", "bin", *SMALL)  # a folder that is called as a framework is
    path, _ = spoilt(place)
    (path / "gradient.x.bin").write_bytes(bytes(84))
    found = judge(place)
    failed = next(r for r in found.results if r["verdict"] == "fail")
    words = failed["repro"].split()
    assert words[:2] == ["gradcheck", "repro"]
    assert words[-2:] == ["--impl", "./torch"]
    again = run(*words[2:], command="repro")
    assert again.code == 1
    assert failed["name"] in again.out
    assert "FAIL dx" in again.out


def test_reports_go_where_they_go_for_run(export, run):
    place = export("out", "bin", *SMALL)
    answer_all(place)
    found = run(str(place), "-o", "r.md", "-o", "r.xml", "-j", "2", command="judge")
    assert found.code == 0
    assert "\nRESULT pass checked=8 pass=8 " in found.out
    assert "all 8 checks passed" in Path("r.md").read_text()
    assert "<testsuite" in Path("r.xml").read_text()


def test_one_case_is_no_cases(run):
    words = ("--op", "rms_norm", "--dialect", "weight", "--sample", "typical", "--format", "bin")
    assert " of 1 case in there\n" in run("there", *words, command="export").out
