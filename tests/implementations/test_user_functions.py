from functools import partial, wraps
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from gradcheck.implementations.jax import jax_op
from gradcheck.implementations.python import bound_operator
from gradcheck.implementations.torch_op import torch_op
from gradcheck.implementations.user_functions import argument_names, placed, source_of


@pytest.fixture
def here(monkeypatch):
    """The working directory is this file's; gives the file's name."""
    monkeypatch.chdir(Path(__file__).parent)
    return Path(__file__).name


def plain(ct, x):
    return ct


def decorated(function):
    @wraps(function)
    def inner(*arguments):
        return function(*arguments)

    return inner


class Callable:
    def __call__(self, ct, x):
        return ct

    def vjp(self, ct, x):
        return ct

    @staticmethod
    def static(ct, x):
        return ct


LINE = plain.__code__.co_firstlineno


def first(function):
    return function.__code__.co_firstlineno


@pytest.mark.parametrize(
    ("function", "line"),
    [
        (plain, LINE),
        (partial(plain, 1), LINE),
        (decorated(plain), LINE),
        (partial(decorated(partial(plain))), LINE),
        (Callable(), first(Callable.__call__)),
        (Callable().vjp, first(Callable.vjp)),
        (Callable.static, first(Callable.static)),
    ],
    ids=["function", "partial", "wrapped", "all", "object", "method", "static"],
)
def test_a_function_is_found_through_what_wraps_it(here, function, line):
    assert source_of(function) == f"{here}:{line}"


def test_a_path_is_as_seen_from_the_working_directory(monkeypatch):
    folder = Path(__file__).parent
    monkeypatch.chdir(folder.parent)
    assert source_of(plain) == f"implementations/test_user_functions.py:{LINE}"


def test_what_lies_elsewhere_is_not_told(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    assert source_of(plain) == ""


def test_an_installed_package_is_not_the_users_to_change(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    for folder, known in (("site-packages", False), ("mine", True)):
        (tmp_path / folder).mkdir()
        file = tmp_path / folder / "kernels.py"
        file.write_text("def vjp(ct, x): return ct\n")
        made: dict = {}
        exec(compile(file.read_text(), str(file), "exec"), made)  # noqa: S102
        assert source_of(made["vjp"]) == (f"{folder}/kernels.py:1" if known else "")


class Loop:
    @property
    def __wrapped__(self):
        return self


class Hostile:
    @property
    def __wrapped__(self):
        raise KeyError("no")


def test_what_has_no_code_has_no_place(here):
    made: dict = {}
    exec("def made_up(ct): return ct", made)  # noqa: S102  a function of no file
    for function in (len, np.sum, np.add, type, made["made_up"], Loop(), Hostile(), object()):
        assert source_of(function) == ""


def test_an_entry_says_where_its_vjp_stands(here):
    class Into:
        @staticmethod
        def vjp_into(outs, ct, x):
            outs["x"] += ct

    def pullback(x):
        return x, lambda ct: ct

    class Pair:
        forward = staticmethod(pullback)

    for entry, line in (
        (Callable(), first(Callable.vjp)),
        ({"vjp": plain}, LINE),
        (Into, first(Into.vjp_into)),
        (Pair, first(pullback)),
    ):
        assert bound_operator(entry, {}, {}, ("x",)).source == f"{here}:{line}"


@pytest.mark.frameworks
def test_a_framework_says_where_the_users_own_backward_stands(here):
    torch = pytest.importorskip("torch")

    class Doubled(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return 2 * x

        @staticmethod
        def backward(ctx, ct):
            return 2 * ct

    assert bound_operator(Doubled, {}, {}).source == f"{here}:{first(Doubled.backward)}"
    assert bound_operator(torch.nn.Softmax(dim=-1), {}, {}).source == ""


@pytest.mark.frameworks
def test_jax_says_where_the_users_own_rule_stands(here):
    jax = pytest.importorskip("jax")

    @jax.custom_vjp
    def doubled(x):
        return 2 * x

    def backward(saved, ct):
        return (2 * ct,)

    doubled.defvjp(lambda x: (2 * x, None), backward)
    assert bound_operator(doubled, {}, {}).source == f"{here}:{first(backward)}"
    compiled = jax.jit(plain)
    assert bound_operator(compiled, {}, {}).source == f"{here}:{LINE}"


class Evasive:
    def __getattr__(self, name):
        raise RuntimeError(name)

    def __call__(self, x):
        return x


@pytest.mark.parametrize(
    ("function", "names"),
    [
        (plain, ("ct", "x")),
        (decorated(plain), ("ct", "x")),
        (partial(plain, 1.0), ("x",)),
        (lambda x, *, eps: x, ("x",)),
        (lambda *xs: xs[0], ()),
        (SimpleNamespace(forward=plain), ("ct", "x")),  # a module
        pytest.param(Evasive(), (), id="evasive"),
        (3, ()),
    ],
)
def test_arguments_are_named_by_the_function_below_all_wrappers(function, names):
    assert argument_names(function) == names


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("tanh(x, /, out=None, *, where=True)", ("x", "out")),
        ("\nmul(input, other, *, out=None) -> Tensor", ("input", "other")),
        ("max(input) -> Tensor", ("input",)),
        ("gelu(input, approximate = 'none')", ("input", "approximate")),
        ("sum(a, (b, c))", ()),
        ("Adds (two) numbers", ()),
        ("f(1, 2)", ()),
        (None, ()),
    ],
)
def test_a_function_without_a_signature_is_read_in_its_documentation(text, names):
    function = type("Builtin", (), {"__signature__": "none", "__doc__": text})()
    assert argument_names(function) == names


@pytest.mark.frameworks
def test_arguments_behind_what_pytorch_makes():
    torch = pytest.importorskip("torch")

    class Product(torch.autograd.Function):
        @staticmethod
        def forward(ctx, left, right):
            return left * right

    class Layer(torch.nn.Module):
        def forward(self, hidden):
            return hidden

    for function in (Product.apply, torch_op(Product).forward, torch_op(Product).vjp):
        assert argument_names(function)[:2] == ("left", "right")
    for function in (Layer(), torch_op(Layer()).forward):
        assert argument_names(function) == ("hidden",)
    assert argument_names(torch.mul)[:2] == ("input", "other")


@pytest.mark.frameworks
def test_arguments_behind_what_jax_makes():
    jax = pytest.importorskip("jax")

    def product(left, right):
        return left * right

    for function in (jax.jit(product), jax.custom_vjp(product), jax_op(product).forward):
        assert argument_names(function) == ("left", "right")


@pytest.mark.parametrize(
    ("source", "seen"),
    [
        ("src/rms.c:120", "k/src/rms.c:120"),
        ("src/rms.c", "k/src/rms.c"),
        ("src/none.c:3", "src/none.c:3"),
        ("../outside.c:3", "outside.c:3"),
        ("../../outside.c:3", "../../outside.c:3"),
        ("src:1", "src:1"),
        ("", ""),
        (":7", ":7"),
        ("\0:7", "\0:7"),
    ],
)
def test_a_manifests_file_is_sought_beside_it(monkeypatch, tmp_path, source, seen):
    folder = tmp_path / "here" / "k"
    (folder / "src").mkdir(parents=True)
    for file in (folder / "src" / "rms.c", tmp_path / "here" / "outside.c", tmp_path / "outside.c"):
        file.touch()
    monkeypatch.chdir(tmp_path / "here")
    assert placed(source, folder) == seen
