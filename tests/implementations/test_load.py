import sys
from types import ModuleType

import pytest
from gradcheck_cases import SUITE

from gradcheck.errors import GradcheckError, LoadError, UnknownNameError
from gradcheck.implementations.load import WORDS, load
from gradcheck.implementations.python import Python
from gradcheck.implementations.reference import Reference
from gradcheck.spec.suite import Suite


def test_the_reference_needs_nothing():
    assert isinstance(load("reference", Suite("empty", "0", ())), Reference)


def test_a_colon_means_a_table_of_python_functions(monkeypatch):
    module = ModuleType("kernels")
    module.IMPL = {}
    monkeypatch.setitem(sys.modules, "kernels", module)
    binding = load("kernels:IMPL", SUITE)
    assert isinstance(binding, Python)
    assert binding.name == "kernels:IMPL"


@pytest.mark.parametrize(
    ("word", "message"),
    [
        ("refernce", "did you mean 'reference'?"),
        ("Torch", "did you mean 'torch'?"),
        ("kernels", "known: jax, reference, torch"),
        ("", "known: jax, reference, torch"),
    ],
)
def test_another_word_is_a_mistake_of_the_user_with_a_hint(word, message):
    with pytest.raises(UnknownNameError) as caught:
        load(word, SUITE)
    assert message in str(caught.value)
    assert "pkg.module:NAME" in str(caught.value)
    assert caught.value.exit_code == 2


def test_every_word_that_is_offered_is_understood():
    for word in WORDS:
        try:
            assert load(word, SUITE).name == word
        except LoadError as error:  # a framework is not installed
            assert f"pip install {word}" in str(error)  # noqa: PT017


@pytest.mark.parametrize("error", [ValueError("v"), SystemExit(1), RuntimeError("r")])
def test_whatever_a_table_raises_while_it_is_read_is_a_load_error(monkeypatch, error):
    class Hostile(dict):
        def items(self):
            raise error

    module = ModuleType("kernels")
    module.IMPL = Hostile(a=1)
    monkeypatch.setitem(sys.modules, "kernels", module)
    with pytest.raises(LoadError, match=f"kernels:IMPL.*{type(error).__name__}") as caught:
        load("kernels:IMPL", SUITE)
    assert caught.value.exit_code == 3


def test_a_load_error_keeps_its_own_words():
    with pytest.raises(LoadError) as caught:
        load("no_such_kernels:IMPL", SUITE)
    assert str(caught.value).startswith("no_such_kernels:IMPL: importing no_such_kernels raised")


def test_ctrl_c_is_no_load_error(monkeypatch):
    class Interrupted(dict):
        def items(self):
            raise KeyboardInterrupt

    module = ModuleType("kernels")
    module.IMPL = Interrupted(a=1)
    monkeypatch.setitem(sys.modules, "kernels", module)
    with pytest.raises(KeyboardInterrupt):
        load("kernels:IMPL", SUITE)


def test_pytorch_missing_says_how_to_get_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(LoadError, match="PyTorch is not installed; run `pip install torch`"):
        load("torch", SUITE)
    assert issubclass(LoadError, GradcheckError)


@pytest.mark.parametrize(
    ("key", "meant"), [("rleu", "relu"), ("rms_norm/wieght", "rms_norm/weight")]
)
def test_a_key_beside_an_operators_name_is_refused(tmp_path, monkeypatch, key, meant):
    (tmp_path / f"misspelt_{meant[:3]}.py").write_text(
        f"class Op:\n    vjp = staticmethod(lambda ct, x: ct)\nIMPL = {{{key!r}: Op}}\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(LoadError, match=f"did you mean '{meant}'"):
        load(f"misspelt_{meant[:3]}:IMPL", SUITE)


def test_a_key_that_resembles_nothing_may_belong_to_another_suite(tmp_path, monkeypatch):
    (tmp_path / "elsewhere.py").write_text(
        "class Op:\n    vjp = staticmethod(lambda ct, x: ct)\n"
        "IMPL = {'conv_3d_winograd': Op, 'relu': Op}\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    assert load("elsewhere:IMPL", SUITE).name == "elsewhere:IMPL"
