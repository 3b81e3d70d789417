"""An exported C program finds what we found, linked to the library alone."""

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from gradcheck.report.scripts.c_pieces import COMPARE, MAIN, MEMORY

pytestmark = pytest.mark.skipif(shutil.which("cc") is None, reason="needs a C compiler")

RIGHT = [
    "layer_norm/affine/typical/float32:w",  # gradients added; the library's forward before
    "layer_norm/plain/batched/float32",  # padded rows
    "group_norm/affine/typical/float32",  # another order of axes, workspace
    "silu/default/typical/float64",  # in place
    "gelu/tanh/typical/float64",  # a string, a status, a pointer that leads nowhere
    "sqr/default/typical/float64",  # two buffers for one gradient
    "scale/default/typical/float64:s",  # a gradient returned, a primal by value
    "masked_cross_entropy/mean/typical/float64",  # no cotangent; the loss returned
    "square_error/mean/typical/float32",  # gradients in another scale
    "get_rows/default/typical/float64",  # indices of 16 bits
    "attention/separate/typical/float32:k",  # three tensors in one buffer
    "matmul/bias/typical/float32:b",  # nullable pointers
    "transpose/default/typical/float16",
    "transpose/default/typical/bfloat16",
    "rope/interleaved/typical/float32",  # a handle
    "sigmoid/default/typical/float64",  # another library
]
WRONG = [
    ("rms_norm/weight/typical/float32:x", 1, "WRONG: "),
    ("mul/same-shape/typical/float32:y", 1, "WRONG: "),
    ("logsumexp/default/typical/float64", 1, "WRONG: "),  # adds, and does not say so
    ("mish/default/typical/float64", 1, "nan"),  # leaves elements unwritten
    ("softmax/default/typical/float64", 1, "WRONG: "),  # takes scratch for zero
    ("hardsigmoid/default/typical/float32", 1, "the code gives two gradients of x"),
    ("relu_squared/default/typical/float32", 1, "relu_squared_backward returned 22; 0 is success"),
    ("exp/default/typical/float32", -11, ""),  # writes past the end
    ("log/default/typical/float32", -11, ""),  # reads past the end
    ("abs/default/typical/float32", -6, "abs_backward wants blocks of 16"),
    ("neg/default/typical/float32", 1, "WRONG: the code ended the process"),  # by exit(0)
    ("softplus/exact/typical/float32", -11, ""),  # writes into what is const
]
DIFFERENCED = re.compile(r"own forward, differenced at the first of them: (\S+), with a step of")
ROW = re.compile(r" *(?P<index>[\d, ()]+?)  +(?P<got>\S+) +(?P<want>\S+) ")


@pytest.fixture
def built(examples, monkeypatch):
    """`built(path)`: the program, compiled as its first line says, and without a warning, run."""

    def call(path):
        command = path.read_text().splitlines()[0].removeprefix("// ")
        compile_, _, run = command.partition(" && ")
        strict = compile_.replace("cc -g", "cc -g -Wall -Wextra -Werror", 1)
        subprocess.run(["sh", "-c", strict], check=True, cwd=path.parent, timeout=300)
        return subprocess.run(
            ["sh", "-c", f"exec {run}"], cwd=path.parent, capture_output=True, text=True,
            check=False, timeout=300,
        )  # fmt: skip

    return call


@pytest.mark.slow(keep=1, rest=4)
@pytest.mark.parametrize("case", RIGHT)
def test_a_right_function_agrees(examples, export, built, case):
    found = export(case, str(examples / "gradcheck.toml"), name="repro.c")
    assert found.code == 0, found.err
    done = built(found.path)
    assert (done.returncode, done.stderr) == (0, "")
    assert re.search(r"\nRIGHT: all \d+ elements of d\w+ agree\n$", done.stdout)
    told = DIFFERENCED.search(done.stdout)
    entry = re.escape(case.partition(":")[0].rpartition("/")[0].rpartition("/")[0])
    bare = case.partition("/")[0]
    manifest = (examples / "gradcheck.toml").read_text()
    blocks = [b for b in manifest.split("[[op]]") if re.search(rf'name = "({entry}|{bare})"', b)]
    if any("\nforward = " in block for block in blocks):
        want = float(ROW.match(done.stdout.splitlines()[1])["want"])
        assert float(told[1]) == pytest.approx(want, rel=1e-2)


@pytest.mark.slow(keep=1, rest=4)
@pytest.mark.parametrize(("case", "code", "says"), WRONG)
def test_a_wrong_function_does_not(examples, export, built, case, code, says):
    found = export(case, str(examples / "gradcheck.toml"), "--no-shrink", name="repro.c")
    assert found.code == 1, found.err
    done = built(found.path)
    assert done.returncode == code
    assert says in done.stdout + done.stderr


@pytest.mark.slow
def test_a_failure_is_exported_in_small_and_ends_with_its_cause(examples, export, built, tmp_path):
    place = tmp_path / "own library"  # a blank in its path
    shutil.copytree(examples / "minimal", place)
    (place / "build").mkdir(exist_ok=True)
    subprocess.run(["sh", "-c", BUILD], cwd=place, check=True)
    found = export("silu/default/tails/float32", str(place / "gradcheck.toml"), name="repro.c")
    assert found.code == 1, found.err
    assert built(found.path).returncode == 1
    source = (place / "silu.c").read_text()
    fixed = re.sub(r"void silu_backward\(.*", RIGHT_SILU, source, flags=re.DOTALL)
    assert fixed != source
    (place / "silu.c").write_text(fixed)
    subprocess.run(["sh", "-c", BUILD], cwd=place, check=True)
    done = built(found.path)
    assert (done.returncode, done.stderr) == (0, "")


BUILD = "cc -O2 -fPIC -shared -o build/libsilu.so silu.c -lm"
RIGHT_SILU = """void silu_backward(float *dx, const float *dy, const float *x, int n)
{
    for (int i = 0; i < n; i++) {
        double s = 1 / (1 + exp(-(double)x[i]));
        dx[i] = (float)(dy[i] * s * (1 + x[i] * (1 - s)));
    }
}
"""

LIBRARY = "void back(float *dx, const float *dy, int n) { while (n-- > 0) dx[n] = 2 * dy[n]; }\n"
PROTOTYPE = "'void back(float *dx, const float *dy, int n)'"
MANIFEST = """schema = 1
[impl]
name = "own"
[c]
library = "libown.so"
guard = "{guard}"
{more}
[[op]]
name = "{op}"
vjp = {prototype}
bind = {{ dx = "grad:x", dy = "cotangent", n = "size(x)" }}
source = "own.c:1"
"""


@pytest.fixture
def own(folder):
    """`own(op=, prototype=, guard=, more=)`: a manifest of a library with one wrong function."""

    def made(op="neg", prototype=PROTOTYPE, guard="end", more="", source=LIBRARY, missing=""):
        (folder / "own.c").write_text(source)
        words = ["cc", "-fPIC", "-shared", "own.c", "-o", "libown.so"]
        subprocess.run(words, cwd=folder, check=True)
        path = folder / "gradcheck.toml"
        path.write_text(MANIFEST.format(op=op, prototype=prototype, guard=guard, more=more)
                        + missing)  # fmt: skip
        return str(path)

    return made


TIES = """#include <math.h>
void back(float *dx, const float *dy, const float *x, int rows, int n) {
    for (int r = 0; r < rows; r++) {
        float most = -INFINITY;
        int many = 0;
        for (int i = 0; i < n; i++) most = fmaxf(most, x[r * n + i]);
        for (int i = 0; i < n; i++) many += x[r * n + i] == most;
        for (int i = 0; i < n; i++)
            dx[r * n + i] = x[r * n + i] == most ? dy[r] / SHARE : 0;
    }
}
"""
BIND = 'dx = "grad:x", dy = "cotangent", x = "in:x", rows = "rows(x)", n = "dim(x, -1)"'


@pytest.mark.slow
def test_elements_on_a_kink_must_be_right_together(own, export, built, folder):
    manifest = Path(own(op="max", prototype="'void back(float *dx, const float *dy, const float *x,"
                        " int rows, int n)'", source=TIES.replace("SHARE", "1")))  # fmt: skip
    bind = re.sub("bind = .*", f"bind = {{ {BIND} }}", manifest.read_text())
    manifest.write_text(bind)
    found = export("max/default/ties/float32", str(manifest), name="r.c")
    assert found.code == 1, found.err
    done = built(found.path)
    assert (done.returncode, done.stderr) == (1, "")
    assert "WRONG: the elements on a kink do not go together" in done.stdout
    (folder / "own.c").write_text(TIES.replace("SHARE", "many"))
    subprocess.run(["cc", "-fPIC", "-shared", "own.c", "-o", "libown.so"], cwd=folder, check=True)
    assert built(found.path).returncode == 0


HOSTILE = '''"""
/* one */ void // */ two
back(float *dx, const float *dy, int n) /* ??/ */ // \\\\"""'''


@pytest.mark.slow(keep=1)
@pytest.mark.parametrize("guard", ["end", "start", "off"])
def test_a_hostile_prototype_stays_a_comment(own, export, built, guard):
    found = export("neg/default/typical/float32", own(prototype=HOSTILE, guard=guard), name="r.c")
    assert found.code == 1, found.err
    assert built(found.path).returncode == 1
    (line,) = (line for line in found.text.splitlines() if "/* one */" in line)
    assert line.startswith("// ")


@pytest.mark.slow
def test_the_environment_of_the_manifest_is_that_of_the_program(own, export, built):
    source = "#include <stdlib.h>\n" + LIBRARY.replace("2 *", '(getenv("OWN") ? 2 : -1) *')
    found = export("neg/default/typical/float32", own(source=source), name="r.c")
    assert (found.code, built(found.path).returncode) == (0, 0)
    manifest = own(source=source, more='env = { OWN = "a b" }')
    found = export("neg/default/typical/float32", manifest, name="r.c")
    assert (found.code, built(found.path).returncode) == (1, 1)


@pytest.mark.slow
def test_a_gradient_that_the_library_lacks_is_nothing_to_show(own, export):
    found = export("sub/same-shape/typical/float32:y", own(op="sub/same-shape",
                   more="", missing='missing = { y = "frozen" }'), name="r.c")  # fmt: skip
    assert (found.code, found.text) == (2, None)
    assert "there is no gradient of y to show: frozen" in found.err
    found = export("mul/same-shape/typical/float32", own(op="mul/same-shape"), name="r.c")
    assert (found.code, found.text) == (2, None)
    assert "no parameter is the primal y" in found.err
    found = export("neg/default/typical/float32", own(), name="r.py")
    assert (found.code, found.text) == (2, None)
    assert "is a C library; end the name in .c" in found.err


@pytest.mark.parametrize("name", ["r.c", "r.py"])
def test_a_program_behind_the_protocol_is_refused(folder, export, name):
    speaker = Path(__file__).parents[2] / "implementations" / "protocol" / "speaker.py"
    command = json.dumps([sys.executable, "-I", "-S", str(speaker), "frames", "negated"])
    text = f'schema = 1\n[impl]\nname = "p"\n[subprocess]\ncmd = {command}\n'
    (folder / "program.toml").write_text(text)
    found = export("tanh/default/typical/float32", "program.toml", name=name)
    assert (found.code, found.text) == (2, None)
    assert "program.toml answers through a protocol or on file, and a short" in found.err


def test_the_pieces_leave_no_word_unfilled(own, export):
    text = export("neg/default/typical/float32", own(), name="r.c").text
    for piece in (MEMORY, COMPARE, MAIN):
        for word in re.findall(r"\b(?:GUARDS|START|NEAREST|RTOL|NAME|FIRST|STEP|COUNT)\b", piece):
            assert not re.search(rf"\b{word}\b", text)
